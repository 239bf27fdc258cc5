"""Several worker processes behind one socket: started, watched, started again, and stopped together."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

from csdp.scratch import Scratch
from csdp.service.settings import ENVIRONMENT, Settings

log = logging.getLogger("csdp.service")

#: Seconds between looks at the workers, before a dead one is started again, and until stubborn ones are killed.
_LOOK, _PAUSE, _PATIENCE = 0.2, 1.0, 30.0


def check_shared(settings: Settings) -> None:
    """Refuse several workers where they cannot share what they need to, and mistakes in specifications, early."""
    from csdp.stream.from_spec import planned
    from csdp.stream.spec import read_spec

    for path in settings.specs:
        spec = read_spec(path)
        if "://" not in spec.ledger or spec.ledger.startswith("sqlite"):
            raise spec.error("ledger", "several workers need postgresql://...; with a file use --workers 1")
        planned(spec)


def supervised(settings: Settings, listening: socket.socket, count: int) -> None:
    """Keep workers running until SIGINT or SIGTERM."""
    from csdp.stream import stopping

    stop = threading.Event()
    # Of mode 0700: what workers tell each other is as private as their memory.
    scratch = Scratch()
    folder = scratch.path
    workers: list[subprocess.Popen[bytes]] = []
    try:
        (folder / "metrics").mkdir()
        environment = {
            **os.environ,
            ENVIRONMENT: replace(settings, folder=str(folder)).to_json(),
            "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics"),
        }
        with stopping(stop):
            workers += [_started(environment, listening) for _ in range(count)]
            while not stop.wait(_LOOK):
                for i, worker in enumerate(workers):
                    code = worker.poll()
                    if code is not None:
                        log.warning("a worker ended with code %d and is started again", code)
                        stop.wait(_PAUSE)
                        workers[i] = _started(environment, listening)
    finally:
        _ended(workers)
        scratch.close()


def _started(environment: dict[str, str], listening: socket.socket) -> subprocess.Popen[bytes]:
    number = listening.fileno()
    command = [sys.executable, "-m", "csdp.service.workers", str(number)]
    return subprocess.Popen(command, env=environment, pass_fds=[number], stdin=subprocess.DEVNULL)


def _ended(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _PATIENCE
    for worker in workers:
        try:
            worker.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def work(number: int) -> None:
    """Be a worker, on the socket with this number, as long as the process that started it lives."""
    from csdp.service.app import create
    from csdp.service.server import answer

    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    settings = Settings.from_json(os.environ[ENVIRONMENT])
    with socket.socket(fileno=number) as listening:
        answer(create(settings), listening)


if __name__ == "__main__":
    work(int(sys.argv[1]))
