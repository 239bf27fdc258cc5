"""Linear mechanisms on windows of a stream of answers: noise on sums of answers, from which answers are computed.

A window of T answers x gives coefficients `S x`, S a fixed matrix (the strategy). Each gets noise of one scale, the
largest column sum of |S| times Delta_f / epsilon: one record of one tick then changes the log-probability of all
outputs by at most epsilon. Estimates of answers and of running totals are post-processing. The strategies
of published methods are in `study.baselines.windows`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp.bounds.result import round_up
from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.estimate.moments import moments
from csdp.noise import Randomness, two_sided_geometric, variance
from csdp.numbers import Floats, Indices
from csdp.query_table import Query
from study.baselines.laplace import largest_log_ratio, safe_log
from study.baselines.protocol import (
    Adversary,
    Errors,
    Quantity,
    States,
    Trace,
    check_inputs,
    check_one_target,
    check_positive,
    check_whole,
    known_subsets,
    read_snapshots,
)
from study.baselines.streams import AnswerStream, bound_lifetime, bound_present

#: Paths of snapshots through a window up to which its exact leakage is enumerated.
PATHS = 2**16
NOT_COMPUTED = "not computed: its guarantee does not cover inference through correlations"


@dataclass(frozen=True, eq=False)
class StrategyRelease:
    """A calibrated linear mechanism: noisy coefficients of a window, and the answers that follow from them."""

    baseline: str
    guarantee: str
    chain: Model
    query: Query
    epsilon: float
    scales: tuple[float, ...]
    strategy: Floats  #: (k, window)
    ready: Indices  #: the tick of the window at which each coefficient is published
    step: float  #: of the lattice on which noise is added
    rounded: bool  #: whether coefficients are rounded to that lattice; those of whole numbers lie on it

    @property
    def window(self) -> int:
        """Ticks of a window."""
        return int(self.strategy.shape[1])

    @cached_property
    def _stream(self) -> AnswerStream:
        return AnswerStream(self.chain, self.query)

    @cached_property
    def _decoder(self) -> Floats:
        """Answers from coefficients, by least squares (window, k)."""
        return np.asarray(np.linalg.pinv(self.strategy))

    @cached_property
    def noise_variance(self) -> float:
        """Variance of the noise of a coefficient, rounding included."""
        # Rounding to a lattice of a thousandth of the noise adds a variance of step^2 / 12.
        rounding = self.step**2 / 12.0 if self.rounded else 0.0
        return variance(Fraction(self.scales[0]) / Fraction(self.step)) * self.step**2 + rounding

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance (k, k) of the noise of the coefficients."""
        return self.noise_variance * np.eye(len(self.strategy))

    def _coefficients(self, answers: Floats) -> Floats:
        """Coefficients (..., k, d) of answers (..., T, d), on the lattice."""
        exact = np.einsum("kt,...td->...kd", self.strategy, answers)
        return np.asarray(np.round(exact / self.step) * self.step if self.rounded else exact)

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it on whole windows of snapshots; `noisy` and `exact` are coefficients."""
        rows = read_snapshots(states, self.chain)
        if rows.shape[0] % self.window:
            raise InputError(f"states: {rows.shape[0]} snapshots given; whole windows of {self.window} expected")
        answers = self._stream.answers(rows)
        exact = self._coefficients(answers.reshape(-1, self.window, answers.shape[1]))
        noisy, drawn, scales = self._perturb(exact, randomness)
        values = np.einsum("tk,nkd->ntd", self._decoder, noisy).reshape(answers.shape)
        return Trace(values, drawn, exact if drawn is noisy else np.zeros_like(drawn), scales)

    def _perturb(self, exact: Floats, randomness: Randomness) -> tuple[Floats, Floats, Floats]:
        """Noisy coefficients, what was drawn for them (here the same) and the scales that it was drawn with."""
        steps = two_sided_geometric(Fraction(self.scales[0]) / Fraction(self.step), exact.shape, randomness)
        noisy = exact + steps * self.step
        return noisy, noisy, np.full(exact.shape, self.scales[0])

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Outputs (T, d), for study only."""
        return self.trace(states, randomness).values

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """Exact leakage of the newest snapshot by what its window has published, by enumeration of all paths.

        The largest over the ticks of a window at which something is published.
        """
        try:
            value = max(self._enumerate_leakage(int(tick), adversary) for tick in np.unique(self.ready)[::-1])
        except TooLargeError as error:
            return bound_present(self._stream, self.epsilon, f"{NOT_COMPUTED}, and {error}", adversary=adversary)
        return Quantity(round_up(value), f"exact, one window of {self.window} ticks, {adversary} adversary")

    def _enumerate_leakage(self, tick: int, adversary: Adversary) -> float:
        log_rows, classes, seen = self._paths(tick, newest=tick)
        s, m = self.chain.sequences, self.chain.states
        law = self.chain.stationary()[seen]
        digits = np.array(np.unravel_index(seen, (m,) * s)).T
        best = 0.0
        for known in known_subsets(adversary, s):
            label = np.unique(digits[:, list(known)], axis=0, return_inverse=True)[1].ravel()
            rows = np.array(
                [
                    np.logaddexp.reduce(log_rows[label == k] + np.log(law[label == k])[:, None], axis=0)
                    - math.log(law[label == k].sum())
                    for k in range(label.max() + 1)
                ]
            )
            known_digits = np.array([digits[label == k][0, list(known)] for k in range(label.max() + 1)])
            groups = [group for axis in range(len(known)) for group in _lines(known_digits, axis)]
            best = max(best, largest_log_ratio(rows, classes, groups, rate=1.0 / self.scales[0]))
        return best

    def _paths(self, tick: int, newest: int | None = None) -> tuple[Floats, Floats, States]:
        """ln Pr(class of coefficients | snapshot at one tick of the window), the classes, the possible snapshots.

        Of the coefficients that are published up to the tick `newest`, by default all.
        """
        law = self.chain.stationary()
        seen = np.flatnonzero(law > 0)
        n = seen.size
        if float(n) ** self.window > PATHS:
            raise TooLargeError(
                f"{n}**{self.window} paths through a window; at most {PATHS:,} are enumerated",
                needed=float(n) ** self.window,
                limit=PATHS,
            )
        kernel = self.chain.kernel()[np.ix_(seen, seen)]
        paths = np.array(np.unravel_index(np.arange(n**self.window), (n,) * self.window)).T
        mass = safe_log(law[seen])[paths[:, 0]]
        for t in range(1, self.window):
            mass = mass + safe_log(kernel)[paths[:, t - 1], paths[:, t]]
        states = np.array(np.unravel_index(seen, (self.chain.states,) * self.chain.sequences)).T
        answers = self._stream.answers(states)
        published = self.ready <= (self.window if newest is None else newest)
        coefficients = self._coefficients(answers[paths])[:, published].reshape(len(paths), -1)
        classes, which = np.unique(coefficients, axis=0, return_inverse=True)
        rows = np.full((n, len(classes)), -np.inf)
        np.logaddexp.at(rows, (paths[:, tick], which.ravel()), mass)
        return rows - np.logaddexp.reduce(rows, axis=1, keepdims=True), classes, seen

    def lifetime(self, releases: int) -> Quantity:
        """Exact leakage of any tick's snapshot by one window, by enumeration; only bounded for several windows."""
        releases = check_whole("releases", releases)
        if releases > self.window:
            why = f"{NOT_COMPUTED}; {releases} ticks are more than one window"
            return bound_lifetime(self._stream, self.epsilon, why, ticks=releases)
        try:
            worst = 0.0
            for tick in range(self.window):
                rows, classes, seen = self._paths(tick)
                worst = max(worst, largest_log_ratio(rows, classes, [np.arange(seen.size)], rate=1.0 / self.scales[0]))
        except TooLargeError as error:
            return bound_lifetime(self._stream, self.epsilon, f"{NOT_COMPUTED}, and {error}", ticks=releases)
        return Quantity(round_up(worst), f"exact, one window of {self.window} ticks")

    def errors(self) -> Errors:
        """Error at the newest tick of a window; linear: the best linear estimate from all noisy coefficients."""
        T, s = self.window, self.chain.sequences
        known = [moments(self.chain, self.query, ages=[h] * s) for h in range(T)]
        d = known[0].mean_now.size
        lag = [k.cross for k in known]  # Cov(f(x_{t-h}), f(x_t))
        cov = np.zeros((T, d, T, d))
        for a in range(T):
            for b in range(T):
                cov[a, :, b, :] = lag[b - a] if b >= a else lag[a - b].T
        whole_cov = cov.reshape(T * d, T * d)
        basis = np.kron(self.strategy, np.eye(d))  # (k d, T d)
        now = np.zeros((d, T * d))
        now[:, (T - 1) * d :] = np.eye(d)
        noise = self.noise_covariance
        back = np.kron(self._decoder[-1:], np.eye(d))  # maps coefficients to the newest tick
        off = now - back @ basis
        bias = off @ np.tile(known[0].mean_now, T)
        raw = float(np.trace(off @ whole_cov @ off.T) + bias @ bias + d * self._decoder[-1] @ noise @ self._decoder[-1])
        spread = basis @ whole_cov @ basis.T + np.kron(noise, np.eye(d))
        cross = now @ whole_cov @ basis.T
        linear = float(np.trace(known[0].cov_now - cross @ np.linalg.solve(spread, cross.T)))
        return Errors(raw, max(linear, 0.0), float(np.trace(known[0].cov_now)), "covariances, newest tick of a window")


