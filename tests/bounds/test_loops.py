"""The loops that numba compiles give what Python gives that runs the same source."""

import importlib.util
import os
import subprocess
import sys

import numba
import numpy as np
import pytest

import csdp
import csdp.bounds
from csdp.bounds.influence import FamilyRule, InfluenceRule, WorstInfluenceRule
from csdp.bounds.metric import FlowSolver, LawPairs

#: Compiled sums may be rounded otherwise; the search for flows may end elsewhere, and any end is a bound.
ROUNDING, SEARCHED = 1e-12, 1e-6


@pytest.fixture
def run_by_python(monkeypatch):
    """A function that computes something with loops that are not compiled."""

    def run(compute):
        with monkeypatch.context() as patch, np.errstate(all="ignore"):  # numba raises no errors of numbers either
            patch.setattr(numba.config, "DISABLE_JIT", True)
            spec = importlib.util.find_spec("csdp.bounds.loops")
            loops = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loops)
            patch.setitem(sys.modules, spec.name, loops)
            patch.setattr(csdp.bounds, "loops", loops, raising=False)
            return compute()

    return run


def random_chain(random, s, m, *, sparse):
    """A backward chain; `sparse`: with states that never follow others, and sequences that do not depend on others."""
    coupling = random.dirichlet(np.full(s, 0.7), size=s) * (random.random((s, s)) < (0.5 if sparse else 1.0))
    coupling += 1e-3 * np.eye(s)
    rows = random.dirichlet(np.ones(m), size=(s, s, m)) * (random.random((s, s, m, m)) < (0.5 if sparse else 1.0))
    rows += 1e-12 * np.eye(m)
    transitions = rows / rows.sum(axis=-1, keepdims=True)
    return csdp.CoupledChain(coupling / coupling.sum(axis=1, keepdims=True), transitions, direction="backward")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("states", [2, 3, 9])
def test_influence(run_by_python, states, sparse):
    """All sets of states, prefixes of many states, two states at once and one by one, families, the worst of some."""
    random = np.random.default_rng(states)
    chains = [random_chain(random, 3, states, sparse=sparse) for _ in range(2)]
    state = random.exponential(0.3, size=(3, states, states)) * (1 - np.eye(states))

    def compute():
        rules = [InfluenceRule(chains[0]), WorstInfluenceRule(chains)]
        if states <= 3:
            rules.append(FamilyRule(csdp.InfluenceFamily.around(chains[0], 0.02)))
        return [rule._step(state) for rule in rules] + [rule.advance(state, 4) for rule in rules]

    for compiled, plain in zip(compute(), run_by_python(compute), strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=ROUNDING, atol=ROUNDING)
        assert compiled.any()


@pytest.mark.parametrize("size", [1e-4, 0.5, 6.0, 2000.0, np.inf])
@pytest.mark.parametrize("n", [2, 5, pytest.param(9, marks=pytest.mark.slow)])
def test_metric_programmes(run_by_python, n, size):
    """Laws with rare and impossible snapshots; limits that are no metric, with ties, and beyond what a float holds."""
    random = np.random.default_rng(n)
    ties = np.abs(np.subtract.outer(np.arange(n) // 2, np.arange(n) // 2)) / n
    metrics = [np.full((n, n), size)] if size > 100 else [size * random.random((n, n)), size * ties]
    laws = random.dirichlet(np.full(n, 0.3), size=4)
    laws[3, 0] = 0.0
    laws = laws / laws.sum(axis=1, keepdims=True)

    def compute():
        bounds = []
        for metric in metrics:
            solver = FlowSolver(np.where(np.eye(n, dtype=bool), 0.0, metric))
            for q in laws:
                pairs = LawPairs(laws, np.broadcast_to(q, laws.shape), laws - q, np.full(n, 1e-15), 0)
                bounds.append(solver.bounds(pairs))
        return np.array(bounds)

    compiled, plain = compute(), run_by_python(compute)
    np.testing.assert_allclose(compiled, plain, rtol=SEARCHED, atol=SEARCHED * min(size, 1.0))
    assert (compiled > 0).any()


def test_two_threads_may_step_on_all_cores_at_once():
    """With the way of numba that is always there, and that ends the process where two threads use it at once."""
    program = """
import threading
import numpy as np
from csdp import CoupledChain
from csdp.bounds.influence import InfluenceRule
s = 3000
edges = {(i, (i + d) % s): w for i in range(s) for d, w in ((0, 0.8), (1, 0.2))}
rule = InfluenceRule(CoupledChain(edges, [[0.9, 0.1], [0.2, 0.8]], direction="backward"))
state = 0.1 * (1 - np.eye(2)) + np.zeros((s, 1, 1))
rule._step(state)
threads = [threading.Thread(target=lambda: [rule._step(state) for _ in range(300)]) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
