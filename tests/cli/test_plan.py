"""`csdp plan`: what it leads with, how long numbers must be held back, and what a plan file takes along."""

from __future__ import annotations

import json

import pytest

from csdp import Accountant, CoupledChain, InfluenceGraph, Mean, NoModel, Plan, find_plan
from csdp.chain.evidence import Evidence
from csdp.chain.files import save_model
from csdp.estimate import LearnedEstimator, Observation
from csdp.planning.plan_file import PlanFile

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
THEN = ("--about", "then", "--budget", "0.5", "--max-error", "0.3")


def test_a_delay_in_words_and_in_numbers(run, paper, tmp_path):
    words = run("plan", paper, *THEN, "-o", tmp_path / "plan.json").stdout
    numbers = json.loads(run("plan", paper, *THEN, "--format", "json").stdout)
    expected = find_plan(PAPER, Mean(), about="then", budget=0.5, max_mse=0.09, releases="continual")
    assert words.startswith(f"Hold every number back by {expected.delay} tick")
    removed = f"removes {100 * expected.error.usefulness:.3g} % of the squared error of guessing the usual value"
    assert removed in words.splitlines()[0]
    assert (numbers["delay"], numbers["about"]) == (expected.delay, "then")
    assert numbers["usefulness"] == pytest.approx(1 - 0.09 / numbers["no_data"], rel=1e-6)
    assert numbers["leakage"]["epsilon"] == expected.leakage.epsilon <= 0.5
    stored = PlanFile.load(tmp_path / "plan.json")
    assert (stored.about, stored.plan.digest) == ("then", numbers["plan_digest"])
    assert stored.frontier.points


def test_a_given_age_and_noise(run, paper, tmp_path):
    asked = ("plan", paper, "--query", "max", "--age", "1,3", "--epsilon-c", "0.5", "--stale-limit", "2")
    content = json.loads(run(*asked, "-o", tmp_path / "plan.json", "--format", "json").stdout)
    plan = Plan(PAPER, "max", [1, 3], 0.5, stale_limit=2)
    assert (content["ages"], content["epsilon_c"], content["plan_digest"]) == ([1, 3], 0.5, plan.digest)
    assert PlanFile.load(tmp_path / "plan.json").plan == plan
    assert content["leakage"]["epsilon"] >= plan.certified.epsilon
    said = run(*asked).stdout
    assert said.index("the present, in the long run") < said.index("any moment") < said.index("mean squared error")
    assert content["every_moment"] == Accountant(plan).every_moment(stale=2)


def test_a_moment_that_nothing_bounds_is_said_with_what_to_do(run, tmp_path):
    around = InfluenceGraph.around(CoupledChain(PAPER.coupling, PAPER.transitions, direction="backward"), 0.01)
    save_model(around, tmp_path / "graph.json")
    said = run("plan", tmp_path / "graph.json", "--age", "1", "--epsilon-c", "0.5").stdout
    assert "grows with every release under this" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --age and --epsilon-c, or --budget, --max-error or --moment-limit"),
        ((), "or --event-limit alone for a plan without a model"),
        (("--event-limit", "0"), "--event-limit: 0.0 given"),
        (("--age", "1"), "give both --age and --epsilon-c"),
        (("--epsilon-c", "1"), "give both --age and --epsilon-c"),
        (("--age", "1", "--epsilon-c", "1", "--budget", "1"), "leave out --budget"),
        (("--max-error", "-1"), "'-1' given; it should be greater than or equal to 0"),
        (("--max-error", "0"), "max_mse: 0"),
        (("--about", "then", "--budget", "0.5"), "--max-error"),
        (("--age", "1", "--epsilon-c", "1", "--until", "5"), "only with --past"),
    ],
)
def test_what_cannot_be_planned_is_refused(fails, paper, options, words):
    assert words in fails("plan", paper, *options)


def test_a_search_that_finds_nothing_useful_writes_no_plan(fails, paper, tmp_path):
    said = fails("plan", paper, "--budget", "0.2", "-o", tmp_path / "plan.json", code=6)
    assert "less than 5 %" in said
    assert "--about then" in said
    assert not (tmp_path / "plan.json").exists()


def test_a_target_that_cannot_be_met(fails, paper):
    message = fails("plan", paper, "--max-error", "0.01", "--event-limit", "0.5", "--max-age", "2")
    assert "Raise" in message
    assert "--event-limit" in message


