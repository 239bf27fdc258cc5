"""Event time: the grid of ticks, the watermark, and which ticks a new time closes; and the wall clock.

Tick k covers the times `origin + k step <= time < origin + (k + 1) step`. The watermark is the newest time seen less
the lateness; a tick is closed once the watermark reaches its end, and a reading of a closed tick is late. All of it
depends on times alone, never on a value. `Clock` is pure: the present time is an argument.
"""

from __future__ import annotations

import logging
import math
import threading
import time as system
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from csdp.check import choice, number, whole
from csdp.errors import InputError

log = logging.getLogger("csdp.clock")

Time = int | float
#: What times are: seconds since 1970, compared with the wall clock, or whatever the data say.
Times = Literal["wall", "data"]
#: Why a time counts or does not: it belongs to an open tick; its tick is closed; it lies ahead of what may be; it is no
#: timestamp at all.
Verdict = Literal["open", "late", "ahead", "undated"]

#: Times beyond this have no exact whole number of their own as a float.
TIME_LIMIT = 2**53
#: 1 January 2000. A smaller number is no timestamp of a live stream: it counts ticks, and is not to be taken for one.
EARLIEST = 946_684_800


@dataclass(frozen=True)
class Mark:
    """How far a stream has come: the newest time seen, and the last tick that is closed."""

    newest: Time
    closed: int


@dataclass(frozen=True)
class Clock:
    """The grid of ticks and its rules; `observe` is a pure step from mark to mark.

    Args:
        step: time from one tick to the next, in the unit of the readings' times (seconds for timestamps).
        origin: where tick 0 begins.
        lateness: how long a tick stays open after its end for readings that come late.
        ahead: how far ahead of the wall clock a time may lie before it is refused; at most, and by default, the
            lateness.
        times: "wall": times are seconds since 1970 and are compared with the wall clock. "data": they are what the data
            say, as in the replay of a recording, or ticks that are counted; then so is the age of what is published.

    Formal guarantee, with times="wall": no tick is closed before the wall clock has passed its end, whatever arrives.
    A time that counts is at most `now + ahead`, so the watermark is at most `now + ahead - lateness <= now`.

    >>> clock = Clock(step=60, lateness=30, times="data")
    >>> mark, verdict = clock.observe(None, 100)
    >>> clock.tick(100), verdict, mark.closed
    (1, 'open', 0)
    >>> mark, _ = clock.observe(mark, 155)
    >>> mark.closed, clock.observe(mark, 119)[1]
    (1, 'late')
    >>> wall = Clock(step=60, lateness=30)
    >>> wall.observe(None, 1_714_564_831, limit=wall.limit(1_714_564_800))
    (None, 'ahead')
    """

    step: int
    origin: int = 0
    lateness: Time = 0
    ahead: Time | None = None
    times: Times = "wall"

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", whole("clock: step", self.step, least=1, most=TIME_LIMIT))
        object.__setattr__(self, "origin", whole("clock: origin", self.origin, least=-TIME_LIMIT, most=TIME_LIMIT))
        number("clock: lateness", self.lateness, least=0, most=TIME_LIMIT)
        choice("clock: times", self.times, ("wall", "data"))
        if self.ahead is None:
            return
        if self.times == "data":
            raise InputError("clock: ahead given; with times='data' nothing says what the present is")
        # A longer `ahead` would close ticks before they are over, and publish the present as if it were old.
        number("clock: ahead", self.ahead, least=0, most=self.lateness, hint="at most the lateness")

    def tick(self, time: Time) -> int:
        """The tick that a time belongs to: floor((time - origin) / step), exactly."""
        return (math.floor(time) - self.origin) // self.step

    def start(self, tick: int) -> int:
        """The time at which a tick begins."""
        return self.origin + tick * self.step

    def limit(self, now: Time) -> Time:
        """The greatest time that counts while the wall clock shows `now`."""
        return now + (self.lateness if self.ahead is None else self.ahead)

    def observe(self, mark: Mark | None, time: Time, *, limit: Time | None = None) -> tuple[Mark | None, Verdict]:
        """A reading of some time arrives. Times beyond `limit` are refused; the wall clock always gives one."""
        check_time(time)
        if self.times == "wall" and limit is None:
            raise InputError("clock: no limit given; with times='wall' give what the wall clock allows, limit(now)")
        if limit is not None and time > limit:
            return mark, "ahead"
        if self.times == "wall" and time < EARLIEST:
            return mark, "undated"
        moved = self.advance(mark, time)
        return moved, "late" if self.tick(time) <= moved.closed else "open"

    def advance(self, mark: Mark | None, time: Time) -> Mark:
        """Time passes, with or without a reading. It never runs backwards.

        The first time of all closes nothing: what lies before its watermark was never open.
        """
        check_time(time)
        if mark is not None and time <= mark.newest:
            return mark
        closed = self.tick(time - self.lateness) - 1
        return Mark(time, closed if mark is None else max(closed, mark.closed))

    def over(self, now: Time) -> int:
        """The last tick whose end the wall clock has passed."""
        return self.tick(now) - 1


