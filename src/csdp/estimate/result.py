"""What an estimate is worth: its mean squared error, compared with that of guessing the usual value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from csdp.errors import InputError

Estimate = Literal["raw", "linear", "posterior", "history", "filter"]
About = Literal["now", "then"]

#: Share of the squared error of guessing the usual value that a release has to remove to be worth making.
USEFUL = 0.05
#: How an error of readings is computed without a public past: the model has states, and not what readings do in them.
BY_STATES = "the model, with each reading at the value of its state"


@dataclass(frozen=True)
class Error:
    """Mean squared error of an estimate of the answer, summed over outputs.

    `aging`: what the age alone costs (raw). `noise`: variance of the noise. `no_data`: the squared error of
    publishing nothing but what is usual. `interval`: a 99.9 % confidence interval where the figure is simulated; a plan
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
        """Which share of the squared error of publishing nothing is removed; negative where the release is worse."""
        return removed_share(self.mse, self.no_data)

    @property
    def approximate(self) -> bool:
        """Whether it is only that of readings at the values of their states, for want of a public past."""
        return self.how == BY_STATES

    @property
    def known_usefulness(self) -> float | None:
        """The usefulness that may be claimed; None where the error is approximate."""
        return None if self.approximate else self.usefulness

    @property
    def useful(self) -> bool:
        """Whether that share is at least 5 %."""
        return self.usefulness >= USEFUL

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


def check_about(about: str, estimate: str) -> None:
    """Refuse an unknown `about`, and the filter for the time of the readings."""
    if about not in {"now", "then"}:
        raise InputError(
            f"about: {about!r} given; 'now' (the present answer) or 'then' (that of the time of the readings) expected"
        )
    if about == "then" and estimate == "filter":
        raise InputError("estimate='filter' estimates the present answer; with about='then' use 'history' or 'linear'")
