"""The metric programme: what a likelihood can tell whose ratio between any two snapshots is bounded.

With b(z, z') per pair of snapshots, the likelihood g of what was published satisfies `g(w) <= e^{b(w,w')} g(w')`, and
two laws p, q of the snapshot are told apart by at most the largest `sum p g / sum q g`: a linear-fractional programme
(`FlowSolver`). A solver's optimum within its tolerance is no certificate, so the value is rebuilt from the dual flows
F >= 0 as `max_w [p(w) - sum_w' F(w,w') + sum_w' e^{b(w',w)} F(w',w)] / q(w)`, which holds for any F >= 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from csdp.arrays import Floats
from csdp.bounds.closed_forms import AgedPairs

#: Relative slack for the rounding of sums over kernels.
SLACK = 1e-11
#: Flows along pairs further apart than this gain too much for a solver; leaving them out is sound.
_LONGEST_FLOW = 25.0
#: Tolerance of the solver.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class LawPairs:
    """Pairs of laws on snapshots: p, q and their difference, accurate when tiny (times 2**exponent)."""

    first: Floats
    second: Floats
    gap: Floats
    error: Floats  # (n,) bound on the rounding of gap
    exponent: int


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
        import highspy

        n = metric.shape[0]
        start, end = np.nonzero((metric < _LONGEST_FLOW) & ~np.eye(n, dtype=bool))
        self._n, self._start, self._end = n, start, end
        self._gain = np.exp(metric[start, end])
        columns = start.size
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # highspy has no types
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        # Small states gain little along a flow: the usual tolerance would be as large as what they tell.
        for tolerance in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            solver.setOptionValue(tolerance, _TOLERANCE)
        infinity = highspy.kHighsInf
        # columns: the flows, then theta (free), whose coefficients are q
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = columns + 1, n
        model.col_cost_ = np.append(np.zeros(columns), 1.0)
        model.col_lower_ = np.append(np.zeros(columns), -infinity)
        model.col_upper_ = np.full(columns + 1, infinity)
        model.row_lower_, model.row_upper_ = np.zeros(n), np.full(n, infinity)
        index = np.empty(2 * columns, dtype=np.int32)
        value = np.empty(2 * columns)
        index[0::2], index[1::2] = start, end
        value[0::2], value[1::2] = 1.0, -self._gain
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.append(np.arange(0, 2 * columns + 1, 2), 2 * columns + n).astype(np.int32)
        model.a_matrix_.index_ = np.append(index, np.arange(n, dtype=np.int32)).astype(np.int32)
        model.a_matrix_.value_ = np.append(value, np.ones(n))
        solver.passModel(model)
        self._solver, self._theta, self._infinity = solver, columns, infinity

    def bounds(self, rows: LawPairs) -> Floats:
        """Upper bounds of ln sum p g / sum q g for every pair of rows, from rebuilt dual values."""
        out = np.empty(rows.first.shape[0])
        last: Floats | None = None
        for i, (q, gap) in enumerate(zip(rows.second, rows.gap, strict=True)):
            if last is None or not np.array_equal(q, last):
                for w in range(self._n):
                    self._solver.changeCoeff(w, self._theta, float(q[w]))
                last = q
            out[i] = self._value(q, gap, rows.error, rows.exponent)
        return out

    def _value(self, q: Floats, gap: Floats, error: Floats, exponent: int) -> float:
        size = float(np.abs(gap).max())
        if size == 0.0:
            return float(np.ldexp((error / np.where(q > 0, q, np.inf)).max(), exponent))
        # The difference p - q, scaled to 1, is what is solved for: tiny leakages keep their digits.
        target = gap / size
        n = np.arange(self._n, dtype=np.int32)
        self._solver.changeRowsBounds(self._n, n, target, np.full(self._n, self._infinity))
        self._solver.run()
        flow = np.maximum(np.array(self._solver.getSolution().col_value)[: self._theta], 0.0)
        outflow = np.bincount(self._start, weights=flow, minlength=self._n)
        inflow = np.bincount(self._end, weights=self._gain * flow, minlength=self._n)
        rounding = max(1e-14, 4e-16 * self._n) * (np.abs(target) + outflow + inflow)
        numerator = target - outflow + inflow + rounding + error / size
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(q > 0, numerator / q, np.where(numerator > 0, np.inf, -np.inf))
        worst = float(ratio.max()) * size
        value = np.log1p(max(worst, 0.0)) if exponent == 0 else np.ldexp(max(worst, 0.0), exponent)
        return float(value) * (1 + SLACK)


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
        rows = LawPairs(each.first[:, seen], each.second[:, seen], each.gap[:, seen], each.error[seen], each.exponent)
        worst = max(worst, float(solvers[seen.tobytes()].bounds(rows).max()))
    return worst
