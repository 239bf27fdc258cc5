"""`InfluenceComponent`: a component of any size of a graph or a backward chain, followed sequence by sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from csdp.accountant.component import PEAK_STEPS, WINDOW_STEPS, Before, Component, Kind, Read, worst_component
from csdp.accountant.fixed_point import follow_to_rest
from csdp.accountant.moment import every_moment, past_at_rest
from csdp.accountant.record import Lateness, Stale, was_late
from csdp.bounds.graph import GraphRule
from csdp.bounds.influence import Recursion, add_swing, influence_rule
from csdp.bounds.metric import PAIR_STATES
from csdp.bounds.units import Units, largest_of
from csdp.chain import InfluenceGraph, Model, is_graph
from csdp.errors import InputError
from csdp.numbers import Floats

#: Steps for which a state waits for late readings, if the plan allows them; later ones count more.
LATE_SLICES = 8


class SequenceCosts(Component):
    """A component whose releases have a cost for every sequence by age: what influence and slice have in common.

    Args:
        model: the model of the component.
        members: its sequences in the whole model.
        costs: by age, (k s, m, m): what a release reveals between any two states of a sequence.
        alpha: the whole cost of a release.
        blocks: the places of sequences whose states are one secret.
        stale_limit: how many steps older than planned a reading may be, if the component stands alone.
    """

    def __init__(
        self,
        model: Model,
        members: Sequence[int],
        costs: Mapping[int, Floats],
        *,
        alpha: float,
        blocks: Units,
        stale_limit: int = 0,
    ) -> None:
        super().__init__(model, list(costs), alpha, blocks)
        self.members = tuple(members)
        self._costs = {age: np.tile(cost, (model.phases, 1, 1)) for age, cost in costs.items()}  # a block a phase
        self._readers = {age: cost.any(axis=(1, 2)) for age, cost in costs.items()}
        self._stale_limit = stale_limit

    @cached_property
    def _as_planned(self) -> list[Read]:
        return [Read(age) for age in self.ages]

    def is_same(self, old: SequenceCosts) -> bool:
        """Whether a state of `old`, under another plan, is one of this component and of all that it stands for.

        Components that are alike under one plan may have been read at different ages under another.
        """
        return self.members == old.members and (self.alike is None or self.alike == old.alike)

    @property
    def follows_delays(self) -> bool:
        """Whether it counts a late reading where it was read: not if it stands for components that are alike."""
        return self.alike is None and self._stale_limit > 0

    def reads(self, stale: Stale) -> list[Read]:
        """What a release reads, by age and delay; whole if what was late is not known or not followed."""
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

    def each_cost(self, read: Read) -> Floats:
        """What the part of a release that is read at one slice reveals of each sequence that is read, at most."""
        each = self._costs[read.age][: len(self.members)].max(axis=(1, 2))
        return np.asarray(each if read.rows is None else each[read.rows])


class InfluenceComponent(SequenceCosts):
    """A component of a backward chain, or of a family of them at once: a matrix b_k(c, c') for every sequence."""

    kind: Kind = "vector"

    @cached_property
    def _rule(self) -> Recursion:
        return influence_rule(self.model)

    @cached_property
    def _off_diagonal(self) -> Floats:
        return np.asarray(1.0 - np.eye(self.model.states))

    @property
    def follows_missing(self) -> bool:
        """Whether a sequence that was not read costs nothing: not if this one stands for components that are alike."""
        return self.alike is None

    @property
    def oldest(self) -> int:
        """Steps before now from which on a state waits for no more readings: the oldest age, and late ones."""
        return self.ages[-1] + (min(self._stale_limit, LATE_SLICES) if self.follows_delays else 0)

    def initial_state(self) -> Floats:
        """The state before any release."""
        return self._rule.start()

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between any two snapshots: sequences are changed one after the other.

        Under longer memory the newest snapshot alone does not decide the past.
        """
        if self._rule.memory > 1:
            return math.inf if state.any() else 0.0
        state = self._rule.present(state)
        by_phase = state.max(axis=(1, 2)).reshape(self.model.phases, -1)
        return float(by_phase.sum(axis=1).max()) * (1 + 1e-12)

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan; a state of the same sequences stays what it is."""
        for component, state in before:
            if isinstance(component, InfluenceComponent) and self.is_same(component):
                return np.minimum(state, cost * self._off_diagonal)
        level = min(cost, worst_component(before)) if before else cost
        return self._rule.add_everywhere(self.initial_state(), level)

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice, sequence by sequence.

        A release that counts whole does so for every sequence, and so does what is read behind the state's slice.
        """
        rule = self._rule
        if read.whole:
            return rule.add_everywhere(state, self.alpha * share)
        cost = self._costs[read.age]
        if read.rows is not None:
            cost = np.where(np.tile(read.rows, self.model.phases)[:, None, None], cost, 0.0)
        if not behind:
            return rule.add(state, share * cost)
        placed = rule.add_before(state, share * cost, behind)
        if placed is not None:
            return placed
        level = min(self.alpha, float(self.each_cost(read).sum()) * (1 + 1e-12))
        return rule.add_everywhere(state, level * share)

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""
        return self._rule.advance(state, steps) if steps else state

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        if not state.any():
            return 0.0, "influence"
        revealed = self._rule.present(self.advance(state, steps))
        windows = self.caps.windows
        if steps >= WINDOW_STEPS and windows is not None:
            revealed = np.minimum(revealed, windows.present(windows.follow(state, steps)[-1]))
        return self._apply_cap(self._largest(revealed), steps)

    def _largest(self, revealed: Floats) -> float:
        """The largest of what is revealed of the newest values, with what slow levels add."""
        return largest_of(add_swing(self.model, revealed).max(axis=(1, 2)), self.blocks)

    def _apply_cap(self, value: float, steps: int) -> tuple[float, str]:
        """A value and its bound; the recursion stays below its own cap, so only freshness can be sharper.

        Of one sequence with two states not even that: the recursion is exact there.
        """
        if steps == 0 or not self.model.has_law or not 2 < self.model.size <= PAIR_STATES:
            return value, "influence"
        cap, why = self.cap(steps)
        return (value, "influence") if value <= cap else (cap, why)

    def peak(self, state: Floats, steps: int, now: float | None = None) -> float:
        """The largest leakage from now on: a state may rise for some ticks if many follow one sequence.

        The rule is monotone: once a state is below an earlier one in every entry, nothing later passes what was seen.
        """
        worst = self._peak(self._rule, self.advance(state, steps), steps)
        windows = self.caps.windows
        if steps >= WINDOW_STEPS and windows is not None:
            worst = min(worst, self._peak(windows, windows.follow(state, steps)[-1], steps))
        return worst

    def _peak(self, rule: Recursion, aged: Floats, steps: int) -> float:
        """The peak by one rule."""
        seen = [aged]
        for _ in range(PEAK_STEPS):
            aged = rule.advance(aged)
            if any((aged <= earlier).all() for earlier in seen):
                break
            seen.append(aged)
        found = [self._largest(rule.present(each)) for each in seen]
        if len(seen) > PEAK_STEPS:
            return max(*found, self.cap(steps + PEAK_STEPS + 1)[0])
        return max(self._apply_cap(value, steps + n)[0] for n, value in enumerate(found))

    def state_at_rest(self) -> Floats | None:
        """A state that a release at every tick does not raise, at the oldest age; None if none is found."""
        once = self.initial_state()
        for read in self.reads(False):
            once = self.add(once, read)
        if isinstance(self._rule, GraphRule):
            cost = once[: self._rule.shape[0]]
            finished = past_at_rest(self._rule, cost)
            return None if finished is None else self._rule.at_rest(cost, finished)
        rule, cost, kind = self._rule.reduced(once)
        state = follow_to_rest(rule.advance, cost, self._off_diagonal)
        return state if state is None or kind is None else state[kind]

    def every_moment(
        self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False
    ) -> float:
        """What all releases, before and after, reveal of one value: the recursion in both directions of time.

        Every value is charged for every release that may read it, so that gaps and ages do not matter.
        """
        whole = super().every_moment(releases, stale=stale, earlier=earlier, overlap=overlap)
        graph = self._own_graph
        if graph is None or graph.forward is None:
            return whole
        cost = sum(self._costs.values()) * (1 + stale)
        level = earlier * self._off_diagonal
        cost = cost + level if overlap else np.maximum(cost, level)
        return min(whole, largest_of(every_moment(graph, cost).max(axis=(1, 2)), self.blocks))

    @cached_property
    def _own_graph(self) -> InfluenceGraph | None:
        """The model as a graph, if it has a law forwards."""
        if is_graph(self.model):
            return self.model
        with suppress(InputError):
            return InfluenceGraph.from_chain(self.model)
        return None
