"""The front doors: `read_readings` for numbers, `read_panel` for states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.panel.grid import Duplicates, RawReadings, Resample, read_times, to_grid
from csdp.panel.readings import Panel, Readings, default_names, value_rows
from csdp.panel.tables import ColumnTable, list_columns, read_numbers, read_table

if TYPE_CHECKING:
    from csdp.panel.discretiser import Discretiser

Floats = npt.NDArray[np.float64]
Outside = Literal["refuse", "clamp"]


def read_readings(
    source: str | Path | Any,
    *,
    names: Sequence[str] | None = None,
    time: str = "time",
    sequence: str | None = None,
    value: str | None = None,
    step: int | str | None = None,
    timezone: str | None = None,
    duplicates: Duplicates = "refuse",
    sort: bool = False,
    resample: Resample | None = None,
    fill: int = 0,
    categories: Sequence[str] | None = None,
) -> Readings:
    """Read numbers of named sequences onto a regular grid of ticks.

    Args:
        source: a CSV or Parquet file, a frame of pandas, polars or pyarrow, a mapping of columns, or a numpy array
            (ticks, sequences) whose rows are consecutive ticks.
        names: the sequences to read; default all columns but the time, or all sequences of a long table, sorted.
        time, sequence, value: columns. A table with `sequence` and `value` is long, any other wide.
        step: time between ticks, a whole number (seconds for timestamps) or text ("5min"); found where not given.
        timezone: where timestamps without an offset were written; they become UTC. Those with an offset always do.
        duplicates: what to make of two readings of one time.
        sort: whether to put times in order; otherwise a table out of order is refused.
        resample: which reading of [k step, (k+1) step) counts at tick k; by default times must lie on the grid.
        fill: ticks over which a missing reading is replaced by the last one. For fitting; the publisher does this
            itself (`stale_limit`) and accounts for it.
        categories: labels, where the cells are words; a reading is then the place of its label.

    tick = time // step, so the same time has the same tick in every file. Gaps become missing readings. No message
    quotes a reading.

    >>> read_readings({"time": [0, 60, 180], "a": [1.5, 2.5, 3.5]}).readings[:, 0].tolist()
    [1.5, 2.5, nan, 3.5]
    """
    if isinstance(source, Readings):
        raise InputError("data: these are readings already; use them as they are")
    if isinstance(source, np.ndarray):
        return _from_array(source, names, step, timezone, categories)
    if names is not None:
        names = default_names(names, len(names))
        if not names:
            raise InputError("names: none given; name at least one sequence")
    table = read_table(source)
    if not table.columns:
        raise InputError(f"{table.label}: no columns")
    found = table.find(time)
    if found is None:
        raise InputError(f"{table.label}: no column {time!r}; found {list_columns(list(table.columns))}")
    clock = read_times(table.label, found, table.columns[found], timezone)
    long = _long_columns(table, found, sequence, value)
    if long is not None:
        labels, rows, places, cells = _read_long(table, *long, names, categories)
        spread = RawReadings(table.label, clock, rows, places, cells, labels)
    else:
        labels = _wide_names(table, found, names)
        columns = [read_numbers(table.label, n, table.columns[n.strip()], categories) for n in labels]
        spread = RawReadings.from_wide(table.label, clock, np.column_stack(columns), labels)
    return to_grid(spread, step=step, duplicates=duplicates, sort=sort, resample=resample, fill=fill)


def read_panel(
    source: str | Path | Any,
    *,
    names: Sequence[str] | None = None,
    values: npt.ArrayLike | None = None,
    discretiser: Discretiser | None = None,
    outside: Outside = "refuse",
    time: str = "time",
    sequence: str | None = None,
    value: str | None = None,
    step: int | str | None = None,
    timezone: str | None = None,
    duplicates: Duplicates = "refuse",
    sort: bool = False,
    resample: Resample | None = None,
    fill: int = 0,
) -> Panel:
    """Read states: of readings that carry declared `values`, through a `discretiser`, or state numbers as they are.

    With `values` (m,) or (s, m), as in a chain, a reading that is none of them is refused, or with outside="clamp"
    moved to the nearest. The other settings are those of `read_readings`.

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
    table = None if values is None else value_rows(values, len(readings.names))
    cells = readings.readings
    states = _as_states(readings) if table is None else to_states(cells, table, outside=outside)
    return Panel(readings.names, readings.ticks, readings.times, states, readings.step, table)


