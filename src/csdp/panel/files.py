"""Tables as named Arrow columns: from files of every kind, frames through narwhals, and mappings."""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import gzip
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from csdp.errors import InputError
from csdp.files import Scratch
from csdp.panel.input import InputSpec, check_no_address
from csdp.panel.times import mixed_offsets

if TYPE_CHECKING:
    import pyarrow

_KINDS = ".csv, .tsv, .txt, .jsonl (each also with .gz), .parquet, .arrow, .feather or .xlsx"
_INDEX = re.compile(r"__index_level_\d+__")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
#: Bytes of a file that are looked at to find its dialect.
_SAMPLE = 2**20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DELIMITERS = ",;\t|"


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
    """Refuse columns of the same name, also if only the case of letters differs, which not every engine distinguishes.

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


def read_table(source: Any, spec: InputSpec) -> ColumnTable:
    """A table from a path, a mapping of columns, or a frame of pandas, polars or pyarrow."""
    check_no_address(source)
    if isinstance(source, str | Path):
        file = Path(source)
        if not file.is_file():
            raise InputError(f"{file}: {'a folder given; a file expected' if file.is_dir() else 'no such file'}")
        reader = next((reader for ends, reader in _READERS.items() if file.name.lower().endswith(ends)), None)
        if reader is None:
            raise InputError(
                f"{file.name}: unknown kind of file; {_KINDS}, or .toml as `csdp open` writes it; export "
                "the table of a database as .parquet"
            )
        return reader(file, spec)
    if isinstance(source, Mapping):
        return _read_mapping(source)
    return _read_frame(source)


def _make_table(
    label: str,
    names: Iterable[str],
    columns: Iterable[pyarrow.ChunkedArray],
    found: dict[str, Any] | None = None,
) -> ColumnTable:
    stripped = [str(name).strip() for name in names]
    check_columns(label, stripped)
    named = dict(zip(stripped, columns, strict=True))
    for name in [name for name in named if _INDEX.fullmatch(name)]:
        index = named.pop(name)  # a pandas index without a name, as Arrow stores it; only times are of use
        if str(index.type).startswith("timestamp") and "time" not in named:
            named["time"] = index
    return ColumnTable(label, named, found or {})


def _read_parquet(file: Path, _: InputSpec) -> ColumnTable:
    import pyarrow
    import pyarrow.parquet

    try:
        with file.open("rb") as handle:  # an open file: a name might be taken for an address, or for a partition
            table = pyarrow.parquet.read_table(handle)
    except (pyarrow.ArrowException, OSError):
        raise InputError(f"{file.name}: not a Parquet file, or a damaged one") from None
    return _make_table(file.name, table.column_names, table.columns)


def _read_arrow(file: Path, _: InputSpec) -> ColumnTable:
    import pyarrow as pa
    from pyarrow import feather

    try:
        with file.open("rb") as handle:
            stream = not handle.read(8).startswith((b"ARROW1", b"FEA1"))
            handle.seek(0)
            table = pa.ipc.open_stream(handle).read_all() if stream else feather.read_table(handle)
    except (pa.ArrowException, OSError):
        raise InputError(f"{file.name}: not an Arrow or Feather file, or a damaged one") from None
    return _make_table(file.name, table.column_names, table.columns)


def _read_bytes(file: Path) -> bytes:
    try:
        return gzip.decompress(file.read_bytes()) if file.suffix.lower() == ".gz" else file.read_bytes()
    except (OSError, EOFError):
        raise InputError(f"{file.name}: cannot be read, or not a gzip file") from None


def _read_json_lines(file: Path, spec: InputSpec) -> ColumnTable:
    """One object per line; `values` may hold one cell for each sequence, as in the messages of a stream."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    text, encoding = to_utf8(file.name, _read_bytes(file), spec.encoding)
    if not text.strip():
        raise InputError(f"{file.name}: empty; at least one line of JSON expected")

    def read(kinds: list[Any]) -> pyarrow.Table:
        return arrow_json.read_json(
            io.BytesIO(text),
            read_options=arrow_json.ReadOptions(use_threads=False),
            parse_options=arrow_json.ParseOptions(explicit_schema=pa.schema(kinds)),
        )

    try:
        table = read([])
        # Arrow would forget which of the times had an offset: they stay text, which is read as that of any table.
        stamps = [(field.name, pa.string()) for field in table.schema if pa.types.is_timestamp(field.type)]
        table = read(stamps) if stamps else table
    except pa.ArrowException:
        raise InputError(f"{file.name}: not JSON lines: one object on each line, with cells of one kind") from None
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name == "values" and pa.types.is_struct(column.type):
            parts = pa.table({"values": column}).flatten()
            columns |= {n.removeprefix("values."): c for n, c in zip(parts.column_names, parts.columns, strict=True)}
        elif pa.types.is_nested(column.type):
            raise InputError(f"{file.name}: {name!r} holds lists or objects; one number, word or time expected")
        else:
            columns[name] = column
    return _make_table(file.name, columns, columns.values(), {"encoding": encoding})


