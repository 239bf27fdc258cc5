"""The database of a ledger: one SQLite file, or the tables of a PostgreSQL database.

The tables are append-only by triggers; `docs/ledger-format.md` explains each column. Transactions are written whole or
not at all, and errors say what to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import portalocker
import sqlalchemy as sa

from csdp.errors import (
    InputError,
    LedgerBusyError,
    LedgerConflictError,
    LedgerCorruptError,
    LedgerError,
    LedgerHeldError,
    LedgerVersionError,
)
from csdp.files import open_bytes, sync_directory
from csdp.ledger.records import JSONObject, RecordedDataset, Terms, decode

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
#: Seconds between two tries of a process that stands by.
_STANDBY_PAUSE = 0.5
_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_CREATION_LOCK = 0x63736470  # two first users at once: the second waits and finds the tables


# ---- tables

PRODUCT = "csdp-ledger"
VERSION = 1
APPLICATION_ID = 0x63736470  # "csdp", in the header of the SQLite file: a foreign file is known before it is opened

metadata = sa.MetaData()

meta = sa.Table(
    "csdp_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

datasets = sa.Table(
    "csdp_datasets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("created", sa.Text, nullable=False),
    # Where the log stands: the only columns of the ledger that are ever updated, and only forward.
    sa.Column("plan_number", sa.Integer, nullable=False),
    sa.Column("head_seq", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.Text, nullable=False),
    sa.Column("state_seq", sa.BigInteger),
)

plans = sa.Table(
    "csdp_plans",
    metadata,
    sa.Column("dataset", sa.Text, sa.ForeignKey(datasets.c.name), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("chain", sa.Text, nullable=False),
    sa.Column("limits", sa.Text, nullable=False),
    sa.Column("guarantee", sa.Text, nullable=False),
    sa.Column("fit_cost", sa.Text),
    sa.Column("from_tick", sa.BigInteger),
    sa.Column("rule", sa.Text),
)

#: The terms that a dataset is published under now.
LIVE = sa.and_(plans.c.dataset == datasets.c.name, plans.c.number == datasets.c.plan_number)

entries = sa.Table(
    "csdp_entries",
    metadata,
    sa.Column("dataset", sa.Text, sa.ForeignKey(datasets.c.name), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("tick", sa.BigInteger),
    sa.Column("query", sa.Text),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.CheckConstraint("kind IN ('open', 'change', 'reserve', 'commit', 'refuse')", name="csdp_entries_kind"),
)

# Literals, not parameters: a query must repeat these words for the partial indexes to serve it.
ONCE = sa.text("kind IN ('reserve', 'commit')")
REFUSED = sa.text("kind = 'refuse'")
# Whatever the code does, the database takes no second charge and no second output of one tick and query.
sa.Index(
    "csdp_entries_once",
    entries.c.dataset,
    entries.c.tick,
    entries.c.query,
    entries.c.kind,
    unique=True,
    sqlite_where=ONCE,
    postgresql_where=ONCE,
)
sa.Index(
    "csdp_entries_refused",
    entries.c.dataset,
    entries.c.tick,
    entries.c.query,
    sqlite_where=REFUSED,
    postgresql_where=REFUSED,
)

_FORWARD = (
    "NEW.name <> OLD.name OR NEW.created <> OLD.created OR NEW.head_seq <= OLD.head_seq"
    " OR NEW.plan_number < OLD.plan_number OR COALESCE(NEW.state_seq, 0) < COALESCE(OLD.state_seq, 0)"
)
_FROZEN = ("csdp_meta", "csdp_plans", "csdp_entries")
_MESSAGE = "the csdp ledger is append-only"


def triggers(dialect: str) -> list[str]:
    """The statements that forbid UPDATE, DELETE and TRUNCATE, in the words of one database."""
    sqlite = dialect == "sqlite"
    statements = []
    then = f"BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END"
    if not sqlite:
        statements.append(
            "CREATE FUNCTION csdp_append_only() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION '{_MESSAGE}' USING ERRCODE = 'restrict_violation'; END $$"
        )
        then = "EXECUTE FUNCTION csdp_append_only()"
    for table in (*_FROZEN, "csdp_datasets"):
        each = "" if sqlite else " FOR EACH ROW"
        forward = _FORWARD if sqlite else f"({_FORWARD})"
        when = f" WHEN {forward}" if table == "csdp_datasets" else ""
        statements.append(f"CREATE TRIGGER {table}_update BEFORE UPDATE ON {table}{each}{when} {then}")
        statements.append(f"CREATE TRIGGER {table}_delete BEFORE DELETE ON {table}{each} {then}")
        if not sqlite:
            statements.append(f"CREATE TRIGGER {table}_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {then}")
    if sqlite:  # INSERT OR REPLACE removes the old row without asking the delete trigger
        same = "SELECT 1 FROM csdp_entries WHERE dataset = NEW.dataset AND seq = NEW.seq"
        statements.append(
            f"CREATE TRIGGER csdp_entries_replace BEFORE INSERT ON csdp_entries WHEN EXISTS ({same}) {then}"
        )
    return statements


def trigger_names(dialect: str) -> set[str]:
    """The names of those triggers, for `verify` to look for."""
    return {words[2] for words in map(str.split, triggers(dialect)) if words[1] == "TRIGGER"}


def create_tables(connection: sa.Connection) -> None:
    """Create an empty ledger inside the caller's transaction."""
    metadata.create_all(connection, checkfirst=False)
    for statement in triggers(connection.dialect.name):
        connection.exec_driver_sql(statement)
    rows = [{"key": "product", "value": PRODUCT}, {"key": "version", "value": str(VERSION)}]
    connection.execute(sa.insert(meta), rows)


