"""A service whose chain has environments: published, certified, and told which adversary is meant."""

from __future__ import annotations

import pytest

from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan
from csdp.chain.files import save_model
from csdp.ledger import Ledger

from service.parts import WARD, hand_in, released, serving, settings_of, write_spec  # isort: skip

KINDS = {
    "clock": {"cycle": (0, 1, 1, 2)},
    "both": {"cycle": (0, 1), "switching": [[0.9, 0.1], [0.2, 0.8]]},
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
