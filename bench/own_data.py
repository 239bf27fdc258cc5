"""Own data: from a file to a report, suggestions, a first plan, the frontier of a plan; seconds, and as ratios to a
product of two matrices.

Readings of 12, 3 and 200 sequences follow a common signal, one of their own, and the time of day. The files are those
of `tests/ordinary.py`: time zones and summer time, gaps, duplicates, decimal commas, Latin-1.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import csdp
from bench.record import Record, matrix_seconds, measure, scaled_size
from csdp.errors import NotUsefulError
from csdp.planning import plan_frontier
from csdp.planning.suggest import suggest

SIZES = ((12, 6060), (3, 2000), (200, 1440))
SECONDS = 20.0
ROOT = Path(__file__).parents[1]


def make_readings(sequences: int, ticks: int) -> np.ndarray:
    """Persistent readings with something in common."""
    random = np.random.default_rng(1)
    common, own, rows = 0.0, np.zeros(sequences), []
    for tick in range(ticks):
        common = 0.85 * common + 0.5 * random.normal()
        own = 0.8 * own + 0.6 * random.normal(size=sequences)
        rows.append(20 + 3 * (own + 0.7 * common + 0.5 * np.sin(2 * np.pi * tick / 48)))
    return np.array(rows)


def suggest_plans(sequences: int, ticks: int, seconds: float) -> Callable[[], object]:
    """Return the search for plans of some readings."""
    readings = make_readings(sequences, ticks)

    def work() -> None:
        with contextlib.suppress(NotUsefulError):  # short readings may allow nothing
            suggest(readings, public=True, seconds=seconds)

    return work


def follow_file(name: str, seconds: float) -> Callable[[], object]:
    """Return the way from a file to a report: `open`, `suggest`, and the commands that it prints."""
    sys.path.append(str(ROOT / "tests"))
    import ordinary

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            ordinary.FILES[name](Path(folder) / name)
            where = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

            def command(*words: str) -> str:
                line = [sys.executable, "-m", "csdp", *words]
                return subprocess.run(line, cwd=folder, env=where, check=True, capture_output=True, text=True).stdout

            command("open", name, "-o", "input.toml")
            limit = ["--seconds", f"{seconds:g}"]
            told = json.loads(command("suggest", "input.toml", "--public", "-o", "out", "--format", "json", *limit))
            for line in told["next"]:
                command(*shlex.split(line)[1:])

    return work


def plan_in_use() -> csdp.Plan:
    """Return the plan of a small system with a frontier."""
    chain = csdp.CoupledChain(np.full((3, 3), 0.1) + 0.7 * np.eye(3), [[0.8, 0.2], [0.3, 0.7]])
    return csdp.Plan(chain, csdp.Mean(), 2, 0.5)


def run(scale: float = 1.0) -> list[Record]:
    """Measure every case once; processor seconds of this process beside the time that passed."""
    unit, against = matrix_seconds(scale)
    seconds = max(0.5, SECONDS * scale)
    works: dict[str, Callable[[], object]] = {}
    for sequences, ticks in SIZES:
        count = scaled_size(ticks, scale, 200)
        works[f"suggest, {sequences} x {count:,} of {ticks:,} readings"] = suggest_plans(sequences, count, seconds)
    works["a first useful plan, 12 sequences"] = suggest_plans(12, scaled_size(6060, scale, 200), 0.1)
    for name in ("sensors.csv", "patients.txt", "meters.csv"):
        works[f"{name}: open, suggest, release, report"] = follow_file(name, seconds)
    works["frontier of a plan"] = lambda: plan_frontier(plan_in_use())
    return [measure(case, against, work, unit) for case, work in works.items()]
