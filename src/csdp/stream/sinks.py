"""Where published outputs go: lines on a stream, or a file of lines. MQTT is in `csdp.stream.mqtt`.

An output carries its dataset, query and tick: the key by which a receiver recognises a repeated one. It is published
when the ledger has recorded it, and delivered at least once, after a crash again from the ledger.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from csdp.clock import Clock
from csdp.errors import InputError
from csdp.files import open_bytes
from csdp.ledger import Ledger, Published
from csdp.numbers import encode_json
from csdp.publisher import Release

#: Bytes at the end of a file in which its last whole line is searched for at first.
_TAIL = 2**16
#: Outputs that are read from the ledger at once.
_PAGE = 500


class Sink(Protocol):
    """Takes published outputs, in order."""

    def deliver(self, output: dict[str, Any], stop: threading.Event) -> bool:
        """Hand over one output, waiting as long as it takes; False if `stop` was set before it was taken."""

    def newest(self) -> int | None:
        """The newest tick that surely arrived, or None if this sink cannot know."""

    def close(self) -> None:
        """Close what is open; calling twice is fine."""


def encode_line(output: dict[str, Any]) -> bytes:
    """An output as one line of JSON."""
    return encode_json(output) + b"\n"


class LineSink:
    """One line of JSON for each output on an open binary stream, such as standard output."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def deliver(self, output: dict[str, Any], stop: threading.Event) -> bool:
        """Write and flush one line."""
        self._stream.write(encode_line(output))
        self._stream.flush()
        return True

    def newest(self) -> int | None:
        """None: a stream does not know what was read from it."""
        return None

    def close(self) -> None:
        """Do nothing: the stream belongs to the code that opened it."""


class FileSink:
    """One line of JSON for each output at the end of a file, durable when `deliver` returns.

    A line that a crash cut off is removed; its output comes again. A tick that the file holds is not written twice,
    also if another process has written it: one that took over while this one hung.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._handle = open_bytes(self._path, flags, mode=0o644, follow=True)
        try:
            self._newest = self._repair()
            self._size = os.fstat(self._handle).st_size
        except BaseException:
            self.close()
            raise

    def _repair(self) -> int | None:
        """Cut off a torn last line, and read the tick of the last whole one."""
        size = os.fstat(self._handle).st_size
        if not size:
            return None
        length = _TAIL
        while True:
            start = max(0, size - length)
            os.lseek(self._handle, start, os.SEEK_SET)  # writes go to the end all the same
            tail = os.read(self._handle, size - start)
            whole = tail[: tail.rfind(b"\n") + 1]
            lines = whole.splitlines()
            if start == 0 or len(lines) > 1:
                break
            length *= 4
        if len(whole) < len(tail):
            os.ftruncate(self._handle, start + len(whole))
        if not lines:
            return None
        try:
            return int(json.loads(lines[-1])["tick"])
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self._path}: its last line is no output of a stream; give another file") from None

    def deliver(self, output: dict[str, Any], stop: threading.Event) -> bool:
        """Append one line, unless the file holds this tick."""
        size = os.fstat(self._handle).st_size
        if size != self._size:
            self._newest = self._repair()
            size = os.fstat(self._handle).st_size
        if self._newest is not None and output["tick"] <= self._newest:
            return True
        line = encode_line(output)
        try:
            written = 0
            while written < len(line):
                written += os.write(self._handle, line[written:])
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, size)  # a full disk must not leave half a line
            raise
        self._newest = int(output["tick"])
        self._size = size + len(line)
        return True

    def newest(self) -> int | None:
        """The tick of the last line; a number below all ticks for an empty file."""
        return -(2**63) if self._newest is None else self._newest

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Delivery:
    """Delivers the outputs of a dataset to a sink, in order; first those that an earlier process may have left.

    An output is delivered before the next one is published, so a sink that does not know what it has can lack only the
    newest one; that one is delivered again.
    """

    def __init__(self, sink: Sink, ledger: Ledger, *, dataset: str, query: str, clock: Clock) -> None:
        self._sink = sink
        self._ledger = ledger
        self._dataset = dataset
        self._query = query
        self._clock = clock
        self._recovered = False

    def deliver(self, release: Release, stop: threading.Event) -> bool:
        """Hand over one output; False if `stop` was set before the sink took it."""
        output = {
            "dataset": self._dataset,
            "query": self._query,
            **release.to_dict(self._clock.start(release.tick)),
            "unsafe": release.unsafe,
        }
        return self._sink.deliver(output, stop)

    def recover(self, stop: threading.Event) -> bool:
        """Deliver, once, what was published before and may not have arrived; False if `stop` was set."""
        if not self._recovered:
            for published in self._find_undelivered():
                if not self.deliver(Release.of(published), stop):
                    return False
            self._recovered = True
        return True

    def _find_undelivered(self) -> Iterator[Published]:
        newest = self._sink.newest()
        if newest is None:
            yield from self._ledger.outputs(self._dataset, query=self._query, limit=1)
            return
        while page := self._ledger.outputs(self._dataset, query=self._query, after=newest, limit=_PAGE):
            yield from page
            newest = page[-1].tick
