"""`JointComponent`: a component that keeps a state for its joint snapshots.

The state is a matrix for few snapshots (metric), one number for more (scalar), and a cap beyond. Under environments the
state has a block for every phase of a clock at its slice, so that one history serves them all: block h follows the
histories whose slice lies at phase h, and a step leads from each block to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from csdp.accountant.component import PEAK_STEPS, Before, Caps, Component, Kind, Read, worst_component
from csdp.accountant.fixed_point import accelerate_to_rest
from csdp.accountant.kernels import BackwardKernel, EnvironmentKernels, apart
from csdp.accountant.record import Lateness, Stale, was_late
from csdp.aging import PLAIN, Vantage, list_paths
from csdp.bounds.metric import AgedPairs, FlowSolver, answer_distances, contraction_coefficient
from csdp.bounds.units import Units
from csdp.chain import EnvironmentChain, Model
from csdp.chain.environment import PathView
from csdp.chain.steps import METRIC_STATES
from csdp.numbers import Bools, Floats, Indices

#: Joint states of a component up to which the scalar state is kept.
SCALAR_STATES = 256
#: Slices between the newest and the oldest age over which a metric state is replayed.
METRIC_SPREAD = 8
#: Releases up to which every moment is followed one by one.
_COUNTED = 2000


@dataclass(frozen=True, eq=False)
class Cost:
    """What one release costs in a component, by the age at which its readings are taken.

    `alpha` is the whole cost, d(k) epsilon_c; `answers[a]` are the query's answers on what is read at age a. If they
    cannot be separated (max, min, custom at unequal ages) `answers` is empty and the scalar state is used. `own`: of a
    sum, the contribution (snapshots, s, d) of every sequence.
    """

    alpha: float
    answers: dict[int, tuple[Floats, ...]]  # age -> answers (snapshots, d) for what the others may contribute
    rate: float
    own: Floats | None = None
    ages: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    def distances(self, age: int, seen: Indices) -> Floats:
        """epsilon_c |f(z) - f(z')| / Delta_f of what is read at one age, between snapshots that can occur."""
        return answer_distances([table[seen] for table in self.answers[age]], self.rate)

    def distances_of(self, age: int, seen: Indices, rows: Bools | None) -> Floats:
        """The same of the sequences (rows) that were read; None if that is not known, so that nothing cancels."""
        assert self.own is not None
        own = self.own[seen]
        here = self.ages == age
        if rows is not None:
            return answer_distances([own[:, here & rows].sum(axis=1)], self.rate)
        each = [answer_distances([own[:, i]], self.rate) for i in np.flatnonzero(here)]
        return np.asarray(np.sum(each, axis=0))


class Known:
    """What does not depend on a common age or on the noise: one search owns it and hands it from plan to plan."""

    def __init__(self) -> None:
        self.caps: dict[str, Caps] = {}  # by the digest of the component's model, and its units
        self.kernels: dict[str, BackwardKernel | EnvironmentKernels] = {}
        self.rests: dict[tuple[str, str, bytes], Floats | None] = {}  # by digest, kind and cost; of one age


class JointComponent(Component):
    """One component of one model under a plan, all of its sequences together.

    Args:
        model: the model of the component.
        members: its sequences in the whole model.
        ages: the ages at which its sequences are read.
        cost: what a release costs.
        blocks: the places of sequences whose states are one secret.
        rule: "metric" or "scalar" for that state if it fits; "auto" for the sharper of them.
        known: what other components have computed already.
    """

    def __init__(
        self,
        model: Model,
        members: Sequence[int],
        *,
        ages: Sequence[int],
        cost: Cost,
        blocks: Units,
        rule: str = "auto",
        known: Known | None = None,
    ) -> None:
        super().__init__(model, ages, cost.alpha, blocks)
        self._members = tuple(members)
        self._cost = cost
        self._digest = model.digest + repr(blocks) * bool(blocks)
        self._known = Known() if known is None else known
        self.caps = self._known.caps.setdefault(self._digest, self.caps)
        self.kind: Kind = _choose_kind(model, spread=self.ages[-1] - self.ages[0], is_sum=bool(cost.answers), rule=rule)

    @property
    def finds_rest(self) -> bool:
        """Whether `state_at_rest` may find one."""
        return self.kind in {"metric", "scalar"}

    @cached_property
    def kernels(self) -> BackwardKernel | EnvironmentKernels:
        """The backward kernels of the component."""
        made = self._known.kernels
        if self._digest not in made:
            model = self.model
            made[self._digest] = (
                EnvironmentKernels(model) if isinstance(model, EnvironmentChain) else BackwardKernel(model)
            )
        return made[self._digest]

    # ---- states --------------------------------------------------------------------------------------------------

    def initial_state(self) -> Floats:
        """The state before any release."""
        n = self.kernels.size if self.kind == "metric" else 1
        return np.zeros((n, n) if self.model.has_one_kernel else (self.model.phases, n, n))

    def state_at_rest(self) -> Floats | None:
        """A state that a release at every tick does not raise, at the oldest age; None if none is found."""
        cost = self.initial_state()
        for read in self.reads(False):
            cost = self.add(cost, read)
        key = (self._digest, self.kind, cost.tobytes())
        rests = self._known.rests
        reusable = len(self.ages) == 1 and self.model.has_one_kernel  # then it does not depend on the age
        if reusable and key in rests:
            return rests[key]
        at_rest = accelerate_to_rest(lambda state: self.advance(state, 1), cost, apart(cost), self._guess_rest(cost))
        if reusable:
            if at_rest is not None:
                at_rest.setflags(write=False)
            rests[key] = at_rest
        return at_rest

    def _guess_rest(self, cost: Floats) -> Floats:
        """Where the search begins: the cost, raised to the limit of the scalar rule if that is finite."""
        largest = float(cost.max())
        if self.kind != "metric" or largest <= 0 or not isinstance(self.kernels, BackwardKernel):
            return cost
        limit = self.kernels.profile_table(1).limit(largest)
        return cost * (limit / largest) if math.isfinite(limit) else cost

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between two snapshots, all other components' paths known."""
        return float(state.max())

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan: the old states count between any two snapshots."""
        level = min(cost, worst_component(before)) if before else cost
        state = self.initial_state()
        return np.asarray(state + level * apart(state))

    def reads(self, stale: Stale) -> list[Read]:
        """What a release reads, by age; whole, at its newest age, if something was late.

        Of the sequences that were read, if some are missing. One that stands for components that are alike follows the
        worst of them: any may be missing.
        """
        if self.kind != "metric" or not isinstance(stale, Lateness) or was_late(stale):
            return super().reads(stale)  # the whole cost is that of any of the sequences
        there = stale.was_read(self._members)
        if stale.unnamed or (stale.missing and self.alike is not None):
            return [Read(age, unnamed=True) for age in self.ages]
        return [Read(age, rows=None if there.all() else there) for age in self.ages]

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice; a release that counts whole does so between any two snapshots."""
        if self.kind != "metric":
            # Charging an output at or after its newest slice costs at most alpha, whatever slices it reads.
            return state + (self.alpha * share if read.age == self.ages[0] else 0.0)
        distinct = 1.0 - np.eye(state.shape[-1])
        if read.whole:
            return np.asarray(state + self.alpha * share * distinct)
        distances = self._distances[read.age]
        if read.unnamed or read.rows is not None:
            distances = self._cost.distances_of(read.age, self.kernels.seen, read.rows)
        return np.asarray(state + (share * distances.max() * distinct if behind else share * distances))

    @cached_property
    def _distances(self) -> dict[int, Floats]:
        return {age: self._cost.distances(age, self.kernels.seen) for age in self.ages}

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later, under the worst environments."""
        if steps == 0 or state.max() <= 0:
            return state
        if self.kind == "cap":
            return np.roll(state, steps, axis=0)
        if self.kind == "contraction":
            return np.asarray(np.roll(state, steps, axis=0) * self._environments.contraction**steps)
        return self.kernels.advance(state, steps, is_metric=self.kind == "metric")

    @property
    def _environments(self) -> EnvironmentKernels:
        assert isinstance(self.kernels, EnvironmentKernels)
        return self.kernels

    # ---- leakage -------------------------------------------------------------------------------------------------

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        cap, why = self.cap(steps)
        if self.kind == "cap":
            largest = float(state.max())
            # The state has added up what all releases cost, however the sequences are tied.
            return (largest, "group") if largest < cap else (cap, why)
        value = max(self._leakage_at(state, steps, phase) for phase in range(self.model.phases))
        return (value, self.kind) if value <= cap else (cap, why)

    def _leakage_at(self, state: Floats, steps: int, phase: int) -> float:
        """The leakage of a present at one phase of a clock (0 without one)."""
        counted = min(steps, self.kernels.longest)
        state = self.advance(state, steps - counted)
        if self.kind == "contraction":
            return self._contraction_over_paths(counted) * float(state.max())
        block = state if state.ndim == 2 else state[(phase - counted) % len(state)]
        if not block.any():
            return 0.0
        largest = float(block.max())
        if counted == 0:
            return self._neighbour_distance(block) if self.kind == "metric" else largest
        pairs, seen = self._pairs_at(counted, phase), self.kernels.seen
        value = pairs.profile(largest) * (1 + 1e-12)
        if self.kind == "metric":
            rows = pairs if seen.size == self.model.size else (each.restrict(seen) for each in pairs)
            bounds = FlowSolver(block).bounds_of_all(rows)
            value = min(value, max((float(each.max()) for each in bounds), default=0.0))
        return value

    def _pairs_at(self, steps: int, phase: int) -> AgedPairs:
        if not isinstance(self.model, EnvironmentChain):
            return self.caps.pairs(steps, PLAIN)
        return self.caps.pairs(steps, Vantage(self.model.kind != "clock", None if self.model.cycle is None else phase))

    def _neighbour_distance(self, state: Floats) -> float:
        """At age 0 the state itself is the leakage, between snapshots that differ in one sequence or unit."""
        s, m = self.model.sequences, self.model.states
        digits = np.array(np.unravel_index(self.kernels.seen, (m,) * s)).T
        differ = digits[:, None, :] != digits[None, :, :]
        blocks = self.blocks or tuple((i,) for i in range(s))
        inside = [differ.sum(axis=2) == differ[:, :, list(block)].sum(axis=2) for block in blocks]
        return float(state[np.logical_or.reduce(inside)].max(initial=0.0))

    def _contraction_over_paths(self, steps: int) -> float:
        if self.blocks:  # it compares presents that differ in one sequence
            return 1.0
        if steps not in self._contractions:
            chain = self._environments.model
            views = (PathView(chain, path) for path in list_paths(chain, steps))
            self._contractions[steps] = max(contraction_coefficient(view, steps) for view in views)
        return self._contractions[steps]

    @cached_property
    def _contractions(self) -> dict[int, float]:
        return {}

    def peak(self, state: Floats, steps: int, now: float | None = None) -> float:
        """The largest leakage of the present from now on if nothing more is published.

        Aging may raise what a metric state reveals between neighbours (docs/errata.md), and under environments any
        state. What the largest entry alone reveals never grows with age, so the search ends when that falls below the
        largest so far.
        """
        worst = self.leakage(state, steps)[0] if now is None else now
        if self.kind == "cap" or (self.kind == "scalar" and self.model.has_one_kernel):
            return worst
        for later in range(1, 1 + PEAK_STEPS):
            if self.decaying_bound(state, steps + later) <= worst:
                return worst
            worst = max(worst, self.leakage(state, steps + later)[0])
        return max(worst, self.decaying_bound(state, steps + 1 + PEAK_STEPS))

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """What the largest entry of a state reveals; never grows with `steps`."""
        largest = float(state.max())
        if steps == 0:
            return max(self.leakage(state, steps)[0], largest)
        if self.kind == "cap" or largest <= 0:
            return self.leakage(state, steps)[0]
        newest = min(steps, self.kernels.longest)
        if self.kind == "contraction":
            level = largest * self._environments.contraction ** (steps - newest)
            value = self._contraction_over_paths(newest) * level
        else:
            level = self.kernels.advance_level(largest, steps - newest)
            profiles = (self._pairs_at(newest, phase).profile(level) for phase in range(self.model.phases))
            value = max(profiles) * (1 + 1e-12)
        return min(value, self.cap(steps)[0])

    def every_moment(
        self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False
    ) -> float:
        """What all releases, before and after, reveal of one record (temporal privacy leakage, Cao et al. 2017).

        Under environments nothing sharper than the group level is known.
        """
        whole = super().every_moment(releases, stale=stale, earlier=earlier, overlap=overlap)
        if self.kind == "cap" or not isinstance(self.kernels, BackwardKernel):
            return whole
        cost = self.record_cost(stale, earlier, overlap=overlap)
        tables = self.kernels.profile_table(1), self.kernels.forward_table
        if releases is None or releases > _COUNTED or len(self.ages) > 1 or stale > 0 or earlier > 0:
            # An output read at several slices: gaps between releases may be worse than none, so only the ends are sure.
            return min(whole, sum(table.limit(cost) for table in tables) - cost)
        back, ahead = (table.follow(cost, releases) for table in tables)
        return max(b + a - cost for b, a in zip(back, ahead[::-1], strict=True))


def _choose_kind(model: Model, *, spread: int, is_sum: bool, rule: str) -> Kind:
    """The state that a component of this size keeps."""
    if model.size > SCALAR_STATES or not model.has_law:
        return "cap"
    kernels = 1
    if isinstance(model, EnvironmentChain):
        if model.kind != "clock" and model.direction == "forward":
            return "contraction"  # the backward kernel depends on every environment before
        kernels = len(model.environments)
    fits = is_sum and spread <= METRIC_SPREAD
    is_small = model.size * kernels <= METRIC_STATES
    return "metric" if fits and (rule == "metric" or (rule == "auto" and is_small)) else "scalar"
