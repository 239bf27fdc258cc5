"""A hidden common driver: what coupled and joint chains miss of it, as docs/known-limits.md says, by enumeration.

Own chains only, under a hidden regime that stays with probability .9; 0 to 1 and 1 to 0 with .1 and .5 in one regime,
.5 and .1 in the other; the step into the present happens under the present regime. Mean of the sequences.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import csdp
from oracle import Array, hidden_law, hidden_leakage, joint_kernel, likelihoods, mean_answers, snapshots, worst

SWITCHING = np.array([[0.9, 0.1], [0.1, 0.9]])
FLIPS = ((0.1, 0.5), (0.5, 0.1))  # by regime: 0 to 1, 1 to 0
DOCS = Path(__file__).parents[2] / "docs" / "known-limits.md"


def regimes(s: int) -> list[Array]:
    """The kernel of the snapshot under each regime."""
    return [joint_kernel(np.eye(s), [[1 - up, up], [down, 1 - down]]) for up, down in FLIPS]


def one_step(s: int) -> Array:
    """Pr(present snapshot, the one before), regimes summed out."""
    back, law = hidden_law(SWITCHING, regimes(s), backward=False)
    return np.asarray((law[:, None] * back).reshape(2, 2**s, 2, 2**s).sum(axis=(0, 2)))


def first_order(s: int, age: int) -> float:
    """Leakage under the best first-order joint model: the process's own one-step law, repeated."""
    step = one_step(s)
    answers, delta = mean_answers(s, 2)
    back = step / step.sum(axis=1, keepdims=True)
    return worst(likelihoods([back] * age, answers, 1 / delta, age, 1), s, 2)


def best_coupled(s: int) -> csdp.CoupledChain:
    """The coupled chain of the largest likelihood: own against other parents, by expectation and maximisation.

    All sequences are alike, so one weight for each other and one matrix for own and other sources is enough.
    """
    snaps, step = snapshots(s, 2), one_step(s).T
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


THREE = (0.358610, 0.274468, 0.252578)
TWO = {1: (0.710140, 0.710140, 0.712755), 2: (0.505816, 0.459730, 0.466229), 4: (0.281706, 0.193359, 0.198543)}
CASES = [(2, age, *expected) for age, expected in TWO.items()] + [(3, 4, *THREE)]


@pytest.mark.parametrize(("s", "age", "truth", "first", "coupled"), CASES)
def test_what_models_miss_of_it(s: int, age: int, truth: float, first: float, coupled: float) -> None:
    true = hidden_leakage(SWITCHING, regimes(s), s, 2, epsilon_c=1.0, age=age)
    assert true == pytest.approx(truth, abs=1e-6)
    assert first_order(s, age) == pytest.approx(first, abs=1e-6)
    leakage = csdp.leakage(best_coupled(s), csdp.Mean(), ages=age, epsilon_c=1.0).epsilon
    assert leakage == pytest.approx(coupled, abs=2e-6)


def test_the_documents_say_these_numbers() -> None:
    text = DOCS.read_text()
    for row in (*TWO.values(), THREE):
        assert "| " + " | ".join(f"{value:.6f}" for value in row) + " |" in text
