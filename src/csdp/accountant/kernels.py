"""One component seen backwards in time: its backward kernel, what a release costs there, and the last step to the
present.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from csdp.bounds.closed_forms import AgedPairs, log_mix
from csdp.chain import Model

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

#: Relative slack for the rounding of sums over kernels.
SLACK = 1e-11
_UNIT = float(np.finfo(np.float64).eps) / 2
#: Steps over which it is looked for whether a chain forgets where it was.
_LONGEST = 2**20


@dataclass(frozen=True)
class Rows:
    """Pairs of laws on snapshots: p, q and their difference, accurate when tiny (times 2**exponent)."""

    first: Floats
    second: Floats
    gap: Floats
    error: Floats  # (n,) bound on the rounding of gap
    exponent: int


class Backward:
    """The backward kernel `R[x, w] = Pr(x_{t-1} = w | x_t = x)` of one component under its stationary law."""

    def __init__(self, model: Model) -> None:
        self.model = model
        law, self._law_error = model.oldest_law()
        self.seen: Ints = np.flatnonzero(law > 0)
        self.law = law[self.seen]
        given = (model.kernel() if model.direction == "forward" else model.backward_kernel())[
            np.ix_(self.seen, self.seen)
        ]
        given = given / given.sum(axis=1, keepdims=True)
        other = (given * self.law[:, None]).T
        other = other / other.sum(axis=1, keepdims=True)
        self.forward, backward = (given, other) if model.direction == "forward" else (other, given)
        self._powers = {1: backward}
        self._tables: dict[int, ProfileTable] = {}

    @property
    def size(self) -> int:
        """Snapshots that can occur."""
        return int(self.seen.size)

    def power(self, steps: int) -> Floats:
        """R to a power."""
        if steps not in self._powers:
            if len(self._powers) > 64:
                self._powers = {1: self._powers[1]}
            self._powers[steps] = np.linalg.matrix_power(self._powers[1], steps)
        return np.asarray(self._powers[steps])

    def relative(self, steps: int) -> float:
        """Bound on the relative error of the entries of R^steps: of the law once, of a product at every step."""
        return 2.0 * self._law_error + 4.0 * steps * (self.size + 8) * _UNIT

    @cached_property
    def settled(self) -> int:
        """Steps after which nothing is left but rounding, so that more of them would only add to it."""
        power, steps = self._powers[1], 1
        while steps < _LONGEST and np.ptp(power, axis=0).max() > 1e-14:
            power, steps = power @ power, 2 * steps
        return steps

    def profile_table(self, steps: int) -> ProfileTable:
        """The profile of R^steps over all pairs of snapshots."""
        if steps not in self._tables:
            if len(self._tables) > 8:
                self._tables.clear()
            self._tables[steps] = ProfileTable(self.power(steps), relative=self.relative(steps))
        return self._tables[steps]

    @cached_property
    def forward_table(self) -> ProfileTable:
        """The profile of the forward kernel over all pairs of snapshots."""
        return ProfileTable(self.forward, relative=self.relative(1))

    def present_rows(self, pairs: AgedPairs) -> list[Rows]:
        """Laws of an earlier snapshot given two presents that the adversary must not tell apart, where it can occur."""
        seen = self.seen
        return [Rows(p.first[:, seen], p.second[:, seen], p.gap[:, seen], p.error[seen], p.exponent) for p in pairs]


class ProfileTable:
    """`L(alpha)` of a kernel whose entries have a `relative` error: sorted once, evaluated for any alpha."""

    def __init__(self, kernel: Floats, *, relative: float) -> None:
        n = kernel.shape[0]
        over, under = np.repeat(kernel, n, axis=0), np.tile(kernel, (n, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(over > 0, over / under, -1.0)
        order = np.argsort(-ratio, axis=1)
        with np.errstate(divide="ignore"):
            self._over = np.log(np.cumsum(np.take_along_axis(over, order, axis=1), axis=1))
            self._under = np.log(np.cumsum(np.take_along_axis(under, order, axis=1), axis=1))
        self._n = n
        self._relative = relative

    def pairs(self, alpha: float) -> Floats:
        """L(alpha) of every ordered pair of rows, (n, n), rounded up."""
        if alpha <= 0:
            return np.zeros((self._n, self._n))
        if math.isinf(alpha):
            with np.errstate(invalid="ignore"):
                value = np.nan_to_num(self._over - self._under, nan=0.0, posinf=np.inf).max(axis=1)
        else:
            value = (log_mix(self._over, alpha) - log_mix(self._under, alpha)).max(axis=1)
        # Both logarithms lie between -alpha and 0, and above -750, where floats end: that bounds their rounding.
        upper = value * (1 + SLACK) + moved_by_rounding(self._relative, alpha) + 8.0 * _UNIT * min(alpha, 1500.0)
        return np.asarray(np.minimum(upper, alpha)).reshape(self._n, self._n)

    def largest(self, alpha: float) -> float:
        """L(alpha) over all pairs."""
        return float(self.pairs(alpha).max())

    def limit(self, cost: float) -> float:
        """Of b <- cost + L(b), from above."""
        return resting(lambda b: cost + self.largest(b), cost, ticks=5000)


def moved_by_rounding(relative: float, alpha: float) -> float:
    """How far a relative error of two laws moves ln of the ratio of their means of a g that varies by e^alpha."""
    return 2.0 * relative * min(1.0, math.expm1(min(alpha, 1.0)))


def resting(rule: Callable[[float], float], start: float, *, ticks: int) -> float:
    """The limit of b <- rule(b), from above: a value that the rule does not raise; infinite where there is none."""
    b = start
    for _ in range(ticks):
        following = rule(b)
        if following <= b * (1 + 1e-12):
            break
        b = following
    for excess in (1e-11, 1e-9, 1e-7, 1e-5, 1e-3, 1e-1):
        above = b * (1 + excess)
        if rule(above) <= above:
            return above
    return math.inf


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
