"""What a certificate says of the future, after the terms of its dataset have changed."""

from itertools import product

import numpy as np
import pytest

from csdp import CoupledChain, Ledger, Mean, Plan, Publisher, ReadingRange
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


def test_the_lifetime_of_a_reading_with_a_memory_is_not_promised(tmp_path):
    """Half the sum of two independent bits: its neighbours share a bit with it on either side."""
    of = ReadingRange(0, 3, 1, memory=1)
    plan = Plan(CoupledChain([[1.0]], [[0.5, 0.5], [0.5, 0.5]]), Mean(of=of), 1, 1.0)
    bits = np.array(list(product((0, 1), repeat=4)))
    readings = np.array([0, 1, 1, 3])[bits[:, 1:] + 2 * bits[:, :-1]]  # of three ticks
    outputs = np.array(list(product((0, 1, 3), repeat=3)))
    likelihood = np.exp(-np.abs(outputs[:, None] - readings).sum(axis=2) / 3)
    low, high = (likelihood[:, readings[:, 1] == reading].mean(axis=1) for reading in (0, 3))
    told = np.abs(np.log(high / low)).max()
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        publisher = Publisher(plan, dataset="d", ledger=ledger)
        for tick in range(4):
            publisher.push([1.0], time=tick)
        promise = certify(publisher, ledger)["lifetime"]
    assert told == pytest.approx(2.0815, abs=1e-4)
    assert told > promise.epsilon
    assert promise.protects == "one state, from all releases before and after it"
    for number in range(4):  # which is kept
        told = [likelihood[:, bits[:, number] == bit].mean(axis=1) for bit in (0, 1)]
        assert np.abs(np.log(told[0] / told[1])).max() <= promise.epsilon
