"""What an estimator is: post-processing that turns the last releases into an estimate with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats
from csdp.errors import InputError
from csdp.estimate.result import About, Error

#: Share of the truths that a band is to hold, where nothing else is asked for.
LEVEL = 0.95
#: Least and largest possible answer, of all outputs or of each.
Bounds = tuple[Floats, Floats] | tuple[float, float]


@dataclass(frozen=True)
class Observation:
    """One release as an estimator sees it: everything in it is published.

    Attributes: its `tick`; the published `values`; how many ticks before it its readings were taken (`age`; the oldest
    planned one where they differ); the variance of its `noise`; how `stale` its oldest reading was beyond the plan.
    """

    tick: int
    values: tuple[float, ...]
    age: int
    noise: float
    stale: int = 0


@dataclass(frozen=True)
class Estimated:
    """An estimate of each output, its standard error, its band, and the squared error of guessing the usual value.

    If the error is not known, all but the estimate is empty, and `no_data` is None.
    """

    estimate: tuple[float, ...]
    standard_error: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    no_data: float | None


@runtime_checkable
class Estimator(Protocol):
    """Estimates answers from releases alone, so that it costs no privacy.

    It affects how good estimates are, never how private: it is given published numbers, and what it returns is
    checked for its form. `kind` names it ("linear", "history", "seasonal"), `about` says whether the present answer is
    estimated ("now") or that of the time of the readings ("then"), `level` which share of the truths its band is to
    hold (None: it has no band), `memory` how many releases it looks back on.

    An estimator that has a `plan_digest` is used for that plan only. Those of csdp have one; a custom one need not, and
    its author then answers for the level.
    """

    @property
    def kind(self) -> str:
        """Its name."""

    @property
    def about(self) -> About:
        """Whether "now" or "then" is estimated."""

    @property
    def level(self) -> float | None:
        """Share of the truths that the band is to hold; None without a band."""

    @property
    def memory(self) -> int:
        """Releases that it looks back on."""

    def check(self, ages: Sequence[int], outputs: int) -> None:
        """InputError where it does not fit releases of these ages and so many outputs."""

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The estimate from the last releases, the newest last."""

    def expected(self, noise: float) -> Error:
        """The error to expect with noise of a variance at every tick, and that of guessing the usual value."""


@runtime_checkable
class Smoother(Protocol):
    """An estimator that can also use later releases for the time that an earlier one read."""

    def smooth(self, releases: Sequence[Observation]) -> list[Estimated]:
        """Estimates of the answers at the times that were read, from the releases before and after each."""


@runtime_checkable
class TellsUsual(Protocol):
    """An estimator that can also say what is usual at a tick: the best answer without any release."""

    def usual_at(self, ticks: npt.ArrayLike) -> Floats:
        """What is usual at some ticks, (n, d)."""


def standard_errors_of(level: float) -> float:
    """Standard errors in half a band that is to hold a share of the truths, for normal errors.

    >>> round(standard_errors_of(0.95), 2)
    1.96
    """
    if not 0 < level < 1:
        raise InputError(f"level: {level} given; a share of the truths between 0 and 1, such as 0.95")
    return NormalDist().inv_cdf((1 + level) / 2)


def clip(values: Floats, bounds: Bounds | None) -> Floats:
    """Values moved into the possible range."""
    return values if bounds is None else np.clip(values, *bounds)


def with_band(
    estimate: Floats, error: Floats, *, factor: float | None, bounds: Bounds | None, no_data: float
) -> Estimated:
    """An estimate with its band of `factor` standard errors, inside the possible range; alone if there is no factor."""
    if factor is None:
        return Estimated(tuple(clip(estimate, bounds).tolist()), (), (), (), None)
    ends = [clip(estimate + side * factor * error, bounds) for side in (-1.0, 1.0)]
    low, high = (tuple(end.tolist()) for end in ends)
    return Estimated(tuple(clip(estimate, bounds).tolist()), tuple(error.tolist()), low, high, no_data)
