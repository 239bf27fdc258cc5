"""A stream and a service whose dataset gets other terms while they run: they follow, or say that they cannot."""

from __future__ import annotations

import pytest

from csdp import Mean, Plan
from csdp.errors import LedgerTermsError
from csdp.ledger import Ledger
from csdp.publisher import Publisher, Skipped
from csdp.stream import Clock, Runner

from service.parts import WARD, hand_in, released, serving, settings_of, write_spec  # isort: skip
from stream.parts import DATASET, NAMES, Memory, feed, pairs, plan  # isort: skip


def gate(where, budget=0.9, given=None, dataset=DATASET, step=10):
    return Publisher(
        given or plan(), dataset=dataset, ledger=where, budget=budget, on_refusal="skip", time_step=step, times="data"
    )


@pytest.fixture
def two(where):
    """A runner, and a publisher of the same dataset with a ledger of its own, as in another process."""
    sink = Memory()
    with Ledger.open(where) as ledger, gate(where) as other:
        yield (
            Runner(gate(ledger), ledger=ledger, clock=Clock(step=10, lateness=5, times="data"), sink=sink),
            other,
            sink,
        )


def test_a_stream_follows_a_lowered_budget(two):
    runner, other, sink = two
    feed(runner, range(4))
    assert sink.ticks == [1, 2]
    other.change_plan(plan(), from_tick=3, budget=0.1)
    feed(runner, range(4, 8))
    assert sink.ticks == [1, 2]
    assert {skip.why for skip in list(runner.recent)[3:]} == {"limit"}
    assert "above its limit 0.1" in runner.status().reason
    other.change_plan(plan(), from_tick=8, budget=0.9)
    feed(runner, range(8, 12))
    assert sink.ticks == [1, 2, 8, 9, 10]


def test_a_stream_says_that_its_plan_is_no_longer_the_recorded_one(two):
    runner, other, sink = two
    feed(runner, range(4))
    other.change_plan(plan(epsilon_c=0.25), from_tick=3)
    for tick in range(4, 20):  # goes on taking in, publishes nothing, keeps nothing
        with pytest.raises(LedgerTermsError, match="published under plan"):
            feed(runner, [tick])
        runner.ingest(NAMES[1], time=10 * tick + 5, value=1)
    assert sink.ticks == [1, 2]
    assert len(runner._open) == 1
    assert all(isinstance(one, Skipped) and one.why == "terms" for one in list(runner.recent)[3:])


def test_a_service_follows_limits_and_survives_a_change_of_plan(tmp_path):
    mine = Plan(pairs(2), Mean(), 1, 0.5, stale_limit=1)
    settings = settings_of(tmp_path, specs=[write_spec(tmp_path, limits="budget = 0.9")])
    with serving(settings) as served, gate(tmp_path / "ledger.db", given=mine, dataset=WARD) as other:
        writer, reader = served.client("writer"), served.client("reader")
        hand_in(writer, range(4))
        assert [one["tick"] for one in released(reader)] == [1, 2]
        other.change_plan(mine, from_tick=3, budget=0.1)
        hand_in(writer, range(4, 7))
        status = reader.get(f"/api/datasets/{WARD}/status").json()
        assert status["budget"] == status["limits"]["budget"] == 0.1
        assert reader.get("/api/datasets").json()[0]["limits"]["budget"] == 0.1
        assert status["published"] == 2
        assert "above its limit 0.1" in status["reason"]

        changed = other.change_plan(Plan(pairs(2), Mean(), 1, 0.25, stale_limit=1), from_tick=7)
        hand_in(writer, range(7, 12))
        answer = reader.get(f"/api/datasets/{WARD}/status")
        # Figures that took long to count are shown for a while; the trouble is shown at once.
        assert "published under plan" in answer.json()["trouble" if answer.status_code == 200 else "detail"]
        assert answer.status_code in {200, 409}
        assert [one["tick"] for one in released(reader)] == [1, 2]
        assert reader.get("/api/datasets").status_code == 200
        assert served.client("admin", "*").get("/metrics").status_code == 200
        live = served.app.state.service.datasets[WARD].publisher_thread
        assert "published under plan" in live.trouble
        changed.change_plan(mine, from_tick=12, budget=0.9)
        hand_in(writer, range(12, 16))
        assert [one["tick"] for one in released(reader)][-1] == 14
        assert reader.get(f"/api/datasets/{WARD}/status").json()["trouble"] == ""
