"""For a fitted chain plans and certificates rest on its family; the point estimate is shown beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import csdp


@pytest.fixture(scope="module")
def fitted() -> csdp.CoupledChain:
    truth = csdp.CoupledChain([[0.8, 0.2], [0.3, 0.7]], [[0.9, 0.1], [0.2, 0.8]])
    chain = csdp.fit(truth.simulate(400, seed=4), public=True, ensemble=5)
    assert isinstance(chain, csdp.CoupledChain)
    assert chain.family is not None
    return chain


def test_leakage_is_the_largest_over_the_family(fitted: csdp.CoupledChain) -> None:
    asked = {"ages": 1, "epsilon_c": 1.0}
    answer = csdp.leakage(fitted, csdp.Mean(), **asked)  # type: ignore[arg-type]
    each = [csdp.leakage(m, csdp.Mean(), **asked).epsilon for m in fitted.family or ()]  # type: ignore[arg-type]
    point = csdp.leakage(fitted.without_family(), csdp.Mean(), **asked)  # type: ignore[arg-type]
    assert answer.epsilon == max(each)
    assert answer.epsilon > point.epsilon
    assert answer.point == point.epsilon
    assert point.point is None


def test_a_plan_is_certified_for_every_member_and_the_gate_charges_it(
    fitted: csdp.CoupledChain, tmp_path: Path
) -> None:
    found = csdp.find_plan(fitted, csdp.Mean(), budget=0.5, min_age=1, max_age=3, releases=3)
    plan = found.plan
    assert isinstance(plan.chain, csdp.Family)
    accountants = [csdp.Accountant(csdp.Plan(m, csdp.Mean(), plan.ages, plan.epsilon_c)) for m in plan.chain]
    assert max(a.ceiling(3) for a in accountants) <= found.leakage.epsilon <= 0.5
    again = csdp.Plan.from_json(plan.to_json())
    assert again == plan
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "l.db", budget=0.5, on_refusal="skip") as publisher:
        batch = publisher.publish(csdp.Panel.from_states(np.zeros((8, 2), dtype=np.int8)))
        assert len(batch) >= 3
        worst = max(a.after(1).epsilon for a in accountants)
        assert batch.releases[0].epsilon_s == pytest.approx(worst, rel=1e-9)


def test_the_error_that_a_plan_counts_on_is_the_largest_too(fitted: csdp.CoupledChain) -> None:
    asked = {"ages": 1, "epsilon_c": 1.0, "estimate": "linear"}
    each = [csdp.mse(m, csdp.Mean(), **asked).mse for m in fitted.family or ()]  # type: ignore[arg-type]
    assert csdp.mse(fitted, csdp.Mean(), **asked).mse == max(each)  # type: ignore[arg-type]


def test_a_private_fit_counts_among_what_a_record_is_exposed_to(tmp_path: Path) -> None:
    truth = csdp.CoupledChain([[0.8, 0.2], [0.3, 0.7]], [[0.9, 0.1], [0.2, 0.8]])
    chain = csdp.fit(truth.simulate(500, seed=4), states=2, epsilon=2.0, ensemble=2)
    plan = csdp.Plan(chain, csdp.Mean(), 1, 0.5)
    asked = {"dataset": "d", "event_limit": 2.4, "model_unchecked": True}
    with csdp.Publisher(plan, ledger=tmp_path / "l.db", **asked) as publisher:  # type: ignore[arg-type]
        publisher.push([0, 0], time=0)
        assert publisher.guarantee()["event_level"] == pytest.approx(2.5)
        with pytest.raises(csdp.errors.BudgetExceeded, match=r"2\.5"):
            publisher.push([0, 1], time=1)
    with csdp.Publisher(plan, ledger=tmp_path / "m.db", **asked | {"event_limit": 2.6}) as publisher:  # type: ignore[arg-type]
        publisher.push([0, 0], time=0)
        assert isinstance(publisher.push([0, 1], time=1), csdp.Release)
        assert publisher.summary()["event_level"] == pytest.approx(2.5)
