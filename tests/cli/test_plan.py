"""`csdp plan`: what it leads with, and how long numbers about the time of the readings must be held back."""

from __future__ import annotations

import json
import math

import pytest

from csdp import CoupledChain, Mean, Plan, find_plan, mse
from csdp.estimate import LearnedEstimator, Observation

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def test_a_delay_in_words_and_in_numbers(run, paper, tmp_path):
    options = ("--about", "then", "--budget", "0.2", "--max-error", "0.3")
    figure = tmp_path / "delay.svg"
    words = run("plan", paper, *options, "--figure", figure, "-o", tmp_path / "plan.json").stdout
    numbers = json.loads(run("plan", paper, *options, "--format", "json").stdout)
    expected = find_plan(PAPER, Mean(), about="then", budget=0.2, max_mse=0.09, releases="continual")
    assert words.startswith(f"Hold every number back by {expected.delay} ticks: ")
    removed = f"removes {100 * expected.error.usefulness:.3g} % of the squared error of guessing the usual value"
    assert removed in words.splitlines()[0]
    assert (numbers["delay"], numbers["about"]) == (expected.delay, "then")
    assert numbers["usefulness"] == pytest.approx(1 - 0.09 / numbers["no_data"], rel=1e-6)
    assert numbers["leakage"]["epsilon"] == expected.leakage.epsilon <= 0.2
    drawn = figure.read_text()
    assert "this plan" in drawn
    assert "Mean squared error" in drawn


@pytest.mark.parametrize("estimate", ["raw", "linear", "history"])
def test_a_plan_about_the_present_leads_with_its_use(run, paper, estimate):
    asked = ("plan", paper, "--budget", "1", "--estimate", estimate, "--anyway")
    words, level = run(*asked).stdout, json.loads(run(*asked, "--format", "json").stdout)
    kind = "linear" if estimate == "history" else estimate  # of one release
    error = mse(PAPER, Mean(), ages=level["ages"], epsilon_c=level["epsilon_c"], estimate=kind)
    assert words.splitlines()[0] == f"This plan {error.in_words} (about now)."
    assert ("worse than guessing the usual value" in words) == (error.mse > error.no_data)


def test_one_error_target_in_two_forms(run, paper):
    asked = [
        json.loads(run("plan", paper, *target, "--estimate", "linear", "--format", "json").stdout)
        for target in (("--max-error", "0.3"), ("--max-mse", "0.09"))
    ]
    assert asked[0]["epsilon_c"] == pytest.approx(asked[1]["epsilon_c"], rel=1e-9)
    assert math.sqrt(asked[0]["mse"]) <= 0.3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-mse", "0.1", "--max-error", "0.3"), "give one of them"),
        (("--max-error", "-1"), "--max-error: -1.0 given"),
        (("--about", "then", "--budget", "0.5"), "--max-error"),
        (
            ("--about", "then", "--budget", "0.5", "--max-error", "0.3", "--horizon", "5"),
            "--horizon is for --about now",
        ),
        (("--about", "then", "--budget", "0.5", "--max-error", "0.3", "--vector"), "(--vector) is for --about now"),
    ],
)
def test_what_cannot_be_planned_is_refused(run, paper, options, words):
    assert words in run("plan", paper, *options, code=2).stderr


def test_a_plan_that_is_hardly_worth_it_is_not_written(run, fails, paper, tmp_path):
    asked = ("plan", paper, "--budget", "0.2", "--continual", "-o", tmp_path / "plan.json")
    said = fails(*asked, code=6)
    assert "less than 5 %" in said
    assert "--about then" in said
    assert "or --anyway" in said
    assert not (tmp_path / "plan.json").exists()
    run(*asked, "--anyway")
    assert (tmp_path / "plan.json").exists()


