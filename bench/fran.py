"""The mechanism: one tick of 100,000 sequences as a ratio to numpy's mean over the same array, and growth with s."""

from __future__ import annotations

import numpy as np

from bench.record import Record, compared, median_seconds, point, sized
from csdp import CoupledChain, Mean, Plan, fran
from csdp.noise import Randomness, two_sided_geometric
from csdp.noise.bitslice import COMPILED_FROM


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
    return median_seconds(lambda: fran.step(state, snapshot, randomness), rounds), median_seconds(snapshot.mean, rounds)


def run(scale: float = 1.0) -> list[Record]:
    """Time per tick by number of sequences, and the fitted exponent of its growth."""
    records: list[Record] = []
    ticks = []
    for full in (1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000):
        size = sized(full, scale, full // 1000)
        ours, mean = tick_seconds(size, rounds=sized(200, scale, 10))
        records.append(compared(f"tick of {size:,} sequences", "numpy's mean of the snapshot", ours, mean))
        records.append(point("tick", "sequences", size, ours))
        ticks.append((size, ours))
    # A tick has a fixed part (one draw of noise, one output); what grows is fitted beyond it.
    fixed = ticks[0][1]
    grown = np.array([(size, max(seconds - fixed, 1e-9)) for size, seconds in ticks[2:]])
    sizes, seconds = np.log(grown.T)
    slope = np.polyfit(sizes, seconds, 1)[0]
    records.append({"case": "growth beyond the fixed part", "exponent": float(slope), "fixed_seconds": fixed})
    return records
