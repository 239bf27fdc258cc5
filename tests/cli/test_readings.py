"""Readings on the command line: their range, what a public past says, and what the certificate says of it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import csdp
from csdp.cli.plan_options import ReadingOptions
from csdp.errors import InputError
from csdp.planning.plan_file import PlanFile

TO = ("--age", "1", "--epsilon-c", "8", "--about", "then", "--ledger", "ledger.db", "--anyway")


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


def test_readings_by_default_where_the_discretiser_has_bounds(house, run):
    run("release", "new.csv", "--chain", "chain.json", "--discretiser", "states.json", *TO, "--dataset", "a",
        "-o", "out.csv")  # fmt: skip
    rows = released()
    assert [row["count"] for row in rows[3:6]] == ["2", "1", "2"]
    assumed = certificate()["assumptions"]
    assert any("First assumption" in words and "was tested: no public past" in words for words in assumed)
    run("release", "new.csv", "--chain", "chain.json", "--discretiser", "states.json", "--of", "states", *TO,
        "--dataset", "b", "-o", "states.csv")  # fmt: skip
    assert "count" not in released("states.csv")[0]


def test_without_a_public_past_no_band_and_no_usefulness_is_stated(house, run):
    given = ("release", "new.csv", "--chain", "chain.json", "--discretiser", "states.json", *TO)
    words = " ".join(run(*given, "--dataset", "a", "-o", "out.csv").output.split())
    assert "if each reading had its state's value (not measured)" in words
    assert "no bands: give --past" in words
    assert "of the truths" not in words
    assert {(row["standard_error"], row["low"], row["high"]) for row in released()} == {("", "", "")}
    assert all(row["estimate"] for row in released() if row["value"])
    assert certificate()["worth"] is None
    known = json.loads(run(*given, "--dataset", "b", "-o", "out.csv", "--format", "json").output)
    assert known["usefulness"] is known["estimate"]["level"] is None
    past = json.loads(run(*given, "--past", "past.csv", "--dataset", "c", "-o", "out.csv", "--format", "json").output)
    assert past["usefulness"] is not None
    assert past["estimate"]["level"] == 0.95


def test_a_public_past_is_asked_and_may_refuse(house, run, fails):
    given = ("--chain", "chain.json", "--discretiser", "states.json", "--query", "count:0.5..", *TO)
    run("release", "new.csv", *given, "--past", "past.csv", "--dataset", "a", "-o", "out.csv")
    words = " ".join(certificate()["assumptions"])
    assert "tested on a public past, and not rejected" in words
    message = fails("release", "new.csv", *given, "--past", "signal.csv", "--dataset", "b", "-o", "out.csv")
    assert "finer states" in message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"of": "readings"}, "range is not known"),
        ({"low": 0.0}, "range is not known"),
        ({"of": "states", "low": 0.0, "high": 1.0}, "of readings; leave them out"),
        ({"low": 0.0, "high": 1.0, "resolution": 0.3}, "does not divide"),
        ({"low": 1.0, "high": 0.0}, "low must be below high"),
    ],
)
def test_options_that_say_no_range_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        ReadingOptions(**options).query("mean")


def test_what_options_mean(tmp_path):
    assert ReadingOptions().query("mean") == csdp.Mean()
    assert ReadingOptions(low=0.0, high=2.0, resolution=0.5).query("sum") == csdp.Sum(of=csdp.ReadingRange(0, 2, 0.5))
    file = tmp_path / "states.json"
    csdp.Discretiser.declared(["a"], edges=[0.5], bounds=(0, 1)).save(file)
    assert ReadingOptions().query("max", str(file)) == csdp.Max()  # has no form for readings
    with pytest.raises(InputError, match="of readings given"):
        ReadingOptions(of="readings").query("max", str(file))
    text = "mean of readings 0..1 by 0.5"
    assert ReadingOptions().query(text).text == text
    with pytest.raises(InputError, match="says what it is of"):
        ReadingOptions(low=0.0, high=1.0).query(text)


def test_the_discretiser_of_the_plan_file_makes_the_states(house, run, fails):
    """Readings that happen to be values of the model were taken for states, whatever the model was fitted to."""
    csdp.Discretiser.declared(["x1", "x2"], edges=[1.5], bounds=(0, 2)).save("states.json")
    plan = csdp.Plan(csdp.CoupledChain.from_json(Path("chain.json").read_text()), csdp.Count(0), 1, 600.0)
    PlanFile(plan, "then", None, csdp.Discretiser.load("states.json")).save("plan.json")
    write(Path("new.csv"), np.ones((6, 2)))
    run("release", "new.csv", "--plan", "plan.json", *TO[6:], "--dataset", "a", "-o", "out.csv")
    assert [round(float(row["value"])) for row in released()] == [2] * 5


def test_readings_without_a_discretiser_are_refused(house, fails):
    """Their states came silently from the nearest value of the model."""
    given = ("--chain", "chain.json", "--low", "0", "--high", "1", *TO, "--dataset", "a", "-o", "out.csv")
    assert "choose --outside clamp" in fails("release", "new.csv", *given)
    assert not Path("ledger.db").exists()
