"""Columns of numbers, put on a regular grid of ticks: order, repetition, resampling, gaps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.errors import InputError, TooLargeError
from csdp.panel.readings import Readings
from csdp.panel.times import TimeColumn, check_no_months, parse_step

if TYPE_CHECKING:
    import pyarrow

Duplicates = Literal["refuse", "first", "last", "mean"]
Resample = Literal["first", "last", "mean"]

#: Ticks that gaps may add to what was read.
MAX_GAP = 1_000_000
#: Cells that a grid may have: 8 GB.
MAX_CELLS = 1_000_000_000
#: Cells of text that count as empty, whatever reads them.
EMPTY = ("", "na", "n/a", "nan", "null", "none")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)


def read_numbers(
    label: str,
    name: str,
    column: pyarrow.ChunkedArray,
    *,
    categories: Sequence[str] | None = None,
    decimal: str = ".",
) -> Floats:
    """A column as numbers, NaN where empty; with categories, the place of each label among them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    text = kinds.is_string(column.type) or kinds.is_large_string(column.type)
    if categories is not None:
        return _read_categories(label, name, column.cast(pa.string()), categories)
    if text:
        words = pc.utf8_trim_whitespace(column.cast(pa.string()))
        empty = pc.is_in(pc.utf8_lower(words), value_set=pa.array(EMPTY))
        words = pc.if_else(empty, pa.scalar(None, pa.string()), words)
        if decimal == ",":  # a point beside it would stand between thousands, or be another file's decimal mark
            points = pc.match_substring(words, ".")
            words = pc.if_else(points, pa.scalar("?", pa.string()), pc.replace_substring(words, ",", "."))
        try:
            column = pc.cast(words, pa.float64())
        except pa.ArrowInvalid:
            raise _not_a_number(label, name, words.to_pylist(), decimal) from None
    elif kinds.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif not any(fits(column.type) for fits in (kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_null)):
        raise InputError(f"{label}: column {name!r} holds {column.type}, not numbers")
    return np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _not_a_number(label: str, name: str, words: list[str | None], decimal: str) -> InputError:
    # The cell is private; the message gives only its place.
    row = next((i for i, word in enumerate(words) if word is not None and not NUMBER.fullmatch(word)), None)
    where = "" if row is None else f", row {row + 1}"
    comma = " with a decimal comma" if decimal == "," else ""
    return InputError(
        f"{label}: column {name!r}{where} is not a number{comma}; leave missing cells empty, name the columns to read "
        "(names=), or declare the labels (categories=)"
    )


