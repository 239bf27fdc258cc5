"""Where readings come from: lines on a stream, or a file that grows. MQTT is in `csdp.stream.mqtt`.

A source pushes messages through `emit`, which waits while the runner is behind: the only queue between the two is
bounded, so a slow sink or ledger slows the source down instead of filling memory.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from csdp.errors import InputError
from csdp.stream.messages import MAX_BYTES, Bad, Message, decoded

_BLOCK = 2**16
#: Seconds between two looks at a file that has not grown, or at `stop`.
_PAUSE = 0.1


class Emit(Protocol):
    """Hands a message to the runner."""

    def __call__(self, message: Message, done: Callable[[], None] | None = None) -> bool:
        """Wait for a place in the queue; False where the stream is being stopped. `done` is called once accepted."""


class Source(Protocol):
    """Pushes messages until it ends or is stopped; runs in a thread of its own."""

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit every message; return at the end of the input, or soon after `stop` is set."""

    def state(self) -> str:
        """A word or two for the status line; empty where there is nothing to say."""


class Lines:
    """Cuts bytes into lines. What follows the last line break waits for more; a line without end is given up."""

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
                yield decoded(line)
        if len(self._rest) > MAX_BYTES:
            self._rest, self._too_long = b"", True

    def end(self) -> Iterator[Message]:
        """The input is over: a last line may lack its line break."""
        yield from self.feed(b"\n")


class StreamSource:
    """Lines of JSON on an open binary stream, such as standard input."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit the messages until the stream ends."""
        lines = Lines()
        try:
            handle: int | None = self._stream.fileno()
        except OSError:
            handle = None
        while not stop.is_set():
            if handle is None:
                block = self._stream.read(_BLOCK)
            elif select.select([handle], [], [], _PAUSE)[0]:
                block = os.read(handle, _BLOCK)
            else:
                continue
            messages = lines.feed(block) if block else lines.end()
            if not all(emit(message) for message in messages) or not block:
                return

    def state(self) -> str:
        """Nothing to say."""
        return ""


class FileSource:
    """Lines of JSON in a file; with `follow` also those that are added later, over rotation and truncation.

    A file is read from its beginning: what was published before is not published again, and fills the ages.
    """

    def __init__(self, path: str | Path, *, follow: bool = True) -> None:
        self._path = Path(path)
        self._follow = follow
        self._state = ""
        if not follow and not self._path.is_file():
            raise InputError(f"{self._path}: no such file")

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Emit the messages of the file, and of the files that take its place."""
        while not stop.is_set():
            try:
                file = self._path.open("rb", buffering=0)
            except FileNotFoundError:
                self._state = "waiting for the file"
                stop.wait(_PAUSE)
                continue
            self._state = ""
            with file:
                if not self._read(file.fileno(), emit, stop):
                    return

    def _read(self, handle: int, emit: Emit, stop: threading.Event) -> bool:
        """Read one file until another takes its place (True), or there is nothing more to do (False)."""
        lines = Lines()
        replaced = False
        while not stop.is_set():
            block = os.read(handle, _BLOCK)
            if block:
                if not all(emit(message) for message in lines.feed(block)):
                    return False
            elif replaced or not self._follow:
                # Looked once more after it was replaced: lines written meanwhile are not lost.
                return all(emit(message) for message in lines.end()) and replaced
            elif os.lseek(handle, 0, os.SEEK_CUR) > os.fstat(handle).st_size:
                os.lseek(handle, 0, os.SEEK_SET)  # truncated in place: a new beginning
                lines = Lines()
            elif self._is_replaced(handle):
                replaced = True
            else:
                stop.wait(_PAUSE)
        return False

    def _is_replaced(self, handle: int) -> bool:
        here = os.fstat(handle)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False  # between the two steps of a rotation; the old file may still grow
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def state(self) -> str:
        """Whether it waits for the file."""
        return self._state
