"""The routes of datasets. Each names its roles twice: in its rule and in its description; tests compare them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response, StreamingResponse

from csdp.service import models
from csdp.service.access import Anyone, Reader, Service, Shared, Writer, in_thread, rule
from csdp.service.events import EventStream
from csdp.service.keys import Key
from csdp.service.limits import body_of, until_gone
from csdp.service.openapi import KEYED, SNAPSHOT_BODY, Common, Count, Level, Many, Name, Tick, errors
from csdp.service.problems import Problem, busy
from csdp.service.strict_json import Json
from csdp.service.whatif import Question

router = APIRouter()


@router.get(
    "/api/datasets",
    tags=["datasets"],
    summary="The datasets of this key",
    response_model=list[models.DatasetInfo],
    responses=errors(*KEYED),
    openapi_extra=rule("writer", "reader", "admin"),
)
async def datasets(service: Shared, key: Anyone) -> Response:
    """What is published, of whom, under which terms. Names of sequences are settings, not data."""
    found = [one for name, one in sorted(service.datasets.items()) if key.covers(name)]
    return Json(await in_thread(service, lambda: [one.about() for one in found]))


@router.post(
    "/api/datasets/{name}/snapshots",
    tags=["datasets"],
    summary="Hand in readings",
    response_model=models.Counts,
    responses=errors(400, *KEYED, 404, 408, 413, 415, 422, 503),
    openapi_extra=rule("writer", requestBody=SNAPSHOT_BODY),
)
async def ingest(request: Request, name: Name, service: Shared, _: Writer) -> Response:
    """One snapshot as `application/json`, or many messages, one JSON object per line, as `application/x-ndjson`:
    snapshots, or single readings `{"time", "sequence", "value"}`.

    The answer counts messages by form, names and times; it never depends on a value. An accepted message is in memory
    (see `state_file`): after a crash send again what was not yet published, duplicates do no harm.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {"application/json", "application/x-ndjson"}:
        raise Problem(415, "type", "send application/json (one snapshot) or application/x-ndjson (many messages)")
    settings = service.settings
    with service.waiting.holding() as take:
        body = await body_of(request, take, limit=settings.max_body, seconds=settings.body_seconds)
        counts = await service.datasets[name].take(body, many=kind == "application/x-ndjson")
    for fate, count in counts.items():
        if count:
            service.metrics.messages.labels(name, fate).inc(count)
    return Json(counts)


@router.get(
    "/api/datasets/{name}/releases",
    tags=["datasets"],
    summary="Published numbers",
    response_model=list[models.ReleaseInfo],
    responses=errors(*KEYED, 404, 422, 503),
    openapi_extra=rule("reader", "admin"),
)
async def releases(name: Name, service: Shared, _: Reader, after: Tick = None, limit: Count = 100) -> Response:
    """In the order of their ticks: the first ones after a tick, or the newest ones."""
    dataset = service.datasets[name]
    return Json(await in_thread(service, lambda: dataset.releases(after, limit)))


@router.get(
    "/api/datasets/{name}/events",
    tags=["datasets"],
    summary="Published numbers, live",
    responses={
        200: {
            "description": "Server-sent events: `release`, `refused`, `status`",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **errors(*KEYED, 404, 422, 503),
    },
    response_class=StreamingResponse,
    openapi_extra=rule("reader", "admin"),
)
async def events(
    name: Name,
    service: Shared,
    key: Reader,
    last_event_id: Annotated[
        str | None,
        Header(pattern="^[0-9]{1,18}$", description="Go on after this event; 0 for everything there is"),
    ] = None,
) -> Response:
    """Events as the ledger records them; their `id` is the number of the entry. A connection that was cut goes on with
    `Last-Event-ID`. A comment comes every 15 seconds where nothing else does.
    """
    if service.listening >= service.settings.max_listeners:
        raise busy("too many clients listen already; ask for /releases in between", seconds=30)
    service.listening += 1
    feed = service.feeds[name]
    stream = _while_known(service, key, feed.listen(None if last_event_id is None else int(last_event_id)))
    return EventStream(stream, done=service.left)


async def _while_known(service: Service, key: Key, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Events until the key is removed: nobody goes on listening with a key that was taken away."""
    async with aclosing(stream):
        async for data in stream:
            if key not in service.keys.all():
                return
            yield data


@router.get(
    "/api/datasets/{name}/status",
    tags=["datasets"],
    summary="How a dataset is doing",
    response_model=models.StatusInfo,
    responses=errors(*KEYED, 404, 503),
    openapi_extra=rule("reader", "admin"),
)
async def status(name: Name, service: Shared, _: Reader) -> Response:
    """Counts, leakage against its limits, and how old the readings of each sequence are: from times and the plan."""
    return Json(await service.datasets[name].status())


@router.get(
    "/api/datasets/{name}/ledger",
    tags=["datasets"],
    summary="What was charged",
    response_model=list[models.LedgerLine],
    responses=errors(*KEYED, 404, 422, 503),
    openapi_extra=rule("reader", "admin"),
)
async def ledger(name: Name, service: Shared, key: Reader, limit: Count = 100) -> Response:
    """The newest entries: charges and hashes of published ticks; with an admin key every kind of entry."""
    dataset = service.datasets[name]
    everything = key.role == "admin"
    return Json(await in_thread(service, lambda: dataset.charges(limit, everything=everything)))


@router.get(
    "/api/datasets/{name}/what-if",
    tags=["planning"],
    summary="What other settings would cost and give",
    response_model=models.WhatIfAnswer,
    responses=errors(400, *KEYED, 404, 422, 503),
    openapi_extra=rule("reader", "admin"),
)
async def what_if(
    request: Request, name: Name, service: Shared, key: Reader, age: Common, epsilon_c: Level, releases: Many = "1"
) -> Response:
    """Leakage by bound and error, for one common age and one noise level. It touches neither data nor budget. A
    question has a time limit, and a key a share of the time of all questions.
    """
    asked: Question = ("what-if", age, epsilon_c, releases)
    return Json(await service.questions.ask(key.id, name, asked, gone=lambda: until_gone(request)))


@router.get(
    "/api/datasets/{name}/frontier",
    tags=["planning"],
    summary="Leakage against error",
    response_model=models.FrontierAnswer,
    responses=errors(400, *KEYED, 404, 422, 503),
    openapi_extra=rule("reader", "admin"),
)
async def frontier(request: Request, name: Name, service: Shared, key: Reader, releases: Many = "1") -> Response:
    """Over a grid of ages and noise levels, with the error of publishing nothing; worked out once, then kept."""
    return Json(await service.questions.ask(key.id, name, ("frontier", releases), gone=lambda: until_gone(request)))
