"""Reserving and committing: charged before anything is drawn, published once; over SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import postgres
from csdp.errors import InputError, LedgerConflictError, LedgerCorruptError, LedgerError
from csdp.ledger import Admission, Charge, DatasetState, Ledger, Published, Refused, Request, Reserved
from csdp.ledger.records import encode, sha256
from ledger.rules import PLAN, ask, at_most, register, reserve_one

OpenLedger = Callable[[], Ledger]


def test_reserve_and_commit_and_ask_again(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    register(ledger)
    held = reserve_one(ledger, 1)
    assert held.charge == Charge(present=0.5)
    done = ledger.commit(held, {"value": 20.25, "ages": [2, 2]})
    for again in (ledger, open_ledger()):
        head = again.summary("ward-7").head_hash
        (answer,) = ask(again, [1], limit=0)
        assert answer == done
        assert isinstance(answer, Published)
        assert answer.output == {"value": 20.25, "ages": [2, 2]}
        assert again.summary("ward-7").head_hash == head


def test_a_batch_single_calls_and_another_process_see_the_same_states(open_ledger: OpenLedger) -> None:
    """A state that never left memory is not read back; one that did is the same."""
    seen: dict[str, list[Any]] = {"one": [], "many": [], "reopened": []}

    def admit(state: Any, last_tick: int | None, request: Request) -> Admission:
        seen[request.detail].append((state, last_tick))
        return Admission(DatasetState({"b": [request.tick, math.inf]}), Charge(present=math.inf))

    ledger = open_ledger()
    for name in seen:
        register(ledger, name)
    ledger.reserve("many", [Request(t, "mean", "many") for t in (1, 2)], admit, plan_digest=PLAN)
    for tick in (1, 2):
        ledger.reserve("one", [Request(tick, "mean", "one")], admit, plan_digest=PLAN)
        open_ledger().reserve("reopened", [Request(tick, "mean", "reopened")], admit, plan_digest=PLAN)
    assert seen["one"][1][0] is not seen["reopened"][1][0]
    assert seen["one"] == seen["many"] == seen["reopened"] == [(None, None), (DatasetState({"b": [1, math.inf]}), 1)]


def test_an_older_tick_is_out_of_order_and_leaves_no_trace(ledger: Ledger) -> None:
    register(ledger)
    reserve_one(ledger, 5)
    head = ledger.summary("ward-7").head_hash
    (answer,) = ask(ledger, [4])
    assert isinstance(answer, Refused)
    assert (answer.why, answer.error) == ("order", None)
    assert "out of order" in answer.reason
    assert ledger.summary("ward-7").head_hash == head


def test_a_refusal_is_recorded_once_with_its_figures(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    register(ledger)
    answers = ask(ledger, [1, 2, 3], limit=1)
    assert [type(answer) for answer in answers] == [Reserved, Refused, Refused]
    ask(open_ledger(), [3], limit=1)
    refusals = list(ledger.entries("ward-7", kind="refuse"))
    assert [entry.tick for entry in refusals] == [2, 3]
    assert refusals[0].data() == {
        "reason": "the budget is spent",
        "limit": "budget",
        "spent": 1.0,
        "requested": math.inf,
        "remaining": 0.0,
        "fits": {"age": 3},
        "affordable_from": 99,
    }
    assert ledger.summary("ward-7").refused == 2
    # Once a later tick is charged the refused one is told as before, with its error, not as out of order.
    reserve_one(ledger, 4)
    (answer,) = ask(ledger, [2])
    assert isinstance(answer, Refused)
    assert answer.why == "limit"
    assert answer.error is not None
    assert answer.error.__dict__ == (answers[1].error.__dict__ if isinstance(answers[1], Refused) else None)
    assert ledger.verify() == []


def test_any_other_error_of_the_rule_undoes_the_whole_batch(ledger: Ledger) -> None:
    register(ledger)

    def admit(state: Any, last_tick: int | None, request: Request) -> Admission:
        if request.tick == 3:
            raise ZeroDivisionError
        return at_most(9)(state, last_tick, request)

    with pytest.raises(ZeroDivisionError):
        ledger.reserve("ward-7", [Request(tick, "mean") for tick in (1, 2, 3)], admit, plan_digest=PLAN)
    assert ledger.summary("ward-7").reserved == 0
    with pytest.raises(InputError, match="plain JSON"):
        ledger.reserve(
            "ward-7",
            [Request(1, "m")],
            lambda *_: Admission(DatasetState({"x": object()}), Charge(0.0)),
            plan_digest=PLAN,
        )
    assert ledger.summary("ward-7").reserved == 0


def test_reserve_checks_dataset_and_plan(ledger: Ledger) -> None:
    with pytest.raises(LedgerConflictError, match="no dataset 'ward-7'; recorded: none"):
        ask(ledger, [1])
    register(ledger)
    with pytest.raises(LedgerConflictError, match="under plan pppppppppppp, not zzz"):
        ask(ledger, [1], plan="zzz")
    assert ledger.reserve("ward-7", [], at_most(1), plan_digest=PLAN) == []


# ---- committing


def test_a_commit_is_idempotent_for_the_same_output_only(ledger: Ledger) -> None:
    register(ledger)
    held = reserve_one(ledger, 1)
    done = ledger.commit(held, {"value": math.nan, "b": 1})
    assert repr(ledger.commit(held, {"b": 1, "value": math.nan})) == repr(done)
    with pytest.raises(LedgerConflictError, match="already published another output"):
        ledger.commit(held, {"value": 2.0})
    assert len(list(ledger.published("ward-7"))) == 1


def test_a_commit_needs_its_reservation(ledger: Ledger) -> None:
    register(ledger)
    held = reserve_one(ledger, 1)
    for forged in (replace(held, hash="0" * 64), replace(held, tick=2), replace(held, query="max")):
        with pytest.raises(LedgerConflictError, match="no such reservation"):
            ledger.commit(forged, {"value": 1.0})
    with pytest.raises(LedgerConflictError, match="no dataset"):
        ledger.commit(replace(held, dataset="nowhere"), {})
    with pytest.raises(InputError, match="plain JSON"):
        ledger.commit(held, {"value": object()})
    assert ledger.summary("ward-7").committed == 0


def test_commit_many_is_all_or_nothing(ledger: Ledger) -> None:
    register(ledger)
    register(ledger, "ward-8")
    one, two = ask(ledger, [1, 2])
    assert isinstance(one, Reserved)
    assert isinstance(two, Reserved)
    with pytest.raises(LedgerConflictError):
        ledger.commit_many([(one, {"value": 1}), (replace(two, hash="0"), {"value": 2})])
    with pytest.raises(InputError, match="one dataset"):
        ledger.commit_many([(one, {}), (replace(two, dataset="ward-8"), {})])
    assert ledger.summary("ward-7").committed == 0
    assert ledger.commit_many([]) == []


def commit_to_file(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """As version 0.2 recorded outputs of more than 10,000 values: the name of the file, and its text."""
    register(ledger)
    held, text = reserve_one(ledger, 1), '{"values":[0.1,0.2]}'
    recorded = {"name": f"../{held.hash}.json", "sha256": sha256(text), "values": 2}
    payload = encode({"reserve": held.seq, "file": recorded}, "an output")
    with monkeypatch.context() as patched:
        patched.setattr("csdp.ledger.ledger.encode", lambda *_: payload)
        with contextlib.suppress(LedgerError):
            ledger.commit(held, {})
    return f"{held.hash}.json", text


def test_outputs_in_files_of_version_0_2_are_read_and_checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = path.with_name(path.name + ".outputs")
    folder.mkdir()
    with Ledger.open(path) as ledger:
        name, text = commit_to_file(ledger, monkeypatch)
        file = folder / name
        file.write_text(text)
        assert ledger.verify() == []
        (again,) = ask(ledger, [1])
        assert isinstance(again, Published)
        assert again.output == {"values": [0.1, 0.2]}
        file.write_text(text.replace("0.1", "0.3"))
        assert "not what was published" in str(ledger.verify()[0])
        with pytest.raises(LedgerCorruptError, match="not what was published"):
            ask(ledger, [1, 2])
        assert ledger.summary("ward-7").reserved == 1  # tick 2 was not charged in vain
        file.unlink()
        assert "cannot be read" in str(ledger.verify()[0])


def test_outputs_in_files_beside_a_server_are_refused_in_words(
    postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(postgres_server.new_database()) as ledger:
        commit_to_file(ledger, monkeypatch)
        with pytest.raises(LedgerError, match=r"read it with csdp 0\.2"):
            ask(ledger, [1])
