"""Chains with environments on the command line: from readings to a fit, a plan, releases, a stream and reports."""

from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import CoupledChain, EnvironmentChain
from csdp.chain.files import load_model

SPEC = """
dataset = "live"
ledger = "ledger.db"
plan = "plan.json"
anyway = true

[clock]
step = 1
times = "data"

[source]
kind = "stdin"

[sink]
kind = "stdout"
"""
FITS = {
    "clock": ("--environment", "clock", "--environments", "2"),
    "hidden": ("--environment", "hidden", "--environments", "2"),
}


def true_chain(**how) -> EnvironmentChain:
    laws = ((0.05, 0.5), (0.5, 0.2))
    members = [
        CoupledChain(np.eye(2), [[1 - p, p], [q, 1 - q]], names=["a", "b"], direction="backward") for p, q in laws
    ]
    return EnvironmentChain(members, **how)


def write_readings(path, states, first=0):
    path.write_text("time,a,b\n" + "".join(f"{first + t},{a},{b}\n" for t, (a, b) in enumerate(states)))
    return path


def follow(run, folder, rest, *, reports):
    """Release, stream, replay and report under fitted.json; the certificate of the release."""
    run("leakage", folder / "fitted.json", "--age", "1", "--epsilon-c", "0.5")
    plan = ("--plan", folder / "plan.json")
    data, ledger = write_readings(folder / "rest.csv", rest, 200), folder / "ledger.db"
    run("release", data, *plan, "--dataset", "batch", "--ledger", ledger, "--anyway", "-o", folder / "out.csv")
    (folder / "stream.toml").write_text(SPEC)
    lines = "".join(json.dumps({"time": t, "values": row.tolist()}) + "\n" for t, row in enumerate(rest))
    outputs = run("stream", "--spec", folder / "stream.toml", stdin=lines).stdout.splitlines()
    assert [json.loads(line)["tick"] for line in outputs] == list(range(1, len(rest) - 1))
    assert json.loads(run("audit", "--ledger", ledger, "--format", "json").stdout)["ok"]
    for dataset in ("batch", "live") if reports else ():
        run("report", ledger, "--dataset", dataset, "-o", folder / dataset)
        assert "given the" in (folder / dataset / "share.html").read_text()
    return json.loads((folder / "out.csv.certificate.json").read_text())


@pytest.mark.parametrize(
    ("kind", "reports"), [*((kind, False) for kind in FITS), pytest.param("hidden", True, marks=pytest.mark.slow)]
)
def test_from_readings_to_releases_a_stream_and_reports(run, tmp_path, kind, reports):
    how = {"cycle": (0, 1)} if kind == "clock" else {"switching": [[0.9, 0.1], [0.2, 0.8]]}
    states = true_chain(**how).simulate(220, seed=1)
    past = write_readings(tmp_path / "past.csv", states[:200])
    fitting = ("--public", "--strategy", "categories", "--direction", "backward", *FITS[kind])
    told = run("fit", past, *fitting, "-o", tmp_path / "fitted.json").stdout
    assert "Gain over independent chains" in told
    chain = load_model(tmp_path / "fitted.json")
    assert chain.kind == ("clock" if kind == "clock" else "hidden")
    assert (chain.cycle is not None) == (kind != "hidden")
    run("plan", tmp_path / "fitted.json", "--age", "1", "--epsilon-c", "0.5", "-o", tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["epsilon_c"] > 0
    certificate = follow(run, tmp_path, states[200:], reports=reports)
    condition = "given the phase of the clock" if kind == "clock" else "given the environment of every tick"
    assert condition in json.dumps(certificate)
