"""The ledger as its users see it: register, reserve, commit, and questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self

import sqlalchemy as sa

from csdp import check
from csdp.errors import (
    BudgetExceeded,
    InputError,
    LedgerConflictError,
    LedgerCorruptError,
    LedgerError,
    LedgerTermsError,
)
from csdp.ledger.records import (
    GENESIS,
    Admit,
    AdmitChange,
    DatasetState,
    Entry,
    JSONObject,
    Kind,
    LedgerProblem,
    LedgerSummary,
    Published,
    RecordedDataset,
    Refused,
    Request,
    Reserved,
    Terms,
    check_tick,
    decode,
    encode,
    entry_hash,
    sha256,
    terms_digest,
)
from csdp.ledger.store import (
    LIVE,
    ONCE,
    PRODUCT,
    REFUSED,
    VERSION,
    Database,
    all_datasets,
    all_terms,
    datasets,
    entries,
    one_dataset,
    open_file,
    open_url,
    parse_place,
    plans,
    terms_record,
    unknown_dataset,
)
from csdp.ledger.verify import find_problems

#: Entries that are read in one transaction, and ticks that are looked up in one statement.
_PAGE, _CHUNK = 1000, 500
#: What a refusal records, besides its words and the name of the limit.
_FIGURES = ("spent", "requested", "remaining", "fits", "affordable_from")
_EntryIndex = dict[tuple[str, int, str], Entry]

# Built once: putting a statement together costs more than SQLite needs to run it.
_LOCKED = (
    sa.select(datasets, plans)
    .join(plans, LIVE)
    .where(datasets.c.name == sa.bindparam("name"))
    .with_for_update(of=datasets)
)
_ENTRY = sa.select(entries).where(entries.c.dataset == sa.bindparam("name"), entries.c.seq == sa.bindparam("seq"))
_MOVE = sa.update(datasets).where(
    datasets.c.name == sa.bindparam("dataset"), datasets.c.head_hash == sa.bindparam("before")
)
_INSERT = sa.insert(entries)
# No ORDER BY: it would tempt SQLite into walking the whole log in order instead of using the partial index.
_RECORDED = {
    name: sa.select(entries).where(
        entries.c.dataset == sa.bindparam("name"), which, entries.c.tick.in_(sa.bindparam("ticks"))
    )
    for name, which in (("once", ONCE), ("refused", REFUSED))
}


class _Log:
    """The log of a dataset that a transaction has locked; `append` adds entries, which `save` writes.

    Args:
        connection: in the transaction.
        name: of the dataset.
        terms: that hold now.
        seq: number of the newest entry.
        head: its hash.
        state: the newest reservation or change, with the state to go on from.
        newest: a reservation that this process made, perhaps that one.
    """

    def __init__(
        self,
        connection: sa.Connection,
        name: str,
        terms: Terms,
        *,
        seq: int = 0,
        head: str = GENESIS,
        state: Entry | None = None,
        newest: Reserved | None = None,
    ) -> None:
        self.connection = connection
        self.name = name
        self.terms = terms
        self._seq = seq
        self._before = self._head = head
        self._state = state
        self._newest = newest
        self._pending: list[dict[str, Any]] = []

    @classmethod
    def lock(cls, connection: sa.Connection, name: str, newest: Reserved | None = None) -> Self:
        """Lock the dataset until the transaction ends, and read where its log stands.

        `newest`: a reservation whose state need not be read if it is still the newest.
        """
        row = connection.execute(_LOCKED, {"name": name}).one_or_none()
        if row is None:
            raise unknown_dataset(connection, name)
        state = None
        if row.state_seq is not None:
            state = Entry(*connection.execute(_ENTRY, {"name": name, "seq": row.state_seq}).one())
        terms = Terms.from_record(terms_record(row))
        return cls(connection, name, terms, seq=row.head_seq, head=row.head_hash, state=state, newest=newest)

    def last(self) -> tuple[DatasetState | None, int | None, int | None]:
        """The state to go on from, the tick after which it holds, the first tick that may be charged."""
        entry = self._state
        if entry is None:
            return None, None, None
        assert entry.tick is not None
        newest = self._newest
        state = newest.state if newest is not None and newest.hash == entry.hash else entry.state()
        # A change takes effect before its first tick, so its state stands after the tick before.
        return state, entry.tick if entry.kind == "reserve" else entry.tick - 1, entry.tick

    def append(
        self, kind: Kind, payload: str, *, tick: int | None = None, query: str | None = None, plan: str | None = None
    ) -> Entry:
        """Add one entry to the chain, under the live plan unless another is named."""
        row: dict[str, Any] = {
            "dataset": self.name,
            "seq": self._seq + 1,
            "kind": kind,
            "tick": tick,
            "query": query,
            "plan": plan or self.terms.plan_digest,
            "time": _now(),
            "payload": payload,
            "previous": self._head,
        }
        row["hash"] = entry_hash(self._head, row)
        entry = Entry(**row)
        self._pending.append(row)
        self._seq, self._head = entry.seq, entry.hash
        if kind in ("reserve", "change"):
            self._state = entry
        return entry

    def save(self) -> None:
        """Write what was appended, and move the head."""
        if not self._pending:
            return
        moved = self.connection.execute(
            _MOVE,
            {
                "dataset": self.name,
                "before": self._before,
                "plan_number": self.terms.number,
                "head_seq": self._seq,
                "head_hash": self._head,
                "state_seq": None if self._state is None else self._state.seq,
            },
        )
        if moved.rowcount != 1:
            raise LedgerCorruptError(
                f"the head of dataset {self.name!r} has moved while it was locked; verify the ledger"
            )
        self.connection.execute(_INSERT, self._pending)

    def look_up(self, which: Literal["once", "refused"], ticks: Iterable[int]) -> _EntryIndex:
        """The newest entry of each kind, tick and query among those ticks."""
        wanted = sorted(set(ticks))
        rows: list[Any] = []
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            query = _RECORDED[which]
            if self.connection.dialect.name == "postgresql":  # keeps it near those ticks while it has no statistics
                query = query.where(entries.c.tick >= chunk[0], entries.c.tick <= chunk[-1])
            rows += self.connection.execute(query, {"name": self.name, "ticks": chunk})
        rows.sort(key=attrgetter("seq"))
        return {(row.kind, row.tick, row.query): Entry(*row) for row in rows}


class Ledger:
    """A durable, append-only record of what was charged and what was published. It contains no mathematics.

    Guarantees, for any number of processes: a charge is recorded before its `Reserved` is handed out, and durable
    before its output can be read; one tick and query is charged at most once and published at most once; what was
    published can be asked for again and costs nothing; a transaction that fails leaves nothing behind. Raw readings
    never enter: a payload holds only what the caller's `admit` rule and `commit` hand over.

    >>> import tempfile
    >>> from csdp.errors import BudgetExceeded
    >>> from csdp.ledger import Admission, Charge, DatasetState, Ledger, PrivacyLimits, Request, Terms
    >>> def admit(state, last_tick, request):
    ...     spent = 0.5 + (state.cost if state else 0)
    ...     if spent > request.terms.limits.budget:
    ...         raise BudgetExceeded("spent", limit_name="budget", spent=1, requested=spent, remaining=0)
    ...     return Admission(DatasetState(cost=spent), Charge(present=0.5))
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.open(f"{folder.name}/ledger.db") as ledger:
    ...     terms = Terms(plan_digest="p", plan_json="{}", chain_digest="c", limits=PrivacyLimits(budget=1.0))
    ...     _ = ledger.register("ward-7", terms)
    ...     first, second, third = ledger.reserve("ward-7", [Request(t, "mean") for t in (1, 2, 3)], admit,
    ...                                           plan_digest="p")
    ...     _ = ledger.commit(first, {"value": 20.5})
    ...     again, = ledger.reserve("ward-7", [Request(1, "mean")], admit, plan_digest="p")
    ...     print(type(second).__name__, third.why, again.output, ledger.summary("ward-7").lost)
    Reserved limit {'value': 20.5} 1
    >>> folder.cleanup()
    """

    def __init__(self, database: Database, file: Path | None) -> None:
        self._database = database
        self._file = file
        self._newest: dict[str, Reserved] = {}  # the last reservation made here, by dataset

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        create: bool = True,
        read_only: bool = False,
        timeout: float = 30.0,
    ) -> Self:
        """Open the ledger at a path, `sqlite:///path` or `postgresql://...`; use it as a context manager.

        A new file has mode 0600. Files that are damaged, truncated, foreign or of another version raise and
        are left as they are.

        Args:
            where: a path or URL.
            create: whether a ledger that does not exist is created.
            read_only: for questions: a file or database role without the right to write will do.
            timeout: seconds to wait for a lock.
        """
        check.number("timeout", timeout, above=0)
        place = parse_place(where)
        if isinstance(place, Path):
            place = place.absolute()
            return cls(open_file(place, create=create, read_only=read_only, timeout=timeout), place)
        return cls(open_url(place, create=create, read_only=read_only, timeout=timeout), None)

    def close(self) -> None:
        """Close the ledger; calling twice is fine."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger: {self._database.label}>"

    # ---- who publishes

    def hold(self, dataset: str, *, standby: bool = False) -> None:
        """Hold the right to publish a dataset until the ledger is closed or the process ends.

        `csdp serve`, `csdp stream` and `csdp release` hold it, so that one of them publishes a dataset at a time. On
        PostgreSQL everything is then written on the session that holds it; if that session ends, so does the right, and
        `reserve`, `commit` and `change_plan` raise LedgerHeldError.

        Args:
            dataset: name of the dataset.
            standby: wait while another process holds it, and take over when it ends; else LedgerHeldError.
        """
        self._database.hold(dataset, standby=standby)

    def check_held(self) -> None:
        """Raise LedgerHeldError if the right to publish that `hold` took was lost."""
        self._database.check_held()

    # ---- writing

    def register(self, dataset: str, terms: Terms) -> RecordedDataset:
        """Record a new dataset, or check that it is published under exactly these terms.

        A recorded dataset with another chain, plan, limits, grid or fit cost raises `LedgerConflictError`; nothing
        about it is ever changed here.
        """
        check.text("dataset", dataset)
        first = _normalise_terms(replace(terms, number=1, from_tick=None, rule=None))

        def work(connection: sa.Connection) -> RecordedDataset:
            for recorded in all_datasets(connection, dataset):
                _check_same_terms(recorded, first)
                return recorded
            head = {"plan_number": 1, "head_seq": 0, "head_hash": GENESIS, "state_seq": None}
            connection.execute(sa.insert(datasets), {"name": dataset, "created": _now(), **head})
            _insert_terms(connection, dataset, first)
            log = _Log(connection, dataset, first)
            log.append("open", encode({"number": 1, "terms": terms_digest(first.to_record())}, "the terms"))
            log.save()
            return one_dataset(connection, dataset)

        return self._database.write(work)

    def change_plan(self, dataset: str, terms: Terms, admit: AdmitChange) -> RecordedDataset:
        """Record that other terms hold from `terms.from_tick` on, explicitly and permanently.

        `terms.rule` says in words how the accountant's state is carried over; `admit(last_state, last_tick,
        recorded_terms)` does it and returns the state as it stands after tick `from_tick - 1`. `from_tick` must lie
        after everything charged; older ticks can no longer be charged. Whatever `admit` raises leaves all
        as it was.
        """
        if terms.from_tick is None or terms.rule is None or not terms.rule.strip():
            raise InputError(
                "a change needs its first tick and its rule in words: how is the accountant's state carried over?"
            )
        # The next number is known once the dataset is locked.
        changed = _normalise_terms(replace(terms, number=1, from_tick=check_tick(terms.from_tick)))

        def work(connection: sa.Connection) -> RecordedDataset:
            log = _Log.lock(connection, dataset)
            _change_terms(log, changed, admit)
            log.save()
            return one_dataset(connection, dataset)

        return self._database.write(work)

    def reserve(
        self,
        dataset: str,
        requests: Sequence[Request],
        admit: Admit,
        *,
        plan_digest: str,
        stop: bool = False,
    ) -> list[Reserved | Published | Refused]:
        """Decide on requests in order, in one serialisable transaction; charges are then durable.

        `admit(last_state, last_tick, request)` grants an `Admission` or raises `BudgetExceeded`; it must be
        pure and quick, since it runs under the lock and may run again when a race is lost. `request.terms` are
        the terms that are recorded at that moment: compare with their limits, not with those of an earlier day.
        Another plan than `plan_digest` on record raises `LedgerTermsError`. An answer is `Published` when the output
        is already recorded (no charge), `Refused` when nothing may be published, or `Reserved`: only then draw noise,
        and `commit`. With `stop` the first refusal by a limit ends the batch: fewer answers than requests. Any other
        exception from `admit` undoes the whole batch.
        """

        def work(connection: sa.Connection) -> list[Reserved | Published | Refused]:
            log = _Log.lock(connection, dataset, self._newest.get(dataset))
            if plan_digest != log.terms.plan_digest:
                raise LedgerTermsError(
                    f"dataset {dataset!r} is published under plan {log.terms.plan_digest[:12]}, not"
                    f" {plan_digest[:12]}; use the recorded plan, or change it explicitly with change_plan"
                )
            answers = self._decide(log, requests, admit, stop)
            log.save()
            return answers

        answers = self._database.write(work)
        for answer in answers:
            if isinstance(answer, Reserved):
                self._newest[dataset] = answer
        return answers

    def _decide(
        self, log: _Log, requests: Sequence[Request], admit: Admit, stop: bool
    ) -> list[Reserved | Published | Refused]:
        state, last_tick, first = log.last()
        # Nothing is charged after the newest charged tick, so only older requests need a look.
        old = [request.tick for request in requests if last_tick is not None and request.tick <= last_tick]
        known = log.look_up("once", old) | log.look_up("refused", old) if old else {}
        answers: list[Reserved | Published | Refused] = []
        for request in requests:
            tick, query = request.tick, request.query
            committed = known.get(("commit", tick, query))
            if committed is not None:
                answers.append(self.to_published(committed))
                continue
            refusal = _recorded_refusal(log.name, request, known, first)
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
            state, last_tick, first = granted.state, tick, tick
            answers.append(Reserved(log.name, tick, query, entry.seq, entry.hash, state, granted.charge))
        return answers

    def commit(self, reserved: Reserved, output: JSONObject) -> Published:
        """Record the output of a reservation; durable when this returns, and only then may it leave.

        Repeating the call with the same output changes nothing; another output, or a reservation that this
        ledger does not know, raises `LedgerConflictError`.
        """
        return self.commit_many([(reserved, output)])[0]

    def commit_many(self, pairs: Sequence[tuple[Reserved, JSONObject]]) -> list[Published]:
        """Commit several outputs of one dataset in one transaction: all of them or none."""
        names = {reserved.dataset for reserved, _ in pairs}
        if not names:
            return []
        if len(names) > 1:
            raise InputError("commit_many takes reservations of one dataset at a time")
        name = names.pop()

        def work(connection: sa.Connection) -> list[Entry]:
            log = _Log.lock(connection, name)
            known = log.look_up("once", [reserved.tick for reserved, _ in pairs])
            written = [_commit(log, known, reserved, output) for reserved, output in pairs]
            log.save()
            return written

        return list(map(self.to_published, self._database.write(work)))

    # ---- reading

    def datasets(self) -> list[RecordedDataset]:
        """Every dataset with its live terms, by name."""
        with self._database.read() as connection:
            return all_datasets(connection)

    def dataset(self, name: str) -> RecordedDataset:
        """One dataset; an unknown name raises `LedgerConflictError` and lists the recorded ones."""
        with self._database.read() as connection:
            return one_dataset(connection, name)

    def history(self, name: str) -> list[Terms]:
        """Every set of terms the dataset was published under, oldest first."""
        with self._database.read() as connection:
            one_dataset(connection, name)
            return [Terms.from_record(record) for record in all_terms(connection, name)]

    def entries(self, name: str, *, after: int = 0, kind: Kind | None = None) -> Iterator[Entry]:
        """The log in order, from the entry after number `after`: a page per transaction, so that no lock is held."""
        query = sa.select(entries).where(entries.c.dataset == name).order_by(entries.c.seq).limit(_PAGE)
        if kind is not None:
            query = query.where(entries.c.kind == kind)
        while True:
            with self._database.read() as connection:
                if after == 0:
                    one_dataset(connection, name)
                rows = connection.execute(query.where(entries.c.seq > after)).all()
            yield from (Entry(*row) for row in rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1].seq

    def published(self, name: str, *, after: int = 0) -> Iterator[Published]:
        """Every published output, in the order of publication, from the entry after number `after`."""
        return map(self.to_published, self.entries(name, after=after, kind="commit"))

    def outputs(
        self,
        name: str,
        *,
        query: str | None = None,
        after: int | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[Published]:
        """Published outputs by tick: the first ones after a tick, else the newest ones.

        Args:
            name: of the dataset.
            query: of this query only.
            after: later ticks only.
            before: earlier ticks only.
            limit: how many at most.
        """
        commits = sa.select(entries).where(ONCE, entries.c.kind == "commit", entries.c.dataset == name)
        if query is not None:
            commits = commits.where(entries.c.query == query)
        if after is not None:
            commits = commits.where(entries.c.tick > after)
        if before is not None:
            commits = commits.where(entries.c.tick < before)
        order = entries.c.tick.desc() if after is None else entries.c.tick
        with self._database.read() as connection:
            rows = connection.execute(commits.order_by(order).limit(limit)).all()
        return sorted((self.to_published(Entry(*row)) for row in rows), key=lambda output: output.tick)

    def to_published(self, entry: Entry) -> Published:
        """The output that a "commit" entry records, with its tick and query."""
        assert entry.tick is not None
        assert entry.query is not None
        return Published(
            dataset=entry.dataset,
            tick=entry.tick,
            query=entry.query,
            seq=entry.seq,
            plan_digest=entry.plan,
            time=entry.time,
            output=self._load_output(entry.data()),
        )

    def _load_output(self, payload: JSONObject) -> JSONObject:
        """The output of a commit entry. csdp 0.2 wrote those of more than 10,000 values to files beside the ledger."""
        if "output" in payload:
            output: JSONObject = payload["output"]
            return output
        if self._file is None:
            raise LedgerError("csdp 0.2 wrote this output to a file beside a ledger on a server: read it with csdp 0.2")
        folder = self._file.with_name(self._file.name + ".outputs")
        path = folder / Path(payload["file"]["name"]).name  # a tampered name must not lead elsewhere
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError as error:
            raise LedgerCorruptError(
                f"the output file {path.name} cannot be read ({error.strerror}); restore it from a backup"
            ) from None
        if sha256(text) != payload["file"]["sha256"]:
            raise LedgerCorruptError(f"the output file {path.name} is not what was published; restore it")
        return decode(text)

    def summary(self, name: str) -> LedgerSummary:
        """Counts, the live terms, the newest charged tick, the state to resume from, and the head of the hash chain."""
        last = (
            sa.select(entries)
            .join(datasets, sa.and_(datasets.c.name == entries.c.dataset, datasets.c.state_seq == entries.c.seq))
            .where(datasets.c.name == name)
        )
        # One statement for each partial index: neither reads the log itself.
        counts = [
            sa.select(entries.c.kind, sa.func.count(), sa.func.max(entries.c.tick))
            .where(entries.c.dataset == name, which)
            .group_by(entries.c.kind)
            for which in (ONCE, REFUSED)
        ]
        with self._database.read() as connection:
            dataset = one_dataset(connection, name)
            row = connection.execute(last).one_or_none()
            found = {kind: (count, tick) for query in counts for kind, count, tick in connection.execute(query)}
        reserved, newest_tick = found.get("reserve", (0, None))
        committed, _ = found.get("commit", (0, None))
        refused, _ = found.get("refuse", (0, None))
        return LedgerSummary(
            dataset=name,
            reserved=reserved,
            committed=committed,
            lost=reserved - committed,
            refused=refused,
            changes=dataset.terms.number - 1,
            newest_tick=newest_tick,
            state=None if row is None else Entry(*row).state(),
            head_seq=dataset.head_seq,
            head_hash=dataset.head_hash,
            terms=dataset.terms,
        )

    def export(self, name: str) -> Iterator[str]:
        """The whole record of a dataset as JSON lines, from which every hash can be recomputed."""
        with self._database.read() as connection:
            dataset = one_dataset(connection, name)
            history = all_terms(connection, name)
        head = {"line": "dataset", "format": f"{PRODUCT}/{VERSION}", "name": name, "created": dataset.created}
        yield encode(head, "a dataset")
        for terms in history:
            yield encode({"line": "terms", "digest": terms_digest(terms), **terms}, "the terms")
        for entry in self.entries(name):
            yield encode({"line": "entry", **entry.__dict__}, "an entry")

    def verify(self, name: str | None = None, *, head: str | None = None) -> list[LedgerProblem]:
        """Look for edits, removals and damage; an empty list means none was found.

        A process that can write the file can also rewrite the whole chain, or put back an old copy. Note the
        `head_hash` of `summary` elsewhere and give it as `head`: then a cut, replaced or restored log is
        found too.
        """
        return list(find_problems(self._database, self._load_output, name=name, head=head, file=self._file))


def _normalise_terms(terms: Terms) -> Terms:
    """The terms as they come back from disk (a tuple is a list); or an error if they cannot be recorded."""
    return Terms.from_record(decode(encode(terms.to_record(), "limits, guarantee and fit cost")))


def _check_same_terms(dataset: RecordedDataset, asked: Terms) -> None:
    """Refuse other terms than those that are recorded."""
    live = dataset.terms
    # Not the guarantee: it follows from the plan, and its wording may differ between versions.
    differences = [
        f"{what} (recorded {old!r}, given {new!r})"
        for what, old, new in (
            ("chain", live.chain_digest[:12], asked.chain_digest[:12]),
            ("plan", live.plan_digest[:12], asked.plan_digest[:12]),
            ("limits", live.recorded_limits(), asked.recorded_limits()),
            ("fit cost", live.fit_cost, asked.fit_cost),
        )
        if old != new
    ]
    if differences:
        raise LedgerConflictError(
            f"dataset {dataset.name!r} is published under other terms: {'; '.join(differences)}. Use the recorded"
            " ones, a new dataset name for other data, or Ledger.change_plan, which records the change"
        )


def _change_terms(log: _Log, terms: Terms, admit: AdmitChange) -> None:
    """Record new terms from `terms.from_tick` on, with the state that the rule `admit` carries over."""
    name = log.name
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
    _insert_terms(log.connection, name, log.terms)
    number, digest = log.terms.number, terms_digest(log.terms.to_record())
    payload = {"number": number, "terms": digest, **granted.to_record()}
    log.append("change", encode(payload, "the state and charge of a change"), tick=terms.from_tick)


def _commit(log: _Log, known: _EntryIndex, reserved: Reserved, output: JSONObject) -> Entry:
    """Record the output of a reservation; the same output again changes nothing, another one is refused."""
    tick, query = reserved.tick, reserved.query
    holds = known.get(("reserve", tick, query))
    if holds is None or holds.hash != reserved.hash:
        raise LedgerConflictError(
            f"dataset {log.name!r} has no such reservation of {query!r} at tick {tick}; reserve first"
        )
    payload = encode({"reserve": holds.seq, "output": output}, "an output")
    entry = known.get(("commit", tick, query))
    if entry is None:
        entry = log.append("commit", payload, tick=tick, query=query, plan=holds.plan)
        known["commit", tick, query] = entry
    elif entry.payload != payload:
        raise LedgerConflictError(
            f"dataset {log.name!r} has already published another output of {query!r} at tick {tick};"
            " publish the recorded one"
        )
    return entry


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


def _recorded_refusal(name: str, request: Request, known: _EntryIndex, first: int | None) -> Refused | None:
    tick, query = request.tick, request.query
    if ("reserve", tick, query) in known:
        reason = (
            f"tick {tick} of {query!r} is reserved but not committed: another process is publishing it, or"
            " was stopped before it could; it stays charged and cannot be reserved again"
        )
        return Refused(name, tick, query, "lost", reason)
    if first is None or tick >= first:
        return None
    earlier = known.get(("refuse", tick, query))
    if earlier is not None:  # a repeated run gives the same answer as the first
        payload = earlier.data()
        figures = {figure: payload[figure] for figure in _FIGURES}
        error = BudgetExceeded(payload["reason"], limit_name=payload["limit"], **figures)
        return Refused(name, tick, query, "limit", str(error), error)
    reason = f"out of order: tick {tick} is older than {first}, the newest charged or the first of the live plan"
    return Refused(name, tick, query, "order", reason)


def _refuse(log: _Log, request: Request, error: BudgetExceeded) -> Refused:
    tick, query = request.tick, request.query
    figures = {figure: getattr(error, figure) for figure in _FIGURES}
    payload = encode({"reason": str(error), "limit": error.limit_name, **figures}, "the figures of a refusal")
    earlier = log.look_up("refused", [tick]).get(("refuse", tick, query))
    if earlier is None or earlier.payload != payload:  # asking in a loop must not fill the disk
        log.append("refuse", payload, tick=tick, query=query)
    return Refused(log.name, tick, query, "limit", str(error), error)


def _now() -> str:
    """The present moment, UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