def to_states(readings: Floats, values: Floats, *, outside: Outside = "refuse") -> npt.NDArray[np.int16]:
    """State numbers of readings (T, s) that carry the values (s, m); NaN is a missing reading (-1).

    A reading that is no declared value is refused, or with outside="clamp" moved to the nearest one; never silently.

    >>> to_states(np.array([[0.0, 2.0]]), np.array([[0.0, 1.0, 2.0]] * 2)).tolist()
    [[0, 2]]
    """
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
        if outside == "refuse":
            # Declared values were put on a lattice (2^-21 of the largest); nothing else is forgiven.
            tolerance = min(1e-5 * largest, float(np.diff(np.unique(levels)).min(initial=np.inf)) / 2)
            off = np.abs(levels[nearest] - column[known]) > tolerance
            if off.any():
                # The reading itself is private; only where and what is allowed is told.
                raise InputError(
                    f"readings: {int(off.sum())} of sequence {i + 1} are none of its {levels.size} declared values; "
                    "declare the values in the chain, discretise first, or choose outside='clamp'"
                )
        out[known, i] = order[i][nearest]
    return out


def _as_states(readings: Readings) -> npt.NDArray[np.int16]:
    cells = readings.readings
    known = ~np.isnan(cells)
    given = cells[known]
    if (given != np.floor(given)).any() or (given < 0).any() or (given > np.iinfo(np.int16).max).any():
        raise InputError(
            "readings: not all are state numbers 0, 1, 2, ...; give values= that the states carry, or a discretiser="
        )
    out = np.full(cells.shape, -1, dtype=np.int16)
    out[known] = given
    return out


def _from_array(
    array: npt.NDArray[Any],
    names: Sequence[str] | None,
    step: int | str | None,
    timezone: str | None,
    categories: Sequence[str] | None,
) -> Readings:
    if timezone is not None or categories is not None:
        raise InputError("data: an array has neither times nor words; give a mapping of columns with a time column")
    if isinstance(step, str):
        raise InputError(f"step: {step!r} given for an array, which has no times; a whole number")
    return Readings.from_array(array, names=names, step=1 if step is None else int(step))


def _long_columns(table: ColumnTable, time: str, sequence: str | None, value: str | None) -> tuple[str, str] | None:
    """The columns of a long table; None for a wide one."""
    found = table.find(sequence or "sequence"), table.find(value or "value")
    if sequence is None and value is None:
        usual = None not in found and len(table.columns) == 3
        return (str(found[0]), str(found[1])) if usual else None
    for name, column in zip((sequence or "sequence", value or "value"), found, strict=True):
        if column is None:
            raise InputError(f"{table.label}: no column {name!r}; found {list_columns(list(table.columns))}")
    if len({time, *found}) != 3:
        raise InputError(f"{table.label}: time, sequence and value must be three columns")
    return str(found[0]), str(found[1])


def _wide_names(table: ColumnTable, time: str, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        labels = tuple(name for name in table.columns if name != time)
        if not labels:
            raise InputError(f"{table.label}: no column beside {time!r}; one per sequence expected")
        return labels
    missing = [name for name in names if name.strip() not in table.columns]
    if missing:
        raise InputError(
            f"{table.label}: no column {missing[0]!r}; the chain names {', '.join(list(names)[:8])}. "
            "A wide table has one column per sequence, a long one has time, sequence and value"
        )
    return tuple(names)


def _read_long(
    table: ColumnTable, sequence: str, value: str, names: Sequence[str] | None, categories: Sequence[str] | None
) -> tuple[tuple[str, ...], npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    """Names, rows, place of the sequence in the names, numbers."""
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
    places = pc.index_in(words, value_set=pa.array(stripped, pa.string())).to_numpy().astype(np.int64)
    cells = read_numbers(label, value, table.columns[value], categories)
    return labels, np.arange(cells.size, dtype=np.int64), places, cells
