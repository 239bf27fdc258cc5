"""The routes. Each declares its roles twice, in its dependency and in its description; a test compares them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request
from pydantic import ValidationError
from starlette.responses import Response, StreamingResponse

import csdp
from csdp.service import openapi
from csdp.service.access import (
    Admin,
    AnyRole,
    Credentials,
    Reader,
    Service,
    Shared,
    Writer,
    is_local,
    read_body,
    require,
    roles_extra,
    run_in_thread,
    wait_for_disconnect,
)
from csdp.service.events import EventStream
from csdp.service.keys import Key, new_key
from csdp.service.metrics import CONTENT_TYPE
from csdp.service.openapi import (
    KEYED,
    AfterTick,
    CommonAge,
    DatasetName,
    MaxCount,
    NoiseLevel,
    ReleaseMode,
    describe_errors,
)
from csdp.service.responses import HttpProblem, JsonResponse, busy_problem
from csdp.service.solver import Question

log = logging.getLogger("csdp.service")
router = APIRouter()


# ---- the service and its keys ----------------------------------------------------------------------------------------


@router.get(
    "/health",
    tags=["service"],
    summary="Whether the service works",
    response_model=openapi.Health,
    responses=describe_errors(),
    openapi_extra=roles_extra(),
)
async def health(service: Shared) -> Response:
    """For load balancers: no key, no names. `degraded` where a dataset waits for its ledger or its source."""
    threads = [dataset.publisher_thread for dataset in service.datasets.values()]
    waits = any(thread is not None and thread.trouble for thread in threads)
    return JsonResponse({"status": "degraded" if waits else "ok", "version": csdp.__version__})


@router.get(
    "/metrics",
    tags=["service"],
    summary="Figures for Prometheus",
    responses={
        200: {"description": "Prometheus' text format", "content": {"text/plain": {}}},
        **describe_errors(*KEYED),
    },
    response_class=Response,
    openapi_extra=roles_extra("admin"),
)
async def metrics(request: Request, service: Shared, credentials: Credentials = None) -> Response:
    """Counts, times and public leakages; no label and no value comes from a reading. Needs an admin key for all
    datasets, unless the service was started to show them to this machine without one.
    """
    if not (service.settings.open_metrics and is_local(request)):
        key = await require("admin")(request, credentials)
        if not key.is_for_all:
            raise HttpProblem(403, "role", "this needs an admin key for all datasets")
    for name, feed in service.feeds.items():
        service.metrics.listeners.labels(name).set(feed.listeners)
    text = await run_in_thread(service, lambda: service.metrics.text(service.datasets.values()))
    return Response(text, media_type=CONTENT_TYPE)


@router.get(
    "/api/keys",
    tags=["keys"],
    summary="The keys there are",
    response_model=list[openapi.KeyInfo],
    responses=describe_errors(*KEYED),
    openapi_extra=roles_extra("admin"),
)
async def keys(service: Shared, key: Admin) -> Response:
    """The keys that this key may manage, without their secrets."""
    return JsonResponse([one.public_record() for one in service.keys.all() if _manages(key, one)])


@router.post(
    "/api/keys",
    tags=["keys"],
    summary="Make a key",
    status_code=201,
    response_model=openapi.KeyMade,
    responses=describe_errors(400, *KEYED, 408, 413, 415, 422),
    openapi_extra=roles_extra("admin", requestBody=openapi.KEY_BODY),
)
async def make_key(request: Request, service: Shared, key: Admin) -> Response:
    """The secret is in this answer and nowhere else: only a hash is stored. An admin of some datasets can make keys for
    those only.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpProblem(415, "type", "send application/json")
    with service.pending.reserve() as reserve:
        body = await read_body(request, reserve, limit=2**16, seconds=service.settings.body_seconds)
    wanted = _parse_new_key(body)
    if not key.is_for_all and not set(wanted.datasets) <= set(key.datasets):
        raise HttpProblem(403, "datasets", "a key can be made for the datasets of your own key only")
    made, text = new_key(wanted.role, wanted.datasets, label=wanted.label)
    await asyncio.to_thread(service.keys.add, made)
    log.info("key %s (%s) was made by key %s", made.id, made.role, key.id)
    return JsonResponse({**made.public_record(), "key": text}, status_code=201)


