"""The routes around the data: whether all is well, figures for Prometheus, and keys."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import ValidationError
from starlette.responses import Response

import csdp
from csdp.service import models
from csdp.service.access import Admin, Given, Shared, in_thread, need, on_this_machine, rule
from csdp.service.keys import Key, new_key
from csdp.service.limits import body_of
from csdp.service.metrics import CONTENT_TYPE
from csdp.service.openapi import KEY_BODY, KEYED, errors
from csdp.service.problems import Problem
from csdp.service.strict_json import Json

log = logging.getLogger("csdp.service")
router = APIRouter()


@router.get(
    "/health",
    tags=["service"],
    summary="Whether the service works",
    response_model=models.Health,
    responses=errors(),
    openapi_extra=rule(),
)
async def health(service: Shared) -> Response:
    """For load balancers: no key, no names. `degraded` where a dataset waits for its ledger or its source."""
    waits = any(dataset.live is not None and dataset.live.trouble for dataset in service.datasets.values())
    return Json({"status": "degraded" if waits else "ok", "version": csdp.__version__})


@router.get(
    "/metrics",
    tags=["service"],
    summary="Figures for Prometheus",
    responses={200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}, **errors(*KEYED)},
    response_class=Response,
    openapi_extra=rule("admin"),
)
async def metrics(request: Request, service: Shared, given: Given = None) -> Response:
    """Counts, times and public leakages; no label and no value comes from a reading. Needs an admin key for all
    datasets, unless the service was started to show them to this machine without one.
    """
    if not (service.settings.open_metrics and on_this_machine(request)):
        key = await need("admin")(request, given)
        if not key.everywhere:
            raise Problem(403, "role", "this needs an admin key for all datasets")
    for name, feed in service.feeds.items():
        service.metrics.listeners.labels(name).set(feed.listeners)
    text = await in_thread(service, lambda: service.metrics.text(service.datasets.values()))
    return Response(text, media_type=CONTENT_TYPE)


@router.get(
    "/api/keys",
    tags=["keys"],
    summary="The keys there are",
    response_model=list[models.KeyInfo],
    responses=errors(*KEYED),
    openapi_extra=rule("admin"),
)
async def keys(service: Shared, key: Admin) -> Response:
    """Those that this key may manage, without their secrets."""
    return Json([one.shown() for one in service.keys.all() if _manages(key, one)])


@router.post(
    "/api/keys",
    tags=["keys"],
    summary="Make a key",
    status_code=201,
    response_model=models.KeyMade,
    responses=errors(400, *KEYED, 408, 413, 415, 422),
    openapi_extra=rule("admin", requestBody=KEY_BODY),
)
async def make_key(request: Request, service: Shared, key: Admin) -> Response:
    """Its secret is in this answer and nowhere else: only a hash is kept. An admin of some datasets can make keys for
    those alone.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "type", "send application/json")
    with service.waiting.holding() as take:
        body = await body_of(request, take, limit=2**16, seconds=service.settings.body_seconds)
    wish = _wished(body)
    if not key.everywhere and not set(wish.datasets) <= set(key.datasets):
        raise Problem(403, "datasets", "a key can be made for the datasets of your own key only")
    made, text = new_key(wish.role, wish.datasets, label=wish.label)
    await asyncio.to_thread(service.keys.add, made)
    log.info("key %s (%s) was made by key %s", made.id, made.role, key.id)
    return Json({**made.shown(), "key": text}, status_code=201)


def _wished(body: bytes) -> models.NewKey:
    try:
        return models.NewKey.model_validate(json.loads(body))
    except (ValueError, RecursionError) as error:
        found = Problem(422, "invalid", "not a wish for a key; `errors` names what is wrong")
        if isinstance(error, ValidationError):
            found.errors = [{"where": ".".join(map(str, one["loc"][:2])), "rule": one["msg"]} for one in error.errors()]
            raise found from None
        raise Problem(422, "invalid", "not JSON") from None


@router.delete(
    "/api/keys/{key_id}",
    tags=["keys"],
    summary="Remove a key",
    status_code=204,
    response_class=Response,
    responses=errors(*KEYED, 404, 422),
    openapi_extra=rule("admin"),
)
async def remove_key(
    key_id: Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="The public part of the key")],
    service: Shared,
    key: Admin,
) -> Response:
    """At once, also for connections that are open. The last admin key for all datasets stays."""
    keepers = [one for one in service.keys.all() if one.role == "admin" and one.everywhere]
    if [one.id for one in keepers] == [key_id]:
        raise Problem(403, "last-admin", "this is the last admin key for all datasets; make another one first")
    gone = await asyncio.to_thread(lambda: service.keys.remove(key_id, allowed=lambda one: _manages(key, one)))
    if gone is None:
        raise Problem(404, "no-key", "no such key that yours may manage")
    log.info("key %s (%s) was removed by key %s", gone.id, gone.role, key.id)
    return Response(status_code=204)


def _manages(key: Key, other: Key) -> bool:
    return key.everywhere or set(other.datasets) <= set(key.datasets)
