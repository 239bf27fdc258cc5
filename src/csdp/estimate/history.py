"""Estimates of an answer from the last releases: Wiener weights.

With r = f - usual (the long-run mean, or the mean of the time of day) and releases `y_j = f(t_j) + noise_j`, the best
linear estimate of the answer at time u is `usual(u) + sum_j w_j (y_j - usual(t_j))`, where `(G + N) w = g`: G holds the
covariances of r between the times of the releases, N the variances of their noise, g the covariances with r at u. It is
never worse than the linear estimate from the newest release alone. All of this is post-processing: it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Floats, Indices
from csdp.chain import Model
from csdp.computation import Computation, verify_query
from csdp.errors import InputError
from csdp.estimate.protocol import LEVEL, Bounds, Estimated, Observation, clip, standard_errors_of, with_band
from csdp.estimate.result import About, Error
from csdp.estimate.second_order import Moments, moments
from csdp.queries import Query

#: Releases that an estimate looks back on, and numbers in them at most.
MEMORY = 8
LARGEST_HISTORY = 512
#: Least standard error, as a share of the spread of the answers; what is added to a diagonal, so that outputs which
#: determine each other can be solved for without noise.
_SHARPEST, _RIDGE = 1e-6, 1e-13
#: Patterns of releases whose weights are kept.
_PATTERNS = 256


@dataclass(frozen=True, eq=False)
class HistoryEstimator:
    """Wiener estimates from the last releases.

    Args:
        usual: the mean of each output at each phase of the clock, (H, d); one row where there is no clock.
        covariance: of the outputs with those h ticks later, h = 0, 1, ...: (lags, d, d), or (lags, d) where every
            output is estimated by itself.
        age: how many ticks before a release its readings are taken.
        about: whether the present answer is estimated ("now"), or that of the time that was read ("then").
        memory: releases that are looked back on.
        factor: standard errors in half a band; learned, or 1.96.
        bounds: least and largest possible answer, which estimates and bands keep to.
        level: share of the truths that a band is to hold.
        scale: learned correction of the standard errors.
        no_data: squared error of saying what is usual; by default that of the covariances.

    >>> estimator = HistoryEstimator(np.zeros((1, 1)), 0.8 ** np.arange(9.0)[:, None], age=0)
    >>> quiet = [Observation(t, (1.0,), age=0, noise=1.0) for t in (4, 5)]
    >>> round(estimator.of(quiet[1:]).estimate[0], 3), round(estimator.of(quiet).estimate[0], 3)
    (0.5, 0.643)
    """

    usual: Floats
    covariance: Floats
    age: int
    about: About = "now"
    memory: int = MEMORY
    factor: float = 1.96
    bounds: Bounds | None = None
    level: float = LEVEL
    scale: float = 1.0
    no_data: float | None = None

    @property
    def kind(self) -> str:
        """ "seasonal" with a clock, else "history"; "newest" where nothing is looked back on."""
        return "seasonal" if len(self.usual) > 1 else "history" if self.memory > 1 else "newest"

    @property
    def silent_error(self) -> float:
        """Squared error of saying nothing but what is usual, summed over outputs."""
        return float(self._variance.sum()) if self.no_data is None else self.no_data

    def check(self, ages: Sequence[int], outputs: int) -> None:
        """Refuse releases of other ages, or with another number of outputs."""
        if set(ages) != {self.age}:
            given = ", ".join(map(str, sorted(set(ages))))
            raise InputError(
                f"estimator: made for age {self.age}, but the plan has {given}; learn it for the plan's age"
            )
        if outputs != self.usual.shape[1]:
            raise InputError(f"estimator: made for {self.usual.shape[1]} outputs, but the plan's query has {outputs}")

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The estimate from the last releases, the newest last.

        What a release read later than planned moves its answer as much as noise would: it is counted as noise.
        """
        last = releases[-self.memory :]
        read = np.array([one.tick - one.age for one in last])
        noise = np.array([one.noise for one in last]) + self._late_noise([one.stale for one in last])
        target = last[-1].tick - (last[-1].age if self.about == "then" else 0)
        estimate, error = self._solve(read, target, np.array([one.values for one in last]), noise)
        return with_band(estimate, error, factor=self.factor, bounds=self.bounds, no_data=self.silent_error)

    def expected(self, noise: float) -> Error:
        """The error with a release at every tick, from as many as it looks back on."""
        back = tuple(range(self.memory - 1, -1, -1))
        _, spread = self._weights(back, 0 if self.about == "then" else self.age, (noise,) * self.memory)
        mse, outputs = float(((self.scale * spread) ** 2).sum()), self.usual.shape[1]
        aging = 0.0 if self.about == "then" else float(self._late_noise([self.age])[0]) * outputs
        return Error(mse, aging, outputs * noise, self.silent_error, self.kind, "covariances", None, self.about)

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
        target = tick - (self.age if self.about == "then" else 0)
        return self._solve(at - self.age, target, values[-at.size :], noise[-at.size :])

    def _solve(self, read: Indices, target: int, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """The estimate at a tick from what was read at some ticks, and its standard error."""
        back = tuple((read[-1] - read).tolist())
        weights, spread = self._weights(back, int(target - read[-1]), tuple(noise.tolist()))
        off = values - self.usual_at(read)  # (n, d)
        moved = np.einsum("bnik,nbi->bk", weights, off.reshape(len(off), weights.shape[0], -1)).ravel()
        return self.clip(self.usual_at(target) + moved), self.scale * spread

    @cached_property
    def _known(self) -> dict[tuple[tuple[int, ...], int, tuple[float, ...]], tuple[Floats, Floats]]:
        return {}

    def _weights(self, back: tuple[int, ...], ahead: int, noise: tuple[float, ...]) -> tuple[Floats, Floats]:
        """Weights (blocks, n, k, k) of releases read `back` ticks before the newest, and the standard error (d,)."""
        pattern = (back, ahead, noise)
        if pattern not in self._known:
            if len(self._known) >= _PATTERNS:
                self._known.clear()
            self._known[pattern] = self._solve_weights(-np.asarray(back), ahead, np.asarray(noise))
        return self._known[pattern]

    def _solve_weights(self, places: Indices, ahead: int, noise: Floats) -> tuple[Floats, Floats]:
        blocks, n, k = len(self._blocks), places.size, self._blocks.shape[-1]
        between = self._covariance_at(places[None, :] - places[:, None])  # (blocks, n, n, k, k)
        across = self._covariance_at(ahead - places).reshape(blocks, n * k, k)
        spread = between.transpose(0, 1, 3, 2, 4).reshape(blocks, n * k, n * k) + np.diag(np.repeat(noise, k))
        largest = np.abs(np.diagonal(spread, axis1=1, axis2=2)).max(axis=1)
        spread = spread + (_RIDGE * largest + np.finfo(float).tiny)[:, None, None] * np.eye(n * k)
        weights = np.linalg.solve(spread, across)
        left = self._variance - np.einsum("bwk,bwk->bk", across, weights).ravel()
        return weights.reshape(blocks, n, k, k), np.sqrt(np.maximum(left, (_SHARPEST**2) * self._variance))

    @cached_property
    def _blocks(self) -> Floats:
        """Covariances by groups of outputs that are estimated together, (blocks, lags, k, k)."""
        known = self.covariance
        return known[None] if known.ndim == 3 else np.ascontiguousarray(known.T)[:, :, None, None]

    @cached_property
    def _variance(self) -> Floats:
        """Variance of each output around what is usual, (d,)."""
        return np.diagonal(self._blocks[:, 0], axis1=1, axis2=2).ravel()

    def _covariance_at(self, lags: Indices) -> Floats:
        """Covariances with the outputs some ticks later, or earlier; 0 beyond the lags that are known."""
        known = self._blocks[:, np.minimum(np.abs(lags), self._blocks.shape[1] - 1)]
        known = np.where((lags < 0)[..., None, None], np.swapaxes(known, -1, -2), known)
        return np.asarray(np.where((np.abs(lags) < self._blocks.shape[1])[..., None, None], known, 0.0))

    def _late_noise(self, stale: Sequence[int]) -> Floats:
        """How far an answer moves in so many ticks, mean square of an output: `2 (C(0) - C(stale))`."""
        later = self._covariance_at(np.asarray(stale, dtype=np.intp))  # (blocks, n, k, k)
        known = np.diagonal(later, axis1=2, axis2=3).transpose(1, 0, 2).reshape(len(stale), -1)
        return np.asarray(2 * np.maximum(self._variance - known, 0.0).mean(axis=1))

    def band(self, estimate: Floats, error: Floats) -> tuple[Floats, Floats]:
        """The band around an estimate, inside the possible range."""
        return self.clip(estimate - self.factor * error), self.clip(estimate + self.factor * error)

    def clip(self, values: Floats) -> Floats:
        """Values moved into the possible range."""
        return clip(values, self.bounds)

    def errors(self, answers: Floats, noise: float, seed: int, *, start: int = 0) -> tuple[Floats, Floats, Floats]:
        """Estimate - truth, standard error and truth along past answers (T, d), with simulated noise of a variance.

        Ticks whose answer, or the answer that would have been read, is not known are left out. `start`: the tick of the
        first answer.
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
            guess, error = self.estimate(start + tick, start + last, noisy[last - self.age], np.full(last.size, noise))
            off.append(guess - answers[target])
            spread.append(error)
            truth.append(answers[target])
        return np.array(off), np.array(spread), np.array(truth)


def has_history(model: Model, ages: Sequence[int]) -> bool:
    """Whether a model gives covariances between releases: one common age, and a law that stays the same."""
    return len(set(ages)) == 1 and model.initial is None


def model_estimator(
    model: Model,
    query: Query,
    *,
    age: int,
    about: About = "now",
    memory: int = MEMORY,
    level: float = LEVEL,
    bounds: Bounds | None = None,
) -> HistoryEstimator:
    """The estimator whose means and covariances are those of a model, where there is no public past to learn from."""
    computation = verify_query(query, model)
    memory = max(1, min(memory, LARGEST_HISTORY // len(computation.outputs)))
    lags = [_lagged_moments(model, computation, lag) for lag in range(age + memory)]
    if lags[0].how == "simulation":
        covariance = nearest_covariance(np.array([np.diag(known.cross) for known in lags]))
    else:
        covariance = np.array([known.cross for known in lags])
    factor = standard_errors_of(level)
    return HistoryEstimator(lags[0].mean_now[None], covariance, age, about, memory, factor, bounds, level)


@lru_cache(maxsize=256)
def _lagged_moments(model: Model, query: Computation, lag: int) -> Moments:
    """Moments of the answer and of that some ticks later; a search and a publisher ask for them again."""
    return moments(model, query, ages=(lag,) * model.sequences)


def nearest_covariance(covariance: Floats) -> Floats:
    """Covariances by lag (lags, d) without what no process can have: negative parts of the spectrum are removed."""
    circle = np.concatenate([covariance, covariance[-2:0:-1]])
    spectrum = np.maximum(np.fft.rfft(circle, axis=0).real, 0.0)
    repaired = np.fft.irfft(spectrum, n=len(circle), axis=0)[: len(covariance)]
    scale = np.divide(covariance[0], repaired[0], out=np.zeros_like(repaired[0]), where=repaired[0] > 0)
    return np.asarray(repaired * scale)
