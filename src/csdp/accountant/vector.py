"""The continual leakage of a component of any size, from what is known of every sequence by itself.

`InfluenceComponent`, for backward chains: b_k(c, c') of every sequence, as in `csdp.bounds.influence`.
`SliceComponent`, for forward chains: which of the last slices were read, with what noise, as in `csdp.bounds.slice`.
Both are for the informed adversary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from csdp.accountant.component import PEAK_STEPS, Caps
from csdp.accountant.lateness import Lateness, Stale, was_late
from csdp.accountant.protocol import (
    Before,
    Kind,
    Read,
    stands_for_others,
    worst_component,
)
from csdp.accountant.rest import follow_to_rest
from csdp.arrays import Floats
from csdp.bounds.closed_forms import PAIR_STATES
from csdp.bounds.influence import Recursion, influence_rule
from csdp.bounds.slice.bound import SliceHistory
from csdp.chain import Model

#: Slices before the newest reading that `SliceComponent` follows one by one.
WINDOW = 32
#: Steps for which `InfluenceComponent` waits for late readings, where the plan allows them; later ones count more.
LATE_SLICES = 8


class _VectorComponent:
    """Costs of every sequence by age, caps and lifetime: what both have in common."""

    kind: Kind
    finds_rest = True
    alike: bytes | None = None

    def __init__(
        self,
        model: Model,
        members: Sequence[int],
        costs: Mapping[int, Floats],
        *,
        alpha: float,
        stale_limit: int = 0,
    ) -> None:
        self.model = model
        self.members = tuple(members)
        self.ages = tuple(sorted(costs))
        self.alpha = alpha
        self._costs = {age: np.tile(cost, (model.phases, 1, 1)) for age, cost in costs.items()}  # a block a phase
        self._caps = Caps(model, "informed")
        self._readers = {age: cost.any(axis=(1, 2)) for age, cost in costs.items()}
        self._stale_limit = stale_limit

    @cached_property
    def _as_planned(self) -> list[Read]:
        return [Read(age) for age in self.ages]

    def _is_same(self, old: _VectorComponent) -> bool:
        """Whether a state of `old`, under another plan, is one of this component and of all that it stands for."""
        return self.members == old.members and not stands_for_others(self.alike, old.alike)

    def cap(self, steps: int) -> tuple[float, str]:
        """What no number of releases passes when all that was read is `steps` old."""
        return self._caps.at(steps)

    @property
    def oldest(self) -> int:
        """Steps before now from which on a state waits for no more readings."""
        return self.ages[-1]

    @property
    def follows_missing(self) -> bool:
        """Whether a sequence that was not read costs nothing: not where one stands for components that are alike."""
        return self.alike is None and self.kind == "vector"

    @property
    def follows_delays(self) -> bool:
        """Whether it counts a late reading where it was read: not where it stands for components that are alike."""
        return self.alike is None and self._stale_limit > 0

    def reads(self, stale: Stale) -> list[Read]:
        """What a release reads, by age and delay; whole where it is not known, or does not count, what was late."""
        if was_late(stale) and not (isinstance(stale, Lateness) and self.follows_delays):
            return [Read(self.ages[0], whole=True)]
        if not isinstance(stale, Lateness) or stale.concerned.isdisjoint(self.members):
            return self._as_planned
        delays = stale.delays_of(self.members)
        there = stale.was_read(self.members) | (not self.follows_missing)
        if there.all() and not delays.any():  # missing readings that count as read
            return self._as_planned
        split = [
            (age, int(d), readers & there & (delays == d))
            for age, readers in self._readers.items()
            for d in np.unique(delays)
        ]
        return [Read(age, delay, rows) for age, delay, rows in split if rows.any()]

    def _cost_between_snapshots(self, read: Read) -> float:
        """What the part of a release that is read at one slice tells between any two snapshots, at most."""
        each = self._costs[read.age][: len(self.members)].max(axis=(1, 2))
        told = each.sum() if read.rows is None else each[read.rows].sum()
        return min(self.alpha, float(told) * (1 + 1e-12))

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases reveal of one record: the group level; nothing is sharper for so large a component."""
        cost = self.alpha * (self.ages[-1] - self.ages[0] + 1 + stale)
        cost = cost + earlier if overlap else max(cost, earlier)
        return math.inf if releases is None else cost * releases


