"""The application and its web server: datasets open while it runs, routes, dashboard, metrics, and what is done around
every request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import csdp
from csdp.errors import InputError, LedgerTermsError
from csdp.files import forbid_core_dumps
from csdp.noise import ENDLESS, prepare_draws
from csdp.service import Settings, routes
from csdp.service.access import PendingBytes, RateLimit, Service
from csdp.service.dataset import ServedDataset
from csdp.service.events import Feed
from csdp.service.keys import Keys
from csdp.service.responses import HttpProblem, error_place, install_handlers
from csdp.stream import stop_on_signals
from csdp.stream.spec import read_spec

log = logging.getLogger("csdp.service")

#: Connections of one process at once.
_CONNECTIONS = 1000
#: Seconds after which an idle connection is closed; and, at the end, until requests under way are given up.
_IDLE, _GRACE = 20, 5
#: Bytes of the head of a request, and of what follows its body.
_HEAD = 2**16

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
readings, gets none back), **reader** (published numbers only), **admin** (reads, sees the whole ledger).
`x-roles` at each route lists who may use it. Errors are problem details (RFC 9457)."""


def open_datasets(settings: Settings) -> dict[str, ServedDataset]:
    """Open the datasets of the specifications; an error names file and line."""
    datasets: dict[str, ServedDataset] = {}
    with ExitStack() as opened:
        for path in settings.specs:
            spec = read_spec(path)
            if spec.dataset in datasets:
                raise spec.error("dataset", f"{spec.dataset!r} is in another specification too; each one once")
            datasets[spec.dataset] = dataset = ServedDataset(spec, settings)
            opened.callback(dataset.ledger.close)
        if not datasets:
            raise InputError("spec: none given; at least one specification is needed")
        opened.pop_all()
    prepare_draws(ENDLESS)
    return datasets


def create(
    settings: Settings,
    datasets: dict[str, ServedDataset] | None = None,
    *,
    routers: Iterable[APIRouter] = (),
    work: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> FastAPI:
    """The application of a service.

    Args:
        settings: of the service.
        datasets: where they are open already.
        routers: routes besides those of every service.
        work: started with the service, and cancelled when it ends.
    """
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
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            tasks: list[asyncio.Task[None]] = []
            for name, dataset in service.datasets.items():
                stack.push_async_callback(dataset.close)
                feed = service.feeds[name] = Feed(dataset)
                await dataset.start()
                tasks += map(asyncio.create_task, (dataset.maintain(), feed.follow()))
            tasks += [asyncio.create_task(begin()) for begin in work]
            try:
                yield
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
    )
    app.state.service = service
    install_handlers(app)
    for router in (routes.router, *routers):
        app.include_router(router)
    app.mount("/", StaticFiles(directory=DASHBOARD, html=True), name="dashboard")
    app.add_middleware(RequestBoundary, send_seconds=settings.send_seconds, metrics=service.metrics)
    return app