def _read_excel(file: Path, spec: InputSpec) -> ColumnTable:
    try:
        import openpyxl
    except ImportError:
        raise InputError(
            f"{file.name}: Excel files need the package openpyxl; install csdp[excel], or save the sheet as .csv"
        ) from None
    try:
        with file.open("rb") as handle:
            book = openpyxl.load_workbook(handle, read_only=True, data_only=True)
            sheets = book.sheetnames
            sheet = spec.table if spec.table is not None else sheets[0]
            rows = list(book[sheet].iter_rows(values_only=True)) if sheet in sheets else None
            book.close()
    except Exception as error:  # zip, XML and the package itself raise errors of many kinds; none may quote a cell
        raise InputError(f"{file.name}: not an Excel file, or a damaged one ({type(error).__name__})") from None
    if rows is None:
        raise InputError(f"{file.name}: no sheet {sheet!r}; give table= with one of: {', '.join(sheets[:8])}")
    rows = [row for row in rows if any(cell is not None for cell in row)]
    if len(rows) < 2:
        raise InputError(f"{file.name}: empty; a header line and at least one row expected")
    width = max(i + 1 for i, cell in enumerate(rows[0]) if cell is not None)
    names = [str(cell) for cell in rows[0][:width]]
    cells = [list(column) for column in zip(*(row[:width] for row in rows[1:]), strict=True)]
    columns = [_read_column(file.name, name, column) for name, column in zip(names, cells, strict=True)]
    return _make_table(file.name, names, columns, {"table": sheet})


def _read_csv(file: Path, spec: InputSpec) -> ColumnTable:
    """Every cell as text; it is converted column by column later, with messages that do not quote it."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    text, encoding = to_utf8(file.name, _read_bytes(file), spec.encoding)
    if b"\n" not in text:  # lines that end as on old Macs
        text = text.replace(b"\r", b"\n")
    given = "\t" if spec.delimiter is None and ".tsv" in file.suffixes else spec.delimiter
    dialect = find_dialect(text, delimiter=given, header=spec.header, skip=spec.skip)
    lines = text.split(b"\n", dialect.skipped + 1)
    first, rest = (lines[dialect.skipped], lines[-1]) if len(lines) > dialect.skipped + 1 else (b"", b"")
    header = next(csv.reader([first.decode().rstrip("\r")], delimiter=dialect.delimiter), [])
    header = [name.strip() for name in header]
    if not header or (dialect.header and not rest.strip()):
        raise InputError(f"{file.name}: empty; a header line and at least one row expected")
    if not dialect.header:
        header = [f"column{i + 1}" for i in range(len(header))]
    check_columns(file.name, header)
    bad: list[Any] = []

    def refuse(row: Any) -> str:
        bad.append(row)
        return "skip"

    try:
        table = arrow_csv.read_csv(
            io.BytesIO(text),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, column_names=header, skip_rows=dialect.skipped + dialect.header
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=dialect.delimiter, invalid_row_handler=refuse),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        raise InputError(f"{file.name}: not a CSV file") from None
    if bad:
        row = bad[0]
        raise InputError(
            f"{file.name}: line {row.number} has {row.actual_columns} cells, the header has {row.expected_columns}"
        )
    if not table.num_rows:
        raise InputError(f"{file.name}: empty; a header line and at least one row expected")
    settings = {
        "encoding": encoding,
        "delimiter": dialect.delimiter,
        "header": dialect.header,
        "skip": dialect.skipped or None,
    }
    return _make_table(file.name, header, table.columns, settings)


_READERS: dict[str | tuple[str, ...], Callable[[Path, InputSpec], ColumnTable]] = {
    tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz")): _read_csv,
    tuple(f"{kind}{packed}" for kind in (".jsonl", ".ndjson") for packed in ("", ".gz")): _read_json_lines,
    (".parquet", ".pq"): _read_parquet,
    (".arrow", ".feather", ".ipc"): _read_arrow,
    (".xlsx", ".xlsm"): _read_excel,
}


def _read_mapping(source: Mapping[Any, Any]) -> ColumnTable:
    columns = {str(name): _read_column("columns", str(name), values) for name, values in source.items()}
    if len({len(column) for column in columns.values()}) > 1:
        raise InputError("columns: they differ in length")
    return _make_table("columns", source, columns.values())


def _read_frame(source: Any) -> ColumnTable:
    """Columns of a frame of any kind, through narwhals, as Arrow."""
    import narwhals as nw

    try:
        frame = nw.from_native(source, eager_only=True)
        names = frame.columns
    except nw.exceptions.DuplicateError:
        raise InputError("data frame: two columns have the same name") from None
    except (TypeError, ValueError):
        raise InputError(
            f"data: {type(source).__name__} given; a path, a data frame of pandas, polars or pyarrow "
            "(collect a lazy one first), a numpy array (ticks, sequences) or a mapping of columns"
        ) from None
    columns = [_read_column("data frame", str(name), c) for name, c in zip(names, frame.iter_columns(), strict=True)]
    index = nw.maybe_get_index(frame)
    # With pandas, times are often in the index; no other index is read.
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


# ---- how a text is written -------------------------------------------------------------------------------------------


def find_encoding(raw: bytes) -> str:
    """The encoding of a text: by its mark, by its zero bytes, UTF-8 if it is that, or else that of western Windows.

    >>> find_encoding("größe".encode("latin-1")), find_encoding("größe".encode()), find_encoding("a".encode("utf-16"))
    ('cp1252', 'utf-8', 'utf-16')
    """
    for mark, name in _BOMS:
        if raw.startswith(mark):
            return name
    head = raw[:_SAMPLE]
    if b"\0" in head:
        return "utf-16-le" if head[1::2].count(0) >= head[::2].count(0) else "utf-16-be"
    for name in ("utf-8", "cp1252"):
        try:
            raw.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def to_utf8(label: str, raw: bytes, encoding: str | None) -> tuple[bytes, str]:
    """The text in UTF-8 without a mark, and its encoding as given or found."""
    name = encoding or find_encoding(raw)
    try:
        text = raw.decode(name)
    except LookupError:
        raise InputError(
            f"{label}: encoding {name!r} is unknown; such as encoding='utf-8', 'utf-16', 'latin-1' or 'cp1252'"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{label}: not a text file in {name}; give the right encoding=, or leave it out") from None
    return text.removeprefix("\ufeff").encode(), name


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; `skipped` lines before the header are not part of the table."""

    delimiter: str
    header: bool
    skipped: int = 0


