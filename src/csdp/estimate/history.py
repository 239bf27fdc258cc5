"""Estimates of an answer from the last releases: Wiener weights.

With r = f - usual (the long-run mean, or the mean of the time of day) and releases `y_j = f(t_j) + noise_j`, the best
linear estimate of the answer at time u is `usual(u) + sum_j w_j (y_j - usual(t_j))`, where `(G + N) w = g`: G holds the
covariances of r between the times of the releases, N the variances of their noise, g the covariances with r at u. It is
never worse than the linear estimate from the newest release alone. All of this is post-processing: it costs no privacy.

The error of an estimate has a part from the answers, which were expected elsewhere, and a part from noise. How much the
answers move may change with the season; the noise does not. Each release shows how far off the one was that those
before it led to expect, so the size of the first part is followed through the last releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from csdp.chain import Model
from csdp.errors import InputError
from csdp.estimate.moments import Moments, moments
from csdp.estimate.result import (
    BY_STATES,
    LEVEL,
    About,
    Bounds,
    Error,
    Estimated,
    Observation,
    clip,
    standard_errors_of,
    with_band,
)
from csdp.numbers import Bools, Floats, Indices
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query

#: Releases that an estimate looks back on, and numbers in them at most.
MEMORY = 8
LARGEST_HISTORY = 512
#: Least standard error, as a share of the spread of the answers; what is added to a diagonal, so that outputs which
#: determine each other can be solved for without noise.
_SHARPEST, _RIDGE = 1e-6, 1e-13
#: Patterns of releases whose weights are kept.
_PATTERNS = 256
#: How the size of errors is followed: releases that count as much as what was learned, and the least size.
_LEARNED, _LEAST_SIZE = 12.0, 0.05


@dataclass(frozen=True, eq=False)
class HistoryEstimator:
    """Wiener estimates from the last releases.

    Args:
        usual: the mean of each output at each phase of the clock, (H, d); one row if there is no clock.
        covariance: of the outputs with those h ticks later, h = 0, 1, ...: (lags, d, d), or (lags, d) if every
            output is estimated by itself.
        age: how many ticks before a release its readings are taken.
        about: whether the present answer is estimated ("now"), or that of the time of the readings ("then").
        memory: releases that are looked back on.
        factor: standard errors in half a band; learned, or 1.96; None if the errors are not known (readings without a
            public past), so that estimates have no band.
        bounds: least and largest possible answer, which estimates and bands keep to.
        level: share of the truths that a band is to hold; None without a band.
        scale: learned correction of the standard errors.
        no_data: squared error of saying what is usual; by default that of the covariances.
        watch: releases through which the size of errors is followed, to widen or narrow the bands; 0 for not at all.
        plan_digest: the plan that it was made for; a publisher takes it for no other.

    >>> estimator = HistoryEstimator(np.zeros((1, 1)), 0.8 ** np.arange(9.0)[:, None], age=0)
    >>> quiet = [Observation(t, (1.0,), age=0, noise=1.0) for t in (4, 5)]
    >>> round(estimator.of(quiet[1:]).estimate[0], 3), round(estimator.of(quiet).estimate[0], 3)
    (0.5, 0.643)
    """

    usual: Floats = field(repr=False)
    covariance: Floats = field(repr=False)
    age: int
    about: About = "now"
    memory: int = MEMORY
    factor: float | None = 1.96
    bounds: Bounds | None = field(default=None, repr=False)
    level: float | None = LEVEL
    scale: float = 1.0
    no_data: float | None = None
    watch: int = 0
    plan_digest: str | None = None

    @property
    def kind(self) -> str:
        """ "seasonal" with a clock, else "history"; "newest" if nothing is looked back on."""
        return "seasonal" if len(self.usual) > 1 else "history" if self.memory > 1 else "newest"

    @property
    def silent_error(self) -> float:
        """Squared error of guessing the usual value, summed over outputs."""
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
        count, newest = len(releases), releases[-1]
        read, values, noise = self._arrays(releases)
        target = newest.tick - (newest.age if self.about == "then" else 0)
        run = range(max(0, count - self.memory), count)
        estimate, moved, drawn = (rows[0] for rows in self._solve(read, values, noise, [run], np.array([target])))
        first = max(1, count - self.watch)
        size = _size(self._surprises(read, values, noise, first)) if self.watch and first < count else 1.0
        # Saying what is usual is off by as much more, or less.
        whole = float(self._variance.sum())
        nothing = self.silent_error * (float((size * self._variance).sum()) / whole if whole > 0 else 1.0)
        error = self._standard_error(moved, drawn, size)
        return with_band(estimate, error, factor=self.factor, bounds=self.bounds, no_data=nothing)

    def _arrays(self, releases: Sequence[Observation]) -> tuple[Indices, Floats, Floats]:
        """When they were read, their values, and the variances of their noise."""
        noise, stale = np.array([one.noise for one in releases]), [one.stale for one in releases]
        noise = noise + self._late_noise(stale) if any(stale) else noise
        return np.array([one.tick - one.age for one in releases]), np.array([one.values for one in releases]), noise

    def _standard_error(self, moved: Floats, drawn: Floats, size: Floats | float = 1.0) -> Floats:
        """From the variances by answers, which may have changed in size, and by noise."""
        return np.asarray(self.scale * np.sqrt(size * moved + drawn))

    def _surprises(self, read: Indices, values: Floats, noise: Floats, first: int) -> Floats:
        """What each release from `first` on adds to the size of errors, and how much it counts, (n, 2, d).

        Its squared distance from what those before it lead to expect has the mean `size * moved + rest`, where the rest
        is noise.
        """
        runs = [range(max(0, n - self.memory), n) for n in range(first, len(read))]
        expected, moved, drawn = self._solve(read, values, noise, runs, read[first:])
        rest = drawn + noise[first:, None]
        off = values[first:] - expected
        whole = np.maximum(moved + rest, np.finfo(float).tiny)
        return np.stack([moved * (off**2 - rest) / whole**2, (moved / whole) ** 2], axis=1)

    def expected(self, noise: float) -> Error:
        """The error with a release at every tick, from as many as it looks back on."""
        back = tuple(range(self.memory - 1, -1, -1))
        _, moved, drawn = self._weights(back, 0 if self.about == "then" else self.age, (noise,) * self.memory)
        mse, outputs = float((self._standard_error(moved, drawn) ** 2).sum()), self.usual.shape[1]
        aging = 0.0 if self.about == "then" else float(self._late_noise([self.age])[0]) * outputs
        how = BY_STATES if self.level is None else "covariances"
        return Error(mse, aging, outputs * noise, self.silent_error, self.kind, how, None, self.about)

    def usual_at(self, ticks: npt.ArrayLike) -> Floats:
        """What is usual at some ticks, (n, d)."""
        return np.asarray(self.usual[np.asarray(ticks) % len(self.usual)])

    def _solve(
        self, read: Indices, values: Floats, noise: Floats, runs: Sequence[range], targets: Indices
    ) -> tuple[Floats, Floats, Floats]:
        """Estimates at ticks from runs of releases, and the variances of their errors by answers and by noise, (n, d).

        Runs that lie alike and have equal noise are solved together.
        """
        estimates, moved, drawn = (np.empty((len(runs), values.shape[1])) for _ in range(3))
        alike: dict[tuple[tuple[int, ...], int, tuple[float, ...]], list[int]] = {}
        ticks, variances = read.tolist(), noise.tolist()
        for number, (run, target) in enumerate(zip(runs, targets.tolist(), strict=True)):
            newest = ticks[run[-1]]
            back = tuple(newest - tick for tick in ticks[run.start : run.stop])
            pattern = back, target - newest, tuple(variances[run.start : run.stop])
            alike.setdefault(pattern, []).append(number)
        for pattern, numbers in alike.items():
            weights, by_answers, by_noise = self._weights(*pattern)
            rows = np.array([runs[number] for number in numbers])  # (g, n)
            off = (values[rows] - self.usual_at(read[rows])).reshape(*rows.shape, len(weights), -1)
            added = np.einsum("bnik,gnbi->gbk", weights, off).reshape(len(numbers), -1)
            estimates[numbers] = clip(self.usual_at(targets[numbers]) + added, self.bounds)
            moved[numbers], drawn[numbers] = by_answers, by_noise
        return estimates, moved, drawn

    @cached_property
    def _known(self) -> dict[tuple[tuple[int, ...], int, tuple[float, ...]], tuple[Floats, Floats, Floats]]:
        return {}

    def _weights(self, back: tuple[int, ...], ahead: int, noise: tuple[float, ...]) -> tuple[Floats, Floats, Floats]:
        """Weights (blocks, n, k, k) of releases read `back` ticks before the newest, and both variances (d,)."""
        pattern = (back, ahead, noise)
        if pattern not in self._known:
            if len(self._known) >= _PATTERNS:
                self._known.clear()
            self._known[pattern] = self._solve_weights(-np.asarray(back), ahead, np.asarray(noise))
        return self._known[pattern]

    def _solve_weights(self, places: Indices, ahead: int, noise: Floats) -> tuple[Floats, Floats, Floats]:
        blocks, n, k = len(self._blocks), places.size, self._blocks.shape[-1]
        between = self._covariance_at(places[None, :] - places[:, None])  # (blocks, n, n, k, k)
        across = self._covariance_at(ahead - places).reshape(blocks, n * k, k)
        spread = between.transpose(0, 1, 3, 2, 4).reshape(blocks, n * k, n * k) + np.diag(np.repeat(noise, k))
        largest = np.abs(np.diagonal(spread, axis1=1, axis2=2)).max(axis=1)
        spread = spread + (_RIDGE * largest + np.finfo(float).tiny)[:, None, None] * np.eye(n * k)
        weights = np.linalg.solve(spread, across)
        left = self._variance - np.einsum("bwk,bwk->bk", across, weights).ravel()
        drawn = np.einsum("bwk,w->bk", weights**2, np.repeat(noise, k)).ravel()
        least = (_SHARPEST**2) * self._variance
        return weights.reshape(blocks, n, k, k), np.maximum(left - drawn, least), np.maximum(drawn, 0.0)

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
        if not any(stale):
            return np.zeros(len(stale))
        later = self._covariance_at(np.asarray(stale, dtype=np.intp))  # (blocks, n, k, k)
        known = np.diagonal(later, axis1=2, axis2=3).transpose(1, 0, 2).reshape(len(stale), -1)
        return np.asarray(2 * np.maximum(self._variance - known, 0.0).mean(axis=1))

    def errors(self, answers: Floats, noise: float, seed: int, *, start: int = 0) -> tuple[Floats, Floats, Floats]:
        """Estimate - truth, standard error and truth along past answers (T, d), with simulated noise of a variance.

        Ticks whose answer, or the answer that would have been read, is not known are left out. `start`: the tick of the
        first answer.
        """
        random = np.random.default_rng(seed)
        noisy = answers + random.laplace(0.0, np.sqrt(noise / 2), answers.shape)  # a simulation: nothing is published
        known: Bools = np.asarray(~np.isnan(answers).any(axis=1))
        read = np.flatnonzero(known[: max(len(answers) - self.age, 0)])
        targets = read + (0 if self.about == "then" else self.age)
        counted = np.flatnonzero(known[targets])
        targets = targets[counted]
        runs = [range(max(0, n + 1 - self.memory), n + 1) for n in counted.tolist()]
        seen = start + read, noisy[read], np.full(len(read), noise)
        guess, moved, drawn = self._solve(*seen, runs, start + targets)
        sizes = self._sizes(*seen)[counted]
        return guess - answers[targets], self._standard_error(moved, drawn, sizes), answers[targets]

    def _sizes(self, read: Indices, values: Floats, noise: Floats) -> Floats:
        """The size of errors at each of some releases, (n, d), as `of` follows it."""
        sizes = np.ones(values.shape)
        if self.watch and len(read) > 1:
            seen = self._surprises(read, values, noise, 1)
            for n in range(1, len(read)):
                sizes[n] = _size(seen[max(0, n - self.watch) : n])
        return sizes


def _size(surprises: Floats) -> Floats:
    """How large errors by answers are, as a share of those that were learned, by what releases (n, 2, d) show."""
    added, counted = surprises.sum(axis=0)
    return np.asarray(np.maximum((_LEARNED + added) / (_LEARNED + counted), _LEAST_SIZE))


def has_history(model: Model, ages: Sequence[int]) -> bool:
    """Whether a model gives covariances between releases: one common age."""
    return len(set(ages)) == 1


def model_estimator(
    model: Model,
    query: Query | str,
    *,
    age: int,
    about: About = "now",
    memory: int = MEMORY,
    level: float = LEVEL,
    bounds: Bounds | None = None,
) -> HistoryEstimator:
    """The estimator whose means and covariances are those of a model, if there is no public past to learn from.

    Of readings the model has the values of their states alone, so that estimates of them have no band.
    """
    computation = tabulate(query, model)
    memory = max(1, min(memory, LARGEST_HISTORY // len(computation.outputs)))
    lags = _lagged_moments(model, computation, age + memory)
    if lags[0].how == "simulation":
        covariance = nearest_covariance(np.array([np.diag(known.cross) for known in lags]))
    else:
        covariance = np.array([known.cross for known in lags])
    factor = standard_errors_of(level)
    known = (factor, bounds, level) if computation.of_states else (None, bounds, None)
    return HistoryEstimator(lags[0].usual[1], covariance, age, about, memory, *known)


def _lagged_moments(model: Model, query: QueryTable, count: int) -> list[Moments]:
    """Moments of the answer and of that 0, 1, ... ticks later; a search and a publisher ask for them again."""
    known = _known_moments(model, query)
    for lag in range(len(known), count):
        known.append(moments(model, query, ages=(lag,) * model.sequences))
    return known[:count]


@lru_cache(maxsize=128)
def _known_moments(model: Model, query: QueryTable) -> list[Moments]:
    """The moments of one chain that were computed so far: a search asks every member of a family in turn."""
    return []


def nearest_covariance(covariance: Floats) -> Floats:
    """Covariances by lag (lags, d) without what no process can have: negative parts of the spectrum are removed."""
    circle = np.concatenate([covariance, covariance[-2:0:-1]])
    spectrum = np.maximum(np.fft.rfft(circle, axis=0).real, 0.0)
    repaired = np.fft.irfft(spectrum, n=len(circle), axis=0)[: len(covariance)]
    scale = np.divide(covariance[0], repaired[0], out=np.zeros_like(repaired[0]), where=repaired[0] > 0)
    return np.asarray(repaired * scale)


# ---- one release ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinearEstimator:
    """The best linear estimate from the newest release: for ages that differ, or a law that changes.

    `known`: moments of what is read and of the answer that is estimated.
    """

    known: Moments
    ages: tuple[int, ...]
    about: About = "now"
    level: float | None = LEVEL
    bounds: Bounds | None = None
    kind: str = "linear"
    memory: int = 1
    plan_digest: str | None = None

    def check(self, ages: Sequence[int], outputs: int) -> None:
        """Refuse releases of other ages, or with another number of outputs."""
        if tuple(ages) != self.ages:
            raise InputError("estimator: made for other ages than the plan has; make it for the plan's ages")
        if outputs != self.known.mean_now.size:
            size = self.known.mean_now.size
            raise InputError(f"estimator: made for {size} outputs, but the plan's query has {outputs}")

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The estimate from the newest release."""
        newest = releases[-1]
        _, gain, error = self._weights(newest.noise)
        aged, now = (table[newest.tick % len(table)] for table in self.known.usual)
        return with_band(
            now + gain @ (np.asarray(newest.values) - aged),
            error,
            factor=None if self.level is None else standard_errors_of(self.level),
            bounds=self.bounds,
            no_data=float(np.trace(self.known.cov_now)),
        )

    def usual_at(self, ticks: npt.ArrayLike) -> Floats:
        """The mean at some ticks, that of their phase under a clock, (n, d)."""
        usual = self.known.usual[1]
        return np.asarray(usual[np.atleast_1d(np.asarray(ticks)) % len(usual)])

    @cached_property
    def _by_noise(self) -> dict[float, tuple[Floats, Floats, Floats]]:
        return {}

    def _weights(self, noise: float) -> tuple[Floats, Floats, Floats]:
        """Offset, gain and standard error under noise of a variance, which mostly stays the same."""
        if noise not in self._by_noise:
            self._by_noise.clear()
            self._by_noise[noise] = self.known.linear_estimate(noise)
        return self._by_noise[noise]

    def expected(self, noise: float) -> Error:
        """The error of an estimate from one release."""
        known = self.known
        value = float((self._weights(noise)[2] ** 2).sum())
        total = noise * known.mean_now.size
        how = BY_STATES if self.level is None else known.how
        return Error(value, known.aging, total, float(np.trace(known.cov_now)), self.kind, how, None, self.about)


def linear_estimator(
    model: Model,
    query: Query | str,
    *,
    ages: Sequence[int],
    about: About = "now",
    level: float = LEVEL,
    bounds: Bounds | None = None,
) -> LinearEstimator:
    """The best linear estimate from one release, by the moments of a model; of readings, without a band."""
    computation = tabulate(query, model)
    known = moments(model, computation, ages=ages)
    known = known if about == "now" else known.of_time_read()
    return LinearEstimator(known, tuple(ages), about, level if computation.of_states else None, bounds)
