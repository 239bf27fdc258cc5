"""Confidence limits of a fit: coverage, sharpness, boundaries, and the family that fits carry beyond metric size."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.chain.graph import influence_limits
from csdp.fitting.limits import _SupportFunction, confidence_limits, first_part
from csdp.fitting.sample import graph_of_pairs, read_sample

from bounds.test_influence import ring  # isort: skip
from accountant.systems import follow


def neighbours_of_ring(size):
    return np.array([(i, (i + d) % size) for i in range(size) for d in (1, size - 1)])


def limits_of(chain, states, pairs, *, confidence, screened=False):
    readings = read_sample(states, states=chain.states).in_direction("backward")
    graph = graph_of_pairs(pairs, chain.sequences)
    return graph, confidence_limits(readings, graph, screened=screened, confidence=confidence, progress=lambda *_: None)


def is_covered(chain, states, pairs, *, confidence):
    """Whether all limits hold for the chain that made the readings."""
    graph, (gains, bases) = limits_of(chain, states, pairs, confidence=confidence)
    true_gains, true_bases = influence_limits(chain, graph.pairs)
    apart = ~np.eye(chain.states, dtype=bool)
    return bool((gains[:, apart] >= true_gains[:, apart] - 1e-9).all() and (bases <= true_bases + 1e-9).all())


SYSTEMS = {
    "ring": lambda: ring(3, 0.8, 0.3, 0.3),
    "skewed": lambda: ring(3, 0.8, 0.02, 0.3),
    "persistent": lambda: ring(3, 0.95, 0.05, 0.05),
    "deterministic": lambda: csdp.CoupledChain([[1, 0], [1, 0]], [[0.9, 0.1], [0.4, 0.6]], direction="backward"),
    "three states": lambda: csdp.CoupledChain(
        [[0.7, 0.3], [0.2, 0.8]], [[0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.3, 0.0, 0.7]], direction="backward"
    ),
    "one sequence": lambda: csdp.CoupledChain([[1.0]], [[0.97, 0.03], [0.5, 0.5]], direction="backward"),
}


def count_covered(name, runs, ticks, confidence):
    chain = SYSTEMS[name]()
    pairs = np.array([(i, k) for i in range(chain.sequences) for k in range(chain.sequences) if i != k])
    pairs = pairs.reshape(-1, 2).astype(int)
    return sum(
        is_covered(chain, chain.simulate(ticks, seed=seed), pairs, confidence=confidence) for seed in range(runs)
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_all_limits_hold_together(name):
    """At confidence 0.5 the promise is half of the runs; the set is conservative."""
    assert count_covered(name, 4, 150, 0.5) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_all_limits_hold_together_in_many_runs(name):
    assert count_covered(name, 200, 300, 0.8) >= 160


def test_narrower_limits_would_not_hold():
    """The check above can fail: half of the way from the estimate to the limits does not cover the truth."""
    chain, failures = ring(3, 0.8, 0.3, 0.3), 0
    for seed in range(6):
        graph, (gains, _) = limits_of(chain, chain.simulate(150, seed=seed), neighbours_of_ring(3), confidence=0.5)
        middle = (gains[:, 0, 1, 1] - gains[:, 1, 0, 1]) / 2  # two sides of one contrast
        true = influence_limits(chain, graph.pairs)[0][:, 0, 1, 1]
        failures += bool((true > middle + (gains[:, 0, 1, 1] - middle) / 4).any())
    assert failures >= 3


def test_limits_close_in_on_the_truth():
    chain = ring(4, 0.8, 0.3, 0.3)
    widths = []
    for ticks in (400, 6400):
        graph, (gains, bases) = limits_of(chain, chain.simulate(ticks, seed=1), neighbours_of_ring(4), confidence=0.95)
        true_gains, true_bases = influence_limits(chain, graph.pairs)
        widths.append([(gains - true_gains)[:, 0, 1, 1].max(), (true_bases - bases).max()])
    assert widths[1][0] < 0.09
    assert np.all(np.array(widths[1]) < np.array(widths[0]) / 2.5)


def test_the_search_finds_the_largest_value_on_the_set():
    """One law of two states: the set is an interval of probabilities, found here by bisection."""
    counts = np.array([[70.0, 30.0]])

    def log_likelihood(p):
        return 70 * np.log(1 - p) + 30 * np.log(p)

    allowed = log_likelihood(0.3) - 4.0
    found = _SupportFunction(np.ones((1, 1)), counts, allowed).largest(np.array([[1.0], [-1.0]]))
    grid = np.linspace(0.01, 0.99, 200_001)
    inside = grid[log_likelihood(grid) >= allowed]
    assert inside.max() <= found[0] <= inside.max() + 0.004
    assert -inside.min() <= found[1] <= -inside.min() + 0.004


def test_what_was_never_seen_stays_possible():
    """A sequence that never moved: it may still move, and nothing is known about the other state."""
    states = np.zeros((300, 1), dtype=int)
    readings = read_sample(states, states=2).in_direction("backward")
    graph = graph_of_pairs(np.empty((0, 2), dtype=int), 1)
    gains, bases = confidence_limits(readings, graph, screened=False, confidence=0.95, progress=lambda *_: None)
    assert gains[0, 0, 1].tolist() == [1.0, 1.0]
    assert bases[0, 1].tolist() == [0.0, 0.0]
    assert 0.9 < bases[0, 0, 0] < 1.0
    assert bases[0, 0, 1] == 0.0


@pytest.fixture(scope="module")
def fitted():
    states = ring(6, 0.8, 0.3, 0.3).simulate(1500, seed=1)
    return csdp.fit(states, public=True, direction="backward", neighbours=neighbours_of_ring(6))


def test_a_backward_fit_beyond_metric_size_carries_a_family_at_once(fitted):
    family = fitted.family
    assert isinstance(family, csdp.InfluenceGraph)
    assert family.confidence == fitted.fitted.confidence == 0.95
    assert (fitted.fitted.ensemble_method, fitted.fitted.ensemble) == ("limits", 0)
    assert family.point == fitted.without_family()
    assert csdp.CoupledChain.from_json(fitted.to_json()) == fitted
    told = [
        follow(csdp.Plan(model, csdp.Mean(), 1, 0.1), "vector").limit().epsilon
        for model in (fitted.without_family(), fitted)
    ]
    assert told[0] < told[1] < 1.0
    words = csdp.leakage(fitted, csdp.Mean(), ages=1, epsilon_c=0.1).assumptions[0]
    assert "confidence 0.95" in words
    assert "unsure which member is true" in words


def test_the_graph_is_chosen_on_readings_that_the_limits_do_not_use():
    states = ring(7, 0.7, 0.2, 0.2).simulate(600, seed=2)
    chain = csdp.fit(states, public=True, direction="backward", neighbours=2)
    assert chain.fitted.screened
    readings = read_sample(states, states=2).in_direction("backward")
    assert first_part(readings).states.shape[0] == 201
    np.testing.assert_array_equal(first_part(readings).states[0], states[-1])
    changed = states.copy()
    changed[:395] = changed[:395][::-1]  # the older part, which the limits use
    again = csdp.fit(changed, public=True, direction="backward", neighbours=2)
    ((window,),), ((same,),) = again.family.worlds, chain.family.worlds
    np.testing.assert_array_equal(window.edge_sources, same.edge_sources)
    assert again.family != chain.family
