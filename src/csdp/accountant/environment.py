"""A small component under environments: a state for its joint snapshots, tick by tick under the kernel of each.

Under a clock the state has a block for every phase of its slice, so that one history serves them all: block h follows
the histories whose slice lies at phase h, and a step leads from each block to the next. Where the environment is given
but not by a clock there is one block. Every step takes the worst of the environments that the clock leaves possible.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from csdp.accountant.component import (
    METRIC_SPREAD,
    SCALAR_STATES,
    JointComponent,
)
from csdp.accountant.kernels import ProfileTable, step_back
from csdp.accountant.protocol import Kind
from csdp.arrays import UNIT, Floats, Indices
from csdp.bounds.closed_forms import AgedPairs, contraction_coefficient
from csdp.bounds.environment import Vantage, list_paths, longest_paths
from csdp.bounds.metric import FlowSolver
from csdp.chain import EnvironmentChain
from csdp.chain.steps import METRIC_STATES
from csdp.chain.views import PathView
from csdp.errors import InputError, TooLargeError

#: Steps after which a metric state is followed by its largest entry alone, and after which its numbers are left as they
#: are.
_METRIC_STEPS = 64
_SCALAR_STEPS = 4096


def all_pairs_contraction(kernel: Floats) -> float:
    """tanh(D / 4) of one step, D the largest range over pasts of the log odds of any two snapshots."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(kernel)
        widest = 0.0
        for y in range(kernel.shape[1]):
            odds = logs - logs[:, y : y + 1]  # NaN: a past that leads to neither, which says nothing
            high, low = np.fmax.reduce(odds, axis=0), np.fmin.reduce(odds, axis=0)
            # NaN again: one of the two follows no past at all, so there is nothing to tell apart.
            widest = max(widest, float(np.nan_to_num(high - low, nan=0.0, posinf=np.inf).max()))
    return math.tanh(widest / 4.0) * (1 + 1e-13) if math.isfinite(widest) else 1.0


