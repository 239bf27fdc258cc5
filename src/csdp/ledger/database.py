"""Transactions on the database of a ledger: whole or not at all, and with errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from csdp.errors import LedgerBusyError, LedgerCorruptError, LedgerError, LedgerVersionError
from csdp.ledger import schema

Result = TypeVar("Result")

# Serialization failure, deadlock; two first registrations, or two creations of the tables, at once.
_RETRY = {"40001", "40P01", "23505", "42P07"}
# Connection, too many clients, lock timeout, shutdown or cancel.
_BUSY_CLASSES = ("08", "53300", "55P03", "57")
_SQLITE_WORDS: dict[int, tuple[type[LedgerError], str]] = {
    5: (LedgerBusyError, "is locked by another process; try again, or open it with a longer timeout"),
    6: (LedgerBusyError, "is locked by another connection; try again"),
    8: (LedgerError, "is read-only; make it writable"),
    10: (LedgerError, "cannot be read or written (input/output error, or the disk is full); check the disk"),
    11: (LedgerCorruptError, "is damaged; restore it from a backup, after noting what was published since"),
    13: (LedgerBusyError, "cannot grow: the disk is full; nothing was written; free some space and try again"),
    14: (LedgerError, "cannot be opened; check that its directory can be read and written"),
    26: (LedgerCorruptError, "is not a database"),
}


class Database:
    """An engine together with the rules of its transactions; safe to use from threads and after a fork."""

    def __init__(self, engine: sa.Engine, *, label: str, timeout: float, read_only: bool) -> None:
        self.engine = engine
        self.label = label
        self.timeout = timeout
        self.read_only = read_only
        self._process = os.getpid()
        self._closed = False
        self._is_postgresql = engine.dialect.name == "postgresql"
        self._appender = _Appender(engine)

    def close(self) -> None:
        """Close every connection; calling twice is fine."""
        self._closed = True
        self._appender.close()
        self.engine.dispose()

    def append(self, steps: Sequence[Callable[[sa.Connection], bool]], *, durable: bool = True) -> list[bool | None]:
        """Run steps that say whether they wrote in one transaction that is durable when this returns.

        Returns what each said; None where the connection was lost, so that the outcome is unknown. A server gets one
        step, of one statement, which needs no transaction around it.

        With `durable=False` a file is not forced to the disk: the next durable transaction takes this one along, since
        a write-ahead log is valid up to its first gap only. To a server the statement itself must say so.
        """
        self._check_writable()
        try:
            with self._appender.connection() as connection:
                if self._is_postgresql:
                    return [step(connection) for step in steps]
                with contextlib.nullcontext() if durable else _leave_to_later(connection):
                    execute_raw(connection, "BEGIN IMMEDIATE")
                    written: list[bool | None] = [step(connection) for step in steps]
                    execute_raw(connection, "COMMIT")  # the pool rolls back what did not get here
                return written
        except sa.exc.TimeoutError:
            raise LedgerBusyError(f"{self.label}: every connection is in use; try again") from None
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _RETRY:
                return [None if error.connection_invalidated else False for _ in steps]
            raise self.translate(error) from error

    def write(self, work: Callable[[sa.Connection], Result], *, uncertain: bool = False) -> Result:
        """Run `work` in one serialisable transaction that is durable when this returns.

        Anything raised rolls all of it back. On PostgreSQL `work` may run several times: when a race was
        lost, and once more when the connection was lost before COMMIT was sent. With `uncertain` an error says that the
        outcome of an earlier try is not known.
        """
        self._check_writable()
        deadline = time.monotonic() + self.timeout
        fresh_connection = False
        while True:
            committing = False
            try:
                with self.engine.connect() as plain:
                    connection = plain.execution_options(csdp_write=True)
                    with connection.begin():
                        result = work(connection)
                        committing = True
                    return result
            except sa.exc.TimeoutError:
                raise LedgerBusyError(f"{self.label}: every connection is in use; try again") from None
            except sa.exc.DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) in _RETRY and time.monotonic() < deadline:
                    continue
                if error.connection_invalidated and not committing and not fresh_connection:
                    fresh_connection = True  # the server was restarted while we slept: nothing was sent yet
                    continue
                raise self.translate(error, committing=committing or uncertain) from error

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one moment of the ledger and writes nothing."""
        self._check_usable()
        try:
            with self.engine.connect() as plain:
                options: dict[str, Any] = {}
                if self._is_postgresql:
                    options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
                connection = plain.execution_options(**options)
                with connection.begin():
                    yield connection
        except sa.exc.TimeoutError:
            raise LedgerBusyError(f"{self.label}: every connection is in use; try again") from None
        except sa.exc.DBAPIError as error:
            raise self.translate(error) from error

    def translate(self, error: sa.exc.DBAPIError, *, committing: bool = False) -> LedgerError:
        """The error of ours that says what happened, without statement, parameters or password."""
        if self._is_postgresql:
            return self._translate_postgresql(error, committing)
        code = getattr(error.orig, "sqlite_errorcode", None) or 0
        other = (LedgerError, f"refused the transaction ({_first_line(error)})")
        kind, words = _SQLITE_WORDS.get(code & 0xFF, other)
        return kind(f"{self.label} {words}")

    def _translate_postgresql(self, error: sa.exc.DBAPIError, committing: bool) -> LedgerError:
        dbapi: Any = self.engine.dialect.dbapi
        state = getattr(error.orig, "sqlstate", None) or ""
        unreachable = not state and isinstance(error.orig, dbapi.OperationalError | dbapi.InterfaceError)
        lost = error.connection_invalidated or unreachable
        if lost and committing:
            return LedgerBusyError(
                f"the connection to {self.label} was lost while committing, so the outcome is unknown. Repeat"
                " the call: a commit of the same output is safe; a tick it reserved stays charged"
            )
        kind, words = LedgerError, f"refused the transaction ({_first_line(error)}); nothing was written"
        if lost or state.startswith(_BUSY_CLASSES):
            kind, words = LedgerBusyError, f"is out of reach ({_first_line(error)}); nothing was written; try again"
        elif state in _RETRY:
            kind, words = LedgerBusyError, f"is contended: no turn within {self.timeout:g} s; try again"
        elif state == "53100":
            kind, words = LedgerBusyError, "cannot grow: the server's disk is full; nothing was written"
        elif state.startswith("XX"):
            kind, words = LedgerCorruptError, f"reports damaged data ({_first_line(error)})"
        return kind(f"{self.label} {words}")

    def check_version(self) -> None:
        """Raise unless this is a ledger of the version that this code reads and writes."""
        with self.read() as connection:
            if not sa.inspect(connection).has_table(schema.meta.name):
                raise LedgerCorruptError(f"{self.label} holds no csdp ledger; nothing was changed")
            meta = {row.key: row.value for row in connection.execute(sa.select(schema.meta))}
        version = meta.get("version", "")
        if meta.get("product") != schema.PRODUCT or not version.isdecimal():
            raise LedgerCorruptError(f"{self.label} does not say that it is a csdp ledger; nothing was changed")
        if int(version) > schema.VERSION:
            raise LedgerVersionError(
                f"{self.label} has ledger format {version}, this csdp knows up to {schema.VERSION}:"
                " install a newer csdp; nothing was changed"
            )
        if int(version) < schema.VERSION:
            raise LedgerVersionError(
                f"{self.label} has ledger format {version}, this csdp writes {schema.VERSION}:"
                " back it up, then run `csdp ledger migrate`; nothing was changed"
            )

    def _check_writable(self) -> None:
        self._check_usable()
        if self.read_only:
            raise LedgerError(f"{self.label} was opened with read_only=True; open it without to write")

    def _check_usable(self) -> None:
        if self._closed:
            raise LedgerError(f"{self.label} is closed; open it again")
        if os.getpid() != self._process:
            # A connection shared across fork() would corrupt both sides; the parent keeps its own.
            self.engine.dispose(close=False)
            self._appender.abandon()
            self._appender = _Appender(self.engine)
            self._process = os.getpid()


