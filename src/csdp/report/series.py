"""A released series: as columns, and as a CSV, Parquet or JSON file. The same releases give the same bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.plan import Plan
from csdp.publisher import Release, Skipped
from csdp.report.files import json_text, written_whole

KINDS = (".csv", ".parquet", ".json")
#: Sequences up to which unequal ages are written out in every row.
_AGES_SHOWN = 100


class Timed(Protocol):
    """Readings on a grid: a panel, or a table behind an engine."""

    @property
    def ticks(self) -> npt.NDArray[np.int64]:
        """Consecutive ticks."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """Their times, as they were read."""


@dataclass(frozen=True)
class Series:
    """Releases in order of ticks, the times of the ticks as they were read, and ticks without output."""

    names: tuple[str, ...]
    times: Mapping[int, Any]
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...] = ()

    @classmethod
    def of(cls, plan: Plan, panel: Timed, releases: tuple[Release, ...], skipped: tuple[Skipped, ...] = ()) -> Series:
        """The releases that came of a panel."""
        names = plan.query.output_names(plan.model.names, plan.model.value_table)
        stamps = panel.times.tolist() if panel.times.dtype.kind != "M" else panel.times.astype(str).tolist()
        return cls(names, dict(zip(panel.ticks.tolist(), stamps, strict=True)), releases, skipped)

    def columns(self) -> dict[str, list[Any]]:
        """tick, time, `value`, `estimate` and `standard_error` (with `:NAME` where there are several outputs), ages,
        stale, epsilon_s. An estimate that was not made is None.
        """
        table: dict[str, list[Any]] = {
            "tick": [r.tick for r in self.releases],
            "time": [self.times[r.tick] for r in self.releases],
        }
        for part in ("value", "estimate", "standard_error"):
            rows = [r.values if part == "value" else getattr(r, part) for r in self.releases]
            for i, name in enumerate(self.names):
                label = part if len(self.names) == 1 else f"{part}:{name}"
                table[label] = [row[i] if row else None for row in rows]
        table["ages"] = [_ages(r.ages) for r in self.releases]
        table["stale"] = [r.stale for r in self.releases]
        table["epsilon_s"] = [r.epsilon_s for r in self.releases]
        return table


def _ages(ages: int | tuple[int, ...]) -> int | str:
    """One age, or one per sequence; of very many only their range.

    >>> _ages(2), _ages((1, 3))
    (2, '1,3')
    """
    if isinstance(ages, int):
        return ages
    return ",".join(map(str, ages)) if len(ages) <= _AGES_SHOWN else f"{min(ages)}..{max(ages)}"


def check_kind(path: Path) -> str:
    """The ending of the file's name, where it is one that can be written."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise InputError(f"output: {path.name!r} given; the name must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    return kind


def write_series(series: Series, path: Path) -> None:
    """Write a series; the name's ending gives the format. Wholly or not at all."""
    kind = check_kind(path)
    content = {".csv": _csv, ".parquet": _parquet, ".json": _json}[kind](series)
    with written_whole(path) as file:
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
                "values": list(r.values),
                "estimate": list(r.estimate),
                "standard_error": list(r.standard_error),
                "ages": r.ages,
                "stale": r.stale,
                "epsilon_s": r.epsilon_s,
            }
            for r in series.releases
        ],
        "skipped": [{"tick": s.tick, "time": series.times[s.tick], "reason": s.reason} for s in series.skipped],
    }
    return (json_text(content) + "\n").encode()


def arrow_table(series: Series) -> Any:
    """The columns of a series as an arrow table."""
    import pyarrow

    table = series.columns()
    kinds: dict[str, Any] = {"tick": pyarrow.int64(), "stale": pyarrow.int64(), "epsilon_s": pyarrow.float64()}
    arrays = []
    for name, cells in table.items():
        if name == "time":
            stamps = any(isinstance(cell, str) for cell in series.times.values())
            found = pyarrow.array(cells, pyarrow.string() if stamps else pyarrow.int64())
            arrays.append(found.cast(pyarrow.timestamp("s")) if stamps else found)
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
