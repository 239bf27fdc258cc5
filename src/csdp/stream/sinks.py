"""Where published outputs go: lines on a stream, or a file of lines. MQTT is in `csdp.stream.mqtt`.

A delivery carries its dataset, query and tick: the key by which a receiver knows a repeated one. An output is published
when the ledger has recorded it; delivering it is at least once.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from csdp.clock import Clock
from csdp.errors import InputError
from csdp.publisher import Release

#: The end of a file that is searched for its last whole line.
_TAIL = 2**16


class Sink(Protocol):
    """Takes published outputs, in order."""

    def deliver(self, output: dict[str, Any], stop: threading.Event) -> bool:
        """Hand over one output, waiting as long as it takes; False where `stop` was set before it was taken."""

    def newest(self) -> int | None:
        """The newest tick that surely arrived, or None where this sink cannot know."""

    def close(self) -> None:
        """Let go of what is open; calling twice is fine."""


def as_output(release: Release, *, dataset: str, query: str, clock: Clock) -> dict[str, Any]:
    """A release as a receiver sees it: plain data with its key."""
    return {"dataset": dataset, "query": query, **as_content(release, clock), "unsafe": release.unsafe}


def as_content(release: Release, clock: Clock) -> dict[str, Any]:
    """What is published of a tick, and the time at which the tick began."""
    return {
        "tick": release.tick,
        "time": clock.start(release.tick),
        "values": list(release.values),
        "estimate": list(release.estimate),
        "standard_error": list(release.standard_error),
        "ages": release.ages if isinstance(release.ages, int) else list(release.ages),
        "stale": release.stale,
        "epsilon_s": release.epsilon_s,
    }


def replace_infinite(value: Any) -> Any:
    """The same data with every infinite number as text: an unbounded leakage must not look like a missing one.

    >>> replace_infinite({"epsilon": float("inf"), "mse": (1.0, 2)})
    {'epsilon': 'inf', 'mse': [1.0, 2]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else ("-inf" if value < 0 else None)
    if isinstance(value, Mapping):
        return {key: replace_infinite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_infinite(inner) for inner in value]
    return value


def encode_json(content: Any) -> bytes:
    """Compact strict JSON; infinite numbers as in `replace_infinite`."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(replace_infinite(content), separators=(",", ":"), allow_nan=False).encode()


def as_line(output: dict[str, Any]) -> bytes:
    """An output as one line of JSON."""
    return encode_json(output) + b"\n"


class LineSink:
    """One line of JSON for each output on an open binary stream, such as standard output."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def deliver(self, output: dict[str, Any], stop: threading.Event) -> bool:
        """Write and flush one line."""
        self._stream.write(as_line(output))
        self._stream.flush()
        return True

    def newest(self) -> int | None:
        """A stream does not tell what was read from it."""
        return None

    def close(self) -> None:
        """The stream belongs to whoever opened it."""


class FileSink:
    """One line of JSON for each output at the end of a file, durable when `deliver` returns.

    A line that a crash cut off is removed; its output comes again. A tick that the file holds is not written twice.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._newest = self._repaired()
        except BaseException:
            self.close()
            raise

    def _repaired(self) -> int | None:
        """Cut off a torn last line, and read the tick of the last whole one."""
        size = os.fstat(self._handle).st_size
        if not size:
            return None
        length = _TAIL
        while True:
            start = max(0, size - length)
            tail = os.pread(self._handle, size - start, start)
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
        if self._newest is not None and output["tick"] <= self._newest:
            return True
        line = as_line(output)
        size = os.fstat(self._handle).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(self._handle, line[written:])
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, size)  # a full disk must not leave half a line
            raise
        self._newest = int(output["tick"])
        return True

    def newest(self) -> int | None:
        """The tick of the last line; the beginning of time for an empty file."""
        return -(2**63) if self._newest is None else self._newest

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
