"""Fitting: against R's markovchain (fitHighOrderMultivarMC) on a size it can finish, and growth with s and T.

Hidden environments: iterations of EM against the same in numpy, and a whole fit.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.record import Record, median_seconds, ratio_record, scaled_size
from csdp import CoupledChain, EnvironmentChain, datasets, fit
from csdp.fitting import environment as em
from csdp.fitting.sample import complete_graph, graph_of_pairs, pair_counts, read_sample

_PEER = "R's markovchain, fitHighOrderMultivarMC"
_SCRIPT = """
suppressPackageStartupMessages(library(markovchain))
states <- as.matrix(read.csv(commandArgs(trailingOnly = TRUE)[1], header = FALSE, colClasses = "character"))
begun <- proc.time()[["elapsed"]]
found <- suppressMessages(fitHighOrderMultivarMC(states, order = 1, Norm = 2))
cat(proc.time()[["elapsed"]] - begun)
"""


def states_of(sequences: int, states: int, ticks: int, *, seed: int = 0) -> np.ndarray[Any, Any]:
    """Readings of a ring: each follows itself and its left neighbour."""
    random = np.random.default_rng(seed)
    coupling = {(j, j): 0.7 for j in range(sequences)} | {(j, (j - 1) % sequences): 0.3 for j in range(sequences)}
    if sequences == 1:
        coupling = {(0, 0): 1.0}
    moves = random.dirichlet(np.ones(states), (len(coupling), states))
    chain = CoupledChain(coupling, dict(zip(sorted(coupling), moves, strict=True)))
    return chain.simulate(ticks, seed=seed)


def r_seconds(table: np.ndarray[Any, Any]) -> float | None:
    """Seconds that R's function takes, without starting R; None where R is missing."""
    if shutil.which("Rscript") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        script, data = Path(folder) / "fit.R", Path(folder) / "states.csv"
        script.write_text(_SCRIPT)
        np.savetxt(data, table, fmt="%d", delimiter=",")
        done = subprocess.run(["Rscript", str(script), str(data)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def against_r(sequences: int, states: int, ticks: int) -> list[Record]:
    """The same readings: R's estimator against EM."""
    table = states_of(sequences, states, ticks)
    theirs = r_seconds(table)
    case = f"fit by em, {sequences} sequences, {states} states, {ticks:,} ticks"
    fit(table, public=True)  # compiled code warm
    ours = median_seconds(lambda: fit(table, public=True), 5)
    if theirs is None:
        return [{"case": case, "against": _PEER, "not_available": "R with markovchain is not installed"}]
    return [ratio_record(case, _PEER, ours, theirs)]


def timed(sequences: int, states: int, ticks: int, *, rounds: int = 3) -> Record:
    """Seconds of all pair counts, and of EM with 8 neighbours, screening included."""
    table = states_of(sequences, states, ticks)
    sample = read_sample(table, states=states)
    record: Record = {
        "case": f"fit of {sequences:,} sequences",
        "states": states,
        "sequences": sequences,
        "ticks": ticks,
    }
    if sequences <= 1000:
        graph = complete_graph(sequences)
        record["counts_s"] = median_seconds(lambda: pair_counts(sample, graph), rounds)
    start = time.perf_counter()
    chain = fit(table, states=states, neighbours=8, public=True)
    record["em_s"] = time.perf_counter() - start
    assert chain.fitted is not None
    record["iterations"], record["converged"] = chain.fitted.iterations, chain.fitted.converged
    return record


def driven_states(sequences: int, ticks: int, count: int = 4) -> np.ndarray[Any, Any]:
    """Readings of own chains of two states under a hidden environment that moves all of them."""
    ups = np.linspace(0.1, 0.7, count)
    members = [CoupledChain({(j, j): 1.0 for j in range(sequences)}, [[1 - p, p], [0.9 - p, 0.1 + p]]) for p in ups]
    switching = np.full((count, count), 0.1 / count) + 0.9 * np.eye(count)
    return EnvironmentChain(members, switching=switching).simulate(ticks, seed=0)


def numpy_iterations(table: np.ndarray[Any, Any], weights: np.ndarray[Any, Any], rounds: int) -> float:
    """EM for hidden environments of own chains of two states, written in numpy; the last log-likelihood."""
    steps, count = weights.shape
    sequences = table.shape[1]
    cells = (np.arange(sequences) * 2 + table[:-1]) * 2 + table[1:]
    moved = weights[:-1].T @ weights[1:] + 0.5
    likelihood = 0.0
    for _ in range(rounds):
        switching, start = moved / moved.sum(axis=1, keepdims=True), (weights[0] + 0.5) / (weights[0] + 0.5).sum()
        counted = [np.bincount(cells.ravel(), np.repeat(w, sequences), minlength=4 * sequences) for w in weights.T]
        moves = (np.array(counted) + 0.5).reshape(count, sequences, 2, 2)
        logs = np.log(moves / moves.sum(axis=3, keepdims=True)).reshape(count, -1)
        scores = np.array([each[cells].sum(axis=1) for each in logs]).T
        top = scores.max(axis=1, keepdims=True)
        chances = np.exp(scores - top)
        forward, backward, scale = np.empty_like(chances), np.ones_like(chances), np.empty(steps)
        before = start
        for t in range(steps):
            forward[t] = before * chances[t]
            scale[t] = forward[t].sum()
            forward[t] /= scale[t]
            before = forward[t] @ switching
        for t in range(steps - 2, -1, -1):
            backward[t] = switching @ (chances[t + 1] * backward[t + 1]) / scale[t + 1]
        weights = forward * backward
        moved = forward[:-1].T @ (chances[1:] * backward[1:] / scale[1:, None]) * switching + 0.5
        likelihood = float(np.log(scale).sum() + top.sum())
    return likelihood


def hidden_environments(sequences: int, ticks: int, count: int = 4) -> list[Record]:
    """Iterations against numpy, and a whole fit with its comparison on readings set aside."""
    table = driven_states(sequences, ticks, count)
    sample = read_sample(table, states=2)
    graph = graph_of_pairs(np.empty((0, 2), dtype=np.intp), sequences)
    weights = np.random.default_rng(0).dirichlet(np.ones(count), ticks - 1)
    prior = np.full((sequences, 2, 2, 1), 0.5)
    first = em.begin(graph, weights, common=prior[..., 0], hidden=True)

    def climb() -> em.EnvironmentFit:
        return em.climb(sample, first, prior, iterations=3, tolerance=-np.inf)

    assert np.isclose(climb().log_likelihood, numpy_iterations(table, weights, 3))  # compiled code warm
    size = f"{count} hidden environments, {sequences:,} sequences, {ticks:,} ticks"
    ours, theirs = median_seconds(climb, 3), median_seconds(lambda: numpy_iterations(table, weights, 3), 3)
    begun = time.perf_counter()
    chain = fit(table, environment="hidden", environments=count, public=True)
    assert chain.fitted is not None
    whole = ratio_record(f"fit of {size}", "three iterations in numpy", time.perf_counter() - begun, theirs)
    whole["iterations"], whole["gain"] = chain.fitted.iterations, chain.fitted.gains[0][1]
    return [ratio_record(f"EM of {size}", "the same in numpy", ours, theirs, target=1.0), whole]


def flights_fit() -> Record:
    """Four hidden environments on the bundled flights, with their comparison on readings set aside."""
    dataset = datasets.load("flights")
    states = dataset.discretiser().apply(dataset.readings).states
    begun = time.perf_counter()
    fit(states, environment="hidden", environments=4, public=True)
    return ratio_record("fit of flights, 4 hidden environments", "20 s", time.perf_counter() - begun, 20.0, target=1.0)


def numpy_counts(table: np.ndarray[Any, Any], states: int) -> np.ndarray[Any, Any]:
    """Transitions of all pairs of sequences, (s m, s m), as a product of two matrices of zeros and ones."""
    seen = (table[:, :, None] == np.arange(states)).astype(np.float32).reshape(len(table), -1)
    return seen[:-1].T @ seen[1:]


def coupled_fit(sequences: int, ticks: int, states: int = 4) -> list[Record]:
    """The counts of all pairs, and a whole fit with 8 neighbours, against the same counts in numpy."""
    table = states_of(sequences, states, ticks)
    sample, graph = read_sample(table, states=states), complete_graph(sequences)
    assert np.isclose(
        pair_counts(sample, graph).sum(), numpy_counts(table, states).sum(), rtol=1e-6
    )  # and code is warm
    theirs = median_seconds(lambda: numpy_counts(table, states), 3)
    size, peer = f"{sequences:,} sequences, {states} states, {ticks:,} ticks", "counts of all pairs in numpy"
    counted = median_seconds(lambda: pair_counts(sample, graph), 3)
    whole = timed(sequences, states, ticks, rounds=1)
    fitted = ratio_record(f"fit by em, 8 neighbours, {size}", peer, float(whole["em_s"]), theirs)
    return [ratio_record(f"pair counts, {size}", peer, counted, theirs, target=1.0), fitted]


def run(scale: float = 1.0) -> list[Record]:
    """R on growing sizes that it can finish, then growth with s and with T, then two large ones."""
    sizes = [(3, 2, 1000), (6, 3, 2000), (10, 4, 5000)] if scale == 1 else [(3, 2, scaled_size(1000, scale, 200))]
    records = [record for size in sizes for record in against_r(*size)]
    ticks = [scaled_size(full, scale, full // 100) for full in (2000, 8000, 32_000)]
    by_s = [timed(scaled_size(s, scale**0.5, 4 + s // 50), 4, ticks[0]) for s in (50, 200, 800)]
    by_t = [timed(scaled_size(50, scale**0.5, 5), 4, t) for t in ticks]
    for name, grown, key in (("sequences", by_s, "counts_s"), ("sequences", by_s, "em_s"), ("ticks", by_t, "em_s")):
        label = {"counts_s": "pair counts", "em_s": "joint EM"}[key]
        x, y = np.log([r[name] for r in grown]), np.log([r[key] for r in grown])
        records.append({"case": f"growth of {label} with {name}", "exponent": float(np.polyfit(x, y, 1)[0])})
    large = [timed(200, 4, 20_000), timed(10_000, 4, 1000, rounds=1)] if scale == 1 else []
    hidden = hidden_environments(scaled_size(1000, scale, 20), scaled_size(2000, scale, 200))
    coupled = coupled_fit(scaled_size(1000, scale, 12), scaled_size(2000, scale, 200))
    return [*records, *by_s, *by_t, *large, *coupled, *hidden, flights_fit()]
