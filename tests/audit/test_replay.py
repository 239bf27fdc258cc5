"""Replay of ledgers: what the gate wrote is confirmed, and what a lying program wrote is found, in both databases."""

from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import CoupledChain, Custom, Mean, replay
from csdp.accountant import Accountant
from csdp.errors import BudgetExceeded, LedgerConflictError
from csdp.ledger import Admission, Charge, DatasetState, Ledger, PrivacyLimits, Request, Terms
from csdp.panel import Panel
from csdp.plan import ALGORITHM, Plan
from csdp.publisher import Publisher
from csdp.publisher.sources import Ready
from csdp.schedule import Schedule

from audit.mechanisms import ONE, PAIR  # isort: skip

NAME = "ward-7"


def plan(chain=ONE, ages=1, epsilon_c=0.5, **rest):
    return Plan(chain, Mean(), ages, epsilon_c, **rest)


def gaps(ticks=30, sequences=1):
    """Readings with holes: some ticks stale, some not released at all."""
    states = np.random.default_rng(1).integers(0, 2, size=(ticks, sequences)).astype(np.int8)
    states[7:8] = -1
    states[15:18, 0] = -1
    return Panel.from_states(states)


@pytest.mark.parametrize(
    ("chosen", "limits"),
    [
        (plan(), {"budget": 0.3}),
        (plan(stale_limit=1), {"event_limit": 2.0}),
        (plan(PAIR, (1, 2), 0.5, stale_limit=1), {"budget": 2.0, "moment_limit": 40.0}),
        (plan(PAIR, 2, schedule=Schedule((0.5, 0.0, 0.2), then=0.1)), {"budget": 1.0}),
    ],
    ids=["budget", "stale", "unequal ages", "schedule"],
)
def test_what_the_gate_wrote_is_confirmed(where, chosen, limits):
    with Ledger.open(where) as ledger:
        publisher = Publisher(chosen, dataset=NAME, ledger=ledger, on_refusal="skip", **limits)
        batch = publisher.publish(gaps(sequences=chosen.model.sequences))
        assert len(batch) > 5
        result = replay(ledger, dataset=NAME, plans=[chosen])
        assert result.findings == ()
        assert result.notes == ()
        assert result.charges == {NAME: len(batch)}
        assert result.ok
        assert result.verdict == f"{len(batch)} charges of 1 dataset replayed: no leakage is recorded too low"


@pytest.mark.parametrize(
    "following", [plan(ages=2, epsilon_c=1.0), plan(CoupledChain([[1.0]], [[0.6, 0.4], [0.4, 0.6]]))]
)
def test_a_change_of_plan_is_replayed(where, following):
    with Ledger.open(where) as ledger:
        publisher = Publisher(plan(), dataset=NAME, ledger=ledger, event_limit=3.0)
        publisher.publish(gaps(12))
        changed = publisher.change_plan(following, from_tick=20)
        for tick in range(18, 26):
            changed.push([tick % 2], time=tick)
        result = replay(ledger)
        assert result.findings == ()
        assert result.charges[NAME] == ledger.summary(NAME).reserved


def test_levels_that_are_shifted_by_a_tick_are_found(where, monkeypatch):
    chosen, right = plan(schedule=Schedule((0.5, 0.1, 0.3), then=0.2)), Schedule.level
    with Ledger.open(where) as ledger:
        with monkeypatch.context() as wrong:
            wrong.setattr(Schedule, "level", lambda self, tick: right(self, tick + 1))
            Publisher(chosen, dataset=NAME, ledger=ledger).publish(gaps(6))
        assert any("the schedule says" in str(finding) for finding in replay(ledger).findings)


def understating_admission(chosen, *, factor=1.0, free_from=None):
    """An admissibility rule that records only a part of what it charges, or forgets the past."""
    accountant = Accountant(chosen)

    def admit(last, last_tick, request):
        state = accountant.start() if last is None else accountant.restore(last.accountant)
        if free_from is not None and request.tick >= free_from:
            state = accountant.start()
        fresh = accountant.release(state, request.tick)
        charge = Charge(
            present=accountant.leakage(fresh).epsilon * factor,
            peak=accountant.peak(fresh) * factor,
            event=accountant.event_level(),
            algorithm=ALGORITHM,
        )
        return Admission(DatasetState(fresh.to_dict(), releases=request.tick), charge)

    return admit


def replay_written(where, admit, *, limits=None, output=None, ticks=5):
    """A ledger whose hash chain is in order, whatever it says."""
    chosen = plan()
    with Ledger.open(where) as ledger:
        plan_json = json.dumps(chosen.record())
        ledger.register(NAME, Terms(chosen.digest, plan_json, chosen.chain.digest, limits or PrivacyLimits()))
        requests = [Request(tick, "mean") for tick in range(1, ticks + 1)]
        reserved = ledger.reserve(NAME, requests, admit, plan_digest=chosen.digest)
        record = {"values": [0.5], "stale": 0, "unsafe": False}
        for one in reserved:
            ledger.commit(one, {**record, "epsilon_s": one.charge.present, **(output or {})})
        assert ledger.verify() == []
        return replay(ledger)


