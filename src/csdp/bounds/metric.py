"""The metric programme: what a likelihood can tell whose ratio between any two snapshots is bounded.

With b(z, z') per pair of snapshots, the likelihood g of what was published satisfies `g(w) <= e^{b(w,w')} g(w')`, and
two laws p, q of the snapshot are told apart by at most the largest `sum p g / sum q g`: a linear-fractional programme
(`FlowSolver`). A solver's optimum within its tolerance is no certificate, so the value is rebuilt from the dual flows
F >= 0 as `max_w [p(w) - sum_w' F(w,w') + sum_w' e^{b(w',w)} F(w',w)] / q(w)`, which holds for any F >= 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from csdp.arrays import Floats
from csdp.bounds.closed_forms import AgedPairs, LawPairs

#: Relative slack for the rounding of sums over kernels.
SLACK = 1e-11
#: Pairs further apart than this are searched as if they were so far apart; what is found is bounded as they are.
_LONGEST_FLOW = 60.0
#: How much further apart pairs are for the search, as a share of the largest distance.
_APART = 1e-10
#: Snapshots from which on the compiled search takes longer than starting a thread for it.
_THREADED = 12


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
        from csdp.bounds.metric_loops import close_metric

        n = metric.shape[0]
        closed = np.array(metric, dtype=float)
        close_metric(closed)
        finite = np.minimum(closed, _LONGEST_FLOW)
        self._size = float(finite.max())
        with np.errstate(over="ignore"):
            self._limits = np.exp(closed)
        # Where two ways are equally good a search may go in circles.
        apart = 1.0 + (np.arange(1.0, n * n + 1).reshape(n, n) * 0.6180339887498949) % 1.0
        self._gains = np.exp(finite + _APART * self._size * apart * (1.0 - np.eye(n)))

    def bounds(self, rows: LawPairs) -> Floats:
        """Upper bounds of ln sum p g / sum q g for every pair of rows, from rebuilt dual values."""
        from csdp.bounds.metric_loops import solve_pairs

        worst = np.empty(rows.first.shape[0])
        second, gap = np.ascontiguousarray(rows.second), np.ascontiguousarray(rows.gap)
        solve_pairs(self._limits, self._gains, second, gap, rows.error, self._size, worst)
        told = np.maximum(worst, 0.0)
        return np.asarray((np.log1p(told) if rows.exponent == 0 else np.ldexp(told, rows.exponent)) * (1 + SLACK))

    def bounds_of_all(self, many: Iterable[LawPairs]) -> list[Floats]:
        """The bounds of several lists of pairs; on all cores where there are many snapshots. The same on any number."""
        if self._gains.shape[0] < _THREADED:
            return [self.bounds(rows) for rows in many]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            return list(pool.map(self.bounds, many))


def metric_bound(pairs: AgedPairs, metric: Floats) -> float:
    """The most that one release tells of the present: `metric` (N, N) is what it tells between aged snapshots.

    Formal guarantee: for every mechanism whose likelihood of an output, given the aged snapshot, changes by at most
    e^{metric} between any two of them. The worst pair of presents that the adversary must not tell apart.
    """
    worst, solvers = 0.0, dict[bytes, FlowSolver]()
    for each in pairs:
        seen = ((each.first > 0) | (each.second > 0)).any(axis=0)
        if seen.tobytes() not in solvers:
            solvers[seen.tobytes()] = FlowSolver(metric[np.ix_(seen, seen)])
        worst = max(worst, float(solvers[seen.tobytes()].bounds(each.restrict(seen)).max()))
    return worst
