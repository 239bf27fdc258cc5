from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from csdp import CoupledChain, Plan
from csdp.chain.files import load_model
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.panel import Discretiser
from csdp.report.suggestion import suggest

CHAIN = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


@pytest.fixture
def readings(tmp_path):
    states = CHAIN.simulate(300, seed=1)
    noise = np.random.default_rng(0).normal(0, 2, states.shape)
    rows = [f"{t},{a:.2f},{b:.2f}" for t, (a, b) in enumerate(20 + 10 * states + noise)]
    path = tmp_path / "readings.csv"
    path.write_text("\n".join(["time,ward A,ward B", *rows]) + "\n")
    return path


@pytest.mark.slow
def test_from_a_file_to_a_release_and_a_report(run, readings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("suggest", readings.name, "--public", "-o", "start")
    for what in ("states", "chain", "fit", "query", "budget", "plan", "event limit"):
        assert f"│ {what} " in result.stdout
    folder = tmp_path / "start"
    plan = Plan.from_json((folder / "plan.json").read_text())
    assert plan.chain.digest == load_model(folder / "chain.json").family.digest
    assert Discretiser.load(folder / "discretiser.json").state_count == plan.model.states
    for line in (folder / "next.txt").read_text().splitlines():  # the commands run as they stand
        run(*shlex.split(line)[1:])
    share = (tmp_path / "report" / "share.html").read_text()
    assert share.count("<svg") == 5
    assert "true value" not in share
    assert not (tmp_path / "report" / "index.html").exists()
    run("report", "ledger.db", "--dataset", "NAME", "--data", readings.name, "--discretiser",
        "start/discretiser.json", "-o", "private")  # fmt: skip
    private = (tmp_path / "private" / "index.html").read_text()
    assert private.index("Contains private data") < private.index("<h1>")
    assert "true value" in private
    assert (tmp_path / "private" / "share.html").read_bytes() == (tmp_path / "report" / "share.html").read_bytes()
    result = json.loads(run("report", "ledger.db", "--dataset", "NAME", "-o", "report", "--format", "json").stdout)
    certificate = json.loads((tmp_path / "report" / "certificate.json").read_text())
    assert result["certificate"] == certificate
    assert {"path": "report/share.html", "private": False} in result["files"]
    assert certificate["guarantees"]["present"]["epsilon"] <= 1


def test_many_sequences_are_paired(tmp_path):
    pair = CHAIN.simulate(400, seed=2)
    other = CHAIN.simulate(400, seed=3)
    third = CHAIN.simulate(400, seed=4)
    suggestion = suggest(np.hstack([pair, other, third]).astype(float), public=True, budget=2.0)
    assert [len(part) for part in suggestion.chain.components()] == [2, 2, 2]
    assert suggestion.ceiling <= 2.0


def test_private_readings_are_warned_about(run, tmp_path, paper):
    with pytest.warns(PrivacyLeakWarning, match="derived from the readings"):
        suggest(CHAIN.simulate(100, seed=1).astype(float))
    readings = tmp_path / "r.csv"
    run("chain", "simulate", paper, "--steps", "100", "--seed", "1", "-o", readings)
    result = run("suggest", readings)
    assert result.stderr.startswith("csdp: warning: ")


def test_the_same_as_json(run, readings, tmp_path):
    content = json.loads(run("suggest", readings, "--public", "-o", tmp_path / "start", "--format", "json").stdout)
    assert {"states", "chain", "query", "budget", "plan about now", "estimate"} <= {
        one["what"] for one in content["reasons"]
    }
    assert str(tmp_path / "start" / "plan.json") in content["files"]
    assert content["next"] == (tmp_path / "start" / "next.txt").read_text().splitlines()


def test_too_little_to_say(fails, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("time,a\n0,1\n1,2\n")
    assert "at least 50 are needed" in fails("suggest", path, "--public")
    with pytest.raises(InputError, match="at least 50"):
        suggest(np.zeros((10, 1)), public=True)


def test_report_of_nothing(run, fails, tmp_path, paper):
    readings = tmp_path / "r.csv"
    run("chain", "simulate", paper, "--steps", "20", "--seed", "1", "-o", readings)
    ledger = tmp_path / "l.db"
    run("release", readings, "--chain", paper, "--age", "2", "--epsilon-c", "1", "--dataset", "d", "--ledger", ledger,
        "--about", "then", "-o", tmp_path / "o.csv")  # fmt: skip
    out = ["-o", str(tmp_path / "rep")]
    assert "no dataset 'e'" in fails("report", ledger, "--dataset", "e", *out)
    other = tmp_path / "later.csv"
    other.write_text("time,x1,x2\n900,0,1\n901,1,1\n")
    assert "none of its ticks was published" in fails("report", ledger, "--dataset", "d", "--data", other, *out)
    run("report", ledger, "--dataset", "d", "--data", readings, *out)
