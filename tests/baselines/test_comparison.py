"""The comparison: equal terms really are equal, and the table shows where our plan is beaten and where it is not."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

import csdp
from csdp.errors import InputError
from csdp.report.comparison_figures import comparison_figure
from csdp.report.figures import save_figure
from csdp.report.files import json_text

PAIR = [[0.75, 0.25], [0.25, 0.75]]
PAPER = csdp.CoupledChain(PAIR, [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain(PAIR, [[0.99, 0.01], [0.3, 0.7]])
SLOW = csdp.CoupledChain([[1.0]], [[0.95, 0.05], [0.05, 0.95]])
T3 = csdp.CoupledChain([[0.6, 0.4], [0.3, 0.7]], [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
SETTINGS = {"max_age": 15, "length": 12}


@pytest.fixture(scope="module")
def tables():
    cases = {
        "paper": (PAPER, {"budget": 0.2}),
        "skewed": (SKEWED, {"budget": 0.5}),
        "three states": (T3, {"budget": 0.6}),
        "slow": (SLOW, {"budget": 0.5}),
        "paper, by error": (PAPER, {"max_mse": 0.12}),
        "skewed, by error": (SKEWED, {"max_mse": 0.0185}),
    }
    tables = {}
    for name, (chain, target) in cases.items():
        tables[name] = (chain, csdp.compare(chain, csdp.Mean(), **target, **SETTINGS))
    return tables


NAMES = [
    "paper",
    "skewed",
    "three states",
    "slow",
    "paper, by error",
    "skewed, by error",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_baseline_has_a_row_and_no_data_too(tables, name):
    _, table = tables[name]
    rows = {row.name for row in table.rows}
    assert set(csdp.baselines.names()) | {"ours", "no-data"} <= rows
    for row in table.rows:
        assert row.guarantee
        assert row.label
        if row.verdict == "not comparable":
            assert row.leakage.value is None or row.mse is None
            assert "not computed" in row.leakage.how
    for stream in ("w-event-bd", "w-event-ba", "pegasus"):
        assert table[stream].mse is None or table[stream].leakage.at_most > 0
    assert table["no-data"].leakage.value == 0.0
    assert table["no-data"].mse == pytest.approx(table.no_data)


@pytest.mark.parametrize("name", NAMES)
def test_the_terms_are_equal(tables, name):
    """Leakage and error of every Laplace release, asked again from its scale alone."""
    chain, table = tables[name]
    width = csdp.Mean().sensitivity(1, chain.value_table)
    for row in table.rows:
        if row.age is None or row.leakage.value is None or row.scale is None:
            continue
        level = width / row.scale
        again = csdp.leakage(chain, csdp.Mean(), ages=row.age, epsilon_c=level, bound="exact")
        assert row.leakage.value == pytest.approx(again.epsilon, rel=1e-6)
        error = csdp.mse(chain, csdp.Mean(), ages=row.age, epsilon_c=level, estimate="linear")
        assert row.mse == pytest.approx(error.mse, rel=1e-6)
        assert row.mse_raw >= row.mse
        if table.target == "budget":
            assert again.epsilon <= table.value * (1 + 1e-9)
            assert again.epsilon >= table.value * (1 - 1e-6) or level == pytest.approx(10.0)  # noise is not wasted
        else:
            assert error.mse <= table.value * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_our_plan_is_at_most_any_baseline(tables, name):
    """At equal exact leakage of the present our error is the least; at equal error our leakage is; ties count."""
    _, table = tables[name]
    ours = table["ours"]
    assert not table.better
    assert "No method" in table.headline
    for row in table.rows:
        if row.leakage.value is None or row.mse is None:
            continue
        if table.target == "budget":
            assert ours.mse <= row.mse * (1 + 1e-6)
        else:
            assert ours.leakage.value <= row.leakage.value * (1 + 1e-6) or row.name == "no-data"


def test_it_shows_where_our_plan_is_not_the_best():
    """A loose error target: publishing nothing meets it and leaks nothing."""
    table = csdp.compare(PAPER, csdp.Mean(), max_mse=0.6, max_age=3, length=5)
    assert [row.name for row in table.better] == ["no-data"]
    assert "NOT the best" in table.headline
    assert table["no-data"].verdict == "BETTER"
    assert "publishing nothing" in table["ours"].note


def test_it_shows_who_keeps_a_record_better_over_its_life(tables):
    """Aging lets records out later with little noise: over a lifetime plain noise on fresh data tells less."""
    _, table = tables["slow"]
    assert table["ours"].age > 0
    assert table["laplace"].verdict == "worse"
    assert table["laplace"].lifetime.value < table["ours"].lifetime.value
    assert "Laplace" in table.lifetime_headline
    assert table[f"laplace@{table['ours'].age}"].verdict == "same release"
    assert table["adp"].age == table["ours"].age


def test_nominal_statements_beside_the_truth(tables):
    _, table = tables["skewed"]
    assert table["laplace"].nominal == pytest.approx(0.5)
    assert table["group"].nominal == pytest.approx(1.0)
    assert table["bayesian"].nominal >= table["ddp-exact"].nominal * (1 - 1e-9)
    assert table["markov-quilt-approx"].nominal >= table["markov-quilt"].nominal


def test_less_error_at_an_unknown_leakage_is_named_with_its_bound(tables):
    _, table = tables["skewed, by error"]
    row = table["pegasus"]
    assert row in table.unknown
    assert row.mse < table["ours"].mse
    assert "is not known: " in table.headline
    assert f"{row.method} (at most " in table.headline
    text = io.StringIO()
    Console(file=text, width=160).print(table)
    assert "at most" in text.getvalue()


def test_records_text_and_figure(tables, tmp_path):
    _, table = tables["paper"]
    content = json.loads(json_text(table.to_dict()))
    assert content["target"] == "budget"
    assert len(content["rows"]) == len(table.rows)
    with pytest.raises(KeyError, match="no such row"):
        table["nobody"]
    for name in ("paper", "slow", "paper, by error"):
        figure = comparison_figure(tables[name][1])
        path = tmp_path / "figure.svg"
        save_figure(figure, path)
        text = path.read_text()
        assert "our plan (FRAN" in text
        assert "not computed" in text or tables[name][1].target == "budget"
        assert "Wasserstein" in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "neither of max_mse and budget given"),
        ({"budget": 1.0, "max_mse": 1.0}, "both of max_mse and budget given"),
        ({"budget": -1.0}, "budget: -1.0 given"),
        ({"max_mse": float("nan")}, "max_mse: nan given"),
        ({"budget": 1.0, "max_age": -1}, "max_age: -1 given"),
        ({"budget": 1.0, "length": 0}, "length: 0 given"),
        ({"budget": 1.0, "event_limit": 0}, "event_limit: 0 given"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(InputError, match=message):
        csdp.compare(PAPER, csdp.Mean(), **given)


def test_chains_that_some_baselines_refuse():
    """Deterministic, strongly tied, several outputs: rows say why, and the others stay."""
    swap = csdp.CoupledChain([[1.0]], [[0.0, 1.0], [1.0, 0.0]])
    table = csdp.compare(swap, csdp.Mean(), budget=0.5, max_age=2, length=4)
    assert table["ours"].leakage.value <= 0.5
    assert table["markov-quilt"].nominal == pytest.approx(2.0)
    tight = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[0.999, 0.001], [0.001, 0.999]])
    table = csdp.compare(tight, csdp.Histogram(), budget=0.5, max_age=1, length=4)
    for name, why in (("inferential", "norm"), ("wasserstein", "several outputs")):
        assert table[name].verdict == "not comparable"
        assert why in table[name].note
    assert table["laplace"].verdict in {"same release", "equal", "worse"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_our_plan_on_random_chains(seed):
    """Skewed rows, one to three sequences: whoever can be compared does not beat our plan, or the table says so."""
    rng = np.random.default_rng(seed)
    s, m = [(1, 2), (2, 2), (1, 3), (3, 2)][seed % 4]
    own = rng.uniform(0.4, 1.0)
    coupling = np.where(np.eye(s) > 0, own, (1 - own) / max(s - 1, 1)) if s > 1 else np.eye(1)
    chain = csdp.CoupledChain(coupling, 0.99 * rng.dirichlet(np.full(m, 0.5), m) + 0.01 / m)
    table = csdp.compare(chain, csdp.Mean(), budget=float(rng.choice([0.1, 0.5, 2.0])), max_age=12, length=6)
    known = [row for row in table.rows if row.mse is not None and row.leakage.value is not None]
    beaten = {row.name for row in known if row.mse < table["ours"].mse * (1 - 1e-6)}
    assert beaten == {row.name for row in table.better}
    assert beaten <= {"fourier", "wavelet", "tree", "toeplitz"}  # they read several ticks at once


def test_progress_is_told():
    progress = []
    csdp.compare(PAPER, csdp.Mean(), budget=0.2, max_age=0, length=3, progress=lambda *step: progress.append(step))
    assert progress[0][:2] == ("comparing", 0)
    assert len(progress) == progress[0][2]


@pytest.mark.slow
def test_an_unequal_chain_with_values():
    chain = csdp.CoupledChain(np.eye(2), [[0.9, 0.1], [0.4, 0.6]], values=[[0, 4], [1, 2]])
    table = csdp.compare(chain, csdp.Sum(), budget=0.7, max_age=3, length=4)
    assert not table.better


def test_all_methods_get_the_posterior_mean():
    """Where it is known it is no worse than the linear estimate, and equal releases have equal ones."""
    table = csdp.compare(PAPER, csdp.Mean(), budget=1.0, max_age=0, length=3)
    ours = table["ours"].mse_posterior
    assert ours is not None
    assert ours <= table["ours"].mse * (1 + 1e-12)
    assert table["laplace"].mse_posterior == pytest.approx(ours, rel=1e-9)
    assert table["tree"].mse_posterior is None
    assert "mse_posterior" in table.records()[0]
