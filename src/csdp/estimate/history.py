"""Estimates of an answer from the last releases: Wiener weights, from a model or learned on the public past.

With r = f - usual (the long-run mean, or the mean of the time of day) and releases `y_j = f(t_j) + noise_j`, the best
linear estimate of the answer at time u is `usual(u) + sum_j w_j (y_j - usual(t_j))`, where `(G + N) w = g`: G holds the
covariances of r between the times of the releases, N the variances of their noise, g the covariances with r at u. It is
never worse than the linear estimate from the newest release alone. All of this is post-processing: it costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Floats, Indices
from csdp.chain import Model
from csdp.errors import InputError
from csdp.estimate.error import About
from csdp.estimate.second_order import moments
from csdp.queries import Query

#: Releases that an estimate looks back on.
MEMORY = 8
#: Ticks of a public past from which an estimate is learned at least.
SHORTEST_PAST = 60
#: Shares of the public past: the first is fitted to, the second calibrates the band, the rest checks both.
_FITTED, _CALIBRATED = 0.5, 0.75
#: Least standard error, as a share of the spread of the answers.
_SHARPEST = 1e-6


@dataclass(frozen=True, eq=False)
class HistoryEstimator:
    """Wiener estimates of each output from the last releases.

    Args:
        usual: the mean of each output at each phase of the clock, (H, d); one row where there is no clock.
        covariance: covariance of each output with itself h ticks later, h = 0, 1, ..., (lags, d).
        age: how many ticks before a release its readings were taken.
        about: whether the present answer is estimated ("now"), or that of the time that was read ("then").
        memory: releases that are looked back on.
        factor: standard errors in half a band; learned, or 1.96.
        bounds: least and largest possible answer, which estimates and bands keep to.
    """

    usual: Floats
    covariance: Floats
    age: int
    about: About = "now"
    memory: int = MEMORY
    factor: float = 1.96
    bounds: tuple[float, float] | None = None

    def usual_at(self, ticks: npt.ArrayLike) -> Floats:
        """What is usual at some ticks, (n, d)."""
        return np.asarray(self.usual[np.asarray(ticks) % len(self.usual)])

    def estimate(self, tick: int, released: npt.ArrayLike, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """The estimate for one tick and its standard error, each (d,).

        Args:
            tick: the tick of the newest release.
            released: the ticks of the last releases, the newest last.
            values: what was released at them, (n, d).
            noise: variance of the noise of each of them, (n,).
        """
        at = np.asarray(released)[-self.memory :]
        read, target = at - self.age, tick - (self.age if self.about == "then" else 0)
        weights, spread = self._weights(tuple((read[-1] - read).tolist()), int(target - read[-1]), noise[-at.size :])
        off = values[-at.size :] - self.usual_at(read)
        return self.clip(self.usual_at(target) + (weights * off).sum(axis=0)), spread

    def _weights(self, back: tuple[int, ...], ahead: int, noise: Floats) -> tuple[Floats, Floats]:
        """Weights (n, d) of releases that lie `back` ticks before the newest, and the standard error (d,)."""
        places = np.asarray(back)
        between = self._covariance_at(np.abs(places[:, None] - places[None, :]))  # (n, n, d)
        across = self._covariance_at(np.abs(places + ahead))  # (n, d)
        spread = np.moveaxis(between, -1, 0) + np.diag(noise)
        weights: Floats = np.asarray(np.linalg.solve(spread, across.T[..., None])[..., 0].T, dtype=np.float64)
        left = self.covariance[0] - (weights * across).sum(axis=0)
        return weights, np.sqrt(np.maximum(left, (_SHARPEST**2) * self.covariance[0]))

    def _covariance_at(self, lags: Indices) -> Floats:
        """Covariances at some lags; 0 beyond those that are known."""
        known = np.minimum(lags, len(self.covariance) - 1)
        return np.asarray(np.where((lags < len(self.covariance))[..., None], self.covariance[known], 0.0))

    def band(self, estimate: Floats, error: Floats) -> tuple[Floats, Floats]:
        """The band around an estimate, inside the possible range."""
        return self.clip(estimate - self.factor * error), self.clip(estimate + self.factor * error)

    def clip(self, values: Floats) -> Floats:
        """Values moved into the possible range."""
        return values if self.bounds is None else np.clip(values, *self.bounds)

    def errors(self, answers: Floats, noise: float, seed: int) -> tuple[Floats, Floats, Floats]:
        """Estimate - truth, standard error and truth along past answers (T, d), with simulated noise of a variance.

        Ticks whose answer, or the answer that would have been read, is not known are left out.
        """
        random = np.random.default_rng(seed)
        noisy = answers + random.laplace(0.0, np.sqrt(noise / 2), answers.shape)  # a simulation: nothing is published
        known: Bools = np.asarray(~np.isnan(answers).any(axis=1))
        off, spread, truth = [], [], []
        releases = [t for t in range(self.age, len(answers)) if known[t - self.age]]
        for n in range(len(releases)):
            tick = releases[n]
            target = tick - (self.age if self.about == "then" else 0)
            if not known[target]:
                continue
            last = np.asarray(releases[max(0, n + 1 - self.memory) : n + 1])
            guess, error = self.estimate(tick, last, noisy[last - self.age], np.full(last.size, noise))
            off.append(guess - answers[target])
            spread.append(error)
            truth.append(answers[target])
        return np.array(off), np.array(spread), np.array(truth)


def model_estimator(
    model: Model, query: Query, *, age: int, about: About = "now", memory: int = MEMORY
) -> HistoryEstimator:
    """The estimator whose means and covariances are those of a model, where there is no public past to learn from."""
    lags = [moments(model, query, ages=[lag] * model.sequences) for lag in range(age + memory)]
    covariance = np.array([np.diag(known.cross) for known in lags])
    return HistoryEstimator(lags[0].mean_now[None], covariance, age, about, memory)


@dataclass(frozen=True, eq=False)
class LearnedEstimator:
    """The estimator that did best on a part of the public past that it was not fitted to, and how well it did.

    `mse`, `no_data`: squared error a tick, summed over outputs, of the estimate and of the best that can be said
    without any release. `coverage`: share of the truths inside the band, of the `level` that was asked for. `kind`:
    "newest", "history" or "seasonal". `compared`: squared error of each kind that was tried.
    """

    estimator: HistoryEstimator
    kind: str
    mse: float
    no_data: float
    level: float
    coverage: float
    compared: dict[str, float]

    @property
    def usefulness(self) -> float:
        """Which share of the error of saying nothing is removed."""
        return 1.0 - self.mse / self.no_data if self.no_data > 0 else 0.0


def learn_estimator(
    answers: npt.ArrayLike,
    *,
    age: int,
    noise: float,
    period: int | None = None,
    about: About = "now",
    memory: int = MEMORY,
    level: float = 0.95,
    bounds: tuple[float, float] | None = None,
) -> LearnedEstimator:
    """Learn an estimator from the answers of a public past, and check it on the end of that past.

    Args:
        answers: the answers at consecutive ticks (T,) or (T, d), from a tick whose phase is 0; NaN where not known.
        age: how many ticks before a release its readings are taken.
        noise: variance of the noise of a release.
        period: ticks of the clock (a day, a week) after which what is usual repeats; None without a clock.
        about: "now" to estimate the present answer, "then" that of the time that was read.
        memory: releases that are looked back on.
        level: share of the truths that a band is to hold.
        bounds: least and largest possible answer.

    >>> learned = learn_estimator(np.sin(np.arange(600) / 20), age=1, noise=0.5)
    >>> learned.kind, learned.usefulness > 0.6
    ('history', True)
    """
    past = np.asarray(answers, dtype=np.float64)
    past = past[:, None] if past.ndim == 1 else past
    _check_past(past, age, noise, period, level)
    whole = (period or 1) * max(1, round(len(past) * _FITTED) // (period or 1))
    fitted, held_out = past[:whole], past[whole:]
    kinds = {"newest": (1, 1), "history": (memory, 1)} | ({"seasonal": (memory, period)} if period else {})
    start = whole % (period or 1)
    assert start == 0  # the held-out part begins at phase 0 as well
    tried = {
        kind: _fit(fitted, age=age, about=about, memory=size, period=cycle or 1, bounds=bounds)
        for kind, (size, cycle) in kinds.items()
    }
    errors = {kind: one.errors(held_out, noise, seed=0) for kind, one in tried.items()}
    compared = {kind: float((off**2).sum(axis=1).mean()) for kind, (off, _, _) in errors.items()}
    best = min(compared, key=lambda kind: compared[kind])
    off, spread, _ = errors[best]
    half = int(len(off) * (_CALIBRATED - _FITTED) / (1 - _FITTED))
    factor = _quantile(np.abs(off[:half]) / spread[:half], level)
    size, cycle = kinds[best]
    estimator = replace(
        _fit(past, age=age, about=about, memory=size, period=cycle or 1, bounds=bounds),
        factor=_quantile(np.abs(off) / spread, level),
    )
    return LearnedEstimator(
        estimator,
        best,
        compared[best],
        _no_data_error(fitted, held_out, period),
        level,
        float((np.abs(off[half:]) <= factor * spread[half:]).mean()),
        compared,
    )


def _check_past(past: Floats, age: int, noise: float, period: int | None, level: float) -> None:
    known = int((~np.isnan(past).any(axis=1)).sum()) if past.ndim == 2 else 0
    needed = max(SHORTEST_PAST, 4 * (period or 1)) + age
    if past.ndim != 2 or known < needed:
        raise InputError(
            f"estimate: a public past of {known} known answers given; at least {needed} to learn an estimate from. "
            "Give a longer public past, or take the estimate of the model"
        )
    if age < 0 or not noise >= 0 or not 0 < level < 1 or (period is not None and period < 1):
        raise InputError(
            f"estimate: age {age}, noise variance {noise}, period {period}, level {level} given; an age of 0 or more, "
            "a variance of 0 or more, a period of 1 or more ticks, a level between 0 and 1"
        )


def _fit(
    past: Floats, *, age: int, about: About, memory: int, period: int, bounds: tuple[float, float] | None
) -> HistoryEstimator:
    """Means by phase and covariances of what remains."""
    usual = _usual(past, period)
    rest = past - usual[np.arange(len(past)) % period]
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
    return HistoryEstimator(usual, _nearest_covariance(covariance), age, about, memory, bounds=bounds)


def _usual(past: Floats, period: int) -> Floats:
    """The mean of every phase (H, d); of all ticks at phases that were never seen."""
    with np.errstate(invalid="ignore"):
        phases = [past[phase::period] for phase in range(period)]
        whole = np.nanmean(past, axis=0)
        return np.array([np.nanmean(rows, axis=0) if (~np.isnan(rows)).any() else whole for rows in phases])


def _nearest_covariance(covariance: Floats) -> Floats:
    """Covariances by lag without what no process can have: negative parts of the spectrum are removed."""
    circle = np.concatenate([covariance, covariance[-2:0:-1]])
    spectrum = np.maximum(np.fft.rfft(circle, axis=0).real, 0.0)
    repaired = np.fft.irfft(spectrum, n=len(circle), axis=0)[: len(covariance)]
    scale = np.divide(covariance[0], repaired[0], out=np.zeros_like(repaired[0]), where=repaired[0] > 0)
    return np.asarray(repaired * scale)


def _no_data_error(fitted: Floats, held_out: Floats, period: int | None) -> float:
    """The error of the best that can be said without any release: the mean, or the mean of the time of day."""
    said = [_usual(fitted, cycle)[np.arange(len(held_out)) % cycle] for cycle in {1, period or 1}]
    return min(float(np.nanmean(((held_out - usual) ** 2).sum(axis=1))) for usual in said)


def _quantile(ratios: Floats, level: float) -> float:
    """The level-quantile of |error| / standard error, counted one up for the finite number of them."""
    ordered = np.sort(ratios.ravel())
    return float(ordered[min(ordered.size - 1, int(np.ceil((ordered.size + 1) * level)) - 1)])