def _lines(digits: States, axis: int) -> list[States]:
    """Rows that agree in all columns but one."""
    rest = np.delete(digits, axis, axis=1)
    label = np.unique(rest, axis=0, return_inverse=True)[1].ravel() if rest.shape[1] else np.zeros(len(digits), np.intp)
    return [np.flatnonzero(label == k) for k in range(int(label.max()) + 1)]


@dataclass(frozen=True)
class StrategyBaseline(ABC):
    """Base of these baselines: a window, and calibration to the largest column sum of the strategy."""

    window: int = 8

    name: ClassVar[str]
    label: ClassVar[str] = "DP of one record"
    title: ClassVar[str]
    guarantee: ClassVar[str] = "epsilon-DP of one record of one tick (event level); no inferential guarantee"
    inferential: ClassVar[bool] = False

    @abstractmethod
    def rows(self) -> tuple[Floats, Indices]:
        """Return the strategy (k, window), and the tick at which each coefficient is published."""

    def calibrate(
        self, chain: Model, query: Query | str, *, epsilon: float | None = None, scale: float | None = None
    ) -> StrategyRelease:
        """Return the mechanism with noise on the coefficients for an epsilon, or with noise of a scale."""
        check_one_target(epsilon, scale)
        return self.calibrate_stream(AnswerStream(chain, check_inputs(chain, query)), epsilon=epsilon, scale=scale)

    def calibrate_stream(
        self, stream: AnswerStream, *, epsilon: float | None = None, scale: float | None = None
    ) -> StrategyRelease:
        """Return the mechanism for a stream of answers; its noise needs no law of the chain, its errors do."""
        strategy, ready = self.rows()
        largest = float(np.abs(strategy).sum(axis=0).max()) * stream.sensitivity
        return calibrate_strategy(self, stream, strategy, ready, unrounded=largest, epsilon=epsilon, scale=scale)


