"""The web server around the application."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from csdp.errors import InputError
from csdp.files import forbid_core_dumps
from csdp.service import Settings
from csdp.service.access import Service
from csdp.service.app import create, open_datasets
from csdp.stream import stop_on_signals

log = logging.getLogger("csdp.service")

#: Connections of one process at once.
_CONNECTIONS = 1000
#: Seconds after which an idle connection is closed; and, at the end, until requests under way are given up.
_IDLE, _GRACE = 20, 5
#: Bytes of a request besides its body: of its head, and at once between or after two parts of its body.
_HEAD = 2**16


class LimitedProtocol(HttpToolsProtocol):
    """HTTP that closes connections on which the head of the next request takes too long, or too many bytes.

    Trailers, which may follow a body in chunks, are no headers: nobody reads them, and they are not kept.
    """

    _timer: asyncio.TimerHandle | None = None
    _other = 0  # bytes since the request began, or since the last part of its body
    _has_head = False

    def connection_made(self, transport: Any) -> None:
        """Start the timer when a client has connected."""
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer when the bytes complete the head of a request; close the connection where there is no end."""
        self._other += len(data)
        super().data_received(data)
        self._update_timer()
        if self._other > _HEAD and not self.transport.is_closing():
            self.send_400_response(f"At most {_HEAD:,} bytes of headers are taken.")

    def on_message_begin(self) -> None:
        """Count the bytes of a new request."""
        super().on_message_begin()
        self._other, self._has_head = 0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; leave a trailer."""
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer; what looks like a header from here on is a trailer."""
        self._has_head = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, which has a limit of its own, and count anew after it."""
        self._other = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        super().on_response_complete()
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer when the client is gone."""
        self._stop_timer()
        super().connection_lost(exc)

    def _update_timer(self) -> None:
        """Run the timer while no request is answered, however slowly the bytes of the next one arrive."""
        if self._is_answering():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.app_state.get("header_seconds", _IDLE), self._close_if_late)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_if_late(self) -> None:
        self._timer = None
        if not self._is_answering():
            self.transport.close()


class Server(uvicorn.Server):
    """A web server that logs nothing of a request, and ends live events when it stops."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
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
