"""Schedule: a noise level for each tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from csdp.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Noise levels tick by tick: a function of time alone. At a level of 0 nothing is published.

    Args:
        levels: the levels of consecutive ticks.
        start: the tick of the first level.
        then: the level of every tick after the last one that is listed.

    >>> Schedule((0.5, 0.2), start=10, then=0.1).level(11), Schedule((0.5, 0.2)).level(2)
    (0.2, 0.0)
    """

    levels: tuple[float, ...]
    start: int = 0
    then: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))  # a list could still be changed, without being charged
        if not self.levels or not all(math.isfinite(e) and e >= 0 for e in (*self.levels, self.then)):
            raise InputError("schedule: every level must be a number, 0 or more, and at least one must be given")
        if self.largest <= 0:
            raise InputError("schedule: every level is 0, so nothing would ever be published")

    @property
    def largest(self) -> float:
        """The largest level of any tick."""
        return max(*self.levels, self.then)

    @property
    def smallest(self) -> float:
        """The smallest level at which something is published."""
        return min(level for level in (*self.levels, self.then) if level > 0)

    @property
    def mean_level(self) -> float:
        """The level whose noise is about as wide as that of the listed releases in the mean: `(mean of 1/e^2)^(-1/2)`.

        >>> round(Schedule((1.0, 0.5)).mean_level, 4)
        0.6325
        """
        return fmean(level**-2 for level in self.levels if level > 0) ** -0.5 if any(self.levels) else self.then

    def level(self, tick: int) -> float:
        """epsilon_c at a tick; 0 if nothing is published."""
        if tick < self.start:
            return 0.0
        place = tick - self.start
        return self.levels[place] if place < len(self.levels) else self.then

    def check(self, epsilon_c: float) -> None:
        """Refuse levels above a plan's."""
        if not self.largest <= epsilon_c:
            raise InputError(f"schedule: level {self.largest:g} is above epsilon_c {epsilon_c:g} of the plan")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a plan file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any] | None) -> Schedule | None:
        """From the plain data of a plan file; None if it has none."""
        if content is None:
            return None
        if content.get("repeats", False) is not False:
            levels = ", ".join(f"{level:g}" for level in content["levels"])
            raise InputError(
                f"schedule: noise levels {levels} per phase of a clock given; a plan has one noise level for all "
                "phases. Make the plan again with one epsilon_c"
            )
        return cls(tuple(map(float, content["levels"])), int(content["start"]), float(content["then"]))
