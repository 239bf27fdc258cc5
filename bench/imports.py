"""Importing: seconds of `import csdp` in a fresh process as a ratio to `import numpy`, which it includes."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from bench.record import Record, ratio_record, scaled_size

_TIMING = "import time; begin = time.perf_counter(); import {0}; print(time.perf_counter() - begin)"


def import_seconds(package: str) -> float:
    """Return the seconds of one import in a fresh process."""
    command = [sys.executable, "-c", _TIMING.format(package)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run(scale: float = 1.0) -> list[Record]:
    """Import both in turns, so that a busy machine slows both alike; medians."""
    import_seconds("csdp")  # the first run may have to write bytecode
    times: dict[str, list[float]] = {"numpy": [], "csdp": []}
    for _ in range(scaled_size(15, scale, 3)):
        for package, seconds in times.items():
            seconds.append(import_seconds(package))
    ours, theirs = median(times["csdp"]), median(times["numpy"])
    return [ratio_record("import csdp", "import numpy", ours, theirs, target=3.0)]
