from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import csdp
from csdp.cli.plan_options import write_plan

CHAIN = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.2, 0.8]], names=["hall", "kitchen"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A plan that is worth publishing, and readings."""
    monkeypatch.chdir(tmp_path)
    found = csdp.find_plan(CHAIN, "mean", about="then", budget=0.5, max_mse=0.02, releases="continual")
    assert found.useful
    write_plan(Path("plan.json"), found.plan, about="then", estimator=None)
    csdp.Panel.from_states(CHAIN.simulate(40, seed=1), names=CHAIN.names).to_pandas().to_csv("home.csv", index=False)
    return tmp_path


def run_script(name):
    result = subprocess.run([sys.executable, name], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_notebook(name, upto=None):
    """Run the code of a notebook, cell by cell, in one namespace."""
    namespace = {}
    for cell in json.loads(Path(name).read_text(encoding="utf-8"))["cells"][:upto]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), namespace)
    return namespace


def test_script_and_notebook_give_the_same_release(run, folder):
    result = run("export", "plan.json", "--data", "home.csv", "--ledger", "l.db", "--budget", "0.5", "-o", "again.py")
    assert "wrote again.py" in result.stdout
    assert "wrote again.ipynb" in result.stdout
    assert sorted(os.listdir(folder)) == ["again.ipynb", "again.py", "home.csv", "plan.json"]  # nothing is published
    printed = run_script("again.py")
    assert "Everything published of home up to tick 39" in printed
    first = Path("home-released.csv").read_text(encoding="utf-8")
    found = run_notebook("again.ipynb")
    assert Path("home-released.csv").read_text(encoding="utf-8") == first
    assert found["publisher"].charged == 0
    assert min(release.usefulness for release in found["batch"]) >= 0.05
    assert Path("again-report/share.html").exists()
    with csdp.Ledger.open("l.db", read_only=True) as ledger:
        assert ledger.dataset("home").terms.limits.budget == 0.5


def test_limits_of_the_ledger_are_kept(run, folder):
    run("release", "home.csv", "--plan", "plan.json", "--dataset", "ward", "--ledger", "l.db", "--budget", "0.75",
        "--event-limit", "9", "-o", "first.csv")  # fmt: skip
    run("export", "plan.json", "--data", "home.csv", "--dataset", "ward", "--ledger", "l.db", "-o", "again.py")
    text = Path("again.py").read_text(encoding="utf-8")
    assert "budget=0.75," in text
    assert "event_limit=9.0," in text
    run_notebook("again.ipynb", upto=-2)  # all but the report
    assert Path("ward-released.csv").read_text(encoding="utf-8") == Path("first.csv").read_text(encoding="utf-8")


def test_notebooks_have_the_format_that_jupyter_reads(run, folder):
    run("export", "plan.json", "-o", "again.py")
    notebook = json.loads(Path("again.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        fields = {"cell_type", "id", "metadata", "source"}
        assert set(cell) == (fields if cell["cell_type"] == "markdown" else fields | {"execution_count", "outputs"})


def test_another_plan_in_the_file_is_noticed(run, folder):
    run("export", "plan.json", "--data", "home.csv", "-o", "again.py")
    write_plan(Path("plan.json"), csdp.Plan(CHAIN, "mean", ages=3, epsilon_c=1.0), about="then", estimator=None)
    result = subprocess.run([sys.executable, "again.py"], capture_output=True, text=True, check=False)
    assert "assert plan.digest ==" in result.stderr
    assert not Path("ledger.db").exists()


def test_names_with_quotes_stay_names(run, folder):
    Path("home.csv").rename('my "home".csv')
    run("export", "plan.json", "--data", 'my "home".csv', "--dataset", "it's", "-o", "again.py")
    found = run_notebook("again.ipynb", upto=3)
    assert (found["READINGS"], found["DATASET"]) == ('my "home".csv', "it's")


def test_what_is_refused(fails, folder):
    assert "a name that ends in .py" in fails("export", "plan.json", "-o", "again.ipynb")
    assert "no such file" in fails("export", "missing.json")
