"""What only reads: queries, the export, and the verification of everything that was written."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from csdp.errors import LedgerConflictError, LedgerCorruptError, LedgerError
from csdp.ledger.database import Database
from csdp.ledger.records import (
    GENESIS,
    Entry,
    JSONObject,
    LedgerProblem,
    LedgerSummary,
    RecordedDataset,
    Terms,
    decode,
    encode,
    terms_digest,
)
from csdp.ledger.schema import LIVE, ONCE, PRODUCT, VERSION, datasets, entries, plans, trigger_names

_PAGE = 1000
CHUNK = 500  # bound variables per statement
#: Loads and checks the output of a commit entry, from its payload.
LoadOutput = Callable[[JSONObject], JSONObject]
_COMMITS = sa.select(entries).where(ONCE, entries.c.kind == "commit")


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


def paged_entries(database: Database, name: str, *, after: int = 0, kind: str | None = None) -> Iterator[Entry]:
    """The entries in order, a page per transaction so that a slow reader holds nobody up."""
    query = sa.select(entries).where(entries.c.dataset == name).order_by(entries.c.seq).limit(_PAGE)
    if kind is not None:
        query = query.where(entries.c.kind == kind)
    while True:
        with database.read() as connection:
            if after == 0:
                one_dataset(connection, name)
            rows = connection.execute(query.where(entries.c.seq > after)).all()
        yield from (Entry(*row) for row in rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1].seq


def committed_ticks(database: Database, name: str, *, query: str, after: int | None, limit: int) -> list[Entry]:
    """The outputs of the first `limit` ticks after one, or of the newest ones, by tick."""
    commits = _COMMITS.where(entries.c.dataset == name, entries.c.query == query)
    if after is not None:
        commits = commits.where(entries.c.tick > after)
    order = entries.c.tick.desc() if after is None else entries.c.tick
    with database.read() as connection:
        rows = connection.execute(commits.order_by(order).limit(limit)).all()
    return sorted((Entry(*row) for row in rows), key=lambda entry: entry.tick or 0)


def outputs_of(database: Database, name: str, ticks: Sequence[int], *, query: str | None) -> list[Entry]:
    """The outputs of some ticks, of one query or of all, as far as they are recorded; by tick."""
    commits = _COMMITS.where(entries.c.dataset == name)
    if query is not None:
        commits = commits.where(entries.c.query == query)
    rows: list[Any] = []
    with database.read() as connection:
        for start in range(0, len(ticks), CHUNK):
            rows += connection.execute(commits.where(entries.c.tick.in_(ticks[start : start + CHUNK]))).all()
    return sorted((Entry(*row) for row in rows), key=lambda entry: entry.tick or 0)


def summarise(connection: sa.Connection, name: str) -> LedgerSummary:
    """Counts, the newest charged tick and the state from which publishing resumes."""
    dataset = one_dataset(connection, name)
    counted = sa.select(entries.c.kind, sa.func.count()).where(entries.c.dataset == name).group_by(entries.c.kind)
    counts: dict[str, int] = {row[0]: row[1] for row in connection.execute(counted)}
    last = (
        sa.select(entries)
        .join(datasets, sa.and_(datasets.c.name == entries.c.dataset, datasets.c.state_seq == entries.c.seq))
        .where(datasets.c.name == name)
    )
    row = connection.execute(last).one_or_none()
    newest = sa.select(sa.func.max(entries.c.tick)).where(entries.c.dataset == name, entries.c.kind == "reserve")
    reserved, committed = counts.get("reserve", 0), counts.get("commit", 0)
    return LedgerSummary(
        dataset=name,
        reserved=reserved,
        committed=committed,
        lost=reserved - committed,
        refused=counts.get("refuse", 0),
        changes=counts.get("change", 0),
        newest_tick=connection.scalar(newest),
        state=None if row is None else Entry(*row).state(),
        head_seq=dataset.head_seq,
        head_hash=dataset.head_hash,
        terms=dataset.terms,
    )


def export_lines(database: Database, name: str) -> Iterator[str]:
    """The whole record of a dataset as JSON lines; hashes can be recomputed from them."""
    with database.read() as connection:
        dataset = one_dataset(connection, name)
        history = all_terms(connection, name)
    head: JSONObject = {
        "line": "dataset",
        "format": f"{PRODUCT}/{VERSION}",
        "name": name,
        "created": dataset.created,
    }
    yield encode(head, "a dataset")
    for terms in history:
        yield encode({"line": "terms", "digest": terms_digest(terms), **terms}, "the terms")
    for entry in paged_entries(database, name):
        yield encode({"line": "entry", **entry.__dict__}, "an entry")


# ---- verification


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
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
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
