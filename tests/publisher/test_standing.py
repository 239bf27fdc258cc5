"""Asking is not publishing: where a dataset stands, from a ledger that nobody could write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from csdp import Custom
from csdp.errors import InputError, LedgerConflictError, LedgerError
from csdp.ledger import Ledger
from csdp.plan import Plan
from csdp.publisher import Publisher, Standing
from csdp.report.certificate import certify

from publisher.rules import NAME, ONE, opened, panel  # isort: skip

LIMITS = {"budget": 0.6, "moment_limit": 3.0, "event_limit": 2.0, "window": 5, "window_limit": 3.0}


def answers(of: Publisher | Standing) -> dict[str, Any]:
    return {
        "summary": of.summary(),
        "later": of.summary(time=9),
        "remaining": of.remaining(),
        "guarantee": of.guarantee(),
        "limits": of.limits,
        "fits": of.fit_epsilon,
        "certificate": certify(of, of.ledger).to_dict(),
    }


def published(where: object) -> dict[str, Any]:
    """Four ticks published, and what their publisher says."""
    with opened(where, **LIMITS, time_step=60, time_origin=5) as publisher:
        assert len(publisher.publish(panel(5))) == 4
        return answers(publisher)


def test_a_standing_says_what_the_publisher_says_and_writes_nothing(where: str) -> None:
    said = published(where)
    assert said["limits"] == LIMITS
    with Ledger.open(where, read_only=True) as ledger:
        head = ledger.summary(NAME).head_hash
        standing = Standing(ledger, NAME)
        assert answers(standing) == said
        assert standing.grid == (60, 5)
        assert ledger.summary(NAME).head_hash == head
        with pytest.raises(LedgerError, match="read_only=True"):
            opened(ledger, **LIMITS, time_step=60, time_origin=5)


@pytest.mark.parametrize("may_write_folder", [True, False])
def test_a_read_only_file_in_a_read_only_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch, may_write_folder: bool
) -> None:
    """Root may write everywhere, so the folder's mode alone would not show both ways in which SQLite opens the file."""
    said = published(file)
    file.chmod(0o444)
    file.parent.chmod(0o555)
    before = file.read_bytes()
    try:
        if not may_write_folder:
            monkeypatch.setattr(os, "access", lambda *_: False)
        with Ledger.open(file, read_only=True) as ledger:
            assert answers(Standing(ledger, NAME)) == said
            with (
                pytest.raises(sa.exc.OperationalError, match="readonly"),
                ledger._database.engine.begin() as connection,
            ):
                connection.exec_driver_sql("DELETE FROM csdp_entries")
        if not may_write_folder:
            assert [one.name for one in file.parent.iterdir()] == [file.name]
            with pytest.raises(LedgerError, match="read-only"):
                Ledger.open(file)
    finally:
        file.parent.chmod(0o755)
    assert file.read_bytes() == before


def test_a_role_that_may_only_read(postgres_server: Any) -> None:
    where = postgres_server.new_database()
    said = published(where)
    role = f"reader_{os.getpid()}"
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    reading = where.replace("postgres@", f"{role}@")
    with Ledger.open(reading, read_only=True) as ledger:
        assert answers(Standing(ledger, NAME)) == said
    with Ledger.open(reading) as ledger, pytest.raises(LedgerError, match="permission denied"):
        opened(ledger, **LIMITS, time_step=60, time_origin=5).publish(panel(3, first=4))


def test_what_cannot_be_asked(file: Path) -> None:
    own = Plan(ONE, Custom(lambda values: values.sum(axis=-1), name="own"), 1, 0.5)
    with opened(file, plan=own) as publisher:
        publisher.publish(panel(3))
        with Ledger.open(file, read_only=True) as ledger:
            with pytest.raises(LedgerConflictError, match="no dataset 'ward-8'"):
                Standing(ledger, "ward-8")
            with pytest.raises(InputError):
                Standing(ledger, NAME)  # a Python function cannot be read back
            assert Standing(ledger, NAME, plan=own).summary() == publisher.summary()
