"""Times of a table as whole numbers: whole numbers as they are, timestamps as UTC or as an unnamed local clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

if TYPE_CHECKING:
    import pyarrow

_UNITS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: Times beyond this could not be subtracted from each other in 64 bits.
MAX_TIME = 2**62
_ZONE = r"[Tt ].*([Zz]|[+-]\d{2}(:?\d{2})?)$"


@dataclass(frozen=True, eq=False)
class TimeColumn:
    """Times as whole numbers: of units of 1/per_second s where they are timestamps, else as they were."""

    numbers: npt.NDArray[np.int64]
    stamps: bool
    per_second: int = 1

    def show(self, number: int) -> str:
        """A time, for a message."""
        return str(np.datetime64(int(number) // self.per_second, "s")) if self.stamps else str(int(number))


def parse_step(step: int | str | None, *, stamps: bool) -> int | None:
    """The step of a grid: a whole number, or for timestamps text such as "30s", "5min", "1h", "1D".

    >>> parse_step("5min", stamps=True)
    300
    """
    if step is None or (isinstance(step, int | np.integer) and not isinstance(step, bool)):
        return None if step is None else int(step)
    found = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]+)\s*", step) if isinstance(step, str) else None
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise InputError(
            f"step: {step!r} given; a whole number (seconds for timestamps), or such as '30s', '5min', '1h' or '1D'; "
            "steps below a second need times that are whole numbers, such as milliseconds"
        )
    if not stamps:
        raise InputError(f"step: {step!r} given, but the times are whole numbers; give a whole number in their unit")
    return int(found[1] or 1) * unit


def read_times(label: str, name: str, column: pyarrow.ChunkedArray, timezone: str | None) -> TimeColumn:
    """The times in a column; offsets are converted to UTC, and a mixture of kinds is refused."""
    import pyarrow as pa
    import pyarrow.types as kinds

    wrong = InputError(f"{label}: column {name!r} must hold whole numbers or ISO timestamps throughout")
    if not len(column):
        raise InputError(f"{label}: no rows")
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        raise wrong
    if kinds.is_string(column.type) or kinds.is_large_string(column.type):
        column = _parse_times(label, name, column.cast(pa.string()), wrong)
    if kinds.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    if kinds.is_timestamp(column.type):
        clock = _timestamps(_localise(label, name, column, timezone))
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


def _parse_times(label: str, name: str, column: pyarrow.ChunkedArray, wrong: InputError) -> pyarrow.ChunkedArray:
    """Text as whole numbers or timestamps; in UTC where it carries an offset."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
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


def mixed_offsets(label: str, name: str) -> InputError:
    """Some times know their offset and some do not: nothing can put them in order."""
    return InputError(
        f"{label}: column {name!r} mixes times with an offset from UTC and times without; write all alike"
    )


def _localise(label: str, name: str, column: pyarrow.ChunkedArray, timezone: str | None) -> pyarrow.ChunkedArray:
    """Times without an offset, in the zone given, as UTC; what the clocks' change makes unclear is refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if timezone is None:
        return column
    if column.type.tz is not None:
        raise InputError(f"{label}: column {name!r} carries its own offset from UTC; leave out timezone {timezone!r}")
    try:
        return pc.assume_timezone(column, timezone)
    except pa.ArrowInvalid as error:
        reason = str(error)
    if "ambiguous" in reason:
        trouble = "is there twice, because clocks went back; write these times with their offset (+01:00)"
    elif "exist" in reason:
        trouble = "does not exist, because clocks went forward; correct it or write times with their offset"
    else:
        raise InputError(f"{label}: timezone {timezone!r} is unknown; a name such as 'Europe/London' or 'UTC'")
    first = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", reason)
    raise InputError(f"{label}: in {timezone} the local time {first[0] if first else 'of a row'} {trouble}")


def _timestamps(column: pyarrow.ChunkedArray) -> TimeColumn:
    """Timestamps in seconds, or in their own unit where they have fractions of a second."""
    import pyarrow as pa

    numbers: Any = column.cast(pa.int64()).to_numpy()
    per_second = _PER_SECOND[column.type.unit]
    if per_second > 1 and not (numbers % per_second).any():
        return TimeColumn(numbers // per_second, stamps=True)
    return TimeColumn(numbers, stamps=True, per_second=per_second)
