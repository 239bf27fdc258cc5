"""A hidden common driver: what coupled and joint chains miss of it, as docs/known-limits.md says, by enumeration.

Own chains only, under a hidden regime that stays with probability .9; 0 to 1 and 1 to 0 with .1 and .5 in one regime,
.5 and .1 in the other; the step into the present happens under the present regime. Mean of the sequences.
"""

from __future__ import annotations

from itertools import product
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import csdp

Array = NDArray[np.float64]
FLIPS = ((0.1, 0.5), (0.5, 0.1))  # by regime: 0 to 1, 1 to 0
DOCS = Path(__file__).parents[2] / "docs" / "known-limits.md"


def driven(s: int) -> tuple[Array, list[tuple[int, ...]]]:
    """The kernel on (regime, snapshot), and the snapshots."""
    snaps = list(product(range(2), repeat=s))
    kernel = np.zeros((2 * len(snaps), 2 * len(snaps)))
    for (e, x), (f, y) in product(product(range(2), range(len(snaps))), repeat=2):
        step = 0.9 if e == f else 0.1
        for old, new in zip(snaps[x], snaps[y], strict=True):
            moved = FLIPS[f][old]
            step *= moved if old != new else 1 - moved
        kernel[e * len(snaps) + x, f * len(snaps) + y] = step
    return kernel, snaps


def lasting(kernel: Array) -> Array:
    law = np.full(len(kernel), 1 / len(kernel))
    for _ in range(2000):
        law = law @ kernel
    return law


def pairs_of(s: int, age: int) -> tuple[Array, Array]:
    """Pr(snapshot `age` ago, present snapshot), regimes summed out; and that of one step."""
    kernel, snaps = driven(s)
    n = len(snaps)
    law = lasting(kernel)

    def seen(steps: int) -> Array:
        joint = law[:, None] * np.linalg.matrix_power(kernel, steps)
        return joint.reshape(2, n, 2, n).sum(axis=(0, 2))

    return seen(age), seen(1)


def told(joint: Array, s: int, level: float = 1.0) -> float:
    """Exact leakage of the mean of the old snapshot, from the law of old and present snapshots."""
    snaps = list(product(range(2), repeat=s))
    answers = [sum(x) / s for x in snaps]
    worst = 0.0
    for y in set(answers):
        likely = np.array([exp(-level * s * abs(y - a)) for a in answers])
        law = likely @ joint / joint.sum(axis=0)
        for x, z in product(range(len(snaps)), repeat=2):
            if sum(a != b for a, b in zip(snaps[x], snaps[z], strict=True)) == 1:
                worst = max(worst, log(law[x] / law[z]))
    return worst


def first_order(step: Array, age: int) -> Array:
    """Old and present snapshot under the best first-order joint model: the process's own one-step law, repeated."""
    law = step.sum(axis=1)
    return np.asarray(law[:, None] * np.linalg.matrix_power(step / law[:, None], age))


def best_coupled(step: Array, s: int) -> csdp.CoupledChain:
    """The coupled chain of the largest likelihood: own against other parents, by expectation and maximisation.

    All sequences are alike, so one weight for each other and one matrix for own and other sources is enough.
    """
    snaps = list(product(range(2), repeat=s))
    target = np.zeros((len(snaps), 2))  # Pr(snapshot, next state of the first)
    for x, y in product(range(len(snaps)), repeat=2):
        target[x, snaps[y][0]] += step[x, y]
    weights, moves = np.full(s, 1 / s), np.full((s, 2, 2), 0.5)
    moves[0] = [[0.7, 0.3], [0.3, 0.7]]
    moves[1:] = [[0.6, 0.4], [0.4, 0.6]]
    states = np.array(snaps)
    for _ in range(20_000):
        parts = weights[:, None, None] * np.array([moves[k][states[:, k]] for k in range(s)])  # (source, x, next)
        share = parts / parts.sum(axis=0) * target
        expected = np.array([[share[k][states[:, k] == c].sum(axis=0) for c in range(2)] for k in range(s)])
        expected[1:] = expected[1:].mean(axis=0)
        weights = expected.sum(axis=(1, 2)) / expected.sum()
        moves = expected / expected.sum(axis=2, keepdims=True)
    coupling = np.full((s, s), weights[1]) if s > 1 else np.zeros((1, 1))
    np.fill_diagonal(coupling, weights[0])
    table = np.empty((s, s, 2, 2))
    table[:] = moves[1]
    table[np.arange(s), np.arange(s)] = moves[0]
    return csdp.CoupledChain(coupling / coupling.sum(axis=1, keepdims=True), table)


TWO = {1: (0.710140, 0.710140, 0.712755), 2: (0.505816, 0.459730, 0.466229), 4: (0.281706, 0.193359, 0.198543)}


@pytest.mark.parametrize("age", TWO)
def test_two_sequences(age: int) -> None:
    joint, step = pairs_of(2, age)
    true, first, coupled = TWO[age]
    assert told(joint, 2) == pytest.approx(true, abs=1e-6)
    assert told(first_order(step, age), 2) == pytest.approx(first, abs=1e-6)
    leakage = csdp.leakage(best_coupled(step, 2), csdp.Mean(), ages=age, epsilon_c=1.0).epsilon
    assert leakage == pytest.approx(coupled, abs=2e-6)


def test_three_sequences() -> None:
    joint, step = pairs_of(3, 4)
    assert told(joint, 3) == pytest.approx(0.358610, abs=1e-6)
    assert told(first_order(step, 4), 3) == pytest.approx(0.274468, abs=1e-6)
    leakage = csdp.leakage(best_coupled(step, 3), csdp.Mean(), ages=4, epsilon_c=1.0).epsilon
    assert leakage == pytest.approx(0.252578, abs=2e-6)


def test_the_documents_say_these_numbers() -> None:
    text = DOCS.read_text()
    for true, first, coupled in TWO.values():
        assert f"| {true:.6f} | {first:.6f} | {coupled:.6f} |" in text
    assert "| 0.358610 | 0.274468 | 0.252578 |" in text
