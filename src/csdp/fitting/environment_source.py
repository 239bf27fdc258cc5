"""The environment of every tick, where it is known: by the clock, or by a public series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from csdp.arrays import Indices, fill_masked
from csdp.errors import InputError
from csdp.fitting.fit import EnvironmentName
from csdp.panel import Panel

#: Most classes that the times of day of a panel are put into where no cycle is given.
DAY_CLASSES = 8
_ALLOWED = "'clock', 'hidden', 'both', 'auto', or a public series: one whole number for each tick"


@dataclass(frozen=True, eq=False)
class KnownEnvironment:
    """Environments of all ticks: `labels` (T,), numbers below `count`, by a clock's `cycle` or a `series` of a name."""

    labels: Indices
    count: int
    cycle: tuple[int, ...] | None = None
    series: str | None = None

    @property
    def kind(self) -> str:
        """Where it is read from: "clock" or "series"."""
        return "clock" if self.cycle is not None else "series"


def read_environment(
    environment: Any, cycle: int | Sequence[int] | None, data: Any, ticks: int
) -> tuple[str | None, KnownEnvironment | None]:
    """The kind of environment that is asked for, and the environments of the ticks where they are known."""
    named = environment is None or isinstance(environment, str)
    if isinstance(environment, str) and environment not in get_args(EnvironmentName):
        raise InputError(f"environment: {environment!r} given; use {_ALLOWED}")
    if cycle is not None and environment not in ({"clock", "both", "auto"} if named else ()):
        raise InputError("cycle: given without a clock; use it with environment='clock', 'both' or 'auto'")
    if not named:
        return "series", _read_series(environment, ticks)
    if environment in {"clock", "both"} or (environment == "auto" and (cycle is not None or _has_clock(data))):
        return environment, _read_clock(cycle, data, ticks)
    return environment, None


def _read_clock(cycle: int | Sequence[int] | None, data: Any, ticks: int) -> KnownEnvironment:
    """Environments by the clock: `cycle` phases, or the environment of each phase, or a panel's times of day."""
    numbers = np.asarray(data.ticks if isinstance(data, Panel) else np.arange(ticks), dtype=np.int64)
    phases = _day_classes(data, numbers) if cycle is None else _read_cycle(cycle)
    count = max(phases) + 1
    if set(phases) != set(range(count)):
        raise InputError(f"cycle: environments {sorted(set(phases))} given; number them 0, 1, ... without a gap")
    if len(phases) > ticks:
        raise InputError(f"cycle: {len(phases)} phases given for {ticks} ticks; a phase that is never met has no fit")
    return KnownEnvironment(np.asarray(phases, dtype=np.intp)[numbers % len(phases)], count, cycle=phases)


def _read_cycle(cycle: int | Sequence[int]) -> tuple[int, ...]:
    wrong = InputError(
        f"cycle: {cycle!r} given; the number of phases, at least 2, or the environment of each phase as whole numbers"
    )
    if isinstance(cycle, bool | str | float):
        raise wrong
    if isinstance(cycle, int | np.integer):
        if cycle < 2:
            raise wrong
        return tuple(range(int(cycle)))
    phases = np.asarray(cycle)
    if phases.ndim != 1 or phases.size < 2 or not np.issubdtype(phases.dtype, np.integer) or phases.min() < 0:
        raise wrong
    return tuple(phases.tolist())


def _has_clock(data: Any) -> bool:
    """Whether data carries timestamps at several times of day."""
    if not isinstance(data, Panel) or data.times.dtype.kind != "M":
        return False
    return np.unique(_times_of_day(data)).size > 1


def _times_of_day(panel: Panel) -> Indices:
    """Seconds since midnight of every tick."""
    seconds = panel.times.astype("datetime64[s]").astype(np.int64) % 86_400
    return np.asarray(seconds, dtype=np.intp)


def _day_classes(data: Any, numbers: Any) -> tuple[int, ...]:
    """The cycle of a panel's day: its times of day in order, in at most `DAY_CLASSES` classes of equal length."""
    if not _has_clock(data):
        raise InputError(
            "cycle: none given, and the data has no timestamps at several times of day; give cycle=, the number of "
            "ticks after which the clock repeats"
        )
    times, place = np.unique(_times_of_day(data), return_inverse=True)
    rank = np.full(times.size, -1)
    rank[numbers % times.size] = place
    if (rank[numbers % times.size] != place).any() or (rank < 0).any():
        raise InputError(
            f"cycle: none given, and the {times.size} times of day of the panel do not follow each other in a fixed "
            "order of ticks; give cycle=, or the environment of every tick as a series"
        )
    classes = min(times.size, DAY_CLASSES)
    return tuple((rank * classes // times.size).tolist())


def _read_series(series: Any, ticks: int) -> KnownEnvironment:
    """Environments from an array or a series of a dataframe, one whole number for each tick."""
    labels = np.asarray(fill_masked(series, -1))
    whole = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    if not whole or labels.size != ticks:
        raise InputError(
            f"environment: {type(series).__name__} of shape {labels.shape} and {labels.dtype} given for {ticks} ticks; "
            f"use {_ALLOWED}"
        )
    count = int(labels.max()) + 1
    if labels.min() < 0 or np.unique(labels).size != count:
        raise InputError("environment: numbers of a series count from 0 without a gap, and every one of them occurs")
    if count < 2:
        raise InputError("environment: the series has one value only; leave environment= out")
    return KnownEnvironment(labels.astype(np.intp), count, series=str(getattr(series, "name", None) or "environment"))
