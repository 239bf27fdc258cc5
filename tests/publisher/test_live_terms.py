"""Terms that change while publishers are open: what is recorded binds at once, in either database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from csdp.audit.replay import replay
from csdp.errors import LedgerTermsError
from csdp.fran import Output
from csdp.ledger import Admission, Charge, DatasetState, Ledger, PrivacyLimits, TickGrid
from csdp.publisher import Publisher, Release, Skipped
from csdp.publisher.gate import record_output
from csdp.publisher.sources import Ready

from publisher.rules import NAME, opened, panel, plan, snapshot  # isort: skip

#: One release of it leaks 0.20, a release at every tick up to 0.31.
LOUD = plan(epsilon_c=0.5)
Open = Callable[..., Publisher]


@pytest.fixture
def publisher_at(where: str) -> Iterator[Open]:
    """Publishers of one dataset, each with a ledger of its own, as in processes of their own."""
    found = []

    def one(**given: object) -> Publisher:
        found.append(opened(where, **{"plan": LOUD, "budget": 0.6, "on_refusal": "skip"} | given))
        return found[-1]

    yield one
    for publisher in found:
        publisher.close()


def charges(publisher: Publisher) -> list[float]:
    entries = publisher.ledger.entries(NAME, kind="reserve")
    return [entry.data()["charge"]["peak"] for entry in entries]


def test_a_lowered_budget_binds_a_publisher_that_is_already_open(publisher_at: Open) -> None:
    """It went on publishing, up to 0.31, under a recorded limit of 0.2."""
    first, second = publisher_at(), publisher_at()
    for tick in range(3):
        first.push(snapshot(tick), time=tick)
        second.observe(snapshot(tick), time=tick)
    first.change_plan(LOUD, from_tick=3, budget=0.2)
    assert second.limits["budget"] == 0.2
    results = [second.push(snapshot(tick), time=tick) for tick in range(3, 7)]
    assert all(isinstance(one, Skipped) and one.why == "limit" for one in results[:2])
    assert "above its limit 0.2" in results[0].reason
    assert max(charges(second)[2:], default=0.0) <= 0.2
    assert replay(second.ledger).ok
    assert second.ledger.verify() == []


@pytest.mark.parametrize(("limit", "low"), [("budget", 0.2), ("event_limit", 0.4), ("moment_limit", 0.4)], ids=str)
def test_every_limit_binds_once_it_is_recorded(publisher_at: Open, limit: str, low: float) -> None:
    """Also where the publisher was opened without it."""
    first, second = publisher_at(budget=None), publisher_at(budget=None)
    first.publish(panel(3))
    first.change_plan(LOUD, from_tick=3, **{limit: low})
    batch = second.publish(panel(4, first=2))
    assert len(batch) == 0
    assert {skip.why for skip in batch.skipped[1:]} == {"limit"}
    assert LIMITED[limit] in batch.skipped[1].reason


LIMITED = {"budget": "the present", "event_limit": "of a record", "moment_limit": "reveals of any moment"}


def test_a_publisher_of_an_old_plan_at_every_step(publisher_at: Open) -> None:
    """Reserve, commit of what was reserved before, observe, recorded ticks, questions, another change."""
    first, second = publisher_at(), publisher_at()
    second.publish(panel(3))
    [held], _ = second._reserve(second._rule.list_requests([Ready(3, 0, second.plan.model.sequences)], None))
    first.change_plan(plan(epsilon_c=0.25), from_tick=4)
    output = record_output(second.plan, held, Output((1.0,), (), (), stale=0, unsafe=False))
    done = second.ledger.commit(held, output)  # charged before the change, and carried over by it
    assert done.tick == 3
    second.observe(snapshot(3), time=3)
    second.observe(snapshot(4), time=4)
    with pytest.raises(LedgerTermsError, match="published under plan"):
        second.push(snapshot(5), time=5)
    with pytest.raises(LedgerTermsError, match="published under plan"):
        second.publish(panel(4, first=3))
    recorded = second.push(snapshot(2), time=2)
    assert isinstance(recorded, Release)
    for question in (second.summary, second.remaining, lambda: second.limits):
        with pytest.raises(LedgerTermsError, match="Open a new publisher"):
            question()
    with pytest.raises(LedgerTermsError):
        second.change_plan(plan(epsilon_c=0.1), from_tick=9)
    assert [terms.number for terms in second.ledger.history(NAME)] == [1, 2]
    with publisher_at(plan=plan(epsilon_c=0.25)) as new:
        assert len(new.publish(panel(4, first=3))) == 3
        assert replay(new.ledger).ok


def test_a_change_does_not_bring_back_limits_that_others_have_lowered(publisher_at: Open) -> None:
    first, second = publisher_at(), publisher_at()
    first.publish(panel(3))
    first.change_plan(LOUD, from_tick=3, budget=0.2, event_limit=5.0)
    changed = second.change_plan(plan(epsilon_c=0.25), from_tick=3)
    assert changed.limits == vars(PrivacyLimits(budget=0.2, event_limit=5.0))


def test_of_two_changes_at_once_the_second_is_told(publisher_at: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = publisher_at(), publisher_at()
    change = Ledger.change_plan

    def late(self: Ledger, *given: object, **named: object) -> object:
        monkeypatch.setattr(Ledger, "change_plan", change)
        first.change_plan(LOUD, from_tick=1, budget=0.2)
        return change(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "change_plan", late)
    with pytest.raises(LedgerTermsError, match="meanwhile"):
        second.change_plan(LOUD, from_tick=2, event_limit=1.0)
    assert second.limits == vars(PrivacyLimits(budget=0.2))


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"grid": TickGrid(60)}, r"\(60, 0\), not \(None, 0\), since"),
        ({"further": {"weekly_limit": 0.1}}, r"\(None, 0\) and {'weekly_limit': 0\.1}, not"),
    ],
    ids=["grid", "unknown limit"],
)
def test_terms_that_cannot_be_adopted_stop_the_publisher(publisher_at: Open, extra: dict[str, Any], words: str) -> None:
    """Another grid counts other ticks; a limit that this version does not know would not be held."""
    first, second = publisher_at(), publisher_at()
    first.publish(panel(3))
    recorded = first.ledger.dataset(NAME).terms
    first.ledger.change_plan(
        NAME,
        replace(recorded, **extra, from_tick=3, rule="the state as it stands"),
        lambda state, _, terms: Admission(state or DatasetState(), Charge(0.0)),
    )
    with pytest.raises(LedgerTermsError, match=rf"{words}.* Open a new publisher"):
        second.publish(panel(4, first=2))
    assert len(charges(second)) == 2
