"""`--protect` and `--by-distance`: on the command line, in stream files, in audits and on certificates."""

import json

import pytest
from typer.testing import CliRunner

import csdp
from csdp.cli.app import app
from csdp.errors import InputError

SLOW = [[0.8, 0.19, 0.01], [0.1, 0.8, 0.1], [0.01, 0.19, 0.8]]


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(csdp.CoupledChain([[1.0]], SLOW, direction="backward", names=["a"]).to_json())
    return path


def run(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_leakage_by_distance_and_of_one_distance(chain):
    table = json.loads(run("leakage", chain, "--age", 1, "--epsilon-c", 1, "--by-distance", "--format", "json"))
    near, far = (row["epsilon"] for row in table["by_distance"])
    assert near < far
    asked = json.loads(run("leakage", chain, "--age", 1, "--epsilon-c", 1, "--protect", 1, "--format", "json"))
    assert asked["protect"] == 1
    assert asked["bounds"]["exact"]["epsilon"] == pytest.approx(near, rel=1e-9)
    assert "at most 1 apart" in asked["protects"]


def test_a_release_is_planned_charged_and_certified_by_it(chain, tmp_path):
    plan, data, out = tmp_path / "plan.json", tmp_path / "data.csv", tmp_path / "out.csv"
    run("plan", chain, "--budget", 2, "--continual", "--max-age", 1, "--protect", 1, "-o", plan)
    assert json.loads(plan.read_text())["protect"] == 1
    run("chain", "simulate", chain, "--steps", 40, "--seed", 1, "-o", data)
    common = ("--dataset", "a", "--ledger", tmp_path / "ledger.db", "-o", out, "--budget", 2, "--anyway")
    run("release", data, "--plan", plan, *common)
    certificate = json.loads((tmp_path / "out.csv.certificate.json").read_text())
    assert certificate["plan"]["protect"] == 1
    assert "at most 1 apart" in certificate["sentence"]
    assert "at most 1 apart" in certificate["guarantees"]["present"]["protects"]
    refused = CliRunner().invoke(app, ["release", str(data), "--plan", str(plan), "--protect", "2", *map(str, common)])
    assert refused.exit_code == 2
    with csdp.Ledger.open(tmp_path / "ledger.db") as ledger:
        assert csdp.replay(ledger).ok


def test_an_audit_attacks_protected_pairs_only(chain):
    model = csdp.CoupledChain.from_json(chain.read_text())
    plan = csdp.Plan(model, csdp.Mean(), 1, 4.0, protect=1)
    found = csdp.audit(plan, samples=4000, seed=1)
    assert abs(found.pair.present - found.pair.alternative) <= 1
    with pytest.raises(InputError, match="does not protect"):
        csdp.audit(plan, samples=4000, seed=1, pair=([0], [2]))
