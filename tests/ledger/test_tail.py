"""What a process remembers of the log that it wrote: used only while it holds, whoever writes in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from csdp.errors import LedgerConflictError, LedgerTermsError
from csdp.ledger import Admission, Charge, DatasetState, PrivacyLimits, Request, Reserved, Terms, log

TERMS = Terms(plan_digest="p", plan_json="{}", chain_digest="c", limits=PrivacyLimits(budget=100.0))


def count(state, last_tick, request):
    """A rule whose state is the number of charges so far, and whose limit is seen in the charge."""
    charges = 0 if state is None else state.releases
    return Admission(DatasetState(releases=charges + 1), Charge(present=request.terms.limits.budget))


def reserve(ledger, tick, rule=count, *, plan="p"):
    [answer] = ledger.reserve("ward", [Request(tick, "mean")], rule, plan_digest=plan)
    assert isinstance(answer, Reserved)
    return answer


def test_two_processes_in_turns(open_ledger):
    first, second = open_ledger(), open_ledger()
    first.register("ward", TERMS)
    for tick in range(8):
        writer, other = (first, second) if tick % 3 else (second, first)
        reserved = reserve(writer, tick)
        assert reserved.state.releases == tick + 1
        if tick == 4:
            other.commit(reserved, {"value": tick})  # a process may hand the reservation on
        else:
            writer.commit(reserved, {"value": tick})
    assert first.verify() == []
    assert [one.output["value"] for one in second.published("ward")] == list(range(8))


def test_what_was_undone_is_not_gone_on_from(open_ledger):
    ledger = open_ledger()
    ledger.register("ward", TERMS)
    ledger.commit(reserve(ledger, 1), {"value": 1})

    def fail(state, last_tick, request):
        if request.tick == 3:
            raise RuntimeError("in the middle of a batch")
        return count(state, last_tick, request)

    with pytest.raises(RuntimeError):
        ledger.reserve("ward", [Request(2, "mean"), Request(3, "mean")], fail, plan_digest="p")
    assert reserve(ledger, 2).state.releases == 2
    assert ledger.verify() == []


def test_terms_that_another_process_changed_hold_at_once(open_ledger):
    first, second = open_ledger(), open_ledger()
    first.register("ward", TERMS)
    first.commit(reserve(first, 1), {"value": 1})
    lower = replace(TERMS, limits=PrivacyLimits(budget=7.0), from_tick=2, rule="as before")
    second.change_plan("ward", lower, lambda state, tick, terms: Admission(state, Charge(present=0.0)))
    assert reserve(first, 2).charge.present == 7.0
    other = replace(lower, plan_digest="q", from_tick=3)
    second.change_plan("ward", other, lambda state, tick, terms: Admission(state, Charge(present=0.0)))
    with pytest.raises(LedgerTermsError):
        reserve(first, 3)
    assert reserve(first, 3, plan="q").state.releases == 3
    assert first.verify() == []


def test_a_changed_reservation_is_refused(open_ledger):
    """Also where it is the newest entry, and no other is looked up."""
    ledger = open_ledger()
    ledger.register("ward", TERMS)
    reserved = reserve(ledger, 1)
    for forged in (replace(reserved, tick=2), replace(reserved, query="max"), replace(reserved, hash="0" * 64)):
        with pytest.raises(LedgerConflictError, match="no such reservation"):
            ledger.commit(forged, {"value": 1})
    ledger.commit(reserved, {"value": 1})
    ledger.commit(reserved, {"value": 1})
    with pytest.raises(LedgerConflictError, match="another output"):
        ledger.commit(reserved, {"value": 2})


def test_what_a_caller_does_to_its_state_is_not_remembered(open_ledger):
    ledger = open_ledger()
    ledger.register("ward", TERMS)

    def rule(state, last_tick, request):
        seen = {} if state is None else dict(state.accountant)
        return Admission(DatasetState({"spent": seen.get("spent", 0) + 1}), Charge(present=0.5))

    reserve(ledger, 1, rule).state.accountant["spent"] = -100
    assert reserve(ledger, 2, rule).state.accountant == {"spent": 2}


def test_a_tick_needs_one_row_of_the_log(open_ledger, monkeypatch):
    """The second tick of a process reads neither terms nor states, and looks up no commit."""
    ledger = open_ledger()
    ledger.register("ward", TERMS)
    ledger.commit(reserve(ledger, 1), {"value": 1})
    monkeypatch.setattr(log.Log, "_load", None)
    monkeypatch.setattr(log.Log, "look_up", None)
    ledger.commit(reserve(ledger, 2), {"value": 2})
