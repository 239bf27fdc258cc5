"""The database refuses to alter what is written, and verify finds what was; over SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from csdp.errors import LedgerConflictError, LedgerError, LedgerVersionError
from csdp.ledger import Ledger
from ledger.rules import register, reserve_one

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


def test_the_database_itself_refuses_to_alter_what_is_written(where: str, ledger: Ledger) -> None:
    register(ledger)
    reserve_one(ledger, 1)
    engine = raw(where)
    on_server = engine.dialect.name == "postgresql"
    for statement in (
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
        "TRUNCATE csdp_entries" if on_server else "REPLACE INTO csdp_entries SELECT * FROM csdp_entries",
    ):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), engine.begin() as connection:
            connection.exec_driver_sql(statement)
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


@pytest.mark.parametrize("version", ["0", "2"])
def test_another_version_is_refused_with_what_to_do(where: str, open_ledger: OpenLedger, version: str) -> None:
    register(open_ledger())
    tamper(where, f"UPDATE csdp_meta SET value = '{version}' WHERE key = 'version'")
    for read_only in (False, True):
        with pytest.raises(LedgerVersionError, match="install the csdp that wrote it, or a newer one"):
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
