"""Readings in and releases out, as pandas and polars."""

from __future__ import annotations

import sys

import numpy as np
import pandas
import polars
import pytest

import csdp
from csdp.errors import InputError
from csdp.panel import read_panel
from csdp.publisher import Batch

CHAIN = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=["a", "b"])
KINDS = {"pandas": pandas.DataFrame, "polars": polars.DataFrame}


@pytest.fixture(params=[csdp.Mean(), csdp.Identity()], ids=["one output", "two outputs"])
def published(request, tmp_path):
    plan = csdp.Plan(CHAIN, request.param, ages=1, epsilon_c=1.0)
    panel = csdp.Panel.from_states(CHAIN.simulate(12, seed=3), names=CHAIN.names)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        return publisher.publish(panel)


def to_frame(batch, kind):
    return batch.to_pandas() if kind == "pandas" else batch.to_polars()


def columns(frame):
    """Every kind of table as plain lists."""
    return {name: frame[name].to_list() for name in frame.columns}


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_comes_through(published, kind):
    frame = to_frame(published, kind)
    assert isinstance(frame, KINDS[kind])
    found = columns(frame)
    assert found["tick"] == [release.tick for release in published]
    assert found["epsilon_s"] == [release.epsilon_s for release in published]
    assert found["stale"] == [0] * len(published)
    assert found["ages"] == [1] * len(published)
    labels = ("",) if len(published.releases[0].values) == 1 else (":0", ":1")
    for i, label in enumerate(labels):
        assert found[f"value{label}"] == [release.values[i] for release in published]
        assert found[f"estimate{label}"] == [release.estimate[i] for release in published]
        assert found[f"standard_error{label}"] == [release.standard_error[i] for release in published]


def test_both_kinds_say_the_same_in_order_of_ticks(published):
    turned = Batch(tuple(reversed(published.releases)), ())
    first, *others = (columns(to_frame(batch, kind)) for batch in (published, turned) for kind in KINDS)
    assert all(other == first for other in others)
    assert "time" not in first


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind, tmp_path):
    """A table of readings goes in, is published, and the released series can be read again."""
    states = CHAIN.simulate(20, seed=4)
    lists = {"time": list(range(20)), "a": states[:, 0].tolist(), "b": states[:, 1].tolist()}
    panel = read_panel(KINDS[kind](lists), names=CHAIN.names, values=CHAIN.value_table)
    assert np.array_equal(panel.states, states)
    plan = csdp.Plan(CHAIN, csdp.Mean(), ages=2, epsilon_c=1.0)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        batch = publisher.publish(panel)
    again = csdp.read_readings(to_frame(batch, kind)[["tick", "value"]], time="tick")
    assert again.readings[:, 0].tolist() == [release.values[0] for release in batch]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_released_is_an_empty_table(kind):
    frame = to_frame(Batch((), ()), kind)
    assert len(frame) == 0
    assert "epsilon_s" in columns(frame)


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_package_it_says_what_to_install(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(InputError, match=f"pip install {kind}"):
        to_frame(Batch((), ()), kind)
