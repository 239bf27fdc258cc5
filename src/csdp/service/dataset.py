"""A dataset of a service: the thread that publishes it, and what readers see, from the ledger and never from data."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice, takewhile
from typing import Any

from csdp.errors import LedgerBusyError, LedgerConflictError, LedgerTermsError
from csdp.estimate.result import about_words
from csdp.ledger import Entry, Ledger, Published
from csdp.panel.readings import arrange_names
from csdp.plan import Plan
from csdp.publisher import Release, Skipped
from csdp.service import Settings
from csdp.service.leadership import ForwardSocket, make_lock
from csdp.service.responses import HttpProblem, busy_problem, error_place
from csdp.stream import Alarm, Bad, Runner, Snapshot, run
from csdp.stream.from_spec import make_plan, make_publisher, open_runner, open_source, resolve_sequences
from csdp.stream.messages import decode_message
from csdp.stream.runner import Fate
from csdp.stream.sinks import release_record
from csdp.stream.spec import StreamSpec

log = logging.getLogger("csdp.service")

#: Sources that a service reads in addition to HTTP.
_SOURCES = ("file", "mqtt")
#: Messages of one request between two publications: closed ticks are published before more memory is used.
_BATCH = 64
#: The count that a writer sees for what became of a message; all others are "accepted".
_COUNTS: dict[Fate, str] = {"late": "late", "ahead": "ahead", "unknown": "unreadable", "undated": "unreadable"}
#: Cache figures slower than `_QUICK` seconds for `_SHARE` times their compute time.
_QUICK, _SHARE = 0.1, 10.0
#: Seconds between two calls of `PublisherThread.maintain`; leadership is looked at every fourth time.
MAINTENANCE = 0.25


class PublisherThread:
    """Drives the runner of one dataset. Everything that publishes runs in one thread, so requests wait for each other
    in one place only, and the event loop never waits.

    Args:
        spec: the specification of the dataset.
        plan: its plan.
        on_outcome: called in this thread with every release and every tick without output.
    """

    def __init__(self, spec: StreamSpec, plan: Plan, *, on_outcome: Callable[[Release | Skipped], None]) -> None:
        self._spec = spec
        self._stack = ExitStack()
        self._closing = False
        self._behind = False
        self.trouble = ""  #: why publishing waits; empty where it does not
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"csdp-{spec.dataset}")
        self.submit = self._executor.submit  #: run something in the thread of this dataset
        self.runner: Runner = self._stack.enter_context(
            open_runner(spec, plan, on_drift=self._log_drift, on_outcome=on_outcome)
        )
        self._source: threading.Thread | None = None
        self.submit(self._publish, self.runner.recover)
        if spec.source.kind in _SOURCES:
            self._source = threading.Thread(target=self._read_source, name=f"csdp-source-{spec.dataset}", daemon=True)
            self._source.start()

    # ---- in the thread of the dataset ------------------------------------------------------------------------------

    def ingest(self, box: list[bytes], *, many: bool, settings: Settings) -> dict[str, int]:
        """Take in the body of a request, and publish the ticks that it closes.

        Args:
            box: holds the body, which is taken out.
            many: one message per line; else one message, which is refused with a problem if it cannot be used.
            settings: the limits of a body.

        Returns:
            How many messages were accepted (their tick was open, whatever their values), late, ahead, or unreadable.
        """
        body = box.pop()
        lines = split_lines(body, max_line=settings.max_line, max_lines=settings.max_lines) if many else [body]
        counts = {"accepted": 0, "late": 0, "ahead": 0, "unreadable": 0}
        for start in range(0, len(lines), _BATCH):
            self._publish(partial(self._take_in, lines[start : start + _BATCH], counts, many=many))
        return counts

    def _take_in(self, lines: list[bytes], counts: dict[str, int], *, many: bool) -> None:
        """Hand some messages to the runner, count them, and publish the ticks that they close."""
        for line in lines:
            message = decode_message(line)
            if not many and isinstance(message, Bad):
                detail = f"{message.why}; a snapshot is {{'time': ..., 'values': {{name: number}}}}"
                raise HttpProblem(422, "unreadable", detail)
            fate = self.runner.accept(message)
            # Form, names and times decide, never a value: a reading without a number is a gap, not an error.
            malformed = isinstance(message, Bad) or (fate == "bad" and isinstance(message, Snapshot))
            count = "unreadable" if malformed else _COUNTS.get(fate, "accepted")
            if not many and count == "unreadable":
                raise HttpProblem(
                    422,
                    "unknown",
                    "no sequence of this dataset in it, not as many values as it has sequences, or a time that is no "
                    "timestamp (seconds since 1970, or ISO; a dataset whose times count ticks declares times = 'data')",
                )
            counts[count] += 1
        self.runner.settle()

    def maintain(self) -> None:
        """Do what is due without a request: let time pass, and retry what a busy ledger held up."""
        if self._spec.by_wall_clock:
            self._publish(lambda: self.runner.advance(self.runner.publisher.tick_times.wall.now()))
        elif self._behind:
            self._publish(self.runner.settle)

    def _publish(self, work: Callable[[], object]) -> None:
        """Do work of the runner that needs the ledger. With a busy ledger readings are kept, and published later."""
        try:
            work()
        except LedgerBusyError:
            self._behind, self.trouble = True, "waiting for the ledger"
        except LedgerTermsError as error:
            if self.trouble != str(error):
                log.error("%s: %s", self._spec.dataset, error)
            self._behind, self.trouble = False, str(error)
        else:
            last = self.runner.recent[-1] if self.runner.recent else None
            obsolete = isinstance(last, Skipped) and last.why == "terms"
            self._behind, self.trouble = False, self.trouble if obsolete else ""

    # ---- source ----------------------------------------------------------------------------------------------------

    def _read_source(self) -> None:
        """Feed the runner from the source in its specification, until it ends or the service does."""
        try:
            run(self.runner, open_source(self._spec))
        except Exception as error:
            self.trouble = f"the {self._spec.source.kind} source has failed"
            log.error("%s: %s (%s at %s)", self._spec.dataset, self.trouble, type(error).__name__, error_place(error))
        finally:
            if not self._closing:
                self.runner.stop = threading.Event()  # the source is over, but readings still come over HTTP

    def _log_drift(self, _: Alarm) -> None:
        """Tell the operator's log only: an alarm comes from private readings."""
        log.warning("%s: the readings no longer follow the chain. This is private", self._spec.dataset)

    # ---- any thread ------------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        """What only the process with the readings knows: times, counts, ages. Nothing of it depends on a value."""
        status = self.runner.status()
        tick, ages = self.runner.publisher.information_ages()
        passed = 0 if tick is None or status.closed is None else max(0, status.closed - tick)
        newest = status.newest_time
        return {
            "closed": status.closed,
            "newest_time": newest,
            "watermark": None if newest is None else newest - self.runner.clock.lateness,
            "open_ticks": status.open_ticks,
            "skipped": status.skipped,
            "reason": status.reason,
            "fates": dict(status.fates),
            "put_back": status.put_back,
            "information_ages": [None if age is None else age + passed for age in ages],
            "trouble": self.trouble or status.trouble,
        }

    def close(self) -> None:
        """Stop publishing: closed ticks are published, open ticks stay open."""
        self._closing = True
        self.runner.stop.set()
        if self._source is not None:
            self._source.join(10)
        self._executor.shutdown(wait=True, cancel_futures=True)
        self.runner.close()
        self._stack.close()


