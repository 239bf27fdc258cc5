"""Which sequences were read later than planned, and which not at all: public, and recorded with the charge."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Indices
from csdp.errors import InputError

#: Sequences of one delay that are listed one by one in a record; more are packed as bits.
_LISTED = 64
#: The key of sequences that were not read, in a record.
_MISSING = "missing"
#: Sequences that a record may name.
_MOST = 2**31


@dataclass(frozen=True)
class Lateness:
    """By delay, in steps, the sequences that were read so much later than planned; all others as planned.

    `missing`: the sequences that were not read at all, of which the release tells nothing.

    >>> Lateness.from_delays([0, 2, 0, 2, 1]).to_record()
    {'1': [4], '2': [1, 3]}
    >>> Lateness.from_missing([False, True, False]).to_record()
    {'missing': [1]}
    """

    by_delay: tuple[tuple[int, tuple[int, ...]], ...]
    missing: tuple[int, ...] = ()

    @classmethod
    def from_delays(cls, delays: npt.ArrayLike) -> Lateness:
        """From the steps by which every sequence was late, 0 where it was not."""
        steps = np.asarray(delays)
        if steps.ndim != 1 or steps.dtype.kind not in "iu" or (steps < 0).any():
            raise InputError(f"delays: {steps.dtype} of shape {steps.shape} given; whole steps, 0 or more, by sequence")
        late = [int(delay) for delay in np.unique(steps) if delay > 0]
        return cls(tuple((delay, tuple(np.flatnonzero(steps == delay).tolist())) for delay in late))

    @classmethod
    def from_missing(cls, missing: npt.ArrayLike) -> Lateness:
        """From whether every sequence was not read; those that were, as planned."""
        absent = np.asarray(missing)
        if absent.ndim != 1 or absent.dtype != np.bool_:
            raise InputError(f"missing: {absent.dtype} of shape {absent.shape} given; true or false, by sequence")
        return cls((), tuple(np.flatnonzero(absent).tolist()))

    def __bool__(self) -> bool:
        return bool(self.by_delay or self.missing)

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
        """The form that is recorded: sequences by delay, packed where there are many."""
        groups: list[tuple[str, tuple[int, ...]]] = [(str(delay), late) for delay, late in self.by_delay]
        groups += [(_MISSING, self.missing)] if self.missing else []
        return {name: list(late) if len(late) <= _LISTED else _pack(late) for name, late in groups}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Lateness:
        """From the recorded form."""
        unpacked = {
            name: _unpack(late) if isinstance(late, str) else tuple(map(int, late)) for name, late in record.items()
        }
        missing = unpacked.pop(_MISSING, ())
        groups = {int(delay): late for delay, late in unpacked.items()}
        named = [*missing, *(k for late in groups.values() for k in late)]
        if any(delay < 1 for delay in groups) or len(set(named)) < len(named) or any(not 0 <= k < _MOST for k in named):
            raise InputError("lateness: a record with delays below 1, or a sequence in two places; it was altered")
        return cls(tuple(sorted(groups.items())), missing)


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
        missing: whether it follows which were missing; else they count as read.
    """
    if not isinstance(stale, Lateness):
        return stale
    if stale.by_delay:
        return (stale if missing else Lateness(stale.by_delay)) if delays else True
    return stale if missing and stale.missing else False


def record_stale(stale: Stale) -> Any:
    """The recorded form of how a release was read."""
    return stale.to_record() if isinstance(stale, Lateness) else bool(stale)


def read_stale(content: Any) -> Stale:
    """How a release was read, from its recorded form."""
    return Lateness.from_record(content) if isinstance(content, Mapping) else bool(content)


def _pack(late: Sequence[int]) -> str:
    bits: Bools = np.zeros(max(late) + 1, dtype=bool)
    bits[list(late)] = True
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def _unpack(text: str) -> tuple[int, ...]:
    raw = zlib.decompressobj().decompress(base64.b64decode(text), _MOST // 8)
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(raw, dtype=np.uint8))).tolist())
