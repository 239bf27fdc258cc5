"""One component seen backwards in time: its kernels, and steps of its state.

A scalar state is carried by the profile of a kernel (`ProfileTable`), a metric state by the programme of
`csdp.bounds.metric` (`step_back`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from csdp.accountant.fixed_point import fixed_point_above
from csdp.aging import longest_paths
from csdp.bounds.metric import SLACK, FlowSolver, LawPairs, log_mix
from csdp.chain import EnvironmentChain, Model
from csdp.numbers import UNIT, Floats, Indices

#: Steps within which a chain must forget its start to count as settled.
_LONGEST = 2**20
#: Under environments: steps after which a metric state is followed by its largest entry alone, and after which its
#: numbers are left as they are.
_METRIC_STEPS, _SCALAR_STEPS = 64, 4096


class BackwardKernel:
    """The backward kernel `R[x, w] = Pr(x_{t-1} = w | x_t = x)` of one component under its stationary law."""

    longest = 2**62  #: steps over which laws of the aged snapshot are made

    def __init__(self, model: Model) -> None:
        self.model = model
        law, self._law_error = model.stationary_with_error
        self.seen: Indices = np.flatnonzero(law > 0)
        self.size = int(self.seen.size)  # snapshots that can occur
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

    def advance(self, state: Floats, steps: int, *, is_metric: bool) -> Floats:
        """A state seen from `steps` slices later."""
        largest = float(state.max())
        counted = min(steps, self.settling_steps)  # the largest entry never grows with more of them
        table = self.profile_table(counted)
        if not is_metric:
            return np.array([[table.largest(largest)]])
        if counted < steps:
            return table.largest(largest) * (1.0 - np.eye(state.shape[0]))
        return step_back(state, self.power(steps), table.pairs(largest), relative=self.relative(steps))

    def advance_level(self, level: float, steps: int) -> float:
        """A bound on the largest entry of a state some steps later."""
        return level if steps == 0 else self.profile_table(min(steps, self.settling_steps)).largest(level)

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


class EnvironmentKernels:
    """The backward kernels of one component whose environment is given, block by block of a state (blocks, n, n)."""

    def __init__(self, model: EnvironmentChain) -> None:
        self.model = model
        self.size = model.size
        self.seen: Indices = np.arange(model.size)

    @cached_property
    def longest(self) -> int:
        """Steps over which laws are made, of all paths of environments; older histories are stepped closer."""
        return min(_METRIC_STEPS, longest_paths(self.model))

    @cached_property
    def _kernels(self) -> list[list[Floats]]:
        """Backward kernels of every block: that of a phase of the clock, or those of the environments it may have."""
        if self.model.kind == "clock":
            return [[self.model.backward_kernel(phase=phase)] for phase in range(self.model.period)]
        return [[chain.backward_kernel() for chain in self.model.environments]]

    @cached_property
    def _relative(self) -> float:
        """Bound on the relative error of the entries of a kernel."""
        law = 0.0 if self.model.direction == "backward" else self.model.periodic_with_error[1]
        return 4.0 * law + 8.0 * (self.model.size + 8) * UNIT

    @cached_property
    def _tables(self) -> list[list[ProfileTable]]:
        return [[ProfileTable(kernel, relative=self._relative) for kernel in block] for block in self._kernels]

    @cached_property
    def contraction(self) -> float:
        """The coefficient of one step between any two snapshots, of the worst environment."""
        return min(1.0, max(all_pairs_contraction(chain.kernel()) for chain in self.model.environments))

    def advance(self, state: Floats, steps: int, *, is_metric: bool) -> Floats:
        """A state seen from `steps` slices later, under the worst environments."""
        counted = min(steps, _SCALAR_STEPS)
        for n in range(counted):
            if is_metric and n == _METRIC_STEPS:
                state = state.max(axis=(1, 2), keepdims=True) * apart(state)
            whole = is_metric and n < _METRIC_STEPS
            blocks = [self._move(state[phase - 1], phase, whole=whole) for phase in range(len(state))]
            following = np.stack(blocks)
            if np.array_equal(following, state):
                return state
            state = following
        # No further step raises a block, and each still leads it to the next phase.
        return np.roll(state, steps - counted, axis=0)

    def _move(self, block: Floats, phase: int, *, whole: bool) -> Floats:
        """One block a step later, under the worst of the kernels that lead back to it."""
        tables = self._tables[phase]
        largest = float(block.max())
        if not whole:
            level = max(table.largest(largest) for table in tables)
            return np.asarray(level * apart(block) + np.zeros_like(block))
        moved = [
            step_back(block, kernel, table.pairs(largest), relative=self._relative)
            for kernel, table in zip(self._kernels[phase], tables, strict=True)
        ]
        return np.asarray(np.maximum.reduce(moved))

    def advance_level(self, level: float, steps: int) -> float:
        """A bound on the largest entry of a state some steps later, at any phase."""
        for _ in range(min(steps, _SCALAR_STEPS)):
            level = max(table.largest(level) for tables in self._tables for table in tables)
        return level


def all_pairs_contraction(kernel: Floats) -> float:
    """tanh(D / 4) of one step, D the largest range over pasts of the log odds of any two snapshots."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(kernel)
        widest = 0.0
        for y in range(kernel.shape[1]):
            odds = logs - logs[:, y : y + 1]  # NaN: a past that leads to neither, which reveals nothing
            high, low = np.fmax.reduce(odds, axis=0), np.fmin.reduce(odds, axis=0)
            # NaN again: one of the two follows no past at all, so there is nothing to tell apart.
            widest = max(widest, float(np.nan_to_num(high - low, nan=0.0, posinf=np.inf).max()))
    return math.tanh(widest / 4.0) * (1 + 1e-13) if math.isfinite(widest) else 1.0


def apart(state: Floats) -> Floats:
    """1 between different snapshots, 0 else; 1 for a state of one number."""
    return np.asarray(1.0 - np.eye(state.shape[-1]) * (state.shape[-1] > 1))


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
        # Both logarithms lie between -alpha and 0, and above -750, the end of floats: that bounds their rounding.
        upper = value * (1 + SLACK) + rounding_error(self._relative, alpha) + 8.0 * UNIT * min(alpha, 1500.0)
        return np.asarray(np.minimum(upper, alpha)).reshape(self._n, self._n)

    def largest(self, alpha: float) -> float:
        """L(alpha) over all pairs."""
        return float(self.pairs(alpha).max())

    def follow(self, cost: float, length: int) -> list[float]:
        """So many numbers b <- cost + L(b), the first of them `cost`; once two are equal, all after them are too."""
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
    n = len(kernel)
    for y in range(n):
        second = np.broadcast_to(kernel[y], (n, n))
        yield LawPairs(kernel, second, kernel - second, np.full(n, 1e-15), 0)
