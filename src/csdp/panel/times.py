"""Times of readings, and their place on a regular grid of ticks: order, repetition, resampling, gaps.

Times are whole numbers as they are, or timestamps, in UTC or by an unnamed local clock.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats, Ints
from csdp.panel.panel import Readings

if TYPE_CHECKING:
    import pyarrow

Duplicates = Literal["refuse", "first", "last", "mean"]
Resample = Literal["first", "last", "mean"]

#: Ticks that gaps may add to what was read.
MAX_GAP = 1_000_000
#: Cells that a grid may have: 8 GB.
MAX_CELLS = 1_000_000_000

_DAY = 86400
_UNITS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: Times beyond this could not be subtracted from each other in 64 bits.
MAX_TIME = 2**62
_ZONE = r"[Tt ].*([Zz]|[+-]\d{2}(:?\d{2})?)$"
_ISO = r"^\d{4}-\d{2}-\d{2}([Tt ]\d{2}(:\d{2}.*)?)?$"
#: Other ways of writing a time, as in strptime.
_DATES = ("%d.%m.%Y", "%Y.%m.%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


@dataclass(frozen=True, eq=False)
class TimeColumn:
    """Times as whole numbers: of units of 1/per_second s if they are timestamps, else as they were."""

    numbers: Ints
    stamps: bool
    per_second: int = 1

    def show(self, number: int) -> str:
        """A time, for a message."""
        return str(np.datetime64(int(number) // self.per_second, "s")) if self.stamps else str(int(number))


def parse_step(step: int | str, *, stamps: bool) -> int:
    """The step of a grid: a whole number, or for timestamps text such as "30s", "5min", "1h", "1D".

    >>> parse_step("5min", stamps=True)
    300
    """
    if isinstance(step, int | np.integer) and not isinstance(step, bool):
        return int(step)
    match = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]+)\s*", step) if isinstance(step, str) else None
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InputError(
            f"step: {step!r} given; a whole number (seconds for timestamps), or such as '30s', '5min', '1h' or '1D'; "
            "steps below a second need times that are whole numbers, such as milliseconds"
        )
    if not stamps:
        raise InputError(f"step: {step!r} given, but the times are whole numbers; give a whole number in their unit")
    return int(match[1] or 1) * unit


def read_moment(text: str, timezone: str | None = None) -> np.datetime64:
    """A moment in UTC from text: with its offset, or local in a zone (of two such times the first), or as it stands.

    >>> print(read_moment("2024-07-01T10:00", "Europe/Berlin"), read_moment("2024-07-01T10:00+05:30"))
    2024-07-01T08:00:00 2024-07-01T04:30:00
    """
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:  # such as a year alone
        moment = np.datetime64(text, "s").item()
    if moment.tzinfo is None and timezone is not None:
        try:
            moment = moment.replace(tzinfo=ZoneInfo(timezone))
        except (ValueError, ZoneInfoNotFoundError):
            raise InputError(f"timezone {timezone!r} is unknown; a name such as 'Europe/London' or 'UTC'") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return np.datetime64(moment, "s")


def format_step(seconds: int) -> str:
    """A number of seconds as `parse_step` reads it.

    >>> format_step(1800), format_step(90)
    ('30min', '90s')
    """
    for unit, length in (("D", 86400), ("h", 3600), ("min", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def read_times(
    label: str,
    name: str,
    column: pyarrow.ChunkedArray,
    timezone: str | None,
    *,
    time_format: str | None = None,
    groups: Ints | None = None,
) -> TimeColumn:
    """The times in a column; offsets are converted to UTC, and a mixture of kinds is refused.

    Times with an offset are moments, whatever the offsets: they change with daylight saving time.

    `time_format`: of text that is not ISO, as in strptime; found if it is clear. `groups`: rows of one number are
    of one sequence; their order distinguishes the two passes of an hour that clocks repeat.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    wrong = InputError(f"{label}: column {name!r} must hold whole numbers or ISO timestamps throughout")
    if not len(column):
        raise InputError(f"{label}: no rows")
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        raise wrong
    text = text_of(column)
    if text is not None:
        wrong = InputError(f"{wrong}; if they are all written in another way, give time_format='%d.%m.%Y %H:%M'")
        column = _parse_times(label, name, text, wrong, time_format)
    if kinds.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    if kinds.is_timestamp(column.type):
        clock = _timestamps(_localise(label, name, column, timezone, groups))
    else:
        clock = _whole_number_times(label, name, column, timezone, wrong)
    if (np.abs(clock.numbers // 2) >= MAX_TIME // 2).any():
        raise InputError(f"{label}: column {name!r} holds times too far from zero (or from 1970) to be counted")
    return clock


def _whole_number_times(
    label: str, name: str, column: pyarrow.ChunkedArray, timezone: str | None, wrong: InputError
) -> TimeColumn:
    """Times that are whole numbers."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if timezone is not None:
        raise InputError(f"{label}: timezone {timezone!r} given, but the times are whole numbers; leave it out")
    if kinds.is_floating(column.type):
        array = column.to_numpy()
        if not (np.isfinite(array).all() and (array == np.floor(array)).all() and (np.abs(array) < 2**53).all()):
            raise wrong
        return TimeColumn(array.astype(np.int64), stamps=False)
    if not kinds.is_integer(column.type):
        raise wrong
    try:
        return TimeColumn(column.cast(pa.int64()).to_numpy(), stamps=False)
    except pa.ArrowInvalid:
        raise InputError(f"{label}: column {name!r} holds whole numbers beyond 64 bits") from None


def _parse_times(
    label: str, name: str, text: pyarrow.ChunkedArray, wrong: InputError, time_format: str | None
) -> pyarrow.ChunkedArray:
    """Text as whole numbers or timestamps; in UTC if it carries an offset."""
    import pyarrow as pa
    import pyarrow.compute as pc

    time_format = time_format or find_time_format(label, name, text)
    if time_format is not None:
        try:
            return pc.strptime(text, format=time_format, unit="s")
        except pa.ArrowInvalid:
            raise InputError(
                f"{label}: column {name!r} does not hold times written as {time_format} throughout; give time_format= "
                "as in strptime, or write ISO timestamps"
            ) from None
    try:
        if pc.all(pc.match_substring_regex(text, r"^[+-]?\d+$")).as_py():
            return pc.cast(pc.utf8_ltrim(text, "+"), pa.int64())
        zoned = pc.match_substring_regex(text, _ZONE)
        whole, some = pc.all(zoned).as_py(), pc.any(zoned).as_py()
        if some and not whole:
            raise mixed_offsets(label, name)
        zone = "UTC" if whole else None
        try:
            return pc.cast(text, pa.timestamp("s", zone))
        except pa.ArrowInvalid:  # fractions of a second
            return pc.cast(text, pa.timestamp("ns", zone))
    except pa.ArrowInvalid:
        raise wrong from None


def text_of(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray | None:
    """The cells of a column of text, without spaces around them; None for any other column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    return pc.utf8_trim_whitespace(column.cast(pa.string()))


def has_offsets(column: pyarrow.ChunkedArray) -> bool:
    """Whether the times of a column carry an offset from UTC; a mixture was refused when they were read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        return column.type.tz is not None
    first = text_of(column.slice(0, 1))
    return first is not None and bool(pc.match_substring_regex(first, _ZONE)[0].as_py())


def check_no_months(label: str, clock: TimeColumn, distinct: Ints) -> None:
    """Refuse times that are months (or quarters, or years) apart: ticks are equally long, and months are not.

    >>> months = np.array(["2024-01", "2024-02", "2024-03"], dtype="datetime64[M]").astype("datetime64[s]").astype(int)
    >>> check_no_months("sales.csv", TimeColumn(months, stamps=True), months)
    Traceback (most recent call last):
    csdp.errors.InputError: sales.csv: times are months apart (calendar months, quarters or years), which differ in ...
    """
    shortest, gaps = (28 * _DAY - 3600) * clock.per_second, np.diff(distinct)
    if clock.stamps and gaps.size > 1 and np.gcd.reduce(gaps) < shortest <= gaps.min():
        raise InputError(
            f"{label}: times are months apart (calendar months, quarters or years), which differ in length; ticks "
            "are equally long. Number the months in the column of times (12 * year + month), or give a step= such "
            "as '30D' with resample='last'"
        )


def looks_like_times(column: pyarrow.ChunkedArray) -> bool:
    """Whether a column holds timestamps, as such or as text; whole numbers may be anything."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return True
    some = text_of(column.slice(0, 100))
    if some is None or not len(some):
        return False
    return bool(pc.all(pc.match_substring_regex(some, _ISO)).as_py() or _fitting_formats(some))


def _fitting_formats(text: pyarrow.ChunkedArray) -> list[str]:
    """The ways of writing a time, other than ISO, in which every cell is written."""
    import pyarrow.compute as pc

    fitting = [date + clock for date in _DATES for clock in _CLOCKS]
    for cells in (text.slice(0, 1), text):
        parse = partial(pc.strptime, cells, unit="s", error_is_null=True)
        fitting = [form for form in fitting if not parse(format=form).null_count]
    return fitting


def find_time_format(label: str, name: str, text: pyarrow.ChunkedArray) -> str | None:
    """How times that are not ISO are written, as in strptime; None for all other text.

    Where the numbers do not show which is the day and which the month, it is refused.

    >>> import pyarrow
    >>> find_time_format("t.csv", "Zeit", pyarrow.chunked_array([["27.10.2024 02:30"]]))
    '%d.%m.%Y %H:%M'
    """
    fitting = _fitting_formats(text) if len(text) else []
    if len(fitting) > 1:
        raise InputError(
            f"{label}: column {name!r} does not show which number is the day and which the month; give "
            "time_format='%d/%m/%Y %H:%M' or time_format='%m/%d/%Y %H:%M' (as in strptime)"
        )
    return fitting[0] if fitting else None


def mixed_offsets(label: str, name: str) -> InputError:
    """The error for times of which only some have an offset: they cannot be put in order."""
    return InputError(
        f"{label}: column {name!r} mixes times with an offset from UTC and times without; write all alike"
    )


def _localise(
    label: str, name: str, column: pyarrow.ChunkedArray, timezone: str | None, groups: Ints | None
) -> pyarrow.ChunkedArray:
    """Times without an offset, in a zone, as UTC; what a change of the clocks leaves ambiguous is refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if timezone is None:
        return column
    if column.type.tz is not None:
        raise InputError(f"{label}: column {name!r} carries its own offset from UTC; leave out timezone {timezone!r}")
    try:
        first = pc.assume_timezone(column, timezone, ambiguous="earliest")
    except pa.ArrowInvalid as error:
        reason = str(error)
        if "exist" not in reason:
            raise InputError(
                f"{label}: timezone {timezone!r} is unknown; a name such as timezone='Europe/London' or 'UTC'"
            ) from None
        place = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", reason)
        raise InputError(
            f"{label}: in {timezone} the local time {place[0] if place else 'of a row'} does not exist, because clocks "
            "went forward; correct it or write times with their offset"
        ) from None
    second = pc.assume_timezone(column, timezone, ambiguous="latest")
    twice = pc.not_equal(first, second)
    if not pc.any(twice).as_py():
        return first
    rows = np.flatnonzero(twice.to_numpy())
    local = column.cast(pa.int64()).to_numpy()
    later = np.zeros(len(column), dtype=np.bool_)
    for run in _runs(rows, np.zeros(len(column), dtype=np.int64) if groups is None else groups):
        changes = np.diff(local[run])
        back = np.flatnonzero(changes < 0) if (changes < 0).any() else np.flatnonzero(changes == 0)
        if back.size != 1:  # one pass alone, or rows out of order
            when = column[int(run[0])].as_py()
            raise InputError(
                f"{label}: in {timezone} the local time {when} is there twice, because clocks went back, and the order "
                "of the rows does not show which is meant; write these times with their offset (+01:00)"
            )
        later[run[int(back[0]) + 1 :]] = True
    return pc.if_else(pa.array(later), second, first)


def _runs(rows: Ints, groups: Ints) -> list[Ints]:
    """Those rows, one run for each sequence and each change of the clocks, in the order of the file."""
    order = rows[np.argsort(groups[rows], kind="stable")]
    place = np.empty(groups.size, dtype=np.int64)
    place[np.argsort(groups, kind="stable")] = np.arange(groups.size)
    cuts = np.flatnonzero((np.diff(place[order]) != 1) | (np.diff(groups[order]) != 0)) + 1
    return [run for run in np.split(order, cuts) if run.size]


def _timestamps(column: pyarrow.ChunkedArray) -> TimeColumn:
    """Timestamps in seconds, or in their own unit if they have fractions of a second."""
    import pyarrow as pa

    numbers: Any = column.cast(pa.int64()).to_numpy()
    per_second = _PER_SECOND[column.type.unit]
    if per_second > 1 and not (numbers % per_second).any():
        return TimeColumn(numbers // per_second, stamps=True)
    return TimeColumn(numbers, stamps=True, per_second=per_second)


# ---- a grid of ticks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RawReadings:
    """Readings one by one, in the order of the file: row, sequence, number; what is missing is left out."""

    label: str
    clock: TimeColumn  # one time per row
    rows: Ints
    sequences: Ints
    numbers: Floats
    names: tuple[str, ...]

    @classmethod
    def from_wide(cls, label: str, clock: TimeColumn, readings: Floats, names: tuple[str, ...]) -> RawReadings:
        """Those of a wide table: one row per time, one column per sequence."""
        rows, sequences = np.nonzero(~np.isnan(readings))
        return cls(label, clock, rows, sequences, readings[rows, sequences], names)

    def ordered(self) -> tuple[Ints, Ints, Floats]:
        """Times, sequences and numbers by sequence and time; else in the order of the file."""
        times = self.clock.numbers[self.rows]
        order = np.lexsort((times, self.sequences))  # stable
        return times[order], self.sequences[order], self.numbers[order]


def to_grid(
    cells: RawReadings, step: int | str | None, duplicates: Duplicates | None, resample: Resample | None
) -> Readings:
    """The readings on consecutive ticks; a tick is the time divided by the step, so equal times have equal ticks."""
    clock = cells.clock
    if np.isinf(cells.numbers).any():
        raise InputError(f"{cells.label}: infinite readings; leave missing cells empty")
    distinct = np.unique(clock.numbers)
    times, sequences, numbers = cells.ordered()
    same = (np.diff(times) == 0) & (np.diff(sequences) == 0)
    if same.any():
        if duplicates in {None, "refuse"}:
            at = int(np.argmax(same))
            raise InputError(
                f"{cells.label}: two readings of {cells.names[int(sequences[at])]!r} at time "
                f"{clock.show(int(times[at]))}; keep one, or choose duplicates="
            )
        times, sequences, numbers = _join_runs(times, sequences, numbers, str(duplicates))
    declared = None if step is None else parse_step(step, stamps=clock.stamps)
    if resample is not None and declared is None:
        raise InputError(f"{cells.label}: resample needs the step, such as step='5min'")
    every = find_step(cells.label, clock, distinct, declared, resampled=resample is not None)
    ticks, tick_times = consecutive_ticks(cells.label, clock, distinct, every, resampled=resample is not None)
    size = ticks.size * len(cells.names)
    if size > MAX_CELLS:
        raise TooLargeError(
            f"{cells.label}: {ticks.size:,} ticks of {len(cells.names):,} sequences are more than {MAX_CELLS:,} cells; "
            "read fewer sequences (names=), or a longer step= with resample='last'",
            needed=size,
            limit=MAX_CELLS,
        )
    out = np.full((ticks.size, len(cells.names)), np.nan)
    places = times // (every * clock.per_second) - int(ticks[0])
    if resample is not None:
        places, sequences, numbers = _join_runs(places, sequences, numbers, resample)
    out[places, sequences] = numbers
    return Readings(cells.names, ticks, tick_times, out, every)


def find_step(label: str, clock: TimeColumn, distinct: Ints, step: int | None, *, resampled: bool = False) -> int:
    """The declared step, or the longest whose grid holds all times; InputError if times lie off the grid."""
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

    None if times are numbers, and if ticks count rows (trading days, say) that have dates beside them.

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


def coarsen(readings: Readings, factor: int) -> Readings:
    """Average every `factor` ticks, as reading the file with a step `factor` times as long and resample="mean" does.

    >>> coarsen(Readings.from_array([[1.0], [3.0], [5.0], [float("nan")]]), 2).readings.tolist()
    [[2.0], [5.0]]
    """
    stamps = readings.times.dtype.kind == "M"
    times = readings.times.astype("datetime64[s]").astype(np.int64) if stamps else readings.times.astype(np.int64)
    cells = RawReadings.from_wide("readings", TimeColumn(times, stamps), readings.readings, readings.names)
    return to_grid(cells, readings.step * factor, None, "mean")
