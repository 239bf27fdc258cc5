"""Whatever holds a table, as named Arrow columns: CSV and Parquet files, and frames through narwhals."""

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

from csdp.errors import InputError
from csdp.panel.grid import mixed_offsets

if TYPE_CHECKING:
    import pyarrow

Floats = npt.NDArray[np.float64]
#: Cells of text that count as empty, whatever reads them.
EMPTY = ("", "na", "n/a", "nan", "null", "none")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_INDEX = re.compile(r"__index_level_\d+__")
_KINDS = (".csv", ".csv.gz", ".parquet")


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
            shown = list_columns([first[folded], name])
            raise InputError(f"{label}: two columns have the same name, or differ in case only: {shown}")
        first[folded] = name


def list_columns(names: Sequence[str]) -> str:
    """Some column names for a message. Numbers are left out: of a file without a header line they would be readings.

    >>> list_columns(["time", "hall"]), list_columns(["0", "37.5"])
    ('time, hall', 'numbers; is there a header line?')
    """
    words = [name for name in names[:8] if not _NUMBER.fullmatch(name.strip())]
    return ", ".join(words) if words else "numbers; is there a header line?"


def _make_table(label: str, names: Iterable[str], columns: Iterable[pyarrow.ChunkedArray]) -> ColumnTable:
    stripped = [str(name).strip() for name in names]
    check_columns(label, stripped)
    found = dict(zip(stripped, columns, strict=True))
    for name in [name for name in found if _INDEX.fullmatch(name)]:
        index = found.pop(name)  # a pandas index without a name, as Arrow keeps it: times, or nothing of use
        if str(index.type).startswith("timestamp") and "time" not in found:
            found["time"] = index
    return ColumnTable(label, found)


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
    """Every cell as text; what it means is decided column by column, with messages that do not quote it."""
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
                found = values.to_arrow()
                return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])
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
    """Python datetimes with an offset, in UTC; Arrow would take a mixture without a word."""
    stamps = [value for value in values if isinstance(value, dt.datetime)]
    if not stamps or all(value.tzinfo is None for value in stamps):
        return values
    if any(value.tzinfo is None for value in stamps):
        raise mixed_offsets(label, name)
    return [value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for value in values]


def read_numbers(
    label: str, name: str, column: pyarrow.ChunkedArray, categories: Sequence[str] | None = None
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
        try:
            column = pc.cast(words, pa.float64())
        except pa.ArrowInvalid:
            raise _not_a_number(label, name, words.to_pylist()) from None
    elif kinds.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif not any(fits(column.type) for fits in (kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_null)):
        raise InputError(f"{label}: column {name!r} holds {column.type}, not numbers")
    found = column.cast(pa.float64(), safe=False).to_numpy()
    return np.array(found, dtype=np.float64)


def _not_a_number(label: str, name: str, words: list[str | None]) -> InputError:
    # The cell is private; only its place is told.
    row = next((i for i, word in enumerate(words) if word is not None and not _NUMBER.fullmatch(word)), None)
    where = "" if row is None else f", row {row + 1}"
    return InputError(
        f"{label}: column {name!r}{where} is not a number; leave missing cells empty, name the columns to read, or "
        "declare the categories"
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
        shown = ", ".join(repr(str(category)) for category in list(categories)[:8])
        raise InputError(f"{label}: column {name!r}, row {row} is none of the categories {shown}")
    return np.array(place.cast(pa.float64()).to_numpy(), dtype=np.float64)
