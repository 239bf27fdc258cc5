"""The application: datasets open while it runs, routes, the dashboard, and the middleware around every request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import csdp
from csdp.errors import InputError
from csdp.service import Settings, routes
from csdp.service.access import PendingBytes, RateLimit, Service
from csdp.service.dataset import ServedDataset
from csdp.service.events import Feed
from csdp.service.keys import Keys
from csdp.service.metrics import Metrics
from csdp.service.openapi import build_openapi
from csdp.service.questions import Questions
from csdp.service.responses import HttpProblem, error_place, install_handlers
from csdp.stream.spec import read_spec

log = logging.getLogger("csdp.service")

DASHBOARD = Path(__file__).parent / "dashboard"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
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


def open_datasets(settings: Settings) -> dict[str, ServedDataset]:
    """Open the datasets of the specifications; an error names file and line."""
    datasets: dict[str, ServedDataset] = {}
    for path in settings.specs:
        spec = read_spec(path)
        if spec.dataset in datasets:
            raise spec.error("dataset", f"{spec.dataset!r} is in another specification too; each one once")
        datasets[spec.dataset] = ServedDataset(spec, settings)
    if not datasets:
        raise InputError("spec: none given; at least one specification is needed")
    return datasets


def create(settings: Settings, datasets: dict[str, ServedDataset] | None = None) -> FastAPI:
    """The application of a service; `datasets` where they are open already."""
    if datasets is None:
        datasets = open_datasets(settings)
    service = Service(
        settings=settings,
        keys=Keys(settings.keys),
        datasets=datasets,
        rate=RateLimit(rate=settings.rate, burst=settings.burst),
        failures=RateLimit(rate=settings.wrong_keys, burst=4 * settings.wrong_keys),
        pending=PendingBytes(settings.max_waiting),
        metrics=Metrics(),
        questions=Questions(
            {name: dataset.plan for name, dataset in datasets.items()},
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
                feed = service.feeds[name] = Feed(dataset)
                await asyncio.to_thread(dataset.update_leadership)
                tasks += [asyncio.create_task(dataset.maintain()), asyncio.create_task(feed.follow())]
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
    install_handlers(app)
    app.include_router(routes.router)
    if (DASHBOARD / "index.html").is_file():
        app.mount("/", StaticFiles(directory=DASHBOARD, html=True), name="dashboard")
    app.openapi = lambda: build_openapi(app)  # type: ignore[method-assign] # FastAPI's way to replace it
    app.add_middleware(SecurityHeaders)
    app.add_middleware(SendTimeout, seconds=settings.send_seconds)
    app.add_middleware(RequestCounter, metrics=service.metrics)
    app.add_middleware(ErrorBoundary)
    return app


# ---- middleware, the innermost first ---------------------------------------------------------------------------------


class SecurityHeaders:
    """Adds the headers that restrict what a browser does with an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                if scope["path"].startswith("/api") and b"cache-control" not in dict(headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = [*headers, *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class SendTimeout:
    """Gives up on clients that do not accept their answer."""

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                raise ConnectionError("the client does not take its answer") from None

        await self._app(scope, receive, send_in_time if scope["type"] == "http" else send)


class RequestCounter:
    """Counts requests by their route as it is declared, never by the address that was asked for."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 500

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - begun)


class ErrorBoundary:
    """Turns an unexpected error into a plain answer, and keeps its message out of the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        started = False

        async def send_and_note_start(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_start)
        except ConnectionError:
            log.info("a client did not take its answer and was left")
        except Exception as error:
            if scope["type"] != "http":
                raise
            log.error("an unexpected %s at %s", type(error).__name__, error_place(error))
            if not started:
                detail = "something unexpected happened; the operator's log has the place"
                await HttpProblem(500, "failed", detail).response()(scope, receive, send)
