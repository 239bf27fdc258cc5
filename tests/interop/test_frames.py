"""Readings in and releases out, as pandas, polars and arrow."""

from __future__ import annotations

import sys

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import csdp
from csdp.errors import InputError
from csdp.interop import releases_frame
from csdp.panel import read_panel

CHAIN = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=["a", "b"])
KINDS = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "arrow": pyarrow.Table}


@pytest.fixture(params=[csdp.Mean(), csdp.Identity()], ids=["one output", "two outputs"])
def published(request, tmp_path):
    plan = csdp.Plan(CHAIN, request.param, ages=1, epsilon_c=1.0)
    panel = csdp.Panel.from_states(CHAIN.simulate(12, seed=3), names=CHAIN.names)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        return plan, panel, publisher.publish(panel)


def columns(frame):
    """Every kind of table as plain lists."""
    if isinstance(frame, pandas.DataFrame):
        return {name: frame[name].tolist() for name in frame.columns}
    return frame.to_pydict() if isinstance(frame, pyarrow.Table) else frame.to_dict(as_series=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_comes_through(published, kind):
    plan, panel, batch = published
    frame = releases_frame(batch, kind, plan=plan, readings=panel)
    assert isinstance(frame, KINDS[kind])
    found = columns(frame)
    assert found["tick"] == [release.tick for release in batch] == found["time"]
    assert found["epsilon_s"] == [release.epsilon_s for release in batch]
    assert found["stale"] == [0] * len(batch)
    assert found["ages"] == [1] * len(batch)
    labels = ("",) if len(batch.releases[0].values) == 1 else (":a", ":b")
    for i, label in enumerate(labels):
        assert found[f"value{label}"] == [release.values[i] for release in batch]
        assert found[f"estimate{label}"] == [release.estimate[i] for release in batch]
        assert found[f"standard_error{label}"] == [release.standard_error[i] for release in batch]


def test_all_kinds_say_the_same_and_so_does_a_list(published):
    plan, _, batch = published
    frames = [columns(releases_frame(batch, kind, plan=plan)) for kind in KINDS]
    assert frames[0] == frames[1] == frames[2]
    assert "time" not in frames[0]
    assert columns(releases_frame(list(reversed(batch.releases)), "arrow", plan=plan)) == frames[0]


def test_without_a_plan_outputs_are_numbered(published):
    _, _, batch = published
    names = columns(releases_frame(batch, "polars"))
    assert ("value" in names) != ("value:0" in names)


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind, tmp_path):
    """A table of readings goes in, is published, and the released series can be read again."""
    states = CHAIN.simulate(20, seed=4)
    lists = {"time": list(range(20)), "a": states[:, 0].tolist(), "b": states[:, 1].tolist()}
    table = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "arrow": pyarrow.table}[kind](lists)
    panel = read_panel(table, names=CHAIN.names, values=CHAIN.value_table)
    assert np.array_equal(panel.states, states)
    plan = csdp.Plan(CHAIN, csdp.Mean(), ages=2, epsilon_c=1.0)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        batch = publisher.publish(panel)
    frame = releases_frame(batch, kind, readings=panel)
    again = csdp.read_readings(frame[["time", "value"]] if kind != "arrow" else frame.select(["time", "value"]))
    assert again.readings[:, 0].tolist() == [release.values[0] for release in batch]


def test_timestamps(tmp_path):
    stamps = pandas.date_range("2024-05-01", periods=6, freq="h")
    states = CHAIN.simulate(6, seed=4)
    table = pandas.DataFrame({"time": stamps, "a": states[:, 0], "b": states[:, 1]})
    panel = read_panel(table, names=CHAIN.names, values=CHAIN.value_table)
    plan = csdp.Plan(CHAIN, csdp.Mean(), ages=1, epsilon_c=1.0)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db", time_step=panel.step) as publisher:
        frame = releases_frame(publisher.publish(panel), readings=panel)
    assert frame["time"].tolist() == stamps[1:].tolist()


def test_nothing_released_is_an_empty_table():
    for kind in KINDS:
        assert len(releases_frame([], kind)) == 0
        assert "epsilon_s" in columns(releases_frame([], kind))


def test_bad_input(published):
    _, panel, batch = published
    with pytest.raises(InputError, match="kind: 'numpy' given"):
        releases_frame(batch, "numpy")
    other = csdp.Plan(CHAIN, csdp.Histogram() if len(batch.releases[0].values) == 1 else csdp.Mean(), 1, 1.0)
    with pytest.raises(InputError, match="outputs, these releases have"):
        releases_frame(batch, plan=other)
    later = csdp.Panel.from_states(panel.states, names=CHAIN.names, first_tick=500)
    with pytest.raises(InputError, match="they have no tick"):
        releases_frame(batch, readings=later)
    one = csdp.Release(1, (0.0,), (), (), ages=0, stale=0, epsilon_s=0.1)
    two = csdp.Release(2, (0.0, 1.0), (), (), ages=0, stale=0, epsilon_s=0.1)
    with pytest.raises(InputError, match="more outputs than others"):
        releases_frame([one, two])


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_without_the_package_it_says_what_to_install(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(InputError, match=f"pip install {kind}"):
        releases_frame([], kind)
