"""Where readings come from (lines on a stream, a file that grows, a table; MQTT is in `csdp.stream.mqtt`), and the loop
that feeds a runner from a source.

A source pushes messages through `emit`, which waits while the runner is behind: the only queue between the two is
bounded, so a slow sink or ledger slows the source down instead of filling memory.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Protocol

import numpy as np

from csdp.errors import InputError, LedgerBusyError
from csdp.panel import InputSpec, read_readings
from csdp.stream.messages import MAX_BYTES, Bad, Message, Snapshot, decode_message
from csdp.stream.runner import Runner
from csdp.stream.ticks import Status

#: Messages between source and runner; a source waits while it is full.
QUEUE = 1000
#: Seconds until a source that does not end by itself is left alone.
_JOIN_LIMIT = 5.0
#: Bytes that are read at once.
_BLOCK = 2**16
#: Seconds between two looks at a file that has not grown, or at `stop`.
_PAUSE = 0.1


#: Hands a message to the runner, waiting for a place in the queue; False if the stream is being stopped. The function
#: beside the message, if there is one, is called once it is accepted.
Emit = Callable[..., bool]


class Source(Protocol):
    """Pushes messages until it ends or is stopped; runs in a thread of its own."""

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit every message; return at the end of the input, or soon after `stop` is set."""

    def state(self) -> str:
        """A few words for the status line; empty if all is well."""


class LineSplitter:
    """Splits bytes into lines. What follows the last line break waits for more; a line that is too long is dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._too_long = False

    def feed(self, block: bytes) -> Iterator[Message]:
        """The messages that these bytes complete; empty lines are none."""
        *whole, self._rest = (self._rest + block).split(b"\n")
        for line in whole:
            if self._too_long:
                self._too_long = False
                yield Bad(f"longer than {MAX_BYTES:,} bytes")
            elif line.strip():
                yield decode_message(line)
        if len(self._rest) > MAX_BYTES:
            self._rest = b""
            self._too_long = True

    def end(self) -> Iterator[Message]:
        """The message of a last line without line break."""
        yield from self.feed(b"\n")


def emit_lines(read: Callable[[], bytes | None], emit: Emit, stop: threading.Event) -> None:
    """Emit the messages in what `read` returns until it is empty; None means that there is nothing yet."""
    lines = LineSplitter()
    while not stop.is_set():
        block = read()
        if block is None:
            continue
        messages = lines.feed(block) if block else lines.end()
        if not all(emit(message) for message in messages) or not block:
            return


class StreamSource:
    """Lines of JSON on an open binary stream, such as standard input."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit the messages until the stream ends."""
        emit_lines(self._read, emit, stop)

    def _read(self) -> bytes | None:
        try:
            handle = self._stream.fileno()
        except OSError:  # in memory
            return self._stream.read(_BLOCK)
        return os.read(handle, _BLOCK) if select.select([handle], [], [], _PAUSE)[0] else None

    def state(self) -> str:
        """Empty."""
        return ""


class FileSource:
    """Lines of JSON in a file; with `follow` also those that are added later.

    A file is read from its beginning: ticks that were published are not published again. One that is replaced or cut
    while it is followed ends the stream.
    """

    def __init__(self, path: str | Path, *, follow: bool = True) -> None:
        self._path = Path(path)
        self._follow = follow
        if not follow and not self._path.is_file():
            raise InputError(f"{self._path}: no such file")

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit the messages of the file."""
        while not self._path.is_file():
            if stop.wait(_PAUSE):
                return
        with self._path.open("rb", buffering=0) as file:

            def read() -> bytes | None:
                block = file.read(_BLOCK)
                if block or not self._follow:
                    return block
                self._check_same(file.fileno(), file.tell())
                stop.wait(_PAUSE)
                return None

            emit_lines(read, emit, stop)

    def _check_same(self, handle: int, place: int) -> None:
        here = os.fstat(handle)
        there = self._path.stat() if self._path.exists() else here
        if here.st_size < place or (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise InputError(
                f"{self._path}: it was replaced or cut while it was followed; start again to read the new file, and "
                "append to it"
            )

    def state(self) -> str:
        """Whether it waits for the file."""
        return "" if self._path.is_file() else "waiting for the file"


class TableSource:
    """The readings of a table, tick after tick: a replay of what is not over at `after`, which ends with the table."""

    def __init__(self, table: InputSpec, *, after: str | int | None = None) -> None:
        readings = read_readings(table)
        self._readings = readings if after is None else readings.split(after)[1]

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit a snapshot for every tick at which something was read."""
        data = self._readings
        times = data.times.astype("datetime64[s]") if data.times.dtype.kind == "M" else data.times
        for when, row in zip(times.astype(np.int64).tolist(), data.readings, strict=True):
            values = {name: float(cell) for name, cell in zip(data.names, row, strict=True) if not np.isnan(cell)}
            if stop.is_set() or (values and not emit(Snapshot(when, values))):
                return

    def state(self) -> str:
        """Empty."""
        return ""