#: The largest step of the time of day, in seconds, that counts as a correction.
_TOLERANCE = 5.0
#: Seconds of a clock that cannot be set; it also counts while the machine sleeps where the system supports it.
_since_boot: Callable[[], float] = (
    partial(system.clock_gettime, system.CLOCK_BOOTTIME) if hasattr(system, "CLOCK_BOOTTIME") else system.monotonic
)


class WallClock:
    """Seconds since 1970, checked against a clock that cannot be set. Safe to ask from several threads.

    A step forward of more than `_TOLERANCE` seconds is not believed: `now` goes on as if it had not happened, until the
    time of day is back, or an operator confirms it by restarting the process. A step back is believed at once: it only
    makes ticks close later. Smaller steps are corrections, and are followed.

    Args:
        time: the time of day.
        elapsed: seconds since any moment, from a clock that cannot be set.

    >>> day, passed = [1000.0], [0.0]
    >>> clock = WallClock(time=lambda: day[0], elapsed=lambda: passed[0])
    >>> day[0], passed[0] = 1e9, 60.0
    >>> clock.now(), clock.trouble != ""
    (1060.0, True)
    >>> day[0], passed[0] = 1120.0, 120.0
    >>> clock.now(), clock.trouble
    (1120.0, '')
    """

    def __init__(self, *, time: Callable[[], float] = system.time, elapsed: Callable[[], float] = _since_boot) -> None:
        self._time = time
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._shown = time()
        self._passed = elapsed()
        self.trouble = ""  #: in words, for the operator, while the time of day is not what it should be

    def now(self) -> float:
        """The present: what the time of day says, but never more than it can be."""
        with self._lock:
            shown, passed = self._time(), self._elapsed()
            expected = self._shown + (passed - self._passed)
            step = shown - expected
            if abs(step) <= _TOLERANCE:
                self._shown, self._passed = shown, passed
                self._report("")
            elif step > 0:
                self._report(
                    "the wall clock has jumped forward and is not believed; set it back, or restart csdp if it is right"
                )
                return expected
            else:
                self._report("the wall clock has been set back; it is followed, and ticks wait for it")
            return shown

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            log.warning("%s", trouble or "the wall clock is right again")


def check_time(time: object) -> Time:
    """A finite number that a clock can work with, or an error; never the number itself in the message."""
    if isinstance(time, bool) or not isinstance(time, int | float) or not -TIME_LIMIT <= time <= TIME_LIMIT:
        raise InputError("time: not a number between -2^53 and 2^53")
    return int(time) if isinstance(time, float) and time.is_integer() else time


def parse_time(given: object) -> Time:
    """A time as it comes in a message: a number, or an ISO timestamp (UTC if it names no zone) in seconds.

    >>> parse_time("1970-01-01T00:01:00Z"), parse_time(12.5), parse_time("1970-01-01 01:00+01:00")
    (60, 12.5, 0)
    """
    if not isinstance(given, str):
        return check_time(given)
    try:
        stamp = datetime.fromisoformat(given.strip())
    except ValueError:
        raise InputError("time: neither a number nor an ISO timestamp") from None
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    try:
        return check_time(stamp.timestamp())
    except (OverflowError, ValueError):
        raise InputError("time: a timestamp out of range") from None
