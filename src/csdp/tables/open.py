"""Opening a table: its files and columns are found, then read by the engine that is asked for.

A table is long (time, sequence, value or state) or wide (time, one column per sequence).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.errors import InputError
from csdp.panel import InputSpec, read_panel
from csdp.panel.columns import check_columns, list_columns
from csdp.panel.read import to_spec
from csdp.panel.readings import Outside
from csdp.tables.engine import Engine, MemoryEngine

EngineName = Literal["memory", "duckdb", "spark"]

ENGINES: Final = get_args(EngineName)


@dataclass(frozen=True)
class TableFiles:
    """Files of a table, and the names of its columns; `sequence` and `value` are None for a wide table."""

    label: str
    files: tuple[Path, ...]  #: absolute; each is to be opened under exactly this name
    csv: bool
    header: tuple[str, ...]
    time: str
    sequence: str | None
    value: str | None
    folder: bool = False

    def cell_values(self, values: Floats) -> Floats:
        """Values that cells may have: those of the states, or the state numbers where the column is named 'state'."""
        has_states = self.value is not None and self.value.lower() == "state"
        return np.arange(values.shape[-1], dtype=np.float64) if has_states else values


#: Settings of readings that every engine takes, besides the columns and the step.
_PLAIN: Final[dict[str, tuple[object, ...]]] = {
    "delimiter": (",",),
    "decimal": (".",),
    "encoding": ("utf-8", "utf-8-sig"),
    "header": (True,),
    "duplicates": ("refuse",),
    "sort": (True, False),
}
_COLUMNS = ("file", "names", "time", "sequence", "value", "step")


def _check_plain(spec: InputSpec) -> None:
    """Refuse settings that only the reader in memory knows."""
    for name, value in spec.to_dict().items():
        if name not in _COLUMNS and value not in _PLAIN.get(name, ()):
            raise InputError(f"{name}: {value!r} given; only engine='memory' can read such a table")


def find_table(path: str | Path | InputSpec, names: Sequence[str]) -> TableFiles:
    """Find the files and columns of a CSV file, a Parquet file or a folder of Parquet files.

    A path names one file or folder; it is never taken as a pattern, and folder names add no columns.
    """
    source, spec = to_spec(path, InputSpec())
    _check_plain(spec)
    file = Path(source)
    kind = file.suffix.lower()
    if not file.exists():
        raise InputError(f"{file}: no such file")
    if file.is_dir():
        files = _folder_files(file)
        header = _common_header(file.name, files)
    elif kind == ".parquet":
        files, header = (file,), tuple(parquet_schema(file).names)
    elif kind == ".csv":
        files, header = (file,), _csv_header(file)
    else:
        raise InputError(f"{file.name}: unknown kind of file; .csv or .parquet, or others with engine='memory'")
    check_columns(file.name, header)
    lower = {name.lower(): name for name in header}
    time, sequence = (spec.time or "time").strip().lower(), (spec.sequence or "sequence").strip().lower()
    if time not in lower:
        given = spec.time or "time"
        raise InputError(
            f"{file.name}: no column {given!r}; found {list_columns(header)}. Name that of the times: time="
        )
    value = lower.get("value", lower.get("state")) if spec.value is None else lower.get(spec.value.strip().lower())
    long = sequence in lower and value is not None
    if long and spec.value is None and {"value", "state"} <= set(lower):
        raise InputError(f"{file.name}: columns 'value' and 'state' given; keep one of them")
    missing = [] if long else [name for name in names if name.strip() not in header]
    if missing:
        raise InputError(
            f"{file.name}: no column {missing[0]!r}; the chain names {', '.join(list(names)[:8])}. "
            "A wide table has one column per sequence, a long one has time, sequence and value"
        )
    return TableFiles(
        file.name,
        tuple(one.absolute() for one in files),
        kind == ".csv" and not file.is_dir(),
        header,
        lower[time],
        lower[sequence] if long else None,
        value if long else None,
        file.is_dir(),
    )


def _folder_files(folder: Path) -> tuple[Path, ...]:
    """The Parquet files of a folder. Entries that some engines read and others skip raise InputError.

    Names that begin with "_" or "." are skipped as marks of the writing program (`_SUCCESS`, checksums), unless they
    are Parquet files or folders, which belong to an unfinished table or a log of changes.
    """
    files = []
    for entry in sorted(folder.iterdir()):
        parquet = entry.suffix.lower() == ".parquet" and entry.is_file()
        if parquet and not entry.name.startswith(("_", ".")):
            files.append(entry)
        elif parquet or entry.is_dir() or not entry.name.startswith(("_", ".")):
            raise InputError(
                f"{folder.name}: it holds {entry.name!r}; the folder of a table may only hold .parquet files whose "
                "names do not begin with '_' or '.'. Move the others elsewhere"
            )
    if not files:
        raise InputError(f"{folder.name}: a folder without .parquet files given")
    return tuple(files)


def _common_header(label: str, files: Sequence[Path]) -> tuple[str, ...]:
    """The columns of all files, which must be equal in name and type: engines would fill, cast or drop others.

    Spark does not read files together that store one type in two ways, such as times in 96 and in 64 bits.
    """
    columns = [[(column.name, column.type) for column in parquet_schema(file)] for file in files]
    stored = [_stored_kinds(file) for file in files]
    for file, own, kinds in zip(files, columns, stored, strict=True):
        if own != columns[0] or kinds != stored[0]:
            raise InputError(
                f"{label}: {file.name!r} has other columns, or columns of other kinds, than {files[0].name!r}; write "
                "all files of a folder alike"
            )
    return tuple(name for name, _ in columns[0])


def _stored_kinds(file: Path) -> list[str]:
    """How a Parquet file stores its columns."""
    import pyarrow.parquet as pq

    with file.open("rb") as handle:
        schema = pq.read_metadata(handle).schema
    return [schema.column(i).physical_type for i in range(len(schema))]


def parquet_schema(file: Path) -> Any:
    """Return the columns of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open("rb") as handle:  # not by name, which might be taken for an address
            return pq.read_schema(handle)
    except (pa.ArrowException, OSError):
        raise InputError(f"{file.name}: not a Parquet file") from None


