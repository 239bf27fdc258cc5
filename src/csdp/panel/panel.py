"""Readings (numbers) and Panel (states) of named sequences on a regular grid of ticks, and the matching of names.

`match_names` is the one rule by which the sequences of data are matched with those of a chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.errors import InputError
from csdp.numbers import Floats, Indices, Ints, fill_masked

#: Where the edges and values of states come from.
Source = Literal["declared", "public", "private"]

#: Names that a message lists.
_LISTED = 8


@dataclass(frozen=True, eq=False)
class Panel:
    """States of s sequences at T ticks, -1 if a reading is missing.

    `states` (T, s): state numbers; `ticks` (T,): consecutive whole numbers; `times` (T,): as read; `step`: time from
    one tick to the next (seconds for timestamps); `values` (s, m): the number that each state carries, if known;
    `readings` (T, s): the numbers behind the states, NaN where missing, if they are known (to publish them);
    `source`: whether edges and values of the states were "declared", or learned from "public" or "private" readings.

    >>> Panel.from_states([[0, 1], [1, -1]], values=[0.0, 0.5, 1.0]).state_count
    3
    """

    names: tuple[str, ...]
    ticks: Ints
    times: npt.NDArray[Any]
    states: npt.NDArray[Any]
    step: int = 1
    values: Floats | None = None
    readings: Floats | None = None
    source: Source = "declared"

    def __post_init__(self) -> None:
        if self.source not in get_args(Source):
            raise InputError(f"panel: source {self.source!r} given; {', '.join(get_args(Source))}")
        object.__setattr__(self, "states", fill_masked(self.states, -1))
        object.__setattr__(self, "readings", fill_masked(self.readings, np.nan))
        _check_grid("panel: states", self.names, self.ticks, self.states)
        if not np.issubdtype(self.states.dtype, np.integer):
            raise InputError(f"panel: {self.states.dtype} given; states are whole numbers, -1 if one is missing")
        if self.states.size and self.states.min() < -1:
            raise InputError("panel: unknown state; states count from 0, and -1 marks a missing reading")
        if self.readings is not None:
            _check_grid("panel: readings", self.names, self.ticks, self.readings)
            if np.isinf(self.readings).any() or not np.array_equal(np.isnan(self.readings), self.states < 0):
                raise InputError("panel: readings must be finite numbers, and NaN if, and only if, a state is -1")
        if self.values is None:
            return
        if self.values.ndim != 2 or self.values.shape[0] != len(self.names) or not self.values.shape[1]:
            raise InputError(f"panel: values of shape {self.values.shape} given; (sequences, states) expected")
        if self.states.size and self.states.max() >= self.values.shape[1]:
            raise InputError(
                f"panel: unknown state; states are 0 to {self.values.shape[1] - 1}, and -1 if a reading is missing"
            )

    def __len__(self) -> int:
        return int(self.ticks.size)

    def __repr__(self) -> str:
        return f"Panel({len(self.names)} sequences, {len(self):,} ticks, step {self.step})"  # none of the readings

    @property
    def state_count(self) -> int:
        """m: as many states as there are values; without values the largest state and one."""
        if self.values is not None:
            return int(self.values.shape[1])
        return int(self.states.max(initial=-1)) + 1

    def between(self, start: int, stop: int) -> Panel:
        """Some of the ticks, by their places in the panel.

        >>> Panel.from_states([[0], [1], [1]]).between(1, 3).ticks.tolist()
        [1, 2]
        """
        rows = slice(start, stop)
        readings = None if self.readings is None else self.readings[rows]
        return replace(
            self, ticks=self.ticks[rows], times=self.times[rows], states=self.states[rows], readings=readings
        )

    def arrange(self, names: Sequence[str]) -> Panel:
        """The same panel with its sequences in the order of a chain's names.

        The same names in another order are put in order; a panel without names (x1, x2, ...), and any panel for a chain
        without names, is taken as it stands. Other names are refused.

        >>> Panel.from_states([[0, 1]], names=["b", "a"]).arrange(["a", "b"]).states.tolist()
        [[1, 0]]
        """
        hint = "Read the readings with names= of the chain, or make the chain with the names of the data"
        place = match_names(self.names, names, what="panel", hint=hint)
        if place is None:
            return self
        values = None if self.values is None else self.values[place]
        readings = None if self.readings is None else self.readings[:, place]
        return replace(self, names=tuple(names), states=self.states[:, place], values=values, readings=readings)

    @classmethod
    def from_states(
        cls,
        states: npt.ArrayLike,
        *,
        names: Sequence[str] | None = None,
        values: npt.ArrayLike | None = None,
        first_tick: int = 0,
    ) -> Panel:
        """A panel from state numbers.

        Args:
            states: state numbers (T, s), -1 if a reading is missing.
            names: names of the sequences; x1, x2, ... by default.
            values: the numbers that the states carry, (m,) or (s, m), if they are known.
            first_tick: the tick of the first row.

        >>> Panel.from_states([[0, 1], [1, -1]]).states.tolist()
        [[0, 1], [1, -1]]
        """
        _refuse_frame(states, "panel", "read_panel")
        array = np.asarray(fill_masked(np.ma.asarray(states), -1))
        if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"panel: {array.dtype} of shape {array.shape} given; whole numbers (ticks, sequences)")
        labels = default_names(names, array.shape[1])
        ticks = first_tick + np.arange(array.shape[0], dtype=np.int64)
        table = None if values is None else value_rows(values, array.shape[1])
        return cls(labels, ticks, ticks, array, 1, table)


@dataclass(frozen=True, eq=False)
class Readings:
    """Numbers of s sequences at T ticks, NaN if a reading is missing: what a file holds, before it becomes states.

    `readings` (T, s); `ticks`, `times`, `step` as in a `Panel`. They are private unless you know them to be public.

    >>> Readings.from_array([[1.5, 2.0], [float("nan"), 2.5]], names=("a", "b")).readings.shape
    (2, 2)
    """

    names: tuple[str, ...]
    ticks: Ints
    times: npt.NDArray[Any]
    readings: Floats
    step: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "readings", fill_masked(self.readings, np.nan))
        _check_grid("readings", self.names, self.ticks, self.readings)
        if np.isinf(self.readings).any():
            raise InputError("readings: infinite values; write missing readings as empty cells")

    def __len__(self) -> int:
        return int(self.ticks.size)

    def __repr__(self) -> str:
        return f"Readings({len(self.names)} sequences, {len(self):,} ticks, step {self.step})"  # none of the readings

    @classmethod
    def from_array(cls, readings: npt.ArrayLike, *, names: Sequence[str] | None = None, step: int = 1) -> Readings:
        """Readings from an array; its rows are consecutive ticks.

        Args:
            readings: numbers (T, s), NaN (or masked) if one is missing.
            names: names of the sequences; x1, x2, ... by default.
            step: time between two ticks.

        >>> Readings.from_array([[1.0], [2.0]], step=60).times.tolist()
        [0, 60]
        """
        _refuse_frame(readings, "readings", "read_readings")
        try:
            array = np.ma.filled(np.ma.asarray(readings).astype(np.float64), np.nan)
        except (TypeError, ValueError):
            raise InputError("readings: an array of numbers (ticks, sequences) expected; NaN where missing") from None
        if array.ndim != 2:
            raise InputError(f"readings: an array of shape {array.shape} given; (ticks, sequences) expected")
        if isinstance(step, bool) or not isinstance(step, int) or step < 1:
            raise InputError(f"step: {step!r} given for an array; a whole number of at least 1")
        ticks = np.arange(array.shape[0], dtype=np.int64)
        return cls(default_names(names, array.shape[1]), ticks, ticks * step, array, step)

    def select(self, names: Sequence[str]) -> Readings:
        """Some of the sequences, in the order given.

        >>> Readings.from_array([[1.0, 2.0]], names=("a", "b")).select(["b"]).names
        ('b',)
        """
        place = {name: i for i, name in enumerate(self.names)}
        unknown = [name for name in names if name not in place]
        if unknown:
            raise InputError(f"sequence {unknown[0]!r}: unknown; there are {', '.join(self.names[:8])}")
        columns = self.readings[:, [place[name] for name in names]]
        return Readings(tuple(names), self.ticks, self.times, columns, self.step)

    def split(self, at: str | int, *, timezone: str | None = None) -> tuple[Readings, Readings]:
        """The ticks that are over at a time, and the others: the public past, and the rest.

        `at`: a timestamp if times are timestamps ("2016-11-15"; in `timezone`, or in UTC, if it has no offset), else
        a whole number. A tick in which it lies belongs to the rest: what is resampled to it may have been read later.

        >>> past, rest = Readings.from_array([[1.0], [2.0], [3.0]]).split(2)
        >>> (len(past), rest.ticks.tolist())
        (2, [2])
        """
        from csdp.panel.times import read_moment

        try:
            when: Any = read_moment(str(at), timezone) if self.times.dtype.kind == "M" else int(at)
            cut = int(np.searchsorted(self.times + self.step, when, side="right"))
        except InputError:
            raise
        except (TypeError, ValueError):
            raise InputError(f"split: {at!r} is no time of the kind that these readings have") from None
        return self._rows(slice(None, cut)), self._rows(slice(cut, None))

    def without_gaps(self) -> Readings:
        """Only the ticks at which something was read, numbered from 0; `times` stay as they were.

        A step across a gap then looks like any other: for methods that cannot take gaps, never for publishing.

        >>> Readings.from_array([[1.0], [float("nan")], [3.0]]).without_gaps().times.tolist()
        [0, 2]
        """
        there = ~np.isnan(self.readings).all(axis=1)
        ticks = np.arange(int(there.sum()), dtype=np.int64)
        return Readings(self.names, ticks, self.times[there], self.readings[there], self.step)

    def _rows(self, rows: slice) -> Readings:
        return Readings(self.names, self.ticks[rows], self.times[rows], self.readings[rows], self.step)


def _check_grid(what: str, names: tuple[str, ...], ticks: Ints, cells: npt.NDArray[Any]) -> None:
    if cells.ndim != 2 or cells.shape != (ticks.size, len(names)):
        raise InputError(f"{what} of shape {cells.shape} given for {ticks.size} ticks, {len(names)} names")
    check.distinct(f"{what.partition(':')[0]}: names", names)
    if ticks.size and (np.diff(ticks) != 1).any():
        raise InputError(f"{what.partition(':')[0]}: ticks must be consecutive; mark missing readings as missing")


def default_names(names: Sequence[str] | None, sequences: int) -> tuple[str, ...]:
    """The names given, one each and distinct, or x1, x2, ...; the same as those of a chain without names."""
    if names is None:
        return number_names(sequences)
    labels = tuple(str(name) for name in names)
    if len(labels) != sequences:
        raise InputError(f"names: {len(labels)} given for {sequences} sequences; give one each")
    check.distinct("names", labels)
    return labels


def _refuse_frame(data: object, what: str, reader: str) -> None:
    """A data frame has names of its own, which an array would forget."""
    if hasattr(data, "columns"):
        raise InputError(f"{what}: {type(data).__name__} given, whose columns have names; read it with {reader}")


def value_rows(values: npt.ArrayLike, sequences: int, what: str = "values") -> Floats:
    """Values (m,) or (s, m) as one row per sequence; `what` they are called in a message."""
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.ndim not in {1, 2} or not table.size or (table.ndim == 2 and table.shape[0] != sequences):
        raise InputError(f"{what}: one row of numbers expected, or one for each of {sequences} sequences")
    if not np.isfinite(table).all():
        raise InputError(f"{what}: NaN or infinite entries are not allowed")
    return np.broadcast_to(table, (sequences, table.shape[-1])).copy()


def to_states(readings: Floats, values: Floats) -> npt.NDArray[np.int16]:
    """State numbers of readings (T, s) that carry the values (s, m); NaN is a missing reading (-1).

    A reading that is no declared value is refused.

    >>> to_states(np.array([[0.0, 2.0]]), np.array([[0.0, 1.0, 2.0]] * 2)).tolist()
    [[0, 2]]
    """
    readings = fill_masked(readings, np.nan)
    if readings.ndim != 2 or readings.shape[1] != values.shape[0]:
        raise InputError(f"readings: {readings.shape[-1]} columns given for {values.shape[0]} sequences")
    if np.isinf(readings).any():
        raise InputError("readings: infinite values; write missing readings as empty cells")
    order = np.argsort(values, axis=1)
    out = np.full(readings.shape, -1, dtype=np.int16)
    largest = float(np.abs(values).max())
    for i in range(values.shape[0]):
        column = readings[:, i]
        known = ~np.isnan(column)
        levels = values[i][order[i]]
        middle = (levels[1:] + levels[:-1]) / 2
        nearest = np.searchsorted(middle, column[known])
        # Declared values were put on a lattice (2^-21 of the largest); nothing else is forgiven.
        tolerance = min(1e-5 * largest, float(np.diff(np.unique(levels)).min(initial=np.inf)) / 2)
        off = np.abs(levels[nearest] - column[known]) > tolerance
        if off.any():
            # The reading itself is private; the message says only where it is and what is allowed.
            raise InputError(
                f"readings: {int(off.sum())} of sequence {i + 1} are none of its {levels.size} declared values; "
                "declare the values in the chain, or give a discretiser (`csdp plan --discretiser`)"
            )
        out[known, i] = order[i][nearest]
    return out


def number_names(sequences: int) -> tuple[str, ...]:
    """The default names x1, x2, ..."""
    return tuple(f"x{i + 1}" for i in range(sequences))


def match_names(
    given: Sequence[str], expected: Sequence[str], *, what: str, hint: str, rename: bool = False
) -> Indices | None:
    """The place of every expected sequence among the given ones; None if they stand in that order already.

    The same names, in whatever order, are matched by name; spaces around them do not count. Sequences without names
    (x1, x2, ...), on either side, are matched by their place, unless some name is on both sides: then it is not clear
    what is meant. Everything else is refused. With `rename` the given names are a declared list of other names, in the
    order of the expected ones: matched by place as well, if no name is on both sides.

    >>> match_names(["b", "a"], ["a", "b"], what="panel", hint="").tolist()
    [1, 0]
    >>> match_names(["hall", "kitchen"], ["x1", "x2"], what="panel", hint="") is None
    True
    >>> match_names(["hall", "x1"], ["x1", "x2"], what="panel", hint="read it with names=")
    Traceback (most recent call last):
    csdp.errors.InputError: panel: sequences hall, x1 given; the chain has x1, x2. read it with names=
    """
    mine, theirs = (tuple(name.strip() for name in names) for names in (given, expected))
    check.distinct(what, mine)
    if mine == theirs:
        return None
    if len(mine) == len(theirs):
        if set(mine) == set(theirs):
            place = {name: i for i, name in enumerate(mine)}
            return np.array([place[name] for name in theirs], dtype=np.intp)
        unnamed = number_names(len(mine)) in (mine, theirs)
        if (unnamed or rename) and not set(mine) & set(theirs):
            return None
    given_text, chain_text = _list_names(mine, theirs), _list_names(theirs, mine)
    if len(mine) == len(theirs):
        raise InputError(f"{what}: sequences {given_text} given; the chain has {chain_text}. {hint}")
    raise InputError(
        f"{what}: {len(mine):,} sequences {given_text} given; the chain has {len(theirs):,}: {chain_text}. {hint}"
    )


def arrange_names(given: Sequence[str], expected: Sequence[str]) -> tuple[str, ...]:
    """The names of a chain in its order, given in any order; or as many others, which stand for them place by place.

    >>> arrange_names(["b", "a"], ["a", "b"]), arrange_names(["s-1", "s-2"], ["a", "b"])
    (('a', 'b'), ('s-1', 's-2'))
    """
    hint = "Give the chain's names in any order, or other names for all of them, in the chain's order"
    place = match_names(given, expected, what="names", hint=hint, rename=True)
    names = tuple(name.strip() for name in given)
    return names if place is None else tuple(names[i] for i in place)


def read_labels(snapshot: Any) -> Mapping[str, Any] | None:
    """A snapshot that names its sequences, as a mapping: a dict, or a pandas Series with words as its index.

    >>> read_labels({"a": 1}), read_labels([1, 2])
    ({'a': 1}, None)
    """
    if isinstance(snapshot, Mapping):
        return snapshot
    index = getattr(snapshot, "index", None)
    if index is None or callable(index):  # a list has a method of that name
        return None
    labels = list(index)
    if not all(isinstance(label, str) for label in labels):
        return None
    check.distinct("snapshot", labels)
    return dict(zip(labels, list(snapshot), strict=True))


def place_states(snapshot: Mapping[str, Any], names: Sequence[str], *, missing: float = -1) -> list[Any]:
    """The states (or readings) of named sequences in the order of a chain's names; one that is not named is missing.

    >>> place_states({"b": 1}, ["a", "b"])
    [-1, 1]
    """
    known = set(names)
    unknown = [name for name in snapshot if name not in known]
    if unknown:
        raise InputError(
            f"snapshot: unknown sequence {unknown[0]!r}; the chain has {_list_names(tuple(names), tuple(snapshot))}. "
            "Name the sequences as the chain does, or give a list in its order"
        )
    return [snapshot.get(name, missing) for name in names]


def _list_names(names: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Some of the names, those first that the other side does not have."""
    if len(names) <= _LISTED:
        return ", ".join(names)
    known = set(others)
    ordered = sorted(names, key=lambda name: name in known)
    return ", ".join(ordered[:_LISTED]) + ", ..."
