from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import CoupledChain, InfluenceGraph
from csdp.chain.files import load_model
from csdp.panel import Discretiser

TRUE = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]], names=["ward A", "ward B"])


def table(path, states, *, offset=20.0):
    rows = [f"{t},{','.join(map(str, row))}" for t, row in enumerate(states * 10.0 + offset)]
    path.write_text("\n".join(["time,ward A,ward B", *rows]) + "\n")
    return path


@pytest.fixture
def readings(tmp_path):
    return table(tmp_path / "readings.csv", TRUE.simulate(2000, seed=4))


def test_a_chain_its_discretiser_and_how_good_it_is(run, readings, tmp_path):
    chain = tmp_path / "c.json"
    result = run("fit", readings, "--public", "--states", "2", "-o", chain)
    fitted = load_model(chain)
    assert abs(fitted.kernel() - TRUE.kernel()).max() < 0.05
    assert fitted.names == TRUE.names
    assert isinstance(fitted.family, InfluenceGraph)
    assert f"The class that is certified: {fitted.fitted.assumes}" in " ".join(result.stdout.split())
    assert Discretiser.load(tmp_path / "c.discretiser.json").apply(readings).values.shape == (2, 2)
    assert "better than independent chains" in result.stdout
    assert "explains these data better than independent" in " ".join(result.stdout.split())
    assert result.stderr == ""


def test_private_readings_are_warned_about(run, readings, tmp_path):
    result = run("fit", readings, "--states", "2", "-o", tmp_path / "c.json")
    assert all(line.startswith("csdp: warning: ") for line in result.stderr.splitlines())
    assert "not declared public" in result.stderr
    assert "reveals something about private readings" in result.stdout


def test_paid_for(run, fails, readings, tmp_path):
    out = ["-o", str(tmp_path / "c.json")]
    result = run("fit", readings, "--epsilon", "1", "--strategy", "uniform", "--bounds", "0,50", "--states", "2", *out)
    assert result.stderr == ""
    assert "Paid: epsilon 1" in result.stdout
    assert "How well it fits is not reported" in result.stdout
    assert "independent" not in result.stdout
    assert json.loads((tmp_path / "c.json").read_text())["fit_cost"]["epsilon"] == 1
    assert "declare them with --edges" in fails("fit", readings, "--epsilon", "1", *out)
    assert "leave out --epsilon or --public" in fails("fit", readings, "--epsilon", "1", "--public", *out)


def test_a_discretiser_of_private_readings_is_not_published(run, fails, readings, tmp_path):
    """A plan would publish the edges and values that it learned from private readings."""
    learned, chain = tmp_path / "leaky.discretiser.json", tmp_path / "c.json"
    run("fit", readings, "--states", "2", "-o", tmp_path / "leaky.json")
    assert Discretiser.load(learned).source == "private"
    run("fit", readings, "--epsilon", "1", "--edges", "25", "--bounds", "0,50", "-o", chain)
    plan = ("plan", chain, "--discretiser", learned, "--age", "1", "--epsilon-c", "1", "-o", tmp_path / "plan.json")
    assert "discretiser: its edges and values come from private readings" in fails(*plan)


def test_words_found_in_private_readings_are_not_declared(run, fails, tmp_path):
    """Whether a rare word is among them is what one reading says."""
    path, spec, out = tmp_path / "words.csv", tmp_path / "input.toml", ("-o", tmp_path / "c.json")
    path.write_text("time,a\n" + "".join(f"{t},{'low' if t % 3 else 'high'}\n" for t in range(99)))
    run("open", path, "-o", spec)
    assert 'categories_from = "readings"' in spec.read_text()
    assert "declare them with --edges" in fails("fit", spec, "--epsilon", "1", *out)
    run("fit", spec, *out)
    assert Discretiser.load(tmp_path / "c.discretiser.json").source == "private"
    run("fit", spec, "--public", *out)
    assert Discretiser.load(tmp_path / "c.discretiser.json").source == "public"
    run("open", path, "--categories", "low,high", "-o", spec)
    run("fit", spec, "--epsilon", "1", *out)
    assert Discretiser.load(tmp_path / "c.discretiser.json").source == "declared"


def test_only_the_past(run, fails, readings, tmp_path):
    out = ["--public", "--states", "2", "-o", str(tmp_path / "c.json")]
    run("fit", readings, "--until", "500", *out)
    assert load_model(tmp_path / "c.json").fitted.observations == 2 * 499
    assert "1 tick given" in fails("fit", readings, "--until", "1", *out)


def test_words_are_states_and_stay_words(run, fails, tmp_path):
    """A release reads them again by the discretiser alone; a word that was not declared is refused."""
    words, path, chain = np.array(["low", "mid", "high"]), tmp_path / "words.csv", tmp_path / "c.json"
    moves = np.random.default_rng(1).integers(3, size=(300, 2)) * (np.random.default_rng(2).random((300, 2)) < 0.2)
    rows = words[np.cumsum(moves, axis=0) % 3]
    path.write_text("time,a,b\n" + "".join(f"{t},{a},{b}\n" for t, (a, b) in enumerate(rows)))
    data, states, plan = tmp_path / "in.toml", tmp_path / "c.discretiser.json", tmp_path / "plan.json"
    run("open", path, "--categories", "low,mid,high", "-o", data)
    run("fit", data, "-o", chain, "--epsilon", "5")  # declared: no private reading made the states
    known = Discretiser.load(states)
    assert (known.categories, known.source) == (("low", "mid", "high"), "declared")
    run("plan", chain, "--discretiser", states, "--age", "1", "--epsilon-c", "1", "--about", "then", "-o", plan)
    run("release", path, "--plan", plan, "--dataset", "d", "--ledger", tmp_path / "l.db", "--anyway",
        "--model-unchecked", "-o", tmp_path / "out.csv")  # fmt: skip
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 300
    assert "none of the categories" in fails("open", path, "--categories", "low,mid", "-o", data)
    cut = ("--public", "--strategy", "quantile", "--states", "2")
    run("fit", data, *cut, "-o", tmp_path / "cut.json")
    assert Discretiser.load(tmp_path / "cut.discretiser.json").categories is None


def test_bad_input_is_one_line(fails, readings, tmp_path):
    out = ["--public", "-o", str(tmp_path / "c.json")]
    assert "no such file" in fails("fit", tmp_path / "none.csv", *out)
    assert "edges" in fails("fit", readings, "--edges", "a,b", *out)
    assert not (tmp_path / "c.json").exists()