class EnvironmentComponent(JointComponent):
    """A component of an EnvironmentChain whose environment is public: states (blocks, n, n), or (blocks, 1, 1)."""

    model: EnvironmentChain
    _rising: ClassVar[frozenset[Kind]] = frozenset({"metric", "scalar", "contraction"})

    def _choose(self, kind: str) -> Kind:
        is_forward = self.model.direction == "forward"
        if kind not in {"auto", "metric", "scalar"}:
            raise InputError(f"state: {kind!r} given for an EnvironmentChain; 'auto', 'metric', 'scalar' or 'vector'")
        given = self.model.kind != "clock"
        if self.model.size > SCALAR_STATES or (given and not is_forward and self.adversary != "informed"):
            return "cap"
        if given and is_forward:
            return "contraction"  # the backward kernel depends on every environment before
        spread = self.ages[-1] - self.ages[0]
        fits = bool(self._cost.answers) and spread <= METRIC_SPREAD
        if kind == "metric" and not fits:
            raise TooLargeError(
                f"metric state: ages spread over {spread} steps; at most {METRIC_SPREAD}, and unequal ages only for "
                "additive queries. Use state='scalar'",
                needed=spread,
                limit=METRIC_SPREAD,
            )
        return "metric" if fits and (kind == "metric" or (kind == "auto" and self._is_small)) else "scalar"

    @property
    def _is_small(self) -> bool:
        return self.model.size * len(self.model.environments) <= METRIC_STATES

    # ---- kernels -------------------------------------------------------------------------------------------------

    @cached_property
    def _kernels(self) -> list[list[Floats]]:
        """Backward kernels of every block: that of a phase of the clock, or those of the environments it may have."""
        if self.model.kind == "clock":
            return [[self.model.backward_kernel(phase=phase)] for phase in range(self.model.period)]
        each = [chain.backward_kernel() for chain in self.model.environments]
        return [[each[e] for e in self.model.environment_numbers(phase)] for phase in range(self._blocks)]

    @cached_property
    def _relative(self) -> float:
        """Bound on the relative error of the entries of a kernel."""
        law = 0.0 if self.model.direction == "backward" else self.model.periodic_with_error[1]
        return 4.0 * law + 8.0 * (self.model.size + 8) * UNIT

    @cached_property
    def _tables(self) -> list[list[ProfileTable]]:
        return [[ProfileTable(kernel, relative=self._relative) for kernel in block] for block in self._kernels]

    @property
    def _blocks(self) -> int:
        return self.model.phases

    # ---- states --------------------------------------------------------------------------------------------------

    def initial_state(self) -> Floats:
        """The state before any release."""
        n = self.model.size if self.kind == "metric" else 1
        return np.zeros((self._blocks, n, n))

    @cached_property
    def _distances(self) -> dict[int, Floats]:
        every = np.arange(self.model.size)
        return {age: self._cost.distances(age, every) for age in self.ages}

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later, under the worst environments."""
        if steps == 0 or state.max() <= 0:
            return state
        if self.kind == "cap":
            return np.roll(state, steps, axis=0)
        if self.kind == "contraction":
            return np.asarray(np.roll(state, steps, axis=0) * self._one_step_contraction() ** steps)
        counted = min(steps, _SCALAR_STEPS)
        for n in range(counted):
            if self.kind == "metric" and n == _METRIC_STEPS:
                state = state.max(axis=(1, 2), keepdims=True) * self._apart(state)
            whole = self.kind == "metric" and n < _METRIC_STEPS
            following = self._step(state, whole=whole)
            if np.array_equal(following, state):
                return state
            state = following
        # No further step raises a block, and each still leads it to the next phase.
        return np.roll(state, steps - counted, axis=0)

    def _apart(self, state: Floats) -> Floats:
        """1 between different snapshots, 0 else; 1 for a state of one number."""
        return np.asarray(1.0 - np.eye(state.shape[-1]) * (state.shape[-1] > 1))

    def _step(self, state: Floats, *, whole: bool) -> Floats:
        return np.stack([self._move(state[phase - 1], phase, whole=whole) for phase in range(self._blocks)])

    def _move(self, block: Floats, phase: int, *, whole: bool) -> Floats:
        """One block a step later, under the worst of the kernels that lead back to it."""
        tables = self._tables[phase]
        largest = float(block.max())
        if not whole:
            level = max(table.largest(largest) for table in tables)
            return np.asarray(level * self._apart(block) + np.zeros_like(block))
        moved = [
            step_back(block, kernel, table.pairs(largest), relative=self._relative)
            for kernel, table in zip(self._kernels[phase], tables, strict=True)
        ]
        return np.asarray(np.maximum.reduce(moved))

    def _one_step_contraction(self) -> float:
        """The coefficient between any two snapshots, of the worst environment."""
        return self._worst_contraction

    @cached_property
    def _worst_contraction(self) -> float:
        return min(1.0, max(all_pairs_contraction(chain.kernel()) for chain in self.model.environments))

    # ---- leakage -------------------------------------------------------------------------------------------------

    def _leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        if state.max() <= 0:
            return 0.0, self.kind
        cap, why = self.cap(steps)
        if self.kind == "cap":
            return (float(state.max()), "group") if state.max() < cap else (cap, why)
        value = max(self._leakage_at(state, steps, phase) for phase in range(self._blocks))
        return (value, self.kind) if value <= cap else (cap, why)

    def _leakage_at(self, state: Floats, steps: int, phase: int) -> float:
        """The leakage of a present at one phase (0 without a clock)."""
        counted = min(steps, self._longest)
        state = self.advance(state, steps - counted)
        if self.kind == "contraction":
            return self._contraction_over_paths(counted) * float(state.max())
        block = state[(phase - counted) % self._blocks]
        largest = float(block.max())
        if largest <= 0:
            return 0.0
        if counted == 0:
            return self._neighbour_distance(block) if self.kind == "metric" else largest
        pairs = self._pairs_at(counted, phase)
        value = pairs.profile(largest) * (1 + 1e-12)
        if self.kind == "metric":
            bounds = FlowSolver(block).bounds_of_all(pairs)
            value = min(value, max((float(each.max()) for each in bounds), default=0.0))
        return value

    @cached_property
    def _longest(self) -> int:
        """Steps over which laws are made, of all paths of environments; older histories are stepped closer."""
        return min(_METRIC_STEPS, longest_paths(self.model))

    def _pairs_at(self, steps: int, phase: int) -> AgedPairs:
        phase_of_clock = None if self.model.cycle is None else phase
        return self._caps.pairs(steps, Vantage(self.model.kind != "clock", phase_of_clock))

    def _contraction_over_paths(self, steps: int) -> float:
        if steps == 0:
            return 1.0
        if steps not in self._contractions:
            phases = [None] if self.model.cycle is None else range(self.model.period)
            views = [PathView(self.model, path) for h in phases for path in list_paths(self.model, steps, h)]
            self._contractions[steps] = max(contraction_coefficient(v, steps, self.adversary) for v in views)
        return self._contractions[steps]

    @cached_property
    def _contractions(self) -> dict[int, float]:
        return {}

    @property
    def _possible(self) -> Indices:
        return np.arange(self.model.size)

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """What the largest entry of a state reveals; never grows with `steps`."""
        if self.kind == "cap" or steps == 0 or state.max() <= 0:
            return max(self.leakage(state, steps)[0], float(state.max()) * (steps == 0))
        newest = min(steps, self._longest)
        level = self._advance_level(float(state.max()), steps - newest)
        if self.kind == "contraction":
            value = self._contraction_over_paths(newest) * level
        else:
            value = max(self._pairs_at(newest, phase).profile(level) for phase in range(self._blocks)) * (1 + 1e-12)
        return min(value, self.cap(steps)[0])

    def _advance_level(self, level: float, steps: int) -> float:
        """What the largest entry of a state is at most some steps later, at any phase."""
        if self.kind == "contraction":
            return level * self._one_step_contraction() ** steps
        for _ in range(min(steps, _SCALAR_STEPS)):
            level = max(table.largest(level) for tables in self._tables for table in tables)
        return level

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases reveal of one record: the group level; nothing sharper is known under environments."""
        cost = self.alpha * (self.ages[-1] - self.ages[0] + 1 + stale)
        cost = cost + earlier if overlap else max(cost, earlier)
        return math.inf if releases is None else cost * releases
