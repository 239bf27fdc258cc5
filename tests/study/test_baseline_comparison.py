"""The comparison: equal terms really are equal, and the table shows when our plan is beaten and when it is not."""

from __future__ import annotations

import numpy as np
import pytest
from study.baselines.comparison import compare
from study.baselines.continual import compare_continual, history_errors

import csdp

PAIR = [[0.75, 0.25], [0.25, 0.75]]
PAPER = csdp.CoupledChain(PAIR, [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain(PAIR, [[0.99, 0.01], [0.3, 0.7]])
SYMMETRIC = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])


@pytest.mark.parametrize(("chain", "budget"), [(PAPER, 0.2), (SKEWED, 0.5)], ids=["paper", "skewed"])
def test_the_terms_are_equal_and_our_plan_is_at_most_any(chain, budget):
    """Leakage and error of every release, asked again from its scale alone."""
    table = compare(chain, csdp.Mean(), budget=budget, max_age=15, length=12)
    ours, width = table["ours"], csdp.Mean().sensitivity(1, chain.value_table)
    assert {"laplace", "markov-quilt", "ddp-liu", "adp", "no-data"} <= {row.name for row in table.rows}
    assert table["no-data"].mse == pytest.approx(table.no_data)
    assert not table.better
    assert "No method" in table.headline
    for row in table.rows:
        if row.verdict == "not comparable":
            assert row.note
            continue
        assert ours.mse <= row.mse * (1 + 1e-6)
        if row.scale is None:
            continue
        level = width / row.scale
        again = csdp.leakage(chain, csdp.Mean(), ages=row.age, epsilon_c=level, bound="exact")
        assert row.leakage.value == pytest.approx(again.epsilon, rel=1e-6)
        assert again.epsilon <= budget * (1 + 1e-9)
        assert again.epsilon >= budget * (1 - 1e-6) or level == pytest.approx(10.0)  # noise is not wasted
        error = csdp.mse(chain, csdp.Mean(), ages=row.age, epsilon_c=level, estimate="linear")
        assert row.mse == pytest.approx(error.mse, rel=1e-6)
        assert row.mse_raw >= row.mse


def test_history_errors_against_simulation():
    """Of a Markov chain of two states, noise on every answer, age 1: estimates fitted on a long path do as well."""
    chain, noise, ticks = SYMMETRIC, 0.5, 4
    covariance, spread = 0.25 * 0.4 ** np.arange(3 * ticks), noise * np.eye(ticks)
    answer, total = history_errors(covariance, np.eye(ticks), np.arange(ticks) + 1, spread)
    path = chain.simulate(60_000, seed=1)[:, 0].astype(float)
    noisy = path + np.random.default_rng(2).normal(0.0, noise**0.5, path.size)
    windows = np.arange(2 * ticks, path.size - ticks, ticks)
    errors = []
    for tick in range(ticks):
        now = windows + tick
        design = np.column_stack([np.ones(now.size), *(noisy[now - lag] for lag in range(1, 2 * ticks))])
        for wanted in (path[now], sum(path[windows + t] for t in range(tick + 1))):
            errors.append(float(((wanted - design @ np.linalg.lstsq(design, wanted, rcond=None)[0]) ** 2).mean()))
    assert np.mean(errors[::2]) == pytest.approx(answer, rel=0.03)
    assert np.mean(errors[1::2]) == pytest.approx(total, rel=0.03)
    assert answer < history_errors(covariance, np.eye(ticks), np.arange(ticks) + 2, spread)[0]


def test_the_table_without_end():
    table = compare_continual(SYMMETRIC, csdp.Mean(), budget=0.5, max_age=1)
    ours = table["ours"]
    assert {"laplace", "tree", "toeplitz", "expiring", "wavelet", "fourier", "pegasus", "w-event-bd", "no-data"} <= {
        row.name for row in table.rows
    }
    for row in table.rows:
        assert row.leakage <= 0.5
        assert row.mse <= table.no_data * (1 + 1e-9)
        if row.verdict != "ours" and row.mse < ours.mse * (1 - 0.01):
            assert row.verdict == "BETTER"
    assert {row.name for row in table.better} == {row.name for row in table.rows if row.verdict == "BETTER"}
