"""What every ledger does, wherever it lives: the same suite over SQLite and PostgreSQL."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from csdp.errors import (
    BudgetExceeded,
    InputError,
    LedgerConflictError,
    LedgerCorruptError,
    LedgerError,
    LedgerVersionError,
)
from csdp.ledger import Admission, Ledger, Published, Refused, Request, Reserved
from csdp.ledger.records import GENESIS, entry_hash
from csdp.ledger.schema import VERSION
from ledger.rules import PLAN, TERMS, ask, at_most, keep, register, reserve_one

OpenLedger = Callable[[], Ledger]


def raw(where: str) -> sa.Engine:
    """A way in that the ledger does not control."""
    url = sa.make_url(where)
    return sa.create_engine(url.set(drivername="postgresql+psycopg") if url.host or "host" in url.query else url)


def drop_triggers(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("DROP FUNCTION csdp_append_only() CASCADE")
        return
    for name in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars().all():
        connection.exec_driver_sql(f"DROP TRIGGER {name}")


def tamper(where: str, *statements: str) -> None:
    engine = raw(where)
    with engine.begin() as connection:
        drop_triggers(connection)
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


# ---- registering and changing


def test_register_records_a_dataset_and_finds_it_again(open_ledger: OpenLedger) -> None:
    first = register(open_ledger(), fit_cost={"epsilon": 1.0})
    assert first.terms.limits == TERMS["limits"]
    assert first.terms.plan_json == TERMS["plan_json"]
    assert first.terms.guarantee == TERMS["guarantee"]
    assert first.terms.fit_cost == {"epsilon": 1.0}
    assert (first.terms.number, first.terms.from_tick, first.terms.rule) == (1, None, None)
    assert first.created.endswith("Z")
    assert register(open_ledger(), fit_cost={"epsilon": 1.0}) == first
    assert open_ledger().datasets() == [first]
    assert open_ledger().dataset("ward-7") == first


def test_register_takes_equal_numbers_and_sequences_as_equal(ledger: Ledger) -> None:
    register(ledger, limits={"budget": 1, "ages": (1, 2)})
    register(ledger, limits={"budget": 1.0, "ages": [1, 2]})


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"chain_digest": "d" * 64}, "chain"),
        ({"plan_digest": "q" * 64}, "plan"),
        ({"limits": {"budget": 9.0}}, "limits"),
        ({"fit_cost": {"epsilon": 1.0}}, "fit cost"),
    ],
)
def test_register_refuses_other_terms_and_says_how_to_change_them(
    ledger: Ledger, other: dict[str, Any], word: str
) -> None:
    before = register(ledger)
    with pytest.raises(LedgerConflictError, match=rf"{word} .*change_plan"):
        register(ledger, **other)
    assert ledger.dataset("ward-7") == before


def test_register_does_not_compare_the_wording_of_the_guarantee(ledger: Ledger) -> None:
    register(ledger)
    assert register(ledger, guarantee={"worded": "anew"}).terms.guarantee == TERMS["guarantee"]


@pytest.mark.parametrize("name", ["", "x" * 201, "line\nbreak", "nul\0", 7])
def test_names_are_checked(ledger: Ledger, name: Any) -> None:
    with pytest.raises(InputError, match="printable"):
        register(ledger, name)
    with pytest.raises(InputError, match="printable"):
        Request(1, name)


@pytest.mark.parametrize("tick", [1.0, True, "1", None, 2**63])
def test_ticks_are_checked(tick: Any) -> None:
    with pytest.raises(InputError, match="tick"):
        Request(tick, "mean")


def test_terms_are_checked(ledger: Ledger) -> None:
    for other in ({"plan_json": "{"}, {"plan_digest": ""}, {"limits": {"a": object()}}):
        with pytest.raises(InputError):
            register(ledger, **other)
    assert ledger.datasets() == []


def test_a_change_is_recorded_and_carries_the_state_over(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    register(ledger)
    held = reserve_one(ledger, 5)
    other = {**TERMS, "plan_digest": "q" * 64, "chain_digest": "d" * 64, "limits": {"budget": 2.0}}
    seen = []

    def admit(state: Any, last_tick: int | None, change: Any) -> Admission:
        seen.append((state, last_tick, change.from_tick, change.rule, change.old.number, change.new.number))
        return keep(state, last_tick, change)

    changed = ledger.change_plan("ward-7", **other, from_tick=8, rule="count kept", admit=admit)
    assert seen == [({"count": 1, "last": None}, 5, 8, "count kept", 1, 2)]
    assert (changed.terms.number, changed.terms.from_tick, changed.terms.rule) == (2, 8, "count kept")
    assert [terms.plan_digest for terms in ledger.history("ward-7")] == [PLAN, "q" * 64]
    # The old plan can no longer reserve, but what it reserved may still be committed.
    with pytest.raises(LedgerConflictError, match="change_plan"):
        ask(ledger, [9])
    assert ledger.commit(held, {"value": 1.0}).plan_digest == PLAN
    early, first, second = ask(open_ledger(), [7, 8, 9], plan="q" * 64)
    assert isinstance(early, Refused)
    assert early.why == "order"
    assert isinstance(first, Reserved)
    assert first.state == {"count": 2, "last": 7}
    assert isinstance(second, Reserved)
    assert ledger.register("ward-7", **other).terms == changed.terms
    with pytest.raises(LedgerConflictError):
        register(ledger)
    assert ledger.verify() == []
    assert ledger.summary("ward-7").changes == 1


def test_the_same_change_twice_is_one_change(ledger: Ledger) -> None:
    register(ledger)
    other = {**TERMS, "plan_digest": "q" * 64}
    for _ in range(2):
        ledger.change_plan("ward-7", **other, from_tick=8, rule="count kept", admit=keep)
    assert len(ledger.history("ward-7")) == 2


def test_a_change_cannot_reach_back_and_can_be_refused(ledger: Ledger) -> None:
    register(ledger)
    reserve_one(ledger, 5)
    other = {**TERMS, "plan_digest": "q" * 64}
    with pytest.raises(LedgerConflictError, match="charged up to tick 5"):
        ledger.change_plan("ward-7", **other, from_tick=5, rule="none", admit=keep)

    def refuse(*_: Any) -> Admission:
        raise BudgetExceeded("no", limit_name="budget", spent=1.0, requested=2.0, remaining=0.0)

    with pytest.raises(BudgetExceeded):
        ledger.change_plan("ward-7", **other, from_tick=6, rule="none", admit=refuse)
    with pytest.raises(InputError, match="rule in words"):
        ledger.change_plan("ward-7", **other, from_tick=6, rule=" ", admit=keep)
    assert ledger.dataset("ward-7").terms.number == 1


# ---- reserving


def test_reserve_and_commit_and_ask_again(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    register(ledger)
    held = reserve_one(ledger, 1)
    assert held.charge == {"epsilon": 0.5}
    done = ledger.commit(held, {"value": 20.25, "ages": [2, 2]})
    for again in (ledger, open_ledger()):
        head = again.summary("ward-7").head_hash
        (answer,) = ask(again, [1], limit=0)
        assert answer == done
        assert isinstance(answer, Published)
        assert answer.output == {"value": 20.25, "ages": [2, 2]}
        assert again.summary("ward-7").head_hash == head


def test_the_state_resumes_where_it_stopped(open_ledger: OpenLedger) -> None:
    register(open_ledger())
    ask(open_ledger(), [3, 4])
    (answer,) = ask(open_ledger(), [9])
    assert isinstance(answer, Reserved)
    assert answer.state == {"count": 3, "last": 4}


def test_a_batch_and_single_calls_see_the_same_states(ledger: Ledger) -> None:
    seen: dict[str, list[Any]] = {"one": [], "many": []}

    def admit(state: Any, last_tick: int | None, request: Request) -> Admission:
        seen[request.detail].append((state, last_tick))
        # A tuple: it must come back as a list in a batch as well as from the database.
        return Admission({"b": (request.tick, math.inf)}, {})

    for name in seen:
        register(ledger, name)
    ledger.reserve(
        "many", [Request(t, "mean", name) for t, name in ((1, "many"), (2, "many"))], admit, plan_digest=PLAN
    )
    for tick in (1, 2):
        ledger.reserve("one", [Request(tick, "mean", "one")], admit, plan_digest=PLAN)
    assert seen["one"] == seen["many"] == [(None, None), ({"b": [1, math.inf]}, 1)]


def test_a_reservation_that_was_never_committed_stays_charged_and_unpublished(
    open_ledger: OpenLedger,
) -> None:
    register(open_ledger())
    reserve_one(open_ledger(), 1)
    ledger = open_ledger()
    for _ in range(2):
        (answer,) = ask(ledger, [1])
        assert isinstance(answer, Refused)
        assert answer.why == "lost"
        assert "charged" in answer.reason
    summary = ledger.summary("ward-7")
    assert (summary.reserved, summary.committed, summary.lost, summary.refused) == (1, 0, 1, 0)
    assert summary.state == {"count": 1, "last": None}


def test_an_older_tick_is_out_of_order_and_leaves_no_trace(ledger: Ledger) -> None:
    register(ledger)
    reserve_one(ledger, 5)
    head = ledger.summary("ward-7").head_hash
    (answer,) = ask(ledger, [4])
    assert isinstance(answer, Refused)
    assert (answer.why, answer.error) == ("order", None)
    assert "out of order" in answer.reason
    assert ledger.summary("ward-7").head_hash == head


def test_several_queries_at_one_tick(ledger: Ledger) -> None:
    register(ledger)
    first, second = reserve_one(ledger, 5, "mean"), reserve_one(ledger, 5, "max")
    assert second.state == {"count": 2, "last": 5}
    ledger.commit_many([(second, {"value": 2}), (first, {"value": 1})])
    assert [done.query for done in ledger.published("ward-7")] == ["max", "mean"]
    assert ledger.verify("ward-7") == []


def test_one_request_twice_in_a_batch_is_charged_once(ledger: Ledger) -> None:
    register(ledger)
    first, second = ask(ledger, [1, 1])
    assert isinstance(first, Reserved)
    assert isinstance(second, Refused)
    assert ledger.summary("ward-7").reserved == 1


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


def test_stop_ends_the_batch_at_the_first_refusal(ledger: Ledger) -> None:
    register(ledger)
    answers = ask(ledger, [1, 2, 3], limit=1, stop=True)
    assert [type(answer) for answer in answers] == [Reserved, Refused]
    assert ledger.summary("ward-7").refused == 1


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
        ledger.reserve("ward-7", [Request(1, "m")], lambda *_: Admission({"x": object()}, {}), plan_digest=PLAN)
    assert ledger.summary("ward-7").reserved == 0


def test_reserve_checks_dataset_and_plan(ledger: Ledger) -> None:
    with pytest.raises(LedgerConflictError, match="no dataset 'ward-7'; recorded: none"):
        ask(ledger, [1])
    register(ledger)
    with pytest.raises(LedgerConflictError, match="under plan pppppppppppp, not zzz"):
        ask(ledger, [1], plan="zzz")
    assert ledger.reserve("ward-7", [], at_most(1), plan_digest=PLAN) == []


def test_datasets_do_not_mix(ledger: Ledger) -> None:
    register(ledger)
    register(ledger, "ward-8")
    reserve_one(ledger, 5)
    (answer,) = ledger.reserve("ward-8", [Request(1, "mean")], at_most(1), plan_digest=PLAN)
    assert isinstance(answer, Reserved)
    assert [dataset.name for dataset in ledger.datasets()] == ["ward-7", "ward-8"]


def test_a_long_replay_returns_every_recorded_output(ledger: Ledger) -> None:
    register(ledger)
    held = [answer for answer in ask(ledger, range(1200), limit=2000) if isinstance(answer, Reserved)]
    ledger.commit_many([(one, {"value": one.tick}) for one in held])
    again = ask(ledger, range(1200), limit=0)
    assert [one.output["value"] for one in again if isinstance(one, Published)] == list(range(1200))
    assert [one.tick for one in ledger.published("ward-7")] == list(range(1200))
    assert ledger.verify() == []


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


def test_a_large_output_goes_to_a_write_once_file(open_ledger: OpenLedger, tmp_path: Path) -> None:
    ledger = open_ledger()
    register(ledger)
    small, large = reserve_one(ledger, 1), reserve_one(ledger, 2)
    ledger.commit(small, {"values": [0.5] * 10_000})
    output = {"values": [0.1 * k for k in range(10_001)]}
    done = ledger.commit(large, output)
    assert done.output == output
    assert ledger.commit(large, output) == done
    (file,) = (tmp_path / "outputs").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert ask(open_ledger(), [2]) == [done]
    with pytest.raises(LedgerConflictError):
        ledger.commit(large, {"values": [1.0] * 10_001})
    assert ledger.verify() == []
    # Found by verify and by whoever asks for it: altered, then missing.
    content = file.read_bytes()
    file.write_bytes(content.replace(b"0.1,", b"0.2,", 1))
    assert "not what was published" in str(ledger.verify()[0])
    with pytest.raises(LedgerCorruptError, match="not what was published"):
        ask(ledger, [2, 3])
    assert ledger.summary("ward-7").reserved == 2  # tick 3 was not charged in vain
    file.unlink()
    assert "cannot be read" in str(ledger.verify()[0])
    file.write_bytes(content)
    assert ledger.verify() == []


def test_a_file_left_by_a_crash_before_the_commit_is_no_harm(ledger: Ledger, tmp_path: Path) -> None:
    register(ledger)
    held, other = reserve_one(ledger, 1), reserve_one(ledger, 2)
    output = {"values": list(range(10_001))}
    folder = tmp_path / "outputs"
    folder.mkdir()
    (folder / f"{held.hash}.json").write_text(json.dumps(output, separators=(",", ":")))
    (folder / f"{other.hash}.json").write_text("half of i")
    assert ledger.verify() == []
    assert ledger.commit(held, output).output == output
    with pytest.raises(LedgerConflictError, match="something else"):
        ledger.commit(other, output)
    assert ledger.summary("ward-7").committed == 1


# ---- reading


def test_export_lets_anyone_recompute_the_hashes(ledger: Ledger) -> None:
    register(ledger)
    ledger.commit(reserve_one(ledger, 1), {"value": math.inf})
    ask(ledger, [2], limit=1)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in ledger.export("ward-7")]
    assert [line["line"] for line in lines] == ["dataset", "terms", *["entry"] * 4]
    assert lines[0]["format"] == f"csdp-ledger/{VERSION}"
    assert json.loads(lines[2]["payload"])["terms"] == lines[1]["digest"]
    previous = GENESIS
    for line in lines[2:]:
        assert line["previous"] == previous
        previous = entry_hash(previous, line)
        assert line["hash"] == previous
    assert ledger.summary("ward-7").head_hash == previous


def test_the_program_in_the_documentation_checks_an_export(ledger: Ledger) -> None:
    page = Path(__file__).parents[2] / "docs" / "ledger-format.md"
    lines = page.read_text().partition("    import hashlib")[2].partition("\n\n")[0]
    program = textwrap.dedent("    import hashlib" + lines)
    register(ledger)
    ledger.commit(reserve_one(ledger, 1, "größte"), {"value": math.inf})
    export = list(ledger.export("ward-7"))
    for text, code in ((export, 0), ([line.replace("größte", "x").replace("gr\\u00f6", "x") for line in export], 1)):
        done = subprocess.run(
            [sys.executable, "-c", program], input="\n".join(text), text=True, capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr


def test_entries_can_be_read_from_the_middle(ledger: Ledger) -> None:
    register(ledger)
    ask(ledger, range(5))
    assert [entry.seq for entry in ledger.entries("ward-7", after=3)] == [4, 5, 6]
    assert [entry.kind for entry in ledger.entries("ward-7")] == ["open", *["reserve"] * 5]
    for read in (ledger.entries, ledger.published, ledger.export):
        with pytest.raises(LedgerConflictError, match="recorded: ward-7"):
            list(read("nowhere"))
    for find in (ledger.dataset, ledger.summary, ledger.history, ledger.verify):
        with pytest.raises(LedgerConflictError, match="recorded: ward-7"):
            find("nowhere")


def test_a_summary_of_an_untouched_dataset(ledger: Ledger) -> None:
    register(ledger)
    summary = ledger.summary("ward-7")
    assert (summary.reserved, summary.newest_tick, summary.state, summary.head_seq) == (0, None, None, 1)


def test_read_only_reads_and_never_writes(where: str, open_ledger: OpenLedger) -> None:
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(where, read_only=True)
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(where, create=False)
    register(open_ledger())
    with Ledger.open(where, read_only=True) as ledger:
        assert ledger.verify() == []
        assert ledger.migrate() == []
        with pytest.raises(LedgerError, match="read_only=True"):
            register(ledger)
    with pytest.raises(LedgerError, match="closed"):
        ledger.datasets()
    ledger.close()


def test_a_forked_child_uses_connections_of_its_own(ledger: Ledger) -> None:
    register(ledger)
    reserve_one(ledger, 1)
    database = ledger._database
    pool = database.engine.pool
    database._process = -1  # what a child sees: another process opened the connections
    reserve_one(ledger, 2)
    assert database.engine.pool is not pool
    assert database._process == os.getpid()
    pool.dispose()


# ---- tampering


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE csdp_entries SET payload = '{}'",
        "DELETE FROM csdp_entries",
        "UPDATE csdp_plans SET limits = '{}'",
        "DELETE FROM csdp_plans",
        "UPDATE csdp_meta SET value = '2'",
        "DELETE FROM csdp_meta",
        "DELETE FROM csdp_datasets",
        "UPDATE csdp_datasets SET head_seq = head_seq - 1",
        "UPDATE csdp_datasets SET created = 'x', head_seq = head_seq + 1",
        "UPDATE csdp_datasets SET state_seq = NULL, head_seq = head_seq + 1",
    ],
)
def test_the_database_itself_refuses_to_alter_what_is_written(where: str, ledger: Ledger, statement: str) -> None:
    register(ledger)
    reserve_one(ledger, 1)
    engine = raw(where)
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), engine.begin() as connection:
        connection.exec_driver_sql(statement)
    if engine.dialect.name == "postgresql":
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), engine.begin() as connection:
            connection.exec_driver_sql("TRUNCATE csdp_entries")
    else:
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), engine.begin() as connection:
            connection.exec_driver_sql("REPLACE INTO csdp_entries SELECT * FROM csdp_entries")
    engine.dispose()
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE csdp_entries SET payload = '{\"state\":{}}' WHERE seq = 2", "entry 2: does not fit"),
        ("UPDATE csdp_entries SET payload = 'x' WHERE seq = 2", "cannot be read"),
        ("UPDATE csdp_entries SET time = '2000-01-01T00:00:00Z' WHERE seq = 3", "entry 3: does not fit"),
        ("UPDATE csdp_entries SET hash = '0' WHERE seq = 2", "entry 3: does not fit"),
        ("DELETE FROM csdp_entries WHERE seq = 2", "entry 3: follows entry 1"),
        ("DELETE FROM csdp_entries WHERE seq = 2", "publishes without a reservation"),
        ("DELETE FROM csdp_entries WHERE seq = 4", "(head 4) disagrees with the log, which ends at entry 3"),
        ("DELETE FROM csdp_entries WHERE seq = 1", "entry 2: follows entry 0"),
        ("UPDATE csdp_entries SET kind = 'open' WHERE seq = 4", "the first entry, and no other"),
        ("UPDATE csdp_plans SET limits = '{\"budget\":9}'", "plan and limits are not the ones"),
        ("UPDATE csdp_datasets SET state_seq = NULL", "disagrees with the log"),
        ("DELETE FROM csdp_plans", "plan and limits are not the ones"),
        ("INSERT INTO csdp_plans SELECT dataset, 7, digest, plan, chain, limits, guarantee, fit_cost,"
         " from_tick, rule FROM csdp_plans", "no entry speaks of"),
        ("UPDATE csdp_entries SET plan = 'other' WHERE seq = 4", "not live"),
        ("UPDATE csdp_entries SET tick = 0 WHERE seq = 4", "older than the one before"),
        ("SELECT 1", "triggers are missing"),
    ],
)  # fmt: skip
def test_verify_finds_what_was_altered(where: str, ledger: Ledger, statement: str, finding: str) -> None:
    register(ledger)
    ledger.commit(reserve_one(ledger, 1), {"value": 1.0})
    reserve_one(ledger, 2)
    assert ledger.verify() == []
    tamper(where, statement)
    assert finding in "\n".join(map(str, ledger.verify()))
    assert finding in "\n".join(map(str, ledger.verify("ward-7")))


def test_a_noted_head_shows_that_a_log_was_cut_and_chained_anew(where: str, ledger: Ledger) -> None:
    register(ledger)
    kept = reserve_one(ledger, 1)
    reserve_one(ledger, 2)
    noted = ledger.summary("ward-7").head_hash
    assert ledger.verify("ward-7", head=noted) == []
    reserve_one(ledger, 3)
    assert ledger.verify("ward-7", head=noted) == []
    tamper(
        where,
        "DELETE FROM csdp_entries WHERE seq > 2",
        f"UPDATE csdp_datasets SET head_seq = 2, state_seq = 2, head_hash = '{kept.hash}'",
    )
    assert [problem.what for problem in ledger.verify()] == [
        problem.what for problem in ledger.verify() if "triggers" in problem.what
    ]
    assert "noted head" in str(ledger.verify("ward-7", head=noted)[-1])
    with pytest.raises(LedgerConflictError, match="name the dataset"):
        ledger.verify(head=noted)


def test_entries_without_a_dataset_are_found(where: str, ledger: Ledger) -> None:
    register(ledger)
    unbound = "ALTER TABLE csdp_entries DROP CONSTRAINT csdp_entries_dataset_fkey;" if "postgres" in where else ""
    unbound2 = "ALTER TABLE csdp_plans DROP CONSTRAINT csdp_plans_dataset_fkey;" if "postgres" in where else ""
    statements = [text for text in (unbound, unbound2) if text]
    tamper(where, *statements, "DELETE FROM csdp_datasets")
    assert "has entries but no dataset row" in "\n".join(map(str, ledger.verify()))


@pytest.mark.parametrize(("version", "advice"), [("2", "newer csdp"), ("0", "csdp ledger migrate")])
def test_another_version_is_refused_with_what_to_do(
    where: str, open_ledger: OpenLedger, version: str, advice: str
) -> None:
    register(open_ledger())
    tamper(where, f"UPDATE csdp_meta SET value = '{version}' WHERE key = 'version'")
    for read_only in (False, True):
        with pytest.raises(LedgerVersionError, match=advice):
            Ledger.open(where, read_only=read_only)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE csdp_meta SET value = 'x'", "DELETE FROM csdp_meta", "ALTER TABLE csdp_meta RENAME TO other"],
)
def test_a_ledger_that_does_not_say_what_it_is_is_refused(where: str, open_ledger: OpenLedger, statement: str) -> None:
    register(open_ledger())
    tamper(where, statement)
    with pytest.raises(LedgerError, match=r"not say that it is|no csdp ledger|does not exist"):
        Ledger.open(where, create=False)
