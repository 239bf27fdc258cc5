"""A ledger in a PostgreSQL database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from csdp.errors import InputError, LedgerError
from csdp.ledger import schema
from csdp.ledger.database import Database

_CREATION_LOCK = 0x63736470  # two first users at once: the second waits and finds the tables


def open_url(url: sa.URL, *, create: bool, read_only: bool, timeout: float) -> Database:
    """Connect, creating the tables (all or nothing) where that is allowed."""
    # Not url.render_as_string(): a password may also hide among the options.
    shown = f"the ledger in postgresql database {url.database!r} at {url.host or 'the local socket'}"
    database = Database(_engine(url, timeout), shown=shown, timeout=timeout, read_only=read_only)
    try:
        with database.read() as connection:
            exists = sa.inspect(connection).has_table(schema.meta.name)
        if not exists and (read_only or not create):
            raise LedgerError(f"{shown} does not exist")
        if not exists:
            database.write(_create)
        database.check_version()
    except BaseException:
        database.close()
        raise
    return database


def _engine(url: sa.URL, timeout: float) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url,
            isolation_level="SERIALIZABLE",
            pool_timeout=timeout,
            connect_args={"connect_timeout": max(2, round(timeout))},
            hide_parameters=True,
        )
    except ModuleNotFoundError:
        raise LedgerError("PostgreSQL needs the psycopg package: install csdp[postgres]") from None
    except (sa.exc.ArgumentError, ValueError, TypeError):
        raise InputError("the ledger's URL cannot be used; give postgresql://user@host/database") from None

    @sa.event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.execute(f"SET lock_timeout = {round(timeout * 1000)}")
        connection.execute("SET synchronous_commit = on")  # a server default of off would lose commits
        connection.commit()

    return engine


def _create(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
    if not sa.inspect(connection).has_table(schema.meta.name):
        schema.create(connection)
