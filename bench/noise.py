"""Noise: draws per second at 1,000 grid units, as ratios to peers measured in the same run.

`python -m bench noise` prints the table; each peer lives in its own environment (bench.peers).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np

from bench.peers import peer_speed
from bench.record import Record, median_seconds, ratio_record, scaled_size
from csdp.noise import Randomness, two_sided_geometric
from csdp.noise.geometric import COMPILED_FROM

SCALE = 1000.0
COUNT = 1_000_000
ROUNDS = 25

PEER_SCRIPTS: dict[str, tuple[str, str]] = {
    "OpenDP vector Laplace, integers": (
        "opendp",
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
        """
from pydp.algorithms.numerical_mechanisms import LaplaceMechanism
draw = LaplaceMechanism(epsilon=0.001, sensitivity=1.0)
speed(lambda: [draw.add_noise(0.0) for _ in range(100_000)], 100_000)
""",
    ),
    "diffprivlib Laplace": (
        "diffprivlib",
        """
from diffprivlib.mechanisms import Laplace
draw = Laplace(epsilon=0.001, sensitivity=1.0)
speed(lambda: [draw.randomise(0.0) for _ in range(50_000)], 50_000)
""",
    ),
}


def run(scale: float = 1.0) -> list[Record]:
    """Measure ours, numpy's and the peers; each row has draws per second, or why there are none."""
    count, rounds = scaled_size(COUNT, scale, 2 * COMPILED_FROM), scaled_size(ROUNDS, scale, 3)
    secure, unsafe = Randomness.secure(), np.random.default_rng()

    def ours() -> float:
        return median_seconds(lambda: two_sided_geometric(SCALE, count, secure), 1)

    two_sided_geometric(SCALE, count, secure)  # compiled code warm
    pairs = []
    for _ in range(rounds):  # in turns, so that a busy machine slows both
        pairs.append((ours(), median_seconds(lambda: unsafe.laplace(0.0, SCALE, count), 1)))
    mine, numpys = (median(column) for column in zip(*pairs, strict=True))
    records = [_row("numpy Generator.laplace (unsafe)", mine / count, numpys / count)]
    records[0]["ratio"] = median(a / b for a, b in pairs)
    records.append(_row("csdp, one thread for each of two draws", _two_threads(secure, count, rounds), mine / count))
    records[-1]["case"] = "csdp, two threads"
    for name, (home, script) in PEER_SCRIPTS.items():
        before = [ours() for _ in range(rounds)]
        speed, why = peer_speed(home, script)
        around = median(before + [ours() for _ in range(rounds)]) / count
        records.append({"case": _OURS, "against": name, "not_available": why} if speed is None else
                       _row(name, around, 1 / speed))  # fmt: skip
    cold, cached = _first_draw()
    records.append({"case": "first large draw, nothing compiled yet", "seconds": cold})
    records.append({"case": "first large draw, loops in numba's cache", "seconds": cached})
    return records


_OURS = "noise, exact and secure, one draw"


def _row(name: str, ours: float, theirs: float) -> Record:
    return {**ratio_record(_OURS, name, ours, theirs), "draws_per_second": 1 / ours, "theirs_per_second": 1 / theirs}


def _two_threads(source: Randomness, count: int, rounds: int) -> float:
    """Seconds for each draw."""
    with ThreadPoolExecutor(2) as pool:
        both = median_seconds(
            lambda: list(pool.map(lambda _: two_sided_geometric(SCALE, count, source), range(2))), rounds
        )
    return both / (2 * count)


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
