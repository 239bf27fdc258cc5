"""Which columns of a table hold the times, the sequences and the readings: as named, or as their cells show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from csdp.errors import InputError
from csdp.panel.files import ColumnTable, list_columns
from csdp.panel.grid import EMPTY
from csdp.panel.input import InputSpec
from csdp.panel.times import looks_like_times

if TYPE_CHECKING:
    import pyarrow

_TIME_NAMES = re.compile(r"(time|timestamp|datetime|date_?time|date|ts|when|zeit(punkt|stempel)?|datum)", re.IGNORECASE)
_SEQUENCE_NAMES = re.compile(
    r"(.*[_ ])?(id|sequence|series|sensor|station|device|meter|patient|subject|person|user|site|room|name)([_ ]?id)?",
    re.IGNORECASE,
)
_NUMBERS = r"^[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True)
class Layout:
    """The columns of a table: a long one names the columns of sequence and value, a wide one has None there."""

    time: str
    sequence: str | None = None
    value: str | None = None


def find_layout(table: ColumnTable, spec: InputSpec, names: Sequence[str] | None) -> Layout:
    """The columns as a specification names them, and else as names and cells show; what is not clear is refused."""
    if not table.columns:
        raise InputError(f"{table.label}: no columns")
    time = _find_time(table, spec.time)
    if spec.sequence is not None or spec.value is not None:
        return Layout(time, *_named_columns(table, spec, time))
    usual = table.find("sequence"), table.find("value")
    if None not in usual and len(table.columns) == 3:
        return Layout(time, *usual)
    if names is not None and {name.strip() for name in names} <= set(table.columns):
        return Layout(time)
    return Layout(time, *_guess_long(table, time))


def _find_time(table: ColumnTable, given: str | None) -> str:
    columns = list(table.columns)
    found = table.find(given or "time")
    if found is not None:
        return found
    stamps = [name for name, column in table.columns.items() if looks_like_times(column)] if given is None else []
    named = [name for name in stamps or columns if _TIME_NAMES.fullmatch(name.strip())] if given is None else []
    for candidates in (stamps, named):
        if len(candidates) == 1:
            return candidates[0]
    if stamps:
        raise InputError(f"{table.label}: several columns hold times: {list_columns(stamps)}; give one as time=")
    if len(columns) == 1:
        raise InputError(f"{table.label}: one column only, {columns[0]!r}; one of times and one of readings are needed")
    raise InputError(
        f"{table.label}: no column {given or 'time'!r}; found {list_columns(columns)}. Name the column of times: time="
    )


def _named_columns(table: ColumnTable, spec: InputSpec, time: str) -> tuple[str, str]:
    """The columns of sequence and value, where at least one of them is named."""
    others = [name for name in table.columns if name != time]
    sequence, value = table.find(spec.sequence or "sequence"), table.find(spec.value or "value")
    if len(others) == 2 and spec.value is None and sequence in others:
        value = next(name for name in others if name != sequence)
    if len(others) == 2 and spec.sequence is None and value in others:
        sequence = next(name for name in others if name != value)
    for given, key, column in ((spec.sequence, "sequence", sequence), (spec.value, "value", value)):
        if column is None:
            raise InputError(
                f"{table.label}: no column {given or key!r}; found {list_columns(list(table.columns))}. A long table "
                "needs sequence= and value="
            )
    if len({time, sequence, value}) != 3:
        raise InputError(f"{table.label}: time, sequence and value must be three columns")
    return str(sequence), str(value)


def _guess_long(table: ColumnTable, time: str) -> tuple[str | None, str | None]:
    """The columns of sequence and value where times repeat and one column says whose reading a row is."""
    import pyarrow.compute as pc

    cells = table.columns[time]
    others = {name: column for name, column in table.columns.items() if name != time and not looks_like_times(column)}
    if len(others) < 2 or pc.count_distinct(cells).as_py() == len(cells):
        return None, None
    words = [name for name, column in others.items() if holds_words(column)]
    labels = words if len(words) == 1 else [n for n in (words or others) if _SEQUENCE_NAMES.fullmatch(n.strip())]
    if not labels and not words:
        return None, None
    values = [name for name in others if name not in {*words, *labels}]
    if len(labels) == 1 and len(values) == 1:
        return labels[0], values[0]
    if len(labels) == 1 and values:
        raise InputError(
            f"{table.label}: times repeat, and {labels[0]!r} names the sequences; which column holds the readings? "
            f"Give sequence={labels[0]!r} and value= with one of: {list_columns(values)}"
        )
    raise InputError(
        f"{table.label}: times repeat, so this is a long table; give sequence= and value= with the columns of the "
        f"sequence and of the reading, of: {list_columns(list(others))}"
    )


def holds_words(column: pyarrow.ChunkedArray) -> bool:
    """Whether a column of text holds something else than numbers and empty cells."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    words = pc.utf8_trim_whitespace(column.slice(0, 10_000).cast(pa.string())).drop_null()
    plain = pc.or_(pc.match_substring_regex(words, _NUMBERS), pc.is_in(pc.utf8_lower(words), value_set=pa.array(EMPTY)))
    return not pc.all(plain).as_py() if len(words) else False
