"""A dataset of a service: the thread that publishes it, and what readers see, from the ledger and never from data."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from csdp.errors import CsdpError, LedgerBusyError, LedgerConflictError, LedgerHeldError, LedgerTermsError
from csdp.estimate.result import TellsUsual, about_words
from csdp.ledger import Entry, Ledger, Published
from csdp.panel.panel import arrange_names
from csdp.plan import Plan
from csdp.planning.plan_file import PlanFile
from csdp.publisher import Outlook, Release, Skipped, look_ahead
from csdp.query import describe
from csdp.service import Settings
from csdp.service.responses import MESSAGE_COUNTS, HttpProblem, busy_problem, error_place
from csdp.stream import Runner, Snapshot, run
from csdp.stream.messages import Bad, Fate, decode_message
from csdp.stream.spec import StreamSpec, load_plan, make_publisher, open_runner, open_source, resolve_names

log = logging.getLogger("csdp.service")

#: Cache figures slower than `_QUICK` seconds for `_SHARE` times their compute time.
_QUICK, _SHARE = 0.1, 10.0
#: Seconds between two calls of `PublisherThread.maintain`.
MAINTENANCE = 0.25
#: Sources that a service reads in addition to HTTP.
_SOURCES = ("file", "mqtt")
#: Messages between two publications: closed ticks are published before more memory is used.
_BATCH = 64
#: The count that a writer sees for what became of a message; all others are "accepted".
_COUNTS: dict[Fate, str] = {
    "late": "late",
    "ahead": "ahead",
    "recorded": "recorded",
    "unknown": "unreadable",
    "undated": "unreadable",
}
#: Reasons that an answer lists, and the one of a message without a name or a time that could be used.
_REASONS = 8
_UNUSABLE = (
    "no sequence of this dataset in it, not as many values as it has sequences, or a time that is no timestamp "
    "(seconds since 1970, or ISO; a dataset whose times count ticks declares times = 'data')"
)
#: Seconds after which one publication under way counts as stuck.
_STUCK = 10.0
Result = TypeVar("Result")


class _Taken:
    """What became of the messages of a body.

    `many`: one message per line; else one message, which is refused with a problem if it cannot be used.
    """

    def __init__(self, many: bool) -> None:
        self.counts = dict.fromkeys(MESSAGE_COUNTS, 0)
        self.reasons: list[str] = []  #: which unknown sequences snapshots named, each once
        self._many = many

    def refuse(self, kind: str, why: str) -> None:
        """Count a message that is not taken in."""
        if not self._many:
            raise HttpProblem(422, kind, why)
        self.counts["unreadable"] += 1


class PublisherThread:
    """Drives the runner of one dataset. Everything that publishes runs in one thread, so requests wait for each other
    in one place only, and the event loop never waits.

    Args:
        spec: the specification of the dataset.
        plan: its plan file.
        ledger: holds the right to publish the dataset; stays open when this thread is closed.
        on_outcome: called in this thread with every release and every tick without output.
    """

    def __init__(
        self, spec: StreamSpec, plan: PlanFile, *, ledger: Ledger, on_outcome: Callable[[Release | Skipped], None]
    ) -> None:
        self._spec = spec
        self._plan = plan
        self._ledger = ledger
        self.lost: LedgerHeldError | None = None  #: why this process may not publish any more
        self._stack = ExitStack()
        self._closing = False
        self._behind = False
        self._trouble = ""
        self._busy_since: float | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"csdp-{spec.dataset}")
        self.submit = self._executor.submit  #: run something in the thread of this dataset
        self.runner: Runner = self._stack.enter_context(open_runner(spec, plan, ledger, on_outcome=on_outcome))
        self._source: threading.Thread | None = None
        self.submit(self._publish, self.runner.recover)
        if spec.source.kind in _SOURCES:
            self._source = threading.Thread(target=self._read_source, name=f"csdp-source-{spec.dataset}", daemon=True)
            self._source.start()

    # ---- in the thread of the dataset ------------------------------------------------------------------------------

    def _take_body(self, box: list[bytes], many: bool, settings: Settings) -> dict[str, Any]:
        if not box:  # the request no longer waits
            return {}
        body = box.pop()
        lines = split_lines(body, settings) if many else [body]
        taken = _Taken(many)
        for start in range(0, len(lines), _BATCH):
            self._publish(partial(self._take_in, lines[start : start + _BATCH], taken))
        counts: dict[str, Any] = {name: n for name, n in taken.counts.items() if n or name != "recorded"}
        return counts | ({"reasons": taken.reasons} if taken.reasons else {})

    def _take_in(self, lines: list[bytes], taken: _Taken) -> None:
        """Hand some messages to the runner, count them, and publish the ticks that they close."""
        for line in lines:
            message = decode_message(line)
            if isinstance(message, Bad):
                self.runner.accept(message)
                taken.refuse("unreadable", f"{message.why}; a snapshot is {{'time': ..., 'values': {{name: number}}}}")
                continue
            if unknown := self.runner.describe_unknown(message):
                taken.refuse("unknown", unknown)
                taken.reasons += [unknown] if unknown not in taken.reasons and len(taken.reasons) < _REASONS else []
                continue
            fate = self.runner.accept(message)
            # Form, names and times decide, never a value: a reading without a number is a gap, not an error.
            count = "unreadable" if fate == "bad" and isinstance(message, Snapshot) else _COUNTS.get(fate, "accepted")
            if count == "unreadable":
                taken.refuse("unknown", _UNUSABLE)
            else:
                taken.counts[count] += 1
        self.runner.settle()

    def maintain(self) -> None:
        """Do what is due without a request: notice a lost right, let time pass, retry what a busy ledger held up."""
        try:
            self._ledger.check_held()
        except LedgerHeldError as error:
            self._lose_right(error)
            raise
        if self._spec.by_wall_clock:
            self._publish(self.runner.advance_to_now)
        elif self._behind:
            self._publish(self.runner.settle)

    def _lose_right(self, error: LedgerHeldError) -> None:
        self.lost = error
        self._trouble = str(error)

    def _publish(self, work: Callable[[], object]) -> None:
        """Do work of the runner that needs the ledger. With a busy ledger readings are kept, and published later."""
        if self.lost is not None:  # the ledger would refuse it; sink and state file would not
            raise self.lost
        self._busy_since = time.monotonic()
        try:
            work()
        except LedgerBusyError:
            self._behind = True
            self._trouble = "waiting for the ledger"
        except LedgerHeldError as error:
            self._lose_right(error)
            raise
        except LedgerTermsError as error:
            if self._trouble != str(error):
                log.error("%s: %s", self._spec.dataset, error)
            self._behind = False
            self._trouble = str(error)
        else:
            last = self.runner.recent[-1] if self.runner.recent else None
            self._behind = False
            if not isinstance(last, Skipped) or last.why != "terms":
                self._trouble = ""
        finally:
            self._busy_since = None

    # ---- source ----------------------------------------------------------------------------------------------------

    def _read_source(self) -> None:
        """Feed the runner from the source in its specification, until it ends or the service does."""
        try:
            run(self.runner, open_source(self._spec, self._plan))
        except Exception as error:
            self._trouble = f"the {self._spec.source.kind} source has failed"
            log.error("%s: %s (%s at %s)", self._spec.dataset, self._trouble, type(error).__name__, error_place(error))
        finally:
            if not self._closing:
                self.runner.stop = threading.Event()  # the source is over, but readings still come over HTTP

    # ---- any thread ------------------------------------------------------------------------------------------------

    def ingest(self, box: list[bytes], *, many: bool, settings: Settings) -> Future[dict[str, Any]]:
        """Take in the body of a request when it is its turn, and publish the ticks that it closes.

        Args:
            box: holds the body; it is taken out, or emptied when the request no longer waits.
            many: one message per line; else one message, which is refused with a problem if it cannot be used.
            settings: the limits of a body.
        """
        return self._executor.submit(self._take_body, box, many, settings)

    @property
    def trouble(self) -> str:
        """Why publishing waits; empty if it does not."""
        since = self._busy_since
        if not self._trouble and since is not None and time.monotonic() > since + _STUCK:
            return f"one publication takes more than {_STUCK:g} seconds: the ledger or the sink does not answer"
        return self._trouble

    def progress(self) -> dict[str, Any]:
        """What only the process with the readings knows: times, counts, ages. Nothing of it depends on a value."""
        status = self.runner.status()
        tick, ages = self.runner.publisher.information_ages()
        passed = 0 if tick is None or status.closed is None else max(0, status.closed - tick)
        newest = status.newest_time
        return {
            "closed": status.closed,
            "watermark": None if newest is None else newest - self.runner.clock.lateness,
            "skipped": status.skipped,
            "reason": status.reason,
            "fates": dict(status.fates),
            "information_ages": [None if age is None else age + passed for age in ages],
            "trouble": self.trouble or status.trouble,
        }

    def close(self) -> None:
        """Stop publishing: closed ticks are published, open ticks stay open. A lost right leaves the state file."""
        self._closing = True
        self.runner.stop.set()
        if self._source is not None:
            self._source.join(10)
        self._executor.shutdown(wait=True, cancel_futures=True)
        if self.lost is None:
            self.runner.close()
        self._stack.close()


def split_lines(body: bytes, settings: Settings) -> list[bytes]:
    """The lines of a body that are not empty; refused before any of them is taken in."""
    if body.count(b"\n") > settings.max_lines:
        raise HttpProblem(413, "too-long", f"at most {settings.max_lines:,} lines in one request; send it in several")
    lines = [line for line in body.split(b"\n") if line.strip()]
    if any(len(line) > settings.max_line for line in lines):
        raise HttpProblem(413, "too-long", f"at most {settings.max_line:,} bytes in one line")
    if not lines:
        raise HttpProblem(422, "empty", "no message in the body; one JSON object per line expected")
    return lines


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
        thread = self.publisher_thread
        self.publisher_thread = None
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
                    **spec.limits.model_dump(),
                )
                self.spec = spec
                self.plan_file = plan
                self._figures = None
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
        thread = self.publisher_thread
        self.publisher_thread = None
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
        plan = self.plan
        limits = self.ledger.dataset(self.name).terms.limits.to_dict()
        return {
            "name": self.name,
            "sequences": len(self.names),
            "names": list(self.names),
            "query": self.query,
            "statistic": describe(plan.query),
            "outputs": list(plan.query.output_names(self._chain_names, plan.model.value_table)),
            "ages": plan.min_age if plan.min_age == plan.max_age else list(plan.ages),
            "epsilon_c": plan.epsilon_c,
            "step": self.spec.clock.step,
            "origin": self.spec.clock.origin,
            "lateness": self.spec.clock.lateness,
            "times": self.spec.clock.times,
            "limits": limits,
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
        releases = [Release.of(one) for one in published]
        estimator = self._publisher.estimates.estimator
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
            **{
                name: summary[name]
                for name in ("remaining", "every_moment", "event_level", "window_level", "group_level")
            },
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
