"""Readings on the command line: their range, what a public past says, and what the certificate says of it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import csdp


def write(path, readings):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["time", "x1", "x2"])
        out.writerows([tick, *("" if np.isnan(x) else x for x in row)] for tick, row in enumerate(readings))


def by_state(ticks, seed=3):
    chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.2, 0.8]])
    states = chain.simulate(ticks, seed=seed)
    return np.round(np.where(states == 1, 0.75, 0.25) + np.random.default_rng(9).uniform(-0.25, 0.25, states.shape), 3)


def persistent(ticks):
    rng, out = np.random.default_rng(2), np.zeros((ticks, 2))
    for t in range(1, ticks):
        out[t] = 0.95 * out[t - 1] + 0.3 * rng.normal(size=2)
    return np.round(0.5 + out / 6, 4)


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A model, its discretiser, a public past of each kind, and readings with gaps."""
    monkeypatch.chdir(tmp_path)
    chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.2, 0.8]], direction="backward")
    (tmp_path / "chain.json").write_text(chain.to_json())
    csdp.Discretiser.declared(["x1", "x2"], edges=[0.5], bounds=(0, 1)).save(tmp_path / "states.json")
    write(tmp_path / "past.csv", by_state(2000))
    write(tmp_path / "signal.csv", persistent(2000))
    readings = by_state(20, seed=8)
    readings[4, 0] = np.nan
    write(tmp_path / "new.csv", readings)
    return readings


def released(path="out.csv"):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def certificate():
    return json.loads(Path("out.csv.certificate.json").read_text())


TO = ("--ledger", "ledger.db", "-o", "out.csv", "--anyway", "--dataset")


def make_plan(run, *more):
    query = () if "--query" in more else ("--query", "mean of readings 0..1 by 0.01")
    given = ("--discretiser", "states.json", "--age", "1", "--epsilon-c", "8", "--about", "then")
    run("plan", "chain.json", *given, *query, *more, "-o", "plan.json")


def test_without_a_public_past_no_band_and_no_usefulness_is_stated(house, run):
    make_plan(run)
    given = ("release", "new.csv", "--plan", "plan.json", *TO)
    words = " ".join(run(*given, "a").output.split())
    assert "if each reading had its state's value (not measured)" in words
    assert "no bands: plan with --past" in words
    assert "of the truths" not in words
    assert {(row["standard_error"], row["low"], row["high"]) for row in released()} == {("", "", "")}
    assert [row["count"] for row in released()[3:6]] == ["2", "1", "2"]
    assert certificate()["worth"] is None
    assert any("was tested: no public past" in words for words in certificate()["assumptions"])
    make_plan(run, "--past", "past.csv")
    known = json.loads(run(*given, "b", "--format", "json").output)["certificate"]["worth"]
    assert known["usefulness"] is not None
    assert known["level"] == 0.95


def test_a_public_past_is_asked_and_may_refuse(house, run, fails):
    counted = ("--query", "count:0.5.. of readings 0..1 by 0.01", "--past")
    make_plan(run, *counted, "past.csv")
    run("release", "new.csv", "--plan", "plan.json", *TO, "a")
    assert "tested on a public past, and not rejected" in " ".join(certificate()["assumptions"])
    given = ("--discretiser", "states.json", "--age", "1", "--epsilon-c", "8")
    assert "finer states" in fails("plan", "chain.json", *given, *counted, "signal.csv")


def test_the_discretiser_of_the_plan_file_makes_the_states(house, run):
    """Readings that happen to be values of the model were taken for states, whatever the model was fitted to."""
    csdp.Discretiser.declared(["x1", "x2"], edges=[1.5], bounds=(0, 2)).save("states.json")
    given = ("--query", "count:0", "--age", "1", "--epsilon-c", "600", "--about", "then")
    run("plan", "chain.json", *given, "--discretiser", "states.json", "-o", "plan.json")
    write(Path("new.csv"), np.ones((6, 2)))
    run("release", "new.csv", "--plan", "plan.json", *TO, "a")
    assert [round(float(row["value"])) for row in released()] == [2] * 5


def test_readings_without_a_discretiser_are_refused(house, run, fails):
    """Their states came silently from the nearest value of the model."""
    given = ("--query", "mean of readings 0..1 by 0.001", "--age", "1", "--epsilon-c", "8", "--about", "then")
    run("plan", "chain.json", *given, "-o", "plan.json")
    message = fails("release", "new.csv", "--plan", "plan.json", *TO, "a")
    assert "`csdp plan --discretiser`" in message
    assert not Path("ledger.db").exists()
