"""Plans of version 0.2 that use something removed: refused in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from command import run_command
from csdp import CoupledChain, EnvironmentChain, Ledger, Mean, Plan, Publisher, ReadingRange, Schedule, replay
from csdp.errors import CsdpError, InputError, LedgerTermsError
from csdp.ledger import Admission, Charge, DatasetState
from csdp.publisher import Standing
from csdp.query import parse_query
from csdp.report.page import report_ledger
from csdp.stream.spec import load_plan, read_spec

SLOW, FAST = (CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]], direction="backward", names=["a"]) for p in (0.05, 0.3))
CLOCK = EnvironmentChain([SLOW, FAST], cycle=(0, 1))
OF = ReadingRange(0, 1, 0.01)
MEMORY = "mean of readings 0..1 by 0.01 memory 3"


def table() -> str:
    """What `csdp.optimal_plan` of version 0.2 wrote, with weights over 2^64."""
    weights = [[str(2**62), str(3 * 2**62)], [str(3 * 2**62), str(2**62)]]
    drawn = {"answers": [0.0, 1.0], "outputs": [0.25, 0.75], "weights": weights}
    return json.dumps({**Plan(SLOW, Mean(), 1, 1.1).to_dict(), "schema": "csdp/plan/2", "mechanism": drawn})


def phase_levels() -> str:
    content = Plan(CLOCK, Mean(), 1, 0.5, schedule=Schedule((0.5, 0.2))).to_dict()
    return json.dumps({**content, "schema": "csdp/plan/3", "schedule": {**content["schedule"], "repeats": True}})


def memory() -> str:
    return json.dumps({**Plan(SLOW, Mean(of=OF), 1, 0.5).to_dict(), "query": MEMORY})


def choice(**chosen: str) -> str:
    """What version 0.2 wrote of a plan for another adversary, or by a certain bound."""
    return json.dumps({**Plan(SLOW, Mean(), 1, 0.5).to_dict(), **chosen})


#: Plans of version 0.2, a plan that can take their place, and what is said of them.
PLANS = {
    "table": (
        table(),
        Plan(SLOW, Mean(), 1, 1.1),
        "a table to draw outputs from given; a plan adds noise.* Make the plan again with noise",
    ),
    "phases": (
        phase_levels(),
        Plan(CLOCK, Mean(), 1, 0.5),
        "levels 0.5, 0.2 per phase of a clock given; .* one epsilon_c",
    ),
    "adversary": (
        choice(adversary="uninformed"),
        Plan(SLOW, Mean(), 1, 0.5),
        "adversary 'uninformed' given; .* Make the plan again without it",
    ),
    "bound": (
        choice(bound="group"),
        Plan(SLOW, Mean(), 1, 0.5),
        "bound 'group' given; .* Make the plan again without it",
    ),
    "memory": (memory(), Plan(SLOW, Mean(of=OF), 1, 0.5), "'memory 3' given; .* publish a query of states"),
}
EACH = pytest.mark.parametrize(("text", "plan", "words"), PLANS.values(), ids=PLANS)


def test_the_text_of_a_query() -> None:
    assert parse_query("mean of readings 0..1 by 0.01") == Mean(of=OF)
    for wrong in ("memory 3", "memory  0", "memory x", "memory"):
        with pytest.raises(InputError, match=r"a memory are not supported\. Write '0\.\.1 by 0\.01' if"):
            parse_query(f"mean of readings 0..1 by 0.01 {wrong} ")


@EACH
def test_a_plan_file(tmp_path: Path, text: str, plan: Plan, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Plan.from_json(text)
    content = json.loads(text)
    if "mechanism" in content:
        for altered in (
            {**content, "schema": "csdp/plan/1"},
            {**content, "mechanism": None},
            {name: value for name, value in content.items() if name != "mechanism"},
        ):
            with pytest.raises(InputError, match=words):
                Plan.from_json(json.dumps(altered))
    if "schedule" in content:
        for altered in (
            {**content, "schema": "csdp/plan/1"},
            {**content, "schedule": {**content["schedule"], "repeats": 1}},
        ):
            with pytest.raises(InputError, match=words):
                Plan.from_json(json.dumps(altered))
        del content["schedule"]["repeats"]
        with pytest.raises(InputError, match="altered"):
            Plan.from_json(json.dumps(content))
    file, data = tmp_path / "plan.json", tmp_path / "data.csv"
    file.write_text(text)
    data.write_text("time,a\n0,0\n1,1\n2,0\n")
    ledger = str(tmp_path / "ledger.db")
    told = run_command("release", str(data), "--plan", str(file), "--dataset", "d", "--ledger", ledger, "-o", "x.csv")
    assert told.returncode == 2
    assert words.split(";", maxsplit=1)[0] in " ".join(told.stderr.split())


@EACH
def test_a_stream(tmp_path: Path, text: str, plan: Plan, words: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    spec = """\
dataset = "d"
plan = "plan.json"
ledger = "ledger.db"
[limits]
budget = 1.0
[clock]
step = 60
[source]
kind = "stdin"
[sink]
kind = "stdout"
"""
    (tmp_path / "stream.toml").write_text(spec)
    with pytest.raises(CsdpError, match=words):
        load_plan(read_spec(tmp_path / "stream.toml"))


@EACH
@pytest.mark.parametrize("changed", [False, True], ids=["live", "before"])
def test_a_ledger(tmp_path: Path, text: str, plan: Plan, words: str, changed: bool) -> None:
    """Also if the dataset went on under another plan, with a state carried over from it."""
    where = tmp_path / "ledger.db"
    with Ledger.open(where) as ledger:
        with Publisher(plan, dataset="other", ledger=ledger) as publisher:
            terms = publisher._terms(publisher.account, ledger.dataset("other").terms.limits)
            ledger.register("d", replace(terms, plan_json=text, plan_digest="0" * 64))
            if changed:
                following = replace(terms, from_tick=1, rule="as version 0.2 did")
                ledger.change_plan("d", following, lambda *_: Admission(DatasetState(), Charge(present=0.0)))
        with pytest.raises(
            LedgerTermsError, match=f"'d' was published under plan 0{{12}}: .*{words}.* new dataset name"
        ):
            Publisher(plan, dataset="d", ledger=ledger)
        with pytest.raises(LedgerTermsError, match=words):
            Standing(ledger, "d", plan=plan)
        told = replay(ledger, dataset="d", plans=[])
        assert any(words.split(";", maxsplit=1)[0] in finding.what for finding in told.findings)
        assert not any(told.charges.values())  # also those under the plan after it, whose history is not known
    with pytest.raises(CsdpError, match=words):
        report_ledger(where, tmp_path / "report", dataset="d", version="0")


@pytest.mark.parametrize("option", [("--per-phase",), ("--mechanism", "auto")], ids=["phases", "table"])
def test_the_command_lacks_what_was_removed(tmp_path: Path, option: tuple[str, ...]) -> None:
    (tmp_path / "clock.json").write_text(CLOCK.to_json())
    told = run_command("plan", str(tmp_path / "clock.json"), "--budget", "1", *option)
    assert told.returncode == 2
    assert option[0] in told.stderr
