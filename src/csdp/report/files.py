"""Files that commands write: atomically replaced files, strict JSON, and released series as CSV, Parquet or JSON."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.plan import Plan
    from csdp.publisher import Release, Skipped

#: Endings of the files that a series can be written to.
SERIES_KINDS = (".csv", ".parquet", ".json")
#: Largest number of sequences whose unequal ages are listed in every row; otherwise their range is.
_AGES_LISTED = 100


# ---- JSON and whole files ------------------------------------------------------------------------------------------


def to_strict_json(content: Any) -> Any:
    """Convert content to what strict JSON can hold: an infinite number becomes the string "inf".

    >>> to_strict_json({"epsilon": math.inf, "output": (0.5,)})
    {'epsilon': 'inf', 'output': [0.5]}
    """
    if isinstance(content, float) and math.isinf(content):
        return "inf" if content > 0 else "-inf"
    if isinstance(content, Mapping):
        return {str(key): to_strict_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [to_strict_json(value) for value in content]
    return content


def json_text(content: Any) -> str:
    """Format content as strict JSON: infinite numbers are the string "inf", NaN raises ValueError."""
    return json.dumps(to_strict_json(content), indent=2, allow_nan=False)


def ensure_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before any privacy budget is spent on its content."""
    if path.is_dir():
        raise InputError(f"{path}: a folder given; the name of a file expected")
    try:
        with _temporary_path(path).open("xb"):
            pass
        _temporary_path(path).unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); nothing was released") from None


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file and replace the old one when it is complete; an error leaves the old file as it was."""
    part = _temporary_path(path)
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON, completely or not at all."""
    with replace_file(path) as file:
        file.write((json_text(content) + "\n").encode())


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


# ---- released series -----------------------------------------------------------------------------------------------


class TimedTicks(Protocol):
    """Readings on a grid: a panel, or a table behind an engine."""

    @property
    def ticks(self) -> npt.NDArray[np.int64]:
        """Consecutive ticks."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The time of each tick, as read."""


@dataclass(frozen=True)
class Series:
    """Releases in order of their ticks, the times of the ticks as read, and the ticks without output."""

    names: tuple[str, ...]
    times: Mapping[int, Any]
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...] = ()

    @classmethod
    def of(
        cls, plan: Plan, readings: TimedTicks, releases: tuple[Release, ...], skipped: tuple[Skipped, ...] = ()
    ) -> Series:
        """Make the series of the releases of some readings."""
        names = plan.query.output_names(plan.model.names, plan.model.value_table)
        times = readings.times.tolist() if readings.times.dtype.kind != "M" else readings.times.astype(str).tolist()
        return cls(names, dict(zip(readings.ticks.tolist(), times, strict=True)), releases, skipped)

    def columns(self) -> dict[str, list[Any]]:
        """The columns tick, time, value, estimate, standard_error, low, high, about, ages, stale, epsilon_s, model, and
        count where readings were published.

        With several outputs, value, estimate, standard_error, low and high are followed by `:NAME`. What is missing of
        an estimate is None.
        """
        table: dict[str, list[Any]] = {
            "tick": [r.tick for r in self.releases],
            "time": [self.times[r.tick] for r in self.releases],
        }
        for part in ("value", "estimate", "standard_error", "low", "high"):
            rows = [r.values if part == "value" else getattr(r, part) for r in self.releases]
            for i, name in enumerate(self.names):
                label = part if len(self.names) == 1 else f"{part}:{name}"
                table[label] = [row[i] if row else None for row in rows]
        table["about"] = [r.about for r in self.releases]
        table["ages"] = [_format_ages(r.ages) for r in self.releases]
        table["stale"] = [r.stale for r in self.releases]
        table["epsilon_s"] = [r.epsilon_s for r in self.releases]
        table["model"] = [r.model for r in self.releases]
        if any(r.count is not None for r in self.releases):
            table["count"] = [r.count for r in self.releases]
        return table


def _format_ages(ages: int | tuple[int, ...]) -> int | str:
    """Format one age, or one per sequence; of very many only their range.

    >>> _format_ages(2), _format_ages((1, 3))
    (2, '1,3')
    """
    if isinstance(ages, int):
        return ages
    return ",".join(map(str, ages)) if len(ages) <= _AGES_LISTED else f"{min(ages)}..{max(ages)}"


def check_kind(path: Path) -> str:
    """Return the ending of the file's name; refuse one that no series can be written to."""
    kind = path.suffix.lower()
    if kind not in SERIES_KINDS:
        allowed = f"{', '.join(SERIES_KINDS[:-1])} or {SERIES_KINDS[-1]}"
        raise InputError(f"output: {path.name!r} given; the name must end in {allowed}")
    return kind


def write_series(series: Series, path: Path) -> None:
    """Write a series in the format of the name's ending, completely or not at all."""
    kind = check_kind(path)
    content = {".csv": _csv, ".parquet": _parquet, ".json": _json}[kind](series)
    with replace_file(path) as file:
        file.write(content)


def _csv(series: Series) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    table = series.columns()
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue().encode()


def _json(series: Series) -> bytes:
    content = {
        "outputs": list(series.names),
        "releases": [
            {
                "tick": r.tick,
                "time": series.times[r.tick],
                **{part: list(getattr(r, part)) for part in ("values", "estimate", "standard_error", "low", "high")},
                **{part: getattr(r, part) for part in ("level", "about", "ages")},
                "stale": r.stale,
                "epsilon_s": r.epsilon_s,
                "model": r.model,
                **({} if r.count is None else {"count": r.count}),
            }
            for r in series.releases
        ],
        "skipped": [{"tick": s.tick, "time": series.times[s.tick], "reason": s.reason} for s in series.skipped],
    }
    return (json_text(content) + "\n").encode()


def arrow_table(series: Series) -> Any:
    """Make an arrow table of the columns of a series."""
    import pyarrow

    table = series.columns()
    kinds: dict[str, Any] = dict.fromkeys(("tick", "stale", "count"), pyarrow.int64())
    arrays = []
    for name, cells in table.items():
        if name == "time":
            stamps = any(isinstance(cell, str) for cell in series.times.values())
            times = pyarrow.array(cells, pyarrow.string() if stamps else pyarrow.int64())
            arrays.append(times.cast(pyarrow.timestamp("s")) if stamps else times)
        elif name in {"about", "model"}:
            arrays.append(pyarrow.array(cells, pyarrow.string()))
        elif name == "ages":
            whole = all(isinstance(cell, int) for cell in cells)
            arrays.append(pyarrow.array(cells, pyarrow.int64() if whole else pyarrow.string()))
        else:
            arrays.append(pyarrow.array(cells, kinds.get(name, pyarrow.float64())))
    return pyarrow.table(arrays, names=list(table))


def _parquet(series: Series) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(arrow_table(series), sink)
    return bytes(sink.getvalue())
