"""Reading data: `read_readings` for numbers, `read_panel` for states; tables as named Arrow columns.

Tables come from CSV and Parquet files, and from frames through narwhals.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.errors import InputError
from csdp.panel.grid import NUMBER, Duplicates, RawReadings, Resample, mixed_offsets, read_numbers, read_times, to_grid
from csdp.panel.readings import Outside, Panel, Readings, default_names, to_states, value_rows

if TYPE_CHECKING:
    import pyarrow

    from csdp.panel.discretiser import Discretiser


_INDEX = re.compile(r"__index_level_\d+__")
_KINDS = (".csv", ".csv.gz", ".parquet")


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
        step: time between ticks, a whole number (seconds for timestamps) or text ("5min"); default the longest that
            fits.
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
    time_name = table.find(time)
    if time_name is None:
        raise InputError(f"{table.label}: no column {time!r}; found {list_columns(list(table.columns))}")
    clock = read_times(table.label, time_name, table.columns[time_name], timezone)
    long = _long_columns(table, time_name, sequence, value)
    if long is not None:
        labels, rows, places, cells = _read_long(table, *long, names, categories)
        spread = RawReadings(table.label, clock, rows, places, cells, labels)
    else:
        labels = _wide_names(table, time_name, names)
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
    columns = table.find(sequence or "sequence"), table.find(value or "value")
    if sequence is None and value is None:
        usual = None not in columns and len(table.columns) == 3
        return (str(columns[0]), str(columns[1])) if usual else None
    for name, column in zip((sequence or "sequence", value or "value"), columns, strict=True):
        if column is None:
            raise InputError(f"{table.label}: no column {name!r}; found {list_columns(list(table.columns))}")
    if len({time, *columns}) != 3:
        raise InputError(f"{table.label}: time, sequence and value must be three columns")
    return str(columns[0]), str(columns[1])


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
) -> tuple[tuple[str, ...], Ints, Ints, Floats]:
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


# ---- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Named columns, and what to call the table in a message."""

    label: str
    columns: dict[str, pyarrow.ChunkedArray]

    def find(self, name: str) -> str | None:
        """The column of this name; spaces around it and the case of its letters do not matter."""
        if name.strip() in self.columns:
            return name.strip()
        lower = {known.lower(): known for known in self.columns}
        return lower.get(name.strip().lower())


def read_table(source: Any) -> ColumnTable:
    """A table from a path, a mapping of columns, or a frame of pandas, polars or pyarrow."""
    if isinstance(source, str | Path):
        file = Path(source)
        if not file.is_file():
            raise InputError(f"{file}: {'a folder given; a file expected' if file.is_dir() else 'no such file'}")
        name = file.name.lower()
        if not name.endswith(_KINDS):
            raise InputError(f"{file.name}: unknown kind of file; .csv or .parquet (or .csv.gz)")
        return _read_parquet(file) if name.endswith(".parquet") else _read_csv(file)
    if isinstance(source, Mapping):
        return _read_mapping(source)
    return _read_frame(source)


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


def _make_table(label: str, names: Iterable[str], columns: Iterable[pyarrow.ChunkedArray]) -> ColumnTable:
    stripped = [str(name).strip() for name in names]
    check_columns(label, stripped)
    named = dict(zip(stripped, columns, strict=True))
    for name in [name for name in named if _INDEX.fullmatch(name)]:
        index = named.pop(name)  # a pandas index without a name, as Arrow keeps it: times, or nothing of use
        if str(index.type).startswith("timestamp") and "time" not in named:
            named["time"] = index
    return ColumnTable(label, named)


def _read_parquet(file: Path) -> ColumnTable:
    import pyarrow
    import pyarrow.parquet

    try:
        with file.open("rb") as handle:  # an open file: a name might be taken for an address, or for a partition
            table = pyarrow.parquet.read_table(handle)
    except (pyarrow.ArrowException, OSError):
        raise InputError(f"{file.name}: not a Parquet file, or a damaged one") from None
    return _make_table(file.name, table.column_names, table.columns)


