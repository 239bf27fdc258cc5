"""The steps that append, each inside a transaction that the caller has begun and that locks the dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal

import sqlalchemy as sa

from csdp.errors import (
    BudgetExceeded,
    LedgerConflictError,
    LedgerLeaseError,
    LedgerTermsError,
)
from csdp.ledger.lease import Fence, leases
from csdp.ledger.outputs import Outputs
from csdp.ledger.records import (
    GENESIS,
    Admit,
    AdmitChange,
    Charge,
    DatasetState,
    Entry,
    JSONObject,
    Kind,
    Published,
    Refused,
    Request,
    Reserved,
    Terms,
    decode,
    encode,
    entry_hash,
    terms_digest,
)
from csdp.ledger.schema import (
    CHUNK,
    LIVE,
    ONCE,
    REFUSED,
    datasets,
    entries,
    plans,
    terms_record,
    unknown_dataset,
)

EntryIndex = dict[tuple[str, int, str], Entry]
#: What a refusal records, besides its words and the name of the limit.
_FIGURES = ("spent", "requested", "remaining", "fits", "affordable_from")

# Built once: putting a statement together costs more than SQLite needs to run it.
_TAIL = sa.select(datasets, plans).join(plans, LIVE).where(datasets.c.name == sa.bindparam("name"))
_LOCK = _TAIL.with_for_update(of=datasets)  # SQLite holds its one write lock already and ignores this
# Both rows are locked: who takes the lease over waits until this transaction has ended, or this one has to start again.
_LOCK_FENCED = (
    _TAIL.join(leases, leases.c.dataset == datasets.c.name)
    .where(leases.c.number == sa.bindparam("fence"))
    .with_for_update(of=[datasets, leases])
)
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
_MOVE_HEAD = (
    sa.update(datasets)
    .where(datasets.c.name == sa.bindparam("dataset"))
    .values({key: sa.bindparam(key) for key in ("plan_number", "head_seq", "head_hash", "state_seq")})
)


class Log:
    """The tail of one dataset's log, locked until the transaction ends; `save` writes what was appended."""

    def __init__(self, connection: sa.Connection, name: str, *, fence: Fence | None = None) -> None:
        self.connection = connection
        self.name = name
        bound: dict[str, Any] = {"name": name} if fence is None else {"name": name, "fence": fence.number}
        row = connection.execute(_LOCK if fence is None else _LOCK_FENCED, bound).one_or_none()
        if row is None and fence is not None and connection.execute(_TAIL, {"name": name}).one_or_none() is not None:
            raise LedgerLeaseError(
                f"another process has taken over dataset {name!r} (lease {fence.number} is not the newest): this one"
                " was silent for too long, and may write nothing more under that lease"
            )
        if row is None:
            raise unknown_dataset(connection, name)
        self.terms = Terms.from_record(terms_record(row))
        self.seq: int = row.head_seq
        self.hash: str = row.head_hash
        self.state_seq: int | None = row.state_seq
        self._pending: list[dict[str, Any]] = []

    def last(self) -> tuple[DatasetState | None, int | None, int | None]:
        """The state to go on from, the tick after which it holds, the first tick that may be charged."""
        if self.state_seq is None:
            return None, None, None
        entry = Entry(*self.connection.execute(_ENTRY, {"name": self.name, "seq": self.state_seq}).one())
        assert entry.tick is not None
        # A change takes effect before its first tick, so its state stands after the tick before.
        return entry.state(), entry.tick if entry.kind == "reserve" else entry.tick - 1, entry.tick

    def append(
        self, kind: Kind, payload: str, *, tick: int | None = None, query: str | None = None, plan: str | None = None
    ) -> Entry:
        """Add one entry to the chain, under the live plan unless another is named."""
        row: dict[str, Any] = {
            "dataset": self.name,
            "seq": self.seq + 1,
            "kind": kind,
            "tick": tick,
            "query": query,
            "plan": plan or self.terms.plan_digest,
            "time": now(),
            "payload": payload,
            "previous": self.hash,
        }
        row["hash"] = entry_hash(self.hash, row)
        entry = Entry(**row)
        self._pending.append(row)
        self.seq, self.hash = entry.seq, entry.hash
        if kind in ("reserve", "change"):
            self.state_seq = entry.seq
        return entry

    def look_up(self, which: Literal["once", "refused"], ticks: Iterable[int]) -> EntryIndex:
        """The newest entry of each kind, tick and query among those ticks."""
        wanted = sorted(set(ticks))
        rows: list[Any] = []
        near = self.connection.dialect.name == "postgresql"
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
        if not self._pending:
            return
        self.connection.execute(_APPEND, self._pending)
        head = {
            "dataset": self.name,
            "plan_number": self.terms.number,
            "head_seq": self.seq,
            "head_hash": self.hash,
            "state_seq": self.state_seq,
        }
        self.connection.execute(_MOVE_HEAD, head)
        self._pending = []


