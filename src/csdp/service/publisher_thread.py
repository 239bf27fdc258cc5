"""A dataset that this process publishes: its runner, the thread that drives it, and its source where it has one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from csdp.errors import LedgerBusyError, LedgerTermsError
from csdp.plan import Plan
from csdp.publisher import Release, Skipped
from csdp.service import Settings
from csdp.service.responses import HttpProblem, error_place
from csdp.stream import Alarm, Bad, Runner, Snapshot, run
from csdp.stream.from_spec import open_runner, open_source
from csdp.stream.messages import Message, decode_message
from csdp.stream.runner import Fate
from csdp.stream.spec import StreamSpec

log = logging.getLogger("csdp.service")

#: Sources that a service reads in addition to HTTP.
_SOURCES = ("file", "mqtt")
#: Messages of one request between two publications: closed ticks are published before more memory is used.
_BATCH = 64


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
        for number, line in enumerate(lines, start=1):
            message = decode_message(line)
            if not many and isinstance(message, Bad):
                detail = f"{message.why}; a snapshot is {{'time': ..., 'values': {{name: number}}}}"
                raise HttpProblem(422, "unreadable", detail)
            count = _public_count(message, self.runner.accept(message))
            if not many and count == "unreadable":
                raise HttpProblem(
                    422,
                    "unknown",
                    "no sequence of this dataset in it, not as many values as it has sequences, or a time that is no "
                    "timestamp (seconds since 1970, or ISO; a dataset whose times count ticks declares times = 'data')",
                )
            counts[count] += 1
            if number % _BATCH == 0:
                self._publish(self.runner.settle)
        self._publish(self.runner.settle)
        return counts

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


def _public_count(message: Message, fate: Fate) -> str:
    """The count that a writer sees for a message; it depends on form, names and times, never on a value.

    A reading without a number is a gap, not an error.
    """
    if fate in {"late", "ahead"}:
        return fate
    if isinstance(message, Bad) or fate in {"unknown", "undated"} or (isinstance(message, Snapshot) and fate == "bad"):
        return "unreadable"
    return "accepted"
