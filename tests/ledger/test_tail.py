"""What a process remembers of the log that it wrote: used only while it holds, whoever writes in between."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from csdp.errors import BudgetExceeded, LedgerConflictError, LedgerError, LedgerTermsError
from csdp.ledger import Admission, Charge, DatasetState, Ledger, PrivacyLimits, Request, Reserved, Terms, log
from csdp.ledger.database import Database

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


def test_the_next_tick_reads_nothing(open_ledger, monkeypatch):
    """The second tick of a process locks nothing, reads neither terms nor states, and looks up no commit."""
    ledger = open_ledger()
    ledger.register("ward", TERMS)
    ledger.commit(reserve(ledger, 1), {"value": 1})
    monkeypatch.setattr(log.Log, "lock", None)
    monkeypatch.setattr(log.Log, "look_up", None)
    ledger.commit(reserve(ledger, 2), {"value": 2})
    both = ledger.reserve("ward", [Request(3, "mean"), Request(3, "max")], count, plan_digest="p")
    ledger.commit_many([(one, {"value": 3}) for one in both])
    assert [one.tick for one in ledger.published("ward")] == [1, 2, 3, 3]
    assert ledger.verify() == []


def test_whatever_is_written_meanwhile_undoes_what_rests_on_memory(open_ledger):
    """Another process charges, commits, refuses or changes terms between the decision and the append."""
    first, second = open_ledger(), open_ledger()
    first.register("ward", TERMS)
    first.commit(reserve(first, 1), {"value": 1})

    def refuse(state, last_tick, request):
        raise BudgetExceeded("spent", limit_name="budget", spent=1.0, requested=1.0, remaining=0.0)

    def meddle(tick):
        if tick == 2:
            reserve(second, 2)
        elif tick == 4:
            second.commit(reserve(second, 4), {"value": 4})
        elif tick == 6:
            second.reserve("ward", [Request(6, "mean")], refuse, plan_digest="p")
        else:
            other = replace(TERMS, limits=PrivacyLimits(budget=3.0), from_tick=8, rule="as before")
            second.change_plan("ward", other, lambda state, tick, terms: Admission(state, Charge(present=0.0)))

    def rule(state, last_tick, request):
        if not done:
            done.append(request.tick)
            meddle(request.tick)
        return count(state, last_tick, request)

    answers = []
    for tick in (2, 4, 6, 8):
        done: list[int] = []
        answers += first.reserve("ward", [Request(tick, "mean")], rule, plan_digest="p")
        answers += first.reserve("ward", [Request(tick + 1, "mean")], count, plan_digest="p")
    kinds = [type(one).__name__ for one in answers]
    assert kinds == ["Refused", "Reserved", "Published", "Reserved", "Reserved", "Reserved", "Reserved", "Reserved"]
    assert [one.state.releases for one in answers if isinstance(one, Reserved)] == [3, 5, 6, 7, 8, 9]
    assert answers[-1].charge.present == 3.0
    assert first.verify() == []


def test_writers_that_wait_are_written_together(tmp_path, monkeypatch):
    """Group commit: datasets, and ledgers of one process, share the transaction; each gets its own answer."""
    ledgers = [Ledger.open(tmp_path / "ledger.db") for _ in range(3)]
    names = [f"ward-{i}" for i in range(6)]
    for name in names:
        ledgers[0].register(name, TERMS)
    together, plain = [], Database.append

    def note(database, steps, **options):
        together.append(len(steps))
        time.sleep(0.02)  # as a slow disk
        return plain(database, steps, **options)

    monkeypatch.setattr(Database, "append", note)
    errors = []

    def work(ledger, name):
        try:
            for tick in range(5):
                [held] = ledger.reserve(name, [Request(tick, "mean")], count, plan_digest="p")
                ledger.commit(held, {"value": tick})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(ledgers[i % 3], name)) for i, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert max(together) > 1
    assert ledgers[0].verify() == []
    for name in names:
        assert [one.tick for one in ledgers[1].published(name)] == list(range(5))
    for ledger in ledgers:
        ledger.close()


def test_one_that_fails_does_not_fail_those_beside_it(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for name in ("ward", "other"):
            ledger.register(name, TERMS)
            [held] = ledger.reserve(name, [Request(1, "mean")], count, plan_digest="p")
            ledger.commit(held, {"value": 1})
        tails = ledger._tails
        log_of = {name: log.Log(name, tails[name]) for name in tails}
        for one in log_of.values():
            one.append("reserve", "{}", tick=2, query="mean")
        bad = log_of["other"].gather(None)
        bad.rows[0]["kind"] = "nonsense"  # refused by the table
        waiting = [log._Waiting(log_of["ward"].gather(None)), log._Waiting(bad)]
        log._write_together(ledger._database, waiting)
        assert waiting[0].written
        assert isinstance(waiting[1].error, LedgerError)