class RequestBoundary:
    """Around every request: security headers, a time limit for sending, counts, and a plain answer to any error.

    Requests are counted by their route as it is declared, never by the address that was asked for. The message of an
    unexpected error stays out of the answer and out of the log.
    """

    def __init__(self, app: ASGIApp, *, send_seconds: float, metrics: Metrics) -> None:
        self._app = app
        self._send_seconds = send_seconds
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 0

        async def send_answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", []))
                if scope["path"].startswith("/api") and b"cache-control" not in dict(headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = [*headers, *_HEADERS]
            try:
                async with asyncio.timeout(self._send_seconds):
                    await send(message)
            except TimeoutError:
                raise ConnectionError("the client does not take its answer") from None

        try:
            await self._app(scope, receive, send_answer)
        except ConnectionError:
            log.info("a client did not take its answer and was left")
        except Exception as error:
            log.error("an unexpected %s at %s", type(error).__name__, error_place(error))
            if not status:
                detail = "something unexpected happened; the operator's log has the place"
                await HttpProblem(500, "failed", detail).response()(scope, receive, send_answer)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(route, method, str(status or 500)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - begun)


# ---- metrics ---------------------------------------------------------------------------------------------------------

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_FIGURES = {
    "published": "ticks that were published",
    "refused": "ticks that a limit refused",
    "lost": "ticks that were charged and never published",
    "present": "leakage of the present",
    "every_moment": "what everything published reveals of a sequence at any one tick, past or present",
    "event_level": "plain epsilon-DP of one record",
    "window_level": "plain epsilon-DP of a window of consecutive readings, if one is named",
    "newest_tick": "the newest tick that was charged",
    "model_reliable": "0 if the data reject the model of the leakage, or did not test it",
    "ahead": "messages refused by this process: their time lay too far ahead",
}


class Metrics:
    """The counters of a service.

    Counts, times and public leakages: no label and no value comes from a reading.
    """

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._own = own
        self.requests = Counter("csdp_http_requests", "Requests", ["route", "method", "status"], registry=own)
        self.seconds = Histogram("csdp_http_seconds", "Time of an answer", ["route"], buckets=_SECONDS, registry=own)
        self.messages = Counter(
            "csdp_messages", "Messages over HTTP, by their times", ["dataset", "fate"], registry=own
        )

    def text(self, service: Service) -> bytes:
        """Everything in Prometheus' text format; the public figures of every dataset are computed for each scrape."""
        scrape = CollectorRegistry()
        gauges = {
            name: Gauge(f"csdp_dataset_{name}", words, ["dataset"], registry=scrape) for name, words in _FIGURES.items()
        }
        listeners = Gauge("csdp_listeners", "Clients on live events", ["dataset"], registry=scrape)
        for name, dataset in service.datasets.items():
            figures: dict[str, Any] = {"model_reliable": dataset.plan.verdict.reliable}
            with suppress(LedgerTermsError):  # published under other terms by now: the figures are not known here
                figures |= dataset.figures()
            thread = dataset.publisher_thread
            if thread is not None:
                figures["ahead"] = thread.runner.status().fates.get("ahead", 0)
            for figure, gauge in gauges.items():
                if figures.get(figure) is not None:
                    gauge.labels(name).set(float(figures[figure]))
            listeners.labels(name).set(service.feeds[name].listeners)
        return generate_latest(self._own) + generate_latest(scrape)


# ---- the web server --------------------------------------------------------------------------------------------------


class Server(uvicorn.Server):
    """A web server that logs nothing of a request, and ends live events when it stops."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                h11_max_incomplete_event_size=_HEAD,
                loop="asyncio",
                ws="none",
                access_log=False,
                log_level="warning",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_CONNECTIONS,
                timeout_keep_alive=_IDLE,
                timeout_graceful_shutdown=_GRACE,
            )
        )
        self._service: Service = app.state.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End live events, then wait for the requests that are under way."""
        for feed in self._service.feeds.values():
            await feed.close()
        await super().shutdown(sockets)


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol: asyncio sends answers at once (TCP_NODELAY) only where it knows that it is TCP.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        raise InputError(f"{host}:{port}: {why}; give another --host or --port") from None
    listening.listen(2048)
    return listening


def serve(settings: Settings, *, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM, or until the right to publish a dataset is lost.

    Args:
        settings: of the service.
        host: the address to listen on.
        port: the port; 0 for any free one.
        ready: called with the port when clients can connect.
    """
    forbid_core_dumps()
    datasets = open_datasets(settings)  # first: a mistake in a specification is an error before anything listens
    with open_socket(host, port) as listening:
        ready(listening.getsockname()[1])
        answer_requests(create(settings, datasets), listening)
    for dataset in datasets.values():
        if dataset.lost is not None:
            raise dataset.lost


def answer_requests(app: FastAPI, listening: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM, which is a regular end."""
    # uvicorn raises the signal that ended it once more when it is done.
    with stop_on_signals(threading.Event()):
        Server(app).run(sockets=[listening])
