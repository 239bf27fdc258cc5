"""What comes out of the gate: releases, and ticks without one.

A reservation does not say whether its process still lives. One that is younger than `LEASE` seconds, or than the wait
that was asked for, counts as held: its output may still come. An older one counts as lost. Neither is ever reserved
again, so a wrong guess costs a message, never a second publication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from csdp.ledger import Published, Refused

#: Seconds for which a reservation without output counts as held by a process that is at work.
LEASE = 30.0
#: Seconds between two looks at the ledger: the first, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5

#: Called before each pause with the number of held ticks and the seconds that are left to wait.
OnWait = Callable[[int, float], None]
#: Why a tick has no output: its readings or the plan's schedule, a limit, a process that holds it or was stopped with
#: it, a later tick that was charged before it, or another plan that the dataset is published under by now.
Why = Literal["readings", "schedule", "limit", "held", "lost", "order", "terms"]


@dataclass(frozen=True)
class Release:
    """One published tick."""

    tick: int
    values: tuple[float, ...]
    estimate: tuple[float, ...]
    standard_error: tuple[float, ...]
    ages: int | tuple[int, ...]
    stale: int
    epsilon_s: float
    unsafe: bool = False

    @classmethod
    def of(cls, published: Published) -> Release:
        """From what the ledger recorded."""
        content = dict(published.output)
        for name in ("values", "estimate", "standard_error"):
            content[name] = tuple(content[name])
        if isinstance(content["ages"], list):
            content["ages"] = tuple(content["ages"])
        return cls(tick=published.tick, **content)


@dataclass(frozen=True)
class Skipped:
    """A tick without output, and why: in words, and as one word for programs."""

    tick: int
    reason: str
    why: Why = "readings"


@dataclass(frozen=True)
class Batch:
    """The releases of a panel, and its ticks without one."""

    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...]

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)


def describe_refusal(refused: Refused, wait: float) -> Skipped:
    """Why a tick has no output here, in words and as one word."""
    if refused.why != "lost" or refused.since is None:
        return Skipped(refused.tick, refused.reason, refused.why)
    age = (datetime.now(UTC) - datetime.fromisoformat(refused.since)).total_seconds()
    if age < max(wait, LEASE):
        return Skipped(
            refused.tick,
            f"tick {refused.tick} is held: another process has reserved it and not committed it yet, or was just "
            "stopped; it stays charged. Ask again later, or wait for it (wait=SECONDS)",
            "held",
        )
    return Skipped(
        refused.tick,
        f"tick {refused.tick} is lost: reserved but not committed since {refused.since}; it stays charged and cannot "
        "be reserved again",
        "lost",
    )
