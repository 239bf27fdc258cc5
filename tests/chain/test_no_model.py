"""A plan without a model: plain differential privacy, and nothing else that could be false."""

from __future__ import annotations

import math

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.errors import BudgetExceeded, InputError
from csdp.report.certificate import certify

ROOMS = csdp.NoModel(["hall", "kitchen", "attic"])


def test_it_promises_the_group_level_of_all_sequences():
    accountant = Accountant(csdp.Plan(ROOMS, "mean", 1, 0.5))
    assert accountant.after(4).epsilon == accountant.every_moment(4) == pytest.approx(4 * 3 * 0.5)
    assert accountant.limit().epsilon == accountant.every_moment() == math.inf
    assert accountant.event_level() == pytest.approx(0.5)
    assert accountant.limit().model.brief == "No model: plain differential privacy only"


def test_it_is_published_within_an_event_limit_without_an_override(tmp_path):
    plan = csdp.Plan(ROOMS, "mean", 0, 0.5)
    panel = csdp.Panel.from_states(np.random.default_rng(0).integers(0, 2, (9, 3)), names=ROOMS.names)
    with csdp.Publisher(plan, dataset="home", ledger=tmp_path / "ledger.db", event_limit=0.5) as publisher:
        assert len(publisher.publish(panel)) == 9
    publisher = csdp.Publisher(plan, dataset="other", ledger=tmp_path / "ledger.db", budget=2.0)
    with publisher, pytest.raises(BudgetExceeded, match="leakage of the present"):
        publisher.publish(panel)


def test_it_travels_and_refuses_what_needs_a_law():
    plan = csdp.Plan(ROOMS, "mean", 0, 0.5)
    assert csdp.Plan.from_json(plan.to_json()) == plan
    assert csdp.NoModel.from_json(ROOMS.to_json()) == ROOMS
    for ask in (ROOMS.kernel, lambda: ROOMS.simulate(3, seed=1), lambda: ROOMS.subchain([0])):
        with pytest.raises(InputError, match=r"nothing is assumed|any sequence"):
            ask()
    with pytest.raises(InputError, match="two values"):
        csdp.NoModel(["hall"], values=(1.0,))


def test_it_keeps_the_cost_of_a_fit():
    chain = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]).carrying(fit_cost={"epsilon": 0.5, "fit": "a"})
    assert csdp.chain.private_fits(csdp.chain.NoModel.of(chain)) == {"a": 0.5}


def test_its_certificate_states_plain_numbers_alone(tmp_path):
    plan = csdp.Plan(ROOMS, "mean", 0, 0.5)
    panel = csdp.Panel.from_states(np.random.default_rng(0).integers(0, 2, (9, 3)), names=ROOMS.names)
    with csdp.Publisher(plan, dataset="home", ledger=tmp_path / "ledger.db", window=3, window_limit=1.5) as publisher:
        publisher.publish(panel)
        certificate = certify(publisher, publisher.ledger)
    assert [promise.name for promise in certificate.promises] == ["event", "window", "group"]
    assert certificate.sentence.startswith("No model: plain differential privacy only: ")
    assert "nothing is certified about the present" in certificate.sentence
