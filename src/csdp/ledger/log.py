"""The tail of a dataset's log: where it stands, and what is appended to it.

The hash of the newest entry stands for everything before it, the terms included. So a process that remembers the entry
which it wrote last decides from memory, and appends on condition that the head still has that hash: one statement on a
server, and nothing is read. Where somebody else has written, or something must be looked up, it locks the dataset,
reads where the log stands, and decides again.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakValueDictionary

import sqlalchemy as sa

from csdp.errors import LedgerLeaseError
from csdp.ledger.database import Database, execute_raw
from csdp.ledger.lease import Fence
from csdp.ledger.records import DatasetState, Entry, Kind, Reserved, Terms, entry_hash
from csdp.ledger.schema import CHUNK, ONCE, REFUSED, entries, plans, terms_record, unknown_dataset

EntryIndex = dict[tuple[str, int, str], Entry]

# What every release runs, in the words of the driver.
_COLUMNS = ", ".join(column.name for column in entries.columns)
_HEAD = "SELECT plan_number, head_seq, head_hash, state_seq FROM csdp_datasets"
_MOVE = (
    "UPDATE csdp_datasets SET plan_number = :plan_number, head_seq = :head_seq, head_hash = :head_hash,"
    " state_seq = :state_seq WHERE name = :name AND head_hash = :before"
)
_INSERT = f"INSERT INTO csdp_entries ({_COLUMNS}) VALUES ({', '.join(f':{c.name}' for c in entries.columns)})"
# Rows as one value: however many there are, it is one statement, and one message to a server.
_INSERT_ALL = (
    f"INSERT INTO csdp_entries ({_COLUMNS}) SELECT {_COLUMNS}"
    " FROM json_populate_recordset(NULL::csdp_entries, :rows) WHERE EXISTS (SELECT FROM moved)"
)
_HOLD = "held AS (SELECT FROM csdp_leases WHERE dataset = :name AND number = :fence FOR UPDATE)"


def _for_psycopg(statement: str) -> str:
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement)


_LOCK = {
    "sqlite": f"{_HEAD} WHERE name = :name",  # it holds its one write lock already
    "postgresql": _for_psycopg(f"{_HEAD} WHERE name = :name FOR UPDATE"),
}
# Both rows are locked: who takes the lease over waits until this transaction has ended, or this one has to start again.
_LOCK_FENCED = _for_psycopg(
    f"{_HEAD} JOIN csdp_leases ON dataset = name WHERE name = :name AND number = :fence"
    " FOR UPDATE OF csdp_datasets, csdp_leases"
)
# For this transaction alone, which is over when the statement is: a later one that waits for the disk takes it along.
_UNFORCED = "unforced AS (SELECT set_config('synchronous_commit', 'off', true))"


def _append_statement(*, fenced: bool, durable: bool) -> str:
    """One statement that moves the head and inserts the rows, if the head is where it was and a lease is held."""
    conditions = [(fenced, _HOLD, "held"), (not durable, _UNFORCED, "unforced")]
    parts = [part for wanted, part, _ in conditions if wanted]
    checks = "".join(f" AND EXISTS (SELECT FROM {name})" for wanted, _, name in conditions if wanted)
    return _for_psycopg(f"WITH {', '.join([*parts, f'moved AS ({_MOVE}{checks} RETURNING 1)'])} {_INSERT_ALL}")


_APPEND = {
    (fenced, durable): _append_statement(fenced=fenced, durable=durable)
    for fenced in (False, True)
    for durable in (False, True)
}

# Built once: putting a statement together costs more than SQLite needs to run it.
_TERMS = sa.select(plans).where(plans.c.dataset == sa.bindparam("name"), plans.c.number == sa.bindparam("number"))
_ENTRY = sa.select(entries).where(entries.c.dataset == sa.bindparam("name"), entries.c.seq == sa.bindparam("seq"))
# No ORDER BY: it would tempt SQLite into walking the whole log in order instead of using the partial index.
_RECORDED = {
    name: sa.select(entries).where(
        entries.c.dataset == sa.bindparam("name"), which, entries.c.tick.in_(sa.bindparam("ticks", expanding=True))
    )
    for name, which in (("once", ONCE), ("refused", REFUSED))
}
# This says nothing new, but keeps PostgreSQL near those ticks while it has no statistics yet.
_NEAR = entries.c.tick.between(sa.bindparam("low"), sa.bindparam("high"))
_RECORDED_NEAR = {name: query.where(_NEAR) for name, query in _RECORDED.items()}


@dataclass(frozen=True)
class Tail:
    """Where a log stands after its newest entry."""

    seq: int
    hash: str
    terms: Terms
    state: Entry | None  #: the newest reservation or change, with the state to go on from
    newest: tuple[Entry, ...] = ()  #: the newest entries, as far as this process wrote them together


@dataclass(frozen=True)
class Append:
    """Rows for the end of a log, on condition that it still ends with the hash `before` and that a lease is held.

    Those that are not `durable` reach the disk with the next append that is.
    """

    name: str
    before: str
    tail: Tail
    rows: list[dict[str, Any]]
    fence: Fence | None
    durable: bool = True

    def run(self, connection: sa.Connection) -> bool:
        """Write the rows and move the head, in the transaction of the caller; False, and nothing, where it moved."""
        tail = self.tail
        bound = {
            "name": self.name,
            "before": self.before,
            "plan_number": tail.terms.number,
            "head_seq": tail.seq,
            "head_hash": tail.hash,
            "state_seq": None if tail.state is None else tail.state.seq,
        }
        if connection.dialect.name == "sqlite":
            if execute_raw(connection, _MOVE, bound).rowcount != 1:
                return False
            for row in self.rows:
                execute_raw(connection, _INSERT, row)
            return True
        bound["rows"] = json.dumps(self.rows, ensure_ascii=False)
        if self.fence is not None:
            bound["fence"] = self.fence.number
        cursor = execute_raw(connection, _APPEND[self.fence is not None, self.durable], bound)
        return bool(cursor.rowcount == len(self.rows))


class _Waiting:
    """An append that waits for its turn, and what came of it."""

    def __init__(self, append: Append) -> None:
        self.append = append
        self.done = False
        self.written: bool | None = None
        self.error: Exception | None = None


class AppendQueue:
    """Appends of all threads of this process to one file: those that wait for their turn are written together.

    A file has one writer at a time and every transaction waits for the disk, so this is what lets datasets and writers
    share that wait. A server does the same by itself.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._turn = threading.Lock()
        self._process = os.getpid()

    @classmethod
    def of(cls, file: Path) -> AppendQueue:
        """The one queue of a file."""
        with _QUEUES_LOCK:
            return _QUEUES.setdefault(file, cls())

    def write(self, database: Database, append: Append) -> bool | None:
        """Append, together with what others want to; as `Database.append`."""
        if os.getpid() != self._process:  # forked: whoever holds the turn does not exist here
            return database.append([append.run], durable=append.durable)[0]
        one = _Waiting(append)
        self._waiting.append(one)
        with self._turn:
            if not one.done:
                together = [self._waiting.popleft() for _ in range(len(self._waiting))]
                _write_together(database, together)
        if one.error is not None:
            raise one.error
        return one.written


