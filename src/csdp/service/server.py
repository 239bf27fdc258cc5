"""The web server around the application: one process, or several that share a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from csdp.errors import InputError
from csdp.service.access import Service
from csdp.service.settings import Settings
from csdp.stream import stopping

#: Connections of one process at once.
_CONNECTIONS = 1000
#: Seconds after which an idle connection is closed; and, at the end, until requests under way are given up.
_IDLE, _GOODBYE = 20, 5


class Impatient(H11Protocol):
    """HTTP that closes connections whose next request takes too long to say what it wants."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes have come; if they are a whole head, a request has begun."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """A request is answered; the next one may come."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """The clock runs until a request has begun, however slowly its bytes drip in."""
        if self._answering():
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.app_state.get("header_seconds", _IDLE), self._late)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if not self._answering():
            self.transport.close()


def configured(app: FastAPI) -> uvicorn.Config:
    """The settings of the web server: nothing of a request is logged."""
    return uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_GOODBYE,
        h11_max_incomplete_event_size=2**16,
    )


class Server(uvicorn.Server):
    """A web server that lets listeners and long questions go when it is asked to stop: they might never end."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(configured(app))
        self._service: Service = app.state.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End live events and long questions, then wait for the requests that are under way."""
        for feed in self._service.feeds.values():
            await feed.end()
        await self._service.questions.close()
        await super().shutdown(sockets)


def bound(host: str, port: int) -> socket.socket:
    """A socket that waits for clients."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol: asyncio sends answers at once (TCP_NODELAY) only where it knows that it is TCP.
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        raise InputError(f"{host}:{port}: {why}; give another --host or --port") from None
    found.listen(2048)
    return found


def serve(settings: Settings, *, host: str, port: int, workers: int = 1, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready(port)` is called when clients can connect."""
    from csdp.service.app import create, opened

    if workers > 1:
        from csdp.service.workers import check_shared, supervised

        check_shared(settings)
        with bound(host, port) as found:
            ready(found.getsockname()[1])
            supervised(settings, found, workers)
        return
    datasets = opened(settings)  # first, so that a mistake in a specification is told before anything listens
    with bound(host, port) as found:
        ready(found.getsockname()[1])
        answer(create(settings, datasets), found)


def answer(app: FastAPI, listening: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM, which is a good end."""
    # The web server raises the signal that ended it once more when it is done.
    with stopping(threading.Event()):
        Server(app).run(sockets=[listening])
