"""Schedule: a noise level for each tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from csdp.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Noise levels tick by tick, from `start` on: a function of time alone. 0 publishes nothing at that tick.

    `then` is the level at every tick after the last one that is listed; 0 where the schedule ends there.

    >>> Schedule((0.5, 0.2), start=10, then=0.1).level(11), Schedule((0.5, 0.2)).level(2)
    (0.2, 0.0)
    """

    levels: tuple[float, ...]
    start: int = 0
    then: float = 0.0

    def __post_init__(self) -> None:
        if not self.levels or not all(math.isfinite(e) and e >= 0 for e in (*self.levels, self.then)):
            raise InputError("schedule: every level must be a number, 0 or more, and at least one must be given")
        if self.largest <= 0:
            raise InputError("schedule: every level is 0, so nothing would ever be published")

    @property
    def largest(self) -> float:
        """The largest level of any tick."""
        return max(*self.levels, self.then)

    def level(self, tick: int) -> float:
        """epsilon_c at a tick; 0 where nothing is published."""
        if tick < self.start:
            return 0.0
        place = tick - self.start
        return self.levels[place] if place < len(self.levels) else self.then

    @classmethod
    def from_dict(cls, content: Mapping[str, Any] | None) -> Schedule | None:
        """From the plain data of a plan file; None where it has none."""
        if content is None:
            return None
        return cls(tuple(map(float, content["levels"])), int(content["start"]), float(content["then"]))
