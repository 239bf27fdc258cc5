"""A dataset of a service: the thread that publishes it, and what readers see, from the ledger and never from data."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from csdp.errors import CsdpError, LedgerConflictError, LedgerLeaseError
from csdp.estimate.protocol import TellsUsual
from csdp.estimate.result import about_words
from csdp.ledger import Entry, Ledger, Published
from csdp.panel.readings import arrange_names
from csdp.publisher import Outlook, Release, Skipped, look_ahead
from csdp.service import Settings
from csdp.service.leadership import ForwardSocket
from csdp.service.publisher_thread import TAKEN_OVER, PublisherThread
from csdp.service.responses import HttpProblem, busy_problem, error_place
from csdp.stream.from_spec import make_estimator, make_plan, make_publisher, require_useful, resolve_sequences
from csdp.stream.sinks import release_record
from csdp.stream.spec import StreamSpec

log = logging.getLogger("csdp.service")

#: Cache figures slower than `_QUICK` seconds for `_SHARE` times their compute time.
_QUICK, _SHARE = 0.1, 10.0
#: Seconds between two calls of `PublisherThread.maintain`, and between two renewals of the lease.
MAINTENANCE, RENEWAL = 0.25, 1.0
Result = TypeVar("Result")
#: Seconds without renewal after which the process that holds the lease counts as silent.
_SILENT = 3.0


class ServedDataset:
    """One dataset of a service; `publisher_thread` is None where another process publishes it."""

    def __init__(self, spec: StreamSpec, settings: Settings, *, budgets: Sequence[float] = ()) -> None:
        self.spec = spec
        self.budgets = tuple(budgets)  #: to choose from while it runs, see `change_terms`; none where limits are fixed
        self.name = spec.dataset
        if "/" in self.name:
            raise spec.error("dataset", f"{self.name!r} given; a dataset that is served has no '/' in its name")
        self.plan = make_plan(spec)
        require_useful(spec, self.plan)
        self.names, _ = resolve_sequences(spec, self.plan)  # as declared: the order of a snapshot that is a list
        self._chain_names = arrange_names(self.names, self.plan.model.names)
        self.query = self.plan.query.name
        self.publisher_thread: PublisherThread | None = None
        self.on_outcome: Callable[[Release | Skipped], None] = lambda _: None
        self._settings = settings
        self._ledger = Ledger.open(spec.ledger)
        # For questions only; the runner has its own. Both have the same plan and the same ledger.
        self._publisher = make_publisher(spec, self.plan, self._ledger)
        self._figures_lock = threading.Lock()
        self._figures: tuple[float, tuple[int, int | None], dict[str, Any]] | None = None
        self._outlook: tuple[tuple[str, dict[str, Any]], int | None, Outlook] | None = None
        self._lease = self._ledger.lease(self.name, seconds=settings.lease_seconds)
        # A thread of its own: long questions of readers must not keep it from renewing the lease.
        self._lease_executor = ThreadPoolExecutor(1, thread_name_prefix=f"csdp-lease-{self.name}")
        self._socket = ForwardSocket(settings.folder, self.name)

    # ---- who publishes ---------------------------------------------------------------------------------------------

    async def update_leadership(self) -> None:
        """Renew the lease: begin to publish where this process holds it, stop where it no longer does."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._lease_executor, self._renew)
        leads = self.publisher_thread is not None
        await (self._socket.open(self._answer_forwarded) if leads else self._socket.close())

    def _renew(self) -> None:
        thread = self.publisher_thread
        leads = self._lease.renew("" if thread is None else thread.trouble)
        if thread is not None and not thread.is_leader():
            log.warning("%s: %s", self.name, TAKEN_OVER)
            self.publisher_thread = None
            # It may wait for a database that does not answer; whether this process leads again must not wait for it.
            threading.Thread(target=thread.close, daemon=True).start()
            thread = None
        if leads and thread is None:
            self.publisher_thread = PublisherThread(self.spec, self.plan, lease=self._lease, on_outcome=self.on_outcome)

    async def change_terms(self, spec: StreamSpec) -> int:
        """Continue under the plan and the limits of another specification, and return the first tick under them.

        The ledger records the change, and what was published counts on under the new plan. Readings of ticks that are
        still open have to be handed in again. Only where one process serves the dataset: others keep the old plan.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._lease_executor, self._change_terms, spec)

    def _change_terms(self, spec: StreamSpec) -> int:
        """In the thread of the lease, so that no process begins to publish under the old plan meanwhile."""
        plan = make_plan(spec)
        estimator = make_estimator(spec, plan)
        require_useful(spec, plan)
        thread, self.publisher_thread = self.publisher_thread, None
        if thread is None:
            raise busy_problem("another process publishes this dataset; change its terms there")
        thread.close()
        charged = self._ledger.summary(self.name).newest_tick
        first = 0 if charged is None else charged + 1
        with self._figures_lock:  # figures of the old plan mean nothing once the change is recorded
            self._publisher = self._publisher.change_plan(
                plan,
                from_tick=first,
                estimator=estimator,
                model_unchecked=spec.model_unchecked,
                **spec.limits,
            )
            self.spec, self.plan, self._figures = spec, plan, None
        self.publisher_thread = PublisherThread(spec, plan, lease=self._lease, on_outcome=self.on_outcome)
        return first

    async def lead(self) -> None:
        """Keep the lease, or wait for it, until cancelled."""
        await self._repeat(self.update_leadership, RENEWAL)

    async def maintain(self) -> None:
        """Do what is due without a request, until cancelled."""

        async def maintain_once() -> None:
            thread = self.publisher_thread
            if thread is None or not thread.is_leader():
                return
            try:
                await _result(thread.submit(thread.maintain))
            except (LedgerLeaseError, RuntimeError):  # it had no turn before the thread was closed
                if thread is self.publisher_thread:  # else it was closed here: for other terms, or at the end
                    raise

        await self._repeat(maintain_once, MAINTENANCE)

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        """Do work again and again; what fails is logged, and tried again."""
        while True:
            try:
                await work()
            except Exception as error:  # one dataset in trouble must not end the service of the others
                words = str(error) if isinstance(error, CsdpError) else type(error).__name__  # ours hold no reading
                log.error("%s: %s at %s", self.name, words, error_place(error))
                await asyncio.sleep(1.0)
            await asyncio.sleep(pause)

    @property
    def trouble(self) -> str:
        """Why nothing is published at the moment, here or in the process that leads; empty where all is well."""
        thread = self.publisher_thread
        if thread is not None:
            return thread.trouble if thread.is_leader() else TAKEN_OVER
        leader = self._lease.leader
        if leader is None:
            return "no process publishes this dataset"
        return leader.trouble if leader.silent <= _SILENT else "the process that publishes this dataset is silent"

    async def close(self) -> None:
        """Stop publishing, and close the ledger."""
        await self._socket.close()
        thread, self.publisher_thread = self.publisher_thread, None
        if thread is not None:
            await asyncio.to_thread(thread.close)
        # Each may wait for a server that does not answer.
        await asyncio.to_thread(self._lease_executor.shutdown, wait=True, cancel_futures=True)
        await asyncio.to_thread(self._lease.close)
        self._ledger.close()

    # ---- taking in -------------------------------------------------------------------------------------------------

    async def ingest(self, body: bytes, *, many: bool) -> dict[str, Any]:
        """Take in the body of a request, here or in the process that publishes the dataset."""
        thread = self.publisher_thread
        if thread is None:
            return await self._forward(body, many=many)
        box = [body]  # emptied by the thread or at the time limit, so that work that was given up holds no memory
        del body
        work = thread.ingest(box, many=many, settings=self._settings)
        try:
            async with asyncio.timeout(self._settings.work_seconds):
                return await _result(work)
        except TimeoutError:
            box.clear()
            raise busy_problem("the dataset is busy; send it again a little later", seconds=5) from None

    async def _forward(self, body: bytes, *, many: bool) -> dict[str, Any]:
        """Hand a body to the process that publishes the dataset, and wait only as long as that process is alive."""
        seconds = self._settings.work_seconds
        answer = asyncio.ensure_future(self._socket.ask({"op": "ingest", "many": many}, body, seconds=seconds))
        try:
            while not (await asyncio.wait([answer], timeout=RENEWAL))[0]:
                leader = self._lease.leader
                if leader is None or leader.silent > _SILENT:
                    raise busy_problem("another process is about to take over this dataset; send it again")
            return await answer
        finally:
            answer.cancel()

    async def _answer_forwarded(self, request: dict[str, Any], body: bytes) -> dict[str, Any]:
        if self.publisher_thread is None:
            raise busy_problem("another process has taken over this dataset; send it again")
        if request["op"] == "progress":
            return self.publisher_thread.progress()
        return await self.ingest(body, many=bool(request["many"]))

    async def _progress(self) -> dict[str, Any]:
        """What the publishing process knows; empty where there is none."""
        if self.publisher_thread is not None:
            return self.publisher_thread.progress()
        try:
            return await self._socket.ask({"op": "progress"}, seconds=2.0)
        except HttpProblem:
            return {}

    # ---- for readers -----------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What is published, of whom, under which terms."""
        plan, limits = self.plan, self._ledger.dataset(self.name).terms.limits.to_dict()
        return {
            "name": self.name,
            "sequences": len(self.names),
            "names": list(self.names),
            "query": self.query,
            "outputs": list(plan.query.output_names(self._chain_names, plan.model.value_table)),
            "ages": plan.min_age if plan.min_age == plan.max_age else list(plan.ages),
            "epsilon_c": plan.epsilon_c,
            "adversary": plan.adversary,
            "protect": plan.protect,
            "step": self.spec.clock.step,
            "origin": self.spec.clock.origin,
            "lateness": self.spec.clock.lateness,
            "times": self.spec.clock.times,
            "limits": {name: limits[name] for name in self.spec.limits},
            "model": plan.verdict.to_dict(),
            "guarantee": self._publisher.guarantee(),
            "not_protected": list(plan.model.not_protected),
            "estimate": self._describe_estimate(),
            "budgets": list(self.budgets),
        }

    def _describe_estimate(self) -> dict[str, Any] | None:
        """What the estimates are about and worth; None where there are none."""
        estimator = self._publisher.estimates.estimator
        if estimator is None:
            return None
        error = estimator.expected(self.plan.noise_variance)
        return {
            "kind": estimator.kind,
            "about": estimator.about,
            "level": estimator.level,
            "mse": error.mse,
            "no_data": error.no_data,
            "usefulness": error.known_usefulness,
            "measured_on": error.how,
            "words": f"The estimate {error.in_words}, {about_words(estimator.about, self.plan.max_age)}.",
        }

    def releases(self, after: int | None, limit: int) -> list[dict[str, Any]]:
        """The first releases after a tick, or the newest ones."""
        return self.release_records(self._ledger.outputs_after(self.name, after, query=self.query, limit=limit))

    def release_records(self, published: Sequence[Published]) -> list[dict[str, Any]]:
        """Releases as readers see them, each with the best guess without any release."""
        releases, estimator = [Release.of(one) for one in published], self._publisher.estimates.estimator
        usual: list[list[float]] = [[] for _ in releases]
        if releases and isinstance(estimator, TellsUsual):
            age = self.plan.max_age
            usual = estimator.usual_at([one.tick - (age if one.about == "then" else 0) for one in releases]).tolist()
        return [
            {"id": one.seq, **release_record(release, self.spec.clock), "usual": guess}
            for one, release, guess in zip(published, releases, usual, strict=True)
        ]

    def committed_records(self, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        """What "commit" entries have published, as readers see it."""
        return self.release_records([self._ledger.to_published(entry) for entry in entries])

    async def status(self) -> dict[str, Any]:
        """Counts, leakage against its limits, the ages of readings, and why publishing waits, if it does."""
        progress = await self._progress()
        figures = await asyncio.to_thread(self.figures, progress.get("closed"))
        outlook = await asyncio.to_thread(self._look_ahead, progress.get("closed"), figures)
        ages = progress.get("information_ages", [None] * len(self.names))
        newest = figures["newest_tick"]
        return {
            **figures,
            "outlook": outlook,
            "newest_time": None if newest is None else self.spec.clock.start(newest),
            "ages": self.plan.min_age if self.plan.min_age == self.plan.max_age else list(self.plan.ages),
            "age_of_information": [
                {"sequence": name, "planned": planned_age, "age": age}
                for name, planned_age, age in zip(self._chain_names, self.plan.ages, ages, strict=True)
            ],
            "age_summary": _summarise_ages(ages),
            "watermark": progress.get("watermark"),
            "closed_tick": progress.get("closed"),
            "skipped": progress.get("skipped"),
            "reason": progress.get("reason", ""),
            "times": self.spec.clock.times,
            "ahead": progress["fates"].get("ahead", 0) if progress else None,
            "put_back": progress.get("put_back"),
            "trouble": progress.get("trouble", "no process publishes this dataset at the moment"),
        }

    def figures(self, tick: int | None = None) -> dict[str, Any]:
        """Counts, and the leakage at a tick (by default the newest charged one), from the ledger.

        A long ledger takes long to count, so figures that were slow to compute may be a little old.
        """
        with self._figures_lock:
            now, version = time.monotonic(), (self.head(), tick)
            if self._figures is None or (version != self._figures[1] and now > self._figures[0]):
                figures = self._compute_figures(tick)
                seconds = time.monotonic() - now
                self._figures = (now + (_SHARE * seconds if seconds > _QUICK else 0.0), version, figures)
            return self._figures[2]

    def _compute_figures(self, tick: int | None) -> dict[str, Any]:
        summary = self._publisher.standing.status(since=tick)
        return {
            **{name: summary[name] for name in ("model", "newest_tick", "published", "refused", "lost", "present")},
            "budget": summary["limits"]["budget"],
            "limits": summary["limits"],
            **{name: summary[name] for name in ("remaining", "event_level", "group_level", "lifetime")},
        }

    def _look_ahead(self, tick: int | None, figures: dict[str, Any]) -> dict[str, Any]:
        """When the next number may come, and how many the limits allow; computed anew only where it must be."""
        charged = figures["newest_tick"]
        with self._figures_lock:
            terms, known, outlook = (self.plan.digest, figures["limits"]), self._outlook, None
            if known is not None and known[0] == terms and not self.plan.stale_limit:
                outlook = known[2].continued(known[1], charged, tick)
            outlook = look_ahead(self._publisher.standing, tick) if outlook is None else outlook
            self._outlook = (terms, charged, outlook)
        return {**vars(outlook), "words": outlook.words}

    # ---- the ledger ------------------------------------------------------------------------------------------------

    def head(self) -> int:
        """The number of the newest entry."""
        try:
            return self._ledger.dataset(self.name).head_seq
        except LedgerConflictError:
            return 0

    def entries(self, after: int, *, limit: int) -> list[Entry]:
        """The first entries after a number, in order."""
        return list(islice(self._ledger.entries(self.name, after=after), limit))

    def charges(self, limit: int, *, everything: bool) -> list[dict[str, Any]]:
        """The newest entries: charges and hashes of published ticks, or every kind of entry."""
        entries = self.entries(max(0, self.head() - 4 * limit - 4), limit=4 * limit + 4)
        if everything:
            return [_entry_record(entry) for entry in entries[-limit:]]
        reserved = {(entry.tick, entry.query): entry for entry in entries if entry.kind == "reserve"}
        records = []
        for entry in entries:
            charge = reserved.get((entry.tick, entry.query))
            if entry.kind == "commit" and charge is not None:
                records.append({**_entry_record(entry), "charge": charge.data()["charge"], "charge_hash": charge.hash})
        return records[-limit:]


def _summarise_ages(ages: list[int | None]) -> dict[str, Any]:
    """The ages of many sequences in four numbers."""
    known = sorted(age for age in ages if age is not None)
    return {
        "smallest": known[0] if known else None,
        "median": known[len(known) // 2] if known else None,
        "largest": known[-1] if known else None,
        "never_read": len(ages) - len(known),
    }


async def _result(work: Future[Result]) -> Result:
    """Wait for work of the publisher's thread. Work that had no turn before the thread was closed: LedgerLeaseError."""
    try:
        return await asyncio.wrap_future(work)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the waiting was cancelled, not the work
            raise
        raise LedgerLeaseError(TAKEN_OVER) from None


def _entry_record(entry: Entry) -> dict[str, Any]:
    content = entry.data()
    record: dict[str, Any] = {
        "seq": entry.seq,
        "kind": entry.kind,
        "tick": entry.tick,
        "recorded": entry.time,
        "plan": entry.plan,
        "previous": entry.previous,
        "hash": entry.hash,
    }
    if entry.kind in {"reserve", "change"} and "charge" in content:
        record["charge"] = content["charge"]
    if entry.kind == "refuse":
        record["reason"] = content["reason"]
    return record