def find_dialect(text: bytes, *, delimiter: str | None, header: bool | None, skip: int | None = None) -> Dialect:
    """The dialect of a CSV text in UTF-8, found by DuckDB if it is not given.

    Lines are only skipped before a header: anywhere else they would be readings that vanish.

    >>> find_dialect("Zeit;Küche\\n1;20,5\\n2;20,7\\n".encode(), delimiter=None, header=None)
    Dialect(delimiter=';', header=True, skipped=0)
    """
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\n\r'):
        raise InputError(f"delimiter: {delimiter!r} given; one character, such as delimiter=';'")
    if delimiter is not None and header is not None and skip is not None:
        return Dialect(delimiter, header, skip)
    text = text.split(b"\n", skip or 0)[-1]
    sample = text[:_SAMPLE]
    if len(text) > _SAMPLE:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    dialect = _sniff(sample, {"delim": delimiter, "header": header})
    first = sample.partition(b"\n")[0].decode(errors="replace")
    if (
        dialect is None
        or (dialect.skipped and not dialect.header)
        or not (dialect.skipped or dialect.delimiter in first)
    ):
        # Rows of different lengths, which the reader refuses in words, or a single column.
        mark = delimiter or max(_DELIMITERS, key=first.count)
        dialect = Dialect(mark, _has_names(first, mark) if header is None else header)
    return replace(dialect, skipped=dialect.skipped + (skip or 0))


def _sniff(sample: bytes, given: Mapping[str, object]) -> Dialect | None:
    import duckdb

    known = {name: value for name, value in given.items() if value is not None}
    options = "".join(f", {name}=?" for name in known)
    question = f"SELECT Delimiter, HasHeader, SkipRows FROM sniff_csv(?, strict_mode=false{options})"
    try:
        with _file_of(sample) as path, _open_duckdb(os.getpid()).cursor() as cursor:
            row = cursor.execute(question, [path, *known.values()]).fetchone()
    except duckdb.Error:
        return None
    if row is None or len(row[0]) != 1:
        return None
    return Dialect(row[0], bool(row[1]), int(row[2]))


@cache
def _open_duckdb(_: int) -> Any:
    """A database in memory, opened once in each process, because opening takes longer than finding a dialect."""
    import duckdb

    return duckdb.connect(":memory:", config={"autoinstall_known_extensions": False, "threads": 1})


@contextmanager
def _file_of(sample: bytes) -> Iterator[str]:
    """The path of a file with a text: in memory if the system can, so that no copy of readings reaches a disk."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("csdp")
        try:
            with os.fdopen(handle, "wb", closefd=False) as file:
                file.write(sample)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
    else:
        with Scratch() as folder:
            path = folder.path / "sample.csv"
            path.write_bytes(sample)
            yield str(path)


def _has_names(line: str, delimiter: str) -> bool:
    cells = next(csv.reader([line], delimiter=delimiter), [])
    return any(cell.strip()[:1].isalpha() for cell in cells)
