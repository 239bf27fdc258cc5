"""Reading data: `read_readings` for numbers, `read_panel` for states. One reader behind every command and file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.errors import InputError
from csdp.numbers import Floats, Ints
from csdp.panel.files import NUMBER, ColumnTable, list_columns, read_table
from csdp.panel.input import InputSpec
from csdp.panel.panel import Panel, Readings, to_states, value_rows
from csdp.panel.times import RawReadings, looks_like_times, read_times, text_of, to_grid

if TYPE_CHECKING:
    import pyarrow

    from csdp.panel.discretise import Discretiser

#: Cells of text that count as empty, whatever reads them.
EMPTY = ("", "na", "n/a", "nan", "null", "none")
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


def read_readings(source: str | Path | Any, **settings: Any) -> Readings:
    """Read numbers of named sequences onto a regular grid of ticks.

    Args:
        source: a file (CSV, TSV, JSON lines, Parquet, Arrow, Excel), a TOML file with an `[input]` section, an
            `InputSpec`, a frame of pandas, polars or pyarrow, a mapping of columns, or a numpy array (ticks, sequences)
            whose rows are consecutive ticks.
        settings: fields of an `InputSpec`, such as `names`, `step`, `timezone`, `resample` or `categories`; they
            override those of the source. What is not given is found in the table, if it is clear.

    tick = time // step, so the same time has the same tick in every file. Gaps become missing readings. No message
    quotes a reading.

    >>> read_readings({"time": [0, 60, 180], "a": [1.5, 2.5, 3.5]}).readings[:, 0].tolist()
    [1.5, 2.5, nan, 3.5]
    """
    return read_input(*to_spec(source, InputSpec().override(**settings)))


def to_spec(source: Any, given: InputSpec) -> tuple[Any, InputSpec]:
    """What to read, and how: the settings that are given, over those of an `InputSpec` or of a TOML file."""
    if isinstance(source, str | Path) and str(source).lower().endswith(".toml"):
        source = InputSpec.load(source)
    if not isinstance(source, InputSpec):
        return source, given
    if source.file is None:
        raise InputError("file: not given in the InputSpec; give the path of the readings")
    return source.file, source.override(**given.to_dict())


def read_input(source: Any, spec: InputSpec) -> Readings:
    """Read a source, whose settings are all in `spec`, onto its grid."""
    if isinstance(source, Readings):
        raise InputError("data: these are readings already; use them as they are")
    if isinstance(source, np.ndarray):
        return _from_array(source, spec)
    if spec.names is not None:
        check.distinct("names", spec.names)
        if not spec.names:
            raise InputError("names: none given; name at least one sequence")
    table = read_table(source, spec)
    return place_readings(read_raw(table, spec, find_columns(table, spec)), spec)


def place_readings(raw: RawReadings, spec: InputSpec) -> Readings:
    """Put readings on the grid that the settings describe."""
    return to_grid(
        raw,
        step=spec.step,
        duplicates=spec.duplicates or "refuse",
        sort=bool(spec.sort),
        resample=spec.resample,
    )


def read_raw(table: ColumnTable, spec: InputSpec, roles: TableColumns) -> RawReadings:
    """The readings of a table one by one, with their times, before they are put on a grid."""
    label, columns = table.label, table.columns
    decimal = spec.decimal or find_decimal(table, spec, roles)
    numbers = partial(read_numbers, label, categories=spec.categories, decimal=decimal)
    times = partial(read_times, label, roles.time, columns[roles.time], spec.timezone, time_format=spec.time_format)
    if roles.sequence is not None and roles.value is not None:
        names, places = _read_sequences(table, roles.sequence, spec.names)
        cells = numbers(roles.value, columns[roles.value])
        return RawReadings(label, times(groups=places), np.arange(cells.size, dtype=np.int64), places, cells, names)
    clock = times()
    names = _wide_names(table, roles.time, spec.names)
    wide = np.column_stack([numbers(name.strip(), columns[name.strip()]) for name in names])
    return RawReadings.from_wide(label, clock, wide, names)


def read_panel(
    source: str | Path | Any,
    *,
    values: npt.ArrayLike | None = None,
    discretiser: Discretiser | None = None,
    **settings: Any,
) -> Panel:
    """Read states: of readings that carry declared `values`, through a `discretiser`, or state numbers as they are.

    Args:
        source: what `read_readings` takes.
        values: the numbers that the states carry, (m,) or (s, m), as in a chain.
        discretiser: maps readings to states.
        settings: fields of an `InputSpec`, as for `read_readings`.

    >>> table = {"time": [0, 1, 2], "a": [10.0, None, 30.0]}
    >>> read_panel(table, values=[10.0, 20.0, 30.0]).states.tolist()
    [[0], [-1], [2]]
    """
    if discretiser is None:
        return to_panel(read_readings(source, **settings), values=values)
    if values is not None:
        raise InputError("values: a discretiser carries its own; give one of the two")
    known = {"names": discretiser.names, "categories": discretiser.categories}
    return discretiser.apply(read_readings(source, **(known | settings)))


def to_panel(readings: Readings, *, values: npt.ArrayLike | None = None) -> Panel:
    """Readings as states, by the values that the states carry; without values, readings are state numbers."""
    table = None if values is None else value_rows(values, len(readings.names))
    cells = readings.readings
    states = _as_states(readings) if table is None else to_states(cells, table)
    return Panel(readings.names, readings.ticks, readings.times, states, readings.step, table, cells)


def _as_states(readings: Readings) -> npt.NDArray[np.int16]:
    cells = readings.readings
    known = ~np.isnan(cells)
    states = cells[known]
    if (states != np.floor(states)).any() or (states < 0).any() or (states > np.iinfo(np.int16).max).any():
        raise InputError(
            "readings: not all are state numbers 0, 1, 2, ...; map the readings to states by a discretiser="
        )
    out = np.full(cells.shape, -1, dtype=np.int16)
    out[known] = states
    return out


def _from_array(array: npt.NDArray[Any], spec: InputSpec) -> Readings:
    if spec.timezone is not None or spec.categories is not None:
        raise InputError("data: an array has neither times nor words; give a mapping of columns with a time column")
    if isinstance(spec.step, str):
        raise InputError(f"step: {spec.step!r} given for an array, which has no times; a whole number")
    return Readings.from_array(array, names=spec.names, step=1 if spec.step is None else int(spec.step))


def _wide_names(table: ColumnTable, time: str, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        labels = tuple(name for name in table.columns if name != time)
        if not labels:
            raise InputError(f"{table.label}: no column besides {time!r}; one per sequence expected")
        return labels
    missing = [name for name in names if name.strip() not in table.columns]
    if missing:
        raise InputError(
            f"{table.label}: no column {missing[0]!r}; the chain names {', '.join(list(names)[:8])}. "
            "A wide table has one column per sequence, a long one has time, sequence and value"
        )
    return tuple(names)


def _read_sequences(table: ColumnTable, sequence: str, names: Sequence[str] | None) -> tuple[tuple[str, ...], Ints]:
    """Names, and for each row the place of its sequence in the names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    label = table.label
    words = pc.utf8_trim_whitespace(pc.cast(table.columns[sequence], pa.string()))
    if words.null_count or not pc.all(pc.not_equal(words, "")).as_py():
        raise InputError(f"{label}: column {sequence!r} has empty cells; every reading needs its sequence")
    present = pc.unique(words).to_pylist()
    labels = tuple(sorted(present)) if names is None else tuple(names)
    stripped = [name.strip() for name in labels]
    unknown = sorted(set(present) - set(stripped))
    if unknown:
        raise InputError(f"{label}: unknown sequence {unknown[0]!r}; the chain names {', '.join(stripped[:8])}")
    return labels, pc.index_in(words, value_set=pa.array(stripped, pa.string())).to_numpy().astype(np.int64)


# ---- which column holds what ---------------------------------------------------------------------------------------


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
    """The columns of sequence and value, if at least one of them is named."""
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
    """The columns of sequence and value if times repeat and one column says whose reading a row is."""
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

    words = text_of(column.slice(0, _CELLS))
    if words is None:
        return False
    words = words.drop_null()
    plain = pc.or_(pc.match_substring_regex(words, _NUMBERS), pc.is_in(pc.utf8_lower(words), value_set=pa.array(EMPTY)))
    return not pc.all(plain).as_py() if len(words) else False


def find_decimal(table: ColumnTable, spec: InputSpec, roles: TableColumns) -> str:
    """The decimal mark of the columns that are read: a comma if numbers have one, and nothing else would read them.

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
        words = text_of(column.slice(0, _CELLS)) if name in wanted and name != roles.time else None
        if words is None:
            continue
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


# ---- cells as numbers ------------------------------------------------------------------------------------------------


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
    if categories is not None:
        return _read_categories(label, name, column.cast(pa.string()), categories)
    words = text_of(column)
    if words is not None:
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
