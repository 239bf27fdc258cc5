"""How a table is laid out: long (time, sequence, value or state) or wide (time, one column per sequence)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csdp.arrays import Floats
from csdp.errors import InputError
from csdp.panel.tables import check_columns, list_columns


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

    def cell_values(self, values: Floats) -> Floats:
        """Values that cells may have: those of the states, or the state numbers where the column is named 'state'."""
        has_states = self.value is not None and self.value.lower() == "state"
        return np.arange(values.shape[-1], dtype=np.float64) if has_states else values


def find_table(path: str | Path, names: Sequence[str]) -> TableFiles:
    """Find the files and columns of a CSV file, a Parquet file or a folder of Parquet files.

    A path names one file or folder; it is never taken as a pattern, and folder names add no columns.
    """
    file = Path(path)
    kind = file.suffix.lower()
    if not file.exists():
        raise InputError(f"{file}: no such file")
    if file.is_dir():
        files = _folder_files(file)
        header = _common_header(file.name, files)
    elif kind == ".parquet":
        files, header = (file,), tuple(_parquet_schema(file).names)
    elif kind == ".csv":
        files, header = (file,), _csv_header(file)
    else:
        raise InputError(f"{file.name}: unknown kind of file; .csv or .parquet")
    check_columns(file.name, header)
    lower = {name.lower(): name for name in header}
    if "time" not in lower:
        raise InputError(f"{file.name}: no column 'time'; found {list_columns(header)}")
    value = lower.get("value", lower.get("state"))
    long = "sequence" in lower and value is not None
    if long and {"value", "state"} <= set(lower):
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
        lower["time"],
        lower["sequence"] if long else None,
        value if long else None,
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
    """The columns of all files, which must be equal in name and type: engines would fill, cast or drop others."""
    columns = [[(column.name, column.type) for column in _parquet_schema(file)] for file in files]
    for file, own in zip(files, columns, strict=True):
        if own != columns[0]:
            raise InputError(
                f"{label}: {file.name!r} has other columns, or columns of other kinds, than {files[0].name!r}; write "
                "all files of a folder alike"
            )
    return tuple(name for name, _ in columns[0])


def _parquet_schema(file: Path) -> Any:
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
    return tuple(name.strip() for name in header)