def _write_together(database: Database, waiting: list[_Waiting]) -> None:
    """Write several appends in one transaction; where that fails each in its own, so that each has its own error."""
    try:
        durable = any(one.append.durable for one in waiting)
        written = database.append([one.append.run for one in waiting], durable=durable)
    except Exception as error:
        if len(waiting) > 1:
            for one in waiting:
                _write_together(database, [one])
            return
        waiting[0].error = error
        waiting[0].done = True
        return
    for i, one in enumerate(waiting):
        one.written = written[i]
        one.done = True


_QUEUES: WeakValueDictionary[Path, AppendQueue] = WeakValueDictionary()
_QUEUES_LOCK = threading.Lock()


class NotRememberedError(Exception):
    """The log must be read to decide."""


class Log:
    """The tail of one dataset's log, from memory or locked; `append` adds entries, which `gather` hands over.

    Args:
        name: of the dataset.
        tail: where the log stands.
        connection: in a transaction that has locked the dataset; None where the tail is from memory.
    """

    def __init__(self, name: str, tail: Tail, connection: sa.Connection | None = None) -> None:
        self.name = name
        self._connection = connection
        self._before = tail.hash
        self._tail = tail
        self._pending: list[dict[str, Any]] = []

    @classmethod
    def lock(cls, connection: sa.Connection, name: str, remembered: Tail | None, *, fence: Fence | None = None) -> Self:
        """Lock the dataset until the transaction ends, and read where its log stands.

        Args:
            connection: in a transaction.
            name: of the dataset.
            remembered: what this process remembers; used where it still holds.
            fence: of a lease that must be held.
        """
        plain, bound = _LOCK[connection.dialect.name], {"name": name}
        if fence is None:
            row = execute_raw(connection, plain, bound).fetchone()
        else:
            row = execute_raw(connection, _LOCK_FENCED, {**bound, "fence": fence.number}).fetchone()
            if row is None and execute_raw(connection, plain, bound).fetchone() is not None:
                raise LedgerLeaseError(
                    f"another process has taken over dataset {name!r} (lease {fence.number} is not the newest):"
                    " this one was silent for too long, and may write nothing more under that lease"
                )
        if row is None:
            raise unknown_dataset(connection, name)
        holds = remembered is not None and remembered.hash == row[2]
        return cls(name, remembered if remembered is not None and holds else _load(connection, name, *row), connection)

    @property
    def terms(self) -> Terms:
        """The terms that hold now."""
        return self._tail.terms

    def change(self, terms: Terms) -> None:
        """Let other terms hold for what is appended from here on."""
        self._tail = replace(self._tail, terms=terms)

    def last(self) -> tuple[DatasetState | None, int | None, int | None]:
        """The state to go on from, the tick after which it holds, the first tick that may be charged."""
        entry = self._tail.state
        if entry is None:
            return None, None, None
        assert entry.tick is not None
        # A change takes effect before its first tick, so its state stands after the tick before.
        return entry.state(), entry.tick if entry.kind == "reserve" else entry.tick - 1, entry.tick

    @property
    def tail(self) -> Tail:
        """Where the log stands with what was appended."""
        return self._tail

    def gather(self, fence: Fence | None, *, durable: bool = True) -> Append | None:
        """What was appended, to be written; None where it is nothing. Only charges may wait for a later append."""
        if not self._pending:
            return None
        wait = not durable and all(row["kind"] == "reserve" for row in self._pending)
        return Append(self.name, self._before, self._tail, self._pending, fence, durable=not wait)

    def append(
        self, kind: Kind, payload: str, *, tick: int | None = None, query: str | None = None, plan: str | None = None
    ) -> Entry:
        """Add one entry to the chain, under the live plan unless another is named."""
        tail = self._tail
        row: dict[str, Any] = {
            "dataset": self.name,
            "seq": tail.seq + 1,
            "kind": kind,
            "tick": tick,
            "query": query,
            "plan": plan or tail.terms.plan_digest,
            "time": now(),
            "payload": payload,
            "previous": tail.hash,
        }
        row["hash"] = entry_hash(tail.hash, row)
        entry = Entry(**row)
        together = (*tail.newest, entry) if self._pending else (entry,)
        self._pending.append(row)
        state = entry if kind in ("reserve", "change") else tail.state
        self._tail = Tail(entry.seq, entry.hash, tail.terms, state, together)
        return entry

    def find_reserved(self, reserved: list[Reserved]) -> EntryIndex:
        """The entries of some reservations and of their commits."""
        newest = {
            (entry.hash, entry.tick, entry.query): entry for entry in self._tail.newest if entry.kind == "reserve"
        }
        held = [(one.hash, one.tick, one.query) for one in reserved]
        if all(one in newest for one in held):  # nothing came after them, so no commit either
            return {("reserve", tick, query): newest[hash_, tick, query] for hash_, tick, query in held}
        return self.look_up("once", [one.tick for one in reserved])

    def look_up(self, which: Literal["once", "refused"], ticks: Iterable[int]) -> EntryIndex:
        """The newest entry of each kind, tick and query among those ticks."""
        connection = self._connection
        if connection is None:
            raise NotRememberedError
        wanted = sorted(set(ticks))
        rows: list[Any] = []
        near = connection.dialect.name == "postgresql"
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            bound: dict[str, Any] = {"name": self.name, "ticks": chunk}
            if near:
                bound |= {"low": chunk[0], "high": chunk[-1]}
            rows += connection.execute((_RECORDED_NEAR if near else _RECORDED)[which], bound)
        rows.sort(key=attrgetter("seq"))
        return {(row.kind, row.tick, row.query): Entry(*row) for row in rows}


def _load(
    connection: sa.Connection, name: str, plan_number: int, head_seq: int, head_hash: str, state_seq: int | None
) -> Tail:
    terms = connection.execute(_TERMS, {"name": name, "number": plan_number}).one()
    state = None
    if state_seq is not None:
        state = Entry(*connection.execute(_ENTRY, {"name": name, "seq": state_seq}).one())
    return Tail(head_seq, head_hash, Terms.from_record(terms_record(terms)), state)


def now() -> str:
    """The present moment, UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
