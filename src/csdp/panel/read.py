"""Reading data: `read_readings` for numbers, `read_panel` for states, `find_input` for how a table is to be read.

One reader behind every command: a source (a file, a frame, a mapping) becomes named Arrow columns, `find_columns` says
which of them holds what, and `csdp.panel.times` puts the readings on a grid. `InputSpec` has the settings, the same for
Python, options and `[input]` of a TOML file.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.errors import InputError
from csdp.numbers import Floats, Ints
from csdp.panel.panel import Panel, Readings, to_states, value_rows
from csdp.panel.times import (
    Duplicates,
    RawReadings,
    Resample,
    check_no_months,
    find_time_format,
    format_step,
    has_offsets,
    looks_like_times,
    mixed_offsets,
    read_times,
    text_of,
    to_grid,
)
from csdp.toml_text import Document, unknown_key

if TYPE_CHECKING:
    import pyarrow

    from csdp.panel.discretise import Discretiser

SECTION = "input"
_DUPLICATES = get_args(Duplicates)

# ---- settings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Settings of one table; None means: find it in the table, or the default of `csdp.read_readings`.

    Args:
        file: the path of the readings.
        table: a sheet of a workbook.
        delimiter: the character between cells of a text file.
        decimal: the decimal mark of numbers.
        encoding: the encoding of a text file.
        header: whether the first line has the names of the columns.
        skip: number of lines before the header.
        time: column of the times.
        time_format: how times are written if not as ISO, as in strptime.
        timezone: time zone of times without an offset.
        sequence: column of a long table that names the sequence of each reading.
        value: column of a long table that holds the readings.
        names: sequences to read.
        categories: words in the cells, in order; a reading is the place of its word.
        categories_from: "readings" if the words were found in the readings; without it they are declared.
        step: time between two ticks.
        resample: which reading counts within each step, if times lie on no grid.
        duplicates: which reading counts if a sequence has several at one time.

    >>> spec = InputSpec(file="rooms.csv", delimiter=";", decimal=",", time="Zeit", step="30min")
    >>> print(spec.to_toml())
    [input]
    file = "rooms.csv"
    delimiter = ";"
    decimal = ","
    time = "Zeit"
    step = "30min"
    <BLANKLINE>
    """

    file: str | None = None
    table: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    skip: int | None = None
    time: str | None = None
    time_format: str | None = None
    timezone: str | None = None
    sequence: str | None = None
    value: str | None = None
    names: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    categories_from: Literal["readings"] | None = None
    step: int | str | None = None
    resample: Resample | None = None
    duplicates: Duplicates | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("decimal", (".", ",")), ("resample", get_args(Resample)), ("duplicates", _DUPLICATES)):
            if getattr(self, name) is not None:
                check.choice(name, getattr(self, name), allowed)
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\n\r'):
            raise InputError(f"delimiter: {self.delimiter!r} given; one character, such as delimiter=';'")
        if self.skip is not None:
            check.whole("skip", self.skip)
        if isinstance(self.step, int):
            check.whole("step", self.step, least=1, hint="or a text such as '5min'")
        for name, words in (("names", self.names), ("categories", self.categories)):
            if words is not None and not words:
                raise InputError(f"{name}: none given; give at least one")
            check.distinct(name, words or ())
        check_no_address(self.file)

    def override(self, **given: Any) -> InputSpec:
        """The same settings, but for those that are given and not None.

        >>> InputSpec(time="Zeit", step=60).override(step=300, time=None)
        InputSpec(time='Zeit', step=300)
        """
        unknown = sorted(set(given) - {field.name for field in fields(self)})
        if unknown:
            raise InputError(
                f"{unknown[0]}: not a setting of readings; there are {', '.join(field.name for field in fields(self))}"
            )
        known = {name: _plain(value) for name, value in given.items() if value is not None}
        if "categories" in known:
            known.setdefault("categories_from", None)
        return replace(self, **known)

    def to_dict(self) -> dict[str, Any]:
        """The settings that are not None."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in every.items() if value is not None}

    def __repr__(self) -> str:
        return f"InputSpec({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def to_toml(self) -> str:
        """The settings as an `[input]` section, which `csdp.read_readings` and every command take."""
        lines = [f"[{SECTION}]"]
        for name, value in self.to_dict().items():
            lines.append(
                f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}"
            )
        return "\n".join(lines) + "\n"

    def seen_from(self, folder: str | Path) -> InputSpec:
        """The same settings for a TOML file in a folder: readings in or below it are named relative to it."""
        if self.file is None:
            return self
        file, place = Path(self.file).absolute(), Path(folder).absolute()
        return replace(self, file=str(file.relative_to(place) if file.is_relative_to(place) else file))

    def save(self, path: str | Path) -> None:
        """Write the settings as a TOML file, which `load` reads."""
        Path(path).write_text(self.seen_from(Path(path).absolute().parent).to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> InputSpec:
        """Read the `[input]` section of a TOML file; its `file` is relative to the folder of that file."""
        document = Document(path)
        if SECTION not in document.content:
            raise InputError(
                f"{document.path}: no section [{SECTION}]; `csdp open DATA -o {document.path.name}` writes one"
            )
        return read_section(document)


def read_section(document: Document) -> InputSpec:
    """The settings in the `[input]` section of a TOML file."""
    content = document.content[SECTION]
    if isinstance(content, dict):
        names = [field.name for field in fields(InputSpec)]
        for name in content:
            if name not in names:
                raise document.error((SECTION, name), unknown_key(name, names))
    spec = document.read(InputSpec, content, SECTION)
    if spec.file is None:
        raise document.error((SECTION, "file"), "not given; the path of the readings")
    return replace(spec, file=str(document.path.parent / spec.file))


def _plain(value: Any) -> Any:
    return tuple(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def check_no_address(file: object) -> None:
    """Refuse the address of a database without quoting it, because it may contain a password.

    >>> check_no_address("postgresql://reader@host/ward")
    Traceback (most recent call last):
      ...
    csdp.errors.InputError: file: an address given; export the table of the database as .parquet, and give that file
    """
    if isinstance(file, str) and "://" in file:
        raise InputError("file: an address given; export the table of the database as .parquet, and give that file")


# ---- reading -------------------------------------------------------------------------------------------------------

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
        source: a file (CSV, TSV, JSON lines, Parquet, Excel), a TOML file with an `[input]` section, an
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
    table = read_table(source, spec)
    return to_grid(read_raw(table, find_columns(table, spec)), spec.step, spec.duplicates, spec.resample)


def read_raw(table: ColumnTable, spec: InputSpec) -> RawReadings:
    """The readings of a table one by one, with their times, before they are put on a grid."""
    label, columns, time = table.label, table.columns, str(spec.time)
    decimal = spec.decimal or find_decimal(table, spec)
    numbers = partial(read_numbers, label, categories=spec.categories, decimal=decimal)
    times = partial(read_times, label, time, columns[time], spec.timezone, time_format=spec.time_format)
    if spec.sequence is not None and spec.value is not None:
        names, places = _read_sequences(table, spec.sequence, spec.names)
        cells = numbers(spec.value, columns[spec.value])
        rows = np.flatnonzero(~np.isnan(cells))
        return RawReadings(label, times(groups=places), rows, places[rows], cells[rows], names)
    clock = times()
    names = _wide_names(table, time, spec.names)
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


# ---- tables as named columns ----------------------------------------------------------------------------------------

_KINDS = ".csv, .tsv, .txt, .jsonl (each also with .gz), .parquet or .xlsx"
_INDEX = re.compile(r"__index_level_\d+__")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
#: Characters between cells of a file in which DuckDB finds no table.
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


def _read_text(file: Path, encoding: str | None) -> tuple[str, str]:
    """The text of a file, and its encoding: given, or UTF-16 by its mark, UTF-8 if it is that, or western Windows."""
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix.lower() == ".gz" else file.read_bytes()
    except (OSError, EOFError):
        raise InputError(f"{file.name}: cannot be read, or not a gzip file") from None
    marked = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    names = [encoding] if encoding is not None else ["utf-16"] if marked else ["utf-8", "cp1252"]
    for name in names:
        try:
            return raw.decode(name).removeprefix("\ufeff"), name
        except LookupError:
            raise InputError(
                f"{file.name}: encoding {name!r} is unknown; such as encoding='utf-8', 'utf-16', 'latin-1' or 'cp1252'"
            ) from None
        except UnicodeDecodeError:
            continue
    raise InputError(f"{file.name}: not a text file in {names[-1]}; give the right encoding= or leave it out")


def _read_json_lines(file: Path, spec: InputSpec) -> ColumnTable:
    """One object per line; `values` may hold one cell for each sequence, as in the messages of a stream."""
    text, encoding = _read_text(file, spec.encoding)
    rows: list[dict[str, Any]] = []
    try:
        for line in filter(str.strip, text.split("\n")):
            row = json.loads(line)
            cells = row.pop("values") if isinstance(row.get("values"), dict) else {}
            rows.append({**row, **cells})
    except (AttributeError, RecursionError, TypeError, ValueError):
        raise InputError(f"{file.name}: not JSON lines: one object on each line") from None
    if not rows:
        raise InputError(f"{file.name}: empty; at least one line of JSON expected")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [_read_column(file.name, name, [row.get(name) for row in rows]) for name in names]
    return _make_table(file.name, names, columns, {"encoding": encoding})


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

    text, encoding = _read_text(file, spec.encoding)
    delimiter, has_header, skip = _find_dialect(file, text, encoding, spec)
    first = text.split("\n", skip + 1)[skip].rstrip("\r") if text.count("\n") >= skip else ""
    header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    if not has_header:
        header = [f"column{i + 1}" for i in range(len(header))]
    check_columns(file.name, header)
    bad: list[Any] = []

    def refuse(row: Any) -> str:
        bad.append(row)
        return "skip"

    empty = InputError(f"{file.name}: empty; a header line and at least one row expected")
    if not header:
        raise empty
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=header, skip_rows=skip + has_header),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=refuse),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        raise InputError(f"{file.name}: not a CSV file, or an empty one") from None
    if bad:
        row = bad[0]
        raise InputError(
            f"{file.name}: line {row.number} has {row.actual_columns} cells, the header has {row.expected_columns}"
        )
    if not table.num_rows:
        raise empty
    found = {"encoding": encoding, "delimiter": delimiter, "header": has_header, "skip": skip or None}
    return _make_table(file.name, header, table.columns, found)


def _find_dialect(file: Path, text: str, encoding: str, spec: InputSpec) -> tuple[str, bool, int]:
    """The delimiter, whether there is a header, and the lines before it, found by DuckDB if they are not given.

    Lines are only skipped before a header: anywhere else they would be readings that vanish.
    """
    import duckdb

    known = {"delim": spec.delimiter, "header": spec.header, "skip": spec.skip}
    known = {name: value for name, value in known.items() if value is not None}
    known["encoding"] = "utf-8" if encoding == "utf-8" else "utf-16" if "16" in encoding else "latin-1"
    options = "".join(f", {name}=?" for name in known)
    question = f"SELECT Delimiter, HasHeader, SkipRows FROM sniff_csv(?, strict_mode=false{options})"
    try:
        with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False, "threads": 1}) as connection:
            found = connection.execute(question, [str(file), *known.values()]).fetchone()
    except duckdb.Error:
        found = None
    given = spec.skip or 0
    first = next(iter(text.split("\n", given + 1)[given:]), "")
    if found is not None and len(found[0]) == 1:
        delimiter, header, skip = found
        if header if skip > given else delimiter in first:
            return delimiter, header, skip
    # Rows of different lengths, which the reader refuses in words, or a single column.
    return spec.delimiter or max(_DELIMITERS, key=first.count), spec.header is not False, given


_READERS: dict[str | tuple[str, ...], Callable[[Path, InputSpec], ColumnTable]] = {
    tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz")): _read_csv,
    tuple(f"{kind}{packed}" for kind in (".jsonl", ".ndjson") for packed in ("", ".gz")): _read_json_lines,
    (".parquet", ".pq"): _read_parquet,
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
        return pa.chunked_array([pa.array(values)])
    except InputError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise InputError(f"{label}: column {name!r} holds values of several kinds; make them alike") from None


def _to_utc(label: str, name: str, values: list[Any]) -> list[Any]:
    """Python datetimes with an offset, in UTC; Arrow would accept a mixture silently."""
    stamps = [value for value in values if isinstance(value, dt.datetime)]
    if not stamps or all(value.tzinfo is None for value in stamps):
        return values
    if any(value.tzinfo is None for value in stamps):
        raise mixed_offsets(label, name)
    return [value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value for value in values]


# ---- which column holds what ---------------------------------------------------------------------------------------


def find_columns(table: ColumnTable, spec: InputSpec) -> InputSpec:
    """The settings with the columns as names and cells show them, if they are not given; what is not clear is refused.

    A long table names the columns of sequence and value, a wide one has None there.
    """
    if not table.columns:
        raise InputError(f"{table.label}: no columns")
    time = _find_time(table, spec.time)
    usual = table.find("sequence"), table.find("value")
    columns: tuple[str | None, str | None] = (None, None)
    if spec.sequence is not None or spec.value is not None:
        columns = _named_columns(table, spec, time)
    elif None not in usual and len(table.columns) == 3:
        columns = usual
    elif spec.names is None or not set(map(str.strip, spec.names)) <= set(table.columns):
        columns = _guess_long(table, time)
    return replace(spec, time=time, sequence=columns[0], value=columns[1])


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


def find_decimal(table: ColumnTable, spec: InputSpec) -> str:
    """The decimal mark of the columns that are read: a comma if numbers have one, and nothing else would read them.

    >>> import pyarrow
    >>> table = ColumnTable("t.csv", {"a": pyarrow.chunked_array([["20,5", "21"]])})
    >>> find_decimal(table, InputSpec(time="time"))
    ','
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if spec.categories is not None:
        return "."
    wanted = {spec.value} if spec.value is not None else {name.strip() for name in spec.names or table.columns}
    unclear = ""
    for name, column in table.columns.items():
        words = text_of(column.slice(0, _CELLS)) if name in wanted and name != spec.time else None
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


