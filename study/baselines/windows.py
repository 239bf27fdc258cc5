"""Published methods for windows of a stream of answers: transforms, trees, correlated noise, gradual expiration.

They are linear. A window of T answers x gives coefficients `S x`, S a fixed matrix (the strategy). Each gets noise of
one scale, the largest column sum of |S| times Delta_f / epsilon: one record of one tick then changes the
log-probability of all outputs by at most epsilon. Estimates of answers and of running totals are post-processing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from csdp.accountant import Accountant
from csdp.chain import Model
from csdp.errors import InputError
from csdp.noise import variance
from csdp.numbers import Floats, Indices
from csdp.plan import Plan
from csdp.query import tabulate
from csdp.query_table import Query
from study.baselines.streams import AnswerStream


@dataclass(frozen=True, eq=False)
class StrategyRelease:
    """A calibrated linear mechanism: noisy coefficients of a window of answers with one output."""

    stream: AnswerStream
    epsilon: float
    scales: tuple[float, ...]
    strategy: Floats  #: (k, window)
    ready: Indices  #: the tick of the window at which each coefficient is published
    step: float  #: of the lattice on which noise is added
    rounded: bool = False  #: whether coefficients are rounded to that lattice; those of whole numbers lie on it

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance (k, k) of the noise of the coefficients, rounding included."""
        # Rounding to a lattice of a thousandth of the noise adds a variance of step^2 / 12.
        rounding = self.step**2 / 12.0 if self.rounded else 0.0
        each = variance(Fraction(self.scales[0]) / Fraction(self.step)) * self.step**2 + rounding
        return np.asarray(each * np.eye(len(self.strategy)))


@dataclass(frozen=True)
class StrategyBaseline(ABC):
    """Base of these baselines: a window, and calibration to the largest column sum of the strategy."""

    window: int = 8

    name: ClassVar[str]
    title: ClassVar[str]
    guarantee: ClassVar[str] = "epsilon-DP of one record of one tick (event level); no inferential guarantee"

    @abstractmethod
    def rows(self) -> tuple[Floats, Indices]:
        """Return the strategy (k, window), and the tick at which each coefficient is published."""

    def column_sum(self) -> float:
        """How much the coefficients change, in l1, if one answer of the window changes by one."""
        return float(np.abs(self.rows()[0]).sum(axis=0).max())

    def calibrate(self, chain: Model, query: Query | str, *, epsilon: float) -> StrategyRelease:
        """Return the mechanism with noise on the coefficients; it needs no law of the chain, its errors do."""
        stream = AnswerStream(chain, tabulate(query, chain, on_lattice=True))
        strategy, ready = self.rows()
        unrounded = self.column_sum() * stream.sensitivity
        if (strategy == np.round(strategy)).all():  # whole sums of answers lie on the lattice of the answers
            scale = math.nextafter(unrounded / epsilon, math.inf)
            return StrategyRelease(stream, unrounded / scale, (scale,), strategy, ready, stream.step)
        step = math.ldexp(1.0, math.frexp(unrounded / epsilon)[1] - 11)
        # Rounding moves each coefficient by half a step at most. Counted as often as the smallest change of an answer
        # goes into the sensitivity, so that small changes of an answer cost in proportion too.
        parts = stream.plan.lattice_sensitivity / stream.plan.step
        changed = unrounded + len(strategy) * step * parts
        scale = math.nextafter(changed / epsilon, math.inf)
        return StrategyRelease(stream, changed / scale, (scale,), strategy, ready, step, rounded=True)


