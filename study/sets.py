"""Real readings: the two data sets of csdp, and glucose, which lies beside this file."""

from __future__ import annotations

from pathlib import Path

import csdp
from csdp import datasets

NAMES = ("flights", "glucose", "parking")


def load(name: str) -> datasets.Dataset:
    """Load a data set."""
    return _load_glucose() if name == "glucose" else datasets.load(name)


def _load_glucose() -> datasets.Dataset:
    """Sensor current and blood glucose of one person, every five minutes.

    Below 70 and above 180 mg/dl are the usual clinical limits, 40 to 400 the range of the device; the limits of the
    current are round numbers near 7 mg/dl per nA, chosen with the data, which is public, in view.
    """
    return datasets.Dataset(
        name="glucose",
        title="Continuous glucose monitoring of one person, two weeks, every five minutes",
        readings=csdp.read_readings(
            Path(__file__).parent / "data" / "glucose.csv.gz", step="5min", duplicates="last", resample="last"
        ),
        edges=((10.0, 25.0), (70.0, 180.0)),
        bounds=((0.0, 60.0), (40.0, 400.0)),
        past_ends="2010-06-16",
        handling="The last reading of each five minutes; 73 of 4,032 ticks are missing because the sensor was off.",
        provenance="One person, given to a maintainer of Bokeh for its sample data; the 14 days with the fewest gaps.",
        licence="Public domain, as the package records (licenses/datasets.json).",
    )
