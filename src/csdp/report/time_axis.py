"""The axis of ticks in the reader's time: days, hours or the numbers that were read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import numpy.typing as npt

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LABELS = 8
#: Hours between labels within two days.
_HOURS = (1, 2, 3, 6, 12)


def label_times(
    ticks: Sequence[int], times: npt.NDArray[Any], *, timezone: str | None = None
) -> tuple[list[tuple[int, str]], str]:
    """At most eight ticks with the time to write there, and the name of the axis.

    Args:
        ticks: The ticks, in order.
        times: Their times: whole numbers, or timestamps (in UTC where a zone is given).
        timezone: The zone in which a reader looks at the clock.

    >>> import numpy as np
    >>> label_times([5, 6], np.array(["2016-11-20T23:30", "2016-11-21T00:00"], dtype="datetime64[s]"))
    ([(6, '00:00')], '20 to 21 Nov 2016')
    >>> label_times([5, 6], np.array([300, 360]))
    ([(5, '300'), (6, '360')], 'Time')
    """
    if times.dtype.kind != "M":
        every = max(1, math.ceil(len(ticks) / _LABELS))
        return [(ticks[i], f"{int(times[i]):,}".replace(",", " ")) for i in range(0, len(ticks), every)], "Time"
    stamps = [stamp.isoformat() for stamp in _local(times, timezone)]
    where = "" if timezone is None else f", {timezone}"
    first, last = stamps[0], stamps[-1]
    days = len({stamp[:10] for stamp in stamps})
    if days > 2:
        return day_names(ticks, stamps), f"{_day(first)} to {_day(last)} {last[:4]}{where}"
    hours = [i for i, stamp in enumerate(stamps) if stamp[14:19] in {"00:00", "00"}]
    every = next((n for n in _HOURS if len(hours) / n <= _LABELS), 24)
    shown = [i for i in hours if int(stamps[i][11:13]) % every == 0] or [0, len(stamps) - 1]
    span = _day(first) if days == 1 else f"{int(first[8:10])} to {_day(last)}"
    return [(ticks[i], stamps[i][11:16]) for i in shown], f"{span} {last[:4]}{where}"


def day_names(ticks: Sequence[int], times: Sequence[str]) -> list[tuple[int, str]]:
    """The first tick of every day with a short name of the day; at most eight of them.

    >>> day_names([5, 6, 7], ["2016-11-20T15:00:00", "2016-11-20T16:00:00", "2016-11-21T08:00:00"])
    [(5, '20 Nov'), (7, '21 Nov')]
    """
    if not times or len(times[0]) < 10 or times[0][4] != "-":
        return []
    names, day = [], ""
    for tick, time in zip(ticks, times, strict=True):
        if time[:10] != day:
            day = time[:10]
            names.append((tick, _day(day)))
    return names[:: max(1, math.ceil(len(names) / _LABELS))]


def _day(stamp: str) -> str:
    return f"{int(stamp[8:10])} {_MONTHS[int(stamp[5:7]) - 1]}"


def _local(times: npt.NDArray[Any], timezone: str | None) -> list[Any]:
    stamps: list[Any] = times.astype("datetime64[s]").tolist()
    if timezone is None:
        return stamps
    from datetime import UTC

    zone = ZoneInfo(timezone)
    return [stamp.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None) for stamp in stamps]
