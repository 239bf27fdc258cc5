from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import numpy as np
import pytest

from csdp import CoupledChain, Plan, ReadingRange, Readings, read_readings
from csdp.accountant import Accountant
from csdp.chain.files import save_model
from csdp.errors import InputError, NotUsefulError
from csdp.panel import Discretiser
from csdp.panel.times import coarsen
from csdp.planning.plan_file import PlanFile
from csdp.planning.suggest import FittedLayout, Layout, suggest
from plain_words import check_plain_words

CHAIN = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def simulate_alike(up=0.3, down=0.3):
    """Ten sequences that are alike and do not follow each other: enough for a class that is of use."""
    chain = CoupledChain([[1.0]], [[1 - up, up], [down, 1 - down]])
    return np.hstack([chain.simulate(1000, seed=100 + n) for n in range(10)]).astype(float)


@pytest.fixture
def readings(tmp_path):
    states = simulate_alike()
    noise = np.random.default_rng(0).normal(0, 1, states.shape)
    cells = 20 + 10 * states + noise
    rows = [f"{t}," + ",".join(f"{cell:.2f}" for cell in row) for t, row in enumerate(cells)]
    path = tmp_path / "readings.csv"
    path.write_text("\n".join(["time," + ",".join(f"ward {name}" for name in "ABCDEFGHIJ"), *rows]) + "\n")
    return path


#: Options that keep a test short: one step, one query, little time.
SHORT = ("--public", "--query", "mean", "--seconds", "1")


