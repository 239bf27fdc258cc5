"""What the accountant remembers after a tick: its state, late and missing readings, in memory and recorded."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.numbers import Bools, Floats, Indices, freeze
from csdp.plan import ALGORITHM

#: Numbers of a state above which it is compressed, and the prefix of such a text.
PACKED_SIZE = 4096
COMPRESSED = "z:"
#: Sequences of one delay that a record lists one by one; more are packed as bits.
_LISTED = 64
#: The keys of missing sequences in a record, and of those that have no names.
_MISSING, _UNNAMED = "missing", "unnamed"
#: Sequences that a record may name.
_MOST = 2**31


@dataclass(frozen=True)
class Lateness:
    """By delay, in steps, the sequences that were read so much later than planned; all others as planned.

    `missing`: the sequences that were not read at all, of which the release reveals nothing. `unnamed`: some were not
    read, and it is not known which.

    >>> Lateness.from_delays([0, 2, 0, 2, 1]).to_record()
    {'1': [4], '2': [1, 3]}
    >>> Lateness.from_delays([0, -1, 0]).to_record()
    {'missing': [1]}
    """

    by_delay: tuple[tuple[int, tuple[int, ...]], ...] = ()
    missing: tuple[int, ...] = ()
    unnamed: bool = False

    @classmethod
    def from_delays(cls, delays: npt.ArrayLike) -> Lateness:
        """From the steps by which every sequence was late, 0 if it was not, and -1 if it was not read."""
        steps = np.asarray(delays)
        if steps.ndim != 1 or steps.dtype.kind not in "iu" or (steps < -1).any():
            raise InputError(
                f"delays: {steps.dtype} of shape {steps.shape} given; whole steps by sequence, 0 or more, -1 if missing"
            )
        late = [int(delay) for delay in np.unique(steps) if delay > 0]
        by_delay = tuple((delay, tuple(np.flatnonzero(steps == delay).tolist())) for delay in late)
        return cls(by_delay, tuple(np.flatnonzero(steps == -1).tolist()))

    def __bool__(self) -> bool:
        return bool(self.by_delay or self.missing or self.unnamed)

    @property
    def worst(self) -> int:
        """The longest delay."""
        return max((delay for delay, _ in self.by_delay), default=0)

    @cached_property
    def _missing(self) -> frozenset[int]:
        return frozenset(self.missing)

    @cached_property
    def concerned(self) -> frozenset[int]:
        """The sequences that were late or missing."""
        return self._missing.union(*(late for _, late in self.by_delay))

    def was_read(self, members: Sequence[int]) -> Bools:
        """Whether each of some sequences was read."""
        return np.array([member not in self._missing for member in members])

    def delays_of(self, members: Sequence[int]) -> Indices:
        """The delay of some sequences."""
        last = max(members, default=-1)
        delays = np.zeros(last + 1, dtype=np.intp)
        for delay, late in self.by_delay:
            delays[[k for k in late if k <= last]] = delay
        return delays[list(members)]

    def to_record(self) -> dict[str, Any]:
        """The form that is recorded: sequences by delay, packed if there are many."""
        groups: list[tuple[str, tuple[int, ...]]] = [(str(delay), late) for delay, late in self.by_delay]
        groups += [(_MISSING, self.missing)] if self.missing else []
        groups += [(_UNNAMED, ())] if self.unnamed else []
        return {name: list(late) if len(late) <= _LISTED else _pack_bits(late) for name, late in groups}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Lateness:
        """From the recorded form."""
        unpacked = {
            name: _unpack_bits(late) if isinstance(late, str) else tuple(map(int, late))
            for name, late in record.items()
        }
        missing, unnamed = unpacked.pop(_MISSING, ()), unpacked.pop(_UNNAMED, None) is not None
        groups = {int(delay): late for delay, late in unpacked.items()}
        named = [*missing, *(k for late in groups.values() for k in late)]
        if any(delay < 1 for delay in groups) or len(set(named)) < len(named) or any(not 0 <= k < _MOST for k in named):
            raise InputError("lateness: a record with delays below 1, or a sequence in two places; it was altered")
        return cls(tuple(sorted(groups.items())), missing, unnamed)


#: How a release was read: as planned (False), some of it later, it is not known which (True), or which and how late.
Stale = bool | Lateness


def was_late(stale: Stale) -> bool:
    """Whether something was read later than planned."""
    return stale.worst > 0 if isinstance(stale, Lateness) else stale


def simplify_stale(stale: Stale, *, delays: bool, missing: bool) -> Stale:
    """What an accountant remembers of how a release was read.

    Args:
        stale: what is known of it.
        delays: whether it follows which readings were late; else a late one counts whole.
        missing: whether it matters which were missing; else they count as read.
    """
    if not isinstance(stale, Lateness):
        return stale
    if stale.by_delay:
        return (stale if missing else Lateness(stale.by_delay)) if delays else True
    return stale if missing and stale else False


def record_stale(stale: Stale) -> Any:
    """The recorded form of how a release was read."""
    return stale.to_record() if isinstance(stale, Lateness) else bool(stale)


def read_stale(content: Any) -> Stale:
    """How a release was read, from its recorded form."""
    return Lateness.from_record(content) if isinstance(content, Mapping) else bool(content)


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
        """Plain data for a ledger: a count if that says all, else the numbers."""
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
        """A state in its recorded form; without its numbers if a count of releases stands for them."""
        recorded = zip(content.get("slices", ()), content.get("sizes", ()), strict=True)
        return cls(
            int(content["tick"]),
            tuple(int(depth) for depth in content.get("behind", ())),
            tuple(unpack_state(text, size) for text, size in recorded),
            tuple((int(ago), read_stale(stale), float(share)) for ago, stale, share in content.get("pending", ())),
            int(content["consecutive"]) if "consecutive" in content else None,
        )


def _pack_bits(late: Sequence[int]) -> str:
    bits: Bools = np.zeros(max(late) + 1, dtype=bool)
    bits[list(late)] = True
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def _unpack_bits(text: str) -> tuple[int, ...]:
    raw = zlib.decompressobj().decompress(base64.b64decode(text), _MOST // 8)
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(raw, dtype=np.uint8))).tolist())


def _pack(state: Floats) -> str:
    """The numbers of a state as text; compressed if there are many."""
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