# ---- what a table shows about itself --------------------------------------------------------------------------------

#: Distinct words up to which cells are taken as categories.
_CATEGORIES = 20
#: Steps that clocks and loggers have, in seconds.
_USUAL_STEPS = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800)
_SHOWN_ROWS = 5
_SHOWN_COLUMNS = 7
_NO_SPEC = InputSpec()
_IRREGULAR = "; times lie on no grid, so the last reading within each step counts (resample)"
#: What, what was found, the options that change it.
Fact = tuple[str, str, str]


@dataclass(frozen=True)
class FoundInput:
    """The complete settings of a table, its readings, and what was found.

    `facts`: what, what was found, the options that change it. `first_rows`: names of columns, and cells. **The first
    rows are readings**: everything else says nothing about them but times, names, and which are missing.
    """

    spec: InputSpec
    readings: Readings
    facts: tuple[Fact, ...]
    first_rows: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]

    def __repr__(self) -> str:
        return f"FoundInput({self.spec!r}, {self.readings!r})"


def find_input(source: Any, given: InputSpec = _NO_SPEC) -> FoundInput:
    """Find how a table is to be read: format, columns, time zone, step, gaps and duplicates; given settings are kept.

    Choices that change readings (which of two of one time counts, resampling) are made here and reported, where
    `read_readings` would refuse the table.

    >>> found = find_input({"Zeit": ["27.10.2024 10:00", "27.10.2024 10:30"], "Flur": ["20,5", "21"]})
    >>> found.spec
    InputSpec(decimal=',', time='Zeit', time_format='%d.%m.%Y %H:%M', step='30min')
    """
    source, spec = to_spec(source, given)
    if isinstance(source, np.ndarray | Readings):
        raise InputError("data: an array has nothing to find; read it with read_readings")
    table = read_table(source, spec)
    spec = spec.override(**table.found)
    if isinstance(source, str | Path):
        spec = spec.override(file=str(source))
    spec, left_out = _choose_columns(table, find_columns(table, spec))
    spec = _find_formats(table, spec)
    raw = read_raw(table, spec)
    spec, repeated = _choose_rows(raw, spec)
    spec, pace = _choose_step(raw, spec)
    readings = to_grid(raw, spec.step, spec.duplicates, spec.resample)
    if spec.step is None:
        spec = spec.override(step=format_step(readings.step) if raw.clock.stamps else readings.step)
    facts = (
        *_describe_text(spec),
        _describe_shape(spec, readings),
        *left_out,
        _describe_times(table, spec, readings),
        ("step", f"{spec.step}{pace}", "--step --resample"),
        _describe_gaps(readings),
        repeated,
    )
    return FoundInput(spec, readings, facts, _first_rows(table))


