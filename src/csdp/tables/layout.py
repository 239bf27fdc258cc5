"""How a table is laid out: long (time, sequence, value or state) or wide (time, one column per sequence)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

KINDS = (".parquet", ".csv")


@dataclass(frozen=True)
class Found:
    """The columns of a table by what they are; `value` is None for a wide one."""

    label: str
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
    """Find the columns of a CSV file, a Parquet file or a folder of Parquet files."""
    file = Path(path)
    kind = file.suffix.lower()
    if not file.exists():
        raise InputError(f"{file}: no such file")
    if file.is_dir():
        parts = sorted(file.glob("*.parquet"))
        if not parts:
            raise InputError(f"{file.name}: a folder without .parquet files given")
        header = _parquet_header(parts[0])
    elif kind == ".parquet":
        header = _parquet_header(file)
    elif kind == ".csv":
        header = _csv_header(file)
    else:
        raise InputError(f"{file.name}: unknown kind of file; .csv or .parquet")
    if len(set(header)) != len(header):
        raise InputError(f"{file.name}: two columns have the same name")
    lower = {name.lower(): name for name in header}
    if "time" not in lower:
        raise InputError(f"{file.name}: no column 'time'; found {', '.join(header[:8])}")
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
        file.name, kind == ".csv", header, lower["time"], lower["sequence"] if long else None, value if long else None
    )


def _parquet_header(file: Path) -> tuple[str, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(file).names)
    except (pa.ArrowInvalid, OSError):
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
