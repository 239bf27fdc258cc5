"""The thread that publishes a dataset of a service."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from csdp.errors import LedgerBusyError, LedgerHeldError, LedgerTermsError
from csdp.ledger import Ledger
from csdp.planning.plan_file import PlanFile
from csdp.publisher import Release, Skipped
from csdp.service import Settings
from csdp.service.responses import MESSAGE_COUNTS, HttpProblem, error_place
from csdp.stream import Runner, Snapshot, run
from csdp.stream.messages import Bad, Fate, decode_message
from csdp.stream.spec import StreamSpec, open_runner, open_source

log = logging.getLogger("csdp.service")

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


@dataclass(eq=False)
class _Body:
    """The body of a request that waits for its turn, and what came of it.

    Args:
        box: holds the body; it is taken out, or emptied when the request no longer waits.
        many: one message per line; else one message, which is refused with a problem if it cannot be used.
        settings: the limits of a body.
    """

    box: list[bytes]
    many: bool
    settings: Settings
    #: How many messages were accepted (their tick was open), taken in for a recorded tick, late, ahead, or unreadable.
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MESSAGE_COUNTS, 0))
    reasons: list[str] = field(default_factory=list)  #: which unknown sequences snapshots named, each once
    problem: Exception | None = None
    future: Future[dict[str, Any]] = field(default_factory=Future)

    def split(self) -> list[bytes]:
        """The messages; none if nobody waits any more, or with a problem."""
        if not self.box or not self.future.set_running_or_notify_cancel():
            return []
        body = self.box.pop()
        try:
            limits = self.settings
            return split_lines(body, max_line=limits.max_line, max_lines=limits.max_lines) if self.many else [body]
        except HttpProblem as problem:
            self.problem = problem
            return []

    def answer(self) -> None:
        """Answer the request that waits."""
        if self.future.running() and self.problem is not None:
            self.future.set_exception(self.problem)
        elif self.future.running():
            counts: dict[str, Any] = {name: n for name, n in self.counts.items() if n or name != "recorded"}
            self.future.set_result(counts | ({"reasons": self.reasons} if self.reasons else {}))

    def refuse(self, kind: str, why: str) -> None:
        """Count a message that is not taken in; one that was sent alone is refused with a problem."""
        self.counts["unreadable"] += 1
        if not self.many:
            self.problem = HttpProblem(422, kind, why)


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
        self._spec, self._plan = spec, plan
        self._ledger = ledger
        self.lost: LedgerHeldError | None = None  #: why this process may not publish any more
        self._stack = ExitStack()
        self._closing = False
        self._behind = False
        self._trouble = ""
        self._busy_since: float | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"csdp-{spec.dataset}")
        self.submit = self._executor.submit  #: run something in the thread of this dataset
        self._waiting: deque[_Body] = deque()
        self.runner: Runner = self._stack.enter_context(open_runner(spec, plan, ledger, on_outcome=on_outcome))
        self._source: threading.Thread | None = None
        self.submit(self._publish, self.runner.recover)
        if spec.source.kind in _SOURCES:
            self._source = threading.Thread(target=self._read_source, name=f"csdp-source-{spec.dataset}", daemon=True)
            self._source.start()

    # ---- in the thread of the dataset ------------------------------------------------------------------------------

    def _take_waiting(self) -> None:
        """Take in the bodies that wait for their turn, and publish the ticks that they close together."""
        bodies = [self._waiting.popleft() for _ in range(len(self._waiting))]
        lines: list[tuple[_Body, bytes]] = []
        try:
            for body in bodies:
                lines += [(body, line) for line in body.split()]
                while len(lines) >= _BATCH:
                    batch, lines = lines[:_BATCH], lines[_BATCH:]
                    self._publish(partial(self._take_in, batch))
            if lines:
                self._publish(partial(self._take_in, lines))
        except Exception as error:
            for body in bodies:
                body.problem = body.problem or error
        for body in bodies:
            body.answer()

    def _take_in(self, lines: list[tuple[_Body, bytes]]) -> None:
        """Hand some messages to the runner, count them, and publish the ticks that they close."""
        for body, line in lines:
            message = decode_message(line)
            if isinstance(message, Bad):
                self.runner.accept(message)
                body.refuse("unreadable", f"{message.why}; a snapshot is {{'time': ..., 'values': {{name: number}}}}")
                continue
            if unknown := self.runner.describe_unknown(message):
                body.refuse("unknown", unknown)
                body.reasons += [unknown] if unknown not in body.reasons and len(body.reasons) < _REASONS else []
                continue
            fate = self.runner.accept(message)
            # Form, names and times decide, never a value: a reading without a number is a gap, not an error.
            count = "unreadable" if fate == "bad" and isinstance(message, Snapshot) else _COUNTS.get(fate, "accepted")
            if count == "unreadable":
                body.refuse("unknown", _UNUSABLE)
            else:
                body.counts[count] += 1
        self.runner.settle()

    def maintain(self) -> None:
        """Do what is due without a request: notice a lost right, let time pass, retry what a busy ledger held up."""
        try:
            self._ledger.check_held()
        except LedgerHeldError as error:
            self.lost, self._trouble = error, str(error)
            raise
        if self._spec.by_wall_clock:
            self._publish(self.runner.advance_to_now)
        elif self._behind:
            self._publish(self.runner.settle)

    def _publish(self, work: Callable[[], object]) -> None:
        """Do work of the runner that needs the ledger. With a busy ledger readings are kept, and published later."""
        if self.lost is not None:  # the ledger would refuse it; sink and state file would not
            raise self.lost
        self._busy_since = time.monotonic()
        try:
            work()
        except LedgerBusyError:
            self._behind, self._trouble = True, "waiting for the ledger"
        except LedgerHeldError as error:
            self.lost, self._trouble = error, str(error)
            raise
        except LedgerTermsError as error:
            if self._trouble != str(error):
                log.error("%s: %s", self._spec.dataset, error)
            self._behind, self._trouble = False, str(error)
        else:
            last = self.runner.recent[-1] if self.runner.recent else None
            obsolete = isinstance(last, Skipped) and last.why == "terms"
            self._behind, self._trouble = False, self._trouble if obsolete else ""
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
        """Take in the body of a request when it is its turn, and publish the ticks that it closes; see `_Body`.

        Bodies that wait have their turn together: their ticks are charged together, and recorded together.
        """
        body = _Body(box, many, settings)
        self._waiting.append(body)
        self.submit(self._take_waiting).add_done_callback(self._let_go)
        return body.future

    def _let_go(self, turn: Future[None]) -> None:
        """Cancel what waits if there will be no more turns."""
        while turn.cancelled() and self._waiting:
            self._waiting.popleft().future.cancel()

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
