"""A change of plan: what it carries over of the history before it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from csdp import CoupledChain, Identity, Mean, Sum, leakage, replay
from csdp.accountant import Accountant
from csdp.errors import BudgetExceeded, LedgerConflictError
from csdp.plan import Plan
from csdp.publisher import Release
from csdp.query import PerGroup

from publisher.rules import NAME, PAIR, opened, panel, plan, snapshot  # isort: skip


def test_a_change_of_plan_is_recorded_and_carries_the_history(file: Path) -> None:
    with opened(file) as publisher:
        for t in range(3):
            publisher.push(snapshot(t), time=t)
        before = publisher.summary()["present"]
        with pytest.raises(LedgerConflictError, match="later tick"):
            publisher.change_plan(plan(ages=2), from_tick=2)
        new = publisher.change_plan(plan(ages=2, epsilon_c=1.0), from_tick=4, budget=0.5)
        history = publisher.ledger.history(NAME)
        assert [terms.plan_digest for terms in history] == [publisher.plan.digest, new.plan.digest]
        assert history[1].from_tick == 4
        assert "same chain" in (history[1].rule or "")
        assert history[1].limits.budget == 0.5
        assert history[1].guarantee["one_release"] == new.plan.certified.epsilon
        assert 0 < new.summary()["present"] <= before
        with pytest.raises(LedgerConflictError, match="published under plan"):
            publisher.push(snapshot(3), time=3)
        results = [new.push(snapshot(t), time=t) for t in range(4, 8)]
        assert isinstance(results[-1], Release)
        assert new.ledger.verify() == []
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
        assert "new chain" in (publisher.ledger.history(NAME)[1].rule or "")
        accountant = Accountant(plan(other))
        expected = accountant.leakage(accountant.resume(5 * 0.5, 5, 1)).epsilon
        assert changed.summary()["present"] == pytest.approx(expected)


def test_records_that_both_plans_read_count_twice(file: Path) -> None:
    """Event level and every moment: older ages read again what was published before the change."""
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


def test_every_moment_is_carried_over_a_change(file: Path) -> None:
    with opened(file, budget=None, plan=plan(epsilon_c=2.0)) as publisher:
        publisher.publish(panel(5))
        before = publisher.summary()
        changed = publisher.change_plan(plan(epsilon_c=0.01), from_tick=5)
        after = changed.summary()
        assert after["every_moment"] >= before["every_moment"] * (1 - 1e-9)
        assert after["group_level"] >= before["group_level"] * (1 - 1e-9)
        changed.publish(panel(4, first=4))
        after = changed.summary()
        assert after["every_moment"] >= before["every_moment"] * (1 - 1e-9)
        assert after["group_level"] == pytest.approx(4 * 2.0 + 3 * 0.01)
        again = changed.change_plan(plan(CoupledChain([[1.0]], [[0.9, 0.1], [0.2, 0.8]]), ages=6), from_tick=9)
        state = again.ledger.summary(NAME).state
        assert state.earlier.overlap
        assert state.earlier.releases == 7
        assert again.summary()["every_moment"] >= after["every_moment"] * (1 - 1e-9)
        assert math.isfinite(again.summary()["every_moment"])
        assert again.plan.query.source == Mean()


def test_a_change_right_after_a_change_forgets_nothing(file: Path) -> None:
    """Older ages read again what was published before; nothing was published in between."""
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(5))
        once = publisher.change_plan(plan(ages=4, epsilon_c=0.25), from_tick=5)
        before = once.ledger.summary(NAME).state.earlier
        assert before.overlap
        twice = once.change_plan(plan(ages=4, epsilon_c=0.125), from_tick=5)
        assert twice.ledger.summary(NAME).state.earlier == before
        assert "same chain" in twice.ledger.history(NAME)[2].rule


def test_another_chain_counts_every_sequence_of_the_old_one(file: Path) -> None:
    """Two sequences that the old chain holds apart may be tied under the new one: its costs add up then."""
    apart = CoupledChain([[1, 0], [0, 1]], [[0.7, 0.3], [0.3, 0.7]])
    for number, (following, slice_cost) in enumerate(((apart, 0.5), (PAIR, 1.0))):
        with opened(file, budget=None, dataset=f"d{number}", plan=plan(apart)) as publisher:
            publisher.publish(panel(6, sequences=2))
            after = publisher.change_plan(plan(following, epsilon_c=0.25), from_tick=6)
            assert after.ledger.summary(f"d{number}").state.earlier.slice == pytest.approx(slice_cost)


def test_a_change_of_groups_is_recorded_no_lower_than_the_truth(file: Path) -> None:
    """Groups of one, then the two sequences that tell most as one group: 0.2773 is told, by the worst alone 0.2059."""
    coupling = {(0, 0): 0.8, (0, 1): 0.2, (1, 1): 0.8, (1, 0): 0.2}
    own, other = [[0.1, 0.9], [0.2, 0.8]], [[0.7, 0.3], [0.9, 0.1]]
    transitions = {(0, 0): own, (1, 1): own, (0, 1): other, (1, 0): other}
    for j in range(2, 9):
        coupling |= {(j, j): 1 - 1e-6, (j, j - 1): 1e-6}
        transitions |= {(j, j): [[0.52, 0.48], [0.48, 0.52]], (j, j - 1): [[0.55, 0.45], [0.45, 0.55]]}
    chain = CoupledChain(coupling, transitions)
    rest = tuple((j,) for j in range(2, 9))
    pair = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[own, other], [other, own]])
    truth = leakage(pair, Identity(), ages=1, epsilon_c=2.0, bound="exact").epsilon
    assert truth == pytest.approx(0.2773, abs=1e-4)
    singles = Plan(chain, PerGroup(Sum(), ((0,), (1,), *rest)), 1, 2.0)
    with opened(file, budget=None, plan=singles) as publisher:
        publisher.publish(panel(2, sequences=9))
        changed_plan = publisher.change_plan(Plan(chain, PerGroup(Sum(), ((0, 1), *rest)), 1, 2.0), from_tick=2)
        assert changed_plan.summary()["present"] >= truth * (1 - 1e-6)
        entry = next(iter(changed_plan.ledger.entries(NAME, kind="change")))
        assert entry.data()["charge"]["present"] >= truth * (1 - 1e-6)
        assert replay(changed_plan.ledger).ok
