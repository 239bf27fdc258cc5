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

SHAPES = {"glucose": (4032, 2), "parking": (3666, 10), "stocks": (1257, 10)}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a data set asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_names() -> None:
    assert datasets.names() == tuple(sorted(SHAPES))
    with pytest.raises(InputError, match="'weather': unknown; there are glucose, parking, stocks"):
        datasets.load("weather")


@pytest.mark.parametrize("name", datasets.names())
def test_every_set_is_complete(name: str) -> None:
    found = datasets.load(name)
    assert found.name == name
    assert found.readings.readings.shape == SHAPES[name]
    for words in (found.title, found.unit, found.handling, found.provenance, found.licence, found.source):
        assert len(words) > 4
    assert name in repr(found)
    past, rest = found.readings.split(found.past_ends)
    assert min(len(past), len(rest)) > 250
    known = found.readings.readings[~np.isnan(found.readings.readings)]
    assert known.size > 7000
    assert len(np.unique(known)) > 100


@pytest.mark.parametrize("name", datasets.names())
def test_every_set_becomes_states_that_move(name: str) -> None:
    found = datasets.load(name)
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
    for column in panel.states.T:
        counts = np.bincount(column[column >= 0], minlength=panel.state_count)
        assert np.count_nonzero(counts) >= 2
        assert counts.max() < 0.95 * counts.sum()
    past, rest = found.readings.split(found.past_ends)
    fitted = Discretiser.fit(past, states=4, public=True)
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
    assert set(files) == {"README.md", "OGL-UK-2.0.txt", "glucose.csv.gz", "parking.csv.gz"}
    assert sum(map(len, files.values())) < 300_000
    text = files["README.md"].decode()
    assert "Open Government Licence" in text
    assert "public domain" in text
    assert b"worldwide, royalty-free" in files["OGL-UK-2.0.txt"]
