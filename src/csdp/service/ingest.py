"""Taking in readings: from the bytes of a request to a runner. The answer counts messages by their times alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from csdp.service.problems import Problem
from csdp.stream.messages import Bad, Reading, Snapshot, decoded
from csdp.stream.runner import Fate

#: Messages between two publications: what they close is published before more memory is used.
_TOGETHER = 64


class Taker(Protocol):
    """What takes messages in; a `csdp.stream.Runner` does, too."""

    def accept(self, message: Reading | Snapshot | Bad) -> Fate:
        """Take in one message."""

    def settle(self) -> object:
        """Publish what is closed."""


@dataclass(frozen=True)
class Counts:
    """What became of messages. `accepted`: of an open tick, whatever their values were."""

    accepted: int = 0
    late: int = 0
    ahead: int = 0
    unreadable: int = 0


@dataclass(frozen=True)
class Limits:
    """Of a body with many messages."""

    line: int
    lines: int


def lines_of(body: bytes, limits: Limits) -> list[bytes]:
    """The lines of a body that are not empty; refused before any of them is taken in."""
    if body.count(b"\n") > limits.lines:
        raise Problem(413, "too-long", f"at most {limits.lines:,} lines in one request; send it in several")
    lines = [line for line in body.split(b"\n") if line.strip()]
    if any(len(line) > limits.line for line in lines):
        raise Problem(413, "too-long", f"at most {limits.line:,} bytes in one line")
    if not lines:
        raise Problem(422, "empty", "no message in the body; one JSON object per line expected")
    return lines


def take_one(taker: Taker, body: bytes) -> Counts:
    """Take in one message; one that cannot be read is refused with the rule that it broke."""
    message = decoded(body)
    if isinstance(message, Bad):
        raise Problem(422, "unreadable", f"{message.why}; a snapshot is {{'time': ..., 'values': {{name: number}}}}")
    verdict = _verdict(message, taker.accept(message))
    if verdict == "unreadable":
        raise Problem(
            422,
            "unknown",
            "no sequence of this dataset in it, not as many values as it has sequences, or a time that is no timestamp "
            "(seconds since 1970, or ISO; a dataset whose times count ticks declares times = 'data')",
        )
    taker.settle()
    return Counts(**{verdict: 1})


def take_many(taker: Taker, lines: list[bytes]) -> Counts:
    """Take in messages in order, and publish what they close."""
    counts = {"accepted": 0, "late": 0, "ahead": 0, "unreadable": 0}
    for number, line in enumerate(lines, start=1):
        message = decoded(line)
        counts[_verdict(message, taker.accept(message))] += 1
        if number % _TOGETHER == 0:
            taker.settle()
    taker.settle()
    return Counts(**counts)


def _verdict(message: Reading | Snapshot | Bad, fate: Fate) -> str:
    """What a writer is told: a matter of form, names and times. A reading without a number is a gap, not an error."""
    if fate in {"late", "ahead"}:
        return fate
    if isinstance(message, Bad) or fate in {"unknown", "undated"} or (isinstance(message, Snapshot) and fate == "bad"):
        return "unreadable"
    return "accepted"
