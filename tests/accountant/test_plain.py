"""Readings whose public past speaks against the model: their releases tell their whole cost, which never fades."""

import numpy as np
import pytest

import csdp

OF = csdp.ReadingRange(0, 1, 0.25)


def slow_pair(**settings):
    return csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], **settings)


def plans(chain, query=None, **settings):
    """The same plan where readings were tested, and where the test failed and this was overridden."""
    given = csdp.Mean(of=OF) if query is None else query
    return [csdp.Plan(chain, given, 3, 0.5, readings_check=verdict, **settings) for verdict in ("passed", "failed")]


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_every_release_counts_whole_and_none_fades(direction):
    _, failed = plans(slow_pair(direction=direction))
    accountant = csdp.Accountant(failed)
    state = accountant.start()
    for n, tick in enumerate((0, 1, 5), 1):
        state = accountant.release(state, tick, stale=tick == 5)
        for later in (0, 1, 40):
            assert accountant.epsilon(state, tick + later) == pytest.approx(n * 2 * 0.5)
        assert accountant.peak(state) >= n * 2 * 0.5  # two sequences, each moves the mean by half of its range
    assert accountant.leakage(state).bound == "group"
    assert np.isinf(accountant.limit().epsilon)
    assert np.isinf(accountant.lifetime())
    assert accountant.restore(state.to_dict()).slices == state.slices


def test_a_first_release_is_not_certified_by_the_model():
    passed, failed = plans(slow_pair(direction="backward"))
    assert csdp.Accountant(passed).after(1).epsilon < 0.2
    assert csdp.Accountant(failed).after(1).epsilon >= 1.0


def test_a_thresholded_signal_is_not_charged_below_the_truth():
    """An AR(1) signal cut into two states: age 3, ten releases at epsilon_c 1 tell 1.258 of the state (theory, 19)."""
    chain = csdp.CoupledChain([[1.0]], [[0.8564, 0.1436], [0.1436, 0.8564]], direction="backward")
    query = csdp.Mean(of=csdp.ReadingRange(-6, 6, 0.5))
    certified = [
        csdp.Accountant(csdp.Plan(chain, query, 3, 1.0, readings_check=verdict)).after(10).epsilon
        for verdict in ("none", "failed")
    ]
    assert certified[0] < 1.258 < certified[1]


def test_a_budget_is_compared_with_what_holds(tmp_path):
    passed, failed = plans(slow_pair(direction="backward"))
    readings = np.random.default_rng(1).choice([0.0, 0.25, 0.5, 1.0], size=(12, 2))
    outcomes = {}
    for name, plan in (("passed", passed), ("failed", failed)):
        where = {"dataset": name, "ledger": tmp_path / "ledger.db", "budget": 2.0, "on_refusal": "skip"}
        with csdp.Publisher(plan, **where) as publisher:
            outcomes[name] = [publisher.push(row, time=tick) for tick, row in enumerate(readings)]
            summary = publisher.summary()
            assert summary["present"] == max(one.epsilon_s for one in outcomes[name] if isinstance(one, csdp.Release))
        assert summary["present"] <= 2.0
    assert [sum(isinstance(one, csdp.Release) for one in each) for each in outcomes.values()] == [9, 2]


def test_a_change_to_a_plan_that_was_tested_carries_the_whole_cost_over(tmp_path):
    passed, failed = plans(slow_pair(direction="backward"))
    with csdp.Publisher(failed, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        for tick in range(6):
            publisher.push([0.0, 1.0], time=tick)
        told = publisher.summary()["present"]
        assert told == pytest.approx(3 * 2 * 0.5)
        following = publisher.change_plan(passed, from_tick=6)
        carried = following.accountant.restore(publisher.ledger.summary("d").state.accountant)
        assert following.accountant.largest(carried) == pytest.approx(told)
        back = following.change_plan(failed, from_tick=7)
        assert back.summary()["present"] == pytest.approx(told)