def _read_csv(file: Path) -> ColumnTable:
    """Every cell as text; it is converted column by column later, with messages that do not quote it."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix.lower() == ".gz" else file.read_bytes()
        first, _, rest = raw.partition(b"\n")
        line = first.decode("utf-8-sig").rstrip("\r")
    except (OSError, EOFError):
        raise InputError(f"{file.name}: cannot be read, or not a gzip file") from None
    except UnicodeDecodeError:
        raise InputError(f"{file.name}: not a text file in UTF-8") from None
    header = [name.strip() for name in next(csv.reader([line]), [])]
    if not header or not rest.strip():
        raise InputError(f"{file.name}: empty; a header line and at least one row expected")
    check_columns(file.name, header)
    bad: list[Any] = []

    def refuse(row: Any) -> str:
        bad.append(row)
        return "skip"

    try:
        table = arrow_csv.read_csv(
            io.BytesIO(raw),
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=header, skip_rows=1),
            parse_options=arrow_csv.ParseOptions(invalid_row_handler=refuse),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        kind = "not a text file in UTF-8" if "UTF8" in str(error) else "not a CSV file"
        raise InputError(f"{file.name}: {kind}") from None
    if bad:
        row = bad[0]
        raise InputError(
            f"{file.name}: line {row.number} has {row.actual_columns} cells, the header has {row.expected_columns}"
        )
    if not table.num_rows:
        raise InputError(f"{file.name}: empty; a header line and at least one row expected")
    return _make_table(file.name, header, table.columns)


def _read_mapping(source: Mapping[Any, Any]) -> ColumnTable:
    columns = {str(name): _read_column("columns", str(name), values) for name, values in source.items()}
    if len({len(column) for column in columns.values()}) > 1:
        raise InputError("columns: they differ in length")
    return _make_table("columns", source, columns.values())


def _read_frame(source: Any) -> ColumnTable:
    """One way for every frame: narwhals gives columns, Arrow holds them."""
    import narwhals as nw

    try:
        frame = nw.from_native(source, eager_only=True)
        names = frame.columns
    except nw.exceptions.DuplicateError:
        raise InputError("data frame: two columns have the same name") from None
    except (TypeError, ValueError):
        raise InputError(
            f"data: {type(source).__name__} given; a path (.csv, .parquet), a data frame of pandas, polars or pyarrow "
            "(collect a lazy one first), a numpy array (ticks, sequences) or a mapping of columns"
        ) from None
    columns = [_read_column("data frame", str(name), c) for name, c in zip(names, frame.iter_columns(), strict=True)]
    index = nw.maybe_get_index(frame)
    # pandas keeps times in its index as a habit; no other index means anything here.
    if index is not None and str(getattr(index, "dtype", "")).startswith("datetime"):
        label = str(index.name) if index.name is not None else "time"
        if label not in map(str, names):
            return _make_table(
                "data frame", [label, *names], [_read_column("data frame", label, index.to_series()), *columns]
            )
    return _make_table("data frame", names, columns)


def _read_column(label: str, name: str, values: Any) -> pyarrow.ChunkedArray:
    import narwhals as nw
    import pyarrow as pa

    try:
        if isinstance(values, nw.Series):
            if values.dtype != nw.Object:
                array = values.to_arrow()
                return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
            values = values.to_list()
        if not isinstance(values, np.ndarray):
            values = _to_utc(label, name, list(values))
        elif np.ma.isMaskedArray(values):
            return pa.chunked_array([pa.array(values.data, mask=np.ma.getmaskarray(values))])
        return pa.chunked_array([pa.array(values)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{label}: column {name!r} holds values of several kinds; make them alike") from None


def _to_utc(label: str, name: str, values: list[Any]) -> list[Any]:
    """Python datetimes with an offset, in UTC; Arrow would accept a mixture silently."""
    stamps = [value for value in values if isinstance(value, dt.datetime)]
    if not stamps or all(value.tzinfo is None for value in stamps):
        return values
    if any(value.tzinfo is None for value in stamps):
        raise mixed_offsets(label, name)
    return [value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for value in values]