def _choose_columns(table: ColumnTable, spec: InputSpec) -> tuple[InputSpec, tuple[Fact, ...]]:
    """Columns of words: categories if all are, and else left out."""
    if spec.names is not None or spec.categories is not None:
        return spec, ()
    if spec.value is not None:
        if holds_words(table.columns[spec.value]):
            return _with_categories(table, spec, [spec.value])
        return spec, ()
    others = {name: column for name, column in table.columns.items() if name != spec.time}
    words = [name for name, column in others.items() if holds_words(column) or looks_like_times(column)]
    if not words:
        return spec, ()
    if len(words) == len(others):
        return _with_categories(table, spec, words)
    fact = ("left out", f"columns that hold no numbers: {', '.join(words)}", "--names --categories")
    return spec.override(names=[name for name in others if name not in words]), (fact,)


def _with_categories(table: ColumnTable, spec: InputSpec, columns: list[str]) -> tuple[InputSpec, tuple[Fact, ...]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    labels: set[str] = set()
    for name in columns:
        labels |= set(pc.unique(pc.utf8_trim_whitespace(table.columns[name].cast(pa.string()))).to_pylist())
    labels -= {"", None}
    if any(NUMBER.fullmatch(label) for label in labels):
        return spec, ()  # numbers with a slip among them, which the reader refuses with its row
    if len(labels) > _CATEGORIES:
        raise InputError(
            f"{table.label}: column {columns[0]!r} holds {len(labels)} different words; name the columns to read "
            f"(names=), or declare the labels (categories=), at most {_CATEGORIES} of which are found"
        )
    fact = (
        "categories",
        f"{len(labels)} words, numbered in alphabetical order, taken from the readings",
        "--categories",
    )
    return spec.override(categories=sorted(labels), categories_from="readings"), (fact,)


def _find_formats(table: ColumnTable, spec: InputSpec) -> InputSpec:
    words = text_of(table.columns[str(spec.time)]) if spec.time_format is None else None
    if words is not None:
        spec = spec.override(time_format=find_time_format(table.label, str(spec.time), words))
    if spec.decimal is None and spec.categories is None:
        mark = find_decimal(table, spec)
        spec = spec.override(decimal=mark if mark != "." or spec.delimiter is not None else None)
    return spec


def _choose_rows(raw: RawReadings, spec: InputSpec) -> tuple[InputSpec, Fact]:
    """What to do about several readings of one time."""
    if raw.clock.stamps and spec.timezone is None and spec.sequence is None:
        times = raw.clock.numbers
        rows = 1 + np.flatnonzero(np.diff(times) < 0)
        if rows.size and times[rows[0] - 1] - times[rows[0]] <= 3600 * raw.clock.per_second:
            raise InputError(
                f"{raw.label}: times step back by up to an hour at {raw.clock.show(int(times[rows[0]]))}, as where "
                "clocks are set back; give timezone= with a name such as 'Europe/Berlin', or sort the rows"
            )
    times, sequences, numbers = raw.ordered()
    same = (np.diff(times) == 0) & (np.diff(sequences) == 0)
    count, differ = int(same.sum()), int((same & (np.diff(numbers) != 0)).sum())
    words = "none"
    if count and spec.duplicates is None:
        spec = spec.override(duplicates="last" if differ else "first")
        kept = f"{differ:,} of them differ, and the last in the file counts" if differ else "all of them are equal"
        words = f"{count:,} readings repeat a time: {kept}"
    elif count:
        words = str(spec.duplicates)
    return spec, ("duplicates", words, "--duplicates")


def _choose_step(raw: RawReadings, spec: InputSpec) -> tuple[InputSpec, str]:
    """A step if times lie on no grid: the usual one nearest to the median, with the last reading of each."""
    clock, distinct = raw.clock, np.unique(raw.clock.numbers)
    if spec.step is not None or spec.resample is not None or distinct.size < 3:
        return spec, ""
    check_no_months(raw.label, clock, distinct)
    times, sequences, _ = raw.ordered()
    gaps = np.diff(times)[(np.diff(sequences) == 0) & (np.diff(times) > 0)]
    typical = int(np.median(gaps if gaps.size else np.diff(distinct)))
    common = int(np.gcd.reduce(np.diff(distinct)))
    on_grid = bool((distinct % clock.per_second == distinct[0] % clock.per_second).all())
    ticks = int(distinct[-1] - distinct[0]) // common + 1
    if on_grid and (common >= typical or ticks <= 4 * distinct.size):
        return spec, ""
    if not clock.stamps:
        return spec.override(step=max(1, typical), resample="last"), _IRREGULAR
    every = max(typical / clock.per_second, 1e-9)
    step = min(_USUAL_STEPS, key=lambda usual: abs(np.log(usual / every)))
    return spec.override(step=format_step(step), resample="last"), _IRREGULAR


# ---- in words --------------------------------------------------------------------------------------------------------


def _describe_text(spec: InputSpec) -> list[Fact]:
    facts = []
    if spec.file is not None:
        part = "" if spec.table is None else f", {spec.table!r}"
        facts.append(("file", f"{Path(spec.file).name}{part}", ""))
    if spec.delimiter is not None:
        mark = {"\t": "tabs", ",": "commas", ";": "semicolons"}.get(spec.delimiter, repr(spec.delimiter))
        head = "a header line" if spec.header else "no header line"
        skipped = f" after {spec.skip} others" if spec.skip else ""
        point = {",": "decimal comma", ".": "decimal point"}.get(spec.decimal or ".", "")
        words = f"{spec.encoding}, {mark} between cells, {point}, {head}{skipped}"
        facts.append(("text", words, "--delimiter --decimal"))
    return facts


def _describe_shape(spec: InputSpec, readings: Readings) -> Fact:
    shown = ", ".join(readings.names[:6]) + (", ..." if len(readings.names) > 6 else "")
    count = f"{len(readings.names):,} sequences: {shown}"
    if spec.sequence is None:
        return "shape", f"wide, one column for each of {count}", "--names, or --sequence and --value"
    return "shape", f"long, column {spec.sequence!r} has {count}; readings in {spec.value!r}", "--sequence --value"


def _describe_times(table: ColumnTable, spec: InputSpec, readings: Readings) -> Fact:
    if readings.times.dtype.kind != "M":
        zone = "whole numbers"
    elif spec.timezone is not None:
        zone = f"local times of {spec.timezone}, here in UTC"
    elif has_offsets(table.columns[str(spec.time)]):
        zone = "with offsets, here in UTC"
    else:
        zone = "without a zone, taken as they are"
    form = f", written {spec.time_format}" if spec.time_format is not None else ""
    span = f"{readings.times[0]} to {readings.times[-1]}"
    return "times", f"column {spec.time!r}{form}, {zone}: {span}", "--time --timezone --time-format"


def _describe_gaps(readings: Readings) -> Fact:
    missing = np.isnan(readings.readings)
    longest = max(_longest_run(missing[:, i]) for i in range(missing.shape[1]))
    words = f"{missing.mean():.1%} of {len(readings):,} ticks are missing" + (
        f", at most {longest:,} in a row" if longest else ""
    )
    return "gaps", words, "--stale-limit of plan"


def _longest_run(flags: Any) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _first_rows(table: ColumnTable) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    names = tuple(table.columns)[:_SHOWN_COLUMNS]
    columns = [table.columns[name].slice(0, _SHOWN_ROWS).to_pylist() for name in names]
    rows = zip(*columns, strict=True)
    return names, tuple(tuple("" if cell is None else str(cell) for cell in row) for row in rows)
