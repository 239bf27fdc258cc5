"""Who may publish, what the file holds, and what a change of plan carries over."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path

import numpy as np
import pytest

from csdp import CoupledChain, Custom, Identity, Linear, Max, Mean
from csdp.accountant import Accountant
from csdp.errors import BudgetExceeded, InputError, LedgerConflictError, UnsafeRandomnessWarning, UnsoundError
from csdp.ledger import Ledger
from csdp.panel import Panel, to_states
from csdp.plan import Plan
from csdp.publisher import Publisher, Release

from publisher.rules import BUDGET, NAME, ONE, opened, outputs, panel, plan, snapshot  # isort: skip


def test_other_terms_on_one_dataset_are_refused(file: Path) -> None:
    other_chain = CoupledChain([[1.0]], [[0.8, 0.2], [0.3, 0.7]])
    with opened(file):
        for changed in (
            {"plan": plan(other_chain)},
            {"plan": plan(ages=2)},
            {"plan": plan(epsilon_c=0.4)},
            {"plan": plan(stale_limit=1)},
            {"plan": Plan(ONE, Max(), 1, 0.5)},
            {"budget": 0.4},
            {"event_limit": 1.0},
        ):
            with pytest.raises(LedgerConflictError, match="other terms"):
                opened(file, **changed)


def test_queries_that_only_share_their_name_are_refused(file: Path) -> None:
    many = CoupledChain(np.eye(9), [[0.7, 0.3], [0.3, 0.7]])
    pairs = [
        (Linear([1.0] * 9), Linear([1.0] * 8 + [8.0])),
        (Custom(lambda v: v.sum(), name="f"), Custom(lambda v: 2 * v.max(), name="f")),
    ]
    for number, (first, second) in enumerate(pairs):
        with Publisher(Plan(many, first, 1, 0.5), dataset=f"d{number}", ledger=file):
            pass
        with pytest.raises(LedgerConflictError, match="plan"):
            Publisher(Plan(many, second, 1, 0.5), dataset=f"d{number}", ledger=file)


def test_a_bound_that_is_not_proven_cannot_publish(file: Path) -> None:
    for bound in ("printed-loose", "printed-tight"):
        with pytest.raises(UnsoundError, match="not proven"):
            opened(file, plan=plan(bound=bound))
    assert not file.exists()
    with opened(file) as publisher, pytest.raises(UnsoundError, match="not proven"):
        publisher.change_plan(plan(bound="printed-loose"), from_tick=5)


def test_unknown_ways_to_refuse_are_refused(file: Path) -> None:
    with pytest.raises(InputError, match="'raise' or 'skip'"):
        opened(file, on_refusal="ignore")


def test_a_seed_warns_and_marks_every_release(file: Path, tmp_path: Path) -> None:
    found = []
    for path in (file, tmp_path / "second.db"):
        with pytest.warns(UnsafeRandomnessWarning):
            publisher = opened(path, unsafe_seed=5, budget=None)
        with publisher:
            batch = publisher.publish(panel(5))
            assert all(r.unsafe for r in batch)
            found.append([r.values for r in batch])
            assert all(one.output["unsafe"] for one in publisher._ledger.published(NAME))
    assert found[0] == found[1]
    with opened(tmp_path / "third.db", budget=None) as publisher:
        safe = publisher.publish(panel(5))
        assert not any(r.unsafe for r in safe)
        assert [r.values for r in safe] != found[0]


def test_an_open_ledger_is_shared_and_left_open(file: Path) -> None:
    with Ledger.open(file) as ledger:
        with opened(ledger) as publisher:
            publisher.publish(panel(3))
        assert len(outputs(ledger)) == 2


def test_no_raw_reading_reaches_the_file(file: Path) -> None:
    values = [123456.0, 654321.0]
    chain = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], values=values, names=["alice", "bob"])
    readings = np.array([[123456.0, 654321.0], [654321.0, 654321.0], [123456.0, 123456.0], [123456.0, 654321.0]])
    states = to_states(readings, chain.value_table)
    chosen = Plan(chain, Identity(), 1, 0.05)
    with Publisher(chosen, dataset=NAME, ledger=file) as publisher:
        publisher.publish(Panel.from_states(states))
        publisher.push([1, 0], time=9)
        publisher.push([1, 0], time=10)
        ledger = publisher._ledger
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for one in ledger.published(NAME):
            assert set(one.output) == {
                "values", "estimate", "standard_error", "stale", "unsafe", "ages", "epsilon_s",
            }  # fmt: skip
            assert not set(one.output["values"]) & set(values)
        for entry in ledger.entries(NAME):
            payload = json.loads(entry.payload)
            assert set(payload) <= {"number", "terms", "state", "charge", "reserve", "output", "digest", "path"}
            if "state" in payload:
                assert set(payload["state"]) <= {"accountant", "releases", "stale", "cost"}
    plain = b"".join(p.read_bytes() for p in file.parent.iterdir() if p.is_file())
    # Declared values are part of the chain, which is public; they stand in the terms once, and nowhere else.
    with Ledger.open(file) as ledger:
        terms = ledger.dataset(NAME).terms.plan_json.encode()
    plain = plain.replace(terms, b"")
    for marker in (b"123456", b"654321"):
        assert marker not in plain
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o077 == 0 for p in file.parent.glob("ledger.db*") if p.is_file())


def test_many_outputs_go_to_a_private_file(file: Path) -> None:
    s = 6000
    chain = CoupledChain({(j, j): 1.0 for j in range(s)}, [[0.7, 0.3], [0.3, 0.7]])
    with Publisher(Plan(chain, Identity(), 0, 1.0), dataset=NAME, ledger=file) as publisher:
        first = publisher.push(np.zeros(s, dtype=np.int8), time=1)
        assert isinstance(first, Release)
        assert len(first.values) == s
        assert publisher._ledger.verify() == []
    with Publisher(Plan(chain, Identity(), 0, 1.0), dataset=NAME, ledger=file) as publisher:
        assert publisher.push(np.ones(s, dtype=np.int8), time=1) == first


def test_summary_and_remaining(file: Path) -> None:
    with opened(file, event_limit=2.0, lifetime_limit=5.0, on_refusal="skip") as publisher:
        assert publisher.remaining() == {"budget": BUDGET, "event_limit": 2.0, "lifetime_limit": 5.0}
        empty = publisher.summary()
        assert (empty["published"], empty["present"], empty["event_level"], empty["lifetime"]) == (0, 0.0, 0.0, 0.0)
        publisher.publish(panel(6))
        accountant = Accountant(plan())
        left = publisher.remaining()
        summary = publisher.summary()
        assert left["budget"] == pytest.approx(BUDGET - summary["present"])
        assert left["event_limit"] == pytest.approx(1.5)
        assert left["lifetime_limit"] == pytest.approx(5.0 - accountant.lifetime())
        state = accountant.restore(publisher._ledger.summary(NAME).state["accountant"])
        for wait in (1, 3, 10):
            later = publisher.remaining(time=5 + wait)["budget"]
            assert later == pytest.approx(BUDGET - accountant.leakage(state, 5 + wait).epsilon)
        with pytest.raises(InputError, match="before tick"):
            publisher.remaining(time=1)
        assert summary["published"] == 4
        assert summary["refused"] == 1
        assert summary["event_level"] == pytest.approx(0.5)
        assert summary["group_level"] == pytest.approx(4 * 0.5)
        assert summary["guarantee"]["one_release"] == plan().certified.epsilon
        assert any("missing" in words for words in summary["guarantee"]["words"])
        json.dumps(summary)


def test_progress_is_told(file: Path) -> None:
    told: list[tuple[int, int]] = []
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(251), progress=lambda done, total: told.append((done, total)))
    assert told == [(100, 250), (200, 250), (250, 250)]


def test_a_change_of_plan_is_recorded_and_carries_the_history(file: Path) -> None:
    with opened(file) as publisher:
        for t in range(3):
            publisher.push(snapshot(t), time=t)
        before = publisher.summary()["present"]
        with pytest.raises(LedgerConflictError, match="later tick"):
            publisher.change_plan(plan(ages=2), from_tick=2)
        new = publisher.change_plan(plan(ages=2, epsilon_c=1.0), from_tick=4, budget=0.5)
        history = publisher._ledger.history(NAME)
        assert [terms.plan_digest for terms in history] == [publisher.plan.digest, new.plan.digest]
        assert history[1].from_tick == 4
        assert "same chain" in (history[1].rule or "")
        assert history[1].limits["budget"] == 0.5
        assert history[1].guarantee["one_release"] == new.plan.certified.epsilon
        assert 0 < new.summary()["present"] <= before
        with pytest.raises(LedgerConflictError, match="published under plan"):
            publisher.push(snapshot(3), time=3)
        results = [new.push(snapshot(t), time=t) for t in range(4, 8)]
        assert isinstance(results[-1], Release)
        assert new._ledger.verify() == []
        old = new.push(snapshot(2), time=2)
        assert isinstance(old, Release)
    with pytest.raises(LedgerConflictError):
        opened(file)
    with opened(file, plan=plan(ages=2, epsilon_c=1.0), budget=0.5) as again:
        assert again.summary()["published"] >= 3


def test_a_change_of_chain_counts_the_history_under_any_model(file: Path) -> None:
    other = CoupledChain([[1.0]], [[0.9, 0.1], [0.2, 0.8]])
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(6))
        changed = publisher.change_plan(plan(other), from_tick=6)
        assert "new chain" in (publisher._ledger.history(NAME)[1].rule or "")
        accountant = Accountant(plan(other))
        expected = accountant.leakage(accountant.resume(5 * 0.5, 5, 1)).epsilon
        assert changed.summary()["present"] == pytest.approx(expected)


def test_a_change_before_any_release_starts_afresh(file: Path) -> None:
    with opened(file) as publisher:
        changed = publisher.change_plan(plan(ages=2), from_tick=10)
        with changed.change_plan(plan(ages=3), from_tick=12) as third:
            assert third.summary()["present"] < 1e-12
            assert third.summary()["event_level"] == 0.0
            for t in range(12, 16):
                result = third.push(snapshot(t), time=t)
            assert isinstance(result, Release)
            assert result.epsilon_s == pytest.approx(Accountant(plan(ages=3)).after(1, state="metric").epsilon)


def test_records_that_both_plans_read_count_twice(file: Path) -> None:
    """Event level and lifetime: older ages read again what was published before the change."""
    with opened(file, budget=None, event_limit=0.8) as publisher:
        publisher.publish(panel(5))
        older = publisher.change_plan(plan(ages=4), from_tick=5)
        assert older.summary()["event_level"] == pytest.approx(0.5)
        with pytest.raises(BudgetExceeded) as caught:
            older.publish(panel(9, first=1))
        assert caught.value.limit_name == "event_limit"
        assert caught.value.requested == pytest.approx(1.0)
    with opened(file, dataset="fresh", budget=None, event_limit=0.8) as publisher:
        publisher.publish(panel(5))
        same_age = publisher.change_plan(plan(epsilon_c=0.7), from_tick=5)
        assert len(same_age.publish(panel(4, first=4))) == 3
        assert same_age.summary()["event_level"] == pytest.approx(0.7)


def test_lifetime_is_carried_over_a_change(file: Path) -> None:
    with opened(file, budget=None, plan=plan(epsilon_c=2.0)) as publisher:
        publisher.publish(panel(5))
        before = publisher.summary()
        changed = publisher.change_plan(plan(epsilon_c=0.01), from_tick=5)
        after = changed.summary()
        assert after["lifetime"] >= before["lifetime"] * (1 - 1e-9)
        assert after["group_level"] >= before["group_level"] * (1 - 1e-9)
        changed.publish(panel(4, first=4))
        after = changed.summary()
        assert after["lifetime"] >= before["lifetime"] * (1 - 1e-9)
        assert after["group_level"] == pytest.approx(4 * 2.0 + 3 * 0.01)
        again = changed.change_plan(plan(CoupledChain([[1.0]], [[0.9, 0.1], [0.2, 0.8]]), ages=6), from_tick=9)
        state = again._ledger.summary(NAME).state
        assert state["earlier"]["overlap"]
        assert state["earlier"]["releases"] == 7
        assert again.summary()["lifetime"] >= after["lifetime"] * (1 - 1e-9)
        assert math.isfinite(again.summary()["lifetime"])
        assert isinstance(again.plan.query, Mean)


def test_a_dataset_has_one_step_of_time(file):
    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), 1, 0.5)
    with Publisher(plan, dataset="d", ledger=file, time_step=10):
        pass
    with Publisher(plan, dataset="d", ledger=file, time_step=10):
        pass
    with pytest.raises(LedgerConflictError):
        Publisher(plan, dataset="d", ledger=file, time_step=20)
