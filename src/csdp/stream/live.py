"""A source, a runner and a stop: the loop of `csdp stream`."""

from __future__ import annotations

import queue
import signal
import threading
import time as wall
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from csdp.errors import LedgerBusyError
from csdp.stream.messages import Message
from csdp.stream.runner import Runner, Status
from csdp.stream.sources import Source

#: Messages between source and runner; a source waits while it is full.
QUEUE = 1000
#: Seconds until a source that does not end by itself is left alone.
_PATIENCE = 5.0


@dataclass(frozen=True)
class _Item:
    message: Message
    done: Callable[[], None] | None


def run(
    runner: Runner,
    source: Source,
    *,
    stop: threading.Event | None = None,
    by_wall_clock: bool = False,
    queue_size: int = QUEUE,
    on_status: Callable[[Status, str], None] | None = None,
) -> Status:
    """Feed a runner from a source until the source ends or `stop` is set; the last status.

    Ticks that the watermark has not closed stay open: they are published by the next run, if their readings come
    again or a state file keeps them. `by_wall_clock` lets time pass although no reading comes, as the wall clock of the
    publisher says. `on_status(status, state)` is called about five times a second.
    """
    stop = runner.stop if stop is None else stop
    runner.stop = stop
    loop = _Loop(runner, source, stop, queue_size, on_status)
    worker = threading.Thread(target=loop.feed, name="csdp-source", daemon=True)
    worker.start()
    try:
        loop.settle(runner.recover)
        while not loop.finished():
            loop.take()
            if by_wall_clock:
                loop.settle(lambda: runner.advance(runner.publisher.tick_times.wall.now()))
            loop.tell()
    finally:
        stop.set()
        worker.join(_PATIENCE)
        runner.close()
    if loop.error is not None:
        raise loop.error
    loop.tell(now=True)
    return runner.status()


class _Loop:
    """The bounded queue, and both of its ends."""

    def __init__(
        self,
        runner: Runner,
        source: Source,
        stop: threading.Event,
        size: int,
        on_status: Callable[[Status, str], None] | None,
    ) -> None:
        self._runner, self._source, self._stop = runner, source, stop
        self._queue: queue.Queue[_Item] = queue.Queue(size)
        self._over = threading.Event()
        self._on_status, self._told, self._trouble = on_status, 0.0, ""
        self.error: BaseException | None = None

    # ---- the source's end ------------------------------------------------------------------------------------------

    def feed(self) -> None:
        """Run the source; what it raises is raised by `run`."""
        try:
            self._source.run(self._emit, self._stop)
        except BaseException as error:
            self.error = error
        finally:
            self._over.set()

    def _emit(self, message: Message, done: Callable[[], None] | None = None) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(_Item(message, done), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    # ---- the runner's end ------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Whether nothing is left to do. What the source has handed over for good is still taken in."""
        if self._stop.is_set() and self._runner.stuck:
            return True
        return (self._over.is_set() or self._stop.is_set()) and self._queue.empty()

    def take(self) -> None:
        """Take in one message and publish what it closes; then tell the source that it has arrived."""
        try:
            item = self._queue.get(timeout=0.1)
        except queue.Empty:
            return
        if self._stop.is_set() and item.done is not None:
            return  # not acknowledged: it comes again at the next start
        self._runner.accept(item.message)
        if item.done is not None:
            item.done()
        self.settle(self._runner.settle)

    def settle(self, work: Callable[[], object]) -> None:
        """Do something that needs the ledger, waiting while it is busy."""
        pause = 0.1
        while True:
            try:
                work()
            except LedgerBusyError:
                self._trouble = "waiting for the ledger"
                self.tell(now=True)
                if self._stop.wait(pause):
                    return
                pause = min(5.0, pause * 2)
            else:
                self._trouble = ""
                return

    def tell(self, *, now: bool = False) -> None:
        """Report, but not more than five times a second."""
        if self._on_status is None or (not now and wall.monotonic() < self._told + 0.2):
            return
        self._told = wall.monotonic()
        self._on_status(self._runner.status(), self._trouble or self._source.state())


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM ask to stop; a second one interrupts at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {which: signal.signal(which, ask) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
