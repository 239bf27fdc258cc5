"""The verification of everything that was written: edits, removals and damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import sqlalchemy as sa

from csdp.errors import LedgerConflictError, LedgerCorruptError, LedgerError
from csdp.files import is_open_to_others
from csdp.ledger.records import GENESIS, Entry, JSONObject, LedgerProblem, terms_digest
from csdp.ledger.store import Database, all_terms, datasets, entries, trigger_names, unknown_dataset

_PAGE = 1000
#: Loads and checks the output of a commit entry, from its payload.
LoadOutput = Callable[[JSONObject], JSONObject]


def find_problems(
    database: Database, load_output: LoadOutput, *, name: str | None, head: str | None, file: Path | None
) -> Iterator[LedgerProblem]:
    """Everything that is wrong, in one snapshot of the ledger."""
    if head is not None and name is None:
        raise LedgerConflictError("a head is the head of one dataset: name the dataset too")
    if file is not None:
        yield from _file_problems(file)
    with database.read() as connection:
        yield from _database_problems(connection)
        query = sa.select(datasets).order_by(datasets.c.name)
        rows = connection.execute(query if name is None else query.where(datasets.c.name == name)).all()
        if name is not None and not rows:
            raise unknown_dataset(connection, name)
        if name is None:
            orphans = (
                sa.select(entries.c.dataset).distinct().where(entries.c.dataset.not_in(sa.select(datasets.c.name)))
            )
            for orphan in connection.scalars(orphans):
                yield LedgerProblem(orphan, None, "has entries but no dataset row")
        for row in rows:
            yield from _Verification(connection, load_output, row, head).problems()


class _Verification:
    """One pass over the log of one dataset."""

    def __init__(
        self, connection: sa.Connection, load_output: LoadOutput, row: sa.Row[tuple[object, ...]], head: str | None
    ) -> None:
        self.connection = connection
        self.load_output = load_output
        self.row = row
        self.name: str = row.name
        self.noted = head
        self.open: dict[tuple[int | None, str | None], tuple[int, str]] = {}
        self.plan: str | None = None
        self.newest: int | None = None
        self.state_seq: int | None = None
        self.number = 0

    def problems(self) -> Iterator[LedgerProblem]:
        digests = {terms["number"]: terms_digest(terms) for terms in all_terms(self.connection, self.name)}
        seq, previous = 0, GENESIS
        query = sa.select(entries).where(entries.c.dataset == self.name).order_by(entries.c.seq)
        rows = self.connection.execution_options(yield_per=_PAGE).execute(query)
        for row in rows:
            entry = Entry(*row)
            if entry.seq != seq + 1:
                yield self._problem(entry, f"follows entry {seq}: entries between them were removed")
            if entry.previous != previous or entry.hash != entry.computed_hash():
                yield self._problem(entry, "does not fit the hash chain: it or the entry before was altered")
            seq, previous = entry.seq, entry.hash
            if self.noted == entry.hash:
                self.noted = None
            try:
                yield from self._check_content(entry, digests)
            except (KeyError, TypeError, ValueError, LedgerCorruptError):
                yield self._problem(entry, "has a payload that cannot be read")
        yield from self._check_end(seq, previous, set(digests))

    def _check_content(self, entry: Entry, digests: dict[int, str]) -> Iterator[LedgerProblem]:
        key = (entry.tick, entry.query)
        payload = entry.data()
        if (entry.kind == "open") != (entry.seq == 1):
            yield self._problem(entry, "the first entry, and no other, opens the dataset")
        if entry.kind in ("open", "change"):
            self.number += 1
            if payload["number"] != self.number or digests.get(self.number) != payload["terms"]:
                yield self._problem(entry, "the recorded plan and limits are not the ones that were written")
            self.plan = entry.plan
        if entry.plan != self.plan and entry.kind != "commit":  # a commit keeps the plan it was reserved under
            yield self._problem(entry, "was written under a plan that was not live")
        if entry.kind in ("reserve", "change"):
            self.state_seq = entry.seq
            if entry.tick is None or (self.newest is not None and entry.tick < self.newest):
                yield self._problem(entry, "charges a tick older than the one before")
            self.newest = entry.tick
        if entry.kind == "reserve":
            self.open[key] = (entry.seq, entry.plan)
        if entry.kind == "commit":
            if self.open.pop(key, None) != (payload["reserve"], entry.plan):
                yield self._problem(entry, "publishes without a reservation of its own")
            try:
                self.load_output(payload)
            except LedgerError as error:
                yield self._problem(entry, str(error))

    def _check_end(self, seq: int, previous: str, numbers: set[int]) -> Iterator[LedgerProblem]:
        end = (self.row.head_seq, self.row.head_hash, self.row.state_seq, self.row.plan_number)
        if end != (seq, previous, self.state_seq, self.number):
            what = f"its row (head {self.row.head_seq}) disagrees with the log, which ends at entry {seq}"
            yield LedgerProblem(self.name, None, what)
        if numbers != set(range(1, self.number + 1)):
            yield LedgerProblem(self.name, None, "plans are recorded that no entry speaks of")
        if self.noted is not None:
            yield LedgerProblem(self.name, None, "the noted head is not in the log: it was cut, replaced or restored")

    def _problem(self, entry: Entry, what: str) -> LedgerProblem:
        return LedgerProblem(self.name, entry.seq, what)


def _file_problems(file: Path) -> Iterator[LedgerProblem]:
    for path in (file, *(file.with_name(file.name + suffix) for suffix in ("-wal", "-shm"))):
        if path.exists() and is_open_to_others(path):
            yield LedgerProblem(None, None, f"{path.name} can be opened by other users; chmod 600 it")


def _database_problems(connection: sa.Connection) -> Iterator[LedgerProblem]:
    dialect = connection.dialect.name
    if dialect == "sqlite":
        for line in connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars():
            if line != "ok":
                yield LedgerProblem(None, None, f"the database is damaged: {line}")
        names = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    else:
        if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
            yield LedgerProblem(None, None, "the server runs with fsync off: a power cut may forget charges")
        names = (
            "SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
            " WHERE tgenabled <> 'D' AND pg_table_is_visible(pg_class.oid)"
        )
    missing = trigger_names(dialect) - set(connection.exec_driver_sql(names).scalars())
    if missing:
        yield LedgerProblem(None, None, f"append-only triggers are missing: {', '.join(sorted(missing))}")
