"""Components of forward chains: the releases of the last slices, alone or beside a scalar state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from operator import itemgetter

import numpy as np

from csdp.accountant.component import PEAK_STEPS, Before, Component, Kind, Read
from csdp.accountant.influence import SequenceCosts
from csdp.accountant.joint import JointComponent
from csdp.accountant.record import Stale
from csdp.bounds.slice import SliceHistory
from csdp.bounds.units import largest_of
from csdp.numbers import Floats

#: Slices before the newest reading that are followed one by one.
WINDOW = 32


class SliceComponent(SequenceCosts):
    """A component of a forward chain: what was read from each of the last slices, newest first.

    State (slices + 1, ages + 1): shares of the plan's noise level by age; in the last column what is revealed of every
    sequence alike; in the last row whether anything lies further back, of which only the range over pasts is known.
    """

    kind: Kind = "slice"

    @cached_property
    def _history(self) -> SliceHistory:
        return SliceHistory(self.model)

    @cached_property
    def _sequence_costs(self) -> list[Floats]:
        """What a release of the plan reveals of every sequence, by age, (s,) for each phase of the slice."""
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
        """What the releases reveal of every sequence, slice by slice; None for a slice that was not read."""
        out: list[Floats | None] = []
        for row in state[:WINDOW]:
            costs = [share * each for share, each in zip(row[:-1], self._sequence_costs, strict=True)]
            out.append(np.sum(costs, axis=0) + row[-1] if row.any() else None)
        return out

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between any two snapshots: not known from the last slices."""
        return math.inf if state.any() else 0.0

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan: slice by slice if it was followed so, else whole."""
        state = self.initial_state()
        for component, old in before:
            if isinstance(component, SliceComponent) and self.is_same(component):
                costs = component._costs_by_slice(old)
                state[:WINDOW, -1] = [0.0 if each is None else float(each.max()) for each in costs]
                state[WINDOW, 0] = float(old[WINDOW].any())
                return state
        state[0, -1] = cost
        return state

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice.

        A late reading, or one behind the state, counts for every sequence alike, at the slice where it was read.
        """
        out = state.copy()
        if read.whole:
            out[0, -1] += self.alpha * share
        elif behind >= WINDOW:
            out[WINDOW, 0] = 1.0
        elif behind or read.rows is not None:
            out[behind, -1] += float(self.each_cost(read).max()) * share
        else:
            out[0, self.ages.index(read.age)] += share
        return out

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
        costs = self._costs_by_slice(state)
        if not state[WINDOW].any():  # nothing lies further back, so the past may be taken as known further back
            costs = [*costs, *([None] * WINDOW)]
        value = largest_of(self._history.leakage(steps, costs), self.blocks)
        cap, why = self.cap(steps)
        return (value, "slice") if value <= cap else (cap, why)

    def peak(self, state: Floats, steps: int, now: float | None = None) -> float:
        """The largest leakage from now on: the cap never grows, and ends the search once it is below what was seen."""
        worst = self.leakage(state, steps)[0] if now is None else now
        for later in range(steps + 1, steps + PEAK_STEPS):
            if self.cap(later)[0] <= worst:
                return worst
            worst = max(worst, self.leakage(state, later)[0])
        return max(worst, self.cap(steps + PEAK_STEPS)[0])


class SmallerComponent(Component):
    """The scalar and the slice state of one component, side by side.

    Formal guarantee: each of them bounds what any history reveals, so at every moment the smaller number does. Neither
    is always the smaller one: slice loses nothing between sequences that depend weakly, and stops decaying if they are
    persistent and strongly coupled.

    State (n, 1): the numbers of the scalar state, then those of the slice state.
    """

    kind: Kind = "scalar"

    def __init__(self, scalar: JointComponent, slices: SliceComponent) -> None:
        super().__init__(scalar.model, scalar.ages, scalar.alpha, scalar.blocks)
        self._parts: tuple[JointComponent, SliceComponent] = (scalar, slices)
        self.caps, self.alike = scalar.caps, slices.alike

    @property
    def follows_delays(self) -> bool:
        """Whether the slice state counts a late reading at the slice where it was read."""
        return self._parts[1].follows_delays

    def _split(self, state: Floats) -> Iterator[tuple[JointComponent | SliceComponent, Floats]]:
        """Both components, each with its own state."""
        first, second = (part.initial_state() for part in self._parts)
        yield self._parts[0], state[: first.size].reshape(first.shape)
        yield self._parts[1], state[first.size :].reshape(second.shape)

    def initial_state(self) -> Floats:
        """The state before any release."""
        return _join(part.initial_state() for part in self._parts)

    def state_at_rest(self) -> Floats:
        """A state that a release at every tick does not raise: infinite in the scalar part if none is found."""
        scalar, slices = self._parts
        rest = scalar.state_at_rest()
        return _join([np.full_like(scalar.initial_state(), np.inf) if rest is None else rest, slices.state_at_rest()])

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between any two snapshots."""
        return min(part.worst_log_ratio(own) for part, own in self._split(state))

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan: each part goes on from its own."""
        scalar, slices = self._parts
        followed = [
            list(old._split(state))[1] if isinstance(old, SmallerComponent) else (old, state) for old, state in before
        ]
        return _join([scalar.carry(before, cost), slices.carry(followed, cost)])

    def reads(self, stale: Stale) -> list[Read]:
        """What a release reads, for each of the two states: only slice counts a late reading at its slice."""
        return [replace(read, part=n) for n, part in enumerate(self._parts) for read in part.reads(stale)]

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice to the state that is charged for it."""
        return _join(
            part.add(own, read, behind=behind, share=share) if part is self._parts[read.part] else own
            for part, own in self._split(state)
        )

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""
        return _join(part.advance(own, steps) for part, own in self._split(state))

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        return min((part.leakage(own, steps) for part, own in self._split(state)), key=itemgetter(0))

    def peak(self, state: Floats, steps: int, now: float | None = None) -> float:
        """The largest leakage of the present from now on if nothing more is published, by either state."""
        return min(part.peak(own, steps) for part, own in self._split(state))

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """A bound on the leakage `steps` after the slice of the state and later, by either state."""
        return min(part.decaying_bound(own, steps) for part, own in self._split(state))

    def every_moment(
        self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False
    ) -> float:
        """What all releases, before and after, reveal of one record."""
        return min(part.every_moment(releases, stale=stale, earlier=earlier, overlap=overlap) for part in self._parts)


def _join(states: Iterable[Floats]) -> Floats:
    """Two states as one column."""
    return np.concatenate([state.reshape(-1, 1) for state in states])