def _parse_new_key(body: bytes) -> openapi.NewKey:
    try:
        return openapi.NewKey.model_validate(json.loads(body))
    except ValidationError as error:
        problem = HttpProblem(422, "invalid", "not a valid request for a key; `errors` names what is wrong")
        problem.errors = [{"where": ".".join(map(str, one["loc"][:2])), "rule": one["msg"]} for one in error.errors()]
        raise problem from None
    except (ValueError, RecursionError):
        raise HttpProblem(422, "invalid", "not JSON") from None


@router.delete(
    "/api/keys/{key_id}",
    tags=["keys"],
    summary="Remove a key",
    status_code=204,
    response_class=Response,
    responses=describe_errors(*KEYED, 404, 422),
    openapi_extra=roles_extra("admin"),
)
async def remove_key(
    key_id: Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="The public part of the key")],
    service: Shared,
    key: Admin,
) -> Response:
    """It stops working at once, also on open connections. The last admin key for all datasets cannot be removed."""
    keepers = [one for one in service.keys.all() if one.role == "admin" and one.is_for_all]
    if [one.id for one in keepers] == [key_id]:
        raise HttpProblem(403, "last-admin", "this is the last admin key for all datasets; make another one first")
    removed = await asyncio.to_thread(lambda: service.keys.remove(key_id, allowed=lambda one: _manages(key, one)))
    if removed is None:
        raise HttpProblem(404, "no-key", "no such key that yours may manage")
    log.info("key %s (%s) was removed by key %s", removed.id, removed.role, key.id)
    return Response(status_code=204)


def _manages(key: Key, other: Key) -> bool:
    return key.is_for_all or set(other.datasets) <= set(key.datasets)


# ---- datasets --------------------------------------------------------------------------------------------------------


@router.get(
    "/api/datasets",
    tags=["datasets"],
    summary="The datasets of this key",
    response_model=list[openapi.DatasetInfo],
    responses=describe_errors(*KEYED),
    openapi_extra=roles_extra("writer", "reader", "admin"),
)
async def datasets(service: Shared, key: AnyRole) -> Response:
    """What is published, of whom, under which terms. Names of sequences are settings, not data."""
    covered = [dataset for name, dataset in sorted(service.datasets.items()) if key.covers(name)]
    return JsonResponse(await run_in_thread(service, lambda: [dataset.describe() for dataset in covered]))