# ---- rows


def terms_record(row: Any) -> JSONObject:
    """The terms in a row of `csdp_plans`, exactly as recorded; see `Terms.from_record`."""
    return {
        "number": row.number,
        "plan_digest": row.digest,
        "plan_json": row.plan,
        "chain_digest": row.chain,
        "limits": decode(row.limits),
        "guarantee": decode(row.guarantee),
        "fit_cost": None if row.fit_cost is None else decode(row.fit_cost),
        "from_tick": row.from_tick,
        "rule": row.rule,
    }


def all_datasets(connection: sa.Connection, name: str | None = None) -> list[RecordedDataset]:
    """Every dataset with its live terms, or the one of that name."""
    query = sa.select(datasets, plans).join(plans, LIVE).order_by(datasets.c.name)
    if name is not None:
        query = query.where(datasets.c.name == name)
    rows = connection.execute(query).all()
    return [
        RecordedDataset(
            name=row.name,
            created=row.created,
            terms=Terms.from_record(terms_record(row)),
            head_seq=row.head_seq,
            head_hash=row.head_hash,
        )
        for row in rows
    ]


def one_dataset(connection: sa.Connection, name: str) -> RecordedDataset:
    """The dataset of that name, or an error that lists the recorded ones."""
    for dataset in all_datasets(connection, name):
        return dataset
    raise unknown_dataset(connection, name)


def unknown_dataset(connection: sa.Connection, name: str) -> LedgerConflictError:
    """The error for a name that is not recorded."""
    known = connection.scalars(sa.select(datasets.c.name).order_by(datasets.c.name).limit(10)).all()
    return LedgerConflictError(f"the ledger has no dataset {name!r}; recorded: {', '.join(known) or 'none'}")


def all_terms(connection: sa.Connection, name: str) -> list[JSONObject]:
    """Every set of terms the dataset ever had, as recorded, oldest first."""
    rows = connection.execute(sa.select(plans).where(plans.c.dataset == name).order_by(plans.c.number))
    return [terms_record(row) for row in rows]


# ---- transactions


