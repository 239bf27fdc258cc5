"""`csdp compare`: one table, one figure, one line for what is wrong."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def asked(paper):
    return ["compare", paper, "--max-age", "2", "--length", "6"]


def test_a_table_with_labels_and_the_no_data_line(run, asked, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = run(*asked, "--budget", "0.2", "--query", "mean").stdout
    for text in (
        "our plan (FRAN",
        "publish nothing",
        "Markov Quilt",
        "not",
        "computed",
        "No method that can be compared",
    ):
        assert text in output
    assert "What each of them guarantees:" in output
    assert "epsilon-DP of one record" in output
    assert "lifetime" in output
    table = output.split("What each")[0]
    table = table.split("No method")[0]  # the sentences below are left to the terminal to wrap
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "against" in table
    assert "same" in table


def test_json_and_figure(run, asked, tmp_path):
    figure = tmp_path / "compare.svg"
    content = json.loads(run(*asked, "--max-mse", "0.12", "--format", "json", "--figure", figure).stdout)
    assert content["target"] == "max_mse"
    rows = {row["name"]: row for row in content["rows"]}
    assert rows["ours"]["verdict"] == "ours"
    assert rows["pegasus"]["leakage"]["value"] is None
    assert rows["no-data"]["verdict"] == "misses target"
    assert "our plan" in figure.read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "neither of --max-mse and budget given"),
        (["--budget", "1", "--max-mse", "1"], "both of --max-mse and budget given"),
        (["--budget", "0"], "budget: 0.0 given"),
        (["--budget", "1", "--query", "median"], "query: 'median' given"),
        (["--budget", "1", "--figure", "out.txt"], "ends in .svg, .png or .pdf"),
        (["--budget", "1", "--length", "0"], "length: 0 given"),
        (["--max-mse", "1e-6"], "--max-mse 1e-06 cannot be met"),
    ],
)
def test_bad_input(fails, asked, args, message):
    assert message in fails(*asked, *args)


def test_public_readings_are_fitted(run, fails, paper, tmp_path):
    data = tmp_path / "readings.csv"
    run("chain", "simulate", paper, "--steps", "400", "--seed", "1", "-o", data)
    asked = ["compare", data, "--budget", "0.3", "--max-age", "1", "--length", "3"]
    assert "--public" in fails(*asked)
    content = json.loads(run(*asked, "--public", "--format", "json").stdout)
    assert content["rows"][0]["leakage"]["value"] <= 0.3


def test_no_such_file(fails):
    assert "nowhere.json" in fails("compare", "nowhere.json", "--budget", "1")


def test_releases_without_end(run, paper):
    asked = ("compare", paper, "--max-age", "1", "--budget", "0.5", "--releases", "continual")
    words = run(*asked).stdout
    assert "Binary tree" in words
    assert "On running totals" in words
    content = json.loads(run(*asked, "--format", "json").stdout)
    assert content["releases"] == "continual"
    assert content["rows"][0]["leakage"]["value"] <= 0.5
    for wrong in (("--max-mse", "0.1"), ("--figure", "x.svg")):
        assert run(*asked, *wrong, code=2).stderr
