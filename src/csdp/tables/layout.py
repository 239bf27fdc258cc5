"""How a table is laid out: long (time, sequence, value or state) or wide (time, one column per sequence)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.panel.tables import check_columns, list_columns

KINDS = (".parquet", ".csv")


@dataclass(frozen=True)
class Found:
    """The files of a table, and its columns by what they are; `value` is None for a wide one."""

    label: str
    files: tuple[Path, ...]  #: absolute; each is to be opened under exactly this name
    csv: bool
    header: tuple[str, ...]
    time: str
    sequence: str | None
    value: str | None

    @property
    def states(self) -> bool:
        """Whether cells are state numbers, not values."""
        return self.value is not None and self.value.lower() == "state"


def look(path: str | Path, names: Sequence[str]) -> Found:
    """Find the files and columns of a CSV file, a Parquet file or a folder of Parquet files.

    A path is the name of one file or folder, never a pattern, and says nothing about what the file holds.
    """
    file = Path(path)
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
    return Found(
        file.name,
        tuple(one.absolute() for one in files),
        kind == ".csv" and not file.is_dir(),
        header,
        lower["time"],
        lower["sequence"] if long else None,
        value if long else None,
    )


def _folder_files(folder: Path) -> tuple[Path, ...]:
    """The Parquet files of a folder. What one engine would read and another leave out is refused, not chosen.

    Names that begin with "_" or "." are marks of the programme that wrote the folder (`_SUCCESS`, checksums), unless
    they are Parquet files or folders: parts of a table that is not finished, or is a log of changes.
    """
    found = []
    for entry in sorted(folder.iterdir()):
        parquet = entry.suffix.lower() == ".parquet" and entry.is_file()
        if parquet and not entry.name.startswith(("_", ".")):
            found.append(entry)
        elif parquet or entry.is_dir() or not entry.name.startswith(("_", ".")):
            raise InputError(
                f"{folder.name}: it holds {entry.name!r}; a folder is a table where all that it holds are .parquet "
                "files whose names begin with neither '_' nor '.'. Move the others elsewhere"
            )
    if not found:
        raise InputError(f"{folder.name}: a folder without .parquet files given")
    return tuple(found)


def _common_header(label: str, files: Sequence[Path]) -> tuple[str, ...]:
    """The columns that all files have, of the same kinds: engines would fill, cast or drop what differs."""
    columns = [[(column.name, column.type) for column in parquet_schema(file)] for file in files]
    for file, own in zip(files, columns, strict=True):
        if own != columns[0]:
            raise InputError(
                f"{label}: {file.name!r} has other columns, or columns of other kinds, than {files[0].name!r}; write "
                "all files of a folder alike"
            )
    return tuple(name for name, _ in columns[0])


def parquet_schema(file: Path) -> Any:
    """The columns of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open("rb") as handle:  # an open file: a name might be taken for an address
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


def cell_values(found: Found, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The values that cells may have: those of the states, or the state numbers themselves."""
    return np.arange(values.shape[-1], dtype=np.float64) if found.states else values
