"""What a certificate says of the future, after the terms of its dataset have changed."""

import pytest

from csdp import CoupledChain, Ledger, Mean, Plan, Publisher
from csdp.report.certificate import certify

CHAIN = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]])


@pytest.fixture
def published(tmp_path):
    """Three releases under a budget of 2."""
    plan = Plan(CHAIN, Mean(), 1, 0.4)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        publisher = Publisher(plan, dataset="d", ledger=ledger, budget=2.0)
        for tick, states in enumerate(CHAIN.simulate(4, seed=1)):
            publisher.push(states, time=tick)
        yield plan, ledger, publisher


def test_a_lowered_budget_does_not_take_back_what_was_published(published):
    plan, ledger, publisher = published
    told = publisher.summary()["present"]
    assert certify(publisher, ledger)["present"].ceiling == 2.0
    lowered = publisher.change_plan(plan, from_tick=4, budget=told / 2)
    promise = certify(lowered, ledger)["present"]
    assert promise.ceiling >= lowered.summary()["present"]
    assert promise.ceiling > told / 2


def test_a_lowered_budget_that_the_past_keeps_is_the_ceiling(published):
    plan, ledger, publisher = published
    lowered = publisher.change_plan(plan, from_tick=4, budget=1.9)
    assert certify(lowered, ledger)["present"].ceiling == 1.9
