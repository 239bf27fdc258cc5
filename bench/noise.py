"""Noise: draws per second at 1,000 grid units, as ratios to peers measured in the same run.

`python -m bench.noise` prints the table. Peers pin other versions of our dependencies, so each lives in its
own environment: the interpreter named by CSDP_BENCH_PYTHON_OPENDP (PYDP, DIFFPRIVLIB) if set, else a virtual
environment made once under bench/.peers. CSDP_BENCH_NO_PEERS=1 leaves them out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from csdp.noise import Randomness, two_sided_geometric
from csdp.noise.bitslice import COMPILED_FROM

SCALE = 1000.0
COUNT = 1_000_000
ROUNDS = 25
PEERS = Path(__file__).parent / ".peers"

_TIMING = """
import statistics, time
def speed(draw, count, rounds=7):
    draw()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    print(count / statistics.median(times))
"""

PEER_SCRIPTS: dict[str, tuple[str, list[str], str]] = {
    "OpenDP vector Laplace, integers": (
        "opendp",
        ["opendp==0.16.*"],
        """
import opendp.prelude as dp
dp.enable_features("contrib")
space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
draw, zeros = dp.m.make_laplace(*space, scale=1000.0), [0] * 50_000
speed(lambda: draw(zeros), 50_000)
""",
    ),
    "OpenDP vector Laplace, floats": (
        "opendp",
        ["opendp==0.16.*"],
        """
import opendp.prelude as dp
dp.enable_features("contrib")
space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
draw, zeros = dp.m.make_laplace(*space, scale=1000.0), [0.0] * 20_000
speed(lambda: draw(zeros), 20_000)
""",
    ),
    "PyDP Laplace": (
        "pydp",
        ["python-dp==1.1.*"],
        """
from pydp.algorithms.numerical_mechanisms import LaplaceMechanism
draw = LaplaceMechanism(epsilon=0.001, sensitivity=1.0)
speed(lambda: [draw.add_noise(0.0) for _ in range(100_000)], 100_000)
""",
    ),
    "diffprivlib Laplace": (
        "diffprivlib",
        ["diffprivlib", "scikit-learn<1.9"],
        """
from diffprivlib.mechanisms import Laplace
draw = Laplace(epsilon=0.001, sensitivity=1.0)
speed(lambda: [draw.randomise(0.0) for _ in range(50_000)], 50_000)
""",
    ),
}


def run() -> list[dict[str, Any]]:
    """Measure ours, numpy's and the peers; each row has draws per second, or why there are none."""
    secure, unsafe = Randomness.secure(), np.random.default_rng()
    contestants: dict[str, Callable[[], object]] = {
        "csdp two-sided geometric, exact and secure": lambda: two_sided_geometric(SCALE, COUNT, secure),
        "numpy Generator.laplace (unsafe)": lambda: unsafe.laplace(0.0, SCALE, COUNT),
    }
    cold, cached = _first_draw()
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for draw in contestants.values():
        draw()  # warm
    for _ in range(ROUNDS):  # in turns, so that a busy machine slows all of them
        for name, draw in contestants.items():
            speeds[name].append(_speed(draw))
    ours, numpys = speeds.values()
    rows = [_row(name, median(measured), median(ours)) for name, measured in speeds.items()]
    rows[1]["times_slower"] = median(a / b for a, b in zip(ours, numpys, strict=True))
    ours_again = next(iter(contestants.values()))
    rows.append(_row("csdp, two threads", _two_threads(secure), median(ours)))
    for name, (home, requirements, script) in PEER_SCRIPTS.items():
        before = [_speed(ours_again) for _ in range(ROUNDS)]
        theirs, why = _peer(home, requirements, script)
        around = before + [_speed(ours_again) for _ in range(ROUNDS)]
        rows.append(_row(name, theirs, median(around)) if theirs else {"name": name, "not_available": why})
    rows.append({"name": "csdp, first large draw, nothing compiled yet", "seconds": cold})
    rows.append({"name": "csdp, first large draw, loops in numba's cache", "seconds": cached})
    return rows


def _speed(draw: Callable[[], object]) -> float:
    start = time.perf_counter()
    draw()
    return COUNT / (time.perf_counter() - start)


def _row(name: str, speed: float, ours: float) -> dict[str, Any]:
    return {"name": name, "draws_per_second": speed, "times_slower": ours / speed}


def _two_threads(source: Randomness) -> float:
    with ThreadPoolExecutor(2) as pool:
        speeds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            list(pool.map(lambda _: two_sided_geometric(SCALE, COUNT, source), range(2)))
            speeds.append(2 * COUNT / (time.perf_counter() - start))
    return median(speeds)


def _first_draw() -> tuple[float, float]:
    """Return the seconds of a first draw in a new process, numba's import included: cold, then cached."""
    code = (
        "import time; from csdp.noise import *; start = time.perf_counter();"
        f"two_sided_geometric({SCALE}, {COMPILED_FROM}, Randomness.secure());"
        "print(time.perf_counter() - start)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-c", code]
        cold, cached = (
            float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout) for _ in range(2)
        )
    return cold, cached


def _peer(home: str, requirements: list[str], script: str) -> tuple[float | None, str]:
    """Run a peer's script in its own interpreter; return draws per second, or why it could not run."""
    if os.environ.get("CSDP_BENCH_NO_PEERS"):
        return None, "left out by CSDP_BENCH_NO_PEERS"
    try:
        python = os.environ.get(f"CSDP_BENCH_PYTHON_{home.upper()}") or _environment(home, requirements)
        done = subprocess.run([python, "-c", _TIMING + script], check=True, capture_output=True, text=True, timeout=300)
        return float(done.stdout.splitlines()[-1]), ""
    except subprocess.CalledProcessError as error:
        return None, (error.stderr.strip().splitlines() or ["no message"])[-1]
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return None, str(error)


def _environment(home: str, requirements: list[str]) -> str:
    """Return the interpreter of a peer's environment, made where it is missing."""
    folder = PEERS / home
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        PEERS.mkdir(exist_ok=True)
        (PEERS / ".gitignore").write_text("*\n")
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", *requirements],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
        (folder / ".ready").touch()
    return str(python)


def main() -> None:
    """Print the table."""
    print(f"scale {SCALE:,.0f} grid units, one thread, {COUNT:,} draws at a time, median of {ROUNDS}\n")
    for row in run():
        if "draws_per_second" in row:
            figures = f"{row['draws_per_second'] / 1e6:10.4f} M draws/s   csdp is {row['times_slower']:,.2f}x"
        elif "seconds" in row:
            figures = f"{row['seconds']:10.2f} s"
        else:
            figures = f"not available: {row['not_available']}"
        print(f"{row['name']:<48}{figures}")


if __name__ == "__main__":
    main()
