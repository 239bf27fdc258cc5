"""What the accountant asks of a component, what a release reads of it, and what no number of releases exceeds.

A component describes a part of a model under a plan and never changes. Its history is a state, an array that the caller
keeps: every method takes one and returns another, or a number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from csdp.accountant.record import Stale, was_late
from csdp.aging import PLAIN, Vantage, find_vantages, has_law_of_past, longest_paths
from csdp.bounds.influence import Recursion, add_swing, has_influence, influence_rule
from csdp.bounds.metric import PAIR_STATES, AgedPairs
from csdp.bounds.slice import has_slice, one_step, slice_bound
from csdp.bounds.triples import Windows, windows_of
from csdp.bounds.units import Units, largest_of
from csdp.chain import Model
from csdp.errors import InputError
from csdp.numbers import Bools, Floats

Kind = Literal["metric", "scalar", "contraction", "cap", "vector", "slice"]

#: Ticks after a release for which the leakage of a state that may rise is computed one by one.
PEAK_STEPS = 24
#: Steps over which the caps of a large component are followed; they do not grow after that.
CAP_STEPS = 64
#: Steps since the newest reading from which on windows of three sequences are followed.
WINDOW_STEPS = 2
#: Laws of the aged snapshot that are cached.
_CACHED_LAWS = 48


@dataclass(frozen=True, eq=False)
class Read:
    """What a release reads at one slice: at one age, `delay` steps later than planned.

    `rows`: which sequences of the component, None for all. `unnamed`: some were not read, and it is not known which.
    `whole`: some readings were late and it is not known which, so the release counts whole, for everything, at its
    newest age. `part`: which of two states it is charged to.
    """

    age: int
    delay: int = 0
    rows: Bools | None = None
    unnamed: bool = False
    whole: bool = False
    part: int = 0


class Component(ABC):
    """One component of one model under a plan."""

    kind: Kind
    #: which components are alike if this one stands for several; None if it stands alone
    alike: bytes | None = None

    def __init__(self, model: Model, ages: Sequence[int], alpha: float, blocks: Units) -> None:
        self.model = model
        self.ages = tuple(sorted(set(ages)))
        #: d(k) epsilon_c: what one release costs however the sequences are tied
        self.alpha = alpha
        #: the places of sequences whose states are one secret; empty if each is one by itself
        self.blocks = blocks
        self.caps = Caps(model, blocks)

    @property
    def finds_rest(self) -> bool:
        """Whether `state_at_rest` may find one."""
        return True

    @property
    def follows_delays(self) -> bool:
        """Whether a late reading counts at the slice where it was read."""
        return False

    @property
    def follows_missing(self) -> bool:
        """Whether a sequence that was not read costs nothing."""
        return False

    @property
    def oldest(self) -> int:
        """Steps before now from which on a state waits for no more readings."""
        return self.ages[-1]

    def reads(self, stale: Stale) -> list[Read]:
        """What a release reads, by age; whole, at its newest age, if something was late."""
        late = stale and was_late(stale)
        return [Read(self.ages[0], whole=True)] if late else [Read(age) for age in self.ages]

    @abstractmethod
    def initial_state(self) -> Floats:
        """The state before any release."""

    @abstractmethod
    def add(self, state: Floats, read: Read, *, behind: int, share: float) -> Floats:
        """Add what a release reads at one slice.

        Args:
            state: the state at the slice that is read, or at a newer one.
            read: what is read there, one of `reads`.
            behind: how many slices before the state's own it lies; then it counts between any two snapshots.
            share: the noise level of the release as a share of the plan's; every cost is proportional to it.
        """

    @abstractmethod
    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""

    @abstractmethod
    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""

    @abstractmethod
    def peak(self, state: Floats, steps: int, now: float | None = None) -> float:
        """The largest leakage of the present from now on if nothing more is published.

        `now`: the leakage at `steps`, if it is known already.
        """

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """A bound on the leakage `steps` after the slice of the state and later; never grows with `steps`."""
        return self.peak(state, steps)

    @abstractmethod
    def state_at_rest(self) -> Floats | None:
        """A state that a release at every tick does not raise, at the oldest age; None if none is found."""

    @abstractmethod
    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between any two snapshots, all other components' paths known."""

    @abstractmethod
    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan, given the components and states of that plan.

        `before` is empty if the history ran under another chain. `cost`: its worst log ratio under any model.
        """

    def cap(self, steps: int) -> tuple[float, str]:
        """What no number of releases exceeds when all that was read is `steps` old, and the bound that gives it."""
        return self.caps.at(steps)

    def every_moment(
        self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False
    ) -> float:
        """What all releases, before and after it, reveal of one record: the group level unless more is known.

        Args:
            releases: number of releases at consecutive ticks; None for any number.
            stale: by how many ticks a reading may be older than planned.
            earlier: what releases under earlier plans add to one slice.
            overlap: whether this plan reads slices that they read.
        """
        return math.inf if releases is None else self.record_cost(stale, earlier, overlap=overlap) * releases

    def record_cost(self, stale: int, earlier: float, *, overlap: bool) -> float:
        """What all releases add to one slice: each output adds its whole cost at every slice that it may read."""
        cost = self.alpha * (self.ages[-1] - self.ages[0] + 1 + stale)
        return cost + earlier if overlap else max(cost, earlier)


#: Every component of the plan before, under the same model, with its state at the newest slice of the history.
Before = Sequence[tuple[Component, Floats]]


def worst_component(before: Before) -> float:
    """The worst log ratio of a history between any two snapshots of one component."""
    return max(component.worst_log_ratio(state) for component, state in before)


class Caps:
    """What no number of releases exceeds when all that was read is old enough: freshness, slice, influence.

    The least of them at every number of steps, each computed once.
    """

    def __init__(self, model: Model, blocks: Units) -> None:
        self._model = model
        self._blocks = blocks
        self._known: dict[int, tuple[float, str]] = {}
        self._pairs: dict[tuple[int, Vantage], AgedPairs] = {}

    def pairs(self, steps: int, vantage: Vantage = PLAIN) -> AgedPairs:
        """The laws of the snapshot `steps` ago given presents that the adversary must not tell apart."""
        if (steps, vantage) not in self._pairs:
            if len(self._pairs) > _CACHED_LAWS:
                self._pairs.clear()
            ages = [steps] * self._model.sequences
            self._pairs[steps, vantage] = AgedPairs(
                self._model, ages=ages, adversary="informed", vantage=vantage, blocks=self._blocks
            )
        return self._pairs[steps, vantage]

    def _freshness(self, steps: int) -> float:
        """The largest log ratio, over the phases of a clock or the paths of a given environment."""
        counted = min(steps, longest_paths(self._model))  # it never grows with more of them
        vantages = [vantage for _, vantage in find_vantages(self._model)]
        return max(self.pairs(counted, vantage).log_ratio for vantage in vantages)

    def at(self, steps: int) -> tuple[float, str]:
        """The cap `steps` after the newest reading, and the bound that gives it; infinite for a fresh reading."""
        if steps not in self._known:
            self._known[steps] = self._compute(steps)
        return self._known[steps]

    @cached_property
    def _influence(self) -> Recursion:
        return influence_rule(self._model)

    @cached_property
    def windows(self) -> Windows | None:
        """Windows of three sequences, if the model has them."""
        return windows_of(self._model)

    def _compute(self, steps: int) -> tuple[float, str]:
        model = self._model
        caps: list[tuple[float, str]] = [(math.inf, "none")]
        if steps == 0:
            return caps[0]
        if has_law_of_past(model) and model.size <= PAIR_STATES:
            with suppress(InputError):  # a given environment that leaves the law of the present open
                caps.append((self._freshness(steps) * (1 + 1e-13), "freshness"))
        if has_influence(model):
            counted = min(steps, CAP_STEPS)
            cap = self._influence.cap(counted)
            if counted >= WINDOW_STEPS and self.windows is not None:
                for state in self.windows.follow(self._influence.unbounded(), counted)[1:]:
                    cap = np.minimum(cap, self.windows.present(state))  # it never grows with the steps
            caps.append((largest_of(add_swing(model, cap).max(axis=(1, 2)), self._blocks), "influence"))
        if has_slice(model) and len(caps) < 2 and steps > 1:  # no freshness: what decays with age, and never grows
            caps.append((largest_of(slice_bound(model, min(steps, CAP_STEPS)).ranges, self._blocks), "slice"))
        elif has_slice(model):
            caps.append((largest_of(one_step(model)[0], self._blocks), "slice"))
        return min(caps)
