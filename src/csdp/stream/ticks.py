"""The ticks of a running stream: the clock that closes them, the readings of open ones, and the state file of both.

Neither a single message nor a single sequence can move the clock too far ahead. With times="wall" a time beyond the
wall clock is refused. With times="data" only the sequences say what time it is: ticks begin to close once more than
half of them have sent something, and a time may lie only so many ticks ahead of what more than half have reached as an
output can rest on, and ten more.

The state file holds private readings, so it is written only if it is asked for: with mode 0600, versioned, replaced in
one step. With it a runner goes on at once; without it, it waits until readings are as old as the plan needs.
"""

from __future__ import annotations

import io
import logging
import math
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.clock import Clock, Mark, Time, Times, Verdict, WallClock
from csdp.errors import InputError, LedgerConflictError
from csdp.files import write_privately
from csdp.numbers import Floats
from csdp.publisher import Release
from csdp.stream.messages import Fate

log = logging.getLogger("csdp.stream")

#: A sequence has reached a time after this many messages in a row; fewer may be a mistake.
REPEATS = 4
#: Ticks that a time may lie ahead of most sequences, in addition to those that a release can use.
_JUMP = 10
#: The format of a state file.
VERSION = "csdp/stream-state/1"
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Status:
    """The state of a stream: times and counts, nothing private."""

    dataset: str
    newest_time: Time | None
    closed: int | None  #: the last tick that is closed
    published: int  #: releases by this runner
    skipped: int  #: ticks without output
    past: int  #: ticks charged before this runner began; their readings are only used for later releases
    fates: Mapping[Fate, int] = field(default_factory=dict)
    last: Release | None = None
    reason: str = ""  #: why the last tick without output had none
    times: Times = "wall"  #: what the times of readings are compared with
    trouble: str = ""  #: what is wrong with the clock


class Majority:
    """The last times of every sequence, and the time that more than half of them have reached.

    A sequence has reached a time when its last `REPEATS` messages (as many as there were) are not older. So a time that
    fewer than half of the sequences claim moves nothing, and neither do three messages about all of them at once.

    >>> most = Majority(3)
    >>> most.record([2], 10**15)
    >>> most.reached() is None
    True
    >>> most.record([0], 10)
    >>> most.record([1], 12)
    >>> most.reached()
    12.0
    """

    def __init__(self, sequences: int) -> None:
        # Oldest first, one row for each: numpy copies rows much faster than columns. inf: no message yet.
        self._last = np.full((REPEATS, sequences), np.inf)

    def record(self, sequences: npt.ArrayLike, time: Time) -> None:
        """Record a message about some sequences, whether its time is believed or not."""
        chosen = np.asarray(sequences, dtype=np.intp)
        for older, newer in pairwise(self._last):
            older[chosen] = newer[chosen]
        self._last[-1][chosen] = time

    def reached(self) -> Time | None:
        """The greatest time that more than half of the sequences have reached; None if fewer have sent a message."""
        least = self._last.min(axis=0)
        known = np.sort(least[np.isfinite(least)])[::-1]
        needed = least.size // 2 + 1
        return None if known.size < needed else float(known[needed - 1])


