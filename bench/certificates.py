"""Certificates at scale: `slice` and `influence` against sparse products.

The measure is ten products of the coupling with a vector, in the same process and run. Targets: one step for a million
sequences with 8 neighbours at age 10 at most 30 measures, `slice` by row sums for 100,000 at most 100, `influence` of a
release at every tick for ever for a million that are alike at most 60 and below 3 GiB.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import csdp
from bench.record import Record, ratio_record, scaled_size
from csdp.bounds.slice import one_step, slice_bound
from csdp.chain.model import Direction

FLIP = [[0.7, 0.3], [0.3, 0.7]]
NEIGHBOURS = 8
AGE = 10
TARGETS = {("one step", 1_000_000): 30.0, ("slice, row-sum", 100_000): 100.0}
FOR_EVER = {1_000_000: 60.0}


def giant(sequences: int, *, direction: Direction = "forward", alike: bool = True) -> csdp.CoupledChain:
    """Return a chain in which every sequence follows itself and 8 others far away, with equal or random weights."""
    from scipy.sparse import csr_array

    steps = np.concatenate([[0], np.random.default_rng(0).choice(sequences - 1, NEIGHBOURS, replace=False) + 1])
    target = np.repeat(np.arange(sequences), NEIGHBOURS + 1)
    source = (target + np.tile(steps, sequences)) % sequences
    own = np.full(sequences, 0.8) if alike else np.random.default_rng(1).uniform(0.7, 0.9, sequences)
    others = np.repeat((1 - own[:, None]) / NEIGHBOURS, NEIGHBOURS, axis=1)
    weight = np.column_stack([own, others]).ravel()
    matrix = csr_array((weight, (target, source)), shape=(sequences, sequences))
    return csdp.CoupledChain(matrix, FLIP, direction=direction)


def best_of(times: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least seconds of some runs, and the last result."""
    least, answer = math.inf, None
    for _ in range(times):
        start = time.perf_counter()
        answer = work()
        least = min(least, time.perf_counter() - start)
    return least, answer


def ten_products(chain: csdp.CoupledChain) -> float:
    """Return the least seconds of ten products of the coupling with a vector."""
    coupling, vector = chain.sparse_coupling, np.random.default_rng(1).random(chain.sequences)

    def products() -> None:
        moved = vector
        for _ in range(10):
            moved = coupling @ moved

    return best_of(5, products)[0]


def for_ever(sequences: int, *, alike: bool) -> Record:
    """Measure the leakage of a release at every tick for ever, the noise counted for every sequence by itself."""
    chain = giant(sequences, direction="backward", alike=alike)
    measure = ten_products(chain)
    plan = csdp.Plan(chain, csdp.Mean(), 1, 0.1)
    seconds, limit = best_of(1, lambda: csdp.Accountant(plan).limit())
    case = f"influence, for ever, {sequences:,} sequences, {'alike' if alike else 'no two alike'}, age 1"
    target = FOR_EVER.get(sequences) if alike else None
    record = ratio_record(case, "ten sparse products of that size", seconds, measure, target=target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**record, "peak_MiB": round(peak), "epsilon": limit.epsilon}


def giants(sequences: int) -> list[Record]:
    """Measure bounds of large chains as ratios to ten sparse products."""
    chain = giant(sequences)
    measure = ten_products(chain)
    works: dict[str, Callable[[], float]] = {
        "one step": lambda: float(one_step(chain)[0].max()),
        "slice, row-sum": lambda: float(slice_bound(chain, AGE, form="row-sum").ranges.max()),
        "leakage(bound=slice)": lambda: float(
            csdp.leakage(chain, csdp.Mean(), ages=AGE, epsilon_c=1.0, bound="slice", adversary="uninformed")
        ),
    }
    records: list[Record] = []
    for name, work in works.items():
        seconds, epsilon = best_of(2, work)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        case = f"{name}, {sequences:,} sequences, age {AGE}"
        target = TARGETS.get((name, sequences))
        record = ratio_record(case, "ten sparse products of that size", seconds, measure, target=target)
        records.append({**record, "peak_MiB": round(peak), "epsilon": epsilon})
    return records


def like_components(count: int) -> Record:
    """Measure the exact leakage of many equal pairs of sequences against that of one pair: it is computed once."""
    from scipy.sparse import eye_array, kron

    pair = np.full((2, 2), 0.5)
    many = csdp.CoupledChain(kron(eye_array(count), pair, format="csr"), FLIP)
    one = csdp.CoupledChain(pair, FLIP)
    ours, theirs = (
        best_of(3, partial(csdp.leakage, chain, csdp.Sum(), ages=1, epsilon_c=1.0, bound="exact"))[0]
        for chain in (many, one)
    )
    return ratio_record(f"{count:,} equal components", "one of them", ours, theirs, target=count / 10)


def run(scale: float = 1.0) -> list[Record]:
    """Measure giants and equal components."""
    sizes = [scaled_size(full, scale, full // 200) for full in (10_000, 100_000, 1_000_000)]
    results = [for_ever(size, alike=True) for size in sizes]
    results.append(for_ever(sizes[1], alike=False))
    results += [record for size in sizes for record in giants(size)]
    results.append(like_components(scaled_size(1000, scale, 20)))
    return results