def test_from_a_file_to_a_release_and_a_report(run, readings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("suggest", readings.name, *SHORT, "-o", "start")
    for what in ("states", "chain", "model", "plan", "estimate"):
        assert f"│ {what} " in result.stdout
    folder = tmp_path / "start" / "1"
    assert PlanFile.load(folder / "plan.json").frontier.points
    plan = Plan.from_json((folder / "plan.json").read_text())
    assert Discretiser.load(folder / "discretiser.json").state_count == plan.model.states
    for line in (tmp_path / "start" / "next.txt").read_text().splitlines():  # the commands run as they stand
        run(*shlex.split(line)[1:])
    private = (tmp_path / "report" / "index.html").read_text()
    assert private.index("Contains private data") < private.index("<h1>")
    assert "true value" in private
    share = (tmp_path / "report" / "share.html").read_text()
    assert "true value" not in share
    certificate = json.loads((tmp_path / "report" / "certificate.json").read_text())
    assert certificate["guarantees"]["present"]["epsilon"] <= 1


@pytest.fixture
def irregular(tmp_path, monkeypatch):
    """Readings of two wards every 7 to 23 minutes, in local time, with words between them; 40 days."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    minutes = np.cumsum(random.integers(7, 24, 4000))
    hours = CHAIN.simulate(int(minutes[-1]) // 60 + 1, seed=1)
    path = tmp_path / "r.txt"
    when = np.datetime64("2024-01-01T00:00:00") + minutes.astype("timedelta64[m]")
    rows = [f"{t};{a};{b};dry" for t, (a, b) in zip(when, (20.0 + 10 * hours[minutes // 60]).tolist(), strict=True)]
    path.write_text("\n".join(["when;ward A;ward B;sky", *rows]) + "\n")
    return path


READ = ("--step", "1h", "--resample", "mean", "--timezone", "Europe/London")
READ += ("--time", "when", "--names", "ward A,ward B")


@pytest.mark.parametrize("until", [None, "2024-01-25T06:30"])
def test_the_commands_read_the_readings_as_they_were_read_here(run, irregular, until):
    """They were printed without --step and --resample, and a fortieth of the ticks was published."""
    past = () if until is None else ("--until", until)
    run("open", irregular.name, *READ, "-o", "input.toml")
    asked = ("suggest", "input.toml", *past, *SHORT, "-o", "suggested")
    content = json.loads(run(*asked, "--format", "json").stdout)
    first = content["plans"][0]
    assert content["next"] == Path("suggested/next.txt").read_text().splitlines()
    for line in content["next"]:
        run(*shlex.split(line)[1:])
    certificate = json.loads(Path("released.csv.certificate.json").read_text())
    assert certificate["plan"]["digest"] == first["plan_digest"]
    assert certificate["guarantees"]["event"]["epsilon"] <= first["event_level"] * (1 + 1e-9)
    hours = read_readings(irregular, step="1h", resample="mean", time="when", names=["ward A", "ward B"])
    begin = hours.times[0] if until is None else np.datetime64("2024-01-25T06:00:00")
    due = int((hours.times >= begin).sum()) - first["age"]
    rows = Path("released.csv").read_text().splitlines()[1:]
    assert due > 300
    assert 0.98 * due <= len(rows) <= due
    assert all(np.datetime64(row.split(",")[1]) >= begin for row in rows)


def test_longer_steps_of_the_past_are_those_of_the_commands():
    """The last of the longer ticks is not over at the end of the past, and none of its readings are used."""
    readings = Readings.from_array(np.random.default_rng(1).normal(size=(400, 1)))
    layout = FittedLayout(readings, Layout(4, 2), strict=True, take_past=lambda every: every.split(303)[0])
    expected = coarsen(readings, 4).split(303)[0]
    assert layout.readings.ticks.tolist() == expected.ticks.tolist() == list(range(75))
    np.testing.assert_array_equal(layout.readings.readings, expected.readings)


def test_what_is_proposed_is_certified_and_useful():
    pair, other = CHAIN.simulate(400, seed=2), CHAIN.simulate(400, seed=3)
    suggestion = suggest(np.hstack([pair, other]).astype(float), public=True, budget=2.0, query="mean", seconds=3)
    assert len(suggestion.plans) > 1
    assert [one.has_model for one in suggestion.plans] == [True] * (len(suggestion.plans) - 1) + [False]
    for proposed in suggestion.plans[:-1]:
        assert proposed.error.usefulness >= 0.05
        assert Accountant(proposed.plan).ceiling(None) <= proposed.leakage * (1 + 1e-9) <= 2.0
        assert proposed.plan.epsilon_c <= 10
    order = [one.order for one in suggestion.plans]
    assert order == sorted(order)


def test_numbers_about_the_time_read_are_held_back_as_long_as_needed():
    states = simulate_alike(0.2, 0.25)
    suggestion = suggest(states, public=True, about="then", query="mean", fixed_step=True, seconds=3)
    best = suggestion.best
    assert best.about == "then"
    assert best.error.usefulness > 0.4
    age = best.plan.max_age
    assert age > 0
    sooner = Plan(best.chain, best.plan.query, age - 1, best.plan.epsilon_c)
    assert Accountant(sooner).ceiling(None) > best.limits["budget"]


def test_nothing_useful_is_said_with_what_would_help(fails, tmp_path):
    noise = np.random.default_rng(1).integers(0, 2, (200, 1))  # nothing to learn from one number to the next
    asked = {"public": True, "budget": 0.05, "about": "now", "seconds": 1}
    with pytest.raises(NotUsefulError, match=r"no useful plan under a model within the limits \(the present 0") as told:
        suggest(noise.astype(float), event_limit=0.05, **asked)
    assert {"a larger --event-limit", "numbers about the time of the readings (--about then)"} <= set(told.value.helps)
    [plain] = suggest(noise.astype(float), event_limit=2.0, **asked).plans
    assert (plain.has_model, plain.plan.epsilon_c) == (False, 2.0)
    path = tmp_path / "noise.csv"
    path.write_text("time,a\n" + "".join(f"{t},{row[0]}\n" for t, row in enumerate(noise)))
    limits = ("--budget", "0.05", "--event-limit", "0.05")
    message = fails("suggest", path, "--public", *limits, "--about", "now", "--seconds", "1", code=6)
    assert "What would help: " in message


def test_advice_of_a_suggestion_leads_on(run, fails, tmp_path):
    noise = np.random.default_rng(1).integers(0, 2, (1000, 10))
    path = tmp_path / "noise.csv"
    rows = [",".join(map(str, [tick, *row])) for tick, row in enumerate(noise.tolist())]
    path.write_text("\n".join(["time,a,b,c,d,e,f,g,h,i,j", *rows]) + "\n")
    asked = ("suggest", path, "--public", "--query", "mean", "--budget", "0.4", "--seconds", "1")
    message = fails(*asked, "--event-limit", "0.05", "--about", "now", code=6)
    for advice in ("a larger --event-limit", "numbers about the time of the readings (--about then)"):
        assert advice in message
    first = json.loads(run(*asked, "--about", "then", "--format", "json").stdout)["plans"][0]
    assert first["model"]["status"] == "accepted"
    assert first["leakage"] <= 0.4


@pytest.mark.parametrize("budget", [None, 1.2])
def test_any_moment_is_limited_alone_or_beside_the_present(budget):
    states = simulate_alike()
    asked = {"public": True, "query": "mean", "fixed_step": True, "seconds": 3}
    best = suggest(states, moment_limit=2.0, budget=budget, **asked).best
    accountant = Accountant(best.plan)
    assert accountant.every_moment() == best.moment <= 2.0
    assert accountant.ceiling(None) == best.leakage <= (budget or 2.0)
    assert best.limits == {**({} if budget is None else {"budget": 1.2}), "moment_limit": 2.0, "event_limit": 10.0}
    nearest = max(best.moment / 2.0, best.leakage / (budget or math.inf))
    assert 0.99 < nearest <= 1.0  # no more noise than a limit asks for
    assert (best.protection.what, best.about) == ("every_moment", "now")
    late = suggest(states, moment_limit=3.0, budget=budget or 1.0, about="then", **asked)
    assert late.best.has_model
    assert all(Accountant(one.plan).every_moment() <= 3.0 for one in late.plans if one.has_model)


def test_both_numbers_are_stated_with_their_limits(run, readings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("suggest", readings.name, *SHORT, "--budget", "1.5", "--moment-limit", "2", "-o", "start")
    content = json.loads(run(*asked, "--format", "json").stdout)
    first = content["plans"][0]
    assert first["limits"] == {"budget": 1.5, "moment_limit": 2.0, "event_limit": 10.0}
    assert first["leakage"] <= first["every_moment"] <= 2.0
    assert first["protects"]["what"] == "every_moment"
    release, _ = content["next"]
    assert "--budget 1.5 --moment-limit 2 --event-limit 10" in release
    said = " ".join(run(*asked).stdout.replace("│", " ").split())
    for words in (
        "present",
        "any moment",
        "every moment",
        "Limits: the present 1.5, any moment 2, one reading 10; without a model one reading 1.",
    ):
        assert words in said
    run(*shlex.split(release)[1:])
    limits = json.loads(Path("released.csv.certificate.json").read_text())["limits"]
    assert (limits["budget"], limits["moment_limit"], limits["event_limit"]) == (1.5, 2.0, 10.0)


@pytest.fixture
def spells(tmp_path, monkeypatch):
    """Readings that change after 14 to 16 ticks: their memory is longer than any class that a fit grows."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    columns = [np.repeat(np.arange(80) % 2, random.integers(14, 17, 80))[:1120] for _ in range(2)]
    rows = np.stack(columns, axis=1)
    path = tmp_path / "spells.csv"
    path.write_text("time,pump,fan\n" + "".join(f"{tick},{a},{b}\n" for tick, (a, b) in enumerate(rows.tolist())))
    return path


def test_where_no_model_is_accepted_the_plan_has_none(run, spells):
    """From a file to a release and a report, by the commands as they are printed; nothing is overridden."""
    asked = ("suggest", spells.name, *SHORT, "--until", "1000", "-o", "suggested")
    result = run(*asked)
    assert result.stdout.startswith("The best plan removes")
    assert "No model: plain differential privacy only." in result.stdout
    assert "No model that was tried is accepted by the readings (MODEL REJECTED by its public past" in result.stdout
    content = json.loads(run(*asked, "--format", "json").stdout)
    [plan] = content["plans"]
    assert (plan["leakage"], plan["every_moment"], plan["event_level"], plan["age"]) == (None, None, 1.0, 0)
    assert (plan["protects"]["what"], plan["limits"]) == ("readings", {"event_limit": 1.0})
    assert plan["usefulness"] >= 0.05
    assert "--event-limit 1 --on-refusal" in content["next"][0]
    assert "unchecked" not in content["next"][0]
    for line in content["next"]:
        run(*shlex.split(line)[1:])
    certificate = json.loads(Path("report/certificate.json").read_text())
    assert certificate["counts"]["published"] == 120
    assert list(certificate["guarantees"]) == ["event", "group"]
    assert certificate["guarantees"]["event"]["ceiling"] == 1.0
    page = Path("report/share.html").read_text()
    assert page.index("No model: plain differential privacy only") < page.index("<h1>")
    assert "budget</h2>" not in page
    check_plain_words(page)


def test_a_rejected_model_is_proposed_after_the_plan_without_one_if_asked_for(spells):
    states = np.loadtxt(spells, delimiter=",", skiprows=1)[:1000, 1:]
    asked = {"public": True, "query": "mean", "fixed_step": True, "about": "then", "seconds": 3, "budget": 2.0}
    verdicts = [one.plan.verdict.status for one in suggest(states, model_unchecked=True, **asked).plans]
    assert verdicts == ["none", "rejected"]
    assert [one.plan.verdict.status for one in suggest(states, **asked).plans] == ["none"]


def test_readings_are_proposed_where_their_range_is_known():
    states = CHAIN.simulate(400, seed=5)
    cells = 20 + 5 * states + np.random.default_rng(1).uniform(-1, 1, states.shape).round(1)
    suggestion = suggest(cells, public=True, of=ReadingRange(15, 30, 0.5), query="mean", fixed_step=True, seconds=30)
    texts = {one.to_dict()["query"] for one in suggestion.plans}
    assert "mean of readings 15..30 by 0.5" in texts


def test_an_interrupt_keeps_the_best_so_far():
    seen = []

    def interrupt(what, done, total):
        seen.append(what)
        if what.startswith("comparing") and len([one for one in seen if one.startswith("comparing")]) == 2:
            raise KeyboardInterrupt

    states = CHAIN.simulate(400, seed=6)
    cells = 20 + 5 * states + np.random.default_rng(1).normal(0, 1, states.shape)
    suggestion = suggest(cells, public=True, query="mean", seconds=60, progress=interrupt)
    assert suggestion.interrupted
    assert suggestion.plans


def test_longer_steps_are_read_as_they_were_tried(tmp_path):
    times = np.datetime64("2024-01-01T00:10:00") + 600 * np.arange(50)
    cells = np.random.default_rng(0).normal(size=(50, 2))
    cells[7] = np.nan
    rows = [f"{when},{a},{b}".replace("nan", "") for when, (a, b) in zip(times, cells.tolist(), strict=True)]
    path = tmp_path / "r.csv"
    path.write_text("\n".join(["time,a,b", *rows]) + "\n")
    again = read_readings(path, step=2400, resample="mean")
    coarse = coarsen(read_readings(path), 4)
    np.testing.assert_array_equal(again.readings, coarse.readings)
    assert (again.ticks.tolist(), again.step) == (coarse.ticks.tolist(), coarse.step)


def test_private_readings_are_refused(fails, tmp_path):
    """A chain that is fitted to them would cost an infinite epsilon."""
    with pytest.raises(InputError, match="not declared public"):
        suggest(CHAIN.simulate(100, seed=1).astype(float), query="mean")
    readings = tmp_path / "r.csv"
    readings.write_text("time,a\n" + "".join(f"{t},{t % 3}\n" for t in range(60)), encoding="utf-8")
    assert "Declare what is public (--public), or an older part of them (with --until)" in fails("suggest", readings)


def test_too_little_to_say(fails, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("time,a\n0,1\n1,2\n")
    assert "at least 50 are needed" in fails("suggest", path, "--public")
    with pytest.raises(InputError, match="at least 50"):
        suggest(np.zeros((10, 1)), public=True)
    with pytest.raises(InputError, match="all readings are equal"):
        suggest(np.zeros((60, 1)), public=True)
    with pytest.raises(InputError, match="about: 'later' given"):
        suggest(np.zeros((60, 1)), public=True, about="later")
    with pytest.raises(InputError, match="seconds: 0 given"):
        suggest(np.zeros((60, 1)), public=True, seconds=0)
    assert "is a file; give the name of a folder" in fails("suggest", path, "--public", "-o", path)


def test_report_of_nothing(run, fails, tmp_path, paper, plan_file):
    readings = tmp_path / "r.csv"
    run("chain", "simulate", paper, "--steps", "20", "--seed", "1", "-o", readings)
    ledger = tmp_path / "l.db"
    run("release", readings, "--plan", plan_file(paper), "--dataset", "d", "--ledger", ledger, "-o", tmp_path / "o.csv")
    out = ["-o", str(tmp_path / "rep")]
    assert "no dataset 'e'" in fails("report", ledger, "--dataset", "e", *out)
    other = tmp_path / "later.csv"
    other.write_text("time,x1,x2\n900,0,1\n901,1,1\n")
    assert "none of its ticks was published" in fails("report", ledger, "--dataset", "d", "--data", other, *out)
    run("report", ledger, "--dataset", "d", "--data", readings, *out)


def test_report_of_words_that_the_discretiser_declares(run, tmp_path, monkeypatch, plan_file):
    monkeypatch.chdir(tmp_path)
    words = ["low", "high", "high", "low", "low", "high"] * 5
    Path("words.csv").write_text("time,x1\n" + "".join(f"{tick},{word}\n" for tick, word in enumerate(words)))
    Discretiser.fit("words.csv", categories=["low", "high"], public=True).save("states.json")
    save_model(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), "chain.json")
    plan = plan_file("chain.json", age=1, level=2.0, states="states.json")
    run("release", "words.csv", "--plan", plan, "--dataset", "d", "--ledger", "l.db", "-o", "o.csv")
    run("report", "l.db", "--dataset", "d", "--plan", plan, "--data", "words.csv", "-o", "report")
    assert Path("report/index.html").is_file()
