"""A dataset of a service: the thread that publishes it, and what readers see, from the ledger and never from data."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

from csdp.errors import CsdpError, LedgerConflictError, LedgerHeldError
from csdp.estimate.result import TellsUsual, about_words
from csdp.ledger import Entry, Ledger, Published
from csdp.panel.panel import arrange_names
from csdp.plan import Plan
from csdp.publisher import Outlook, Release, Skipped, look_ahead
from csdp.service import Settings
from csdp.service.publisher_thread import PublisherThread
from csdp.service.responses import busy_problem, error_place
from csdp.stream.spec import StreamSpec, load_plan, make_publisher, resolve_names

log = logging.getLogger("csdp.service")

#: Cache figures slower than `_QUICK` seconds for `_SHARE` times their compute time.
_QUICK, _SHARE = 0.1, 10.0
#: Seconds between two calls of `PublisherThread.maintain`.
MAINTENANCE = 0.25
Result = TypeVar("Result")


class ServedDataset:
    """One dataset of a service; `publisher_thread` is None before `start` and after `close`."""

    def __init__(self, spec: StreamSpec, settings: Settings, *, budgets: Sequence[float] = ()) -> None:
        self.spec = spec
        self.budgets = tuple(budgets)  #: to choose from while it runs, see `change_terms`; none if limits are fixed
        self.name = spec.dataset
        if "/" in self.name:
            raise spec.error("dataset", f"{self.name!r} given; a dataset that is served has no '/' in its name")
        self.plan_file = load_plan(spec)
        self.names = resolve_names(spec, self.plan_file)  # as declared: the order of a snapshot that is a list
        self._chain_names = arrange_names(self.names, self.plan.model.names)
        self.query = self.plan.query.name
        self.publisher_thread: PublisherThread | None = None
        self.on_outcome: Callable[[Release | Skipped], None] = lambda _: None
        self._settings = settings
        self.lost: LedgerHeldError | None = None  #: why this process may not publish any more
        self.ledger = Ledger.open(spec.ledger)
        try:
            self.ledger.hold(self.name, standby=settings.standby)
            # For questions only; the runner has its own. Both have the same plan and the same ledger.
            self._publisher = make_publisher(spec, self.plan_file, self.ledger)
        except BaseException:
            self.ledger.close()
            raise
        self._figures_lock = threading.Lock()
        self._figures: tuple[float, tuple[int, int | None], dict[str, Any]] | None = None
        self._outlook: tuple[tuple[Any, ...], Outlook] | None = None

    @property
    def plan(self) -> Plan:
        """The plan under which the dataset is published."""
        return self.plan_file.plan

    # ---- publishing ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to publish."""
        self.publisher_thread = await asyncio.to_thread(self._new_thread)

    def _new_thread(self) -> PublisherThread:
        return PublisherThread(self.spec, self.plan_file, ledger=self.ledger, on_outcome=self.on_outcome)

    async def change_terms(self, spec: StreamSpec) -> int:
        """Continue under the plan and the limits of another specification, and return the first tick under them.

        The ledger records the change, and what was published counts on under the new plan. Readings of ticks that are
        still open have to be handed in again.
        """
        return await asyncio.to_thread(self._change_terms, spec)

    def _change_terms(self, spec: StreamSpec) -> int:
        plan = load_plan(spec)
        thread, self.publisher_thread = self.publisher_thread, None
        if thread is None:
            raise busy_problem("the terms of this dataset are being changed, or the service stops")
        thread.close()
        try:
            charged = self.ledger.summary(self.name).newest_tick
            first = 0 if charged is None else charged + 1
            with self._figures_lock:  # figures of the old plan mean nothing once the change is recorded
                self._publisher = self._publisher.change_plan(
                    plan.plan,
                    from_tick=first,
                    estimator=plan.estimator,
                    model_unchecked=spec.model_unchecked,
                    **spec.limits,
                )
                self.spec, self.plan_file, self._figures = spec, plan, None
        finally:  # under the old terms if the change failed
            self.publisher_thread = self._new_thread()
        return first

    async def maintain(self) -> None:
        """Do what is due without a request, until cancelled."""

        while True:
            thread = self.publisher_thread
            try:
                if thread is not None:
                    await _result(thread.submit(thread.maintain))
            except LedgerHeldError as error:
                log.error("%s: %s", self.name, error)
                self.lost = error
                signal.raise_signal(signal.SIGTERM)  # another process may publish: this service ends
                return
            except Exception as error:  # one dataset in trouble must not end the service of the others
                if thread is self.publisher_thread:  # else it was closed here: for other terms, or at the end
                    words = str(error) if isinstance(error, CsdpError) else type(error).__name__  # ours hold no reading
                    log.error("%s: %s at %s", self.name, words, error_place(error))
                    await asyncio.sleep(1.0)
            await asyncio.sleep(MAINTENANCE)

    @property
    def trouble(self) -> str:
        """Why nothing is published at the moment; empty if all is well."""
        thread = self.publisher_thread
        return "the dataset is not published at the moment" if thread is None else thread.trouble

    async def close(self) -> None:
        """Stop publishing, and close the ledger."""
        thread, self.publisher_thread = self.publisher_thread, None
        if thread is not None:
            await asyncio.to_thread(thread.close)
        self.ledger.close()

    # ---- taking in -------------------------------------------------------------------------------------------------

    async def ingest(self, body: bytes, *, many: bool) -> dict[str, Any]:
        """Take in the body of a request."""
        thread = self.publisher_thread
        if thread is None:
            raise busy_problem("the dataset is not published at the moment; send it again a little later")
        box = [body]  # emptied by the thread or at the time limit, so that work that was given up holds no memory
        del body
        work = thread.ingest(box, many=many, settings=self._settings)
        try:
            async with asyncio.timeout(self._settings.work_seconds):
                return await _result(work)
        except TimeoutError:
            box.clear()
            raise busy_problem("the dataset is busy; send it again a little later", seconds=5) from None

    # ---- for readers -----------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What is published, of whom, under which terms."""
        plan, limits = self.plan, self.ledger.dataset(self.name).terms.limits.to_dict()
        return {
            "name": self.name,
            "sequences": len(self.names),
            "names": list(self.names),
            "query": self.query,
            "outputs": list(plan.query.output_names(self._chain_names, plan.model.value_table)),
            "ages": plan.min_age if plan.min_age == plan.max_age else list(plan.ages),
            "epsilon_c": plan.epsilon_c,
            "step": self.spec.clock.step,
            "origin": self.spec.clock.origin,
            "lateness": self.spec.clock.lateness,
            "times": self.spec.clock.times,
            "limits": {name: limits[name] for name in self.spec.limits},
            "model": plan.verdict.to_dict(),
            "guarantee": self._publisher.guarantee(),
            "not_protected": list(plan.model.not_protected),
            "estimate": self._describe_estimate(),
            "frontier": None if self.plan_file.frontier is None else self.plan_file.frontier.to_dict(),
            "budgets": list(self.budgets),
        }

    def _describe_estimate(self) -> dict[str, Any] | None:
        """What the estimates are about and worth; None if there are none."""
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
        return self.release_records(self.ledger.outputs(self.name, query=self.query, after=after, limit=limit))

    def release_records(self, published: Sequence[Published]) -> list[dict[str, Any]]:
        """Releases as readers see them, each with the best guess without any release."""
        releases, estimator = [Release.of(one) for one in published], self._publisher.estimates.estimator
        usual: list[list[float]] = [[] for _ in releases]
        if releases and isinstance(estimator, TellsUsual):
            age = self.plan.max_age
            usual = estimator.usual_at([one.tick - (age if one.about == "then" else 0) for one in releases]).tolist()
        return [
            {"id": one.seq, **release.to_dict(self.spec.clock.start(release.tick)), "usual": guess}
            for one, release, guess in zip(published, releases, usual, strict=True)
        ]

    def committed_records(self, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        """What "commit" entries have published, as readers see it."""
        return self.release_records([self.ledger.to_published(entry) for entry in entries])

    async def status(self) -> dict[str, Any]:
        """Counts, leakage against its limits, the ages of readings, and why publishing waits, if it does."""
        thread = self.publisher_thread
        progress = {} if thread is None else thread.progress()
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
            "watermark": progress.get("watermark"),
            "closed_tick": progress.get("closed"),
            "skipped": progress.get("skipped"),
            "reason": progress.get("reason", ""),
            "times": self.spec.clock.times,
            "ahead": progress["fates"].get("ahead", 0) if progress else None,
            "trouble": progress.get("trouble", "the dataset is not published at the moment"),
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
        summary = self._publisher.status(since=tick)
        return {
            **{name: summary[name] for name in ("model", "newest_tick", "published", "refused", "lost", "present")},
            "budget": summary["limits"]["budget"],
            "limits": summary["limits"],
            **{name: summary[name] for name in ("remaining", "event_level", "group_level", "lifetime")},
        }

    def _look_ahead(self, tick: int | None, figures: dict[str, Any]) -> dict[str, Any]:
        """When the next number may come, and how many the limits allow; computed once for each state of the ledger."""
        key = (self.plan.digest, figures["limits"], figures["newest_tick"], tick)
        with self._figures_lock:
            if self._outlook is None or self._outlook[0] != key:
                self._outlook = key, look_ahead(self._publisher, tick)
            outlook = self._outlook[1]
        return {**vars(outlook), "words": outlook.words}

    # ---- the ledger ------------------------------------------------------------------------------------------------

    def head(self) -> int:
        """The number of the newest entry."""
        try:
            return self.ledger.dataset(self.name).head_seq
        except LedgerConflictError:
            return 0

    def entries(self, after: int, *, limit: int) -> list[Entry]:
        """The first entries after a number, in order."""
        return list(islice(self.ledger.entries(self.name, after=after), limit))

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


async def _result(work: Future[Result]) -> Result:
    """Wait for work of the publisher's thread; 503 if the thread was closed before the work had its turn."""
    try:
        return await asyncio.wrap_future(work)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the waiting was cancelled, not the work
            raise
        raise busy_problem("the dataset was closed meanwhile; send it again") from None


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
