"""The tail of a dataset's log, locked by the transaction that reads it: where it stands, and what is appended to it.

The hash of the newest entry stands for everything before it, the terms included. So a process that finds the hash which
it wrote itself goes on from what it remembers, and reads nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal

import sqlalchemy as sa

from csdp.errors import LedgerLeaseError
from csdp.ledger.database import execute_raw
from csdp.ledger.lease import Fence
from csdp.ledger.records import DatasetState, Entry, Kind, Reserved, Terms, entry_hash
from csdp.ledger.schema import CHUNK, ONCE, REFUSED, entries, plans, terms_record, unknown_dataset

EntryIndex = dict[tuple[str, int, str], Entry]

# What every release runs, in the words of the driver.
_COLUMNS = [column.name for column in entries.columns]
_HEAD = "SELECT plan_number, head_seq, head_hash, state_seq FROM csdp_datasets"
_MOVE = (
    "UPDATE csdp_datasets SET plan_number = :plan_number, head_seq = :head_seq, head_hash = :head_hash,"
    " state_seq = :state_seq WHERE name = :dataset"
)
_INSERT = f"INSERT INTO csdp_entries ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"


def _for_psycopg(statement: str) -> str:
    return re.sub(r":(\w+)", r"%(\1)s", statement)


_LOCK = {
    "sqlite": f"{_HEAD} WHERE name = :name",  # it holds its one write lock already
    "postgresql": _for_psycopg(f"{_HEAD} WHERE name = :name FOR UPDATE"),
}
# Both rows are locked: who takes the lease over waits until this transaction has ended, or this one has to start again.
_LOCK_FENCED = _for_psycopg(
    f"{_HEAD} JOIN csdp_leases ON dataset = name WHERE name = :name AND number = :fence"
    " FOR UPDATE OF csdp_datasets, csdp_leases"
)
# The newest entry, together with the head: one message to a server.
_APPEND_LAST = {"sqlite": (_INSERT, _MOVE), "postgresql": (_for_psycopg(f"WITH moved AS ({_MOVE}) {_INSERT}"),)}

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
_APPEND = sa.insert(entries)


@dataclass(frozen=True)
class Tail:
    """Where a log stands after its newest entry."""

    seq: int
    hash: str
    terms: Terms
    state: Entry | None  #: the newest reservation or change, with the state to go on from
    newest: Entry | None = None  #: the newest entry, where this process wrote it


class Log:
    """The tail of one dataset's log, locked until the transaction ends; `save` writes what was appended.

    Args:
        connection: in a transaction.
        name: of the dataset.
        tails: what this process remembers, by dataset; used where it still holds, and brought up to date.
        fence: of a lease that must be held.
    """

    def __init__(
        self, connection: sa.Connection, name: str, tails: dict[str, Tail], *, fence: Fence | None = None
    ) -> None:
        self.connection = connection
        self.name = name
        self._tails = tails
        self._dialect = connection.dialect.name
        row = self._lock(fence)
        known = tails.get(name)
        self._tail = known if known is not None and known.hash == row[2] else self._load(*row)
        self._pending: list[dict[str, Any]] = []

    def _lock(self, fence: Fence | None) -> Any:
        """Lock the dataset until the transaction ends, and read where its log stands."""
        plain, bound = _LOCK[self._dialect], {"name": self.name}
        if fence is None:
            row = execute_raw(self.connection, plain, bound).fetchone()
        else:
            row = execute_raw(self.connection, _LOCK_FENCED, {**bound, "fence": fence.number}).fetchone()
            if row is None and execute_raw(self.connection, plain, bound).fetchone() is not None:
                raise LedgerLeaseError(
                    f"another process has taken over dataset {self.name!r} (lease {fence.number} is not the newest):"
                    " this one was silent for too long, and may write nothing more under that lease"
                )
        if row is None:
            raise unknown_dataset(self.connection, self.name)
        return row

    def _load(self, plan_number: int, head_seq: int, head_hash: str, state_seq: int | None) -> Tail:
        terms = self.connection.execute(_TERMS, {"name": self.name, "number": plan_number}).one()
        state = None
        if state_seq is not None:
            state = Entry(*self.connection.execute(_ENTRY, {"name": self.name, "seq": state_seq}).one())
        return Tail(head_seq, head_hash, Terms.from_record(terms_record(terms)), state)

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
        self._pending.append(row)
        state = entry if kind in ("reserve", "change") else tail.state
        self._tail = Tail(entry.seq, entry.hash, tail.terms, state, entry)
        return entry

    def find_reserved(self, reserved: list[Reserved]) -> EntryIndex:
        """The entries of some reservations and of their commits."""
        newest = self._tail.newest
        if len(reserved) == 1 and newest is not None and newest.kind == "reserve":
            one = reserved[0]
            if (one.hash, one.tick, one.query) == (newest.hash, newest.tick, newest.query):
                return {("reserve", one.tick, one.query): newest}  # nothing came after it, so no commit either
        return self.look_up("once", [one.tick for one in reserved])

    def look_up(self, which: Literal["once", "refused"], ticks: Iterable[int]) -> EntryIndex:
        """The newest entry of each kind, tick and query among those ticks."""
        wanted = sorted(set(ticks))
        rows: list[Any] = []
        near = self._dialect == "postgresql"
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            bound: dict[str, Any] = {"name": self.name, "ticks": chunk}
            if near:
                bound |= {"low": chunk[0], "high": chunk[-1]}
            rows += self.connection.execute((_RECORDED_NEAR if near else _RECORDED)[which], bound)
        rows.sort(key=attrgetter("seq"))
        return {(row.kind, row.tick, row.query): Entry(*row) for row in rows}

    def save(self) -> None:
        """Write the gathered rows and move the head."""
        tail = self._tail
        if self._pending:
            if len(self._pending) > 1:
                self.connection.execute(_APPEND, self._pending[:-1])
            last = {
                **self._pending[-1],
                "plan_number": tail.terms.number,
                "head_seq": tail.seq,
                "head_hash": tail.hash,
                "state_seq": None if tail.state is None else tail.state.seq,
            }
            for statement in _APPEND_LAST[self._dialect]:
                execute_raw(self.connection, statement, last)
            self._pending = []
        # If this transaction is undone the head has another hash, and nobody goes on from here.
        self._tails[self.name] = tail


def now() -> str:
    """The present moment, UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
