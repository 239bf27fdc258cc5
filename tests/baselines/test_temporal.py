"""Temporal privacy leakage against the numbers of its authors and against enumeration; budgets that keep its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

import csdp
from csdp import baselines
from csdp.errors import InputError, TooLargeError

from baselines.chains import CYCLE, PAPER, PERIODIC, SKEWED, SYMMETRIC, THREE, series_leakage  # isort: skip


def test_the_published_check_of_temporal_leakage():
    leakage = baselines.temporal_leakage(SYMMETRIC, [1.0] * 200)
    assert leakage.bpl[1] - 1.0 == pytest.approx(0.37399, abs=5e-6)  # L(1)
    assert leakage.bpl.max() == pytest.approx(1.5261, abs=5e-5)
    assert leakage.tpl.max() == pytest.approx(2.0522, abs=5e-5)
    assert leakage.tpl == pytest.approx(leakage.bpl + leakage.fpl - 1.0)


@pytest.mark.parametrize("tick", range(4))
def test_temporal_leakage_is_what_a_binary_series_tells(tick):
    leakage = baselines.temporal_leakage(SYMMETRIC, [0.8] * 4)
    assert leakage.tpl[tick] == pytest.approx(series_leakage(SYMMETRIC, 1 / 0.8, 4, tick), rel=1e-9)
    skewed = baselines.temporal_leakage(SKEWED, [0.8] * 4)
    assert skewed.tpl[tick] >= series_leakage(SKEWED, 1 / 0.8, 4, tick) * (1 - 1e-9)
    cycle = baselines.temporal_leakage(CYCLE, [0.8] * 4)  # values 0, 1, 2: a tick costs 0.8 between the ends
    assert cycle.tpl[tick] >= series_leakage(CYCLE, 2 / 0.8, 4, tick) * (1 - 1e-9)


def test_large_costs_do_not_overflow():
    leakage = baselines.temporal_leakage(SYMMETRIC, [1e6] * 5)
    assert np.isfinite(leakage.tpl).all()
    assert leakage.tpl.max() == pytest.approx(1e6 + 2 * math.log(0.7 / 0.3), rel=1e-6)
    assert baselines.temporal_leakage(PERIODIC, [1e3] * 5).tpl == pytest.approx([5e3] * 5)


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, PAPER, THREE], ids=["symmetric", "skewed", "paper", "three"])
@pytest.mark.parametrize("length", [1, 2, 3, 30])
def test_budgets_keep_the_bound_and_use_it(chain, length):
    budgets = baselines.temporal_budgets(chain, bound=0.9, length=length)
    leakage = baselines.temporal_leakage(chain, budgets).tpl
    assert (leakage <= 0.9 * (1 + 1e-12)).all()
    assert leakage.max() >= 0.9 * (1 - 1e-6)
    even = baselines.temporal_budgets(chain, bound=0.9, length=length, allocation="uniform")
    assert budgets.sum() >= even.sum() * (1 - 1e-9)


def test_a_series_that_never_forgets_shares_the_bound():
    assert baselines.temporal_budgets(PERIODIC, bound=1.0, length=8) == pytest.approx([1 / 8] * 8)


def test_a_component_that_is_too_large_is_named():
    giant = csdp.CoupledChain(np.full((9, 9), 1 / 9), [[0.7, 0.3], [0.3, 0.7]])
    with pytest.raises(TooLargeError, match="at most 256"):
        baselines.temporal_leakage(giant, [1.0])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: baselines.temporal_leakage(SYMMETRIC, []), "epsilons"),
        (lambda: baselines.temporal_leakage(SYMMETRIC, [-1.0]), "0 or more"),
        (lambda: baselines.temporal_leakage(SYMMETRIC, [[1.0]]), "one per tick"),
        (lambda: baselines.temporal_leakage(SYMMETRIC, ["a"]), "one non-negative number per tick"),
        (lambda: baselines.temporal_leakage("chain", [1.0]), "chain: str given"),
        (lambda: baselines.temporal_budgets(SYMMETRIC, bound=0, length=3), "bound: 0 given"),
        (lambda: baselines.temporal_budgets(SYMMETRIC, bound=1.0, length=0), "length: 0 given"),
        (lambda: baselines.temporal_budgets(SYMMETRIC, bound=1.0, length=3, allocation="x"), "allocation: 'x' given"),
        (lambda: baselines.TemporalBudgets(age=-1).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "age: -1 given"),
    ],
)
def test_bad_input(ask, message):
    with pytest.raises(InputError, match=message):
        ask()
