"""Other readings for ticks that are recorded: the recorded numbers are returned, and the count is told."""

from __future__ import annotations

import csdp

CHAIN = csdp.CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]])
PLAN = csdp.Plan(CHAIN, csdp.Mean(), ages=1, epsilon_c=0.5)


def test_a_batch_says_how_many_of_its_numbers_were_recorded_before(tmp_path, caplog):
    zeros, ones = (csdp.Panel.from_states([[state, state]] * length) for state, length in ((0, 4), (1, 6)))
    with csdp.Publisher(PLAN, dataset="ward-7", ledger=tmp_path / "ledger.db") as publisher:
        first = publisher.publish(zeros)
        assert (len(first), first.recorded, caplog.text) == (3, 0, "")
        second = publisher.publish(ones)
    assert second.releases[:3] == first.releases
    assert (len(second), second.recorded, publisher.recorded, publisher.charged) == (5, 3, 3, 5)
    assert repr(second) == "Batch(5 releases (3 recorded before), 1 ticks without one)"
    assert "ward-7: 3 of 5 ticks were recorded before; their recorded numbers are returned" in caplog.text


def test_a_refusal_does_not_hide_what_was_recorded(tmp_path, caplog):
    limits = {"dataset": "ward-7", "ledger": tmp_path / "ledger.db", "budget": 0.25}
    panel = csdp.Panel.from_states([[0, 1]] * 8)
    with csdp.Publisher(PLAN, **limits, on_refusal="skip") as publisher:
        released = len(publisher.publish(panel))
        again = publisher.publish(panel)
    assert again.recorded == released > 0
    assert f"{released} of 7 ticks were recorded before" in caplog.text
