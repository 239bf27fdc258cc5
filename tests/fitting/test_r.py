"""R's markovchain on its own example: the same counts, the same degenerate couplings."""

from __future__ import annotations

import io
import shutil
import subprocess

import numpy as np
import pytest

import csdp
from csdp.errors import CsdpWarning
from csdp.fitting.sample import read_sample
from csdp.fitting.scores import chain_scores

SCRIPT = """
if (!requireNamespace("markovchain", quietly = TRUE)) quit(status = 3)
suppressPackageStartupMessages(library(markovchain))
data(sales)
write.table(matrix(as.integer(sales), nrow(sales)), row.names = FALSE, col.names = FALSE)
cat("--\\n")
found <- suppressMessages(fitHighOrderMultivarMC(sales, order = 1, Norm = 2))
cat(found@Lambda, sep = "\\n")
cat("--\\n")
cat(as.vector(found@P), sep = "\\n")
"""


@pytest.fixture(scope="module")
def sales():
    if shutil.which("Rscript") is None:
        pytest.skip("R with markovchain is not installed (apt-get install r-cran-markovchain)")
    done = subprocess.run(["Rscript", "-e", SCRIPT], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == 3:
        pytest.skip("R with markovchain is not installed (apt-get install r-cran-markovchain)")
    assert done.returncode == 0, done.stderr
    # library() greets on stdout in some versions; the table starts at the first line of numbers.
    greeting, couplings, matrices = done.stdout.split("--\n")
    lines = [line for line in greeting.splitlines() if line[:1].isdigit()]
    table = np.loadtxt(io.StringIO("\n".join(lines)), dtype=int) - 1
    weights = np.array(couplings.split(), dtype=float).reshape(5, 5)
    # R writes to x from, in columns, for pairs (target, source) in row-major order.
    moves = np.array(matrices.split(), dtype=float).reshape(5, 5, 6, 6)
    return table, weights, moves


def unsmoothed(table):
    with pytest.warns(CsdpWarning, match="zero probabilities"):
        return csdp.fit(table, method="ching", smoothing=0.0, neighbours="all", public=True, ensemble=0)


def test_the_same_transitions(sales):
    table, _, moves = sales
    found = unsmoothed(table)
    assert table.shape == (269, 5)
    kinds, which = found.transition_table
    for j, k, kind in zip(found.edge_targets, found.edge_sources, which, strict=True):
        np.testing.assert_allclose(kinds[kind], moves[j, k], atol=1e-6)


def test_the_same_degenerate_couplings(sales):
    """One source gets everything, whoever really drives the target; where two do equally well R may take either."""
    table, weights, moves = sales
    ours = unsmoothed(table).coupling_matrix().toarray()
    laws = np.array([np.bincount(column, minlength=6) for column in table.T]) / len(table)

    def misfit(j, row):
        return np.abs(laws[j] - sum(row[k] * laws[k] @ moves[j, k] for k in range(5))).max()

    for j in range(5):
        assert ours[j].max() > 0.999
        assert weights[j].max() > 0.99
        assert misfit(j, ours[j]) == pytest.approx(misfit(j, weights[j]), abs=1e-5)  # a tie, at worst
        if ours[j].argmax() == weights[j].argmax():
            np.testing.assert_allclose(ours[j], weights[j], atol=0.01)
    assert sum(ours[j].argmax() == weights[j].argmax() for j in range(5)) >= 4


def test_em_does_better_on_the_same_data(sales):
    table = sales[0]
    scores = {}
    for method in ("em", "ching"):
        chain = csdp.fit(table, method=method, public=True, ensemble=0, states=6)
        sample = read_sample(table, states=6)
        scores[method] = chain_scores(chain, sample).sum() / (sample.transitions * sample.sequences)
    assert scores["em"] > scores["ching"] + 0.02
