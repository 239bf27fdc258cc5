"""The routes. Each declares its roles twice, in its dependency and in its description; a test compares them."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Header, Request
from starlette.responses import Response, StreamingResponse

import csdp
from csdp.service import responses
from csdp.service.access import (
    Admin,
    AnyRole,
    Reader,
    Service,
    Shared,
    Writer,
    read_body,
    run_in_thread,
)
from csdp.service.events import EventStream
from csdp.service.keys import ROLES, Key
from csdp.service.responses import (
    AfterTick,
    DatasetName,
    HttpProblem,
    JsonResponse,
    MaxCount,
    busy_problem,
)

log = logging.getLogger("csdp.service")
router = APIRouter()
Handler = TypeVar("Handler", bound=Callable[..., Any])


def _route(
    method: str,
    path: str,
    tag: str,
    summary: str,
    *,
    roles: Sequence[str] = (),
    errors: Sequence[int] = (),
    answer: dict[str, Any] | None = None,
    body: dict[str, Any] | None = None,
    **settings: Any,
) -> Callable[[Handler], Handler]:
    """Declare a route and describe it: `roles` may use it, `errors` are those besides 401, 403, 429 and 500.

    `answer` describes an answer that is not JSON, `body` the body of a request; FastAPI gets the other settings.
    """
    codes = (*((401, 403, 429) if roles else ()), *errors)
    return router.api_route(
        path,
        methods=[method],
        tags=[tag],
        summary=summary,
        response_model=None,
        responses={**({} if answer is None else {200: answer}), **responses.describe_errors(*codes)},
        openapi_extra={"x-roles": list(roles), **({} if body is None else {"requestBody": body})},
        **settings,
    )


def _read_route(
    name: str, tag: str, summary: str, *, errors: Sequence[int] = (404, 422, 503), **more: Any
) -> Callable[[Handler], Handler]:
    """Declare a route of a dataset for readers and admins."""
    path = f"/api/datasets/{{name}}/{name}"
    return _route("GET", path, tag, summary, roles=("reader", "admin"), errors=errors, **more)


# ---- the service -----------------------------------------------------------------------------------------------------


@_route("GET", "/health", "service", "Whether the service works")
async def health(service: Shared) -> Response:
    """For load balancers: no key, no names. `degraded` if a dataset waits for its ledger, its source or its sink, or
    where no process publishes it, also if that is another process than the one that answers.
    """
    waits = any(dataset.trouble for dataset in service.datasets.values())
    return JsonResponse({"status": "degraded" if waits else "ok", "version": csdp.__version__})


@_route(
    "GET",
    "/metrics",
    "service",
    "Figures for Prometheus",
    roles=("admin",),
    answer={"description": "Prometheus' text format", "content": {"text/plain": {}}},
    response_class=Response,
)
async def metrics(service: Shared, key: Admin) -> Response:
    """Counts, times and public leakages; no label and no value comes from a reading. Needs an admin key for all
    datasets.
    """
    if not key.is_for_all:
        raise HttpProblem(403, "role", "this needs an admin key for all datasets")
    for name, feed in service.feeds.items():
        service.metrics.listeners.labels(name).set(feed.listeners)
    text = await run_in_thread(service, lambda: service.metrics.text(service.datasets.values()))
    return Response(text, media_type=service.metrics.content_type)


# ---- datasets --------------------------------------------------------------------------------------------------------


@_route("GET", "/api/datasets", "datasets", "The datasets of this key", roles=ROLES)
async def datasets(service: Shared, key: AnyRole) -> Response:
    """What is published, of whom, under which terms. Names of sequences are settings, not data."""
    covered = [dataset for name, dataset in sorted(service.datasets.items()) if key.covers(name)]
    return JsonResponse(await run_in_thread(service, lambda: [dataset.describe() for dataset in covered]))


@_route(
    "POST",
    "/api/datasets/{name}/snapshots",
    "datasets",
    "Hand in readings",
    roles=("writer",),
    errors=(400, 404, 408, 413, 415, 422, 503),
    body=responses.SNAPSHOT_BODY,
)
async def ingest(request: Request, name: DatasetName, service: Shared, _: Writer) -> Response:
    """One snapshot as `application/json`, or many messages, one JSON object per line, as `application/x-ndjson`:
    snapshots, or single readings `{"time", "sequence", "value"}`.

    The answer counts messages by form, names and times; it never depends on a value. A snapshot that names an unknown
    sequence is refused as a whole. An accepted message is in memory (see `state_file`): after a crash send again what
    was not yet published, duplicates do no harm.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {"application/json", "application/x-ndjson"}:
        raise HttpProblem(415, "type", "send application/json (one snapshot) or application/x-ndjson (many messages)")
    settings = service.settings
    with service.pending.reserve() as reserve:
        body = await read_body(request, reserve, limit=settings.max_body, seconds=settings.body_seconds)
        counts = await service.datasets[name].ingest(body, many=kind == "application/x-ndjson")
    for fate in responses.MESSAGE_COUNTS:
        if counts.get(fate):
            service.metrics.messages.labels(name, fate).inc(counts[fate])
    return JsonResponse(counts)


@_read_route("releases", "datasets", "Published numbers")
async def releases(
    name: DatasetName, service: Shared, _: Reader, after: AfterTick = None, limit: MaxCount = 100
) -> Response:
    """In the order of their ticks: the first ones after a tick, or the newest ones."""
    dataset = service.datasets[name]
    return JsonResponse(await run_in_thread(service, lambda: dataset.releases(after, limit)))


@_read_route(
    "events",
    "datasets",
    "Published numbers, live",
    answer={
        "description": "Server-sent events: `release`, `refused`, `status`, `reset`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    response_class=StreamingResponse,
)
async def events(
    name: DatasetName,
    service: Shared,
    key: Reader,
    last_event_id: Annotated[
        str | None, Header(pattern="^[0-9]{1,18}$", description="Go on after this event; 0 for everything there is")
    ] = None,
) -> Response:
    """Events as the ledger records them; their `id` is the number of the entry. A connection that was cut goes on with
    `Last-Event-ID`; one beyond the newest entry is answered with `reset`, and events go on from there. A comment comes
    every 15 seconds if nothing else does.
    """
    if service.listening >= service.settings.max_listeners:
        raise busy_problem("too many clients listen already; ask for /releases in between", seconds=30)
    service.listening += 1
    feed = service.feeds[name]
    stream = _until_key_removed(service, key, feed.listen(None if last_event_id is None else int(last_event_id)))
    return EventStream(stream, on_close=service.remove_listener)


async def _until_key_removed(
    service: Service, key: Key, stream: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Events until the key of the listener is removed."""
    async with aclosing(stream):
        async for data in stream:
            if key not in service.keys.all():
                return
            yield data


@_read_route("status", "datasets", "How a dataset is doing", errors=(404, 503))
async def status(name: DatasetName, service: Shared, _: Reader) -> Response:
    """Counts, leakage against its limits, and how old the readings of each sequence are: from times and the plan."""
    return JsonResponse(await service.datasets[name].status())


@_read_route("ledger", "datasets", "What was charged")
async def ledger(name: DatasetName, service: Shared, key: Reader, limit: MaxCount = 100) -> Response:
    """The newest entries: charges and hashes of published ticks; with an admin key every kind of entry."""
    dataset = service.datasets[name]
    everything = key.role == "admin"
    return JsonResponse(await run_in_thread(service, lambda: dataset.charges(limit, everything=everything)))
