"""`csdp audit` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from csdp import Mean
from csdp.cli import app
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Publisher

from audit.mechanisms import SKEWED  # isort: skip
from audit.test_replay import plan, replay_written, understating_admission  # isort: skip


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("skewed.json").write_text(Plan(SKEWED, Mean(), 1, 1.0).to_json())


def run(*args, code=0):
    result = CliRunner().invoke(app, ["audit", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


DECLARED = ("skewed.json", "--seed", "1", "--samples", "200000")


def test_ours_passes_and_the_printed_value_does_not():
    output = run(*DECLARED).stdout
    assert output.startswith("no violation found at confidence 99.9 %: leaks at least 0.7")
    assert "Claim: exact leakage of one release as declared" in output
    assert "Secret pair: x1 = 1 against 0" in output
    violated = run(*DECLARED, "--claim", "0.69", code=4)
    assert violated.stdout.startswith("violated: leaks at least 0.7")


def test_several_releases_and_a_plan():
    Path("plan.json").write_text(plan().to_json())
    output = run("plan.json", "--releases", "2", "--samples", "20000", "--seed", "1").stdout
    assert "claimed 0.269501" in output
    assert "leakage of 2 releases as declared" in output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give PLAN.json, as `csdp plan` writes it, or --ledger"),
        (["none.json"], "none.json: no such file"),
        ([*DECLARED, "--dataset", "d"], "leave out --dataset"),
        (["--ledger", "none.db"], "none.db"),
        (["--ledger", "none.db", "--claim", "1"], "leave out --claim"),
        ([*DECLARED, "--samples", "3"], "samples: 3 given"),
    ],
)
def test_bad_input_is_one_line(args, message):
    result = run(*args, code=2)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


def test_a_ledger_is_replayed(where):
    chosen = Plan(SKEWED, Mean(), 1, 0.5)
    Path("plan.json").write_text(chosen.to_json())
    with Ledger.open(where) as ledger:
        Publisher(chosen, dataset="ward-7", ledger=ledger).publish(Panel.from_states(np.zeros((8, 1), dtype=int)))
        head = ledger.summary("ward-7").head_hash
    output = run("plan.json", "--ledger", where, "--dataset", "ward-7", "--head", head).stdout
    assert output.splitlines() == [
        "7 charges of 1 dataset replayed: no leakage is recorded too low",
        "ward-7: 7 charges",
    ]
    content = json.loads(run("--ledger", where, "--format", "json").stdout)
    assert content["ok"] is True
    wrong = run("--ledger", where, "--dataset", "ward-7", "--head", "0" * 64, code=4)
    assert "the noted head is not in the log" in wrong.stderr


def test_a_lying_ledger_is_found_out(where):
    replay_written(where, understating_admission(plan(), factor=0.5))
    result = run("--ledger", where, code=4)
    assert "15 findings" in result.stdout
    assert "csdp: dataset 'ward-7': entry 2: tick 1: the leakage of the present is recorded as 0.098" in result.stderr
    assert json.loads(run("skewed.json", "--ledger", where, "--format", "json", code=4).stdout)["ok"] is False