class _Appender:
    """Keeps the connection that appends use: to take one from the pool takes as long as to append.

    A second thread that appends at the same time gets another one from the pool.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._kept: sa.Connection | None = None
        self._turn = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def connection(self) -> Iterator[sa.Connection]:
        """A connection on which each statement is a transaction, unless the caller begins one.

        After an error it goes back to the pool, which rolls back what was not committed.
        """
        mine = self._turn.acquire(blocking=False)
        connection, keep = None, False
        try:
            if mine:
                connection, self._kept = self._kept, None
            if connection is None:
                connection = self._engine.connect()
                _set_autocommit(connection, True)
            yield connection
            keep = mine and not self._closed
        finally:
            if keep:
                self._kept = connection
            elif connection is not None:
                _give_back(connection)
            if mine:
                self._turn.release()

    def close(self) -> None:
        """Give the connection back, or let the thread that uses it do so."""
        self._closed = True
        if self._turn.acquire(blocking=False):
            kept, self._kept = self._kept, None
            if kept is not None:
                _give_back(kept)
            self._turn.release()

    def abandon(self) -> None:
        """Leave the connection of the parent process alone after a fork: not even a finaliser may touch it."""
        if self._kept is not None:
            _ABANDONED.append(self._kept)


_ABANDONED: list[sa.Connection] = []


def _set_autocommit(connection: sa.Connection, value: bool) -> None:
    """SQLite needs nothing: its connections are opened so."""
    raw: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "postgresql" and not raw.closed:
        raw.autocommit = value


def _give_back(connection: sa.Connection) -> None:
    """Return a connection to the pool as the pool expects it."""
    if not connection.invalidated:
        _set_autocommit(connection, False)
    connection.close()


def execute_raw(connection: sa.Connection, statement: str, bound: Mapping[str, Any] | None = None) -> Any:
    """Run a statement of the driver's own, and return its cursor; errors are those of SQLAlchemy.

    For the few statements that every release needs: SQLAlchemy takes longer to pass one on than a database to run it.
    """
    raw: Any = connection.connection.dbapi_connection
    dialect: Any = connection.dialect
    try:
        return raw.execute(statement) if bound is None else raw.execute(statement, bound)
    except dialect.dbapi.Error as error:
        lost = bool(dialect.is_disconnect(error, raw, None))
        if lost:
            connection.invalidate(error)
        raise sa.exc.DBAPIError(None, None, error, connection_invalidated=lost) from error


@contextlib.contextmanager
def _leave_to_later(connection: sa.Connection) -> Iterator[None]:
    """Let the next transaction of a SQLite connection leave forcing it to the disk to a later one.

    Only where there is a write-ahead log: a file without one could be damaged by a power failure.
    """
    if "journal" not in connection.info:  # kept as long as the connection is
        (connection.info["journal"],) = execute_raw(connection, "PRAGMA journal_mode").fetchone()
    if connection.info["journal"] != "wal":
        yield
        return
    execute_raw(connection, "PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        # A setting cannot be changed inside a transaction: what was not committed is rolled back first.
        raw: Any = connection.connection.dbapi_connection
        if raw.in_transaction:
            execute_raw(connection, "ROLLBACK")
        execute_raw(connection, "PRAGMA synchronous = FULL")


def _first_line(error: sa.exc.DBAPIError) -> str:
    """What the driver says, without the hints below its first line."""
    return next(iter(str(error.orig).strip().splitlines()), "no reason given")
