"""What ticks are, and whether they are over.

Tick T is published with readings of tick T - age. That they are old is a fact about the world, which only the wall
clock can enforce; without it, this is recorded and said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.clock import Clock, Times, WallClock
from csdp.errors import InputError
from csdp.ledger import TickGrid
from csdp.numbers import Ints
from csdp.panel.times import tick_seconds
from csdp.plan import Plan

#: What the age of what is published rests on, by what the times are; "ticks" if the caller counts them.
AGE_WORDS = {
    "wall": "No tick is published before the wall clock has passed its end, so what is published is at least as old as "
    "certified, if the wall clock is right and no reading is newer than its timestamp.",
    "data": "The age is what the timestamps say: they were not compared with the wall clock.",
    "ticks": "Ages are counted in ticks and not compared with a clock: the program that pushes tick T must make sure "
    "that the readings of tick T - age are at least that old.",
}


@runtime_checkable
class TimedReadings(Protocol):
    """Readings that know the times of their ticks, such as a panel or an engine."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, in order: timestamps, or numbers."""

    @property
    def step(self) -> int:
        """Time from one tick to the next, in seconds if times are timestamps."""


@dataclass(frozen=True)
class TickTimes:
    """What the ticks of a publisher are: times of the wall clock, times in the data, or counted by the caller."""

    times: Times | None
    grid: TickGrid
    wall: WallClock

    def __post_init__(self) -> None:
        if self.times not in {None, "wall", "data"}:
            raise InputError(f"times: {self.times!r} given; 'wall', 'data', or None if the caller counts ticks")
        if self.times == "wall" and self.grid.step is None:
            raise InputError("times: 'wall' given without time_step; say how many seconds a tick has")

    @property
    def kind(self) -> str:
        """What the times are, as it is recorded."""
        return self.times or "ticks"

    def newest_ended(self) -> int | None:
        """The last tick whose end the wall clock has passed; None if ticks are not times of it."""
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

    def check_plan(self, plan: Plan) -> None:
        """Refuse a chain that was fitted to ticks of another length.

        A chain that is fitted to hours says nothing of minutes: the past would seem to fade sixty times faster.
        """
        if self.times is not None or self.grid.step not in {None, 1}:
            _check_step(plan, self.grid.step, "time_step")

    def check_source(self, source: object, plan: Plan, *, begun: bool) -> None:
        """Refuse timestamps on another grid, and those from the future unless `times` says what they are.

        A dataset that has `begun` without a step goes on without one.
        """
        if not isinstance(source, TimedReadings) or source.times.dtype.kind != "M" or not source.times.size:
            return
        ticks = getattr(source, "ticks", None)
        if tick_seconds(source.times, source.step, ticks) is not None:
            self._check_grid(source, ticks, plan, begun=begun)
        if self.times is not None:
            return
        newest = source.times[-1].astype("datetime64[s]").astype(np.int64)
        if newest + source.step > self.wall.now():
            raise InputError(
                "source: its newest timestamps lie beyond the wall clock; give times='wall' to leave these ticks out, "
                "or times='data' if times are simulated, which is recorded and said in every certificate"
            )

    def _check_grid(self, source: TimedReadings, ticks: Ints | None, plan: Plan, *, begun: bool) -> None:
        _check_step(plan, source.step, "source: step")
        step, origin = self.grid
        if step is None and not begun:
            raise InputError(
                f"source: its ticks are timestamps {source.step} seconds apart, and the publisher has no time_step; "
                "make it with this one, so that the ledger records it and data of another step are refused"
            )
        shifted = source.times[:1].astype("datetime64[s]") - origin
        if step is not None and (source.step != step or tick_seconds(shifted, step, ticks) is None):
            raise InputError(
                f"source: ticks of {source.step} seconds, counted from time 0, given; the publisher has (time_step, "
                f"time_origin) {tuple(self.grid)}. The same times must have the same ticks: read the data with "
                f"step={step}, or give the publisher the step of the data and no origin"
            )


def _check_step(plan: Plan, step: int | None, what: str) -> None:
    """Refuse ticks of another length than those that the plan's chain was fitted to."""
    records = [member.fitted for member in (plan.model, *plan.chain.members)]
    lengths = sorted({record.step for record in records if record is not None and record.step is not None} - {step})
    if lengths and step is not None:
        raise InputError(
            f"{what}: {step} given, but the chain was fitted to ticks of {lengths[0]} seconds; publish ticks of that "
            "length (--step with --resample on the command line), or fit a chain to ticks of this length"
        )