class Timekeeper:
    """Judges times, and moves the mark; `reach`: ticks that a release can use."""

    def __init__(self, clock: Clock, wall: WallClock, *, dataset: str, sequences: int, reach: int) -> None:
        self.mark: Mark | None = None  #: None until ticks can close
        self._clock = clock
        self._wall = wall
        self._dataset = dataset
        self._ahead = 0
        self._majority = Majority(sequences)
        late = math.ceil(clock.lateness / clock.step)
        self._jump = clock.step * (reach + late + _JUMP)
        self._reached: Time | None = None  # of times="data": by most sequences, as it was when last worked out
        self._advanced: Time | None = None

    def observe(self, time: Time, sequences: npt.ArrayLike) -> Verdict:
        """Judge the time of a message about some sequences, and move the mark."""
        if self._clock.times == "data":
            self._majority.record(sequences, time)
            if self._reached is None or time > self._reached + self._jump:
                self._update_reached()
            if self._reached is None:
                return "open"
            if self.mark is None:
                self.mark = self._clock.advance(None, self._reached)
        self.mark, verdict = self._clock.observe(self.mark, time, limit=self.highest)
        if verdict == "ahead":
            self._log_ahead()
        return verdict

    @property
    def highest(self) -> Time:
        """The greatest time that counts at present."""
        if self._clock.times == "wall":
            return self._clock.limit(self._wall.now())
        assert self._reached is not None  # as soon as there is a mark
        return self._reached + self._jump

    def _update_reached(self) -> None:
        known = [one for one in (self._majority.reached(), self._advanced) if one is not None]
        self._reached = max(known, default=None)

    def _log_ahead(self) -> None:
        """Warn the operator at 1, 10, 100, ... messages."""
        self._ahead += 1
        if str(self._ahead).strip("0") == "1":
            than = "the wall clock" if self._clock.times == "wall" else "most sequences"
            log.warning("%s: %d messages lay too far ahead of %s, and were refused", self._dataset, self._ahead, than)

    def advance(self, time: Time) -> None:
        """Let time pass without a message; with times="wall" never beyond the wall clock."""
        if self._clock.times == "wall":
            time = min(time, self._wall.now())
        else:
            self._advanced = time if self._advanced is None else max(time, self._advanced)
            self._update_reached()
        self.mark = self._clock.advance(self.mark, time)

    def restore(self, mark: Mark) -> None:
        """Go on from the mark of an earlier process."""
        self.mark = mark
        if self._clock.times == "data":
            self._advanced = self._reached = mark.newest

    def last_publishable_tick(self) -> int | None:
        """The last tick that is closed and, with times="wall", whose end the wall clock has passed.

        The mark alone is not enough: the wall clock may have been set back since.
        """
        if self.mark is None or self._clock.times == "data":
            return None if self.mark is None else self.mark.closed
        return min(self.mark.closed, self._clock.over(self._wall.now()))

    @property
    def trouble(self) -> str:
        """What is wrong with the clock; empty if nothing is."""
        if self._clock.times == "data":
            return "ticks wait until more than half of the sequences have sent a reading" if self.mark is None else ""
        if not self._wall.trouble and self.mark is not None and self.mark.newest > self.highest:
            return "the newest time lies beyond the wall clock, which was wrong; restart without state_file"
        return self._wall.trouble


