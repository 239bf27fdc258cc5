"""Exact leakage: time and peak memory, as ratios to one product of two 4096 x 4096 matrices in the same process.

Every case runs in a process of its own, so that its peak memory is its own.
Chain: p = q, self coupling .8, the rest shared; mean, age 5, epsilon_c 1, the stationary law included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np

from bench.record import Record, median_seconds, ratio_record, scaled_size
from csdp import CoupledChain, Mean, leakage
from csdp.bounds.slice import slice_bound

#: name -> (kind, sequences, p, target ratio or None)
CASES: dict[str, tuple[str, int, float, float | None]] = {
    "all-to-all 12, general couplings": ("dense", 12, 0.3, 1.0),
    "ring 16": ("ring", 16, 0.3, 1.0),
    "ring 20": ("ring", 20, 0.3, 15.0),
    "all-to-all 12, general, persistent": ("dense", 12, 0.01, 5.0),
    "ring 16, persistent": ("ring", 16, 0.01, 10.0),
    "all-to-all 8, general": ("dense", 8, 0.3, None),
    "all-to-all 10, general": ("dense", 10, 0.3, None),
    "all-to-all 14, general": ("dense", 14, 0.3, None),
    "ring 12": ("ring", 12, 0.3, None),
    "ring 18": ("ring", 18, 0.3, None),
    "slice, 100,000 x 8 neighbours, age 50": ("slice", 100_000, 0.3, None),
}

#: Those that need neither much time nor much memory.
SMALL = ("all-to-all 8, general", "ring 12", "slice, 100,000 x 8 neighbours, age 50")


def make_chain(kind: str, s: int, p: float) -> CoupledChain:
    """The chain of a case."""
    move = [[1 - p, p], [p, 1 - p]]
    if kind == "ring":
        weights = {(j, j): 0.8 for j in range(s)}
        for j in range(s):
            weights[j, (j + 1) % s] = weights[j, (j - 1) % s] = 0.1
        return CoupledChain(weights, move)
    if kind == "slice":
        from scipy.sparse import coo_array

        random = np.random.default_rng(0)
        rows = np.repeat(np.arange(s), 9)
        columns = np.column_stack([np.arange(s), random.integers(0, s, (s, 8))]).ravel()
        values = np.tile([0.8] + [0.025] * 8, s)
        return CoupledChain(coo_array((values, (rows, columns)), shape=(s, s)).tocsr(), move)
    coupling = np.full((s, s), 0.2 / (s - 1))
    np.fill_diagonal(coupling, 0.8)
    coupling *= 1 + 0.1 * np.random.default_rng(0).random((s, s))
    coupling /= coupling.sum(axis=1, keepdims=True)
    return CoupledChain(coupling, move)


def run_case(name: str, scale: float) -> Record:
    """Measure one case in this process; at a reduced scale the product is smaller too."""
    kind, s, p, target = CASES[name]
    if kind == "slice":
        s = scaled_size(s, scale, 1000)
        name = f"slice, {s:,} x 8 neighbours, age 50"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    value = 0.0
    for _ in range(2):  # a fresh chain each time: the second run is warm code, not remembered laws
        chain = make_chain(kind, s, p)
        start = time.perf_counter()
        if kind == "slice":
            value = float(slice_bound(chain, 50).ranges.max())
        else:
            value = leakage(chain, Mean(), ages=5, epsilon_c=1.0, bound="exact").epsilon
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = scaled_size(4096, scale, 512)
    matrix = np.random.default_rng(0).random((size, size))
    unit = median_seconds(lambda: matrix @ matrix, 3)
    return {
        **ratio_record(name, f"one product of two {size} x {size} matrices", seconds[1], unit, target=target),
        "epsilon": value,
        "cold_seconds": seconds[0],
        "peak_MiB": peak / 1024,
        "start_MiB": before / 1024,
    }


def run(scale: float = 1.0) -> list[Record]:
    """Measure every case, each in a process of its own; at a reduced scale the small ones."""
    records: list[Record] = []
    for name in CASES if scale == 1 else SMALL:
        done = subprocess.run(
            [sys.executable, "-m", "bench.leakage", name, str(scale)], capture_output=True, text=True, check=True
        )
        records.append(json.loads(done.stdout))
    return records


if __name__ == "__main__":
    print(json.dumps(run_case(sys.argv[1], float(sys.argv[2]))))
