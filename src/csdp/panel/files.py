"""Tables as named Arrow columns: from files of every kind, frames through narwhals, mappings and databases.

Databases are opened for reading only.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from csdp.errors import InputError
from csdp.panel.columns import ColumnTable, check_columns
from csdp.panel.input import InputSpec, is_address
from csdp.panel.sniff import find_dialect, to_utf8
from csdp.panel.times import mixed_offsets

if TYPE_CHECKING:
    import pyarrow

_KINDS = ".csv, .tsv, .txt, .jsonl (each also with .gz), .parquet, .arrow, .feather, .xlsx, .sqlite, .db or .duckdb"
_INDEX = re.compile(r"__index_level_\d+__")


def read_table(source: Any, spec: InputSpec) -> ColumnTable:
    """A table from a path or an address, a mapping of columns, or a frame of pandas, polars or pyarrow."""
    if isinstance(source, str) and is_address(source):
        return _read_postgres(source, spec)
    if isinstance(source, str | Path):
        file = Path(source)
        if not file.is_file():
            raise InputError(f"{file}: {'a folder given; a file expected' if file.is_dir() else 'no such file'}")
        reader = next((reader for ends, reader in _READERS.items() if file.name.lower().endswith(ends)), None)
        if reader is None:
            raise InputError(f"{file.name}: unknown kind of file; {_KINDS}, or .toml as `csdp open` writes it")
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
    return _make_from_rows(file.name, names, [row[:width] for row in rows[1:]], {"table": sheet})


def _make_from_rows(
    label: str, names: Sequence[str], rows: Sequence[Sequence[Any]], found: dict[str, Any] | None = None
) -> ColumnTable:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
    return _make_table(label, names, [_read_column(label, n, c) for n, c in zip(names, columns, strict=True)], found)


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


# ---- databases -------------------------------------------------------------------------------------------------------


def _select(label: str, spec: InputSpec, tables: Sequence[str]) -> str:
    """The query: as given, or all of one table, which must exist."""
    if spec.sql is not None:
        return spec.sql
    listed = ", ".join(tables[:8]) or "none"
    name = spec.table
    if name is None:
        if len(tables) != 1:
            raise InputError(f"{label}: which table? Give table= (there are: {listed}), or sql= with a query")
        name = tables[0]
    if name not in tables:
        raise InputError(f"{label}: no table {name!r}; give table= with one of: {listed}")
    return 'SELECT * FROM "{}"'.format(name.replace('"', '""'))


def _wrong_query(label: str) -> InputError:
    return InputError(
        f"{label}: the database refused the query of sql=, or is damaged; give one SELECT that it can run"
    )


def _read_sqlite(file: Path, spec: InputSpec) -> ColumnTable:
    import sqlite3
    from contextlib import closing

    uri = f"file:{quote(str(file.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
            cursor = connection.execute(_select(file.name, spec, [name for (name,) in tables]))
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
    except sqlite3.DatabaseError:
        raise _wrong_query(file.name) from None
    return _make_from_rows(file.name, names, rows)


def _read_duckdb(file: Path, spec: InputSpec) -> ColumnTable:
    import duckdb

    try:
        connection = duckdb.connect(
            str(file.absolute()), read_only=True, config={"autoinstall_known_extensions": False}
        )
        with connection:
            tables = connection.execute(
                "SELECT table_name FROM information_schema.tables ORDER BY table_name"
            ).fetchall()
            cursor = connection.execute(_select(file.name, spec, [name for (name,) in tables]))
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
    except duckdb.Error:
        raise _wrong_query(file.name) from None
    return _make_from_rows(file.name, names, rows)


def _read_postgres(address: str, spec: InputSpec) -> ColumnTable:
    import sqlalchemy as sa

    try:
        url = sa.make_url(address).set(drivername="postgresql+psycopg")
        options = {"postgresql_readonly": True}
        engine = sa.create_engine(url, poolclass=sa.NullPool, execution_options=options)
    except sa.exc.ArgumentError:
        raise InputError("database: its address cannot be read; postgresql://user@host/database expected") from None
    except ImportError:
        raise InputError("postgresql: needs the package psycopg; install csdp[postgres]") from None
    try:
        with engine.connect() as connection:
            inspector = sa.inspect(connection)
            tables = sorted([*inspector.get_table_names(), *inspector.get_view_names()])
            result = connection.exec_driver_sql(_select("database", spec, tables))
            names, rows = list(result.keys()), [tuple(row) for row in result]
    except sa.exc.OperationalError:
        raise InputError(
            "database: cannot be reached, or it refused the user; check the address and PGPASSWORD"
        ) from None
    except sa.exc.SQLAlchemyError:
        raise _wrong_query("database") from None
    return _make_from_rows("database", names, rows)


_READERS: dict[str | tuple[str, ...], Callable[[Path, InputSpec], ColumnTable]] = {
    tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz")): _read_csv,
    tuple(f"{kind}{packed}" for kind in (".jsonl", ".ndjson") for packed in ("", ".gz")): _read_json_lines,
    (".parquet", ".pq"): _read_parquet,
    (".arrow", ".feather", ".ipc"): _read_arrow,
    (".xlsx", ".xlsm"): _read_excel,
    (".db", ".sqlite", ".sqlite3"): _read_sqlite,
    (".duckdb",): _read_duckdb,
}


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
