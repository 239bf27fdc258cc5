"""Two small real data sets, offline, each with its provenance and licence."""

from __future__ import annotations

from collections.abc import Callable

from csdp.datasets import sets
from csdp.datasets.sets import Dataset
from csdp.errors import InputError

__all__ = ["Dataset", "load", "names"]

_SETS: dict[str, Callable[[], Dataset]] = {
    "flights": sets.load_flights,
    "parking": sets.load_parking,
}


def names() -> tuple[str, ...]:
    """The names of the data sets.

    >>> names()
    ('flights', 'parking')
    """
    return tuple(_SETS)


def load(name: str) -> Dataset:
    """Load a data set: "flights" (transport) or "parking" (city).

    >>> parking = load("parking")
    >>> parking.readings
    Readings(10 sequences, 3,666 ticks, step 1800)
    >>> parking.panel().state_count
    4
    """
    if name not in _SETS:
        raise InputError(f"data set {name!r}: unknown; there are {', '.join(_SETS)}")
    return _SETS[name]()
