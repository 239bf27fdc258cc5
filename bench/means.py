"""A mean of many readings with noise: one release of ours against one of each peer, and against reading the array once.

The peers release a mean of bounded values with plain differential privacy; ours ages the readings, and keeps an account
beside it (bench.ledger, bench.tables have the cost of the ledger).
"""

from __future__ import annotations

import numpy as np

from bench.fran import tick_seconds
from bench.peers import peer_speed
from bench.record import Record, median_seconds, ratio_record, scaled_size

SEQUENCES = 100_000

PEER_SCRIPTS: dict[str, tuple[str, str]] = {
    "OpenDP, sum of a sized list, Laplace": (
        "opendp",
        """
import opendp.prelude as dp
dp.enable_features("contrib")
size = SIZE
space = dp.vector_domain(dp.atom_domain(bounds=(0, 1)), size=size), dp.symmetric_distance()
mean = space >> dp.t.then_sum() >> dp.m.then_laplace(scale=2.0)
data = [k % 2 for k in range(size)]
speed(lambda: mean(data) / size, 1)
""",
    ),
    "PyDP BoundedMean": (
        "pydp",
        """
from pydp.algorithms.laplacian import BoundedMean
data = [float(k % 2) for k in range(SIZE)]
speed(lambda: BoundedMean(epsilon=1.0, lower_bound=0.0, upper_bound=1.0, dtype="float").quick_result(data), 1)
""",
    ),
    "diffprivlib tools.mean": (
        "diffprivlib",
        """
import numpy as np
from diffprivlib.tools import mean
data = (np.arange(SIZE) % 2).astype(float)
speed(lambda: mean(data, epsilon=1.0, bounds=(0.0, 1.0)), 1)
""",
    ),
}


def run(scale: float = 1.0) -> list[Record]:
    """One release of a mean of 100,000 readings against the peers, and against memory bandwidth."""
    size, rounds = scaled_size(SEQUENCES, scale, 1000), scaled_size(200, scale, 20)
    case = f"mean of {size:,} readings, aged, with noise"
    ours, _ = tick_seconds(size, rounds=rounds)
    snapshot = np.zeros(size - size % 8, dtype=np.int8).view(np.uint64)  # the widest loads that numpy has
    records = [ratio_record(case, "reading the array once (int8, memory bandwidth)", ours,
                        median_seconds(snapshot.sum, rounds))]  # fmt: skip
    for name, (home, script) in PEER_SCRIPTS.items():
        speed, why = peer_speed(home, script.replace("SIZE", str(size)))
        if speed is None:
            records.append({"case": case, "against": name, "not_available": why})
        else:
            records.append(ratio_record(case, name, tick_seconds(size, rounds=rounds)[0], 1 / speed))
    return records
