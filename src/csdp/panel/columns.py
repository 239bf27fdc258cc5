"""Tables as named columns: which of them hold the times, the sequences and the readings, and their decimal mark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from csdp.errors import InputError
from csdp.panel.grid import EMPTY, NUMBER
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
#: Cells of a column that are looked at to find its kind and its decimal mark.
_CELLS = 10_000
_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
#: 1,234 may be 1.234, or one thousand two hundred thirty-four.
_GROUPED = r"^[+-]?[1-9]\d{0,2},\d{3}$"
_COMMA_OR_WHOLE = r"^[+-]?(\d+|\d*,\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Named columns, what to call the table in a message, and the settings that were found while reading it."""

    label: str
    columns: dict[str, pyarrow.ChunkedArray]
    found: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """The column of this name; spaces around it and the case of its letters do not matter."""
        if name.strip() in self.columns:
            return name.strip()
        lower = {known.lower(): known for known in self.columns}
        return lower.get(name.strip().lower())


def check_columns(label: str, names: Sequence[str]) -> None:
    """Refuse columns of the same name, also where only the case of letters differs: not every engine tells them apart.

    >>> check_columns("readings.csv", ["time", "Hall", "hall"])
    Traceback (most recent call last):
    ...
    csdp.errors.InputError: readings.csv: two columns have the same name, or differ in case only: Hall, hall
    """
    first: dict[str, str] = {}
    for name in names:
        folded = name.strip().casefold()
        if folded in first:
            both = list_columns([first[folded], name])
            raise InputError(f"{label}: two columns have the same name, or differ in case only: {both}")
        first[folded] = name


def list_columns(names: Sequence[str]) -> str:
    """Some column names for a message. Numbers are left out: of a file without a header line they would be readings.

    >>> list_columns(["time", "hall"]), list_columns(["0", "37.5"])
    ('time, hall', 'numbers; is there a header line?')
    """
    words = [name for name in names[:8] if not NUMBER.fullmatch(name.strip())]
    return ", ".join(words) if words else "numbers; is there a header line?"


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table: a long one names the columns of sequence and value, a wide one has None there."""

    time: str
    sequence: str | None = None
    value: str | None = None


def find_columns(table: ColumnTable, spec: InputSpec) -> TableColumns:
    """The columns as a specification names them, and else as names and cells show; what is not clear is refused."""
    if not table.columns:
        raise InputError(f"{table.label}: no columns")
    time = _find_time(table, spec.time)
    if spec.sequence is not None or spec.value is not None:
        return TableColumns(time, *_named_columns(table, spec, time))
    usual = table.find("sequence"), table.find("value")
    if None not in usual and len(table.columns) == 3:
        return TableColumns(time, *usual)
    if spec.names is not None and set(map(str.strip, spec.names)) <= set(table.columns):
        return TableColumns(time)
    return TableColumns(time, *_guess_long(table, time))


def _find_time(table: ColumnTable, given: str | None) -> str:
    columns = list(table.columns)
    name = table.find(given or "time")
    if name is not None:
        return name
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
    words = pc.utf8_trim_whitespace(column.slice(0, _CELLS).cast(pa.string())).drop_null()
    plain = pc.or_(pc.match_substring_regex(words, _NUMBERS), pc.is_in(pc.utf8_lower(words), value_set=pa.array(EMPTY)))
    return not pc.all(plain).as_py() if len(words) else False


def find_decimal(table: ColumnTable, spec: InputSpec, roles: TableColumns) -> str:
    """The decimal mark of the columns that are read: a comma where numbers have one, and nothing else would read them.

    >>> import pyarrow
    >>> table = ColumnTable("t.csv", {"a": pyarrow.chunked_array([["20,5", "21"]])})
    >>> find_decimal(table, InputSpec(), TableColumns("time"))
    ','
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if spec.categories is not None:
        return "."
    wanted = {roles.value} if roles.value is not None else {name.strip() for name in spec.names or table.columns}
    unclear = ""
    for name, column in table.columns.items():
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if not text or name not in wanted or name == roles.time:
            continue
        words = pc.utf8_trim_whitespace(column.slice(0, _CELLS).cast(pa.string()))
        words = words.filter(pc.invert(pc.is_in(pc.utf8_lower(words), value_set=pa.array(EMPTY))))
        commas = pc.match_substring_regex(words, _COMMA)
        if not pc.any(commas).as_py() or not pc.all(pc.match_substring_regex(words, _COMMA_OR_WHOLE)).as_py():
            continue
        if not pc.all(pc.match_substring_regex(words.filter(commas), _GROUPED)).as_py():
            return ","
        unclear = unclear or name
    if unclear:
        raise InputError(
            f"{table.label}: the commas in column {unclear!r} may be decimal or between thousands; give decimal=',', "
            "or write the numbers without them"
        )
    return "."
