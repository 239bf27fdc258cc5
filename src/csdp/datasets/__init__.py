"""Two small real data sets, offline, each with its provenance and licence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from csdp.errors import InputError
from csdp.panel import Discretiser, Panel, Readings, read_readings

__all__ = ["Dataset", "load", "names"]

#: Places of the car parks, as in the source.
CAPACITY = {
    "BHMBCCMKT01": 577,
    "BHMBCCPST01": 317,
    "BHMBCCSNH01": 863,
    "BHMBCCTHL01": 387,
    "BHMEURBRD01": 470,
    "BHMEURBRD02": 220,
    "BHMMBMMBX01": 687,
    "BHMNCPHST01": 1200,
    "BHMNCPLDH01": 720,
    "BHMNCPNST01": 485,
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Readings on a regular grid, with their provenance and what is known about them beforehand.

    `edges` and `bounds` (one row, or one per sequence) are public knowledge, not read from the data, so discretising
    with them reveals nothing (but see `handling`). `past_ends` splits the readings into a past to take as public and a
    rest to publish.
    """

    name: str
    title: str
    readings: Readings
    edges: tuple[tuple[float, ...], ...]
    bounds: tuple[tuple[float, float], ...]
    past_ends: str
    handling: str  #: how the grid came about, and what a stationary chain on it leaves out
    provenance: str
    licence: str

    def discretiser(self) -> Discretiser:
        """States by the declared edges."""
        return Discretiser.declared(self.readings.names, edges=self.edges, bounds=self.bounds)

    def panel(self) -> Panel:
        """The readings as states, by the declared edges."""
        return self.discretiser().apply(self.readings)

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {self.title}; {self.readings!r})"


def _bundled_file(name: str) -> AbstractContextManager[Path]:
    return resources.as_file(resources.files("csdp.datasets") / "data" / name)


def _load_parking() -> Dataset:
    """City: how full ten car parks are, every half hour of the day."""
    with _bundled_file("parking.csv.gz") as file:
        cars = read_readings(file, names=tuple(CAPACITY), step="30min")
    shares = cars.readings / list(CAPACITY.values())
    return Dataset(
        name="parking",
        title="Share of places taken in ten car parks of Birmingham, every half hour from 08:00 to 16:30",
        readings=Readings(cars.names, cars.ticks, cars.times, shares, cars.step),
        edges=((0.25, 0.5, 0.75),) * len(CAPACITY),
        bounds=((0.0, 1.0),) * len(CAPACITY),
        past_ends="2016-11-15",
        handling=(
            "Half-hour ticks in local time, day and night: nights and four whole days are gaps, so a day has 18 "
            "readings and 30 missing ticks. A fit then uses steps within a day only, and a publisher lets the model "
            "run through the night; readings.without_gaps() joins the days instead, and counts the night as one half "
            "hour, which it is not. A stationary chain knows no time of day: it describes the mean of filling "
            "mornings and emptying afternoons. Shares above 1 (at most 1.05: more cars than places) belong to the "
            "last state."
        ),
        provenance=(
            "Birmingham City Council, car parks run by NCP; collected by Stolfi, Alba and Yao (2017), UCI Machine "
            "Learning Repository, 'Parking Birmingham'. Times rounded to the half hour; of 30 names the ten single "
            "car parks with at most 3 % missing (several of the others are sums of these)."
        ),
        licence=(
            "UK Open Government Licence (its text is beside the data). Contains public sector information licensed "
            "under the Open Government Licence."
        ),
    )


def _load_flights() -> Dataset:
    """Transport: share of late departures from New York by destination, in parts of the day of three hours."""
    with _bundled_file("flights.csv.gz") as file:
        table = read_readings(file, step="3h")
    names = tuple(name for name in table.names if not name.endswith(" late"))
    late = table.select([f"{name} late" for name in names]).without_gaps()
    departures = table.select(names).without_gaps().readings
    some = np.where(departures > 0, departures, np.nan)
    return Dataset(
        name="flights",
        title="Share of late departures from New York to 33 destinations in 2013, every three hours, 06:00 to 21:00",
        readings=Readings(names, late.ticks, late.times, late.readings / some, late.step),
        edges=((0.34,),) * len(names),
        bounds=((0.0, 1.0),) * len(names),
        past_ends="2013-09-13",
        handling=(
            "A tick is three of the hours from 06:00 to 21:00, local time, by scheduled departure; a day has five "
            "(tick mod 5 is the part of the day), and the step over night counts as one. A tick without a departure to "
            "a destination is missing there (3 % of all). The limit of 0.34, about a third, was chosen with the data, "
            "which is public, in view. Delays have a shape over the day, and weather delays all destinations at once: "
            "they move together within a step, which a coupled chain cannot express."
        ),
        provenance=(
            "US Bureau of Transportation Statistics, all flights from EWR, JFK and LGA in 2013, as collected in the R "
            "package nycflights13; here the destinations with departures in more than 85 % of the ticks."
        ),
        licence="CC0 1.0, public domain dedication (its text is beside the data).",
    )


_SETS: dict[str, Callable[[], Dataset]] = {
    "flights": _load_flights,
    "parking": _load_parking,
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
