"""`SmallerComponent`: a component of a forward chain that is followed by two states, of which the smaller counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from csdp.accountant.component import JointComponent
from csdp.accountant.lateness import Stale
from csdp.accountant.protocol import Before, Kind, Read
from csdp.accountant.vector import SliceComponent
from csdp.arrays import Floats


@dataclass(frozen=True, eq=False)
class _PartRead(Read):
    """What one of the two states is charged for."""

    part: int = 0


class SmallerComponent:
    """The scalar and the slice state of one component, side by side.

    Formal guarantee: each of them bounds what any history reveals, so at every moment the smaller number does. Neither
    is the smaller one always: slice loses nothing between sequences that depend weakly, and stops decaying where they
    are persistent and strongly coupled.

    State (n, 1): the numbers of the scalar state, then those of the slice state.
    """

    kind: Kind = "scalar"
    finds_rest = True
    follows_missing = False

    def __init__(self, scalar: JointComponent, slices: SliceComponent) -> None:
        self._parts: tuple[JointComponent, SliceComponent] = (scalar, slices)
        self._shapes = [part.initial_state().shape for part in self._parts]
        self._place = scalar.initial_state().size  # where the slice state begins
        self.model = scalar.model
        self.ages = scalar.ages
        self.alpha = scalar.alpha
        self.oldest = max(scalar.oldest, slices.oldest)
        self.alike = slices.alike
        self.follows_delays = slices.follows_delays

    def _split(self, state: Floats) -> Iterator[tuple[JointComponent | SliceComponent, Floats]]:
        """Both components, each with its own state."""
        scalar, slices = self._parts
        yield scalar, state[: self._place].reshape(self._shapes[0])
        yield slices, state[self._place :].reshape(self._shapes[1])

    def initial_state(self) -> Floats:
        """The state before any release."""
        return _join(part.initial_state() for part in self._parts)

    def state_at_rest(self) -> Floats | None:
        """A state that a release at every tick does not raise: infinite in the scalar part where none is found."""
        scalar, slices = self._parts
        rest = scalar.state_at_rest()
        return _join([np.full(self._shapes[0], np.inf) if rest is None else rest, slices.state_at_rest()])

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
        """What a release reads, for each of the two states: only slice counts a late reading where it was read."""
        return [
            _PartRead(read.age, read.delay, read.rows, read.whole, number)
            for number, reads in enumerate((self._parts[0].reads(stale), self._parts[1].reads(stale)))
            for read in reads
        ]

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add what a release reads at one slice to the state that is charged for it."""
        assert isinstance(read, _PartRead)
        return _join(
            part.add(own, read, behind=behind, share=share) if number == read.part else own
            for number, (part, own) in enumerate(self._split(state))
        )

    def advance(self, state: Floats, steps: int) -> Floats:
        """The state seen from `steps` slices later."""
        return _join(part.advance(own, steps) for part, own in self._split(state))

    def leakage(self, state: Floats, steps: int) -> tuple[float, str]:
        """Leakage of the present, `steps` after the slice of the state, and the bound that gives it."""
        return min((part.leakage(own, steps) for part, own in self._split(state)), key=itemgetter(0))

    def peak(self, state: Floats, steps: int) -> float:
        """The largest leakage of the present from now on if nothing more is published, by either state."""
        return min(part.peak(own, steps) for part, own in self._split(state))

    def decaying_bound(self, state: Floats, steps: int) -> float:
        """What a state can still tell `steps` later or after that; never grows with `steps`."""
        return min(part.decaying_bound(own, steps) for part, own in self._split(state))

    def cap(self, steps: int) -> tuple[float, str]:
        """What no number of releases passes when all that was read is `steps` old."""
        return self._parts[0].cap(steps)

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases, before and after, reveal of one record."""
        return min(part.lifetime(releases, stale=stale, earlier=earlier, overlap=overlap) for part in self._parts)


def _join(states: Iterable[Floats]) -> Floats:
    """Two states as one column."""
    return np.concatenate([state.reshape(-1, 1) for state in states])