@router.post(
    "/api/datasets/{name}/snapshots",
    tags=["datasets"],
    summary="Hand in readings",
    response_model=openapi.Counts,
    responses=describe_errors(400, *KEYED, 404, 408, 413, 415, 422, 503),
    openapi_extra=roles_extra("writer", requestBody=openapi.SNAPSHOT_BODY),
)
async def ingest(request: Request, name: DatasetName, service: Shared, _: Writer) -> Response:
    """One snapshot as `application/json`, or many messages, one JSON object per line, as `application/x-ndjson`:
    snapshots, or single readings `{"time", "sequence", "value"}`.

    The answer counts messages by form, names and times; it never depends on a value. An accepted message is in memory
    (see `state_file`): after a crash send again what was not yet published, duplicates do no harm.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {"application/json", "application/x-ndjson"}:
        raise HttpProblem(415, "type", "send application/json (one snapshot) or application/x-ndjson (many messages)")
    settings = service.settings
    with service.pending.reserve() as reserve:
        body = await read_body(request, reserve, limit=settings.max_body, seconds=settings.body_seconds)
        counts = await service.datasets[name].ingest(body, many=kind == "application/x-ndjson")
    for fate, count in counts.items():
        if count:
            service.metrics.messages.labels(name, fate).inc(count)
    return JsonResponse(counts)


@router.get(
    "/api/datasets/{name}/releases",
    tags=["datasets"],
    summary="Published numbers",
    response_model=list[openapi.ReleaseInfo],
    responses=describe_errors(*KEYED, 404, 422, 503),
    openapi_extra=roles_extra("reader", "admin"),
)
async def releases(
    name: DatasetName, service: Shared, _: Reader, after: AfterTick = None, limit: MaxCount = 100
) -> Response:
    """In the order of their ticks: the first ones after a tick, or the newest ones."""
    dataset = service.datasets[name]
    return JsonResponse(await run_in_thread(service, lambda: dataset.releases(after, limit)))


@router.get(
    "/api/datasets/{name}/events",
    tags=["datasets"],
    summary="Published numbers, live",
    responses={
        200: {
            "description": "Server-sent events: `release`, `refused`, `status`",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **describe_errors(*KEYED, 404, 422, 503),
    },
    response_class=StreamingResponse,
    openapi_extra=roles_extra("reader", "admin"),
)
async def events(
    name: DatasetName,
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


@router.get(
    "/api/datasets/{name}/status",
    tags=["datasets"],
    summary="How a dataset is doing",
    response_model=openapi.StatusInfo,
    responses=describe_errors(*KEYED, 404, 503),
    openapi_extra=roles_extra("reader", "admin"),
)
async def status(name: DatasetName, service: Shared, _: Reader) -> Response:
    """Counts, leakage against its limits, and how old the readings of each sequence are: from times and the plan."""
    return JsonResponse(await service.datasets[name].status())


@router.get(
    "/api/datasets/{name}/ledger",
    tags=["datasets"],
    summary="What was charged",
    response_model=list[openapi.LedgerLine],
    responses=describe_errors(*KEYED, 404, 422, 503),
    openapi_extra=roles_extra("reader", "admin"),
)
async def ledger(name: DatasetName, service: Shared, key: Reader, limit: MaxCount = 100) -> Response:
    """The newest entries: charges and hashes of published ticks; with an admin key every kind of entry."""
    dataset = service.datasets[name]
    everything = key.role == "admin"
    return JsonResponse(await run_in_thread(service, lambda: dataset.charges(limit, everything=everything)))


@router.get(
    "/api/datasets/{name}/what-if",
    tags=["planning"],
    summary="What other settings would cost and give",
    response_model=openapi.WhatIfAnswer,
    responses=describe_errors(400, *KEYED, 404, 422, 503),
    openapi_extra=roles_extra("reader", "admin"),
)
async def what_if(
    request: Request,
    name: DatasetName,
    service: Shared,
    key: Reader,
    age: CommonAge,
    epsilon_c: NoiseLevel,
    releases: ReleaseMode = "1",
) -> Response:
    """Leakage by bound and error, for one common age and one noise level. It touches neither data nor budget. A
    question has a time limit, and a key a share of the time of all questions.
    """
    return await _ask(request, service, key, name, ("what-if", age, epsilon_c, releases))


@router.get(
    "/api/datasets/{name}/frontier",
    tags=["planning"],
    summary="Leakage against error",
    response_model=openapi.FrontierAnswer,
    responses=describe_errors(400, *KEYED, 404, 422, 503),
    openapi_extra=roles_extra("reader", "admin"),
)
async def frontier(
    request: Request, name: DatasetName, service: Shared, key: Reader, releases: ReleaseMode = "1"
) -> Response:
    """Over a grid of ages and noise levels, with the error of publishing nothing; computed once, then cached."""
    return await _ask(request, service, key, name, ("frontier", releases))


async def _ask(request: Request, service: Service, key: Key, dataset: str, question: Question) -> Response:
    gone = partial(wait_for_disconnect, request)
    return JsonResponse(await service.questions.ask(key.id, dataset, question, wait_for_disconnect=gone))
