"""What a dataset is published under: limits, the grid of ticks, and what the times of ticks are.

Tick T is published with readings of tick T - age. That they are old is a fact about the world, which only the wall
clock can enforce; where it does not, this is recorded and said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.clock import Clock, Times, WallClock
from csdp.errors import InputError
from csdp.ledger import PrivacyLimits, TickGrid
from csdp.plan import Plan

#: What the age of what is published rests on, by what the times are; "ticks" where the caller counts them.
AGE_WORDS = {
    "wall": "No tick is published before the wall clock has passed its end, so what is published is at least as old as "
    "certified, if the wall clock is right and no reading is newer than its timestamp.",
    "data": "The age is what the timestamps say: they were not held against the wall clock.",
    "ticks": "The age is what the ticks say: whoever pushes tick T promises that the readings of tick T - age are at "
    "least that old.",
}


def check_limits(*, budget: float | None, event_limit: float | None, lifetime_limit: float | None) -> PrivacyLimits:
    """Limits as positive numbers, None where there is none."""
    limits: dict[str, float | None] = {}
    for name, value in (("budget", budget), ("event_limit", event_limit), ("lifetime_limit", lifetime_limit)):
        limits[name] = None if value is None else float(value)
        if value is not None and not float(value) > 0:
            raise InputError(f"{name}: {value} given; a limit is a positive number (or None for no limit)")
    return PrivacyLimits(**limits)


def scheduled_level(plan: Plan, tick: int) -> float | None:
    """The noise level of a tick, where the plan has a schedule."""
    return None if plan.schedule is None else plan.level(tick)


@runtime_checkable
class TimedReadings(Protocol):
    """Readings that know the times of their ticks, such as a panel or an engine."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, in order: timestamps, or numbers."""

    @property
    def step(self) -> int:
        """Time from one tick to the next, in seconds where times are timestamps."""


@dataclass(frozen=True)
class TickTimes:
    """What the ticks of a publisher are: times of the wall clock, times in the data, or counted by the caller."""

    times: Times | None
    grid: TickGrid
    wall: WallClock

    def __post_init__(self) -> None:
        if self.times not in {None, "wall", "data"}:
            raise InputError(f"times: {self.times!r} given; 'wall', 'data', or None where the caller counts ticks")
        if self.times == "wall" and self.grid.step is None:
            raise InputError("times: 'wall' given without time_step; say how many seconds a tick has")

    @property
    def kind(self) -> str:
        """What the times are, as it is recorded."""
        return self.times or "ticks"

    def newest_ended(self) -> int | None:
        """The last tick whose end the wall clock has passed; None where ticks are not times of it."""
        if self.times != "wall":
            return None
        step, origin = self.grid
        assert step is not None
        return (math.floor(self.wall.now()) - origin) // step - 1

    def check_clock(self, clock: Clock) -> None:
        """Refuse the clock of a stream that counts ticks in another way."""
        if self.grid != (clock.step, clock.origin):
            raise InputError(
                f"clock: step {clock.step} and origin {clock.origin} given, but the publisher has (step, origin) "
                f"{tuple(self.grid)}; give it time_step and time_origin of the clock, so that the ledger records them"
            )
        if self.times != clock.times:
            raise InputError(
                f"clock: times {clock.times!r} given, but the publisher has {self.times!r}; give it times of the "
                "clock, so that the ledger records what the ages rest on"
            )

    def check_source(self, source: object) -> None:
        """Refuse timestamps from the future where `times` does not say what they are."""
        if self.times is not None or not isinstance(source, TimedReadings) or source.times.dtype.kind != "M":
            return
        ends = source.times[-1:].astype("datetime64[s]").astype(np.int64) + source.step
        if (ends > self.wall.now()).any():
            raise InputError(
                "source: its newest timestamps lie beyond the wall clock; give times='wall' to leave these ticks out, "
                "or times='data' where times are simulated, which is recorded and said in every certificate"
            )
