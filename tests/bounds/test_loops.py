"""The loops that numba compiles give what Python gives that runs the same source."""

import importlib.util
import sys

import numba
import numpy as np
import pytest

import csdp
import csdp.bounds
from csdp.bounds.influence import InfluenceRule, WorstRule, influence_rule
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
    """All sets of states, prefixes of many states, two states, families, the worst of some."""
    random = np.random.default_rng(states)
    chains = [random_chain(random, 3, states, sparse=sparse) for _ in range(2)]
    state = random.exponential(0.3, size=(3, states, states)) * (1 - np.eye(states))

    def compute():
        rules = [InfluenceRule(chains[0]), WorstRule([InfluenceRule(chain) for chain in chains])]
        if states <= 3:
            rules.append(influence_rule(csdp.InfluenceGraph.around(chains[0], 0.02)))
        return [rule.advance(state, steps) for rule in rules for steps in (1, 4)]

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
