"""What ticks are: times of the wall clock, what the data say, or numbers that the caller counts.

Tick T is published with readings of tick T - age. That they are old is a fact about the world, which only the wall
clock can hold them to; where there is none it is recorded, and said, that nothing did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.clock import Clock, Times, WallClock
from csdp.errors import InputError

#: What the age of what is published rests on, by what the times are; "ticks" where the caller counts them.
AGE_WORDS = {
    "wall": "No tick is published before the wall clock has passed its end, so what is published is at least as old as "
    "certified, if the wall clock is right and no reading is newer than its timestamp.",
    "data": "The age is what the timestamps say: they were not held against the wall clock.",
    "ticks": "The age is what the ticks say: whoever pushes tick T promises that the readings of tick T - age are at "
    "least that old.",
}


def recorded_times(kept: dict[str, Any] | None) -> list[str]:
    """What the times of all releases of a dataset were; those from before this was recorded count as ticks."""
    if kept is None:
        return []
    released = bool(int(kept["releases"])) or bool(kept.get("earlier"))
    return list(kept.get("times", ["ticks"] if released else []))


@runtime_checkable
class Timed(Protocol):
    """Readings that know the times of their ticks, such as a panel or an engine."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, in order: timestamps, or numbers."""

    @property
    def step(self) -> int:
        """Time from one tick to the next, in seconds where times are timestamps."""


@dataclass(frozen=True)
class Ticking:
    """The ticks of a publisher: what they are, their grid, and the clock on the wall."""

    times: Times | None
    step: int | None
    origin: int
    wall: WallClock

    def __post_init__(self) -> None:
        if self.times not in {None, "wall", "data"}:
            raise InputError(f"times: {self.times!r} given; 'wall', 'data', or None where the caller counts ticks")
        if self.times == "wall" and self.step is None:
            raise InputError("times: 'wall' given without time_step; say how many seconds a tick has")

    @property
    def kind(self) -> str:
        """What the times are, as it is recorded."""
        return self.times or "ticks"

    @property
    def words(self) -> str:
        """What the age of what is published rests on."""
        return AGE_WORDS[self.kind]

    def newest_over(self) -> int | None:
        """The last tick whose end the wall clock has passed; None where ticks are no times of it."""
        if self.times != "wall":
            return None
        assert self.step is not None
        return (math.floor(self.wall.now()) - self.origin) // self.step - 1

    def check_clock(self, clock: Clock) -> None:
        """Refuse the clock of a stream that counts ticks in another way."""
        grid = (self.step, self.origin)
        if grid != (clock.step, clock.origin):
            raise InputError(
                f"clock: step {clock.step} and origin {clock.origin} given, but the publisher has (step, origin) "
                f"{grid}; give it time_step and time_origin of the clock, so that the ledger records them"
            )
        if self.times != clock.times:
            raise InputError(
                f"clock: times {clock.times!r} given, but the publisher has {self.times!r}; give it times of the "
                "clock, so that the ledger records what the ages rest on"
            )

    def check_source(self, source: object) -> None:
        """Refuse timestamps from the future where nobody said what they are."""
        if self.times is not None or not isinstance(source, Timed) or source.times.dtype.kind != "M":
            return
        ends = source.times[-1:].astype("datetime64[s]").astype(np.int64) + source.step
        if (ends > self.wall.now()).any():
            raise InputError(
                "source: its newest timestamps lie beyond the wall clock; give times='wall' to leave these ticks out, "
                "or times='data' where times are simulated, which is recorded and said in every certificate"
            )

    def after(self, kept: dict[str, Any] | None) -> list[str]:
        """What the times of a dataset are after one more release."""
        return sorted({*recorded_times(kept), self.kind})
