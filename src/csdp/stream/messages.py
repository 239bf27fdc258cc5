"""Messages: readings and snapshots from JSON, and the states of the chain that their values stand for.

A message that cannot be read becomes `Bad`, without its content."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.clock import Time, parse_time
from csdp.errors import InputError
from csdp.numbers import Floats
from csdp.panel import Discretiser
from csdp.plan import Plan
from csdp.publisher.sources import check_states_source

#: Bytes of one message; longer ones are counted as bad and never parsed.
MAX_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Reading:
    """One value of one sequence. `value` is unchecked: a bad one moves the clock like any other."""

    sequence: str
    time: Time
    value: object = None

    def __repr__(self) -> str:
        return f"Reading({self.sequence!r}, time {self.time})"  # readings are private: they stay out of logs


@dataclass(frozen=True)
class Snapshot:
    """Values of many sequences at one time: by name, or in the order of the dataset's sequences."""

    time: Time
    values: Mapping[str, object] | Sequence[object]

    def __repr__(self) -> str:
        return f"Snapshot(time {self.time}, {len(self.values) if isinstance(self.values, Sized) else 'no'} values)"


@dataclass(frozen=True)
class Bad:
    """A message that could not be read. `why` names the rule that it broke, never its content."""

    why: str


Message = Reading | Snapshot | Bad


#: What became of a message. "missing": an announced gap; "bad": no finite number, or no message at all; "duplicate":
#: the tick has a reading of this sequence that is as new; "late": its tick is closed; "ahead": its time is too far
#: ahead; "undated": its time is no timestamp where there must be one; "unknown": no sequence has its name; "recorded":
#: accepted, for later releases: its own tick has a recorded number, which stays; "outside": a number beyond the values
#: of the chain's states, which counts as the nearest.
Fate = Literal["accepted", "missing", "duplicate", "late", "ahead", "undated", "unknown", "bad", "recorded", "outside"]


def decode_message(payload: bytes, *, sequence: str | None = None) -> Message:
    """Decode a message from JSON: `{"time", "sequence", "value"}` or `{"time", "values"}`.

    `sequence`: the only one that the sender may write about, as on its own MQTT topic; the payload need not name it,
    must not name another one, and must be no snapshot.

    >>> decode_message(b'{"time": 3, "sequence": "a", "value": 1}')
    Reading('a', time 3)
    >>> decode_message(b'{"time": 3, "value": 1}', sequence="a")
    Reading('a', time 3)
    >>> decode_message(b'{"time": 3, "values": {"a": 1, "b": null}}')
    Snapshot(time 3, 2 values)
    >>> decode_message(b'{"time": 3')
    Bad(why='not JSON')
    >>> decode_message(b'{"time": 3, "values": {"a": 1, "b": 0}}', sequence="a")
    Bad(why='a snapshot on the topic of one sequence')
    """
    if len(payload) > MAX_BYTES:
        return Bad(f"longer than {MAX_BYTES:,} bytes")
    try:
        content = json.loads(payload, object_pairs_hook=_to_dict)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        return Bad("the same key twice" if isinstance(error, _RepeatedError) else "not JSON")
    if not isinstance(content, dict):
        return Bad("not a JSON object")
    try:
        time = parse_time(content.get("time"))
    except InputError:
        return Bad("no time, or one that cannot be read")
    if "values" not in content:
        return _decode_reading(time, content, sequence)
    values = content["values"]
    why = "values: neither an object nor a list" if sequence is None else "a snapshot on the topic of one sequence"
    return Snapshot(time, values) if sequence is None and isinstance(values, dict | list) else Bad(why)


class _RepeatedError(ValueError):
    """A key that occurs twice: it is not clear which value is meant."""


def _to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise _RepeatedError
    return content


def _decode_reading(time: Time, content: dict[str, Any], sequence: str | None) -> Message:
    name = content.get("sequence", sequence)
    if not isinstance(name, str):
        return Bad("no sequence")
    if sequence is not None and name != sequence:
        return Bad("one sequence in the topic, another in the payload")
    if "value" not in content:
        return Bad("no value")
    return Reading(name, time, content["value"])


