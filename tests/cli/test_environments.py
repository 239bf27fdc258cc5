"""Chains with environments on the command line: from readings to a fit, a plan, releases, a stream and reports."""

from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import CoupledChain, EnvironmentChain
from csdp.auditing.replay import replay
from csdp.chain.files import load_model, save_model
from csdp.ledger import Ledger

SPEC = """
dataset = "live"
ledger = "ledger.db"
chain = "fitted.json"
anyway = true

[plan]
query = "mean"
age = 1
epsilon_c = 0.5

[clock]
step = 1
times = "data"

[source]
kind = "stdin"

[sink]
kind = "stdout"
"""
FITS = {
    "clock": ("--environment", "clock", "--cycle", "2"),
    "hidden": ("--environment", "hidden", "--environments", "2"),
    "both": ("--environment", "both", "--cycle", "2", "--environments", "2"),
}


def true_chain(**how) -> EnvironmentChain:
    laws = ((0.05, 0.5), (0.5, 0.2), (0.3, 0.3), (0.8, 0.05))
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
    plan = ("--chain", folder / "fitted.json", "--age", "1", "--epsilon-c", "0.5", "--query", "mean")
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
    ("kind", "reports"), [*((kind, False) for kind in FITS), pytest.param("both", True, marks=pytest.mark.slow)]
)
def test_from_readings_to_releases_a_stream_and_reports(run, tmp_path, kind, reports):
    states = true_chain(cycle=(0, 1), switching=[[0.9, 0.1], [0.2, 0.8]]).simulate(220, seed=1)
    past = write_readings(tmp_path / "past.csv", states[:200])
    fitting = ("--public", "--strategy", "categories", "--direction", "backward", "--ensemble", "1", *FITS[kind])
    told = run("fit", past, *fitting, "-o", tmp_path / "fitted.json").stdout
    assert "Gain over independent chains" in told
    chain = load_model(tmp_path / "fitted.json")
    assert chain.kind == ("clock" if kind == "clock" else "hidden")
    assert (chain.cycle is not None) == (kind != "hidden")
    run("plan", tmp_path / "fitted.json", "--budget", "1", "--max-age", "1", "--anyway", "-o", tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["epsilon_c"] > 0
    certificate = follow(run, tmp_path, states[200:], reports=reports)
    condition = "given the phase of the clock" if kind == "clock" else "given the environment of every tick"
    assert condition in json.dumps(certificate)


@pytest.mark.parametrize("how", [{"series": "weather"}, {"series": "weather", "cycle": (0, 1)}])
def test_a_public_series_is_published_without_its_numbers(run, fails, tmp_path, how):
    chain = true_chain(**how)
    save_model(chain, tmp_path / "fitted.json")
    rest = chain.simulate_given([0, 1] * 8, seed=1)
    certificate = follow(run, tmp_path, rest, reports=True)
    assert "given the environment of every tick" in json.dumps(certificate)
    refused = fails("plan", tmp_path / "fitted.json", "--budget", "1", "--max-age", "1")
    assert "'weather' has no law" in refused


def test_releases_and_streams_follow_a_public_series_that_is_told(run, fails, tmp_path):
    chain = true_chain(series="weather")
    save_model(chain, tmp_path / "fitted.json")
    path = [0, 1, 2, 3] * 2
    rest = chain.simulate_given(path, seed=1)
    data, ledger, series = write_readings(tmp_path / "rest.csv", rest), tmp_path / "ledger.db", tmp_path / "series.csv"
    series.write_text("time,environment\n" + "".join(f"{t},{e if t != 5 else ''}\n" for t, e in enumerate(path)))
    plan = ("--chain", tmp_path / "fitted.json", "--age", "1", "--epsilon-c", "0.5", "--query", "mean", "--anyway")
    where = ("--ledger", ledger, "-o", tmp_path / "out.csv")
    run("release", data, *plan, "--dataset", "batch", *where, "--series", series)
    certificate = json.loads((tmp_path / "out.csv.certificate.json").read_text())
    assert "recorded with charges" in json.dumps(certificate)
    (tmp_path / "stream.toml").write_text(SPEC)
    lines = [{"time": t, "values": {"a": int(row[0]), "b": int(row[1])}} for t, row in enumerate(rest)]
    lines[3]["values"]["weather"] = path[3]  # as one more sequence of a snapshot, or by itself
    rest_told = [{"time": t, "sequence": "weather", "value": e} for t, e in enumerate(path) if t not in (3, 5)]
    told = "".join(json.dumps(line) + "\n" for line in sorted([*rest_told, *lines], key=lambda line: line["time"]))
    run("stream", "--spec", tmp_path / "stream.toml", stdin=told)
    with Ledger.open(ledger) as book:
        batch, live = ([e.data()["charge"] for e in book.entries(d, kind="reserve")] for d in ("batch", "live"))
        assert replay(book).ok
    assert [charge["environments"] for charge in batch[1:3]] == [[[2, 2]], [[3, 3]]]
    assert [charge.get("environments") for charge in batch[4:6]] == [None, [[6, 2]]]
    assert [charge["present"] for charge in live] == [charge["present"] for charge in batch[: len(live)]]
    series.write_text("time,other\n0,1\n")
    assert "columns time" in fails("release", data, *plan, "--dataset", "new", *where, "--series", series)
