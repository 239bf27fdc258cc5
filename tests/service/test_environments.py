"""A service whose chain has environments: published, certified, and told which adversary is meant."""

from __future__ import annotations

import pytest

import csdp
from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan, Schedule
from csdp.chain.files import save_model
from csdp.ledger import Ledger

from service.parts import WARD, hand_in, released, serving, settings_of, write_spec  # isort: skip

KINDS = {
    "clock": {"cycle": (0, 1, 1, 2)},
    "both": {"cycle": (0, 1), "switching": [[0.9, 0.1], [0.2, 0.8]]},
    "series": {"series": "weather"},
}


def chain_of(kind: str) -> EnvironmentChain:
    laws = ((0.3, 0.3), (0.1, 0.4), (0.2, 0.6), (0.5, 0.5))
    pair, names = [[0.75, 0.25], [0.25, 0.75]], ["s0", "s1"]
    members = [CoupledChain(pair, [[1 - p, p], [q, 1 - q]], direction="backward", names=names) for p, q in laws]
    return EnvironmentChain(members, **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_readings_are_published_under_environments(tmp_path, kind):
    spec, chain = write_spec(tmp_path), chain_of(kind)
    save_model(chain, tmp_path / "chain-2.json")
    with serving(settings_of(tmp_path, specs=[spec])) as served:
        hand_in(served.client("writer"), range(6))
        reader = served.client("reader")
        assert [one["tick"] for one in released(reader)] == [1, 2, 3, 4]
        status = reader.get(f"/api/datasets/{WARD}/status").json()
        plan = Plan(chain, Mean(), 1, 0.5, stale_limit=1)
        assert status["present"] == pytest.approx(Accountant(plan).after(4).epsilon, rel=1e-12)
        words = str(reader.get("/api/datasets").json()[0]["guarantee"])
        assert ("phase of the clock" if kind == "clock" else "environment of every tick") in words
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []


def test_a_plan_with_levels_by_phase_is_served(tmp_path):
    spec, chain, levels = write_spec(tmp_path), chain_of("clock"), (0.5, 0.1, 0.3, 0.2)
    save_model(chain, tmp_path / "chain-2.json")
    plan = Plan(chain, Mean(), 1, 0.5, stale_limit=1, schedule=Schedule(levels, repeats=True))
    (tmp_path / "plan.json").write_text(plan.to_json())
    text = spec.read_text()
    explicit = text[text.index("[plan]") : text.index("[limits]")]
    spec.write_text(text.replace(explicit, '[plan]\nfile = "plan.json"\n\n'))
    for ticks in (range(6), range(6, 11)):
        with serving(settings_of(tmp_path, specs=[spec])) as served:
            hand_in(served.client("writer"), ticks)
            reader = served.client("reader")
            assert released(reader)
            facts = reader.get("/api/datasets").json()[0]
            assert (facts["epsilon_c"], facts["phase_levels"]) == (0.5, list(levels))
            assert "tick t lies at phase t mod 4" in str(facts["guarantee"])
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        noise = {one.tick: one.output["noise"] for one in ledger.published(WARD)}
        assert len(noise) > 6
        assert noise == {tick: plan.at(levels[tick % 4]).noise_variance for tick in noise}
        assert csdp.replay(ledger, dataset=WARD).ok
