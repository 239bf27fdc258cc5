"""The web server around the application."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

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
#: Bytes of the head of a request, and of what follows its body.
_HEAD = 2**16


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