class InfluenceComponent(_VectorComponent):
    """A component of a backward chain, or of a family of them at once: a matrix b_k(c, c') for every sequence."""

    kind: Kind = "vector"

    @cached_property
    def _rule(self) -> Recursion:
        return influence_rule(self.model)

    @cached_property
    def _off_diagonal(self) -> Floats:
        return np.asarray(1.0 - np.eye(self.model.states))

    def initial_state(self) -> Floats:
        """The state before any release."""
        return np.zeros((self.model.phases * self.model.sequences, self.model.states, self.model.states))

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between any two snapshots: sequences are changed one after the other."""
        by_phase = state.max(axis=(1, 2)).reshape(self.model.phases, -1)
        return float(by_phase.sum(axis=1).max()) * (1 + 1e-12)

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan; a state of the same sequences stays what it is."""
        for component, state in before:
            if isinstance(component, InfluenceComponent) and self._is_same(component):
                return np.minimum(state, cost * self._off_diagonal)
        return self.initial_state() + (min(cost, worst_component(before)) if before else cost) * self._off_diagonal

    @property
    def oldest(self) -> int:
        """Steps before now from which on a state waits for no more readings: the oldest age, and late ones."""
        return self.ages[-1] + (min(self._stale_limit, LATE_SLICES) if self.follows_delays else 0)

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice, sequence by sequence.

        A release that counts whole does so for every sequence, and so does what is read behind the state's slice.
        """
        if read.whole:
            return np.asarray(state + self.alpha * share * self._off_diagonal)
        if behind:
            return np.asarray(state + self._cost_between_snapshots(read) * share * self._off_diagonal)
        return np.asarray(state + share * self._chosen(read))

    def _chosen(self, read: Read) -> Floats:
        """What the sequences that are read tell, in every phase."""
        cost = self._costs[read.age]
        if read.rows is None:
            return cost
        return np.asarray(np.where(np.tile(read.rows, self.model.phases)[:, None, None], cost, 0.0))

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""
        return self._rule.advance(state, steps) if steps else state

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        if not state.any():
            return 0.0, "influence"
        return self._apply_cap(float(self.advance(state, steps).max()), steps)

    def _apply_cap(self, value: float, steps: int) -> tuple[float, str]:
        """A value and its bound; the recursion stays below its own cap, so only freshness can be sharper.

        Of one sequence with two states not even that: the recursion is exact there.
        """
        if steps == 0 or not self.model.has_law or not 2 < self.model.size <= PAIR_STATES:
            return value, "influence"
        cap, why = self.cap(steps)
        return (value, "influence") if value <= cap else (cap, why)

    def peak(self, state: Floats, steps: int) -> float:
        """The largest leakage from now on: a state may rise for some ticks where many follow one sequence.

        The rule is monotone: once a state is below an earlier one in every entry, nothing later passes what was seen.
        """
        now = self.advance(state, steps)
        seen = [now]
        for _ in range(PEAK_STEPS):
            now = self._rule.advance(now)
            if any((now <= earlier).all() for earlier in seen):
                break
            seen.append(now)
        else:
            return max(*(float(earlier.max()) for earlier in seen), self.cap(steps + PEAK_STEPS + 1)[0])
        return max(self._apply_cap(float(earlier.max()), steps + n)[0] for n, earlier in enumerate(seen))

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """What a state can still tell `steps` later or after that; never grows with `steps`."""
        return self.peak(state, steps)

    def state_at_rest(self) -> Floats | None:
        """A state that a release at every tick does not raise, at the oldest age; None where none is found."""
        once = self.initial_state()
        for read in self.reads(False):
            once = self.add(once, read)
        rule, cost, kind = self._rule.reduced(once)
        state = follow_to_rest(rule.advance, cost, self._off_diagonal)
        return state if state is None or kind is None else state[kind]


class SliceComponent(_VectorComponent):
    """A component of a forward chain: what was read from each of the last slices, newest first.

    State (slices + 1, ages + 1): shares of the plan's noise level by age; in the last column what tells of every
    sequence alike; in the last row whether anything lies further back, of which only the range over pasts is known.
    """

    kind: Kind = "slice"

    @cached_property
    def _history(self) -> SliceHistory:
        return SliceHistory(self.model)

    @cached_property
    def _sequence_costs(self) -> list[Floats]:
        """What a release of the plan tells of every sequence, by age, (s,) for each phase of the slice."""
        return [self._costs[age].max(axis=(1, 2)) for age in self.ages]

    def initial_state(self) -> Floats:
        """The state before any release."""
        return np.zeros((WINDOW + 1, len(self.ages) + 1))

    def state_at_rest(self) -> Floats:
        """The state that a release at every tick leads to: all of the last slices were read, and more lie before."""
        state = np.ones((WINDOW + 1, len(self.ages) + 1))
        state[:, -1] = state[WINDOW, 1:] = 0.0
        return state

    def _costs_by_slice(self, state: Floats) -> list[Floats | None]:
        """What the releases reveal of every sequence, slice by slice; None where nothing was read."""
        out: list[Floats | None] = []
        for row in state[:WINDOW]:
            costs = [share * each for share, each in zip(row[:-1], self._sequence_costs, strict=True)]
            out.append(np.sum(costs, axis=0) + row[-1] if row.any() else None)
        return out

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between any two snapshots: not known from the last slices."""
        return math.inf if state.any() else 0.0

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan: slice by slice where it was followed so, else whole."""
        state = self.initial_state()
        for component, old in before:
            if isinstance(component, SliceComponent) and self._is_same(component):
                costs = component._costs_by_slice(old)
                state[:WINDOW, -1] = [0.0 if each is None else float(each.max()) for each in costs]
                state[WINDOW, 0] = float(old[WINDOW].any())
                return state
        state[0, -1] = cost
        return state

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice.

        What is late, or is read behind the state, counts for every sequence alike, at the slice where it was read.
        """
        out = state.copy()
        if read.whole:
            out[0, -1] += self.alpha * share
        elif behind >= WINDOW:
            out[WINDOW, 0] = 1.0
        elif behind or read.rows is not None:
            out[behind, -1] += float(self._largest_cost(read)) * share
        else:
            out[0, self.ages.index(read.age)] += share
        return out

    def _largest_cost(self, read: Read) -> float:
        """What a release tells of one of the sequences that are read, at most."""
        each = self._costs[read.age][: len(self.members)].max(axis=(1, 2))
        return float(each.max() if read.rows is None else each[read.rows].max())

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""
        out, left = np.zeros_like(state), max(WINDOW - steps, 0)
        out[WINDOW - left : WINDOW] = state[:left]
        out[WINDOW, 0] = float(state[left:].any())
        return out

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        if not state.any():
            return 0.0, "slice"
        value = float(self._told(state, steps).max())
        cap, why = self.cap(steps) if steps else (math.inf, "none")
        return (value, "slice") if value <= cap else (cap, why)

    def _told(self, state: Floats, steps: int) -> Floats:
        """(phases x sequences,) what the releases tell of each sequence's present."""
        costs = self._costs_by_slice(state)
        if not state[WINDOW].any():  # nothing lies further back, so the past may be taken as known further back
            costs = [*costs, *([None] * WINDOW)]
        return self._history.leakage(steps, costs)

    def peak(self, state: Floats, steps: int) -> float:
        """The largest leakage from now on: the cap never grows, and ends the search where it is below what was seen."""
        worst = 0.0
        for later in range(steps, steps + PEAK_STEPS):
            worst = max(worst, self.leakage(state, later)[0])
            if self.cap(later + 1)[0] <= worst:
                return worst
        return max(worst, self.cap(steps + PEAK_STEPS)[0])

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """What a state can still tell `steps` later or after that; never grows with `steps`."""
        return self.peak(state, steps)
