"""The state of the accountant, its form in a ledger, and how releases that are not finished add to it."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from csdp.accountant.component import AccountedComponent
from csdp.arrays import Floats

#: Numbers of a state above which it is compressed, and how such a text begins.
PACKED_SIZE = 4096
COMPRESSED = "z:"
#: A release whose reading is not finished: how many ticks ago, whether stale, its noise level as a share of the plan's.
Pending = tuple[int, bool, float]


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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a ledger: a count where that says all, else the numbers."""
        if self.consecutive is not None:
            return {"tick": self.tick, "consecutive": self.consecutive}
        return {
            "tick": self.tick,
            "behind": list(self.behind),
            "sizes": [
                int(s.shape[0]) if s.ndim == 2 and s.shape[0] == s.shape[1] else list(s.shape) for s in self.slices
            ],
            "slices": [_pack(s) for s in self.slices],
            "pending": [list(entry) for entry in self.pending],
        }


def add_pending(
    component: AccountedComponent, state: Floats, behind: int, pending: Sequence[Pending], least: int, below: int
) -> tuple[Floats, int]:
    """Add what pending releases read at depths least <= depth < below, oldest first: the new state and its depth.

    A release `ago` ticks old read, at age a, the slice that is `ago + a` before now.

    Args:
        component: whose state it is.
        state: the state at depth `behind`.
        behind: how many slices before now the state lies.
        pending: the releases.
        least: the newest depth to add.
        below: one more than the oldest depth to add.
    """
    reads = [
        (ago + age, age, stale, share)
        for ago, stale, share in pending
        for age in component.ages
        if least <= ago + age < below
    ]
    for depth, age, stale, share in sorted(reads, reverse=True):
        # Only after a change of plan can a release read behind the state; that is then charged where the state is.
        back = depth > behind
        state = component.advance(state, 0 if back else behind - depth)
        state = component.add(state, age, stale=stale, behind=back, share=share)
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


def raise_state(state: Floats, excess: float) -> Floats:
    """A little more between any two snapshots: what a step in time surely shrinks (a factor on each it may not)."""
    square = state.shape[-1] > 1 and state.shape[-1] == state.shape[-2]
    apart = 1.0 - np.eye(state.shape[-1]) if square else np.ones((1, 1))
    return np.asarray(state + excess * float(state.max()) * apart)


def movement(before: Sequence[Floats], after: Sequence[Floats]) -> float:
    """Largest change of a state, relative to its largest entry."""
    # Equal entries may be infinite: a group that nothing bounds has not moved.
    far = (np.abs(np.subtract(a, b, out=np.zeros_like(a), where=a != b)) for a, b in zip(before, after, strict=True))
    return max(float(d.max() / max(b.max(), 1e-300)) for d, b in zip(far, after, strict=True))
