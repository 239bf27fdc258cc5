"""The routes of the service."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

import csdp
from csdp.service.access import CurrentKey, Shared, for_roles, read_body, run_in_thread
from csdp.service.events import EventStream
from csdp.service.keys import ROLES
from csdp.service.responses import MESSAGE_COUNTS, PROBLEMS, HttpProblem, JsonResponse, busy_problem

router = APIRouter(responses=PROBLEMS)
PLACE = "/api/datasets/{name}"
DatasetName = Annotated[str, Path(description="The name of a dataset", min_length=1, max_length=200)]
AfterTick = Annotated[
    int | None, Query(ge=-(2**62), le=2**62, description="Only ticks after this one; else the newest")
]
MaxCount = Annotated[int, Query(ge=1, le=1000, description="How many at most")]


class SnapshotBody(BaseModel):
    """Readings of one time."""

    time: float | str = Field(description="A number, or an ISO timestamp (UTC if it names no zone)")
    values: dict[str, Any] | list[Any] = Field(
        description="By name, or in the order of the sequences: numbers, or null for a gap; anything else is a gap too",
        examples=[{"bed 3": 81, "bed 4": None}],
    )


_LINES = {
    "type": "string",
    "examples": ['{"time": 60, "sequence": "bed 3", "value": 81}\n{"time": 61, "values": [80]}'],
}
_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": SnapshotBody.model_json_schema()},
        "application/x-ndjson": {"schema": _LINES},
    },
}


# ---- the service -----------------------------------------------------------------------------------------------------


@router.get("/health", tags=["service"], summary="Whether the service works", openapi_extra={"x-roles": []})
async def health(service: Shared) -> Response:
    """For load balancers: no key, no names. `degraded` if a dataset waits for its ledger, its source or its sink, or
    is not published.
    """
    waits = any(dataset.trouble for dataset in service.datasets.values())
    return JsonResponse({"status": "degraded" if waits else "ok", "version": csdp.__version__})


@router.get(
    "/metrics",
    tags=["service"],
    summary="Figures for Prometheus",
    responses={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}},
    response_class=Response,
    **for_roles("admin"),
)
async def metrics(service: Shared, key: CurrentKey) -> Response:
    """Counts, times and public leakages; no label and no value comes from a reading. Needs an admin key for all
    datasets.
    """
    if not key.is_for_all:
        raise HttpProblem(403, "role", "this needs an admin key for all datasets")
    text = await run_in_thread(service, lambda: service.metrics.text(service))
    return Response(text, media_type=service.metrics.content_type)


# ---- datasets --------------------------------------------------------------------------------------------------------


@router.get("/api/datasets", tags=["datasets"], summary="The datasets of this key", **for_roles(*ROLES))
async def datasets(service: Shared, key: CurrentKey) -> Response:
    """What is published, of whom, under which terms. Names of sequences are settings, not data."""
    covered = [dataset for name, dataset in sorted(service.datasets.items()) if key.covers(name)]
    return JsonResponse(await run_in_thread(service, lambda: [dataset.describe() for dataset in covered]))


_writers = for_roles("writer")
_writers["openapi_extra"]["requestBody"] = _BODY


@router.post(f"{PLACE}/snapshots", tags=["datasets"], summary="Hand in readings", **_writers)
async def ingest(request: Request, name: DatasetName, service: Shared) -> Response:
    """One snapshot as `application/json`, or many messages, one JSON object per line, as `application/x-ndjson`:
    snapshots, or single readings `{"time", "sequence", "value"}`.

    The answer counts messages by form, names and times; it never depends on a value. A snapshot that names an unknown
    sequence is refused as a whole. An accepted message is in memory (see `state_file`): after a crash send again what
    was not yet published, duplicates do no harm.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {"application/json", "application/x-ndjson"}:
        raise HttpProblem(415, "type", "send application/json (one snapshot) or application/x-ndjson (many messages)")
    with service.pending.reserve() as reserve:
        body = await read_body(request, reserve, service.settings)
        counts = await service.datasets[name].ingest(body, many=kind == "application/x-ndjson")
    for fate in MESSAGE_COUNTS:
        if counts.get(fate):
            service.metrics.messages.labels(name, fate).inc(counts[fate])
    return JsonResponse(counts)


@router.get(f"{PLACE}/releases", tags=["datasets"], summary="Published numbers", **for_roles("reader", "admin"))
async def releases(name: DatasetName, service: Shared, after: AfterTick = None, limit: MaxCount = 100) -> Response:
    """In the order of their ticks: the first ones after a tick, or the newest ones."""
    dataset = service.datasets[name]
    return JsonResponse(await run_in_thread(service, lambda: dataset.releases(after, limit)))


@router.get(
    f"{PLACE}/events",
    tags=["datasets"],
    summary="Published numbers, live",
    responses={200: {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    response_class=StreamingResponse,
    **for_roles("reader", "admin"),
)
async def events(
    name: DatasetName,
    service: Shared,
    key: CurrentKey,
    last_event_id: Annotated[
        str | None, Header(pattern="^[0-9]{1,18}$", description="Go on after this event; 0 for everything there is")
    ] = None,
) -> Response:
    """Events as the ledger records them: `release`, `refused`, `status`, `reset`; their `id` is the number of the
    entry. A connection that was cut goes on with `Last-Event-ID`; one beyond the newest entry is answered with `reset`,
    and events go on from there. A comment comes every 15 seconds if nothing else does.
    """
    if sum(feed.listeners for feed in service.feeds.values()) >= service.settings.max_listeners:
        raise busy_problem("too many clients listen already; ask for /releases in between", seconds=30)
    after = None if last_event_id is None else int(last_event_id)
    return EventStream(service.feeds[name].listen(after, lambda: key in service.keys.all()))


@router.get(f"{PLACE}/status", tags=["datasets"], summary="How a dataset is doing", **for_roles("reader", "admin"))
async def status(name: DatasetName, service: Shared) -> Response:
    """Counts, leakage against its limits, and how old the readings of each sequence are: from times and the plan."""
    return JsonResponse(await service.datasets[name].status())


@router.get(f"{PLACE}/ledger", tags=["datasets"], summary="What was charged", **for_roles("reader", "admin"))
async def ledger(name: DatasetName, service: Shared, key: CurrentKey, limit: MaxCount = 100) -> Response:
    """The newest entries: charges and hashes of published ticks; with an admin key every kind of entry."""
    dataset = service.datasets[name]
    everything = key.role == "admin"
    return JsonResponse(await run_in_thread(service, lambda: dataset.charges(limit, everything=everything)))
