"""What the sections share: sizes at a part of the full scale, and the records of which table and figure are made.

A record is plain data. With `case`, `against` and `ratio` it is a row of the table: ratio is our time over that of a
peer or of a physical limit, measured in the same run, so below 1 is faster; `target` is the most that it should be.
With `series`, `size` and `seconds` it is a point of the figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

Record = dict[str, Any]


def sized(full: int, scale: float, least: int) -> int:
    """A part of the full size, but not below what still shows something."""
    return max(least, round(full * min(scale, 1.0)))


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """Median seconds of some runs."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(median(times))


def compared(case: str, against: str, ours: float, theirs: float, *, target: float | None = None) -> Record:
    """A row of the table, from seconds."""
    return {"case": case, "against": against, "ratio": ours / theirs, "target": target, "seconds": ours}


def point(series: str, by: str, size: int, seconds: float) -> Record:
    """A point of the figure."""
    return {"series": series, "by": by, "size": size, "seconds": seconds}


def table(found: dict[str, list[Record]]) -> str:
    """The rows of all sections as text."""
    rows = [("section", "case", "against", "ratio", "at most", "")]
    for section, records in found.items():
        for record in records:
            if isinstance(record.get("ratio"), int | float):
                target = record.get("target")
                kept = "" if target is None else "yes" if record["ratio"] <= target else "NO"
                most = "" if target is None else f"{target:g}"
                case, against = str(record.get("case", "")), str(record.get("against", ""))
                rows.append((section, case, against, f"{record['ratio']:.3g}", most, kept))
    widths = [max(len(row[k]) for row in rows) for k in range(6)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
