"""The ledger as its users see it: register, reserve, commit, and questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import sqlalchemy as sa

from csdp.errors import CsdpError, InputError
from csdp.ledger import writing
from csdp.ledger.database import Database
from csdp.ledger.lease import DatabaseLease, Fence, Lease, OnlyProcess, create_table
from csdp.ledger.log import AppendQueue, Log, NotRememberedError, Tail
from csdp.ledger.open import open_file, open_url, parse_place
from csdp.ledger.outputs import Outputs
from csdp.ledger.records import (
    Admit,
    AdmitChange,
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
    check_name,
    check_tick,
    encode,
    terms_digest,
)
from csdp.ledger.schema import (
    CHUNK,
    ONCE,
    PRODUCT,
    VERSION,
    all_datasets,
    all_terms,
    datasets,
    entries,
    one_dataset,
)
from csdp.ledger.verification import find_problems

#: Entries that are read in one transaction.
_PAGE = 1000
Result = TypeVar("Result")
_COMMITS = sa.select(entries).where(ONCE, entries.c.kind == "commit")


@dataclass(frozen=True)
class _Try(Generic[Result]):
    """What came of an append from memory; `written` is None where the connection was lost, so nobody knows."""

    tail: Tail
    result: Result
    written: bool | None


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

    def __init__(self, database: Database, outputs: Outputs, file: Path | None, fence: Fence | None = None) -> None:
        self._database = database
        self._outputs = outputs
        self.to_published = outputs.to_published  #: the output that a "commit" entry records
        self._file = file
        self._fence = fence
        self._tails: dict[str, Tail] = {}
        self._counted: dict[str, tuple[int, str, Counter[str]]] = {}  # up to which entry, its hash, and how many
        self._queue = None if file is None else AppendQueue.of(file)

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        create: bool = True,
        read_only: bool = False,
        timeout: float = 30.0,
        outputs: str | Path | None = None,
        fence: Fence | None = None,
    ) -> Self:
        """Open the ledger at a path, `sqlite:///path` or `postgresql://...`; use it as a context manager.

        A new file has mode 0600. Files that are damaged, truncated, foreign or of another version raise and
        are left as they are.

        Args:
            where: a path or URL.
            create: whether a ledger that does not exist is created.
            read_only: for questions: a file or database role without the right to write will do.
            timeout: seconds to wait for a lock.
            outputs: the directory of large outputs; default beside a SQLite file, none for PostgreSQL.
            fence: of a lease (see `lease`): its dataset is written to only while that lease is held; after another
                process has taken over, `reserve`, `commit` and `change_plan` raise LedgerLeaseError.
        """
        if not timeout > 0:
            raise InputError("timeout must be a positive number of seconds")
        place = parse_place(where)
        directory = None if outputs is None else Path(outputs).absolute()
        if isinstance(place, Path):
            if fence is not None:
                raise InputError("fence: a ledger in a file has no leases; leave it out")
            place = place.absolute()
            database = open_file(place, create=create, read_only=read_only, timeout=timeout)
            return cls(database, Outputs(directory or place.with_name(place.name + ".outputs")), place)
        idle = None if fence is None else fence.seconds
        database = open_url(place, create=create, read_only=read_only, timeout=timeout, idle_seconds=idle)
        return cls(database, Outputs(directory), None, fence)

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

    def lease(self, dataset: str, *, seconds: float = 10.0) -> Lease:
        """The lease of a dataset, which one process at a time holds; not yet taken, see `Lease.renew`.

        With a ledger in a file there is one process, which always holds it.

        Args:
            dataset: name of the dataset.
            seconds: a holder that does not renew for so long is replaced.
        """
        if self._file is not None:
            return OnlyProcess()
        self._database.write(create_table)
        return DatabaseLease(self._database.engine, dataset, seconds=seconds)

    def _fence_of(self, dataset: str) -> Fence | None:
        return self._fence if self._fence is not None and self._fence.dataset == dataset else None

    # ---- writing

    def register(self, dataset: str, terms: Terms) -> RecordedDataset:
        """Record a new dataset, or check that it is published under exactly these terms.

        A recorded dataset with another chain, plan, limits, grid or fit cost raises `LedgerConflictError`; nothing
        about it is ever changed here.
        """
        check_name(dataset, "a dataset's name")
        first = writing.normalise_terms(replace(terms, number=1, from_tick=None, rule=None))

        def work(connection: sa.Connection) -> RecordedDataset:
            for recorded in all_datasets(connection, dataset):
                writing.check_same_terms(recorded, first)
                return recorded
            writing.open_dataset(connection, dataset, first)
            return one_dataset(connection, dataset)

        return self._database.write(work)

    def change_plan(self, dataset: str, terms: Terms, admit: AdmitChange) -> RecordedDataset:
        """Record that other terms hold from `terms.from_tick` on, explicitly and for ever.

        `terms.rule` says in words how the accountant's state is carried over; `admit(last_state, last_tick,
        recorded_terms)` does it and returns the state as it stands after tick `from_tick - 1`. `from_tick` must lie
        after everything charged; older ticks can no longer be charged. Whatever `admit` raises leaves all
        as it was.
        """
        check_name(dataset, "a dataset's name")
        if terms.from_tick is None or terms.rule is None or not terms.rule.strip():
            raise InputError(
                "a change needs its first tick and its rule in words: how is the accountant's state carried over?"
            )
        # The next number is known once the dataset is locked.
        changed = writing.normalise_terms(replace(terms, number=1, from_tick=check_tick(terms.from_tick)))

        def work(connection: sa.Connection) -> RecordedDataset:
            fence = self._fence_of(dataset)
            log = Log.lock(connection, dataset, self._tails.get(dataset), fence=fence)
            writing.change_terms(connection, log, changed, admit)
            writing.save(connection, log, fence)
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
        durable: bool = True,
    ) -> list[Reserved | Published | Refused]:
        """Decide on requests in order, in one serialisable transaction; charges are then durable.

        `admit(last_state, last_tick, request)` grants an `Admission` or raises `BudgetExceeded`; it must be
        pure and quick, since it runs under the lock and may run again when a race is lost. `request.terms` are
        the terms that are recorded at that moment: compare with their limits, not with those of an earlier day.
        Another plan than `plan_digest` on record raises `LedgerTermsError`. An answer is `Published` when the output
        is already recorded (no charge), `Refused` when nothing may be published, or `Reserved`: only then draw noise,
        and `commit`. With `stop` the first refusal by a limit ends the batch: fewer answers than requests. Any other
        exception from `admit` undoes the whole batch.

        With `durable=False` charges may reach the disk together with their commit, which waits once for both. A
        power failure in between then loses the charge together with an output that nobody has seen. This is for
        outputs that stay in memory until they are committed: a large one, which goes to a file, is refused.
        """
        work = partial(
            writing.reserve,
            requests=list(requests),
            admit=admit,
            plan_digest=plan_digest,
            stop=stop,
            outputs=self._outputs,
            durable=durable,
        )
        return self._append(dataset, work, durable=durable)

    def commit(self, reserved: Reserved, output: JSONObject) -> Published:
        """Record the output of a reservation; durable when this returns, and only then may it leave.

        Repeating the call with the same output changes nothing; another output, or a reservation that this
        ledger does not know, raises `LedgerConflictError`. More than 10,000 values go to a write-once file.
        """
        return self.commit_many([(reserved, output)])[0]

    def commit_many(self, pairs: Sequence[tuple[Reserved, JSONObject]]) -> list[Published]:
        """Commit several outputs of one dataset in one transaction: all of them or none."""
        outputs = list(pairs)
        names = {reserved.dataset for reserved, _ in outputs}
        if not outputs:
            return []
        if len(names) > 1:
            raise InputError("commit_many takes reservations of one dataset at a time")
        work = partial(writing.commit, pairs=outputs, outputs=self._outputs)
        return list(map(self._outputs.to_published, self._append(names.pop(), work)))

    def _append(self, name: str, work: Callable[[Log], Result], *, durable: bool = True) -> Result:
        """Let `work` append to a log: from memory where that holds, else, and again, with the dataset locked."""
        fence = self._fence_of(name)
        tried = self._try_remembered(name, work, fence, durable=durable)
        if tried is not None and tried.written:
            self._tails[name] = tried.tail
            return tried.result
        uncertain = tried is not None and tried.written is None

        def decide(connection: sa.Connection) -> tuple[Tail, Result]:
            locked = Log.lock(connection, name, self._tails.get(name), fence=fence)
            if tried is not None and tried.tail.hash == locked.tail.hash:
                return tried.tail, tried.result  # the connection was lost after the rows had arrived
            result = work(locked)
            writing.save(connection, locked, fence)
            return locked.tail, result

        self._tails[name], result = self._database.write(decide, uncertain=uncertain)
        return result

    def _try_remembered(
        self, name: str, work: Callable[[Log], Result], fence: Fence | None, *, durable: bool
    ) -> _Try[Result] | None:
        """Append without reading the log; None where that needs more than is remembered."""
        remembered = self._tails.get(name)
        if remembered is None:
            return None
        log = Log(name, remembered)
        try:
            result = work(log)
        except (NotRememberedError, CsdpError):  # it may rest on what is no longer so: the locked log decides
            return None
        append = log.gather(fence, durable=durable)
        if append is None:
            return None
        if self._queue is not None:
            written = self._queue.write(self._database, append)
        else:
            (written,) = self._database.append([append.run], durable=append.durable)
        return _Try(log.tail, result, written)

    def migrate(self) -> list[str]:
        """Bring the ledger to the newest format and say what was done; with one format, nothing."""
        self._database.check_version()
        return []

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
        return map(self._outputs.to_published, self.entries(name, after=after, kind="commit"))

    def outputs_after(self, name: str, tick: int | None, *, query: str, limit: int) -> list[Published]:
        """The outputs of the first `limit` ticks after a tick, or of the newest ones where it is None; by tick."""
        commits = _COMMITS.where(entries.c.dataset == name, entries.c.query == query)
        if tick is not None:
            commits = commits.where(entries.c.tick > tick)
        order = entries.c.tick.desc() if tick is None else entries.c.tick
        return self._outputs_by_tick([commits.order_by(order).limit(limit)])

    def outputs_before(self, name: str, tick: int, *, query: str, limit: int) -> list[Published]:
        """The outputs of the last `limit` ticks before a tick; by tick."""
        commits = _COMMITS.where(entries.c.dataset == name, entries.c.query == query, entries.c.tick < tick)
        return self._outputs_by_tick([commits.order_by(entries.c.tick.desc()).limit(limit)])

    def outputs_of(self, name: str, ticks: Sequence[int], *, query: str | None) -> list[Published]:
        """The outputs of some ticks, of one query or of all, as far as they are recorded; by tick. Takes no lock."""
        commits = _COMMITS.where(entries.c.dataset == name)
        if query is not None:
            commits = commits.where(entries.c.query == query)
        chunks = (ticks[start : start + CHUNK] for start in range(0, len(ticks), CHUNK))
        return self._outputs_by_tick([commits.where(entries.c.tick.in_(chunk)) for chunk in chunks])

    def _outputs_by_tick(self, queries: Sequence[sa.Select[Any]]) -> list[Published]:
        with self._database.read() as connection:
            rows = [row for query in queries for row in connection.execute(query)]
        return sorted((self._outputs.to_published(Entry(*row)) for row in rows), key=lambda output: output.tick)

    def summary(self, name: str) -> LedgerSummary:
        """Counts, the live terms, the newest charged tick, the state to resume from, and the head of the hash chain."""
        last = (
            sa.select(entries)
            .join(datasets, sa.and_(datasets.c.name == entries.c.dataset, datasets.c.state_seq == entries.c.seq))
            .where(datasets.c.name == name)
        )
        newest = sa.select(sa.func.max(entries.c.tick)).where(entries.c.dataset == name, ONCE)  # reserved, so charged
        with self._database.read() as connection:
            dataset = one_dataset(connection, name)
            counts = self._count_kinds(connection, dataset)
            row = connection.execute(last).one_or_none()
            newest_tick = connection.scalar(newest)
        reserved, committed = counts["reserve"], counts["commit"]
        return LedgerSummary(
            dataset=name,
            reserved=reserved,
            committed=committed,
            lost=reserved - committed,
            refused=counts["refuse"],
            changes=counts["change"],
            newest_tick=newest_tick,
            state=None if row is None else Entry(*row).state(),
            head_seq=dataset.head_seq,
            head_hash=dataset.head_hash,
            terms=dataset.terms,
        )

    def _count_kinds(self, connection: sa.Connection, dataset: RecordedDataset) -> Counter[str]:
        """How many entries of each kind there are; only those after the newest that was counted before are read.

        A log only grows, so what was counted stays, unless another file was put in its place: then that entry is gone.
        """
        name = dataset.name
        seq, hash_, counts = self._counted.get(name, (0, "", Counter[str]()))
        there = sa.select(entries.c.hash).where(entries.c.dataset == name, entries.c.seq == seq)
        if seq and connection.scalar(there) != hash_:
            seq, counts = 0, Counter()
        kinds = sa.select(entries.c.kind, sa.func.count()).where(entries.c.dataset == name, entries.c.seq > seq)
        counts = counts + Counter({row[0]: row[1] for row in connection.execute(kinds.group_by(entries.c.kind))})
        self._counted[name] = (dataset.head_seq, dataset.head_hash, counts)
        return counts

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
        return list(find_problems(self._database, self._outputs.load, name=name, head=head, file=self._file))
