"""Bounds from the law of the aged snapshot given two presents: metric, profile, freshness, contraction.

With B[x, z] that law, over the pairs of presents that the adversary must not distinguish: r is the largest log ratio,
alpha = d(k) epsilon_c. Always: exact <= metric <= profile, profile <= contraction, profile <= freshness.

The metric programme: with b(z, z') for each pair of snapshots, the likelihood g of what was published satisfies
`g(w) <= e^{b(w,w')} g(w')`, and between two laws p, q of the snapshot the leakage is at most the largest
`ln (sum p g / sum q g)`: a linear-fractional programme (`FlowSolver`). A solver's optimum within its tolerance is no
certificate, so the value is rebuilt from the dual flows F >= 0 as
`max_w [p(w) - sum_w' F(w,w') + sum_w' e^{b(w',w)} F(w',w)] / q(w)`, which holds for any F >= 0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from csdp.aging import (
    PLAIN,
    Adversary,
    AgedLaw,
    Deviation,
    Mass,
    Vantage,
    index_parts,
    known_subsets,
    list_aged_laws,
    marginal,
)
from csdp.bounds.units import Units
from csdp.chain import Model
from csdp.chain.environment import PathView, View
from csdp.chain.steps import joint_states
from csdp.errors import TooLargeError
from csdp.numbers import Floats

#: Joint states of a component up to which the N x N law of the aged snapshot is made.
PAIR_STATES = 1024
#: Numbers of pairs of laws, and of their threshold sets, up to which they are kept between two questions.
_KEPT = 1 << 15
#: Relative slack for the rounding of sums over kernels.
SLACK = 1e-11
#: Pairs further apart than this are searched as if they were so far apart; what is found is bounded as they are.
_LONGEST_FLOW = 60.0
#: How much further apart pairs are for the search, as a share of the largest distance.
_APART = 1e-10
#: Snapshots from which on the compiled search takes longer than starting a thread for it.
_THREADED = 12


@dataclass(frozen=True)
class LawPairs:
    """Pairs of laws on snapshots, such as the rows of B for presents that differ in one sequence."""

    first: Floats  # Pr(z | x)
    second: Floats  # Pr(z | x')
    gap: Floats  # first - second, accurate when tiny; times 2**exponent
    error: Floats  # (C,) bound on the rounding of gap; times 2**exponent
    exponent: int
    relative: float = 0.0  # bound on the relative error of first and second

    def restrict(self, seen: Any) -> LawPairs:
        """The same on some snapshots, outside of which neither law has weight."""
        gap, error = self.gap[:, seen], self.error[seen]
        return LawPairs(self.first[:, seen], self.second[:, seen], gap, error, self.exponent, self.relative)


class AgedPairs:
    """All pairs of presents that an adversary must not distinguish, with the laws of the aged snapshot.

    For the informed adversary presents that differ inside one of the `blocks`; in one sequence by default.
    """

    def __init__(
        self,
        model: Model,
        *,
        ages: Sequence[int],
        adversary: Adversary,
        oldest: int | None = None,
        vantage: Vantage = PLAIN,
        blocks: Units = (),
    ) -> None:
        refuse_many_pairs(model)
        vantage.require_known_present(model, adversary)
        self._model = model
        self._vantage = vantage
        self._adversary = adversary
        self._ages = tuple(ages)
        self._oldest = oldest
        self._blocks = blocks or tuple((i,) for i in range(model.sequences))
        self._last: tuple[float, float] | None = None  # of the profile: peaks and ceilings ask for the same one

    @cached_property
    def laws(self) -> list[AgedLaw]:
        """The laws whose classes are the readings themselves: one, or one for each environment that may be known."""
        parts = index_parts(self._model.sequences, self._model.states)
        return list_aged_laws(self._model, self._vantage, parts, ages=self._ages, oldest=self._oldest)

    @cached_property
    def _kept(self) -> list[LawPairs] | None:
        """All of them, if they are few enough to be kept between two questions."""
        few = len(self.laws) * self._model.sequences * self._model.size**2 <= _KEPT
        return list(self._list_pairs()) if few else None

    def __iter__(self) -> Iterator[LawPairs]:
        return self._list_pairs() if self._kept is None else iter(self._kept)

    def _list_pairs(self) -> Iterator[LawPairs]:
        for aged in self.laws:
            yield from self._compare_rows(aged.mass, aged.deviation)

    def _compare_rows(self, mass: Mass, form: Deviation) -> Iterator[LawPairs]:
        s, m = self._model.sequences, self._model.states
        for known in known_subsets(self._adversary, s):
            law = marginal(mass.law, known, s, m)
            drift = marginal(form.law, known, s, m)
            seen = (law > 0) & (drift > 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                laws = marginal(mass.measure, known, s, m) / law[:, None]
                shift = marginal(form.measure, known, s, m) / drift[:, None]
            rows = np.arange(law.size).reshape((m,) * len(known))
            for block in self._blocks if len(known) == s else [(axis,) for axis in range(len(known))]:
                lines = np.moveaxis(rows, block, range(len(block))).reshape(m ** len(block), -1)
                for a in range(len(lines)):
                    for b in range(len(lines)):
                        both = seen[lines[a]] & seen[lines[b]]
                        if a == b or not both.any():
                            continue
                        x, y = lines[a][both], lines[b][both]
                        yield LawPairs(
                            laws[x],
                            laws[y],
                            shift[x] - shift[y],
                            2.0 * form.error,
                            form.exponent,
                            2.0 * mass.relative,
                        )

    @cached_property
    def total_variation(self) -> float:
        """Delta: the largest total variation distance, rounded up."""
        best = 0.0
        for pairs in self:
            gap = 0.5 * (np.abs(pairs.gap).sum(axis=1).max() + pairs.error.sum())
            best = max(best, float(np.ldexp(gap, pairs.exponent)))
        return min(1.0, best * (1 + 1e-13))

    @cached_property
    def log_ratio(self) -> float:
        """r: the largest ln B[x, z] / B[x', z]; infinite if only one of them is zero."""
        best = 0.0
        for pairs in self:
            possible = pairs.first > 0
            if (possible & (pairs.second <= 0)).any():
                return math.inf
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                coarse = np.log(pairs.first / pairs.second) + 2.0 * pairs.relative
                ratio = (pairs.gap + pairs.error) / np.maximum(pairs.second * (1 - pairs.relative), 0.0)
                fine = (
                    np.log1p(np.ldexp(ratio, pairs.exponent))
                    if pairs.exponent == 0
                    else np.ldexp(ratio, pairs.exponent)
                )
                sharper = np.where(possible, np.fmin(coarse, fine), 0.0)
            best = max(best, float(np.nanmax(sharper)))
        return best

    def profile(self, alpha: float) -> float:
        """max over g in [1, e^alpha] of ln sum B[x,z] g / sum B[x',z] g; the optimum is a threshold of the ratio."""
        if self._last is None or self._last[0] != alpha:
            # The sets do not depend on alpha: if there are few, they are kept for the next one.
            sets = map(_sort_thresholds, self) if self._kept is None else self._threshold_sets
            self._last = alpha, max((each.profile(alpha) for each in sets), default=0.0)
        return max(self._last[1], 0.0)

    @cached_property
    def _threshold_sets(self) -> list[_ThresholdSets]:
        """The threshold sets of all pairs, joined if they have the same accuracy."""
        alike: dict[tuple[float, int], list[_ThresholdSets]] = {}
        for each in map(_sort_thresholds, self):
            alike.setdefault((each.relative, each.exponent), []).append(each)
        return [_ThresholdSets.join(sets) for sets in alike.values()]


@dataclass(frozen=True)
class _ThresholdSets:
    """For every pair of rows and every threshold of their ratio: what the set of snapshots above it weighs."""

    log_over: Floats  # ln of its mass under the first law
    log_under: Floats  # and under the second
    under: Floats  # the same, rounded down
    gap: Floats  # the difference, rounded up; times 2**exponent
    exponent: int
    relative: float

    @classmethod
    def join(cls, sets: Sequence[_ThresholdSets]) -> _ThresholdSets:
        """Several of one accuracy as one."""
        log_over, log_under, under, gap = (
            np.concatenate([getattr(each, name).ravel() for each in sets])
            for name in ("log_over", "log_under", "under", "gap")
        )
        return cls(log_over, log_under, under, gap, sets[0].exponent, sets[0].relative)

    def profile(self, alpha: float) -> float:
        """The largest ln sum B[x,z] g / sum B[x',z] g for g of 1 and, on one of the sets, e^alpha."""
        coarse = log_mix(self.log_over, alpha) - log_mix(self.log_under, alpha) + 2.0 * self.relative
        rest = math.exp(-alpha)
        below = rest + (1.0 - rest) * self.under
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = -math.expm1(-alpha) * self.gap / below
            fine = np.log1p(np.maximum(ratio, 0.0)) if self.exponent == 0 else np.ldexp(ratio, self.exponent)
        return float(np.fmin(coarse, fine).max())


def _sort_thresholds(pairs: LawPairs) -> _ThresholdSets:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(pairs.first > 0, pairs.gap / pairs.second, -np.inf)
    order = np.argsort(-np.nan_to_num(ratio, nan=-np.inf, posinf=np.inf, neginf=-np.inf), axis=1, kind="stable")
    under = np.cumsum(np.take_along_axis(pairs.second, order, axis=1), axis=1)
    over = np.cumsum(np.take_along_axis(pairs.first, order, axis=1), axis=1)
    gap = np.cumsum(np.take_along_axis(pairs.gap, order, axis=1), axis=1)
    slack = np.cumsum(pairs.error[order], axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(over), np.log(under)
    lowered = np.maximum(under * (1 - pairs.relative), 0.0)
    return _ThresholdSets(*logs, lowered, gap + slack, pairs.exponent, pairs.relative)


def log_mix(log_weight: Floats, alpha: float) -> Floats:
    """ln(e^-alpha + (1 - e^-alpha) w), from ln w, for any alpha."""
    if alpha == 0:
        return np.zeros_like(log_weight)
    return np.asarray(np.logaddexp(-alpha, math.log(-math.expm1(-alpha)) + log_weight))


def refuse_many_pairs(model: View) -> None:
    """Raise TooLargeError if there are too many pairs of snapshots."""
    if model.size > PAIR_STATES:
        raise TooLargeError(
            f"{model.states}**{model.sequences} joint states: bounds over pairs of snapshots are limited to "
            f"{PAIR_STATES:,}. "
            "Use bound='exact' (no pairs are stored) or 'slice'",
            needed=joint_states(model.sequences, model.states),
            limit=PAIR_STATES,
        )


def contraction_coefficient(view: PathView, age: int, adversary: Adversary = "informed") -> float:
    """tau_A = max of tanh(D/4), D the range over pasts z of ln Pr(x|z) / Pr(x'|z) (Birkhoff).

    x, x' are presents that the adversary must not distinguish, A steps after z. Holds for any law of the past. Pasts
    that lead to neither present are dropped; other zeros give 1.

    Args:
        view: a chain whose environments are given, from a past that is spread evenly.
        age: A.
        adversary: as for `csdp.leakage`.
    """
    if age == 0:
        return 1.0
    s, m = view.sequences, view.states
    present = AgedLaw(view, np.zeros((s, m, 1)), ages=[age] * s).mass.law
    refuse_many_pairs(view)
    aged = AgedLaw(view, index_parts(s, m), ages=[age] * s)
    mass, form = aged.mass, aged.deviation
    occurs = form.base > 0
    error = float(np.ldexp(np.max(form.error[occurs] / form.base[occurs]), form.exponent))
    widest = 0.0
    for known in known_subsets(adversary, s):
        possible = marginal(present, known, s, m) > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            coarse = np.log(marginal(mass.measure, known, s, m))
            # Pr(x|z) = law(x) (1 + shift): only the shift depends on z.
            shift = marginal(form.measure, known, s, m) / (marginal(form.law, known, s, m)[:, None] * form.base)
        fine = np.ldexp(shift, form.exponent)
        rows = np.arange(possible.size).reshape((m,) * len(known))
        for axis in range(len(known)):
            lines = np.moveaxis(rows, axis, 0).reshape(m, -1)
            for a in range(m):
                for b in range(a):
                    both = possible[lines[a]] & possible[lines[b]]
                    x, y = lines[a][both], lines[b][both]
                    if x.size:
                        widest = max(widest, _range(coarse[x], coarse[y], fine[x], fine[y], mass.relative, error))
    return min(1.0, math.tanh(widest / 4.0) * (1 + 1e-14)) if math.isfinite(widest) else 1.0


def _range(coarse_x: Floats, coarse_y: Floats, fine_x: Floats, fine_y: Floats, relative: float, error: float) -> float:
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = coarse_x - coarse_y  # NaN if neither present can follow: dropped
        widest = np.nanmax(plain, axis=1) - np.nanmin(plain, axis=1) + 4.0 * relative
        if np.isfinite(widest).all() and error < 0.1 and min(fine_x.min(), fine_y.min()) > -0.9:
            sharp = np.log1p(fine_x) - np.log1p(fine_y)
            low = min(fine_x.min(), fine_y.min())
            # By the mean value theorem, a logarithm moves by at most the error over the least true 1 + fine.
            widest = np.fmin(widest, sharp.max(axis=1) - sharp.min(axis=1) + 4.0 * error / (1.0 + low - error))
    return float(widest.max())


# ---- the metric programme --------------------------------------------------------------------------------------------


def answer_distances(answers: Sequence[Floats], rate: float) -> Floats:
    """`epsilon_c |f(z) - f(z')|_1 / Delta_f` for every pair of snapshots; the largest over what others contribute."""
    best: Floats | None = None
    for table in answers:
        far = np.zeros((table.shape[0], table.shape[0]))
        for column in table.T:
            far += np.abs(column[:, None] - column[None, :])
        best = far if best is None else np.maximum(best, far)
    assert best is not None
    return np.asarray(rate * best)


class FlowSolver:
    """Dual programmes for one metric b: `min theta` subject to `theta q + outflow - gained inflow >= rhs`."""

    def __init__(self, metric: Floats) -> None:
        from csdp.bounds.loops import close_metric

        n = metric.shape[0]
        closed = np.array(metric, dtype=float)
        close_metric(closed)
        finite = np.minimum(closed, _LONGEST_FLOW)
        self._size = float(finite.max())
        with np.errstate(over="ignore"):
            self._limits = np.exp(closed)
        # If two paths are equally good, a search may cycle.
        apart = 1.0 + (np.arange(1.0, n * n + 1).reshape(n, n) * 0.6180339887498949) % 1.0
        self._gains = np.exp(finite + _APART * self._size * apart * (1.0 - np.eye(n)))

    def bounds(self, rows: LawPairs) -> Floats:
        """Upper bounds of ln sum p g / sum q g for every pair of rows, from rebuilt dual values."""
        from csdp.bounds.loops import solve_pairs

        worst = np.empty(rows.first.shape[0])
        second, gap = np.ascontiguousarray(rows.second), np.ascontiguousarray(rows.gap)
        solve_pairs(self._limits, self._gains, second, gap, rows.error, self._size, worst)
        above = np.maximum(worst, 0.0)
        logs = np.log1p(above) if rows.exponent == 0 else np.ldexp(above, rows.exponent)
        return np.asarray(logs * (1 + SLACK))

    def bounds_of_all(self, many: Iterable[LawPairs]) -> list[Floats]:
        """The bounds of several lists of pairs; on all cores if there are many snapshots, with equal results."""
        if self._gains.shape[0] < _THREADED:
            return [self.bounds(rows) for rows in many]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            return list(pool.map(self.bounds, many))


def metric_bound(pairs: AgedPairs, metric: Floats) -> float:
    """The most that one release reveals of the present: `metric` (N, N) bounds its log ratio between aged snapshots.

    Formal guarantee: for every mechanism whose likelihood of an output, given the aged snapshot, changes by at most
    e^{metric} between any two of them. The worst pair of presents that the adversary must not distinguish.
    """
    worst, solvers = 0.0, dict[bytes, FlowSolver]()
    for each in pairs:
        seen = ((each.first > 0) | (each.second > 0)).any(axis=0)
        if seen.tobytes() not in solvers:
            solvers[seen.tobytes()] = FlowSolver(metric[np.ix_(seen, seen)])
        worst = max(worst, float(solvers[seen.tobytes()].bounds(each.restrict(seen)).max()))
    return worst
