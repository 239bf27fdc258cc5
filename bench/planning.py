"""Plans for a release at every tick, and publishing by them: seconds, and as ratios to a product of two matrices.

The chain of a new user: own coupling .75, the rest shared by all others (up to 200 sequences) or two neighbours, 0 to
1 with .1 and back with .2, read backwards, budget 1. One sequence of three states, which forgets slowly. Three slow
sequences, published tick by tick.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import numpy as np

import csdp
from bench.record import Record, matrix_seconds, measure, scaled_size

THREE_STATES = [[0.97, 0.025, 0.005], [0.02, 0.95, 0.03], [0.004, 0.026, 0.97]]
SLOW = [[0.95, 0.05], [0.03, 0.97]]


def new_user(sequences: int) -> csdp.CoupledChain:
    """Return the chain: all others are followed alike up to 200 sequences, two neighbours beyond."""
    move = [[0.9, 0.1], [0.2, 0.8]]
    if sequences <= 200:
        coupling = np.full((sequences, sequences), 0.25 / (sequences - 1))
        np.fill_diagonal(coupling, 0.75)
        return csdp.CoupledChain(coupling, move, direction="backward")
    steps = ((0, 0.75), (1, 0.125), (sequences - 1, 0.125))
    ring = {(i, (i + d) % sequences): w for i in range(sequences) for d, w in steps}
    return csdp.CoupledChain(ring, move, direction="backward")


def plan_for_ever(sequences: int) -> Callable[[], object]:
    """Return the search of a plan for ever."""
    chain = new_user(sequences)
    return lambda: csdp.find_plan(chain, csdp.Mean(), budget=1.0, releases="continual")


def plan_three_states() -> object:
    """Search the ages 1 to 60 of one sequence of three states."""
    chain = csdp.CoupledChain([[1.0]], THREE_STATES)
    return csdp.find_plan(chain, csdp.Mean(), budget=1.0, releases="continual", min_age=1, max_age=60)


def publish(ticks: int, move: list[list[float]] = SLOW) -> Callable[[], object]:
    """Return the release of three slow sequences at some ticks, into a new ledger."""
    coupling = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    plan = csdp.Plan(csdp.CoupledChain(coupling, move), csdp.Mean(), 2, 0.3)
    panel = csdp.Panel.from_states(plan.model.simulate(ticks, seed=1))

    def work() -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            csdp.Publisher(plan, dataset="slow", ledger=f"{folder}/ledger.db") as publisher,
        ):
            publisher.publish(panel, each=lambda _: None)

    return work


def run(scale: float = 1.0) -> list[Record]:
    """Measure every case once, after a warm-up of the compiled loops."""
    unit, against = matrix_seconds(scale)
    plan_for_ever(12)()
    sizes = (12, 50, 200, 10_000) if scale == 1 else (12, 50)
    works = {f"plan for ever, {s:,} sequences": plan_for_ever(s) for s in sizes}
    works["plan for ever, one sequence of three states, ages 1 to 60"] = plan_three_states
    for ticks in (2000, 100_000):
        count = scaled_size(ticks, scale, 50)
        works[f"publish {count:,} of {ticks:,} ticks of three slow sequences"] = publish(count)
    count = scaled_size(2000, scale, 20)
    works[f"publish {count:,} of 2,000 ticks of three sequences of three states"] = publish(count, THREE_STATES)
    return [measure(case, against, work, unit) for case, work in works.items()]