def split_lines(body: bytes, *, max_line: int, max_lines: int) -> list[bytes]:
    """The lines of a body that are not empty; refused before any of them is taken in."""
    if body.count(b"\n") > max_lines:
        raise HttpProblem(413, "too-long", f"at most {max_lines:,} lines in one request; send it in several")
    lines = [line for line in body.split(b"\n") if line.strip()]
    if any(len(line) > max_line for line in lines):
        raise HttpProblem(413, "too-long", f"at most {max_line:,} bytes in one line")
    if not lines:
        raise HttpProblem(422, "empty", "no message in the body; one JSON object per line expected")
    return lines


class ServedDataset:
    """One dataset of a service; `publisher_thread` is None where another process publishes it."""

    def __init__(self, spec: StreamSpec, settings: Settings) -> None:
        self.spec = spec
        self.name = spec.dataset
        if "/" in self.name:
            raise spec.error("dataset", f"{self.name!r} given; a dataset that is served has no '/' in its name")
        self.plan = make_plan(spec)
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
        self._leader_lock = make_lock(spec.ledger, self.name)
        self._socket = ForwardSocket(settings.folder, self.name)

    # ---- who publishes ---------------------------------------------------------------------------------------------

    def update_leadership(self) -> None:
        """Begin to publish if this process holds the lock of the dataset, stop if it no longer does."""
        leads = self._leader_lock.try_acquire()
        if leads and self.publisher_thread is None:
            self.publisher_thread = PublisherThread(self.spec, self.plan, on_outcome=self.on_outcome)
        elif not leads and self.publisher_thread is not None:
            thread, self.publisher_thread = self.publisher_thread, None
            thread.close()

    async def maintain(self) -> None:
        """Look after the dataset until cancelled; what fails is logged, and tried again."""
        last = 0.0
        while True:
            try:
                if time.monotonic() - last > 4 * MAINTENANCE:
                    last = time.monotonic()
                    await asyncio.to_thread(self.update_leadership)
                    leads = self.publisher_thread is not None
                    await (self._socket.open(self._answer_forwarded) if leads else self._socket.close())
                thread = self.publisher_thread
                if thread is not None:
                    await asyncio.wrap_future(thread.submit(thread.maintain))
            except Exception as error:  # one dataset in trouble must not end the service of the others
                log.error("%s: %s at %s", self.name, type(error).__name__, error_place(error))
                await asyncio.sleep(4 * MAINTENANCE)
            await asyncio.sleep(MAINTENANCE)

    async def close(self) -> None:
        """Stop publishing, and close the ledger."""
        await self._socket.close()
        thread, self.publisher_thread = self.publisher_thread, None
        if thread is not None:
            await asyncio.to_thread(thread.close)
        self._leader_lock.close()
        self._ledger.close()

    # ---- taking in -------------------------------------------------------------------------------------------------

    async def ingest(self, body: bytes, *, many: bool) -> dict[str, int]:
        """Take in the body of a request, here or in the process that publishes the dataset."""
        thread = self.publisher_thread
        if thread is None:
            return await self._socket.ask({"op": "ingest", "many": many}, body, seconds=self._settings.work_seconds)
        box = [body]  # emptied by the thread or at the time limit, so that work that was given up holds no memory
        del body
        work = thread.submit(thread.ingest, box, many=many, settings=self._settings)
        try:
            async with asyncio.timeout(self._settings.work_seconds):
                return await asyncio.wrap_future(work)
        except TimeoutError:
            box.clear()
            raise busy_problem("the dataset is busy; send it again a little later", seconds=5) from None

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
            "step": self.spec.clock.step,
            "origin": self.spec.clock.origin,
            "lateness": self.spec.clock.lateness,
            "times": self.spec.clock.times,
            "limits": {name: limits[name] for name in self.spec.limits},
            "guarantee": self._publisher.guarantee(),
            "estimate": self._describe_estimate(),
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
            "usefulness": error.usefulness,
            "measured_on": error.how,
            "words": f"The estimate {error.in_words}, {about_words(estimator.about, self.plan.max_age)}.",
        }

    def releases(self, after: int | None, limit: int) -> list[dict[str, Any]]:
        """The first releases after a tick, or the newest ones."""
        outputs = self._ledger.outputs_after(self.name, after, query=self.query, limit=limit)
        return [self.release_record(published) for published in outputs]

    def release_record(self, published: Published) -> dict[str, Any]:
        """A release as readers see it."""
        return {"id": published.seq, **release_record(Release.of(published), self.spec.clock)}

    async def status(self) -> dict[str, Any]:
        """Counts, leakage against its limits, the ages of readings, and why publishing waits, if it does."""
        progress = await self._progress()
        figures = await asyncio.to_thread(self.figures, progress.get("closed"))
        ages = progress.get("information_ages", [None] * len(self.names))
        newest = figures["newest_tick"]
        return {
            **figures,
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
        newest = self._publisher.summary()["newest_tick"] if tick is not None else None
        at = tick if newest is not None and tick is not None and tick > newest else None
        summary = self._publisher.summary(time=at)
        return {
            **{name: summary[name] for name in ("newest_tick", "published", "refused", "lost", "present")},
            "budget": summary["limits"]["budget"],
            "limits": summary["limits"],
            "remaining": self._publisher.remaining(time=at),
            **{name: summary[name] for name in ("event_level", "group_level", "lifetime")},
        }

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

    def outputs(self, after: int, upto: int) -> dict[int, Published]:
        """The outputs of the entries after one number up to another, by number."""
        outputs = takewhile(lambda one: one.seq <= upto, self._ledger.published(self.name, after=after))
        return {published.seq: published for published in outputs}

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
