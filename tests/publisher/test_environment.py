"""Publishing under environments: the gate, the ledger and its replay, and what the words say."""

from __future__ import annotations

from pathlib import Path

import pytest

import csdp
from csdp import CoupledChain, EnvironmentChain, Mean, Panel, Plan, Publisher
from csdp.errors import BudgetExceeded
from csdp.report.certificate import certify


def chain_of(kind: str) -> EnvironmentChain:
    members = [
        CoupledChain([[1.0]], [[1 - p, p], [q, 1 - q]], direction="backward") for p, q in ((0.3, 0.3), (0.1, 0.4))
    ]
    if kind == "clock":
        return EnvironmentChain(members, cycle=(0, 1))
    return EnvironmentChain(members, switching=[[0.9, 0.1], [0.2, 0.8]])


def panel_of(chain: EnvironmentChain, ticks: int) -> Panel:
    return Panel.from_states(chain.simulate(ticks, seed=1), names=chain.names)


@pytest.mark.parametrize("kind", ["clock", "hidden"])
def test_a_dataset_is_published_continued_and_replayed(tmp_path: Path, kind: str) -> None:
    chain = chain_of(kind)
    plan = Plan.from_json(Plan(chain, Mean(), 1, 0.4).to_json())
    panel, path = panel_of(chain, 8), tmp_path / "ledger.db"
    with Publisher(plan, dataset="d", ledger=path) as publisher:
        publisher.publish(Panel.from_states(panel.states[:4], names=chain.names))
    with Publisher(plan, dataset="d", ledger=path) as publisher:
        assert publisher.publish(panel).releases
        words = publisher.guarantee()["words"]
        paper = certify(publisher, publisher.ledger)
        assert csdp.replay(publisher.ledger, dataset="d").ok
    condition = "given the phase of the clock" if kind == "clock" else "given the environment of every tick"
    assert condition in paper.sentence
    assert condition in " ".join(words)
    says_what_is_open = any("Facts about the environment" in text for text in paper.not_promised)
    assert says_what_is_open == (kind != "clock")


def test_a_budget_holds_at_every_phase(tmp_path: Path) -> None:
    chain = chain_of("clock")
    plan, budget = Plan(chain, Mean(), 1, 0.4), 0.3
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db", budget=budget) as publisher:
        with pytest.raises(BudgetExceeded):
            publisher.publish(panel_of(chain, 12))
        assert 0 < publisher.summary()["present"] <= budget
