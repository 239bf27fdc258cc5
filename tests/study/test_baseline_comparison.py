"""The comparison: equal terms really are equal, and the table shows when our plan is beaten and when it is not."""

from __future__ import annotations

import numpy as np
import pytest
from study.baselines.comparison import compare
from study.baselines.continual import history_errors

import csdp
from study import baselines

PAIR = [[0.75, 0.25], [0.25, 0.75]]
PAPER = csdp.CoupledChain(PAIR, [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain(PAIR, [[0.99, 0.01], [0.3, 0.7]])
SYMMETRIC = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
SETTINGS = {"max_age": 15, "length": 12}
CASES = {
    "paper": (PAPER, {"budget": 0.2}),
    "skewed": (SKEWED, {"budget": 0.5}),
    "paper, by error": (PAPER, {"max_mse": 0.12}),
}


@pytest.fixture(scope="module")
def tables():
    return {name: (chain, compare(chain, csdp.Mean(), **target, **SETTINGS)) for name, (chain, target) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_baseline_has_a_row_and_no_data_too(tables, name):
    _, table = tables[name]
    rows = {row.name for row in table.rows}
    assert set(baselines.names()) | {"ours", "no-data"} <= rows
    for row in table.rows:
        assert row.guarantee
        assert row.label
        if row.verdict == "not comparable":
            assert row.leakage.value is None or row.mse is None
            assert "not computed" in row.leakage.how
    for stream in ("w-event-bd", "w-event-ba", "pegasus"):
        assert table[stream].mse is None or table[stream].leakage.at_most > 0
    assert table["no-data"].leakage.value == 0.0
    assert table["no-data"].mse == pytest.approx(table.no_data)


@pytest.mark.parametrize("name", CASES)
def test_the_terms_are_equal(tables, name):
    """Leakage and error of every Laplace release, asked again from its scale alone."""
    chain, table = tables[name]
    width = csdp.Mean().sensitivity(1, chain.value_table)
    for row in table.rows:
        if row.age is None or row.leakage.value is None or row.scale is None:
            continue
        level = width / row.scale
        again = csdp.leakage(chain, csdp.Mean(), ages=row.age, epsilon_c=level, bound="exact")
        assert row.leakage.value == pytest.approx(again.epsilon, rel=1e-6)
        error = csdp.mse(chain, csdp.Mean(), ages=row.age, epsilon_c=level, estimate="linear")
        assert row.mse == pytest.approx(error.mse, rel=1e-6)
        assert row.mse_raw >= row.mse
        if table.target == "budget":
            assert again.epsilon <= table.value * (1 + 1e-9)
            assert again.epsilon >= table.value * (1 - 1e-6) or level == pytest.approx(10.0)  # noise is not wasted
        else:
            assert error.mse <= table.value * (1 + 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_our_plan_is_at_most_any_baseline(tables, name):
    """At equal exact leakage of the present our error is the least; at equal error our leakage is; ties count."""
    _, table = tables[name]
    ours = table["ours"]
    assert not table.better
    assert "No method" in table.headline
    for row in table.rows:
        if row.leakage.value is None or row.mse is None:
            continue
        if table.target == "budget":
            assert ours.mse <= row.mse * (1 + 1e-6)
        else:
            assert ours.leakage.value <= row.leakage.value * (1 + 1e-6) or row.name == "no-data"


def test_it_shows_where_our_plan_is_not_the_best():
    """A loose error target: publishing nothing meets it and leaks nothing."""
    table = compare(PAPER, csdp.Mean(), max_mse=0.6, max_age=3, length=5)
    assert [row.name for row in table.better] == ["no-data"]
    assert "NOT the best" in table.headline
    assert table["no-data"].verdict == "BETTER"
    assert "publishing nothing" in table["ours"].note


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
    table = compare(SYMMETRIC, csdp.Mean(), budget=0.5, max_age=1, releases="continual")
    ours = table["ours"]
    assert ours.leakage.value is not None
    assert ours.leakage.value <= 0.5
    assert {"laplace", "tree", "toeplitz", "expiring", "wavelet", "fourier", "pegasus", "w-event-bd", "no-data"} <= {
        row.name for row in table.rows
    }
    for row in table.rows:
        assert row.mse is not None
        if row.verdict == "ours":
            continue
        assert row.mse <= table.no_data * (1 + 1e-9)
        if row.name != "no-data":
            assert row.leakage.at_most is not None
            assert row.leakage.at_most <= 0.5
        better = row.mse < ours.mse * (1 - 0.01)
        assert not better or row.verdict == "BETTER"
    assert {row.name for row in table.better} == {row.name for row in table.rows if row.verdict == "BETTER"}
