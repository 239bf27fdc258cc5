"""Results in a notebook: tables, pictures, short pages and clean completion."""

from __future__ import annotations

import sys

import numpy as np
import pandas
import polars
import pytest
from matplotlib.figure import Figure

import csdp
from csdp.errors import InputError

CHAIN = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=["ward A", "ward B"])
PLAN = csdp.Plan(CHAIN, "mean", ages=2, epsilon_c=1.0)
PANEL = csdp.Panel.from_states([[0, 1], [1, -1], [1, 1], [0, 1], [0, 0]] * 6, names=CHAIN.names)


NAMES = ["Attack", "Audit", "Batch", "CoupledChain", "FoundPlan", "Frontier", "JointChain", "Leakage", "Plan"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    where = tmp_path_factory.mktemp("notebook") / "ledger.db"
    states = csdp.Panel.from_states(CHAIN.simulate(20, seed=1), names=CHAIN.names)
    with csdp.Publisher(
        PLAN, dataset="d", ledger=where, estimator=csdp.plan_estimator(PLAN, about="then")
    ) as publisher:
        batch = publisher.publish(states)
    made = [
        csdp.leakage(CHAIN, "mean", ages=2, epsilon_c=1.0),
        PLAN,
        csdp.find_plan(CHAIN, "mean", budget=0.2, max_age=2),
        csdp.frontier(CHAIN, "mean", ages=(1, 2), levels=(0.5, 1.0)),
        batch,
        CHAIN,
        csdp.JointChain(CHAIN.kernel(), states=2, sequences=2),
        csdp.audit(PLAN, samples=400, seed=1),
        csdp.attack(PLAN, [release.values[0] for release in batch]),
    ]
    return {type(result).__name__: result for result in made}


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_pandas_and_polars_agree(results, name):
    one, other = results[name].to_pandas(), results[name].to_polars()
    assert isinstance(one, pandas.DataFrame)
    assert isinstance(other, polars.DataFrame)
    assert list(one.columns) == other.columns
    assert len(one) == len(other) > 0
    for column in other.columns:
        if other[column].dtype.is_numeric():
            cells = other[column].cast(polars.Float64).to_numpy()
            np.testing.assert_array_equal(pandas.to_numeric(one[column]).to_numpy(dtype=float), cells)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_that_a_notebook_shows(results, name):
    figure = results[name].plot()
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")
    words = [text.get_text() for axes in figure.axes for text in (axes.xaxis.label, axes.yaxis.label, *axes.texts)]
    assert any(words), "an unlabelled picture"


@pytest.mark.parametrize("name", NAMES)
def test_pages_and_reprs_are_short(results, name):
    assert len(repr(results[name])) < 200
    assert "array(" not in repr(results[name])
    page = results[name]._repr_html_()
    assert page.startswith('<div class="csdp" ')
    assert page.count("<tr>") <= 9
    for tag in ("div", "table", "tr", "td", "th", "p"):
        assert page.count(f"<{tag}>") + page.count(f"<{tag} ") == page.count(f"</{tag}>")


def test_the_numbers_are_those_of_the_result(results):
    leakage = results["Leakage"]
    assert leakage.to_pandas().loc[0, "epsilon"] == leakage.epsilon
    assert "a 50 % guess becomes at most 54 %" in leakage._repr_html_()
    assert "<td>0.153046</td>" in leakage._repr_html_()  # 0.1530455...: rounded up
    couplings = CHAIN.to_polars()
    assert couplings.rows() == [
        ("ward A", "ward A", 0.75),
        ("ward A", "ward B", 0.25),
        ("ward B", "ward A", 0.25),
        ("ward B", "ward B", 0.75),
    ]
    table = PANEL.to_polars()
    assert table["ward B"].to_list()[:3] == [1, None, 1]
    batch = results["Batch"]
    assert batch.to_polars()["value"].to_list() == [release.values[0] for release in batch]


def test_what_is_not_proven_promises_nothing():
    printed = csdp.leakage(CHAIN, "mean", ages=2, epsilon_c=1.0, bound="printed-loose")
    assert "guess" not in printed._repr_html_()
    assert "certifies nothing" in printed._repr_html_()
    assert "certifies nothing" in printed.plot().axes[0].get_legend().get_texts()[0].get_text()


def test_pages_of_readings_show_no_reading():
    with pytest.raises(InputError, match="no picture"):
        PANEL.plot()
    secret = csdp.Readings.from_array([[12345.5], [67890.5]], names=["ward A"])
    assert "12345" not in secret._repr_html_() + repr(secret)
    assert "ward A" in secret._repr_html_()
    assert secret.to_polars()["ward A"].to_list() == [12345.5, 67890.5]


def test_names_are_escaped():
    chain = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], names=["<script>"])
    assert "<script>" not in chain._repr_html_()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_without_the_package_it_says_what_to_install(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(InputError, match=f"pip install {kind}"):
        getattr(CHAIN, f"to_{kind}")()
