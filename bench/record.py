"""Shared by the sections: sizes at a fraction of the full scale, and the records behind the table.

A record is plain data. With `case`, `against` and `ratio` it is a row of the table: ratio is our time over that of a
peer or of a physical limit, measured in the same run, so below 1 is faster; `target` is its largest allowed value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

Record = dict[str, Any]


def scaled_size(full: int, scale: float, least: int) -> int:
    """Return a fraction of the full size, at least `least`."""
    return max(least, round(full * min(scale, 1.0)))


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median seconds of some runs."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(median(times))


def matrix_seconds(scale: float) -> tuple[float, str]:
    """Return the seconds of a product of two matrices, the unit of work without a peer, and its name."""
    size = scaled_size(4096, scale, 512)
    matrix = np.random.default_rng(0).random((size, size))
    return median_seconds(lambda: matrix @ matrix, 3), f"one product of two {size} x {size} matrices"


def ratio_record(case: str, against: str, ours: float, theirs: float, *, target: float | None = None) -> Record:
    """Return a row of the table, from seconds."""
    return {"case": case, "against": against, "ratio": ours / theirs, "target": target, "seconds": ours}


def measure(case: str, against: str, work: Callable[[], object], unit: float) -> Record:
    """Measure some work once, as a row of the table; processor seconds of this process beside the time that passed."""
    start, busy = time.perf_counter(), time.process_time()
    work()
    took, busy = time.perf_counter() - start, time.process_time() - busy
    return {**ratio_record(case, against, took, unit), "processor_seconds": busy}


def table(results: dict[str, list[Record]]) -> str:
    """Return the rows of all sections as text."""
    rows = [("section", "case", "against", "ratio", "at most", "")]
    for section, records in results.items():
        for record in records:
            if isinstance(record.get("ratio"), int | float):
                target = record.get("target")
                met = "" if target is None else "yes" if record["ratio"] <= target else "NO"
                most = "" if target is None else f"{target:g}"
                case, against = str(record.get("case", "")), str(record.get("against", ""))
                rows.append((section, case, against, f"{record['ratio']:.3g}", most, met))
    widths = [max(len(row[k]) for row in rows) for k in range(6)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