def _csv_header(file: Path) -> tuple[str, ...]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            rows = csv.reader(handle)
            header = next(rows, None)
            first = next(rows, None)
    except UnicodeDecodeError:
        raise InputError(f"{file.name}: not a text file in UTF-8") from None
    if header is None or first is None:
        raise InputError(f"{file.name}: empty; a header line and at least one row expected")
    if any("\n" in name.strip() or "\r" in name.strip() for name in header):
        raise InputError(f"{file.name}: the name of a column has a line break; write it in one line, or use Parquet")
    return tuple(name.strip() for name in header)


def open_table(
    path: str | Path | InputSpec,
    *,
    names: Sequence[str],
    values: npt.ArrayLike,
    engine: EngineName = "duckdb",
    step: int | str | None = None,
    outside: Outside = "refuse",
    master: str | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Engine:
    """Open a table of readings: CSV or Parquet, long (time, sequence, value or state) or wide.

    All engines give the same answers to the last bit.

    Args:
        path: one file, or a folder of Parquet files with the same columns; an `InputSpec` names its columns, where they
            have other names. It is never taken as a pattern, and names of folders add no columns.
        names: sequences of the chain.
        values: of the chain's states, (m,) or (s, m).
        engine: "memory", "duckdb" (larger than memory) or "spark" (clusters).
        step: time from one tick to the next; found from the times if None.
        outside: what to do with a reading that is no declared value: "refuse" the table, or "clamp" to the nearest.
        master: of Spark, such as "local[2]".
        memory_limit: of DuckDB, such as "4GB".
        threads: of DuckDB; by default one per core.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "readings.csv")
    ...     _ = file.write_text("time,sequence,value\\n0,a,0\\n1,a,1\\n2,a,1\\n")
    ...     with open_table(file, names=["a"], values=[0.0, 1.0]) as table:
    ...         table.ticks.tolist(), table.pair_counts([(0, 0)]).tolist()
    ([0, 1, 2], [[[0, 1], [0, 1]]])
    """
    if engine not in ENGINES:
        raise InputError(f"engine: {engine!r} given; {', '.join(ENGINES)}")
    if master is not None and engine != "spark":
        raise InputError(f"master: {master!r} given for engine {engine!r}; it is for engine 'spark'")
    if (memory_limit is not None or threads is not None) and engine != "duckdb":
        raise InputError(f"memory_limit and threads are for engine 'duckdb'; engine {engine!r} given")
    if outside not in {"refuse", "clamp"}:
        raise InputError(f"outside: {outside!r} given; 'refuse' or 'clamp'")
    table = np.asarray(values, dtype=np.float64)
    if table.ndim not in {1, 2} or (table.ndim == 2 and table.shape[0] != len(names)) or not np.isfinite(table).all():
        raise InputError(f"values: shape {table.shape} given; (states,) or ({len(names)}, states), finite")
    if table.ndim == 2 and (table == table[0]).all():
        table = table[0]  # one list of values makes shorter SQL
    step = to_spec(path, InputSpec(step=step))[1].step
    if engine == "duckdb":
        from csdp.tables.duck import DuckDBEngine

        return DuckDBEngine(
            path,
            names=names,
            values=table,
            step=step,
            outside=outside,
            memory_limit=memory_limit,
            threads=threads,
        )
    if engine == "spark":
        from csdp.tables.spark import SparkEngine

        return SparkEngine(path, names=names, values=table, step=step, outside=outside, master=master)
    files = find_table(path, names)
    panel = read_panel(
        _read_folder(files) if files.folder else files.files[0],
        names=names,
        values=np.broadcast_to(files.cell_values(table), (len(names), table.shape[-1])),
        step=step,
        outside=outside,
        sort=True,
        time=files.time,
        sequence=files.sequence,
        value=files.value,
    )
    return MemoryEngine(panel, states=table.shape[-1])


def _read_folder(folder: TableFiles) -> object:
    """Read the files of a folder, one after the other, into one Arrow table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for file in folder.files:
        try:
            with file.open("rb") as handle:
                tables.append(pq.read_table(handle))
        except (pa.ArrowException, OSError):
            raise InputError(f"{file.name}: not a Parquet file, or a damaged one") from None
    return pa.concat_tables(tables, promote_options="default")  # cells may be empty in one file and not in another


def pair_counts(
    path: str | Path | InputSpec,
    edges: npt.ArrayLike,
    *,
    names: Sequence[str],
    values: npt.ArrayLike,
    engine: EngineName = "duckdb",
    step: int | str | None = None,
    outside: Outside = "refuse",
    master: str | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Ints:
    """Count lag-1 pairs (edges, m, m) of a table, for edges (target, source); other arguments as for `open_table`.

    counts[e, a, b] = number of ticks t with the source in state a and, at t + 1, the target in state b; pairs with a
    missing reading are not counted. Counts of private data are private: a chain made from them leaks.
    """
    table = open_table(
        path,
        names=names,
        values=values,
        engine=engine,
        step=step,
        outside=outside,
        master=master,
        memory_limit=memory_limit,
        threads=threads,
    )
    with table:
        return table.pair_counts(edges)
