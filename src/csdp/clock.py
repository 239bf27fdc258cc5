"""Event time: the grid of ticks, the watermark, and which ticks a new time closes. Pure; no threads, no wall clock.

Tick k covers the times `origin + k step <= time < origin + (k + 1) step`. The watermark is the newest time seen less
the lateness; a tick is closed once the watermark reaches its end, for ever, and a reading of a closed tick is late.
All of it depends on times alone, never on a value.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

Time = int | float
#: Why a time counts or does not: it belongs to an open tick; its tick is closed; it lies too far ahead of the present.
Verdict = Literal["open", "late", "ahead"]

#: Times beyond this have no exact whole number of their own as a float.
TIME_LIMIT = 2**53
_UNITS = {"ms": 1e-3, "s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True)
class Mark:
    """How far a stream has come: the newest time seen, and the last tick that is closed."""

    newest: Time
    closed: int


@dataclass(frozen=True)
class Advance:
    """What one time did: the mark after it, whether it counts, and the ticks that it closed, in order."""

    mark: Mark | None
    verdict: Verdict
    closed: range


@dataclass(frozen=True)
class Clock:
    """The grid of ticks and its rules; `observe` is a pure step from mark to mark.

    Args:
        step: time from one tick to the next, in the unit of the readings' times (seconds for timestamps).
        origin: where tick 0 begins.
        lateness: how long a tick stays open after its end for readings that come late.
        ahead: how far ahead of the present a time may lie before it is refused; None for no check.

    >>> clock = Clock(step=60, lateness=30)
    >>> first = clock.observe(None, 100)
    >>> clock.tick(100), first.verdict, list(first.closed)
    (1, 'open', [])
    >>> later = clock.observe(first.mark, 155)
    >>> list(later.closed), clock.observe(later.mark, 119).verdict
    ([1], 'late')
    """

    step: int
    origin: int = 0
    lateness: Time = 0
    ahead: Time | None = None

    def __post_init__(self) -> None:
        if isinstance(self.step, bool) or not isinstance(self.step, int) or not 1 <= self.step <= TIME_LIMIT:
            raise InputError(f"clock: step {self.step!r} given; a whole number, 1 or more")
        if isinstance(self.origin, bool) or not isinstance(self.origin, int) or abs(self.origin) > TIME_LIMIT:
            raise InputError(f"clock: origin {self.origin!r} given; a whole number")
        for name in ("lateness", "ahead"):
            value = getattr(self, name)
            if name == "ahead" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= TIME_LIMIT:
                raise InputError(f"clock: {name} {value!r} given; a number, 0 or more")

    def tick(self, time: Time) -> int:
        """The tick that a time belongs to: floor((time - origin) / step), exactly."""
        return (math.floor(time) - self.origin) // self.step

    def ticks(self, times: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The ticks of many times."""
        return (np.floor(times).astype(np.int64) - self.origin) // self.step

    def start(self, tick: int) -> int:
        """The time at which a tick begins."""
        return self.origin + tick * self.step

    def observe(self, mark: Mark | None, time: Time, *, now: Time | None = None) -> Advance:
        """A reading of some time arrives; `now`, the present, is needed only to refuse times too far ahead of it."""
        checked_time(time)
        if self.ahead is not None and now is not None and time > now + self.ahead:
            return Advance(mark, "ahead", range(0))
        moved = self.advance(mark, time)
        assert moved.mark is not None
        return replace(moved, verdict="late" if self.tick(time) <= moved.mark.closed else "open")

    def judged(
        self, mark: Mark | None, times: npt.ArrayLike, *, now: Time | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.str_]]:
        """Ticks and verdicts of many finite times at once, as `observe` gives them one by one in ascending order.

        In that order no reading is late because of another of the same batch, so each of them can be judged alone,
        wherever it is. The mark after the batch is that of its least time and then its greatest.

        >>> clock = Clock(step=60, lateness=30)
        >>> ticks, verdicts = clock.judged(Mark(155, 1), [400, 119, 120])
        >>> ticks.tolist(), verdicts.tolist()
        ([6, 1, 2], ['open', 'late', 'open'])
        """
        given = np.asarray(times)
        ticks = self.ticks(given)
        verdicts = np.full(ticks.shape, "open", dtype="<U5")
        if mark is not None:
            verdicts[ticks <= mark.closed] = "late"
        if self.ahead is not None and now is not None:
            verdicts[given > now + self.ahead] = "ahead"
        return ticks, verdicts

    def advance(self, mark: Mark | None, time: Time) -> Advance:
        """Time passes, with or without a reading. It never runs backwards.

        The first time of all closes nothing: what lies before its watermark was never open.
        """
        checked_time(time)
        closed = self.tick(time - self.lateness) - 1
        if mark is None:
            return Advance(Mark(time, closed), "open", range(0))
        if time <= mark.newest:
            return Advance(mark, "open", range(0))
        closed = max(closed, mark.closed)
        return Advance(Mark(time, closed), "open", range(mark.closed + 1, closed + 1))


def checked_time(time: object) -> Time:
    """A finite number that a clock can work with, or an error; never the number itself in the message."""
    if isinstance(time, bool) or not isinstance(time, int | float) or not -TIME_LIMIT <= time <= TIME_LIMIT:
        raise InputError("time: not a number between -2^53 and 2^53")
    return int(time) if isinstance(time, float) and time.is_integer() else time


def parsed_time(given: object) -> Time:
    """A time as it comes in a message: a number, or an ISO timestamp (UTC where it names no zone) in seconds.

    >>> parsed_time("1970-01-01T00:01:00Z"), parsed_time(12.5), parsed_time("1970-01-01 01:00+01:00")
    (60, 12.5, 0)
    """
    if not isinstance(given, str):
        return checked_time(given)
    from datetime import UTC, datetime

    try:
        stamp = datetime.fromisoformat(given.strip())
    except ValueError:
        raise InputError("time: neither a number nor an ISO timestamp") from None
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    try:
        return checked_time(stamp.timestamp())
    except (OverflowError, ValueError):
        raise InputError("time: a timestamp out of range") from None


def parsed_duration(given: object) -> Time:
    """A length of time: a number in the unit of the readings' times, or text such as "30s", "5min", "1h", "1D".

    >>> parsed_duration("15min"), parsed_duration(5), parsed_duration("500ms")
    (900, 5, 0.5)
    """
    wrong = InputError(f"{given!r} given; a number, or text such as '30s', '5min', '1h' or '1D'")
    if isinstance(given, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", given)
        if found is None or found[2].lower() not in _UNITS:
            raise wrong
        number = float(found[1]) * _UNITS[found[2].lower()]
        return int(number) if number.is_integer() else number
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise wrong
    return given
