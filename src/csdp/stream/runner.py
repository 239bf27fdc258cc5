"""The runner: drives a publisher tick by tick as event time passes.

Readings are put into open ticks; when the watermark closes a tick, its snapshot goes to the publisher, exactly once,
and its release goes to the sink. Whether a tick has an output depends on times and on which readings are missing, never
on a value. Readings stay in memory, unless a state file is asked for.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.clock import Clock, Time, check_time
from csdp.errors import InputError, LedgerTermsError
from csdp.ledger import Ledger
from csdp.numbers import Floats
from csdp.panel import Discretiser
from csdp.panel.panel import arrange_names
from csdp.publisher import Publisher, Release, Skipped
from csdp.publisher.sources import chunk_size
from csdp.stream.messages import Bad, Fate, Message, Nearest, Reading, Snapshot, find_states, to_numbers
from csdp.stream.sinks import Delivery, Sink
from csdp.stream.ticks import (
    Checkpoint,
    OpenTicks,
    Status,
    Timekeeper,
    check_newest_ledger,
    load_checkpoint,
    save_checkpoint,
)

if TYPE_CHECKING:
    from csdp.fitting.drift import DriftCheck

log = logging.getLogger("csdp.stream")

#: The states of a tick, and what the publisher takes of it.
Taken = tuple[npt.NDArray[np.int16], npt.NDArray[Any]]

#: Names that a message lists, and messages with unknown names that are reported to the operator.
_LISTED = 8
#: Outcomes that `Runner.recent` holds.
RECENT = 100
#: Most ticks that are charged and recorded together, and that a crash in between loses; and most that wait for the
#: clock to begin.
_TOGETHER = 32


class Runner:
    """Ingests readings, publishes each tick once when it closes. Safe to call from several threads.

    Args:
        publisher: the gate, made with on_refusal="skip", and with the clock's step, origin and times as time_step,
            time_origin and times: ticks that are counted differently would misjudge how fast the past fades. The
            runner uses the wall clock of the publisher.
        ledger: the ledger of the publisher, from which outputs are delivered again after a crash.
        clock: the grid of ticks and its lateness.
        names: the names of the sequences in messages: the chain's own (the default) in any order, or as many other
            ones, which stand for the chain's sequences in order. A snapshot that is a list has this order.
        discretiser: turns readings into states, matched by its names; by default the state whose declared value is
            nearest.
        sink: where outputs go; None if they are read from the ledger.
        state_file: keep the readings that later releases need on disk (mode 0600), to go on at once after a restart.
        missing_up_to: go on after this tick although the ledger lacks charges of ticks up to it. Without it, a ledger
            that is older than what the sink or the state file has seen is refused with LedgerConflictError.
        drift: a check that gets every snapshot; when it begins to give an alarm, the operator's log says so.
        on_outcome: called with every release and every tick without output, in order.

    >>> import tempfile
    >>> from csdp import CoupledChain, Mean, Plan
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], names=["hall"]), Mean(), ages=1, epsilon_c=0.5)
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.db") as ledger:
    ...     publisher = Publisher(
    ...         plan, dataset="ward-7", ledger=ledger, on_refusal="skip", time_step=60, times="data")
    ...     runner = Runner(publisher, ledger=ledger, clock=Clock(step=60, lateness=10, times="data"))
    ...     fates = [runner.ingest("hall", time=time, value=1) for time in (0, 60, 120, 131, 59)]
    ...     fates, runner.status().published, runner.status().last.tick
    (['accepted', 'accepted', 'accepted', 'accepted', 'late'], 1, 1)
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        ledger: Ledger,
        clock: Clock,
        names: Sequence[str] | None = None,
        discretiser: Discretiser | None = None,
        sink: Sink | None = None,
        state_file: str | Path | None = None,
        missing_up_to: int | None = None,
        drift: DriftCheck | None = None,
        on_outcome: Callable[[Release | Skipped], None] | None = None,
    ) -> None:
        plan = publisher.plan
        publisher.tick_times.check_clock(clock)
        self.publisher = publisher
        self.clock = clock
        self.names: tuple[str, ...] = tuple(name.strip() for name in (plan.model.names if names is None else names))
        chain_order = arrange_names(self.names, plan.model.names)
        self.stop = threading.Event()  #: set it to end a delivery that waits
        self.recent: deque[Release | Skipped] = deque(maxlen=RECENT)
        self._index = {name: i for i, name in enumerate(chain_order)}
        self._places = np.array([self._index[name] for name in self.names], dtype=np.intp)
        self._states = find_states(discretiser, chain_order, plan)
        # The values of the chain's states, where readings are such values.
        self._values = self._states if isinstance(self._states, Nearest) and plan.query.of_states else None
        self._delivery: Delivery | None = None
        if sink is not None:
            self._delivery = Delivery(sink, ledger, dataset=publisher.dataset, query=plan.query.name, clock=clock)
        self._drift = drift
        self._alarmed = False
        self._on_outcome = on_outcome
        self._ledger = ledger
        self._lock = threading.RLock()
        self._done = 0  # the last tick that was dealt with
        self._open = OpenTicks(len(self.names))
        # Nothing older than what the ledger has charged can be published, whatever arrives again.
        self._missing_up_to = missing_up_to
        self._charged = self._newest_charged()
        self._last_data: int | None = None
        self._reach = plan.max_age + plan.stale_limit
        self._time = Timekeeper(
            clock,
            publisher.tick_times.wall,
            dataset=publisher.dataset,
            sequences=len(self.names),
            reach=self._reach,
        )
        self._fates: Counter[Fate] = Counter()
        self._unknown: list[str] = []  # words on unknown names that were reported
        self._published = self._skipped = self._past = 0
        self._last: Release | None = None
        self._reason = ""
        self._replaced: LedgerTermsError | None = None
        self.stuck = False  #: a delivery gave up because `stop` was set; the ledger has its output
        self._history: deque[tuple[int, npt.NDArray[Any]]] = deque(maxlen=self._reach + 1)
        self._file = None if state_file is None else Path(state_file)
        saved = None if self._file is None else load_checkpoint(self._file, identity=self._identity)
        seen = {
            "the sink": None if sink is None else sink.newest(),
            "the state file": None if saved is None else saved.charged,
        }
        check_newest_ledger(self._charged, seen, dataset=publisher.dataset, missing_up_to=missing_up_to)
        if saved is not None:
            self._restore(saved)

    def _newest_charged(self) -> int | None:
        """The newest tick that is charged, or known to have been published."""
        known = (self._ledger.summary(self.publisher.dataset).newest_tick, self._missing_up_to)
        return max((tick for tick in known if tick is not None), default=None)

    # ---- taking in -------------------------------------------------------------------------------------------------

    def ingest(self, sequence: str, *, time: Time, value: object) -> Fate:
        """Take in one reading, and publish the ticks that it closes."""
        fate = self.accept(Reading(sequence, check_time(time), value))
        self.settle()
        return fate

    def ingest_snapshot(self, values: Mapping[str, object] | Sequence[object], *, time: Time) -> Fate:
        """Take in readings of many sequences at one time, and publish the ticks that it closes."""
        fate = self.accept(Snapshot(check_time(time), values))
        self.settle()
        return fate

    def accept(self, message: Message) -> Fate:
        """Take in a message without publishing anything; call `settle` next. Never raises for what a message holds."""
        with self._lock:
            fate = self._place(message)
            self._fates[fate] += 1
            self._fates["accepted"] += fate == "recorded"
            unknown = self.describe_unknown(message)
            if unknown and unknown not in self._unknown and len(self._unknown) < _LISTED:
                self._unknown.append(unknown)
                log.warning("%s: %s", self.publisher.dataset, unknown)
            return fate

    def _place(self, message: Message) -> Fate:
        """Move the clock, and put the values of a message into their tick."""
        if isinstance(message, Bad):
            return "bad"
        sequences = self._find_sequences(message)
        if isinstance(sequences, str):
            return sequences
        # The clock moves before the value is looked at: when a tick closes must not depend on what a reading holds.
        unset = self._time.mark is None
        verdict = self._time.observe(message.time, sequences)
        if unset:
            self._begin()
        if verdict != "open":
            return verdict
        return self._put(self.clock.tick(message.time), sequences, message)

    def _put(self, tick: int, sequences: npt.NDArray[np.intp], message: Reading | Snapshot) -> Fate:
        """Store the usable values; of a snapshot, bad ones and those of unknown sequences are counted one by one."""
        if isinstance(message, Reading):
            values: Sequence[object] = [message.value]
        elif isinstance(message.values, Mapping):
            self._fates["unknown"] += len(message.values) - len(sequences)
            values = [value for name, value in message.values.items() if name in self._index]
        else:
            values = message.values
        readings, bad = to_numbers(values, self._states.categories)
        if isinstance(message, Reading) and bad:
            return "bad"
        self._fates["bad"] += bad
        usable = ~np.isnan(readings)
        if not usable.any():
            return "missing"
        self._count_outside(sequences[usable], readings[usable])
        if not self._open.put(tick, sequences[usable], message.time, readings[usable]):
            return "duplicate"
        # Later releases may rest on a reading although its own tick is recorded.
        return "accepted" if self._charged is None or tick > self._charged else "recorded"

    def _count_outside(self, sequences: npt.NDArray[np.intp], readings: Floats) -> None:
        """Count readings beyond the values of the chain's states, and warn the operator at 1, 10, 100, ... of them.

        They count as the nearest state: refusing one would leave a gap, which shows its value to everyone.
        """
        if self._values is None:
            return
        before = self._fates["outside"]
        after = before + int(self._values.is_outside(sequences, readings).sum())
        self._fates["outside"] = after
        if len(str(after)) > len(str(before)) or (not before and after):
            log.warning(
                "%s: %d readings lay beyond the values of the chain's states, %g to %g, and count as the nearest one. "
                "Send values of these states (null if one is missing), or give the dataset a discretiser. "
                "This is private",
                self.publisher.dataset,
                after,
                *self._values.bounds,
            )

    def describe_unknown(self, message: Message) -> str:
        """Words for the names in a snapshot that no sequence has, beside names of sequences; empty if all are known.

        Names alone: where not one of them is known, they may be something else than names.
        """
        if not isinstance(message, Snapshot) or not isinstance(message.values, Mapping):
            return ""
        unknown = [str(name) for name in message.values if name not in self._index]
        if not unknown or len(unknown) == len(message.values):
            return ""
        given = _list_names(unknown)
        return f"unknown sequence {given}; the dataset has {_list_names(self.names)}. Name the sequences as it does"

    def _find_sequences(self, message: Reading | Snapshot) -> npt.NDArray[np.intp] | Fate:
        """The numbers of the sequences that a message is about, in the order of its values; or why it has none.

        Decided by names, counts and times only.
        """
        try:
            check_time(message.time)
        except InputError:
            return "bad"
        if isinstance(message, Reading):
            known = isinstance(message.sequence, str) and message.sequence in self._index
            return np.array([self._index[message.sequence]], dtype=np.intp) if known else "unknown"
        values = message.values
        if isinstance(values, Mapping):
            indices = [self._index[name] for name in values if name in self._index]
            return np.array(indices, dtype=np.intp) if indices else "unknown"
        listed = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str | bytes)
        return self._places if listed and len(values) == len(self.names) else "bad"

    def _begin(self) -> None:
        """Begin with the tick of the clock's first mark; readings from before it stay open for a while."""
        mark = self._time.mark
        if mark is None:
            self._open.limit(_TOGETHER)
            return
        self._done = mark.closed
        self._open.begin(mark.closed + 1, self.clock.tick(self._time.highest))

    def advance(self, time: Time) -> None:
        """Let time pass without a reading, so that ticks close although no reading comes.

        With times="wall" it never passes beyond the wall clock.
        """
        with self._lock:
            unset = self._time.mark is None
            self._time.advance(time)
            if unset:
                self._begin()
            self.settle()

    def advance_to_now(self) -> None:
        """Let time pass up to what the wall clock shows."""
        self.advance(self.publisher.tick_times.wall.now())

    # ---- publishing ------------------------------------------------------------------------------------------------

    def settle(self) -> list[Release | Skipped]:
        """Publish every closed tick that was not yet dealt with, in order, and deliver it.

        After an error (a busy ledger, a sink that failed) call it again: it goes on where it stopped, and a tick that
        was published is delivered from the ledger. If the dataset is published under other terms by now, ticks pass
        without output, and LedgerTermsError says so.
        """
        with self._lock:
            last = self._time.last_publishable_tick()
            if last is None or (self._delivery is not None and not self.recover()):
                return []
            outcomes: list[Release | Skipped] = []
            before = self._done
            while self._done < last:
                if self._skip_empty_ticks(last):
                    continue
                if not self._settle_together({tick: self._take(tick) for tick in self._next_ticks(last)}, outcomes):
                    break
            if self._done > before and self._file is not None:
                self._save(self._file)
            if self._replaced is not None:
                error = self._replaced
                self._replaced = None
                raise error
            return outcomes

    def _next_ticks(self, last: int) -> list[int]:
        """The ticks that are published together: one, or if nothing is delivered those with readings in a row.

        A sink gets each output before the next one is published. A function of the user may fail, and must not take
        other ticks along.
        """
        first = self._done + 1
        together = min(_TOGETHER, chunk_size(self.publisher.plan), last - self._done)
        most = 1 if self._delivery is not None else together
        return [first, *takewhile(self._open.__contains__, range(first + 1, first + most))]

    def _settle_together(self, taken: Mapping[int, Taken], settled: list[Release | Skipped]) -> bool:
        """Publish some ticks, deliver them, and be done with them; False if stopped."""
        outcomes = self._publish({tick: snapshot for tick, (_, snapshot) in taken.items()})
        delivery = self._delivery
        for tick, outcome in outcomes.items():
            if delivery is not None and isinstance(outcome, Release) and not delivery.deliver(outcome, self.stop):
                self.stuck = True
                return False
            self._finish(tick, taken[tick], outcome)
            settled += [] if outcome is None else [outcome]
        return True

    def _take(self, tick: int) -> Taken:
        """The states of a tick, and what the publisher takes of it: these, or if it publishes them the readings."""
        stored = self._open.readings(tick)
        readings = np.full(len(self.names), np.nan) if stored is None else stored
        states = np.full(len(self.names), -1) if stored is None else self._states.states_of(readings)
        states = np.asarray(states, dtype=np.int16)
        return states, states if self.publisher.plan.query.of_states else readings.copy()

    def recover(self) -> bool:
        """Deliver what was published before this runner began and may not have arrived; False if stopped."""
        if self._delivery is None:
            return True
        with self._lock:
            done = self._delivery.recover(self.stop)
            self.stuck = self.stuck or not done
            return done

    def _skip_empty_ticks(self, last: int) -> bool:
        """Pass over ticks so long after the last reading that they cannot have an output; whether there are any."""
        if self._last_data is not None and self._done < self._last_data + self._reach:
            return False
        first = self._open.first()
        to = last if first is None else min(last, first - 1)
        if to <= self._done:
            return False
        if self._last_data is not None:  # before the first reading of all there was nothing to publish
            self._skipped += to - self._done
            self._reason = "no reading for too long"
            if self._drift is not None:  # a gap is no step of the chain
                self._check_drift(self._drift, np.full(len(self.names), -1, dtype=np.int16))
        self._done = to
        return True

    def _publish(self, snapshots: Mapping[int, npt.NDArray[Any]]) -> dict[int, Release | Skipped | None]:
        """Hand ticks to the publisher; None for those that were charged before this runner began."""
        outcomes: dict[int, Release | Skipped | None] = dict.fromkeys(snapshots)
        new = {tick: one for tick, one in snapshots.items() if self._charged is None or tick > self._charged}
        for tick in sorted(snapshots.keys() - new.keys()):
            self.publisher.observe(snapshots[tick], time=tick)
        try:
            outcomes |= {one.tick: one for one in self.publisher.push_many(new)}
        except LedgerTermsError as error:  # for good: to keep the readings and try again would fill the memory
            self._replaced = error
            outcomes |= {tick: Skipped(tick, str(error), "terms") for tick in new}
        return outcomes

    def _finish(self, tick: int, taken: Taken, outcome: Release | Skipped | None) -> None:
        self._open.drop(tick)
        self._done, (states, snapshot) = tick, taken
        if (states >= 0).any():
            self._last_data = tick
            if self._file is not None:
                self._history.append((tick, snapshot))
        if isinstance(outcome, Release):
            self._published += 1
            self._last = outcome
        elif outcome is None:
            self._past += 1
        else:
            self._skipped += 1
            self._reason = outcome.reason
        if outcome is not None:
            self.recent.append(outcome)
            if self._on_outcome is not None:
                self._on_outcome(outcome)
        if self._drift is not None:
            self._check_drift(self._drift, states)

    def _check_drift(self, drift: DriftCheck, snapshot: npt.NDArray[np.int16]) -> None:
        try:
            alarm = drift.update(snapshot)
        except Exception as error:  # a check for the operator must not stop what is published
            log.warning("the drift check failed (%s) and is switched off", type(error).__name__)
            self._drift = None
            return
        if alarm and not self._alarmed:  # in the operator's log only: it comes from private readings
            log.warning(
                "%s: drift: the readings no longer follow the chain, which the certified leakage assumes. This is "
                "private: do not act on it in public",
                self.publisher.dataset,
            )
        self._alarmed = alarm

    # ---- state file and end ----------------------------------------------------------------------------------------

    @property
    def _identity(self) -> str:
        plan, clock = self.publisher.plan, self.clock
        what = repr((self.publisher.dataset, plan.digest, clock.step, clock.origin, self.names))
        return hashlib.sha256(what.encode()).hexdigest()

    def _restore(self, saved: Checkpoint) -> None:
        for tick, row in saved.history:
            self.publisher.observe(row, time=tick)
            self._history.append((tick, row))
            self._last_data = tick
        self._open.restore(saved.open_ticks)
        self._time.restore(saved.mark)
        self._done = saved.done

    def _save(self, file: Path) -> None:
        if self._time.mark is not None:
            charged = self._charged if self._last is None else self._last.tick
            checkpoint = Checkpoint(self._time.mark, self._done, tuple(self._history), self._open.to_arrays(), charged)
            save_checkpoint(file, checkpoint, identity=self._identity)

    def close(self) -> None:
        """Write the state file, if there is one. Open ticks stay open: nothing is published."""
        if self._file is not None:
            with self._lock:
                self._save(self._file)

    def status(self) -> Status:
        """The state of the stream; does not wait for a publication that is under way."""
        mark = self._time.mark
        return Status(
            dataset=self.publisher.dataset,
            times=self.clock.times,
            trouble=self._time.trouble,
            newest_time=None if mark is None else mark.newest,
            closed=None if mark is None else mark.closed,
            published=self._published,
            skipped=self._skipped,
            past=self._past,
            fates={fate: count for fate, count in dict(self._fates).items() if count},
            last=self._last,
            reason=self._reason,
        )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_LISTED])) + ", ..." * (len(names) > _LISTED)
