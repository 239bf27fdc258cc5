"""The web server around the application: one process, or several workers that share a socket."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from csdp.errors import CsdpError, InputError
from csdp.scratch import Scratch, forbid_core_dumps
from csdp.service import Settings
from csdp.service.access import Service
from csdp.service.app import create, open_datasets
from csdp.stream import stop_on_signals
from csdp.stream.from_spec import make_plan, require_useful
from csdp.stream.spec import read_spec

log = logging.getLogger("csdp.service")

#: The environment variable with the settings of a worker.
ENVIRONMENT: Final = "CSDP_SERVICE"
#: Connections of one process at once.
_CONNECTIONS = 1000
#: Seconds after which an idle connection is closed; and, at the end, until requests under way are given up.
_IDLE, _GRACE = 20, 5
#: Bytes of a request besides its body: of its head, and at once between or after two parts of its body.
_HEAD = 2**16
#: Seconds between looks at the workers, before a dead one is started again, and until they are killed at the end.
_POLL, _RESTART_PAUSE, _STOP_LIMIT = 0.2, 1.0, 30.0


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
    """A web server that logs nothing of a request, and ends live events and long questions when it stops."""

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
        """End live events and long questions, then wait for the requests that are under way."""
        for feed in self._service.feeds.values():
            await feed.close()
        await self._service.questions.close()
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


def serve(settings: Settings, *, host: str, port: int, workers: int = 1, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: of the service.
        host: the address to listen on.
        port: the port; 0 for any free one.
        workers: processes; several need a ledger in PostgreSQL.
        ready: called with the port when clients can connect.
    """
    forbid_core_dumps()
    if workers > 1:
        check_shareable(settings)
        with open_socket(host, port) as listening:
            ready(listening.getsockname()[1])
            _run_workers(settings, listening, workers)
        return
    datasets = open_datasets(settings)  # first: a mistake in a specification is an error before anything listens
    with open_socket(host, port) as listening:
        ready(listening.getsockname()[1])
        answer_requests(create(settings, datasets), listening)


def answer_requests(app: FastAPI, listening: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM, which is a regular end."""
    # uvicorn raises the signal that ended it once more when it is done.
    with stop_on_signals(threading.Event()):
        Server(app).run(sockets=[listening])


# ---- workers ---------------------------------------------------------------------------------------------------------


def check_shareable(settings: Settings) -> None:
    """Refuse several workers where they cannot share a ledger, and mistakes in specifications, before they start."""
    if not hasattr(socket, "AF_UNIX"):
        raise InputError("workers: several need Unix sockets, which this system has not; use --workers 1")
    for path in settings.specs:
        spec = read_spec(path)
        if "://" not in spec.ledger or spec.ledger.startswith("sqlite"):
            raise spec.error("ledger", "several workers need postgresql://...; with a file use --workers 1")
        require_useful(spec, make_plan(spec))


def _run_workers(settings: Settings, listening: socket.socket, count: int) -> None:
    """Keep workers running until SIGINT or SIGTERM."""
    stop = threading.Event()
    # Of mode 0700: what workers tell each other is as private as their memory.
    scratch = Scratch()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        metrics = scratch.path / "metrics"
        metrics.mkdir()
        environment = {
            **os.environ,
            ENVIRONMENT: replace(settings, folder=str(scratch.path)).to_json(),
            "PROMETHEUS_MULTIPROC_DIR": str(metrics),
        }
        with stop_on_signals(stop):
            workers += [_start_worker(environment, listening) for _ in range(count)]
            while not stop.wait(_POLL):
                for i, worker in enumerate(workers):
                    code = worker.poll()
                    if code is not None:
                        log.warning("a worker ended with code %d and is started again", code)
                        stop.wait(_RESTART_PAUSE)
                        workers[i] = _start_worker(environment, listening)
    finally:
        _stop_workers(workers)
        scratch.close()


def _start_worker(environment: dict[str, str], listening: socket.socket) -> subprocess.Popen[bytes]:
    number = listening.fileno()
    command = [sys.executable, "-m", "csdp.service.server", str(number)]
    return subprocess.Popen(command, env=environment, pass_fds=[number], stdin=subprocess.DEVNULL)


def _stop_workers(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _STOP_LIMIT
    for worker in workers:
        try:
            worker.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _run_worker(number: int) -> None:
    """Answer requests on the socket with this number, as long as the parent process lives."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    settings = Settings.from_json(os.environ[ENVIRONMENT])
    with socket.socket(fileno=number) as listening:
        try:
            app = create(settings)
        except CsdpError as error:  # such as a database that is not there yet: the parent process tries again
            raise SystemExit(f"csdp: {error}") from None
        answer_requests(app, listening)


if __name__ == "__main__":
    _run_worker(int(sys.argv[1]))