# ---- the loop --------------------------------------------------------------------------------------------------------


def run(
    runner: Runner,
    source: Source,
    *,
    by_wall_clock: bool = False,
    on_status: Callable[[Status, str], None] | None = None,
) -> Status:
    """Feed a runner from a source until the source ends or `runner.stop` is set; the last status.

    Ticks that the watermark has not closed stay open: they are published by the next run, if their readings come
    again or a state file keeps them.

    Args:
        runner: the runner.
        source: where messages come from; it runs in a thread of its own.
        by_wall_clock: let time pass although no reading comes, by the wall clock of the publisher.
        on_status: called with the status and the state of the source, about five times a second.
    """
    loop = _Loop(runner, source, on_status)
    worker = threading.Thread(target=loop.run_source, name="csdp-source", daemon=True)
    worker.start()
    try:
        loop.retry_while_busy(runner.recover)
        while not loop.is_done():
            loop.ingest_next()
            if by_wall_clock:
                loop.retry_while_busy(runner.advance_to_now)
            loop.report()
    finally:
        loop.stop.set()
        worker.join(_JOIN_LIMIT)
        runner.close()
    if loop.error is not None:
        raise loop.error
    loop.report(now=True)
    return runner.status()


class _Loop:
    """The bounded queue between a source and a runner, and both of its ends."""

    def __init__(self, runner: Runner, source: Source, on_status: Callable[[Status, str], None] | None) -> None:
        self.stop = runner.stop
        self.error: BaseException | None = None
        self._runner = runner
        self._source = source
        # Messages, each with the callback that tells its source that it was accepted.
        self._queue: queue.Queue[tuple[Message, Callable[[], None] | None]] = queue.Queue(QUEUE)
        self._source_ended = threading.Event()
        self._on_status = on_status
        self._reported = 0.0
        self._trouble = ""

    def run_source(self) -> None:
        """Run the source, in its thread; what it raises is raised by `run`."""
        try:
            self._source.run(self._emit, self.stop)
        except BaseException as error:
            self.error = error
        finally:
            self._source_ended.set()

    def _emit(self, message: Message, done: Callable[[], None] | None = None) -> bool:
        while not self.stop.is_set():
            try:
                self._queue.put((message, done), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def is_done(self) -> bool:
        """Whether nothing is left to do. Messages that the source need not send again are still taken in."""
        if self.stop.is_set() and self._runner.stuck:
            return True
        return (self._source_ended.is_set() or self.stop.is_set()) and self._queue.empty()

    def ingest_next(self) -> None:
        """Take in one message, tell the source that it was accepted, and publish the ticks that it closes."""
        try:
            message, done = self._queue.get(timeout=0.1)
        except queue.Empty:
            return
        if self.stop.is_set() and done is not None:
            return  # not acknowledged: it comes again at the next start
        self._runner.accept(message)
        if done is not None:
            done()
        self.retry_while_busy(self._runner.settle)

    def retry_while_busy(self, work: Callable[[], object]) -> None:
        """Do work that needs the ledger, again while the ledger is busy, until `stop` is set."""
        pause = 0.1
        while True:
            try:
                work()
            except LedgerBusyError:
                self._trouble = "waiting for the ledger"
                self.report(now=True)
                if self.stop.wait(pause):
                    return
                pause = min(5.0, pause * 2)
            else:
                self._trouble = ""
                return

    def report(self, *, now: bool = False) -> None:
        """Call `on_status`, but not more than five times a second unless `now`."""
        if self._on_status is None or (not now and time.monotonic() < self._reported + 0.2):
            return
        self._reported = time.monotonic()
        self._on_status(self._runner.status(), self._trouble or self._source.state())


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at SIGINT and SIGTERM; a second signal raises KeyboardInterrupt."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {which: signal.signal(which, handle) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