def test_leakages_recorded_too_low_are_found(where):
    result = replay_written(where, understating_admission(plan(), factor=0.9))
    assert not result.ok
    presents = [finding for finding in result.findings if "the leakage of the present" in finding.what]
    assert [finding.tick for finding in presents] == [1, 2, 3, 4, 5]
    assert all(finding.recorded == pytest.approx(0.9 * finding.recomputed) for finding in presents)
    assert presents[0].recomputed == pytest.approx(0.1966, abs=1e-4)
    assert "dataset 'ward-7': entry 2: tick 1: the leakage of the present is recorded as 0.17" in str(presents[0])
    wrong_outputs = [finding for finding in result.findings if "published with the output" in finding.what]
    assert len(wrong_outputs) == 5
    assert result.to_dict()["findings"][0]["recorded"] == presents[0].recorded


def test_a_forgotten_past_is_found_from_the_tick_it_was_forgotten_at(where):
    result = replay_written(where, understating_admission(plan(), free_from=3))
    below = [finding.tick for finding in result.findings if finding.what.startswith("the leakage of the present")]
    assert below == [3, 4, 5]


def test_a_charge_above_a_limit_is_found(where):
    result = replay_written(where, understating_admission(plan()), limits=PrivacyLimits(budget=0.28, event_limit=0.4))
    above = [(finding.tick, finding.what) for finding in result.findings]
    assert [tick for tick, what in above if "above the budget 0.28" in what] == [3, 4, 5]
    assert [tick for tick, what in above if "above the event_limit 0.4" in what] == [1, 2, 3, 4, 5]


def test_noise_from_a_seed_is_found(where):
    result = replay_written(where, understating_admission(plan()), output={"unsafe": True}, ticks=1)
    message = "published with noise from a seed, which gives no protection"
    assert [finding.what for finding in result.findings] == [message]


def test_a_payload_without_its_figures_is_found(where):
    result = replay_written(where, lambda *_: Admission(DatasetState(), Charge(0.5)), ticks=1)
    assert {finding.what for finding in result.findings} == {"its payload cannot be read"}


def test_a_lost_tick_and_a_refused_one(where):
    with Ledger.open(where) as ledger:
        publisher = Publisher(plan(), dataset=NAME, ledger=ledger, budget=0.3)
        publisher.push([0], time=0)
        publisher.push([0], time=1)
        publisher._reserve(publisher._rule.list_requests([Ready(2, 0, publisher.plan.model.sequences)], None))
        publisher.push([0], time=2)
        publisher.push([0], time=3)
        with pytest.raises(BudgetExceeded):
            publisher.push([0], time=4)
        assert ledger.summary(NAME).lost == 1
        result = replay(ledger)
        assert result.findings == ()
        assert result.charges[NAME] == ledger.summary(NAME).reserved


def test_edits_of_the_file_are_found_by_the_hash_chain(tmp_path):
    import sqlite3

    path = tmp_path / "ledger.db"
    with Publisher(plan(), dataset=NAME, ledger=path) as publisher:
        publisher.publish(gaps(6))
    with sqlite3.connect(path) as raw:
        triggers = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute("UPDATE csdp_entries SET payload = replace(payload, '\"present\":0.1', '\"present\":0.0')")
    raw.close()
    with Ledger.open(path) as ledger:
        result = replay(ledger)
    words = " ".join(str(finding) for finding in result.findings)
    assert "does not fit the hash chain" in words
    assert "the leakage of the present is recorded as 0.09" in words
    assert "triggers are missing" in words


def test_a_custom_query_needs_its_plan(where):
    def both(values):
        return values[0] * values[1]

    chosen = Plan(PAIR, Custom(both, name="both"), 1, 0.5)
    with Ledger.open(where) as ledger:
        publisher = Publisher(chosen, dataset=NAME, ledger=ledger)
        publisher.publish(gaps(6, sequences=2))
        alone = replay(ledger)
        assert alone.charges == {NAME: 0}
        assert "give it with plans=[...]" in alone.notes[0]
        assert alone.verdict.endswith("; 5 charges could NOT be replayed")
        result = replay(ledger, plans=[chosen])
        assert result.ok
        assert result.left_out == 0
        assert result.charges[NAME] == 5


def test_a_plan_that_was_never_published_under_is_told(where):
    with Ledger.open(where) as ledger:
        Publisher(plan(), dataset=NAME, ledger=ledger).publish(gaps(4))
        result = replay(ledger, plans=[plan(epsilon_c=0.4)])
        assert [finding.what[:45] for finding in result.findings] == [
            "no dataset was published under the plan " + plan(epsilon_c=0.4).digest[:5],
        ]
        with pytest.raises(LedgerConflictError, match="no dataset 'ward-8'"):
            replay(ledger, dataset="ward-8")
