"""Fitting: against R's markovchain (fitHighOrderMultivarMC) on a size it can finish, and growth with s and T."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from csdp import CoupledChain, fit
from csdp.fit.counting import everyone, pair_counts
from csdp.fit.data import read

_SCRIPT = """
suppressPackageStartupMessages(library(markovchain))
states <- as.matrix(read.csv(commandArgs(trailingOnly = TRUE)[1], header = FALSE, colClasses = "character"))
begun <- proc.time()[["elapsed"]]
found <- suppressMessages(fitHighOrderMultivarMC(states, order = 1, Norm = 2))
cat(proc.time()[["elapsed"]] - begun)
"""


def _median(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


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


def against_r(sequences: int = 6, states: int = 3, ticks: int = 2000) -> dict[str, Any]:
    """The same readings: R's estimator, ours of the same name, and joint EM."""
    table = states_of(sequences, states, ticks)
    theirs = r_seconds(table)
    record: dict[str, Any] = {"what": "against R", "sequences": sequences, "states": states, "ticks": ticks}
    record["r_s"] = theirs
    for method in ("ching", "em"):
        fit(table, method=method, public=True, ensemble=0)  # compiled code warm
        ours = _median(lambda: fit(table, method=method, public=True, ensemble=0), 5)  # noqa: B023 - called at once
        record[f"{method}_s"] = ours
        record[f"{method}_ratio"] = None if theirs is None else theirs / ours
    return record


def sized(sequences: int, states: int, ticks: int, *, rounds: int = 3) -> dict[str, Any]:
    """Seconds of all pair counts, and of EM with 8 neighbours, screening included."""
    table = states_of(sequences, states, ticks)
    sample = read(table, states=states)
    record: dict[str, Any] = {"what": "size", "sequences": sequences, "states": states, "ticks": ticks}
    if sequences <= 1000:
        graph = everyone(sequences)
        record["counts_s"] = _median(lambda: pair_counts(sample, graph), rounds)
    start = time.perf_counter()
    chain = fit(table, states=states, neighbours=8, public=True, ensemble=0, max_iterations=200, tolerance=1e-6)
    record["em_s"] = time.perf_counter() - start
    assert chain.fitted is not None
    record["iterations"], record["converged"] = chain.fitted.iterations, chain.fitted.converged
    return record


def run() -> list[dict[str, Any]]:
    """R on growing sizes that it can finish, then s = 200, m = 4, T = 20,000, then growth with s and with T."""
    sizes = [(3, 2, 1000), (6, 3, 2000), (10, 4, 5000)]
    records = [against_r(*size) for size in sizes]
    records.append(sized(200, 4, 20_000))
    by_s = [sized(s, 4, 2000) for s in (50, 200, 800)]
    by_t = [sized(50, 4, t) for t in (2000, 8000, 32_000)]
    for name, grown, key in (("sequences", by_s, "counts_s"), ("sequences", by_s, "em_s"), ("ticks", by_t, "em_s")):
        x, y = np.log([r[name] for r in grown]), np.log([r[key] for r in grown])
        records.append({"what": f"growth of {key} with {name}", "exponent": float(np.polyfit(x, y, 1)[0])})
    records += by_s + by_t + [sized(10_000, 4, 1000, rounds=1)]
    return records