def test_the_past_goes_into_the_plan_file_and_is_not_published_again(run, fails, paper, tmp_path):
    readings, plan, out = tmp_path / "r.csv", tmp_path / "plan.json", tmp_path / "o.json"
    run("chain", "simulate", paper, "--steps", "200", "--seed", "1", "-o", readings)
    asked = ("plan", paper, *THEN, "--past", readings, "--until", "150", "-o", plan)
    content = json.loads(run(*asked, "--format", "json").stdout)
    assert content["learned"]["ticks"] == 150
    stored = PlanFile.load(plan)
    assert stored.until == 150
    assert content["model"]["status"] == stored.plan.verdict.status == "accepted"  # the past tests the model too
    written = json.loads(plan.read_text())
    learned = LearnedEstimator.from_dict(written.pop("estimator"))
    assert Plan.from_json(json.dumps(written)).digest == stored.plan.digest == learned.plan_digest

    where = ("--dataset", "d", "--ledger", tmp_path / "l.db", "-o", out)
    said = json.loads(run("release", readings, "--plan", plan, *where, "--format", "json").stdout)
    assert said["published"] > 40
    rows = json.loads(out.read_text())["releases"]
    assert min(row["tick"] for row in rows) >= 150
    assert all(row["low"] <= row["estimate"] <= row["high"] and row["about"] == "then" for row in rows)
    last = [Observation(row["tick"], tuple(row["values"]), row["ages"], learned.noise) for row in rows[-8:]]
    assert rows[-1]["estimate"] == pytest.approx(list(learned.of(last).estimate))

    early = tmp_path / "early.csv"
    early.write_text("\n".join(readings.read_text().splitlines()[:100]) + "\n")
    assert "no ticks follow 150, the end of the plan's public past" in fails("release", early, "--plan", plan, *where)
    other = tmp_path / "other.json"
    run("plan", paper, *THEN[:-1], "0.2", "-o", other)
    other.write_text(json.dumps(json.loads(other.read_text()) | {"estimator": learned.to_dict()}))
    assert f"made for the plan {stored.plan.digest[:12]}" in fails("release", readings, "--plan", other, *where)


def test_a_release_that_is_hardly_worth_it_charges_nothing(run, fails, paper, plan_file, tmp_path):
    readings, ledger = tmp_path / "r.csv", tmp_path / "l.db"
    run("chain", "simulate", paper, "--steps", "20", "--seed", "1", "-o", readings)
    place = ("--dataset", "d", "--ledger", ledger, "-o", tmp_path / "o.csv")
    asked = ("release", readings, "--plan", plan_file(paper, about="now"), *place)
    message = fails(*asked, code=6)
    assert "about the time of the readings (2 ticks ago), which remove 24.9 %" in message
    assert message.endswith("or --anyway")
    assert not ledger.exists()
    run(*asked, "--anyway")
    assert ledger.exists()


def test_a_declared_graph_is_planned_by_a_limit_on_any_moment(run, tmp_path):
    save_model(InfluenceGraph.declared([f"shop {n}" for n in range(60)], own=0.4), tmp_path / "shops.json")
    asked = ("plan", tmp_path / "shops.json", "--moment-limit", "1")
    found = json.loads(run(*asked, "--format", "json", "-o", tmp_path / "plan.json").stdout)
    assert 0.99 < found["every_moment"] <= 1.0
    assert "publishing nothing" not in run(*asked).stdout
    assert PlanFile.load(tmp_path / "plan.json").plan.digest == found["plan_digest"]


@pytest.fixture
def rejected(tmp_path):
    """A chain that its public past rejects."""
    path = tmp_path / "rejected.json"
    save_model(PAPER.carrying(evidence=Evidence("rejected", "the order of the past matters")), path)
    return path


def test_a_plan_by_the_event_limit_alone_has_no_model(run, rejected, tmp_path):
    readings, plan, out = tmp_path / "r.csv", tmp_path / "plan.json", tmp_path / "o.csv"
    run("chain", "simulate", rejected, "--steps", "400", "--seed", "1", "-o", readings)
    past = ("--past", readings, "--until", "300")
    said = run("plan", rejected, *THEN, *past).stdout
    assert "--event-limit alone makes a plan without a model" in said
    assert "Only if the model holds, it protects the present only" in said
    said = run("plan", rejected, "--event-limit", "1", *past, "-o", plan).stdout
    assert "No model: plain differential privacy only." in said
    assert "Protects single readings: each has plain differential privacy with epsilon 1 " in said
    assert "the present" not in said
    stored = PlanFile.load(plan)
    assert stored.plan == Plan(NoModel.of(PAPER), "mean", 0, 1.0)
    assert stored.learned.usefulness > 0.05
    limits = ("--event-limit", "1", "--window", "5", "--window-limit", "5")
    said = run("release", readings, "--plan", plan, "--dataset", "d", "--ledger", tmp_path / "l.db", *limits, "-o", out)
    assert "100 of 100 ticks" in said.stdout
    assert "Protects single readings" in said.stdout
    certificate = json.loads((tmp_path / "o.csv.certificate.json").read_text())
    assert list(certificate["guarantees"]) == ["event", "window", "group"]
    assert certificate["protects"]["what"] == "readings"


def test_without_a_model_there_is_nothing_to_search_for(run, fails, tmp_path):
    save_model(NoModel.of(PAPER), tmp_path / "none.json")
    assert "--event-limit alone" in fails("plan", tmp_path / "none.json", "--budget", "1")
    said = run("plan", tmp_path / "none.json", "--event-limit", "0.5").stdout
    assert said.startswith("What this plan is worth is not known without a model; a public past shows it (--past).")
    content = json.loads(
        run("plan", tmp_path / "none.json", "--age", "0", "--epsilon-c", "1", "--format", "json").stdout
    )
    assert (content["leakage"], content["every_moment"], content["protects"]["what"]) == (None, None, "readings")


def test_a_plan_says_what_it_protects(run, paper):
    asked = ("plan", paper, "--age", "8", "--epsilon-c", "9", "--format", "json")
    late = json.loads(run(*asked).stdout)
    assert late["protects"]["what"] == "present"
    assert "by a delay of 8 ticks and nearly without noise" in late["protects"]["words"]
    assert "Protects every moment, with noise" in run("plan", paper, "--age", "0", "--epsilon-c", "0.1").stdout
