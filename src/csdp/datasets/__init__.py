"""Small real data sets, offline, each with its provenance and licence."""

from __future__ import annotations

from collections.abc import Callable

from csdp.datasets import sets
from csdp.datasets.sets import Dataset
from csdp.errors import InputError

__all__ = ["Dataset", "load", "names"]

_SETS: dict[str, Callable[[], Dataset]] = {
    "flights": sets.load_flights,
    "glucose": sets.load_glucose,
    "influenza": sets.load_influenza,
    "irish_wind": sets.load_irish_wind,
    "parking": sets.load_parking,
    "stocks": sets.load_stocks,
    "wind": sets.load_wind,
}


def names() -> tuple[str, ...]:
    """The names of the data sets, those of other packages included.

    >>> names()
    ('flights', 'glucose', 'influenza', 'irish_wind', 'parking', 'stocks', 'wind')
    """
    return tuple(_SETS)


def load(name: str) -> Dataset:
    """Load a data set: city ("parking"), health ("glucose"), transport ("flights") and weather ("wind") come with csdp.

    Others are read from installed packages and never bundled: "stocks" from the Python package river, "influenza" and
    "irish_wind" from the R packages surveillance and gstat (Debian: r-cran-surveillance, r-cran-gstat).

    >>> parking = load("parking")
    >>> parking.readings
    Readings(10 sequences, 3,666 ticks, step 1800)
    >>> parking.panel().state_count
    4
    """
    if name not in _SETS:
        raise InputError(f"data set {name!r}: unknown; there are {', '.join(_SETS)}")
    return _SETS[name]()
