"""Late readings at the gate: which they were is recorded with the charge, and restarts and replays count the same."""

from __future__ import annotations

import numpy as np

from csdp import CoupledChain, Mean, Panel, Plan, Publisher
from csdp.accountant import Lateness
from csdp.audit.replay import replay
from csdp.ledger import Ledger
from csdp.publisher import PanelSource

SIZE, LATE = 12, 5


def plan_of_ring(**options):
    couplings = {(i, (i + d) % SIZE): w for i in range(SIZE) for d, w in ((0, 0.8), (1, 0.1), (SIZE - 1, 0.1))}
    chain = CoupledChain(couplings, [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    return Plan(chain, Mean(), options.pop("ages", 1), 0.1, stale_limit=3, **options)


def readings(plan, ticks=12):
    """States in which one sequence is missing for a while, and another once."""
    states = plan.model.simulate(ticks, seed=1).astype(np.int8)
    states[4:6, LATE] = -1
    states[8, 2] = -1
    return states


def charges(ledger, dataset="ring"):
    return {entry.tick: entry.data()["charge"] for entry in ledger.entries(dataset, kind="reserve")}


def test_a_source_that_does_not_tell_which_is_charged_whole(tmp_path):
    plan = plan_of_ring()
    panel = Panel.from_states(readings(plan), names=plan.model.names)

    class Silent:
        def __init__(self, source):
            self.availability, self.answers, self.counts = source.availability, source.answers, source.counts

    with Ledger.open(tmp_path / "ledger.db") as ledger:
        Publisher(plan, dataset="told", ledger=ledger).publish(panel)
        Publisher(plan, dataset="silent", ledger=ledger).publish(Silent(PanelSource(panel, plan)))
        told, silent = charges(ledger, "told"), charges(ledger, "silent")
        assert not any("late" in charge for charge in silent.values())
        assert told[5]["late"] == {"1": [LATE]}
        assert silent[5]["present"] > 3 * told[5]["present"]
        assert replay(ledger).ok


def test_a_record_of_fewer_late_readings_than_the_output_shows_is_found(tmp_path, monkeypatch):
    plan = plan_of_ring()
    kept = Lateness.to_record
    monkeypatch.setattr(Lateness, "to_record", lambda late: {"1": [2]} if late.worst == 2 else kept(late))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        panel = Panel.from_states(readings(plan), names=plan.model.names)
        Publisher(plan, dataset="ring", ledger=ledger).publish(panel)
        found = replay(ledger)
    assert any("recorded as late" in str(finding) for finding in found.findings)
