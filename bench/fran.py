"""The mechanism: one tick of 100,000 sequences as a ratio to numpy's mean over the same array, and growth with s."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from csdp import CoupledChain, Mean, Plan, fran
from csdp.noise import Randomness, two_sided_geometric
from csdp.noise.bitslice import COMPILED_FROM


def _median(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def tick_seconds(sequences: int, *, rounds: int = 200) -> tuple[float, float]:
    """Seconds of one tick (observe, age, ask, noise, estimate) and of numpy's mean over the same int8 snapshot."""
    from scipy.sparse import eye_array

    chain = CoupledChain(eye_array(sequences, format="csr"), [[0.7, 0.3], [0.3, 0.7]])
    plan = Plan(chain, Mean(), 5, 1.0)
    snapshot = np.random.default_rng(0).integers(0, 2, sequences).astype(np.int8)
    randomness = Randomness.secure()
    two_sided_geometric(1000.0, COMPILED_FROM, randomness)  # compiled code warm
    state = fran.init(plan)
    for _ in range(7):
        state, _ = fran.step(state, snapshot, randomness)
    return _median(lambda: fran.step(state, snapshot, randomness), rounds), _median(snapshot.mean, rounds)


def run() -> list[dict[str, Any]]:
    """Time per tick by number of sequences, and the fitted exponent of its growth."""
    sizes = [1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000]
    records: list[dict[str, Any]] = []
    for size in sizes:
        ours, numpy_mean = tick_seconds(size)
        figures = {"tick_us": ours * 1e6, "mean_us": numpy_mean * 1e6, "ratio": ours / numpy_mean}
        records.append({"sequences": size, **figures})
    # A tick has a fixed part (one draw of noise, one output); what grows is fitted beyond it.
    fixed = records[0]["tick_us"]
    grown = [(r["sequences"], r["tick_us"] - fixed) for r in records if r["sequences"] >= 100_000]
    slope = np.polyfit(np.log([s for s, _ in grown]), np.log([max(us, 1e-3) for _, us in grown]), 1)[0]
    records.append({"sequences": "exponent beyond the fixed part", "exponent": float(slope), "fixed_us": fixed})
    return records


if __name__ == "__main__":
    for record in run():
        print(record)