def calibrate_strategy(
    baseline: Any,
    stream: AnswerStream,
    strategy: Floats,
    ready: Indices,
    *,
    unrounded: float,
    epsilon: float | None,
    scale: float | None,
) -> StrategyRelease:
    """Return a strategy with noise for an epsilon or of a scale.

    `unrounded`: the most that one record changes the coefficients by, in l1, before they are rounded.
    """
    whole = bool((strategy == np.round(strategy)).all())
    first = unrounded / check_positive("epsilon", epsilon) if scale is None else check_positive("scale", scale)
    # Whole sums of answers lie on the lattice of the answers; others are rounded to a fine one.
    step = stream.plan.step / stream.plan.divisor if whole else math.ldexp(1.0, math.frexp(first)[1] - 11)
    # Rounding moves each coefficient by half a step at most. Counted as often as the smallest change of an answer goes
    # into the sensitivity, so that small changes of an answer cost in proportion too.
    parts = stream.plan.lattice_sensitivity / stream.plan.step
    sensitivity = unrounded + (0.0 if whole else len(strategy) * stream.outputs * step * parts)
    if scale is None:
        assert epsilon is not None
        scale = math.nextafter(sensitivity / epsilon, math.inf)
    return StrategyRelease(
        baseline.name, baseline.guarantee, stream.chain, stream.query, sensitivity / scale, (float(scale),),
        strategy, ready, step, not whole,
    )  # fmt: skip


def check_power(window: Any) -> int:
    """A window of 1, 2, 4, 8, ... ticks."""
    ticks = check_whole("window", window)
    if ticks & (ticks - 1):
        raise InputError(f"window: {ticks} given; a power of two expected")
    return ticks
