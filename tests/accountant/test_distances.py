"""Leakage against the distance of two present values: never below enumeration, all of it at the largest one."""

import itertools

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant


def true_pairs(rho, values, epsilon_c, age, releases):
    """ln Pr(outputs | a) / Pr(outputs | b) for one sequence read backwards, the worst outputs of each pair."""
    m, width = len(values), max(values) - min(values)
    likelihood = np.exp(-np.abs(np.subtract.outer(values, values)) * epsilon_c / width)  # (output, state)
    worst = np.zeros((m, m))
    for outputs in itertools.product(range(m), repeat=releases):
        told = likelihood[outputs[0]]  # the oldest first, each seen from the slice of the next
        for output in outputs[1:]:
            told = likelihood[output] * (rho @ told)
        given = np.log(np.linalg.matrix_power(rho, age) @ told)
        worst = np.maximum(worst, given[:, None] - given[None, :])
    return worst


@pytest.mark.parametrize("seed", range(20))
def test_no_distance_is_below_enumeration(seed):
    rng = np.random.default_rng(seed)
    m, age, releases = int(rng.integers(2, 5)), int(rng.integers(0, 3)), int(rng.integers(1, 4))
    rho = rng.dirichlet(np.ones(m), size=m)
    values = np.sort(rng.choice(20, m, replace=False) / 4.0)
    chain = csdp.CoupledChain([[1.0]], rho, values=values, direction="backward")
    plan = csdp.Plan(chain, csdp.Mean(), age, 1.0)
    table = csdp.leakage_by_distance(plan, releases=releases)
    vector = csdp.leakage_by_distance(plan, releases=releases, state="vector")
    truth = true_pairs(rho, values, 1.0, age, releases)
    for a, b in itertools.permutations(range(m), 2):
        for each in (table, vector):
            assert truth[a, b] <= each.at(abs(values[a] - values[b])) * (1 + 1e-9)
    far = [distance for distance, _ in table.rows]
    assert far == sorted(set(far))
    assert [epsilon for _, epsilon in table.rows] == sorted(epsilon for _, epsilon in table.rows)
    for each, state in ((table, "auto"), (vector, "vector")):
        assert each.rows[-1][1] == pytest.approx(Accountant(plan, state=state).after(releases).epsilon, rel=1e-6)
    assert table.at(0.0) == 0.0
    assert table.at(99.0) == table.rows[-1][1]


def test_for_ever_and_for_readings():
    ring = {(i, (i + d) % 6): w for i in range(6) for d, w in ((0, 0.8), (1, 0.1), (5, 0.1))}
    slow = [[0.7, 0.25, 0.05], [0.2, 0.6, 0.2], [0.05, 0.25, 0.7]]
    chain = csdp.CoupledChain(ring, slow, values=[0.0, 0.5, 1.0], direction="backward")
    query = csdp.Mean(of=csdp.ReadingRange(0, 1, 0.01))
    plan = csdp.Plan(chain, query, 1, 0.1)
    table = csdp.leakage_by_distance(plan, state="vector")
    assert table.at(0.5) < table.at(1.0)
    assert table.at(1.0) == pytest.approx(Accountant(plan, state="vector").limit().epsilon, rel=1e-6)


def test_forward_chains_and_what_is_charged():
    slow = [[0.7, 0.25, 0.05], [0.2, 0.6, 0.2], [0.05, 0.25, 0.7]]
    chain = csdp.CoupledChain([[0.8, 0.2], [0.2, 0.8]], slow, values=[15.0, 20.0, 25.0])
    plan = csdp.Plan(chain, csdp.Mean(), 1, 1.0)
    table = csdp.leakage_by_distance(plan, releases=3)
    assert [far for far, _ in table.rows] == [5.0, 10.0]
    for far, epsilon in table.rows:
        assert epsilon == pytest.approx(Accountant(plan.protecting(far)).after(3).epsilon, rel=1e-6)
    assert table.records()[0] == {"distance": 5.0, "epsilon": table.at(5)}


def test_many_values_have_a_short_table_that_stays_above():
    m = 30
    rng = np.random.default_rng(5)
    rho = 0.5 * np.eye(m) + 0.5 * rng.dirichlet(np.ones(m), size=m)
    chain = csdp.CoupledChain([[1.0]], rho, direction="backward")
    plan = csdp.Plan(chain, csdp.Mean(of=csdp.ReadingRange(0, 29, 1)), 1, 0.5)
    table = csdp.leakage_by_distance(plan, releases=2, state="vector")
    assert 10 < len(table.rows) <= 24
    for far in (2, 13, 28):
        assert table.at(far) >= Accountant(plan.protecting(far), state="vector").after(2).epsilon * (1 - 1e-9)


def test_the_table_says_what_a_distance_means():
    chain = csdp.CoupledChain([[1.0]], [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], direction="backward")
    table = csdp.leakage_by_distance(csdp.Plan(chain, csdp.Mean(), 1, 1.0), 2)
    assert "2 distances" in repr(table)
    shown = table.__rich__()
    assert shown.row_count == len(table.records()) == 2
    assert table.at(0.5) == 0.0
    assert table.at(1.0) == table.records()[0]["epsilon"] < table.at(2.0)