def _read_categories(label: str, name: str, column: pyarrow.ChunkedArray, categories: Sequence[str]) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    words = pc.utf8_trim_whitespace(column)
    labels = pa.array([str(category).strip() for category in categories], pa.string())
    place = pc.index_in(words, value_set=labels)
    # A declared category may be called "none"; only then is that word not an empty cell.
    known_empty = pc.is_in(pc.utf8_lower(words), value_set=pa.array(EMPTY))
    bad = pc.and_(pc.is_null(place), pc.invert(pc.or_(pc.is_null(words), known_empty)))
    if pc.any(bad).as_py():
        row = int(np.argmax(bad.to_numpy())) + 1
        allowed = ", ".join(repr(str(category)) for category in list(categories)[:8])
        raise InputError(f"{label}: column {name!r}, row {row} is none of the categories {allowed}")
    return np.array(place.cast(pa.float64()).to_numpy(), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class RawReadings:
    """Readings one by one, in the order of the file: row, sequence, number. `wide`: all of one row together."""

    label: str
    clock: TimeColumn  # one time per row
    rows: Ints
    sequences: Ints
    numbers: Floats
    names: tuple[str, ...]
    wide: Floats | None = None

    @classmethod
    def from_wide(cls, label: str, clock: TimeColumn, readings: Floats, names: tuple[str, ...]) -> RawReadings:
        """A wide table: one row per time; its cells are only listed one by one where rows must be combined."""
        none = np.empty(0, dtype=np.int64)
        return cls(label, clock, none, none, np.empty(0), names, readings)

    def one_by_one(self) -> RawReadings:
        """One by one, also where they came in rows; missing readings are left out."""
        if self.wide is None:
            return self
        rows, sequences = np.nonzero(~np.isnan(self.wide))
        return replace(self, rows=rows, sequences=sequences, numbers=self.wide[rows, sequences], wide=None)


def to_grid(
    cells: RawReadings,
    *,
    step: int | str | None,
    duplicates: Duplicates,
    sort: bool,
    resample: Resample | None,
    fill: int,
) -> Readings:
    """The readings on consecutive ticks; a tick is the time divided by the step, so equal times have equal ticks."""
    _check_choices(duplicates, resample, fill)
    clock = cells.clock
    if np.isinf(cells.numbers if cells.wide is None else cells.wide).any():
        raise InputError(f"{cells.label}: infinite readings; leave missing cells empty")
    row = 0 if sort else find_disorder(cells)
    if row:
        raise InputError(f"{cells.label}: times are not in order at row {row}; sort by time first, or set sort=True")
    repeated = _check_repetition(cells, duplicates)
    distinct = np.unique(clock.numbers)
    declared = None if step is None else parse_step(step, stamps=clock.stamps)
    if resample is not None and declared is None:
        raise InputError(f"{cells.label}: resample needs the step, such as step='5min'")
    every = find_step(cells.label, clock, distinct, declared, resampled=resample is not None)
    ticks, times = consecutive_ticks(cells.label, clock, distinct, every, resampled=resample is not None)
    size = ticks.size * len(cells.names)
    if size > MAX_CELLS:
        raise TooLargeError(
            f"{cells.label}: {ticks.size:,} ticks of {len(cells.names):,} sequences are more than {MAX_CELLS:,} cells; "
            "read fewer sequences (names=), or a longer step= with resample='last'",
            needed=size,
            limit=MAX_CELLS,
        )
    out = np.full((ticks.size, len(cells.names)), np.nan)
    unit, first = every * clock.per_second, int(ticks[0])
    if cells.wide is not None and not repeated and resample is None:
        out[clock.numbers // unit - first] = cells.wide
    else:
        _place_readings(out, cells.one_by_one(), unit, first, duplicates, resample)
    return Readings(cells.names, ticks, times, _carry_forward(out, fill) if fill else out, every)


def _check_choices(duplicates: str, resample: str | None, fill: int) -> None:
    if duplicates not in {"refuse", "first", "last", "mean"}:
        raise InputError(f"duplicates: {duplicates!r} given; 'refuse', 'first', 'last' or 'mean'")
    if resample not in {None, "first", "last", "mean"}:
        raise InputError(f"resample: {resample!r} given; None, 'first', 'last' or 'mean'")
    if isinstance(fill, bool) or not isinstance(fill, int | np.integer) or fill < 0:
        raise InputError(f"fill: {fill!r} given; the number of ticks over which a reading may be carried, 0 or more")


def find_disorder(cells: RawReadings) -> int:
    """The first row, counted from 1, whose time lies before that of the row before it; 0 where there is none.

    Rows of a wide table, and the rows of each sequence of a long one, go forward in time.
    """
    times = cells.clock.numbers
    if cells.wide is not None:
        back = np.diff(times) < 0
        return int(np.argmax(back)) + 2 if back.any() else 0
    order = np.argsort(cells.sequences, kind="stable")
    back = (np.diff(times[cells.rows[order]]) < 0) & (np.diff(cells.sequences[order]) == 0)
    return int(cells.rows[order][int(np.argmax(back)) + 1]) + 1 if back.any() else 0


def _check_repetition(cells: RawReadings, duplicates: str) -> bool:
    """Whether a time (of a sequence) comes twice."""
    if cells.wide is not None:
        times, counts = np.unique(cells.clock.numbers, return_counts=True)
        if (counts > 1).any() and duplicates == "refuse":
            time = cells.clock.show(int(times[int(np.argmax(counts > 1))]))
            raise InputError(f"{cells.label}: time {time} appears twice; keep one row per time, or choose duplicates=")
        return bool((counts > 1).any())
    order, same = find_repeated(cells)
    if same.any() and duplicates == "refuse":
        at = order[int(np.argmax(same))]
        raise InputError(
            f"{cells.label}: two readings of {cells.names[int(cells.sequences[at])]!r} at time "
            f"{cells.clock.show(int(cells.clock.numbers[cells.rows[at]]))}; keep one, or choose duplicates="
        )
    return bool(same.any())


def find_repeated(cells: RawReadings) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The order of single readings by sequence and time, and whether each is of the same time as the next one."""
    order = np.lexsort((cells.clock.numbers[cells.rows], cells.sequences))
    same = (np.diff(cells.clock.numbers[cells.rows[order]]) == 0) & (np.diff(cells.sequences[order]) == 0)
    return order, same


def find_step(label: str, clock: TimeColumn, distinct: Ints, step: int | None, *, resampled: bool = False) -> int:
    """The declared step, or the longest whose grid holds all times; InputError where times lie off the grid."""
    if step is not None and step < 1:
        raise InputError(f"{label}: times do not lie on a grid of {step}; the step is at least 1")
    if resampled and step is not None:
        return step
    gaps = np.diff(distinct)
    if step is None:
        check_no_months(label, clock, distinct)
    if clock.per_second > 1 and (distinct % clock.per_second != distinct[0] % clock.per_second).any():
        raise InputError(
            f"{label}: times have fractions of a second; ticks are whole seconds. Round them, or give step= "
            "and resample='last'"
        )
    if step is None and not gaps.size:
        raise InputError(f"{label}: a single time does not show how far apart ticks are; give step=")
    every = step if step is not None else int(np.gcd.reduce(gaps)) // clock.per_second
    if (gaps % (every * clock.per_second)).any():
        raise InputError(f"{label}: times do not lie on a grid of {every}; give the right step=, or resample='last'")
    return every


def tick_seconds(times: npt.NDArray[Any], step: int, ticks: Ints | None) -> int | None:
    """Seconds from one tick to the next, where ticks are timestamps divided by the step.

    None where times are numbers, and where ticks count rows (trading days, say) that have dates beside them.

    >>> hours = np.datetime64("2024-01-01T05", "s") + 3600 * np.arange(3)
    >>> tick_seconds(hours, 3600, np.arange(473_357, 473_360)), tick_seconds(hours, 1, np.arange(3))
    (3600, None)
    """
    if times.dtype.kind != "M" or not times.size:
        return None
    first = int(times[0].astype("datetime64[s]").astype(np.int64))
    return int(step) if ticks is None or int(ticks[0]) == first // step else None


def consecutive_ticks(
    label: str, clock: TimeColumn, distinct: Ints, every: int, *, resampled: bool = False
) -> tuple[Ints, npt.NDArray[Any]]:
    """The ticks from the first time to the last, and their times; a tick is the time divided by the step."""
    unit = every * clock.per_second
    first, last = int(distinct[0] // unit), int(distinct[-1] // unit)
    missing = last - first + 1 - distinct.size
    if missing > MAX_GAP:
        raise InputError(
            f"{label}: gaps of {missing:,} ticks; at most {MAX_GAP:,}. Split the file, or give step= with "
            "resample='last'"
        )
    ticks = np.arange(first, last + 1, dtype=np.int64)
    # Without resampling all times share what is left over by the step; with it, ticks begin at multiples of the step.
    times = ticks * every + (0 if resampled else int(distinct[0] % unit) // clock.per_second)
    return ticks, times.astype("datetime64[s]") if clock.stamps else times


def _place_readings(
    out: Floats, cells: RawReadings, unit: int, first: int, duplicates: str, resample: str | None
) -> None:
    """Readings of one time put together, then those of one tick."""
    there = ~np.isnan(cells.numbers)
    times = cells.clock.numbers[cells.rows[there]]
    sequences, numbers = cells.sequences[there], cells.numbers[there]
    order = np.lexsort((times, sequences))  # stable: those of one time stay in the order of the file
    times, sequences, numbers = times[order], sequences[order], numbers[order]
    if duplicates != "refuse":
        times, sequences, numbers = _join_runs(times, sequences, numbers, duplicates)
    ticks = times // unit - first
    if resample is not None:
        ticks, sequences, numbers = _join_runs(ticks, sequences, numbers, resample)
    out[ticks, sequences] = numbers


def _join_runs(times: Ints, sequences: Ints, numbers: Floats, how: str) -> tuple[Ints, Ints, Floats]:
    """One number for each run of equal (sequence, time)."""
    if not times.size:
        return times, sequences, numbers
    new = np.concatenate([[True], (np.diff(times) != 0) | (np.diff(sequences) != 0)])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], times.size)
    if how == "mean":
        merged = np.add.reduceat(numbers, starts) / (ends - starts)
    else:
        merged = numbers[starts] if how == "first" else numbers[ends - 1]
    return times[starts], sequences[starts], merged


def _carry_forward(readings: Floats, fill: int) -> Floats:
    """Missing readings replaced by the last one, at most `fill` ticks old."""
    at = np.where(np.isnan(readings), -1, np.arange(readings.shape[0])[:, None])
    newest = np.maximum.accumulate(at, axis=0)
    old = np.arange(readings.shape[0])[:, None] - newest
    usable = (newest >= 0) & (old <= fill)
    carried = np.take_along_axis(readings, np.maximum(newest, 0), axis=0)
    return np.where(usable, carried, readings)


def coarsen(readings: Readings, factor: int) -> Readings:
    """Average every `factor` ticks, as reading the file with a step `factor` times as long and resample="mean" does.

    >>> coarsen(Readings.from_array([[1.0], [3.0], [5.0], [float("nan")]]), 2).readings.tolist()
    [[2.0], [5.0]]
    """
    stamps = readings.times.dtype.kind == "M"
    times = readings.times.astype("datetime64[s]").astype(np.int64) if stamps else readings.times.astype(np.int64)
    cells = RawReadings.from_wide("readings", TimeColumn(times, stamps), readings.readings, readings.names)
    return to_grid(cells, step=readings.step * factor, duplicates="refuse", sort=False, resample="mean", fill=0)
