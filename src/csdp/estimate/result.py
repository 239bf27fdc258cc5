"""What an estimate is: what it is made of, its band, and its error against that of guessing the usual value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.check import choice
from csdp.errors import InputError
from csdp.numbers import Floats

Estimate = Literal["raw", "linear", "history"]
About = Literal["now", "then"]

#: Share of the squared error of guessing the usual value that a release has to remove to be worth making.
USEFUL = 0.05
#: How an error of readings is computed without a public past: the model has states, and not what readings do in them.
BY_STATES = "the model, with each reading at the value of its state"

#: How an error is computed if nothing but limits is known of the sequences: it is that of the noise.
BY_NOISE = "the noise alone: a declared graph has no law; a public past shows what the numbers are worth"


@dataclass(frozen=True)
class Error:
    """Mean squared error of an estimate of the answer, summed over outputs.

    `aging`: what the age alone costs (raw). `noise`: variance of the noise. `no_data`: the squared error of
    guessing the usual value. `interval`: a 99.9 % confidence interval if the figure is simulated; a plan
    uses its upper end. `about`: whether the answer is that of the present ("now") or of the time of the readings
    ("then").
    """

    mse: float
    aging: float
    noise: float
    no_data: float
    estimate: str
    how: str
    interval: tuple[float, float] | None = None
    about: About = "now"

    def __float__(self) -> float:
        return self.mse

    @property
    def safe(self) -> float:
        """What a plan may count on."""
        return self.mse if self.interval is None else self.interval[1]

    @property
    def usefulness(self) -> float:
        """Which share of the squared error of publishing nothing is removed; negative if the release is worse."""
        return removed_share(self.mse, self.no_data)

    @property
    def approximate(self) -> bool:
        """Whether, for want of a public past, it is that of readings at the values of their states, or of the noise."""
        return self.how in {BY_STATES, BY_NOISE}

    @property
    def known_usefulness(self) -> float | None:
        """The usefulness that may be claimed; None if the error is approximate."""
        return None if self.approximate else self.usefulness

    @property
    def useful(self) -> bool:
        """Whether that share is at least 5 %."""
        return self.how == BY_NOISE or self.usefulness >= USEFUL

    @property
    def in_words(self) -> str:
        """What a release is worth, as the end of a sentence.

        >>> Error(0.03, 0.0, 0.03, 0.12, "raw", "pair laws").in_words
        'removes 75 % of the squared error of guessing the usual value'
        >>> Error(0.2, 0.0, 0.2, 0.12, "raw", "pair laws").in_words
        'is worse than guessing the usual value: squared error 0.2 against 0.12'
        >>> Error(0.03, 0.0, 0.03, 0.12, "raw", BY_STATES).in_words[-60:]
        "l value if each reading had its state's value (not measured)"
        """
        if self.how == BY_NOISE:
            return f"is off by {self.mse**0.5:.3g} (root mean square) through its noise; its worth needs a public past"
        if self.approximate:
            share = f"{100 * max(self.usefulness, 0.0):.3g} % of the squared error of guessing the usual value"
            return f"would remove {share} if each reading had its state's value (not measured)"
        if self.mse > self.no_data:
            return f"is worse than guessing the usual value: squared error {self.mse:.3g} against {self.no_data:.3g}"
        return f"removes {100 * self.usefulness:.3g} % of the squared error of guessing the usual value"


def removed_share(mse: float, no_data: float) -> float:
    """Which share of the squared error of guessing the usual value an estimate removes."""
    return 1.0 - mse / no_data if no_data > 0 else 0.0


def about_words(about: About, age: int | None = None) -> str:
    """What a number is about, in words.

    >>> about_words("now"), about_words("then", 3), about_words("then", 1)
    ('about now', 'about the time of the readings (3 ticks ago)', 'about the time of the readings (1 tick ago)')
    """
    if about == "now":
        return "about now"
    ago = "" if age is None else f" ({age} {'tick' if age == 1 else 'ticks'} ago)"
    return f"about the time of the readings{ago}"


def check_about(about: str) -> None:
    """Refuse an unknown `about`."""
    choice("about", about, ("now", "then"), hint="the present answer, or that of the time of the readings")


# ---- estimators -----------------------------------------------------------------------------------------------------

#: Share of the truths that a band is to hold, if nothing else is asked for.
LEVEL = 0.95
#: Least and largest possible answer, of all outputs or of each.
Bounds = tuple[Floats, Floats] | tuple[float, float]


@dataclass(frozen=True)
class Observation:
    """One release as an estimator sees it: everything in it is published.

    Attributes: its `tick`; the published `values`; how many ticks before it its readings were taken (`age`; the oldest
    planned one if they differ); the variance of its `noise`; how `stale` its oldest reading was beyond the plan.
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
        """InputError if it does not fit releases of these ages and so many outputs."""

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The estimate from the last releases, the newest last."""

    def expected(self, noise: float) -> Error:
        """The error to expect with noise of a variance at every tick, and that of guessing the usual value."""


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