class Database:
    """An engine together with the rules of its transactions; safe to use from threads and after a fork."""

    def __init__(
        self, engine: sa.Engine, *, label: str, timeout: float, read_only: bool, file: Path | None = None
    ) -> None:
        self.engine = engine
        self.label = label
        self.timeout = timeout
        self.read_only = read_only
        self._process = os.getpid()
        self._closed = False
        self._is_postgresql = engine.dialect.name == "postgresql"
        self._file = file
        self._lock: FileLock | SessionLock | None = None
        self._turn = threading.RLock()  # of threads that write on the session of the lock

    def close(self) -> None:
        """Close every connection; calling twice is fine."""
        self._closed = True
        if self._lock is not None:
            with self._turn:
                self._lock.close()
            self._lock = None
        self.engine.dispose()

    def hold(self, dataset: str, *, standby: bool = False) -> None:
        """Hold the right to publish a dataset until this is closed; every write then runs on the session that holds it.

        Args:
            dataset: name of the dataset.
            standby: wait while another process holds it, instead of raising `LedgerHeldError`.
        """
        self._check_writable()
        if self._lock is not None:
            raise LedgerError(f"{self.label} holds a dataset already; open it once more for another dataset")
        lock: FileLock | SessionLock
        with self._translating():
            if self._file is not None:
                lock = FileLock(self._file, dataset)
            else:
                lock = SessionLock(self.engine.connect(), dataset, seconds=self.timeout)
            try:
                while not lock.acquire():
                    if not standby:
                        raise LedgerHeldError(
                            f"dataset {dataset!r} of {self.label} is published by another process; wait until that has "
                            "ended, or stop it (`csdp serve --standby` waits and takes over)"
                        )
                    time.sleep(_STANDBY_PAUSE)
            except BaseException:
                lock.close()
                raise
        self._lock = lock

    def check_held(self) -> None:
        """Raise `LedgerHeldError` if the session that held the right to publish has ended."""
        if isinstance(self._lock, SessionLock):
            self.write(lambda connection: connection.exec_driver_sql("SELECT 1"))

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sa.Connection]:
        """The connection to write on: the one that holds the lock, if one is held on a server."""
        if not isinstance(self._lock, SessionLock):
            with self.engine.connect() as plain:
                yield plain
            return
        with self._turn:
            if self._lock.session.invalidated:  # never opened again: another process may hold the lock by now
                raise self._lost_error()
            yield self._lock.session

    def _lost_error(self) -> LedgerHeldError:
        return LedgerHeldError(
            f"the connection to {self.label} that held the right to publish was lost, and the right with it; another "
            "process may publish by now. Start this one again; a tick that it had reserved stays charged"
        )

    def write(self, work: Callable[[sa.Connection], Result]) -> Result:
        """Run `work` in one serialisable transaction that is durable when this returns.

        Anything raised rolls all of it back. On PostgreSQL `work` runs again when a race was lost. A session that held
        a lock is not opened again: `LedgerHeldError`.
        """
        self._check_writable()
        deadline = time.monotonic() + self.timeout
        while True:
            committing = False
            try:
                with self._writer() as plain:
                    connection = plain.execution_options(csdp_write=True)
                    with connection.begin():
                        result = work(connection)
                        committing = True
                    return result
            except sa.exc.DBAPIError as error:
                if isinstance(self._lock, SessionLock) and error.connection_invalidated:
                    raise self._lost_error() from error
                if getattr(error.orig, "sqlstate", None) in _RETRY and time.monotonic() < deadline:
                    continue
                raise self.translate(error, committing=committing) from error
            except sa.exc.TimeoutError as error:
                raise self.translate(error) from error

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one moment of the ledger and writes nothing."""
        self._check_usable()
        options: dict[str, Any] = {}
        if self._is_postgresql:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._translating(), self.engine.connect() as plain:
            connection = plain.execution_options(**options)
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        """What the database refuses, in our words."""
        try:
            yield
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            raise self.translate(error) from error

    def translate(self, error: sa.exc.DBAPIError | sa.exc.TimeoutError, *, committing: bool = False) -> LedgerError:
        """The error of ours that says what happened, without statement, parameters or password."""
        if isinstance(error, sa.exc.TimeoutError):
            return LedgerBusyError(f"{self.label}: every connection is in use; try again")
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
            if not sa.inspect(connection).has_table(meta.name):
                raise LedgerCorruptError(f"{self.label} holds no csdp ledger; nothing was changed")
            found = {row.key: row.value for row in connection.execute(sa.select(meta))}
        version = found.get("version", "")
        if found.get("product") != PRODUCT or not version.isdecimal():
            raise LedgerCorruptError(f"{self.label} does not say that it is a csdp ledger; nothing was changed")
        if int(version) != VERSION:
            raise LedgerVersionError(
                f"{self.label} has ledger format {version}, this csdp reads {VERSION}: install the csdp that"
                " wrote it, or a newer one; nothing was changed"
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
            self._lock = None  # it is that of the parent
            self._process = os.getpid()


def _first_line(error: sa.exc.DBAPIError) -> str:
    """What the driver says, without the hints below its first line."""
    return next(iter(str(error.orig).strip().splitlines()), "no reason given")


# ---- the right to publish


def _digest(dataset: str) -> bytes:
    return hashlib.sha256(f"csdp publisher {dataset}".encode()).digest()


class FileLock:
    """A lock on a file beside the ledger, one for each dataset."""

    def __init__(self, ledger: Path, dataset: str) -> None:
        path = ledger.with_name(f"{ledger.name}.{_digest(dataset).hex()[:12]}.lock")
        try:
            self._file: BinaryIO = os.fdopen(open_bytes(path, os.O_RDWR | os.O_CREAT), "rb+")
        except OSError as error:
            raise LedgerError(f"{path.name}: cannot be opened: {error.strerror}") from None

    def acquire(self) -> bool:
        """Take the lock if it is free."""
        try:
            portalocker.lock(self._file, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
        except portalocker.LockException:
            return False
        return True

    def close(self) -> None:
        """Give the lock back. The file stays: to remove it could take away the lock of another process."""
        self._file.close()


class SessionLock:
    """An advisory lock of a session on a server, named by the table of datasets and the dataset.

    Args:
        session: a connection that nothing else uses.
        dataset: name of the dataset.
        seconds: after which the server ends a session whose process no longer answers.
    """

    def __init__(self, session: sa.Connection, dataset: str, *, seconds: float) -> None:
        self.session = session
        within = max(2, round(seconds))
        settings = {
            # A process that was stopped within a transaction, or that the network has cut off, keeps nobody out.
            "idle_in_transaction_session_timeout": 1000 * within,
            "tcp_keepalives_idle": within,
            "tcp_keepalives_interval": max(1, within // 3),
            "tcp_keepalives_count": 3,
        }
        with session.begin():
            for name, value in settings.items():
                session.exec_driver_sql(f"SET {name} = {value}")
        self._key = int.from_bytes(_digest(dataset)[:4], "big", signed=True)

    def acquire(self) -> bool:
        """Take the lock if it is free."""
        with self.session.begin():
            table = sa.text("SELECT pg_try_advisory_lock('csdp_datasets'::regclass::oid::int, :key)")
            return bool(self.session.scalar(table, {"key": self._key}))

    def close(self) -> None:
        """End the session, and the lock with it."""
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            self.session.invalidate()
            self.session.close()


# ---- opening


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
    """Open the file, creating it (mode 0600, all or nothing) if that is allowed."""
    path = path.absolute()  # later connections must not follow a change of directory
    label = f"the ledger {path.name!r}"
    if not path.parent.is_dir():
        raise LedgerError(f"{label}: its directory does not exist; create it first")
    if create and not read_only and not path.exists():
        _create_file(path, label)
    _recognise(path, label)
    if not read_only and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise LedgerError(f"{label} or its directory is read-only; make it writable")
    engine = _sqlite_engine(path, timeout=timeout, read_only=read_only)
    database = Database(engine, label=label, timeout=timeout, read_only=read_only, file=path)
    try:
        database.check_version()
    except BaseException:
        database.close()
        raise
    return database


def _recognise(path: Path, label: str) -> None:
    """Look at the header before SQLite does: it would write beside a foreign file merely by opening it."""
    if not path.exists():
        raise LedgerError(f"{label} does not exist")
    if not path.is_file():
        raise LedgerError(f"{label} is not a file")
    logged = _size(path, "-wal")  # pages that seem to be missing may be there; SQLite then judges
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
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise LedgerCorruptError(f"{label} is a SQLite file of another program; nothing was changed")
    page = int.from_bytes(header[16:18])
    expected = int.from_bytes(header[28:32]) * (65536 if page == 1 else page)
    if path.stat().st_size < expected and not logged:  # SQLite itself overlooks half a page
        raise LedgerCorruptError(f"{label} is truncated; restore it from a backup. Nothing was changed")


def _sqlite_engine(path: Path, *, timeout: float, read_only: bool) -> sa.Engine:
    mode = "mode=ro" if read_only else "mode=rw"  # never create: only `_create_file` may
    if read_only and not os.access(path.parent, os.W_OK) and not _size(path, "-wal"):
        mode = (
            "mode=ro&immutable=1"  # SQLite cannot make its lock file here, and no log shows that another process writes
        )

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{path.as_uri()}?{mode}",
            uri=True,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")  # a commit survives a power cut, also in WAL mode
        return connection

    engine = sa.create_engine(
        "sqlite://", creator=connect, poolclass=sa.QueuePool, pool_timeout=timeout, hide_parameters=True
    )

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
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

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
        with engine.begin() as connection:
            connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
            create_tables(connection)
    finally:
        engine.dispose()
    with contextlib.closing(sqlite3.connect(draft)) as plain:
        plain.execute("PRAGMA journal_mode = WAL")  # not allowed inside a transaction


def _size(path: Path, suffix: str) -> int:
    beside = path.with_name(path.name + suffix)
    return beside.stat().st_size if beside.exists() else 0


def open_url(url: sa.URL, *, create: bool, read_only: bool, timeout: float) -> Database:
    """Connect, creating the tables (all or nothing) if that is allowed."""
    # Not url.render_as_string(): a password may also hide among the options.
    label = f"the ledger in postgresql database {url.database!r} at {url.host or 'the local socket'}"
    database = Database(_postgresql_engine(url, timeout), label=label, timeout=timeout, read_only=read_only)
    try:
        with database.read() as connection:
            exists = sa.inspect(connection).has_table(meta.name)
        if not exists and (read_only or not create):
            raise LedgerError(f"{label} does not exist")
        if not exists:
            database.write(_create_tables)
        database.check_version()
    except BaseException:
        database.close()
        raise
    return database


def _connect_settings(seconds: float) -> dict[str, int]:
    """Settings of a connection that gives up after so many seconds: no server, or a network that was cut since.

    Without them a session over a cut network waits for a quarter of an hour.
    """
    within = max(2, round(seconds))
    keepalives = {"keepalives_idle": within, "keepalives_interval": max(1, within // 3), "keepalives_count": 3}
    return {"connect_timeout": within, "tcp_user_timeout": 1000 * within, **keepalives}


def _postgresql_engine(url: sa.URL, timeout: float) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url,
            isolation_level="SERIALIZABLE",
            pool_pre_ping=True,  # the server may have been restarted since
            pool_timeout=timeout,
            connect_args=_connect_settings(timeout),
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


def _create_tables(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
    if not sa.inspect(connection).has_table(meta.name):
        create_tables(connection)
