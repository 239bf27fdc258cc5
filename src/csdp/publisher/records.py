"""What comes out of the gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from csdp.ledger import Published


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


#: Why a tick has no output: its readings or the plan's schedule, a limit, a process that holds it or was stopped with
#: it, a later tick that was charged before it, or another plan that the dataset is published under by now.
Why = Literal["readings", "schedule", "limit", "held", "lost", "order", "terms"]


@dataclass(frozen=True)
class Skipped:
    """A tick without output, and why: in words, and as one word for programmes."""

    tick: int
    reason: str
    why: Why = "readings"


@dataclass(frozen=True)
class Batch:
    """What came of a panel."""

    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...]

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)
