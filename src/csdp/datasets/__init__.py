"""Small real data sets, offline, each with its provenance and licence."""

from __future__ import annotations

from collections.abc import Callable

from csdp.datasets import sets
from csdp.datasets.sets import Dataset
from csdp.errors import InputError

__all__ = ["Dataset", "load", "names"]

_SETS: dict[str, Callable[[], Dataset]] = {
    "glucose": sets.glucose,
    "parking": sets.parking,
    "stocks": sets.stocks,
}


def names() -> tuple[str, ...]:
    """What `load` knows.

    >>> names()
    ('glucose', 'parking', 'stocks')
    """
    return tuple(_SETS)


def load(name: str) -> Dataset:
    """A data set: city ("parking") and health ("glucose") come with csdp, finance ("stocks") with the package river.

    >>> parking = load("parking")
    >>> parking.readings
    Readings(10 sequences, 3,666 ticks, step 1800)
    >>> parking.panel().state_count
    4
    """
    if name not in _SETS:
        raise InputError(f"data set {name!r}: unknown; there are {', '.join(_SETS)}")
    return _SETS[name]()
