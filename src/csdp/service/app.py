"""The application: datasets open while it runs, routes, the dashboard, and what every answer carries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

import csdp
from csdp.errors import InputError
from csdp.service import admin_routes, problems, routes
from csdp.service.access import Service
from csdp.service.dataset import Dataset
from csdp.service.events import Feed
from csdp.service.keys import Keys
from csdp.service.limits import Rate, Waiting
from csdp.service.metrics import Counted, Metrics
from csdp.service.models import ProblemDetails
from csdp.service.problems import App, Guarded, Message, Receive, Send
from csdp.service.questions import Questions
from csdp.service.settings import Settings
from csdp.stream.spec import read_spec

DASHBOARD = Path(__file__).parent / "dashboard"

_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]

_ABOUT = """Readings come in, private numbers go out: each tick once, never above the limits of its dataset.

Every request but `/health` needs an API key, `Authorization: Bearer csdp_...`, with a role: **writer** (hands in
readings, gets none back), **reader** (published numbers only), **admin** (reads, sees the whole ledger, manages keys).
`x-roles` at each route lists who may use it. Errors are problem details (RFC 9457)."""


def opened(settings: Settings) -> dict[str, Dataset]:
    """The datasets of the specifications; an error names file and line."""
    found: dict[str, Dataset] = {}
    for path in settings.specs:
        spec = read_spec(path)
        if spec.dataset in found:
            raise spec.error("dataset", f"{spec.dataset!r} is in another specification too; each one once")
        found[spec.dataset] = Dataset(spec, settings)
    if not found:
        raise InputError("spec: none given; at least one specification is needed")
    return found


def create(settings: Settings, datasets: dict[str, Dataset] | None = None) -> FastAPI:
    """The application of a service; `datasets` where they were opened before."""
    found = opened(settings) if datasets is None else datasets
    service = Service(
        settings=settings,
        keys=Keys(settings.keys),
        datasets=found,
        rate=Rate(rate=settings.rate, burst=settings.burst),
        failures=Rate(rate=settings.wrong_keys, burst=4 * settings.wrong_keys),
        waiting=Waiting(settings.max_waiting),
        metrics=Metrics(),
        questions=Questions(
            {name: dataset.plan for name, dataset in found.items()},
            processes=settings.questions,
            seconds=settings.question_seconds,
            share=settings.question_share,
        ),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, float]]:
        async with AsyncExitStack() as stack:
            tasks = []
            stack.push_async_callback(service.questions.close)
            for name, dataset in service.datasets.items():
                stack.push_async_callback(dataset.close)
                await asyncio.to_thread(dataset.lead)
                service.feeds[name] = Feed(dataset)
                tasks += [asyncio.create_task(dataset.tend()), asyncio.create_task(service.feeds[name].follow())]
            try:
                yield {"header_seconds": settings.header_seconds}
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    app = FastAPI(
        title="csdp",
        version=csdp.__version__,
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.service = service
    problems.install(app)
    app.include_router(admin_routes.router)
    app.include_router(routes.router)
    if (DASHBOARD / "index.html").is_file():
        app.mount("/", StaticFiles(directory=DASHBOARD, html=True), name="dashboard")
    app.openapi = lambda: _described(app)  # type: ignore[method-assign] # as FastAPI asks for it
    app.add_middleware(Headed)
    app.add_middleware(Patient, seconds=settings.send_seconds)
    app.add_middleware(Counted, metrics=service.metrics)
    app.add_middleware(Guarded)
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description, with one schema for every error."""
    if app.openapi_schema is None:
        from fastapi.openapi.utils import get_openapi

        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemDetails"] = ProblemDetails.model_json_schema()
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        app.openapi_schema = found
    return app.openapi_schema


class Headed:
    """Gives every answer the headers that keep a browser from doing more than it should."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                if scope["path"].startswith("/api") and not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = [*headers, *_HEADERS]
            await send(message)

        await self._app(scope, receive, headed if scope["type"] == "http" else send)


class Patient:
    """Gives up on clients that do not take their answer."""

    def __init__(self, app: App, *, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def patient(message: Message) -> None:
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                raise ConnectionError("the client does not take its answer") from None

        await self._app(scope, receive, patient if scope["type"] == "http" else send)
