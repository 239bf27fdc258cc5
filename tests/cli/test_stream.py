"""`csdp init` and `csdp stream` inside this process."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from csdp import CoupledChain, Plan
from csdp.chain.files import load_model, save_model
from csdp.cli.stream import _status_line, summarise_status
from csdp.ledger import Ledger
from csdp.planning.plan_file import PlanFile
from csdp.stream import Status


@pytest.fixture
def started(run, paper, tmp_path):
    """A plan, a file of readings and a first specification; the path of the specification."""
    run("chain", "simulate", paper, "--steps", "40", "--seed", "1", "-o", tmp_path / "readings.csv")
    PlanFile(Plan(load_model(paper), "mean", 1, 0.5)).save(tmp_path / "plan.json")
    spec = tmp_path / "stream.toml"
    run("init", tmp_path / "readings.csv", "-o", spec, code=6)
    text = spec.read_text().replace("# anyway = true", "anyway = true")
    spec.write_text(text.replace("# [limits]", "[limits]").replace("# budget = 0.5", "budget = 0.5"))
    return spec


def test_numbers_that_are_hardly_worth_it_are_not_published(fails, run, paper, tmp_path):
    """As in a release: less than 5 % of the error of guessing the usual value is removed."""
    run("chain", "simulate", paper, "--steps", "40", "--seed", "1", "-o", tmp_path / "readings.csv")
    PlanFile(Plan(load_model(paper), "mean", 1, 0.5)).save(tmp_path / "plan.json")
    spec, keys = tmp_path / "stream.toml", ("--keys", tmp_path / "keys.json")
    message = fails("init", tmp_path / "readings.csv", "-o", spec, code=6)
    assert "less than 5 %" in message
    assert "stream.toml was written" in message
    for command in (("stream",), ("stream", "--check"), ("serve", *keys, "--port", "0"), ("serve", *keys, "--check")):
        message = fails(*command, "--spec", spec, code=6)
        assert "What would help: " in message
        assert message.endswith("or anyway = true")
    assert not (tmp_path / "ledger.db").exists()


def test_a_useful_first_specification(run, tmp_path):
    chain = CoupledChain(np.eye(12), [[0.9, 0.1], [0.1, 0.9]])
    save_model(chain, tmp_path / "chain.json")
    PlanFile(Plan(chain, "mean", 1, 1.0)).save(tmp_path / "plan.json")
    run("chain", "simulate", tmp_path / "chain.json", "--steps", "40", "--seed", "1", "-o", tmp_path / "readings.csv")
    output = run("init", tmp_path / "readings.csv", "-o", tmp_path / "stream.toml").stdout
    assert "csdp stream --spec" in output
    assert "not there yet" not in output
    done = run("stream", "--spec", tmp_path / "stream.toml", stdin=messages(tmp_path / "chain.json"))
    assert done.stdout


def messages(chain, steps=20):
    states = load_model(chain).simulate(steps, seed=2)
    lines = [{"time": t, "values": row.tolist()} for t, row in enumerate(states)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_from_a_file_to_a_stream(run, paper, started, tmp_path):
    done = run("stream", "--spec", started, stdin=messages(paper) + "garbage\n")
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    age = outputs[0]["ages"]
    assert [output["tick"] for output in outputs] == list(range(age, 18))
    assert "20 accepted, 1 bad" in done.stderr
    again = run("stream", "--spec", started, stdin=messages(paper))
    assert [json.loads(line) for line in again.stdout.splitlines()] == outputs[-1:]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.verify() == []
        assert ledger.summary("readings").committed == len(outputs)


def test_check(run, started, tmp_path):
    output = run("stream", "--spec", started, "--check").stdout
    assert "dataset readings, 2 sequences, Plan(mean" in output
    assert "limits budget 0.5" in output
    assert not (tmp_path / "ledger.db").exists()


def test_check_of_a_service(run, started, tmp_path):
    keys = ["--keys", str(tmp_path / "keys.json")]
    made = run("serve", "key", "new", "--role", "reader", "--dataset", "*", *keys)
    name = made.stdout.split("_")[1]
    assert f"key {name}, shown this once" in made.stderr
    assert name in run("serve", "key", "list", *keys).stdout
    output = run("serve", "--spec", started, "--check", *keys).stdout
    assert "dataset readings, 2 sequences, Plan(mean" in output
    assert "keys.json: 1 key" in output
    assert f"key {name} removed" in run("serve", "key", "remove", name, *keys).stderr
    assert name not in run("serve", "key", "list", *keys).stdout
    assert not (tmp_path / "ledger.db").exists()


def test_init_does_not_overwrite(run, fails, started, tmp_path):
    before = started.read_text()
    assert "exists already" in fails("init", tmp_path / "readings.csv", "-o", started)
    assert started.read_text() == before
    other = tmp_path / "other.toml"
    run("init", tmp_path / "readings.csv", "-o", other, "--dataset", "ward 7", "--plan", "other.json")
    assert 'dataset = "ward 7"' in other.read_text()


def test_init_says_how_to_get_a_plan(run, tmp_path):
    (tmp_path / "data.csv").write_text("time,a\n0,1\n1,0\n")
    output = run("init", tmp_path / "data.csv", "-o", tmp_path / "new.toml", "--plan", "later.json").stdout
    assert "later.json: not there yet" in output
    assert "csdp plan" in output


@pytest.mark.parametrize(
    ("content", "words"),
    [("dataset = 5", "stream.toml: dataset: 5 given"), ("[", "not TOML"), ("", "dataset: not given")],
)
def test_mistakes_are_one_line(fails, tmp_path, content, words):
    (tmp_path / "stream.toml").write_text(content)
    assert words in fails("stream", "--spec", tmp_path / "stream.toml")


def test_bad_data_for_init(fails, tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    assert "no column 'time'" in fails("init", tmp_path / "data.csv", "-o", tmp_path / "new.toml")
    assert not (tmp_path / "new.toml").exists()


def test_another_plan_for_the_same_dataset_is_refused(run, fails, paper, started):
    run("stream", "--spec", started, stdin=messages(paper, 5))
    started.write_text(started.read_text().replace("budget = 0.5", "budget = 0.4"))
    assert "published under other terms" in fails("stream", "--spec", started, stdin="")


def test_the_status_line_is_for_terminals(monkeypatch, capsys):
    status = Status("ward", 5, 3, 2, 0, 0, {"accepted": 3})
    with _status_line() as tell:
        assert tell is None
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with _status_line() as tell:
        tell(status, "connecting")
    output = capsys.readouterr()
    assert output.out == ""
    assert "ward: 2 published; messages: 3 accepted; connecting" in output.err


def test_drift_is_told_to_the_operator_only(run, paper, started, caplog):
    """Readings that alternate are not what the chain says; nothing is old enough to be published here."""
    PlanFile(Plan(load_model(paper), "mean", 500, 1.0)).save(started.parent / "plan.json")
    started.write_text(f"drift = true\n{started.read_text()}")
    lines = "".join(json.dumps({"time": t, "values": [t % 2, t % 2]}) + "\n" for t in range(300))
    done = run("stream", "--spec", started, stdin=lines)
    assert caplog.text.count("drift: the readings no longer follow the chain") == 1
    assert done.stdout == ""


def test_summary():
    status = Status("ward", 5, 3, 0, 2, 0, {"late": 1, "accepted": 3}, None, "no reading for too long")
    assert summarise_status(status) == (
        "ward: 0 published, 2 ticks without output (no reading for too long); messages: 3 accepted, 1 late"
    )
    assert summarise_status(replace(status, times="data", trouble="the wall clock is wrong")).endswith(
        "1 late; ages are what the timestamps say; the wall clock is wrong"
    )
