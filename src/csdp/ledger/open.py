"""Opens the database of a ledger: one SQLite file, or the tables of a PostgreSQL database; created and recognised."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from csdp.errors import InputError, LedgerCorruptError, LedgerError
from csdp.ledger import schema
from csdp.ledger.database import Database, execute_raw
from csdp.scratch import sync_directory

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_CREATION_LOCK = 0x63736470  # two first users at once: the second waits and finds the tables


def parse_place(where: str | Path) -> Path | sa.URL:
    """A path of a SQLite file, or the URL of a PostgreSQL database.

    >>> parse_place("ledger.db"), parse_place("sqlite:///ledger.db")
    (PosixPath('ledger.db'), PosixPath('ledger.db'))
    >>> parse_place("postgresql://me:secret@db.example/ward")
    postgresql+psycopg://me:***@db.example/ward
    """
    if isinstance(where, Path) or "://" not in where:
        if str(where) in ("", ".", ":memory:"):
            raise InputError(f"a ledger needs a file that lasts, not {str(where)!r}; give a path such as ledger.db")
        return Path(where)
    try:
        url = sa.make_url(where.replace("postgres://", "postgresql://", 1))
    except (sa.exc.ArgumentError, ValueError):  # their message may quote the password
        raise InputError("the ledger's URL cannot be read; give postgresql://user@host/database") from None
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InputError(f"a ledger lives in sqlite or postgresql, not {url.drivername}")
    if url.query or url.host:
        raise InputError("a sqlite URL takes a path only: sqlite:///relative.db or sqlite:////absolute.db")
    return parse_place(url.database or "")


def open_file(path: Path, *, create: bool, read_only: bool, timeout: float) -> Database:
    """Open the file, creating it (mode 0600, all or nothing) where that is allowed."""
    path = path.absolute()  # later connections must not follow a change of directory
    label = f"the ledger {path.name!r}"
    if not path.parent.is_dir():
        raise LedgerError(f"{label}: its directory does not exist; create it first")
    if create and not read_only and not path.exists():
        _create_file(path, label)
    _recognise(path, label)
    if not read_only and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise LedgerError(f"{label} or its directory is read-only; make it writable")
    database = Database(
        _sqlite_engine(path, timeout=timeout, read_only=read_only), label=label, timeout=timeout, read_only=read_only
    )
    try:
        database.check_version()
    except BaseException:
        database.close()
        raise
    return database


def _recognise(path: Path, label: str) -> None:
    """Look at the header by ourselves: SQLite would write beside a foreign file merely by opening it."""
    if not path.exists():
        raise LedgerError(f"{label} does not exist")
    if not path.is_file():
        raise LedgerError(f"{label} is not a file")
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
    except OSError as error:
        raise LedgerError(f"{label} cannot be read: {error.strerror}") from None
    if not header:
        raise LedgerCorruptError(
            f"{label} is empty, which a ledger never is: restore it from a backup, or remove it if it is none"
        )
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise LedgerCorruptError(f"{label} is truncated or not a SQLite file; nothing was changed")
    if int.from_bytes(header[68:72]) != schema.APPLICATION_ID:
        raise LedgerCorruptError(f"{label} is a SQLite file of another program; nothing was changed")
    for _ in range(3):  # a process that is just writing may show a short file for a moment
        if not _cut_short(path):
            return
        time.sleep(0.05)
    raise LedgerCorruptError(f"{label} is truncated; restore it from a backup. Nothing was changed")


def _cut_short(path: Path) -> bool:
    """Whether pages are missing at the end: SQLite itself overlooks half a page."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    page = int.from_bytes(header[16:18])
    expected = int.from_bytes(header[28:32]) * (65536 if page == 1 else page)
    # With a write-ahead log the missing pages may be there; SQLite then judges.
    return path.stat().st_size < expected and not _size(path, "-wal")


