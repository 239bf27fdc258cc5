"""The state of the accountant, its form in a ledger, and how releases that are not finished add to it."""

from __future__ import annotations

import base64
import math
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from csdp.accountant.lateness import Stale, read_stale, record_stale
from csdp.accountant.protocol import AccountedComponent
from csdp.arrays import Floats, freeze
from csdp.plan import ALGORITHM

#: Numbers of a state above which it is compressed, and how such a text begins.
PACKED_SIZE = 4096
COMPRESSED = "z:"
#: Movement of a state, relative to its largest entry, below which it may be at rest.
_STILL = 1e-6
#: Ticks without coming closer to rest after which it is the solver's noise that moves a state.
_STALLED = 16
#: A release whose reading is not finished: how many ticks ago, what of it was late, its noise level as a share of the
#: plan's.
Pending = tuple[int, Stale, float]


@dataclass(frozen=True, eq=False)
class State:
    """What the accountant remembers after a tick.

    `slices[i]` is the state of component i at the slice `tick - behind[i]`, the newest one that no later release reads;
    `pending` releases (ticks ago, stale, share) still add to newer ones. `consecutive`: how many releases at
    consecutive ticks, all as planned, are the whole history (None if it is another); equal histories share their work.
    """

    tick: int
    behind: tuple[int, ...]
    slices: tuple[Floats, ...]
    pending: tuple[Pending, ...] = ()
    consecutive: int | None = None

    def __post_init__(self) -> None:
        for numbers in self.slices:  # equal histories share them
            freeze(numbers)

    def pending_after(self, passed: int) -> tuple[Pending, ...]:
        """The releases that still add to newer slices, `passed` ticks after the state's own."""
        return tuple((ago + passed, stale, share) for ago, stale, share in self.pending)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a ledger: a count where that says all, else the numbers."""
        if self.consecutive is not None:
            return {"tick": self.tick, "consecutive": self.consecutive}
        return {
            "tick": self.tick,
            "algorithm": ALGORITHM,
            "behind": list(self.behind),
            "sizes": [
                int(s.shape[0]) if s.ndim == 2 and s.shape[0] == s.shape[1] else list(s.shape) for s in self.slices
            ],
            "slices": [_pack(s) for s in self.slices],
            "pending": [[ago, record_stale(stale), share] for ago, stale, share in self.pending],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> State:
        """A state in its recorded form; without its numbers where a count of releases stands for them."""
        recorded = zip(content.get("slices", ()), content.get("sizes", ()), strict=True)
        return cls(
            int(content["tick"]),
            tuple(int(depth) for depth in content.get("behind", ())),
            tuple(unpack_state(text, size) for text, size in recorded),
            tuple((int(ago), read_stale(stale), float(share)) for ago, stale, share in content.get("pending", ())),
            int(content["consecutive"]) if "consecutive" in content else None,
        )


def add_pending(
    component: AccountedComponent,
    state: Floats,
    behind: int,
    pending: Sequence[Pending],
    *,
    least: int,
    below: int,
    is_new: bool = False,
) -> tuple[Floats, int]:
    """Add what pending releases read at depths least <= depth < below, oldest first: the new state and its depth.

    A release `ago` ticks old read, at age a, the slice that is `ago + a` before now, or further back what was late.

    Args:
        component: whose state it is.
        state: the state at depth `behind`.
        behind: how many slices before now the state lies.
        pending: the releases.
        least: the newest depth to add.
        below: one more than the oldest depth to add.
        is_new: whether the last release was not added before, so that whatever it read further back is to be added too.
    """
    new = len(pending) - 1 if is_new else -1
    reads = [
        (ago + read.age + read.delay, read, share)
        for n, (ago, stale, share) in enumerate(pending)
        for read in component.reads(stale)
        if least <= ago + read.age + read.delay and (ago + read.age + read.delay < below or n == new)
    ]
    for depth, read, share in sorted(reads, key=itemgetter(0), reverse=True):
        # Behind the state lie readings later than it waits for, and after a change of plan others: they are charged
        # where the state is.
        if depth < behind:
            state = component.advance(state, behind - depth)
        state = component.add(state, read, behind=max(depth - behind, 0), share=share)
        behind = min(behind, depth)
    return state, behind


def _pack(state: Floats) -> str:
    """The numbers of a state as text; compressed where there are many."""
    raw = np.ascontiguousarray(state, dtype="<f8").tobytes()
    if state.size <= PACKED_SIZE:
        return base64.b64encode(raw).decode()
    return COMPRESSED + base64.b64encode(zlib.compress(raw, 1)).decode()


def unpack_state(text: str, size: int | Sequence[int]) -> Floats:
    """A state from its text; `size` as `State.to_dict` wrote it."""
    shape = (size, size) if isinstance(size, int) else tuple(size)
    limit = 8 * math.prod(shape)
    if text.startswith(COMPRESSED):
        raw = zlib.decompressobj().decompress(base64.b64decode(text.removeprefix(COMPRESSED)), limit)
    else:
        raw = base64.b64decode(text)
    return np.frombuffer(raw, dtype="<f8").reshape(shape).copy()


class ConsecutiveHistory:
    """The states after 0, 1, 2, ... releases at consecutive ticks, all as planned, up to a state at rest.

    A state at rest is one that a further release does not raise; it lies above the state of every longer history.
    Several threads may ask at once: one of them extends it, so that each state follows the one before it.

    Args:
        start: the state before any release.
        release: the state after one more release at the next tick.
        find_rest: a state at rest where one is known without following the history, else None.
        oldest: the oldest age of the plan; younger histories do not count as settled.
        followed: releases after which the state at rest stands for all longer histories, where it can be found: one
            more would cost more work than it is sharper.
    """

    def __init__(
        self,
        start: State,
        release: Callable[[State], State],
        find_rest: Callable[[], State | None],
        *,
        oldest: int,
        followed: int,
    ) -> None:
        self.states = [start]
        self._release, self._find_rest, self._oldest = release, find_rest, oldest
        self._followed = max(followed, oldest + 2)
        self._moves: list[float] = []
        self._turn = threading.Lock()
        self.at_rest = False

    def extend(self, releases: int) -> int:
        """The place of the state after n releases, computed where it is not known yet; that at rest for larger n."""
        with self._turn:
            while len(self.states) <= releases and not self.at_rest:
                self._follow_one_more()
            return min(releases, len(self.states) - 1)

    def _follow_one_more(self) -> None:
        last = self.states[-1]
        following = self._release(replace(last, consecutive=None))
        n = len(self.states)
        self.states.append(replace(following, consecutive=n))
        moved = _movement(last.slices, following.slices)
        self._moves.append(moved)
        if n <= 1 + self._oldest:
            return
        if moved < _STILL or (n >= self._followed and self._find_rest() is not None):
            self._settle(self.states[-1], moved)
        # An exact rule would move the state less at every tick; a solver's noise does not shrink.
        stalled = len(self._moves) > 2 * _STALLED and min(self._moves[-_STALLED:]) >= min(self._moves[:-_STALLED])
        if not self.at_rest and stalled:
            self._settle_above_noise()

    def place(self, releases: int) -> int:
        """The place whose state is looked at for n releases: up to 64 their own, then one of 32 for every doubling.

        Every release raises a state, so that of a few more releases is a bound.
        """
        apart = 1 << max(releases.bit_length() - 6, 0)
        return self.extend(-(-releases // apart) * apart)

    def _settle(self, base: State, moved: float) -> None:
        """Once the state hardly moves: raise it to one that a further release does not raise at all."""
        tick, n = self.states[-1].tick + 1, len(self.states)
        at_rest = self._find_rest()
        if at_rest is not None:  # above every history, and what plans are held against
            self.states.append(replace(at_rest, tick=tick, consecutive=n))
            self.at_rest = True
            return
        for factor in (4, 32, 256, 2048):
            excess = max(moved, 1e-11) * factor
            above = replace(base, slices=tuple(_raise(s, excess) for s in base.slices), consecutive=None)
            following = self._release(above)
            if all((f <= a).all() for f, a in zip(following.slices, above.slices, strict=True)):
                self.states.append(replace(above, tick=tick, consecutive=n))
                self.at_rest = True
                return

    def _settle_above_noise(self) -> None:
        """As `_settle`, from the least of the last states (noise only adds), then down as far as the rule leads.

        Whatever lies above the state of every history still does so after one more release of each.
        """
        recent = self.states[-_STALLED:]
        noise = max(_STILL, float(np.median(self._moves[-_STALLED:])))  # one that repeats itself shows in no movement
        least = tuple(np.minimum.reduce(slices) for slices in zip(*(state.slices for state in recent), strict=True))
        self._moves.clear()
        self._settle(replace(recent[-1], slices=least), noise)
        for _ in range(_STALLED if self.at_rest else 0):
            above = replace(self.states[-1], consecutive=None)
            lower = tuple(map(np.minimum, above.slices, self._release(above).slices))
            self.states[-1] = replace(self.states[-1], slices=lower)
            if _movement(above.slices, lower) < noise:
                return


def _raise(state: Floats, excess: float) -> Floats:
    """A little more between any two snapshots: what a step in time surely shrinks (a factor on each it may not)."""
    square = state.shape[-1] > 1 and state.shape[-1] == state.shape[-2]
    apart = 1.0 - np.eye(state.shape[-1]) if square else np.ones((1, 1))
    return np.asarray(state + excess * _largest_finite(state) * apart)


def _movement(before: Sequence[Floats], after: Sequence[Floats]) -> float:
    """Largest change of a state, relative to its largest entry."""
    # Equal entries may be infinite: a component that nothing bounds has not moved.
    far = (np.abs(np.subtract(a, b, out=np.zeros_like(a), where=a != b)) for a, b in zip(before, after, strict=True))
    return max(float(d.max() / max(_largest_finite(b), 1e-300)) for d, b in zip(far, after, strict=True))


def _largest_finite(state: Floats) -> float:
    """What is infinite stays so, and says nothing of how far the rest has moved."""
    return float(np.max(state, where=np.isfinite(state), initial=0.0))
