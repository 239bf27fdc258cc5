"""Estimates that are learned on a public past and checked on the end of it: the kind, the band and its coverage.

Nothing forces an estimate to believe the model: means by time of day and covariances are those of the public answers.
What is learned is post-processing of releases, so it is no part of a plan and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.estimate.history import MEMORY, HistoryEstimator, nearest_covariance
from csdp.estimate.result import LEVEL, About, Bounds, Error, Estimated, Observation, check_about, removed_share
from csdp.numbers import Floats, Indices

#: Schema of the files that learned estimators are written to.
SCHEMA = "csdp.estimator/1"
#: Ticks of a public past from which an estimate is learned at least.
SHORTEST_PAST = 60
#: Shares of the public past: the first is fitted to, the second calibrates the band, the rest checks both.
_FITTED, _CALIBRATED = 0.5, 0.75
#: Releases through which the size of errors is followed.
WATCH = 64


@dataclass(frozen=True, eq=False)
class LearnedEstimator:
    """The estimator that did best on a part of the public past that it was not fitted to, and how well it did.

    `mse`, `no_data`: squared error a tick, summed over outputs, of the estimate and of the best that can be said
    without any release. `coverage`: share of the truths inside the band, of the `level` that was asked for. `kind`:
    "newest", "history" or "seasonal". `compared`: squared error of each kind that was tried. `noise`: variance of the
    noise that it was checked with. `ticks`: length of the public past. `plan_digest`: the plan that it was learned for;
    a publisher takes it for no other.
    """

    estimator: HistoryEstimator
    kind: str
    mse: float
    no_data: float
    level: float
    coverage: float
    compared: dict[str, float]
    noise: float
    ticks: int
    plan_digest: str | None = None

    def __repr__(self) -> str:
        return f"LearnedEstimator({self.kind}, about {self.about}, removes {100 * self.usefulness:.3g} %)"

    @property
    def usefulness(self) -> float:
        """Which share of the squared error of guessing the usual value is removed."""
        return removed_share(self.mse, self.no_data)

    @property
    def about(self) -> About:
        """Whether the present answer is estimated ("now"), or that of the time of the readings ("then")."""
        return self.estimator.about

    @property
    def memory(self) -> int:
        """Releases that are looked back on, for the estimate and for the size of its errors."""
        return self.estimator.memory + self.estimator.watch

    def check(self, ages: Sequence[int], outputs: int) -> None:
        """Refuse releases of other ages, or with another number of outputs."""
        self.estimator.check(ages, outputs)

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The estimate from the last releases, the newest last."""
        return self.estimator.of(releases)

    def usual_at(self, ticks: npt.ArrayLike) -> Floats:
        """What is usual at some ticks, (n, d)."""
        return self.estimator.usual_at(ticks)

    def expected(self, noise: float) -> Error:
        """The held-out error; with other noise than it was checked with, changed as the covariances say."""
        theory = self.estimator.expected(noise)
        ratio = 1.0 if noise == self.noise else theory.mse / self.estimator.expected(self.noise).mse
        return replace(theory, mse=self.mse * ratio, how="held-out public readings", estimate=self.kind)

    @property
    def in_words(self) -> str:
        """What was measured on the held-out end of the public past, in a sentence."""
        return (
            f"{self.kind} estimate, learned on {self.ticks:,} public ticks; on those held out its squared error "
            f"is {self.mse:.4g}, that of guessing the usual value {self.no_data:.4g} "
            f"(removes {100 * self.usefulness:.3g} %); "
            f"its {100 * self.level:g} % band holds {100 * self.coverage:.3g} % of the truths"
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with a versioned schema."""
        inner = self.estimator
        bounds = None if inner.bounds is None else [np.asarray(end).tolist() for end in inner.bounds]
        return {
            "schema": SCHEMA,
            "plan_digest": self.plan_digest,
            **{name: getattr(self, name) for name in _MEASURED},
            "estimator": {
                **{name: getattr(inner, name) for name in _PLAIN},
                "usual": inner.usual.tolist(),
                "covariance": inner.covariance.tolist(),
                "bounds": bounds,
            },
        }

    @classmethod
    def from_dict(cls, content: Any) -> LearnedEstimator:
        """From what `to_dict` makes."""
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise InputError(f"estimator: this version reads schema {SCHEMA!r}; learn it with csdp.learn_from_past")
        try:
            inner = content["estimator"]
            bounds = inner["bounds"]
            check_about(inner["about"])
            estimator = HistoryEstimator(
                usual=_finite(inner["usual"], 2),
                covariance=_finite(inner["covariance"], 2),
                bounds=None if bounds is None else (_finite(bounds[0]), _finite(bounds[1])),
                **{name: inner[name] for name in _PLAIN},
            )
            if estimator.usual.shape[1] != estimator.covariance.shape[1] or not 1 <= estimator.memory <= len(
                estimator.covariance
            ):
                raise ValueError("shapes that do not belong together")
            measured = {name: content[name] for name in _MEASURED}
            return cls(estimator, **measured, plan_digest=content.get("plan_digest"))
        except InputError:
            raise
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"estimator: the content lacks or garbles {error}; make the plan again with `csdp plan`"
            ) from None


_MEASURED = ("kind", "mse", "no_data", "level", "coverage", "compared", "noise", "ticks")
_PLAIN = ("age", "about", "memory", "factor", "level", "scale", "no_data", "watch")


def _finite(numbers: Any, dimensions: int | None = None) -> Floats:
    array = np.asarray(numbers, dtype=np.float64)
    if not np.isfinite(array).all() or (dimensions is not None and array.ndim != dimensions):
        raise ValueError("numbers that are not finite, or not in a table")
    return array


def learn_estimator(
    answers: npt.ArrayLike,
    *,
    age: int,
    noise: float,
    period: int | None = None,
    start: int = 0,
    about: About = "now",
    level: float = LEVEL,
    bounds: Bounds | None = None,
) -> LearnedEstimator:
    """Learn an estimator from the answers of a public past, and check it on the end of that past.

    A publisher takes only what was learned for its plan: `csdp.learn_from_past` learns from a panel and says so; for
    what is learned here say it with `dataclasses.replace(learned, plan_digest=plan.digest)`.

    Args:
        answers: the answers at consecutive ticks (T,) or (T, d); NaN if not known.
        age: how many ticks before a release its readings are taken.
        noise: variance of the noise of a release.
        period: ticks of the clock (a day, a week) after which what is usual repeats; None without a clock.
        start: the tick of the first answer; releases at the same phase of the clock have ticks that differ from it by
            multiples of the period.
        about: "now" to estimate the present answer, "then" that of the time of the readings.
        level: share of the truths that a band is to hold.
        bounds: least and largest possible answer.

    >>> learned = learn_estimator(np.sin(np.arange(600) / 20), age=1, noise=0.5)
    >>> learned.kind, learned.usefulness > 0.6
    ('history', True)
    >>> LearnedEstimator.from_dict(learned.to_dict()).coverage == learned.coverage
    True
    """
    past = np.asarray(answers, dtype=np.float64)
    past = past[:, None] if past.ndim == 1 else past
    check_about(about)
    _check_past(past, age, noise, period, level)
    ticks = start + np.arange(len(past))
    split = round(len(past) * _FITTED)
    fitted, held_out = past[:split], past[split:]
    fit = partial(_fit, age=age, about=about, bounds=bounds)
    kinds = {"newest": (1, 1), "history": (MEMORY, 1)} | ({"seasonal": (MEMORY, period)} if period else {})
    tried = {kind: fit(fitted, ticks[:split], memory=size, period=cycle) for kind, (size, cycle) in kinds.items()}
    errors = {kind: one.errors(held_out, noise, seed=0, start=start + split) for kind, one in tried.items()}
    compared = {kind: float((off**2).sum(axis=1).mean()) for kind, (off, _, _) in errors.items()}
    best = min(compared, key=lambda kind: compared[kind])
    size, cycle = kinds[best]
    fit_best = partial(fit, memory=size, period=cycle)
    off, spread, _ = errors[best]
    half = int(len(off) * (_CALIBRATED - _FITTED) / (1 - _FITTED))
    # The first half counts too, as it looks from later: what the seasons of the second half lack may come again.
    later = slice(split, round(len(past) * _CALIBRATED))
    before = fit_best(past[later], ticks[later]).errors(fitted, noise, seed=1, start=start)
    off, spread = (np.concatenate(pair) for pair in zip(before[:2], (off, spread), strict=True))
    half += len(before[0])
    away = _times_spread(off, spread)
    factor = _quantile(away[:half], level)
    coverage = float((away[half:] <= factor).mean())
    no_data = _no_data_error(fitted, held_out, ticks, period)
    scale = float(np.sqrt((off**2).mean() / (spread**2).mean())) if spread.any() else 1.0
    estimator = replace(
        fit_best(past, ticks),
        factor=_quantile(away, level) / scale,
        level=level,
        scale=scale,
        no_data=no_data,
    )
    return LearnedEstimator(
        estimator, best, compared[best], no_data, level, coverage, compared, float(noise), len(past)
    )


def _times_spread(off: Floats, spread: Floats) -> Floats:
    """How many standard errors estimates are off; none if they are right, whatever their standard error."""
    return np.divide(np.abs(off), spread, out=np.where(off == 0, 0.0, np.inf), where=spread > 0)


def _check_past(past: Floats, age: int, noise: float, period: int | None, level: float) -> None:
    known = int((~np.isnan(past).any(axis=1)).sum()) if past.ndim == 2 else 0
    needed = max(SHORTEST_PAST, 4 * (period or 1)) + age
    if past.ndim != 2 or known < needed:
        raise InputError(
            f"estimate: a public past of {known} known answers given; at least {needed} to learn an estimate from. "
            "Give a longer public past, or take the estimate of the model"
        )
    if age < 0 or not 0 <= noise < np.inf or not 0 < level < 1 or (period is not None and period < 1):
        raise InputError(
            f"estimate: age {age}, noise variance {noise}, period {period}, level {level} given; an age of 0 or more, "
            "a variance of 0 or more, a period of 1 or more ticks, a level between 0 and 1"
        )


def _fit(
    past: Floats, ticks: Indices, *, age: int, about: About, memory: int, period: int, bounds: Bounds | None
) -> HistoryEstimator:
    """Means by phase and covariances of what remains."""
    usual = _usual(past, ticks, period)
    rest = past - usual[ticks % period]
    known = ~np.isnan(rest)
    rest = np.where(known, rest, 0.0)
    lags = min(age + memory, len(past) - 1)
    covariance = np.array(
        [
            (rest[: len(rest) - h] * rest[h:]).sum(axis=0)
            / np.maximum((known[: len(rest) - h] & known[h:]).sum(axis=0), 1)
            for h in range(lags + 1)
        ]
    )
    return HistoryEstimator(usual, nearest_covariance(covariance), age, about, memory, bounds=bounds, watch=WATCH)


def _usual(past: Floats, ticks: Indices, period: int) -> Floats:
    """The mean of every phase (H, d); of all ticks at phases that were never seen."""
    whole = np.nanmean(past, axis=0)
    phases = [past[ticks % period == phase] for phase in range(period)]
    return np.array([np.nanmean(rows, axis=0) if (~np.isnan(rows)).any(axis=0).all() else whole for rows in phases])


def _no_data_error(fitted: Floats, held_out: Floats, ticks: Indices, period: int | None) -> float:
    """The error of the best that can be said without any release: the mean, or the mean of the time of day."""
    before, after = ticks[: len(fitted)], ticks[len(fitted) :]
    said = [_usual(fitted, before, cycle)[after % cycle] for cycle in {1, period or 1}]
    return min(float(np.nanmean(((held_out - usual) ** 2).sum(axis=1))) for usual in said)


def _quantile(ratios: Floats, level: float) -> float:
    """The level-quantile of |error| / standard error, counted one up for the finite number of them."""
    ordered = np.sort(ratios.ravel())
    return float(ordered[min(ordered.size - 1, int(np.ceil((ordered.size + 1) * level)) - 1)])
