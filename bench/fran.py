"""The mechanism: one tick as a ratio to numpy's mean over the same array, and its growth with the sequences."""

from __future__ import annotations

import numpy as np

from bench.record import Record, median_seconds, ratio_record, scaled_size
from csdp import CoupledChain, Mean, Plan, fran
from csdp.noise import Randomness, two_sided_geometric
from csdp.noise.geometric import COMPILED_FROM


def tick_seconds(sequences: int, *, rounds: int = 200) -> tuple[float, float]:
    """Return seconds of one tick (observe, age, query, noise, estimate) and of numpy's mean of the same snapshot."""
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
    """Measure the time per tick by number of sequences, and fit the exponent of its growth."""
    records: list[Record] = []
    ticks = []
    for full in (1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000):
        size = scaled_size(full, scale, full // 1000)
        ours, mean = tick_seconds(size, rounds=scaled_size(200, scale, 10))
        records.append(ratio_record(f"tick of {size:,} sequences", "numpy's mean of the snapshot", ours, mean))
        ticks.append((size, ours))
    # At ten times the sequences a linear tick takes at most ten times as long; a quadratic one takes a hundred times.
    (tenth, tenth_seconds), (size, seconds_of_size) = ticks[1], ticks[2]
    case, against = f"tick of {size:,} sequences", f"tick of {tenth:,} sequences"
    records.append(ratio_record(case, against, seconds_of_size, tenth_seconds, target=40.0))
    # A tick has a fixed cost (one draw of noise, one output); the growth is fitted beyond it.
    fixed = ticks[0][1]
    grown = np.array([(size, max(seconds - fixed, 1e-9)) for size, seconds in ticks[2:]])
    sizes, seconds = np.log(grown.T)
    slope = np.polyfit(sizes, seconds, 1)[0]
    records.append({"case": "growth beyond the fixed part", "exponent": float(slope), "fixed_seconds": fixed})
    return records
