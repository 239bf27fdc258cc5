"""A dataset that this process publishes: its runner, the thread that drives it, and its source where it has one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

from csdp.errors import LedgerBusyError, LedgerTermsError
from csdp.plan import Plan
from csdp.publisher import Release, Skipped
from csdp.service.ingest import Counts, Limits, lines_of, take_many, take_one
from csdp.service.problems import place
from csdp.stream import Alarm, Bad, Reading, Runner, Snapshot, run
from csdp.stream.from_spec import running, source
from csdp.stream.runner import Fate
from csdp.stream.spec import StreamSpec

log = logging.getLogger("csdp.service")
Result = TypeVar("Result")

#: Sources that a service reads beside HTTP.
_READ = ("file", "mqtt")


class Live:
    """The runner of a dataset. Everything that publishes runs in one thread, so writers never wait for each other's
    turn in more than one place, and the event loop never waits at all.
    """

    def __init__(self, spec: StreamSpec, plan: Plan, *, on_outcome: Callable[[Release | Skipped], None]) -> None:
        self._spec = spec
        self._stack = ExitStack()
        self._closing = False
        self.trouble = ""  #: why publishing waits, for whoever looks
        self._behind = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"csdp-{spec.dataset}")
        self.runner: Runner = self._stack.enter_context(
            running(spec, plan, on_drift=self._drifted, on_outcome=on_outcome)
        )
        self._source: threading.Thread | None = None
        self.submit(self._recovered)
        if spec.source.kind in _READ:
            self._source = threading.Thread(target=self._read, name=f"csdp-source-{spec.dataset}", daemon=True)
            self._source.start()

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Do something in the thread of this dataset."""
        return self._thread.submit(work)

    # ---- in the thread of the dataset ------------------------------------------------------------------------------

    def take(self, body: bytes, *, many: bool, limits: Limits) -> Counts:
        """Take in the body of a request."""
        return take_many(self, lines_of(body, limits)) if many else take_one(self, body)

    def accept(self, message: Reading | Snapshot | Bad) -> Fate:
        """Take in one message."""
        return self.runner.accept(message)

    def settle(self) -> None:
        """Publish what is closed. A busy ledger is no fault of a writer: its readings are kept, and tried again."""
        self._patiently(self.runner.settle)

    def tend(self) -> None:
        """What has to be done although nobody writes: time that passes, and what had to wait."""
        if self._spec.by_wall_clock:
            self._patiently(lambda: self.runner.advance(self.runner.publisher.tick_times.wall.now()))
        elif self._behind:
            self.settle()

    def _recovered(self) -> None:
        self._patiently(self.runner.recover)

    def _patiently(self, work: Callable[[], object]) -> None:
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

    def _read(self) -> None:
        """Feed the runner from the source that its specification names, until it ends or the service does."""
        try:
            run(self.runner, source(self._spec))
        except Exception as error:
            self.trouble = f"the {self._spec.source.kind} source has failed"
            log.error("%s: %s (%s at %s)", self._spec.dataset, self.trouble, type(error).__name__, place(error))
        finally:
            if not self._closing:
                self.runner.stop = threading.Event()  # the source is over, but readings still come over HTTP

    def _drifted(self, _: Alarm) -> None:
        """For the operator's log alone: it comes from private readings."""
        log.warning("%s: the readings no longer follow the chain. This is private", self._spec.dataset)

    # ---- questions ---------------------------------------------------------------------------------------------------

    def seen(self) -> dict[str, Any]:
        """What only the process with the readings knows: times, counts, ages. Nothing of it depends on a value."""
        status = self.runner.status()
        tick, ages = self.runner.publisher.information_ages()
        passed = 0 if tick is None or status.closed is None else max(0, status.closed - tick)
        clock = self.runner.clock
        newest = status.newest_time
        return {
            "closed": status.closed,
            "newest_time": newest,
            "watermark": None if newest is None else newest - clock.lateness,
            "open_ticks": status.open_ticks,
            "skipped": status.skipped,
            "reason": status.reason,
            "fates": dict(status.fates),
            "put_back": status.put_back,
            "information_ages": [None if age is None else age + passed for age in ages],
            "trouble": self.trouble or status.trouble,
        }

    def close(self) -> None:
        """Stop publishing; what is closed is published, open ticks stay open."""
        self._closing = True
        self.runner.stop.set()
        if self._source is not None:
            self._source.join(10)
        self._thread.shutdown(wait=True, cancel_futures=True)
        self.runner.close()
        self._stack.close()
