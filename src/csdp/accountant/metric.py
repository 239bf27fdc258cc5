"""The metric state: one number b(z, z') per pair of snapshots, carried back in time by linear-fractional programmes.

The history's likelihood g satisfies `g(w) <= e^{b(w,w')} g(w')`. A step back in time asks for the largest
`sum p g / sum q g`. A solver's optimum within its tolerance is no certificate, so the value is rebuilt from the dual
flows F >= 0 as `max_w [p(w) - sum_w' F(w,w') + sum_w' e^{b(w',w)} F(w',w)] / q(w)`, which holds for any F >= 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.accountant.kernels import SLACK, Rows, moved_by_rounding

Floats = npt.NDArray[np.float64]

#: Flows along pairs further apart than this gain too much for a solver; leaving them out is sound.
_LONGEST = 25.0


class FlowSolver:
    """Dual programmes for one metric b: `min theta` subject to `theta q + outflow - gained inflow >= rhs`."""

    def __init__(self, metric: Floats) -> None:
        import highspy

        n = metric.shape[0]
        start, end = np.nonzero((metric < _LONGEST) & ~np.eye(n, dtype=bool))
        self._n, self._start, self._end = n, start, end
        self._gain = np.exp(metric[start, end])
        columns = start.size
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # highspy has no types
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
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

    def bounds(self, rows: Rows) -> Floats:
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


def step_back(metric: Floats, kernel: Floats, cap: Floats, *, relative: float) -> Floats:
    """b(x, x') later in time: the programme on the rows of a kernel with a `relative` error, never above `cap`."""
    n = kernel.shape[0]
    if metric.max() <= 0:
        return np.zeros((n, n))
    solver = FlowSolver(metric)
    rounding = moved_by_rounding(relative, float(metric.max()))
    out = np.zeros((n, n))
    for y, rows in _against_each(kernel):
        out[:, y] = solver.bounds(rows) + rounding
    np.fill_diagonal(out, 0.0)
    return np.minimum(np.maximum(out, 0.0), cap)


def _against_each(kernel: Floats) -> Iterator[tuple[int, Rows]]:
    n = kernel.shape[0]
    for y in range(n):
        second = np.broadcast_to(kernel[y], (n, n))
        yield y, Rows(kernel, second, kernel - second, np.full(n, 1e-15), 0)