def _sqlite_engine(path: Path, *, timeout: float, read_only: bool) -> sa.Engine:
    mode = "mode=ro" if read_only else "mode=rw"  # never create: only `_create_file` may
    if read_only and not os.access(path.parent, os.W_OK) and not _size(path, "-wal"):
        mode = "mode=ro&immutable=1"  # SQLite cannot make its lock file here, and no log shows that somebody writes

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{path.as_uri()}?{mode}",
            uri=True,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    engine = sa.create_engine(
        "sqlite://", creator=connect, poolclass=sa.QueuePool, pool_timeout=timeout, hide_parameters=True
    )

    @sa.event.listens_for(engine, "checkout")
    def checkout(connection: Any, _record: Any, _proxy: Any) -> None:
        # A commit survives a power cut, also in WAL mode. Each time, not once: whoever left forcing to a later
        # transaction may have been interrupted before the setting was put back.
        connection.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "invalidate")
    def invalidate(connection: Any, _record: Any, _error: Any) -> None:
        # SQLite keeps a closed connection, and its lock, as long as a cursor is left: the traceback of an interruption
        # may hold one for long.
        with contextlib.suppress(sqlite3.Error):
            connection.rollback()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # IMMEDIATE takes the write lock before anything is read, so no decision rests on a stale state.
        writing = connection.get_execution_options().get("csdp_write", False)
        execute_raw(connection, "BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _create_file(path: Path, label: str) -> None:
    """Make a whole ledger under another name and link it into place: there is never half a ledger."""
    for suffix in ("-wal", "-journal"):
        if path.with_name(path.name + suffix).exists():
            raise LedgerError(
                f"{label} is missing but its {path.name + suffix!r} is there: a ledger was removed, perhaps"
                " by mistake. Restore it, or remove the leftover to start a new one"
            )
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _fill(draft)
        os.link(draft, path)  # fails if the name is taken: a racing process was first, and its ledger holds
        sync_directory(path.parent)
    except FileExistsError:
        pass
    except (OSError, sqlite3.Error, sa.exc.DBAPIError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the database could not be written"
        raise LedgerError(f"{label} cannot be created: {reason}") from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                draft.with_name(draft.name + suffix).unlink()


def _fill(draft: Path) -> None:
    engine = _sqlite_engine(draft, timeout=5.0, read_only=False)
    try:
        with engine.connect() as plain, plain.execution_options(csdp_write=True).begin() as transaction:
            connection = transaction.connection
            connection.exec_driver_sql(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {schema.VERSION}")
            schema.create(connection)
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode = WAL").fetchall()  # not allowed inside a transaction
        finally:
            raw.close()
    finally:
        engine.dispose()


def _size(path: Path, suffix: str) -> int:
    beside = path.with_name(path.name + suffix)
    return beside.stat().st_size if beside.exists() else 0


def open_url(
    url: sa.URL, *, create: bool, read_only: bool, timeout: float, idle_seconds: float | None = None
) -> Database:
    """Connect, creating the tables (all or nothing) where that is allowed.

    With `idle_seconds` the server ends a transaction in which nothing happens for as long.
    """
    # Not url.render_as_string(): a password may also hide among the options.
    label = f"the ledger in postgresql database {url.database!r} at {url.host or 'the local socket'}"
    database = Database(
        _postgresql_engine(url, timeout, idle_seconds), label=label, timeout=timeout, read_only=read_only
    )
    try:
        with database.read() as connection:
            exists = sa.inspect(connection).has_table(schema.meta.name)
        if not exists and (read_only or not create):
            raise LedgerError(f"{label} does not exist")
        if not exists:
            database.write(_create_tables)
        database.check_version()
    except BaseException:
        database.close()
        raise
    return database


def connect_settings(seconds: float) -> dict[str, int]:
    """Settings of a connection that gives up after so many seconds: no server, or a network that was cut since.

    Without them a session over a cut network waits for a quarter of an hour.
    """
    within = max(2, round(seconds))
    keepalives = {"keepalives_idle": within, "keepalives_interval": max(1, within // 3), "keepalives_count": 3}
    return {"connect_timeout": within, "tcp_user_timeout": 1000 * within, **keepalives}


def _postgresql_engine(url: sa.URL, timeout: float, idle_seconds: float | None) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url,
            isolation_level="SERIALIZABLE",
            pool_timeout=timeout,
            connect_args=connect_settings(timeout),
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
        if idle_seconds is not None:
            connection.execute(f"SET idle_in_transaction_session_timeout = {round(idle_seconds * 1000)}")
        connection.commit()

    return engine


def _create_tables(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
    if not sa.inspect(connection).has_table(schema.meta.name):
        schema.create(connection)
