"""The table of classes on six data sets: rows of simulated readings, and of sets that are not installed."""

from __future__ import annotations

import doctest
from functools import lru_cache

import numpy as np
import pytest

import csdp
from study import classes, installed


@lru_cache
def simulate(ticks: int = 500, sequences: int = 5) -> csdp.Panel:
    rows = [[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]
    members = [csdp.CoupledChain(np.eye(sequences), each) for each in rows]
    chain = csdp.EnvironmentChain(members, switching=[[0.9, 0.1], [0.1, 0.9]])
    return csdp.Panel.from_states(chain.simulate(ticks, seed=1), values=[0, 1])


@lru_cache
def simulated_row(ticks: int = 500) -> classes.ClassRow:
    return classes.make_row("simulated", classes.Choice(lambda: simulate(ticks), "simulated"))


def cells(row):
    return [cell.strip() for cell in str(row).strip("|").split(" | ")]


def test_a_row_of_an_accepted_class_keeps_the_limit_on_any_moment():
    row = simulated_row()
    assert row.accepted == "yes"
    assert row.past == "5 x 350"
    assert row.assumes.startswith("every sequence depends on its own last tick given 2 hidden environments")
    assert row.plan.startswith("epsilon_c ")
    assert 0.4 < row.influence < 1
    assert row.swing > 0
    assert 0 < row.present <= row.moment <= classes.MOMENT_LIMIT
    assert row.moment > 0.99 * classes.MOMENT_LIMIT
    assert row.coverage > 0.8


def test_a_row_of_a_rejected_class_is_of_a_plan_without_a_model(monkeypatch):
    rejected = csdp.fit(simulate(150), public=True)  # too few ticks to judge it
    monkeypatch.setattr(classes, "fit_class", lambda past: rejected)
    row = simulated_row.__wrapped__(300)
    assert row.accepted.startswith("no: ")
    assert row.plan == "no model, event 1"
    assert row.present == row.moment == np.inf
    assert (row.influence, row.swing) == (None, None)
    assert "infinite" in str(row)


def test_the_past_ends_before_the_rest_begins(monkeypatch):
    seen = []

    def fit(past):
        seen.append(past)
        raise KeyboardInterrupt

    monkeypatch.setattr(classes, "fit_class", fit)
    with pytest.raises(KeyboardInterrupt):
        simulated_row.__wrapped__(400)
    assert len(seen[0]) == 280
    assert seen[0].ticks[-1] == 279


@pytest.mark.parametrize("name", ["wind", "influenza", "ridership"])
def test_a_data_set_that_is_not_installed_says_so(name, monkeypatch, tmp_path):
    monkeypatch.setattr(installed, "R_PACKAGES", tmp_path)
    row = classes.make_row(name, classes.CHOICES[name])
    assert row.accepted.startswith("not installed: r-cran-")
    assert len(cells(row)) == len(classes.COLUMNS)


def test_a_package_that_is_not_installed_says_so(monkeypatch, tmp_path):
    def refuse(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(installed, "files", refuse)
    monkeypatch.setattr(installed, "import_module", refuse)
    (tmp_path / "gstat" / "data").mkdir(parents=True)
    (tmp_path / "gstat" / "data" / "wind.rda").touch()
    monkeypatch.setattr(installed, "R_PACKAGES", tmp_path)
    for name, package in (("glucose", "bokeh_sampledata"), ("wind", "rdata")):
        assert classes.make_row(name, classes.CHOICES[name]).accepted == f"not installed: {package}"


@pytest.mark.parametrize("name", ["flights", "parking"])
def test_the_data_sets_of_the_package_have_two_states(name):
    panel = classes.CHOICES[name].load()
    assert panel.state_count == 2
    known = panel.states[panel.states >= 0]
    assert 0.1 < known.mean() < 0.6


def test_what_is_usual_comes_from_the_past_alone():
    readings = np.arange(20.0).reshape(10, 2)
    changed = readings.copy()
    changed[7:] = 99.0
    phases = np.arange(10) % 2
    assert (classes.usual_by(phases, readings) == classes.usual_by(phases, changed)).all()
    assert classes.usual_by(phases, readings)[0].tolist() == [6.0, 7.0]


def test_missing_readings_stay_missing():
    readings = csdp.Readings.from_array([[1.0], [np.nan], [3.0]])
    assert classes.cut(readings, readings.readings, 2.0, "declared").states[:, 0].tolist() == [0, -1, 1]


def test_the_table_is_put_into_a_page(monkeypatch, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{classes.START}stale\n{classes.END}after\n", encoding="utf-8")
    monkeypatch.setattr(installed, "R_PACKAGES", tmp_path)
    classes.main(["wind", "--docs", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "stale" not in text
    assert text.startswith(f"before\n{classes.START}{classes.HEADER}| wind |")
    assert text.endswith(f"{classes.END}after\n")
    assert "- **wind**: a station has more wind" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no lines"):
        classes.insert_table("a page", "")


def test_docstrings_run_as_shown():
    found = doctest.testmod(classes)
    assert found.failed == 0
    assert found.attempted > 0