def to_number(value: object, labels: Sequence[str] | None = None) -> float | None:
    """A value as a number; NaN for an announced gap (null); None if it is not a finite number.

    `labels`: texts that readings may be; such a reading becomes the index of its label.

    >>> to_number(2), to_number("2"), to_number(True), to_number(float("inf")), to_number("on", ["off", "on"])
    (2.0, None, None, None, 1.0)
    """
    if value is None:
        return float("nan")
    if isinstance(value, str) and labels is not None:
        return float(labels.index(value.strip())) if value.strip() in labels else None
    if isinstance(value, bool) or not isinstance(value, Real):  # numbers of numpy are Real too
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def to_numbers(values: Sequence[object], labels: Sequence[str] | None = None) -> tuple[npt.NDArray[np.float64], int]:
    """Many values as numbers, NaN if there is none, and how many are bad (announced gaps are not).

    >>> to_numbers([1, None, "x", float("inf")])
    (array([ 1., nan, nan, nan]), 2)
    """
    kinds = set(map(type, values))
    if kinds <= {int, float, type(None)}:  # nearly always, and then much faster
        with suppress(OverflowError):
            numbers = np.array(values, dtype=np.float64)
            numbers[np.isinf(numbers)] = np.nan
            gaps = list(values).count(None) if type(None) in kinds else 0
            return numbers, int(np.isnan(numbers).sum()) - gaps
    each = [to_number(value, labels) for value in values]
    return np.array([np.nan if value is None else value for value in each]), sum(value is None for value in each)


class Nearest:
    """The state whose declared value is nearest. `is_outside` says which readings lie beyond all of them.

    >>> nearest = Nearest(np.array([[0.0, 1.0], [0.0, 10.0], [0.0, 10.0], [0.0, 1.0]]))
    >>> nearest.states_of(np.array([0.9, 4.0, 99.0, np.nan])).tolist()
    [1, 0, 1, -1]
    >>> nearest.is_outside(np.array([2, 3]), np.array([99.0, np.nan])).tolist()
    [True, False]
    """

    categories: tuple[str, ...] | None = None

    def __init__(self, values: Floats) -> None:
        self._order = np.argsort(values, axis=1)
        levels = np.take_along_axis(values, self._order, axis=1)
        self._middle = (levels[:, 1:] + levels[:, :-1]) / 2
        # Declared values were put on a lattice (2^-21 of the largest); nothing else is forgiven.
        tolerance = 1e-5 * float(np.abs(values).max(initial=0.0))
        self._low = levels[:, 0] - tolerance
        self._high = levels[:, -1] + tolerance
        self.bounds = float(levels.min()), float(levels.max())  #: the least and the largest value of any sequence

    def is_outside(self, sequences: npt.NDArray[np.intp], readings: Floats) -> npt.NDArray[np.bool_]:
        """Which readings of some sequences lie beyond their values; a missing one (NaN) does not."""
        return np.asarray((readings < self._low[sequences]) | (readings > self._high[sequences]))

    def states_of(self, snapshot: Floats) -> npt.NDArray[Any]:
        """The nearest state of each reading."""
        place = (self._middle < snapshot[:, None]).sum(axis=1)
        states = np.take_along_axis(self._order, place[:, None], axis=1)[:, 0]
        return np.where(np.isnan(snapshot), -1, states)


def find_states(discretiser: Discretiser | None, names: Sequence[str], plan: Plan) -> Discretiser | Nearest:
    """What turns snapshots into states, in the order of a chain; without a discretiser, the nearest declared value.

    `names` are those of the sequences in messages, in the order of the chain.
    """
    model = plan.model
    if discretiser is None:
        return Nearest(model.value_table)
    check_states_source(discretiser.source, plan)
    if discretiser.state_count > model.states:
        raise InputError(
            f"discretiser: {discretiser.state_count} states given, the chain has {model.states}; give the discretiser "
            "that the chain was fitted with"
        )
    return discretiser.arrange(names if set(discretiser.names) == set(names) else model.names)