def real_fourier(length: int, count: int) -> Floats:
    """Return the first `count` rows of the orthonormal real Fourier basis, slowest first.

    >>> (real_fourier(4, 4) @ real_fourier(4, 4).T).round(12).tolist() == np.eye(4).tolist()
    True
    """
    t = np.arange(length)
    rows = [np.full(length, 1.0 / math.sqrt(length))]
    for k in range(1, length // 2 + 1):
        if 2 * k == length:
            rows.append(np.where(t % 2 == 0, 1.0, -1.0) / math.sqrt(length))
        else:
            angle = 2.0 * math.pi * k * t / length
            rows += [math.sqrt(2.0 / length) * np.cos(angle), math.sqrt(2.0 / length) * np.sin(angle)]
    return np.array(rows[:count])


@dataclass(frozen=True)
class Fourier(StrategyBaseline):
    """k coefficients of the orthonormal real Fourier transform of a window, with noise sqrt(k) Delta_2 / epsilon."""

    coefficients: int = 2

    name: ClassVar[str] = "fourier"
    title: ClassVar[str] = "Fourier perturbation (Rastogi and Nath 2010)"

    def rows(self) -> tuple[Floats, Indices]:
        """Return the slowest rows of the basis, published at the end of the window."""
        return real_fourier(self.window, self.coefficients), np.full(self.coefficients, self.window - 1)

    def column_sum(self) -> float:
        """Orthonormal rows keep l2; k numbers of l2 norm 1 have l1 norm at most sqrt(k)."""
        return math.sqrt(self.coefficients)


@dataclass(frozen=True)
class HaarWavelet(StrategyBaseline):
    """Privelet: noisy Haar coefficients of a window, weighted so that all get noise of one scale.

    A record changes log2(T) + 1 of them, by its own change each. The window is published at its end. Reference: Xiao,
    Wang and Gehrke (2010).
    """

    name: ClassVar[str] = "wavelet"
    title: ClassVar[str] = "Haar wavelet, Privelet (Xiao et al. 2010)"

    def rows(self) -> tuple[Floats, Indices]:
        """Return the sum of the window, and differences of halves.

        >>> HaarWavelet(window=2).rows()[0].tolist()
        [[1.0, 1.0], [1.0, -1.0]]
        """
        ticks = check_power(self.window)
        rows = [np.ones(ticks)]
        for level in range(1, ticks.bit_length()):
            half = 2 ** (level - 1)
            for start in range(0, ticks, 2 * half):
                row = np.zeros(ticks)
                row[start : start + half], row[start + half : start + 2 * half] = 1.0, -1.0
                rows.append(row)
        return np.array(rows), np.full(ticks, ticks - 1)


@dataclass(frozen=True)
class BinaryTree(StrategyBaseline):
    """Noisy sums of all dyadic intervals of a window, each published when it is complete.

    A record is in log2(T) + 1 of them. References: Dwork, Naor, Pitassi and Rothblum (2010); Chan, Shi and Song (2011).
    """

    name: ClassVar[str] = "tree"
    title: ClassVar[str] = "Binary tree (Dwork et al. 2010, Chan et al. 2011)"

    def rows(self) -> tuple[Floats, Indices]:
        """Return the intervals of 1, 2, 4, ... ticks.

        >>> BinaryTree(window=2).rows()[0].tolist()
        [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        """
        ticks = check_power(self.window)
        sizes = [2**level for level in range(ticks.bit_length())]
        spans = [(start, start + size) for size in sizes for start in range(0, ticks, size)]
        strategy = np.array([[float(first <= t < end) for t in range(ticks)] for first, end in spans])
        return strategy, np.array([end - 1 for _, end in spans])


@dataclass(frozen=True)
class ToeplitzNoise(StrategyBaseline):
    """Noise correlated over time: the square root of the matrix of running totals, banded.

    `S[t, t-k] = c_k = binom(2k, k) / 4^k` for k below `bands`; S^2 sums up where nothing is cut off. References:
    Fichtenberger, Henzinger and Upadhyay, "Constant matters" (2023); banded: Choquette-Choo et al. (2023). They add
    Gaussian noise for (epsilon, delta); here it is geometric noise for the l1 norm of a column, for epsilon alone.
    """

    bands: int | None = None

    name: ClassVar[str] = "toeplitz"
    title: ClassVar[str] = "Toeplitz noise (Fichtenberger et al. 2023), with pure epsilon"

    def rows(self) -> tuple[Floats, Indices]:
        """Return the lower triangular matrix of c_k.

        >>> ToeplitzNoise(window=3).rows()[0].tolist()
        [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.375, 0.5, 1.0]]
        """
        ticks = self.window
        bands = ticks if self.bands is None else min(self.bands, ticks)
        strategy = np.zeros((ticks, ticks))
        for k, coefficient in enumerate(root_coefficients(bands)):
            strategy += coefficient * np.eye(ticks, k=-k)
        return strategy, np.arange(ticks)


def root_coefficients(count: int) -> Floats:
    """c_k = binom(2k, k) / 4^k, the coefficients of (1 - z)^(-1/2).

    >>> root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    return np.asarray(np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, count))]), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ExpiringRelease(StrategyRelease):
    """Running totals with the noise of all dyadic intervals that contain the tick; what a record costs grows with age.

    Formal guarantee: a change of the answer of a tick by Delta_f changes the log-probability of what was published
    until d ticks later by at most `losses[d]`, smaller changes in proportion. A changed answer of tick j moves all
    totals from j on. The noise of some intervals can take that over, so that no output until tick t changes: of a path
    of intervals, end to end, from the start of tick j to a place after tick t. It costs their rates;
    the cheapest counts.
    """

    losses: tuple[float, ...] = ()  #: epsilon of a record by its age, 0 to window - 1 ticks; the last one for ever

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance of the noise of the totals: of the intervals that two ticks share."""
        intervals, _ = BinaryTree(window=self.strategy.shape[1]).rows()
        level = np.log2(intervals.sum(axis=1)).astype(np.intp)
        each = np.array([variance(Fraction(scale) / Fraction(self.step)) * self.step**2 for scale in self.scales])
        return np.asarray((intervals.T * each[level]) @ intervals)

    def certify(self, age: int = 0) -> float:
        """Certified leakage of the present, windows without end, on answers of an age.

        By the accountant: long ago every record costs the last of the losses, the newest ones what they have cost so
        far. It is the rule of noise on every answer with those levels (`study.baselines.continual`).
        """
        accountant = Accountant(Plan(self.stream.chain, self.stream.query, age, self.losses[-1]))
        state = accountant.long_run()
        if state is None:
            return accountant.limit().epsilon
        for level in self.losses[-2::-1]:
            state = accountant.release(state, epsilon_c=level)
        return max(accountant.leakage(state).epsilon, accountant.peak(state))


def expiring_costs(window: int, rates: Sequence[float]) -> Floats:
    """What one more in the answer of a tick has cost at most d ticks later, d = 0 to window - 1.

    `rates`: of the noise of an interval of 1, 2, 4, ... ticks.

    >>> expiring_costs(4, [1.0, 1.0, 1.0]).tolist()
    [1.0, 2.0, 2.0, 2.0]
    """
    from scipy.sparse.csgraph import shortest_path

    between = np.full((window + 1, window + 1), np.inf)
    for level, rate in enumerate(rates):
        starts = np.arange(0, window, 2**level)
        between[starts, starts + 2**level] = rate
    apart = shortest_path(between, directed=False)
    costs = np.array([[apart[j, t + 1 :].min() for t in range(window)] for j in range(window)])
    ticks = np.arange(window)
    return np.array([costs[ticks, np.minimum(ticks + d, window - 1)].max() for d in range(window)])


@dataclass(frozen=True)
class GradualExpiration(StrategyBaseline):
    """Running totals whose privacy expires: a record's epsilon grows with its age, up to that of the whole window.

    Every total has the noise of all dyadic intervals that contain its tick; that of an interval of 2^l ticks has a rate
    (1 + l)^power. After Andersson, Henzinger, Pagh, Steiner and Upadhyay (2024), from whose idea this was built: what a
    record costs is computed as a shortest path (`ExpiringRelease`).
    """

    power: float = 0.0

    name: ClassVar[str] = "expiring"
    title: ClassVar[str] = "Gradual expiration (Andersson et al. 2024)"
    guarantee: ClassVar[str] = (
        "epsilon-DP of one record of one tick (event level), less while the record is young; no inferential guarantee"
    )

    def rows(self) -> tuple[Floats, Indices]:
        """Return the running totals of a window."""
        ticks = check_power(self.window)
        return np.tril(np.ones((ticks, ticks))), np.arange(ticks)

    def calibrate(self, chain: Model, query: Query | str, *, epsilon: float) -> ExpiringRelease:
        """Return the mechanism for an epsilon in the end."""
        stream = AnswerStream(chain, tabulate(query, chain, on_lattice=True))
        strategy, ready = self.rows()
        weights = [(1.0 + level) ** float(self.power) for level in range(self.window.bit_length())]
        costs = expiring_costs(self.window, weights) * stream.sensitivity
        scale = math.nextafter(float(costs[-1]) / epsilon, math.inf)
        # Rounded up by more than the sums and quotients above can be off.
        losses = tuple(float(cost) / scale * (1 + 1e-13) for cost in costs)
        scales = tuple(scale / weight for weight in weights)
        return ExpiringRelease(stream, losses[-1], scales, strategy, ready, stream.step, losses=losses)


def check_power(window: int) -> int:
    """A window of 1, 2, 4, 8, ... ticks."""
    if window & (window - 1):
        raise InputError(f"window: {window} given; a power of two expected")
    return window
