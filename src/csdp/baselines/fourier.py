"""The Fourier perturbation algorithm (Rastogi and Nath 2010), on windows of a stream of answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, known_subsets
from csdp.arrays import Floats
from csdp.baselines.laplace import largest_log_ratio, safe_log
from csdp.baselines.protocol import (
    Errors,
    Quantity,
    States,
    Trace,
    check_inputs,
    check_one_target,
    check_positive,
    check_snapshots,
    check_whole,
    mechanism_record,
)
from csdp.baselines.streams import AnswerStream, bound_lifetime, bound_present
from csdp.bounds.result import round_up
from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.estimate import moments
from csdp.noise import Randomness, two_sided_geometric, variance
from csdp.queries import Query

#: Paths of snapshots through a window up to which its exact leakage is enumerated.
PATHS = 2**16
_NOT_COMPUTED = "not computed: its guarantee does not cover inference through correlations"


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


@dataclass(frozen=True, eq=False)
class FourierRelease:
    """A calibrated Fourier perturbation: k noisy coefficients of a window, transformed back into a series."""

    baseline: str
    guarantee: str
    chain: Model
    query: Query
    epsilon: float
    scales: tuple[float, ...]
    window: int
    coefficients: int
    step: float  #: of the lattice to which coefficients are rounded, so that exact noise can be added

    @cached_property
    def _stream(self) -> AnswerStream:
        return AnswerStream(self.chain, self.query)

    @cached_property
    def _basis(self) -> Floats:
        return real_fourier(self.window, self.coefficients)

    def _coefficients(self, answers: Floats) -> Floats:
        """Coefficients (..., k, d) of answers (..., T, d), on the lattice."""
        return np.asarray(np.round(np.einsum("kt,...td->...kd", self._basis, answers) / self.step) * self.step)

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it on whole windows of snapshots; `noisy` and `exact` are coefficients."""
        rows = check_snapshots(states, self.chain)
        if rows.shape[0] % self.window:
            raise InputError(f"states: {rows.shape[0]} snapshots given; whole windows of {self.window} expected")
        answers = self._stream.answers(rows)
        exact = self._coefficients(answers.reshape(-1, self.window, answers.shape[1]))
        steps = two_sided_geometric(Fraction(self.scales[0]) / Fraction(self.step), exact.shape, randomness)
        noisy = exact + steps * self.step
        values = np.einsum("kt,nkd->ntd", self._basis, noisy).reshape(answers.shape)
        return Trace(values, noisy, exact, np.full(exact.shape, self.scales[0]))

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Outputs (T, d), for study only."""
        return self.trace(states, randomness).values

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """Exact leakage of the newest snapshot of a window, by enumeration of all paths through it."""
        try:
            value = self._enumerate_leakage(adversary)
        except TooLargeError as error:
            return bound_present(self._stream, self.epsilon, f"{_NOT_COMPUTED}, and {error}", adversary=adversary)
        return Quantity(round_up(value), f"exact, one window of {self.window} ticks, {adversary} adversary")

    def _enumerate_leakage(self, adversary: Adversary) -> float:
        log_rows, classes, seen = self._paths(self.window - 1)
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

    def _paths(self, tick: int) -> tuple[Floats, Floats, States]:
        """ln Pr(class of coefficients | snapshot at one tick of the window), the classes, the possible snapshots."""
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
        coefficients = self._coefficients(answers[paths]).reshape(len(paths), -1)
        classes, which = np.unique(coefficients, axis=0, return_inverse=True)
        rows = np.full((n, len(classes)), -np.inf)
        np.logaddexp.at(rows, (paths[:, tick], which.ravel()), mass)
        return rows - np.logaddexp.reduce(rows, axis=1, keepdims=True), classes, seen

    def lifetime(self, releases: int) -> Quantity:
        """Exact leakage of any tick's snapshot by one window, by enumeration; only bounded for several windows."""
        releases = check_whole("releases", releases)
        if releases > self.window:
            why = f"{_NOT_COMPUTED}; {releases} ticks are more than one window"
            return bound_lifetime(self._stream, self.epsilon, why, ticks=releases)
        try:
            worst = 0.0
            for tick in range(self.window):
                rows, classes, seen = self._paths(tick)
                worst = max(worst, largest_log_ratio(rows, classes, [np.arange(seen.size)], rate=1.0 / self.scales[0]))
        except TooLargeError as error:
            return bound_lifetime(self._stream, self.epsilon, f"{_NOT_COMPUTED}, and {error}", ticks=releases)
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
        basis = np.kron(self._basis, np.eye(d))  # (k d, T d)
        now = np.zeros((d, T * d))
        now[:, (T - 1) * d :] = np.eye(d)
        # Rounding to a lattice of a thousandth of the noise adds a variance of step^2 / 12.
        noise = variance(Fraction(self.scales[0]) / Fraction(self.step)) * self.step**2 + self.step**2 / 12.0
        back = basis[:, (T - 1) * d :].T  # maps coefficients to the newest tick
        off = now - back @ basis
        bias = off @ np.tile(known[0].mean_now, T)
        raw = float(np.trace(off @ whole_cov @ off.T) + bias @ bias + noise * np.trace(back @ back.T))
        spread = basis @ whole_cov @ basis.T + noise * np.eye(basis.shape[0])
        cross = now @ whole_cov @ basis.T
        linear = float(np.trace(known[0].cov_now - cross @ np.linalg.solve(spread, cross.T)))
        return Errors(raw, max(linear, 0.0), float(np.trace(known[0].cov_now)), "covariances, newest tick of a window")

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain data."""
        return mechanism_record(self, {"window": self.window, "coefficients": self.coefficients})


def _lines(digits: States, axis: int) -> list[States]:
    """Rows that agree in all columns but one."""
    rest = np.delete(digits, axis, axis=1)
    label = np.unique(rest, axis=0, return_inverse=True)[1].ravel() if rest.shape[1] else np.zeros(len(digits), np.intp)
    return [np.flatnonzero(label == k) for k in range(int(label.max()) + 1)]


@dataclass(frozen=True)
class Fourier:
    """Publish k coefficients of the orthonormal real Fourier transform of a window, noise sqrt(k) Delta_2 / epsilon.

    `level`: "event" (a record of one tick changes) or "user" (a sequence's whole window changes).
    """

    window: int = 4
    coefficients: int = 2
    level: Literal["event", "user"] = "event"

    name: ClassVar[str] = "fourier"
    label: ClassVar[str] = "DP of one record in a window"
    title: ClassVar[str] = "Fourier perturbation (Rastogi and Nath 2010)"
    guarantee: ClassVar[str] = (
        "epsilon-DP of one record of a window (event) or of one sequence's window (user); no inferential guarantee"
    )
    inferential: ClassVar[bool] = False

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> FourierRelease:
        """Return the mechanism with noise on the coefficients for an epsilon, or with noise of a scale."""
        check_one_target(epsilon, scale)
        query = check_inputs(chain, query)
        window, count = check_whole("window", self.window), check_whole("coefficients", self.coefficients)
        if count > window:
            raise InputError(f"coefficients: {count} given; a window of {window} ticks has {window}")
        if self.level not in {"event", "user"}:
            raise InputError(f"level: {self.level!r} given; 'event' or 'user'")
        stream = AnswerStream(chain, query)
        outputs = count * stream.outputs
        # Orthonormal rows keep l2; k d numbers of l2 norm Delta_2 have l1 norm at most sqrt(k d) Delta_2.
        unrounded = math.sqrt(outputs) * stream.sensitivity * (math.sqrt(window) if self.level == "user" else 1.0)
        first = unrounded / check_positive("epsilon", epsilon) if scale is None else check_positive("scale", scale)
        step = math.ldexp(1.0, math.frexp(first)[1] - 11)
        sensitivity = unrounded + outputs * step  # rounding moves each coefficient by half a step at most
        if scale is None:
            assert epsilon is not None
            scale = math.nextafter(sensitivity / epsilon, math.inf)
        level = sensitivity / scale
        return FourierRelease(self.name, self.guarantee, chain, query, level, (float(scale),), window, count, step)
