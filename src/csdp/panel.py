"""Panel: named sequences on a regular grid of ticks, as discrete states; -1 marks a missing reading."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

Floats = npt.NDArray[np.float64]
Outside = Literal["refuse", "clamp"]

#: Ticks that gaps may add to what was read.
MAX_GAP = 1_000_000


@dataclass(frozen=True, eq=False)
class Panel:
    """Readings of s sequences at T ticks.

    `states` (T, s): state numbers, -1 where missing; `ticks` (T,): consecutive whole numbers; `times` (T,): as read;
    `step`: time from one tick to the next.
    """

    names: tuple[str, ...]
    ticks: npt.NDArray[np.int64]
    times: npt.NDArray[Any]
    states: npt.NDArray[Any]
    step: int = 1

    def __post_init__(self) -> None:
        if self.states.ndim != 2 or self.states.shape != (self.ticks.size, len(self.names)):
            raise InputError(
                f"panel: states of shape {self.states.shape} given for {self.ticks.size} ticks, {len(self.names)} names"
            )
        if self.ticks.size and (np.diff(self.ticks) != 1).any():
            raise InputError("panel: ticks must be consecutive; mark missing readings with -1")

    def __len__(self) -> int:
        return int(self.ticks.size)

    @classmethod
    def from_states(cls, states: npt.ArrayLike, *, names: Sequence[str] | None = None, first_tick: int = 0) -> Panel:
        """A panel from state numbers (T, s), -1 where missing.

        >>> Panel.from_states([[0, 1], [1, -1]]).states.tolist()
        [[0, 1], [1, -1]]
        """
        array = np.asarray(states)
        if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"panel: {array.dtype} of shape {array.shape} given; whole numbers (ticks, sequences)")
        labels = tuple(names) if names is not None else tuple(f"x{i + 1}" for i in range(array.shape[1]))
        ticks = first_tick + np.arange(array.shape[0], dtype=np.int64)
        return cls(labels, ticks, ticks, array)


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


def read_panel(
    path: str | Path,
    *,
    names: Sequence[str],
    values: Floats,
    step: int | None = None,
    outside: Outside = "refuse",
) -> Panel:
    """Read a CSV or Parquet file, wide (time and one column per sequence) or long (time, sequence, value).

    Times are whole numbers or ISO timestamps, strictly increasing, on a regular grid of `step` (found where not given;
    seconds for timestamps). Gaps become missing readings. A tick is the time divided by the step, so that the same time
    has the same tick in every file.
    """
    file = Path(path)
    columns = _columns(file)
    lower = {name.lower(): name for name in columns}
    if "time" not in lower:
        raise InputError(f"{file.name}: no column 'time'; found {', '.join(list(columns)[:8])}")
    raw_times = columns[lower["time"]]
    if {"sequence", "value"} <= set(lower) and len(columns) == 3:
        times, readings = _long(file.name, raw_times, columns[lower["sequence"]], columns[lower["value"]], names)
    else:
        missing = [name for name in names if name not in columns]
        if missing:
            raise InputError(
                f"{file.name}: no column {missing[0]!r}; the chain names {', '.join(list(names)[:8])}. "
                "A wide file has one column per sequence, a long file has time, sequence and value"
            )
        times = raw_times
        readings = np.column_stack([_numbers(file.name, name, columns[name]) for name in names])
    return _on_grid(file.name, times, readings, names, values, step, outside)


def _columns(file: Path) -> dict[str, list[Any]]:
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    if file.suffix.lower() == ".parquet":
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(file)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise InputError(f"{file.name}: not a Parquet file ({str(error).splitlines()[0]})") from None
        return {name: table.column(name).to_pylist() for name in table.column_names}
    if file.suffix.lower() != ".csv":
        raise InputError(f"{file.name}: unknown kind of file; .csv or .parquet")
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            rows = list(csv.reader(handle))
    except UnicodeDecodeError:
        raise InputError(f"{file.name}: not a text file in UTF-8") from None
    if len(rows) < 2:
        raise InputError(f"{file.name}: empty; a header line and at least one row expected")
    header = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise InputError(f"{file.name}: line {number} has {len(row)} cells, the header has {len(header)}")
    if len(set(header)) != len(header):
        raise InputError(f"{file.name}: two columns have the same name")
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(header)}


def _numbers(file: str, name: str, cells: Sequence[Any]) -> Floats:
    out = np.empty(len(cells))
    for i, cell in enumerate(cells):
        text = "" if cell is None else str(cell).strip()
        try:
            out[i] = np.nan if text.lower() in {"", "na", "nan", "null", "none"} else float(text)
        except ValueError:
            raise InputError(f"{file}: column {name!r}, row {i + 1} is not a number") from None
    return out


def _long(
    file: str, times: list[Any], sequences: list[Any], cells: list[Any], names: Sequence[str]
) -> tuple[list[Any], Floats]:
    place = {name: i for i, name in enumerate(names)}
    unknown = sorted({str(name) for name in sequences} - set(place))
    if unknown:
        raise InputError(f"{file}: unknown sequence {unknown[0]!r}; the chain names {', '.join(list(names)[:8])}")
    distinct: dict[Any, int] = {}
    for time in times:
        distinct.setdefault(time, len(distinct))
    readings = np.full((len(distinct), len(names)), np.nan)
    filled = np.zeros(readings.shape, dtype=bool)
    for time, name, value in zip(times, sequences, _numbers(file, "value", cells), strict=True):
        at = distinct[time], place[str(name)]
        if filled[at]:
            raise InputError(f"{file}: two readings of {name!r} at time {time}; keep one")
        filled[at] = True
        readings[at] = value
    return list(distinct), readings


def _on_grid(
    file: str,
    raw: Sequence[Any],
    readings: Floats,
    names: Sequence[str],
    values: Floats,
    step: int | None,
    outside: Outside,
) -> Panel:
    numbers = _time_numbers(file, raw)
    gaps = np.diff(numbers)
    if (gaps == 0).any():
        raise InputError(f"{file}: time {raw[int(np.argmin(gaps)) + 1]} appears twice; keep one row per time")
    if (gaps < 0).any():
        raise InputError(f"{file}: times are not in order at row {int(np.argmax(gaps < 0)) + 2}; sort by time first")
    if step is None and not gaps.size:
        raise InputError(f"{file}: a single time does not show how far apart ticks are; give the step")
    every = step if step is not None else int(np.gcd.reduce(gaps))
    if every < 1 or (gaps % every).any():
        raise InputError(f"{file}: times do not lie on a grid of {every}; resample first or give the right step")
    ticks = numbers // every
    span = int(ticks[-1] - ticks[0]) + 1
    if span - ticks.size > MAX_GAP:
        raise InputError(f"{file}: gaps of {span - ticks.size:,} ticks; at most {MAX_GAP:,}. Split the file")
    states = np.full((span, len(names)), -1, dtype=np.int16)
    states[ticks - ticks[0]] = to_states(readings, values, outside=outside)
    all_ticks = np.arange(ticks[0], ticks[0] + span, dtype=np.int64)
    times = all_ticks * every + int(numbers[0] % every)
    kept = np.array(times, dtype="datetime64[s]") if _is_stamp(raw[0]) else times
    return Panel(tuple(names), all_ticks, kept, states, every)


def _is_stamp(cell: Any) -> bool:
    return not (isinstance(cell, int | np.integer) or (isinstance(cell, str) and cell.strip().lstrip("+-").isdigit()))


def _time_numbers(file: str, raw: Sequence[Any]) -> npt.NDArray[np.int64]:
    if not len(raw):
        raise InputError(f"{file}: no rows")
    try:
        if _is_stamp(raw[0]):
            stamps = [str(cell).strip().removesuffix("Z") for cell in raw]
            found = np.array(stamps, dtype="datetime64[s]")
            if np.isnat(found).any():
                raise ValueError
            return found.astype(np.int64)
        return np.array([int(cell) for cell in raw], dtype=np.int64)
    except (ValueError, TypeError):
        raise InputError(f"{file}: column 'time' must hold whole numbers or ISO timestamps throughout") from None