class OpenTicks:
    """For every open tick the newest reading of each sequence; NaN if there is none yet."""

    def __init__(self, sequences: int) -> None:
        self._sequences = sequences
        # tick -> times and values of the readings
        self._ticks: defaultdict[int, tuple[Floats, Floats]] = defaultdict(
            lambda: (np.full(sequences, -np.inf), np.full(sequences, np.nan))
        )

    def put(self, tick: int, sequences: npt.NDArray[np.intp], time: Time, readings: Floats) -> int:
        """Store those that are newer than what is stored; how many were. Of two at the same time the first counts."""
        times, values = self._ticks[tick]
        newer = times[sequences] < time
        chosen = sequences[newer]
        times[chosen], values[chosen] = time, readings[newer]
        return int(chosen.size)

    def first(self) -> int | None:
        """The oldest tick with a reading."""
        return min(self._ticks, default=None)

    def readings(self, tick: int) -> Floats | None:
        """The readings of a tick, NaN if missing; None if there is not one."""
        return self._ticks[tick][1] if tick in self._ticks else None

    def drop(self, tick: int) -> None:
        """Forget a tick."""
        self._ticks.pop(tick, None)

    def begin(self, first: int, last: int) -> None:
        """Keep the ticks from `first` to `last`: the clock has begun among them."""
        for tick in [one for one in self._ticks if not first <= one <= last]:
            del self._ticks[tick]

    def limit(self, count: int) -> None:
        """Forget the ticks that were opened first if there are more than `count`."""
        while len(self._ticks) > count:
            del self._ticks[next(iter(self._ticks))]

    def __len__(self) -> int:
        return len(self._ticks)

    def __contains__(self, tick: int) -> bool:
        return tick in self._ticks

    def to_arrays(self) -> Arrays:
        """Everything, for a state file."""
        shape = (len(self._ticks), self._sequences)
        return {
            "open_ticks": np.array(list(self._ticks), dtype=np.int64),
            "open_times": np.array([times for times, _ in self._ticks.values()], dtype=np.float64).reshape(shape),
            "open_values": np.array([values for _, values in self._ticks.values()], dtype=np.float64).reshape(shape),
        }

    def restore(self, arrays: Arrays) -> None:
        """Add what `to_arrays` returned."""
        for tick, times, values in zip(
            arrays["open_ticks"].tolist(), arrays["open_times"], arrays["open_values"], strict=True
        ):
            self._ticks[tick] = (times.copy(), values.copy())


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A runner at one moment: its clock, the last snapshots (states, or the readings that are published), and the
    readings of open ticks.
    """

    mark: Mark
    done: int
    history: tuple[tuple[int, npt.NDArray[Any]], ...]
    open_ticks: Arrays
    charged: int | None = None  #: the newest tick that the ledger had charged, as far as the runner knew


def save_checkpoint(path: Path, checkpoint: Checkpoint, *, identity: str) -> None:
    """Write a state file in the place of an older one; durable when this returns."""
    history = checkpoint.history
    sequences = checkpoint.open_ticks["open_values"].shape[1]
    kept = history[0][1].dtype if history else np.int16
    content = io.BytesIO()
    np.savez(
        content,
        version=np.array(VERSION),
        identity=np.array(identity),
        newest=np.array(checkpoint.mark.newest),
        closed=np.array([checkpoint.mark.closed, checkpoint.done], dtype=np.int64),
        ticks=np.array([tick for tick, _ in history], dtype=np.int64),
        rows=np.array([row for _, row in history], dtype=kept).reshape(len(history), sequences),
        charged=np.array([] if checkpoint.charged is None else [checkpoint.charged], dtype=np.int64),
        allow_pickle=False,
        **checkpoint.open_ticks,
    )
    write_privately(path, content.getvalue())


def load_checkpoint(path: Path, *, identity: str) -> Checkpoint | None:
    """Read a state file; None if there is none yet. One of another plan or grid is refused."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
        if str(content["version"]) != VERSION:
            raise InputError(f"{path}: a state file of another version; this one reads {VERSION}. Remove it to go on")
        if str(content["identity"]) != identity:
            raise InputError(
                f"{path}: the state of another dataset, plan, grid or list of sequences; give another state_file"
            )
        rows = content["rows"]
        mark = Mark(content["newest"].item(), int(content["closed"][0]))
        open_ticks = {name: content[name] for name in ("open_ticks", "open_times", "open_values")}
        charged = max(map(int, content["charged"]), default=None)
    except FileNotFoundError:
        return None
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, EOFError, AttributeError, zipfile.BadZipFile):
        raise InputError(f"{path}: not a state file, or a damaged one; remove it to go on without it") from None
    history = tuple((int(tick), row) for tick, row in zip(content["ticks"], rows, strict=True))
    return Checkpoint(mark, int(content["closed"][1]), history, open_ticks, charged)


def check_newest_ledger(
    charged: int | None, seen: Mapping[str, int | None], *, dataset: str, missing_up_to: int | None
) -> None:
    """Refuse a ledger that is older than what was published from it.

    Args:
        charged: the newest tick that the ledger has charged.
        seen: the newest published tick that each other place knows of, by what the place is; None if it cannot know.
        dataset: name of the dataset.
        missing_up_to: the tick up to which the operator accepts that charges are missing.
    """
    known = [tick for tick in (charged, missing_up_to) if tick is not None]
    for place, tick in seen.items():
        if tick is not None and tick > max(known, default=-(2**63)):
            has = "has charged none" if charged is None else f"has charged none after tick {charged}"
            raise LedgerConflictError(
                f"{place} of dataset {dataset!r} knows of tick {tick}, but the ledger {has}: an older copy of it was "
                f"restored, or a new one begun, which does not count what was published since. Restore the newest "
                f"copy. Or, once what those ticks revealed has faded (their charges stay missing), go on after them: "
                f"missing_up_to = {tick} in the specification"
            )
