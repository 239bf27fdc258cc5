"""Queries that change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from csdp.errors import LedgerConflictError
from csdp.ledger.database import Database
from csdp.ledger.records import Dataset, Entry, JSONObject, Summary, Terms, decode, encode
from csdp.ledger.schema import LIVE, ONCE, PRODUCT, VERSION, datasets, entries, plans

_PAGE = 1000
CHUNK = 500  # bound variables per statement


def as_terms(row: Any) -> Terms:
    """The terms in a row of `csdp_plans`."""
    return Terms(
        number=row.number,
        plan_digest=row.digest,
        plan_json=row.plan,
        chain_digest=row.chain,
        limits=decode(row.limits),
        guarantee=decode(row.guarantee),
        fit_cost=None if row.fit_cost is None else decode(row.fit_cost),
        from_tick=row.from_tick,
        rule=row.rule,
    )


def as_entry(row: Any) -> Entry:
    """The entry in a row of `csdp_entries`."""
    return Entry(*row)


def resumed(entry: Entry | None) -> tuple[JSONObject | None, int | None]:
    """The accountant's state that an entry left behind, and the tick after which it holds."""
    if entry is None or entry.tick is None:
        return None, None
    # A change takes effect before its first tick, so its state stands after the tick before.
    return entry.data()["state"], entry.tick if entry.kind == "reserve" else entry.tick - 1


def all_datasets(connection: sa.Connection, name: str | None = None) -> list[Dataset]:
    """Every dataset with its live terms, or the one of that name."""
    query = sa.select(datasets, plans).join(plans, LIVE).order_by(datasets.c.name)
    if name is not None:
        query = query.where(datasets.c.name == name)
    rows = connection.execute(query).all()
    return [
        Dataset(
            name=row.name,
            created=row.created,
            terms=as_terms(row),
            head_seq=row.head_seq,
            head_hash=row.head_hash,
        )
        for row in rows
    ]


def one_dataset(connection: sa.Connection, name: str) -> Dataset:
    """The dataset of that name, or an error that lists the recorded ones."""
    found = all_datasets(connection, name)
    if found:
        return found[0]
    raise unknown(connection, name)


def unknown(connection: sa.Connection, name: str) -> LedgerConflictError:
    """The error for a name that is not recorded."""
    known = connection.scalars(sa.select(datasets.c.name).order_by(datasets.c.name).limit(10)).all()
    return LedgerConflictError(f"the ledger has no dataset {name!r}; recorded: {', '.join(known) or 'none'}")


def all_terms(connection: sa.Connection, name: str) -> list[Terms]:
    """Every set of terms the dataset ever had, oldest first."""
    rows = connection.execute(sa.select(plans).where(plans.c.dataset == name).order_by(plans.c.number))
    return [as_terms(row) for row in rows]


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
        yield from map(as_entry, rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1].seq


def committed_ticks(database: Database, name: str, *, query: str, after: int | None, limit: int) -> list[Entry]:
    """The outputs of the first `limit` ticks after one, or of the newest ones, by tick."""
    found = sa.select(entries).where(
        entries.c.dataset == name, ONCE, entries.c.kind == "commit", entries.c.query == query
    )
    if after is not None:
        found = found.where(entries.c.tick > after)
    order = entries.c.tick.desc() if after is None else entries.c.tick
    with database.read() as connection:
        rows = connection.execute(found.order_by(order).limit(limit)).all()
    return sorted(map(as_entry, rows), key=lambda entry: entry.tick or 0)


def outputs_of(database: Database, name: str, ticks: Sequence[int], *, query: str | None) -> list[Entry]:
    """The outputs of some ticks, of one query or of all, as far as they are recorded; by tick."""
    found = sa.select(entries).where(entries.c.dataset == name, ONCE, entries.c.kind == "commit")
    if query is not None:
        found = found.where(entries.c.query == query)
    rows: list[Any] = []
    with database.read() as connection:
        for start in range(0, len(ticks), CHUNK):
            rows += connection.execute(found.where(entries.c.tick.in_(ticks[start : start + CHUNK]))).all()
    return sorted(map(as_entry, rows), key=lambda entry: entry.tick or 0)


def summarise(connection: sa.Connection, name: str) -> Summary:
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
    state, _ = resumed(None if row is None else as_entry(row))
    newest = sa.select(sa.func.max(entries.c.tick)).where(entries.c.dataset == name, entries.c.kind == "reserve")
    reserved, committed = counts.get("reserve", 0), counts.get("commit", 0)
    return Summary(
        dataset=name,
        reserved=reserved,
        committed=committed,
        lost=reserved - committed,
        refused=counts.get("refuse", 0),
        changes=counts.get("change", 0),
        newest_tick=connection.scalar(newest),
        state=state,
        head_seq=dataset.head_seq,
        head_hash=dataset.head_hash,
        terms=dataset.terms,
    )


def exported(database: Database, name: str) -> Iterator[str]:
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
        yield encode({"line": "terms", "digest": terms.digest(), **terms.__dict__}, "the terms")
    for entry in paged_entries(database, name):
        yield encode({"line": "entry", **entry.__dict__}, "an entry")
