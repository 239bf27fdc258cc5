"""One component seen backwards in time: its kernel, the cost of a release there, and steps of its state.

A scalar state is carried by the profile of the kernel (`ProfileTable`), a metric state by the programme of
`csdp.bounds.metric` (`step_back`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from csdp.arrays import UNIT, Floats, Indices
from csdp.bounds.closed_forms import LawPairs, log_mix
from csdp.bounds.metric import SLACK, FlowSolver
from csdp.chain import Model

#: Steps within which a chain must forget its start to count as settled.
_LONGEST = 2**20
#: Ticks for which a fixed point is approached one by one, doublings of the step beyond them, halvings of what is left.
_FOLLOWED, _DOUBLINGS, _HALVINGS = 60, 40, 36


class BackwardKernel:
    """The backward kernel `R[x, w] = Pr(x_{t-1} = w | x_t = x)` of one component under its stationary law."""

    def __init__(self, model: Model) -> None:
        self.model = model
        law, self._law_error = model.stationary_with_error
        self.seen: Indices = np.flatnonzero(law > 0)
        self.size = int(self.seen.size)  # snapshots that can occur
        self.is_full = self.size == law.size  # whether all can
        self.law = law[self.seen]
        own = (model.kernel() if model.direction == "forward" else model.backward_kernel())[
            np.ix_(self.seen, self.seen)
        ]
        own = own / own.sum(axis=1, keepdims=True)
        reverse = (own * self.law[:, None]).T
        reverse = reverse / reverse.sum(axis=1, keepdims=True)
        self.forward, backward = (own, reverse) if model.direction == "forward" else (reverse, own)
        self._powers = {1: backward}
        self._tables: dict[int, ProfileTable] = {}

    def power(self, steps: int) -> Floats:
        """R to a power."""
        if steps not in self._powers:
            if len(self._powers) > 64:
                self._powers = {1: self._powers[1]}
            self._powers[steps] = np.linalg.matrix_power(self._powers[1], steps)
        return np.asarray(self._powers[steps])

    def relative(self, steps: int) -> float:
        """Bound on the relative error of the entries of R^steps: of the law once, of a product at every step."""
        return 2.0 * self._law_error + 4.0 * steps * (self.size + 8) * UNIT

    @cached_property
    def settling_steps(self) -> int:
        """Steps after which only rounding is left of the start, so that more steps would only add to it."""
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


class ProfileTable:
    """`L(alpha)` of a kernel whose entries have a `relative` error: sorted once, evaluated for any alpha."""

    def __init__(self, kernel: Floats, *, relative: float) -> None:
        n = kernel.shape[0]
        over, under = np.repeat(kernel, n, axis=0), np.tile(kernel, (n, 1))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
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
        upper = value * (1 + SLACK) + rounding_error(self._relative, alpha) + 8.0 * UNIT * min(alpha, 1500.0)
        return np.asarray(np.minimum(upper, alpha)).reshape(self._n, self._n)

    def largest(self, alpha: float) -> float:
        """L(alpha) over all pairs."""
        return float(self.pairs(alpha).max())

    def follow(self, cost: float, length: int) -> list[float]:
        """So many numbers b <- cost + L(b), the first of them `cost`; where two are equal, all after them are too."""
        values = [cost]
        while len(values) < length:
            following = cost + self.largest(values[-1])
            if following == values[-1]:
                return values + [following] * (length - len(values))
            values.append(following)
        return values

    def limit(self, cost: float) -> float:
        """Of b <- cost + L(b), from above."""
        return fixed_point_above(lambda b: cost + self.largest(b), cost, ticks=5000)


def rounding_error(relative: float, alpha: float) -> float:
    """How far a relative error of two laws moves ln of the ratio of their means of a g that varies by e^alpha."""
    return 2.0 * relative * min(1.0, math.expm1(min(alpha, 1.0)))


def fixed_point_above(rule: Callable[[float], float], start: float, *, ticks: int) -> float:
    """The limit of b <- rule(b), from above: a value that the rule does not raise; infinite where there is none.

    A monotone rule keeps everything that starts below such a value there, so any one will do; the interval between it
    and the value that is reached after some ticks is halved as long as its middle is one too.
    """
    b = start
    for _ in range(min(ticks, _FOLLOWED)):
        following = rule(b)
        if following <= b * (1 + 1e-12):
            return _raise_slightly(rule, b)
        b = following
    above, apart = b, rule(b) - b
    for _ in range(_DOUBLINGS):
        above, apart = above + apart, 2 * apart
        if rule(above) <= above:
            break
    else:
        return math.inf
    for _ in range(_HALVINGS):
        middle = 0.5 * (b + above)
        if rule(middle) <= middle:
            above = middle
        else:
            b = middle
    return above


def _raise_slightly(rule: Callable[[float], float], b: float) -> float:
    """A value a little above one that hardly moves, which the rule does not raise; infinite where there is none."""
    for excess in (1e-11, 1e-9, 1e-7, 1e-5, 1e-3, 1e-1):
        above = b * (1 + excess)
        if rule(above) <= above:
            return above
    return math.inf


def step_back(metric: Floats, kernel: Floats, cap: Floats, *, relative: float) -> Floats:
    """b(x, x') later in time: the programme on the rows of a kernel with a `relative` error, never above `cap`."""
    n = kernel.shape[0]
    if metric.max() <= 0:
        return np.zeros((n, n))
    solver = FlowSolver(metric)
    rounding = rounding_error(relative, float(metric.max()))
    out = np.zeros((n, n))
    for y, bounds in enumerate(solver.bounds_of_all(_pairs_by_second(kernel))):
        out[:, y] = bounds + rounding
    np.fill_diagonal(out, 0.0)
    return np.minimum(np.maximum(out, 0.0), cap)


def _pairs_by_second(kernel: Floats) -> Iterator[LawPairs]:
    """For every snapshot, the law of each snapshot against its own."""
    n = kernel.shape[0]
    for y in range(n):
        second = np.broadcast_to(kernel[y], (n, n))
        yield LawPairs(kernel, second, kernel - second, np.full(n, 1e-15), 0)
