"""What the accountant asks of a component, and what a release reads of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from csdp.accountant.lateness import Stale
from csdp.arrays import Bools, Floats
from csdp.chain import Model

#: Numbers of a state up to which it is followed who was missing: such a state is recorded with every release.
FOLLOWED_NUMBERS = 16_384

Kind = Literal["metric", "scalar", "contraction", "cap", "vector", "slice"]


@dataclass(frozen=True, eq=False)
class Read:
    """What a release reads at one slice: at one age, `delay` steps later than planned.

    `rows`: which sequences of the component, None for all. `whole`: some readings were late and it is not known which,
    so that the release counts whole, for everything, at its newest age.
    """

    age: int
    delay: int = 0
    rows: Bools | None = None
    whole: bool = False


class AccountedComponent(Protocol):
    """What the accountant asks of a component."""

    model: Model
    ages: tuple[int, ...]
    alpha: float
    kind: Kind
    alike: bytes | None  #: which components are alike, where this one stands for several; None where it stands alone

    @property
    def finds_rest(self) -> bool:
        """Whether `state_at_rest` may find one."""

    @property
    def oldest(self) -> int:
        """Steps before now from which on a state waits for no more readings."""

    @property
    def follows_delays(self) -> bool:
        """Whether it counts a late reading where it was read."""

    @property
    def follows_missing(self) -> bool:
        """Whether a sequence that was not read costs nothing."""

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""

    def reads(self, stale: Stale) -> list[Read]:
        """What a release reads, slice by slice."""

    def initial_state(self) -> Floats:
        """The state before any release."""

    def state_at_rest(self) -> Floats | None:
        """A state that a release at every tick does not raise; None where none is found."""

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between two snapshots that differ in this component only."""

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan, given the components and states of that plan.

        `before` is empty where the history ran under another chain. `cost`: its worst log ratio under any model.
        """

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice.

        Args:
            state: the state at the slice that is read, or at a newer one.
            read: what is read there, one of `reads`.
            behind: how many slices before the state's own it lies; then it counts between any two snapshots.
            share: the noise level of the release as a share of the plan's; every cost is proportional to it.
        """

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound it rests on."""

    def peak(self, state: Floats, steps: int) -> float:
        """The largest leakage of the present from now on if nothing more is published."""

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """A bound on the leakage `steps` after the slice of the state and later; never grows with `steps`."""

    def cap(self, steps: int) -> tuple[float, str]:
        """What no number of releases exceeds when all that was read is `steps` old, and the bound that gives it."""

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases, before and after it, reveal of one record; `releases` None: for ever.

        Args:
            releases: number of releases at consecutive ticks.
            stale: by how many ticks a reading may be older than planned.
            earlier: what releases under earlier plans add to one slice.
            overlap: whether this plan reads slices that they read.
        """


#: Every component of the plan before, under the same model, with its state at the newest slice of the history.
Before = Sequence[tuple[AccountedComponent, Floats]]


def worst_component(before: Before) -> float:
    """The worst log ratio of a history between any two snapshots of one component."""
    return max(component.worst_log_ratio(state) for component, state in before)


def can_follow_missing(components: Sequence[AccountedComponent]) -> bool:
    """Whether missing readings can cost nothing: some component follows its sequences one by one, and none takes a
    programme for every tick that is not as planned, or numbers that are too many to record.
    """
    numbers = [each.initial_state().size for each in components if each.follows_missing]
    return 0 < sum(numbers) <= FOLLOWED_NUMBERS and all(each.kind != "metric" for each in components)


def stands_for_others(alike: bytes | None, old: bytes | None) -> bool:
    """Whether a component stands for some whose state under the plan before need not be that of its own sequences.

    Components that are alike under one plan may have been read at different ages under another. The arguments are
    `alike` of the component and of the old one with the same sequences.
    """
    return alike is not None and alike != old