def test_a_learned_estimator_travels_with_the_plan_and_is_not_part_of_it(run, fails, paper, tmp_path):
    readings, plan, out = tmp_path / "r.csv", tmp_path / "plan.json", tmp_path / "o.json"
    run("chain", "simulate", paper, "--steps", "200", "--seed", "1", "-o", readings)
    asked = ("plan", paper, "--about", "then", "--budget", "0.5", "--max-error", "0.15", "-o", plan)
    run(*asked)
    digest = Plan.from_json(plan.read_text()).digest
    content = json.loads(run(*asked, "--past", readings, "--until", "150", "--format", "json").stdout)
    assert content["learned"]["ticks"] == 150
    assert {"mse", "no_data", "coverage", "usefulness"} <= set(content["learned"])
    written = json.loads(plan.read_text())
    learned = LearnedEstimator.from_dict(written.pop("estimator"))
    tested = Plan.from_json(plan.read_text())
    assert tested.digest == Plan.from_json(json.dumps(written)).digest != digest  # the public past tests the model too
    assert content["model"]["status"] == tested.verdict.status == "accepted"
    where = ("--dataset", "d", "--ledger", tmp_path / "l.db", "-o", out)
    said = json.loads(run("release", readings, "--plan", plan, *where, "--format", "json").stdout)
    assert said["estimate"]["measured_on"] == "held-out public readings"
    assert said["usefulness"] == pytest.approx(learned.usefulness)
    assert said["certificate"]["worth"]["about"] == "then"
    rows = json.loads(out.read_text())["releases"]
    assert all(row["low"] <= row["estimate"] <= row["high"] and row["about"] == "then" for row in rows)
    last = [Observation(row["tick"], tuple(row["values"]), row["ages"], learned.noise) for row in rows[-8:]]
    assert rows[-1]["estimate"] == pytest.approx(list(learned.of(last).estimate))
    kept = tmp_path / "estimator.json"
    again = ("release", readings, "--plan", plan, "--dataset", "e", "--ledger", tmp_path / "l.db", "-o", out)
    run(*again, "--past", readings, "--until", "150", "--estimator", kept)
    assert LearnedEstimator.load(kept).to_dict() == learned.to_dict()
    assert "about: 'now' given" in fails(*again, "--estimator", kept, "--about", "now")
    ticks = [row["tick"] for row in json.loads(out.read_text())["releases"]]
    assert min(ticks) >= 150  # the public past is not published again
    assert "only with --past" in fails(*asked, "--until", "150")
    assert "no ticks follow 999" in fails(*again, "--until", "999")
    other = tmp_path / "other.json"
    run("plan", paper, "--about", "then", "--budget", "0.5", "--max-error", "0.2", "-o", other)
    elsewhere = ("release", readings, "--plan", other, "--dataset", "f", "--ledger", tmp_path / "l.db", "-o", out)
    assert f"made for the plan {tested.digest[:12]}" in " ".join(fails(*elsewhere, "--estimator", kept).split())
    moved = json.loads(other.read_text()) | {"estimator": learned.to_dict()}
    other.write_text(json.dumps(moved))
    assert f"made for the plan {tested.digest[:12]}" in " ".join(fails(*elsewhere).split())


def test_a_learned_estimator_goes_with_the_levels_of_a_schedule(run, paper, tmp_path):
    readings, plan = tmp_path / "r.csv", tmp_path / "plan.json"
    run("chain", "simulate", paper, "--steps", "200", "--seed", "1", "-o", readings)
    run("plan", paper, "--budget", "2", "--horizon", "4", "--start", "150", "--past", readings, "--until", "150",
        "-o", plan, "--anyway")  # fmt: skip
    run("release", readings, "--plan", plan, "--dataset", "d", "--ledger", tmp_path / "l.db", "-o", tmp_path / "o.csv",
        "--anyway")  # fmt: skip
    assert json.loads(plan.read_text())["estimator"]["plan_digest"] == Plan.from_json(plan.read_text()).digest


def test_a_release_that_is_hardly_worth_it_charges_nothing(run, fails, paper, tmp_path):
    readings, ledger = tmp_path / "r.csv", tmp_path / "l.db"
    run("chain", "simulate", paper, "--steps", "20", "--seed", "1", "-o", readings)
    asked = ("release", readings, "--chain", paper, "--age", "2", "--epsilon-c", "1", "--dataset", "d")
    asked = (*asked, "--ledger", ledger, "-o", tmp_path / "o.csv")
    assert "about the time of the readings (2 ticks ago), which remove 24.9 %" in fails(*asked, code=6)
    assert not ledger.exists()
    run(*asked, "--anyway")
    assert ledger.exists()
