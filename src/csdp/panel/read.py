"""Reading data: `read_readings` for numbers, `read_panel` for states. One reader behind every command and file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Ints
from csdp.errors import InputError
from csdp.panel.columns import ColumnTable, TableColumns, find_columns, find_decimal
from csdp.panel.files import read_table
from csdp.panel.grid import Duplicates, RawReadings, Resample, read_numbers, to_grid
from csdp.panel.input import InputSpec
from csdp.panel.readings import Outside, Panel, Readings, check_distinct, to_states, value_rows
from csdp.panel.times import read_times

if TYPE_CHECKING:
    from csdp.panel.discretiser import Discretiser


def read_readings(
    source: str | Path | Any,
    *,
    names: Sequence[str] | None = None,
    time: str | None = None,
    sequence: str | None = None,
    value: str | None = None,
    step: int | str | None = None,
    timezone: str | None = None,
    duplicates: Duplicates | None = None,
    sort: bool | None = None,
    resample: Resample | None = None,
    fill: int = 0,
    categories: Sequence[str] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    skip: int | None = None,
    time_format: str | None = None,
    table: str | None = None,
    sql: str | None = None,
) -> Readings:
    """Read numbers of named sequences onto a regular grid of ticks.

    Args:
        source: a file (CSV, TSV, JSON lines, Parquet, Arrow, Excel, SQLite, DuckDB), a TOML file with an `[input]`
            section, an `InputSpec`, the address of a PostgreSQL database, a frame of pandas, polars or pyarrow, a
            mapping of columns, or a numpy array (ticks, sequences) whose rows are consecutive ticks.
        names: the sequences to read; default all columns but the time, or all sequences of a long table, sorted.
        time, sequence, value: columns, found where the cells show them. A table with `sequence` and `value` is long,
            any other wide.
        step: time between ticks, a whole number (seconds for timestamps) or text ("5min"); default the longest that
            fits.
        timezone: where timestamps without an offset were written; they become UTC. Those with an offset always do.
        duplicates: what to make of two readings of one time; default "refuse".
        sort: whether to put times in order; otherwise a table out of order is refused.
        resample: which reading of [k step, (k+1) step) counts at tick k; by default times must lie on the grid.
        fill: ticks over which a missing reading is replaced by the last one. For fitting; the publisher does this
            itself (`stale_limit`) and accounts for it.
        categories: labels, where the cells are words; a reading is then the place of its label.
        delimiter, decimal, encoding, header, skip: how text is written, found in the file; header=False: no header
            line; skip: number of lines before the header.
        time_format: of times that are not ISO, as in strptime; found where day and month can be told apart.
        table, sql: a table or sheet, or a query of a database.

    tick = time // step, so the same time has the same tick in every file. Gaps become missing readings. No message
    quotes a reading.

    >>> read_readings({"time": [0, 60, 180], "a": [1.5, 2.5, 3.5]}).readings[:, 0].tolist()
    [1.5, 2.5, nan, 3.5]
    """
    source, spec = to_spec(
        source,
        InputSpec(
            table=table,
            sql=sql,
            delimiter=delimiter,
            decimal=decimal,
            encoding=encoding,
            header=header,
            skip=skip,
            time=time,
            time_format=time_format,
            timezone=timezone,
            sequence=sequence,
            value=value,
            names=None if names is None else tuple(map(str, names)),
            categories=None if categories is None else tuple(map(str, categories)),
            step=step,
            resample=resample,
            duplicates=duplicates,
            sort=sort,
        ),
    )
    return read_input(source, spec, fill=fill)


def to_spec(source: Any, given: InputSpec) -> tuple[Any, InputSpec]:
    """What to read, and how: the settings that are given, over those of an `InputSpec` or of a TOML file."""
    if isinstance(source, str | Path) and str(source).lower().endswith(".toml"):
        source = InputSpec.load(source)
    if not isinstance(source, InputSpec):
        return source, given
    if source.file is None:
        raise InputError("file: not given in the InputSpec; give the path of the readings")
    return source.file, source.override(**given.to_dict())


def read_input(source: Any, spec: InputSpec, *, fill: int = 0) -> Readings:
    """Read a source, whose settings are all in `spec`, onto its grid."""
    if isinstance(source, Readings):
        raise InputError("data: these are readings already; use them as they are")
    if isinstance(source, np.ndarray):
        return _from_array(source, spec)
    if spec.names is not None:
        check_distinct(spec.names, "names")
        if not spec.names:
            raise InputError("names: none given; name at least one sequence")
    table = read_table(source, spec)
    return place_readings(read_raw(table, spec, find_columns(table, spec)), spec, fill=fill)


def place_readings(raw: RawReadings, spec: InputSpec, *, fill: int = 0) -> Readings:
    """Put readings on the grid that the settings describe."""
    return to_grid(
        raw,
        step=spec.step,
        duplicates=spec.duplicates or "refuse",
        sort=bool(spec.sort),
        resample=spec.resample,
        fill=fill,
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
    names: Sequence[str] | None = None,
    values: npt.ArrayLike | None = None,
    discretiser: Discretiser | None = None,
    outside: Outside = "refuse",
    time: str | None = None,
    sequence: str | None = None,
    value: str | None = None,
    step: int | str | None = None,
    timezone: str | None = None,
    duplicates: Duplicates | None = None,
    sort: bool | None = None,
    resample: Resample | None = None,
    fill: int = 0,
) -> Panel:
    """Read states: of readings that carry declared `values`, through a `discretiser`, or state numbers as they are.

    Further settings can be given in an `InputSpec`; `read_readings` describes those of times and columns in full.

    Args:
        source: a file, the address of a database, an `InputSpec`, or a data frame.
        names: sequences to read; all by default.
        values: the numbers that the states carry, (m,) or (s, m), as in a chain.
        discretiser: maps readings to states.
        outside: with `values`, a reading that is none of them is refused ("refuse") or moved to the nearest ("clamp").
        time: column of the times.
        sequence: column of a long table that names the sequence of each reading.
        value: column of a long table that holds the readings.
        step: time between two ticks.
        timezone: time zone of times without an offset.
        duplicates: which reading counts where a sequence has several at one time.
        sort: put rows in the order of their times.
        resample: which reading counts within each step, where times lie on no grid.
        fill: replace a missing reading by one that is at most this many ticks older.

    >>> table = {"time": [0, 1, 2], "a": [10.0, None, 30.0]}
    >>> read_panel(table, values=[10.0, 20.0, 30.0]).states.tolist()
    [[0], [-1], [2]]
    """
    if values is not None and discretiser is not None:
        raise InputError("values: a discretiser carries its own; give one of the two")
    if discretiser is not None and names is None:
        names = discretiser.names
    readings = read_readings(
        source,
        names=names,
        time=time,
        sequence=sequence,
        value=value,
        step=step,
        timezone=timezone,
        duplicates=duplicates,
        sort=sort,
        resample=resample,
        fill=fill,
        categories=None if discretiser is None else discretiser.categories,
    )
    if discretiser is not None:
        return discretiser.apply(readings)
    return to_panel(readings, values=values, outside=outside)


def to_panel(readings: Readings, *, values: npt.ArrayLike | None = None, outside: Outside = "refuse") -> Panel:
    """Readings as states, by the values that the states carry; without values, readings are state numbers."""
    table = None if values is None else value_rows(values, len(readings.names))
    cells = readings.readings
    states = _as_states(readings) if table is None else to_states(cells, table, outside=outside)
    return Panel(readings.names, readings.ticks, readings.times, states, readings.step, table, cells)


def _as_states(readings: Readings) -> npt.NDArray[np.int16]:
    cells = readings.readings
    known = ~np.isnan(cells)
    states = cells[known]
    if (states != np.floor(states)).any() or (states < 0).any() or (states > np.iinfo(np.int16).max).any():
        raise InputError(
            "readings: not all are state numbers 0, 1, 2, ...; give values= that the states carry, or a discretiser="
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
