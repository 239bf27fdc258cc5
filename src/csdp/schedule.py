"""Schedule: a noise level for each tick."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
        repeats: one level for each phase of a clock: tick t has `levels[t mod H]`, at any time.

    >>> Schedule((0.5, 0.2), start=10, then=0.1).level(11), Schedule((0.5, 0.2)).level(2)
    (0.2, 0.0)
    >>> Schedule((0.5, 0.2), repeats=True).level(1_000_001)
    0.2
    """

    levels: tuple[float, ...]
    start: int = 0
    then: float = 0.0
    repeats: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))  # a list could still be changed, without being charged
        if self.repeats and (self.start or self.then):
            raise InputError(
                f"schedule: start {self.start} and then {self.then:g} given for levels that repeat; a level for each "
                "phase has neither beginning nor end, leave them out"
            )
        if self.repeats and len(self.levels) < 2:
            raise InputError(
                f"schedule: {len(self.levels)} levels that repeat given; at least 2, one for each phase. One level for "
                "all ticks is the plan's epsilon_c, without a schedule"
            )
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

        >>> round(Schedule((1.0, 0.5), repeats=True).mean_level, 4)
        0.6325
        """
        return fmean(level**-2 for level in self.levels if level > 0) ** -0.5 if any(self.levels) else self.then

    def level(self, tick: int) -> float:
        """epsilon_c at a tick; 0 where nothing is published."""
        if self.repeats:
            return self.levels[tick % len(self.levels)]
        if tick < self.start:
            return 0.0
        place = tick - self.start
        return self.levels[place] if place < len(self.levels) else self.then

    def check(self, epsilon_c: float, phases: Iterable[int]) -> None:
        """Refuse levels above a plan's, and levels that repeat with another period than the clock of the model.

        `phases`: of each model; 1 without a clock.
        """
        if not self.largest <= epsilon_c:
            raise InputError(f"schedule: level {self.largest:g} is above epsilon_c {epsilon_c:g} of the plan")
        counts = sorted(set(phases))
        if self.repeats and counts != [len(self.levels)]:
            raise InputError(
                f"schedule: {len(self.levels)} levels that repeat given, but the chain has "
                f"{' or '.join(map(str, counts))} phases (1: no clock); give a level for each phase of an "
                "EnvironmentChain with cycle=, or levels that do not repeat"
            )

    @property
    def assumption(self) -> str:
        """What levels that repeat assume of the numbers of ticks; empty for others."""
        if not self.repeats:
            return ""
        return (
            f"tick t lies at phase t mod {len(self.levels)} of the chain's clock, which sets its noise level: ticks "
            "are counted as where the chain was made"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a plan file; without `repeats` where it is not used, as older versions wrote it."""
        content = asdict(self)
        if not self.repeats:
            del content["repeats"]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any] | None) -> Schedule | None:
        """From the plain data of a plan file; None where it has none."""
        if content is None:
            return None
        repeats = content.get("repeats", False)
        if not isinstance(repeats, bool):
            raise InputError(f"schedule: repeats {repeats!r} given; true or false")
        return cls(tuple(map(float, content["levels"])), int(content["start"]), float(content["then"]), repeats)