def now() -> str:
    """The present moment, UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def open_dataset(connection: sa.Connection, name: str, terms: Terms) -> None:
    """Record a dataset that is not there yet."""
    head = {"plan_number": 1, "head_seq": 0, "head_hash": GENESIS, "state_seq": None}
    connection.execute(sa.insert(datasets), {"name": name, "created": now(), **head})
    _insert_terms(connection, name, terms)
    log = Log(connection, name)
    log.append("open", encode({"number": 1, "terms": terms_digest(terms.to_record())}, "the terms"))
    log.save()


def change_terms(
    connection: sa.Connection, name: str, terms: Terms, admit: AdmitChange, *, fence: Fence | None = None
) -> None:
    """Record new terms from `terms.from_tick` on, with the state that the rule `admit` carries over."""
    log = Log(connection, name, fence=fence)
    if terms == replace(log.terms, number=terms.number):
        return  # the same change, asked again after its outcome was unknown
    assert terms.from_tick is not None
    state, last_tick, _ = log.last()
    if last_tick is not None and terms.from_tick <= last_tick:
        raise LedgerConflictError(
            f"dataset {name!r} is charged up to tick {last_tick}; a change can only hold from a later tick"
            f" on, not from {terms.from_tick}"
        )
    granted = admit(state, last_tick, log.terms)
    log.terms = replace(terms, number=log.terms.number + 1)
    _insert_terms(connection, name, log.terms)
    number, digest = log.terms.number, terms_digest(log.terms.to_record())
    payload = {"number": number, "terms": digest, **granted.to_record()}
    log.append("change", encode(payload, "the state and charge of a change"), tick=terms.from_tick)
    log.save()


def reserve(
    connection: sa.Connection,
    name: str,
    requests: Sequence[Request],
    admit: Admit,
    *,
    plan_digest: str,
    stop: bool,
    outputs: Outputs,
    fence: Fence | None = None,
) -> list[Reserved | Published | Refused]:
    """Decide on each request in order."""
    log = Log(connection, name, fence=fence)
    if plan_digest != log.terms.plan_digest:
        raise LedgerTermsError(
            f"dataset {name!r} is published under plan {log.terms.plan_digest[:12]}, not {plan_digest[:12]};"
            " use the recorded plan, or change it explicitly with change_plan"
        )
    state, last_tick, first = log.last()
    # Nothing is charged after the newest charged tick, so only older requests need a look.
    old = [request.tick for request in requests if last_tick is not None and request.tick <= last_tick]
    known = log.look_up("once", old) | log.look_up("refused", old)
    answers: list[Reserved | Published | Refused] = []
    for request in requests:
        tick, query = request.tick, request.query
        committed = known.get(("commit", tick, query))
        if committed is not None:
            # Inside the transaction: a damaged output file must not leave the rest of the batch charged.
            answers.append(outputs.to_published(committed))
            continue
        refusal = _recorded_refusal(name, request, known, first)
        if refusal is not None:
            answers.append(refusal)
            continue
        try:
            granted = admit(state, last_tick, replace(request, terms=log.terms))
        except BudgetExceeded as error:
            answers.append(_refuse(log, request, error))
            if stop:
                break
            continue
        payload = encode(granted.to_record(), "the state and charge of a release")
        entry = log.append("reserve", payload, tick=tick, query=query)
        known["reserve", tick, query] = entry
        # From the text, as a process that resumes reads it, so that both go on alike.
        content = decode(payload)
        state, last_tick, first = DatasetState.from_record(content["state"]), tick, tick
        charge = Charge.from_record(content["charge"])
        answers.append(Reserved(name, tick, query, entry.seq, entry.hash, state, charge))
    log.save()
    return answers


def commit(
    connection: sa.Connection,
    name: str,
    pairs: Sequence[tuple[Reserved, JSONObject]],
    outputs: Outputs,
    *,
    fence: Fence | None = None,
) -> list[Entry]:
    """Record outputs of reservations; the same output again changes nothing, another one is refused."""
    log = Log(connection, name, fence=fence)
    known = log.look_up("once", [reserved.tick for reserved, _ in pairs])
    written = []
    for reserved, output in pairs:
        tick, query = reserved.tick, reserved.query
        holds = known.get(("reserve", tick, query))
        if holds is None or holds.hash != reserved.hash:
            raise LedgerConflictError(
                f"dataset {name!r} has no such reservation of {query!r} at tick {tick}; reserve first"
            )
        prepared, content = outputs.prepare(holds.hash, output)
        payload = encode({"reserve": holds.seq, **prepared}, "an output")
        entry = known.get(("commit", tick, query))
        if entry is None:
            if content is not None:
                outputs.write(prepared, content)
            entry = log.append("commit", payload, tick=tick, query=query, plan=holds.plan)
            known["commit", tick, query] = entry
        elif entry.payload != payload:
            raise LedgerConflictError(
                f"dataset {name!r} has already published another output of {query!r} at tick {tick};"
                " publish the recorded one"
            )
        written.append(entry)
    log.save()
    return written


def _insert_terms(connection: sa.Connection, name: str, terms: Terms) -> None:
    row = {
        "dataset": name,
        "number": terms.number,
        "digest": terms.plan_digest,
        "plan": terms.plan_json,
        "chain": terms.chain_digest,
        "limits": encode(terms.recorded_limits(), "limits"),
        "guarantee": encode(terms.guarantee, "a guarantee"),
        "fit_cost": None if terms.fit_cost is None else encode(terms.fit_cost, "a fit cost"),
        "from_tick": terms.from_tick,
        "rule": terms.rule,
    }
    connection.execute(sa.insert(plans), row)


def _recorded_refusal(name: str, request: Request, known: EntryIndex, first: int | None) -> Refused | None:
    tick, query = request.tick, request.query
    held = known.get(("reserve", tick, query))
    if held is not None:
        reason = (
            f"tick {tick} of {query!r} is reserved but not committed: another process is publishing it, or"
            " was stopped before it could; it stays charged and cannot be reserved again"
        )
        return Refused(name, tick, query, "lost", reason, since=held.time)
    if first is None or tick >= first:
        return None
    earlier = known.get(("refuse", tick, query))
    if earlier is not None:  # a repeated run tells the same story as the first
        payload = earlier.data()
        figures = {figure: payload[figure] for figure in _FIGURES}
        error = BudgetExceeded(payload["reason"], limit_name=payload["limit"], **figures)
        return Refused(name, tick, query, "limit", str(error), error)
    reason = f"out of order: tick {tick} is older than {first}, the newest charged or the first of the live plan"
    return Refused(name, tick, query, "order", reason)


def _refuse(log: Log, request: Request, error: BudgetExceeded) -> Refused:
    tick, query = request.tick, request.query
    figures = {figure: getattr(error, figure) for figure in _FIGURES}
    payload = encode({"reason": str(error), "limit": error.limit_name, **figures}, "the figures of a refusal")
    earlier = log.look_up("refused", [tick]).get(("refuse", tick, query))
    if earlier is None or earlier.payload != payload:  # asking in a loop must not fill the disk
        log.append("refuse", payload, tick=tick, query=query)
    return Refused(log.name, tick, query, "limit", str(error), error)
