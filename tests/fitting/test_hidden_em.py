"""The loops of environment fits against enumeration and against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from csdp import CoupledChain, EnvironmentChain
from csdp.fitting import environment as em
from csdp.fitting.sample import complete_graph, join_graphs, read_sample
from fitting.systems import plain_log_likelihood, random_chain


def hidden_chain(seed: int, s: int, m: int, count: int, *, skew: float = 1.0) -> EnvironmentChain:
    random = np.random.default_rng(seed)
    members = [random_chain(seed + 100 * e, s, m, skew=skew) for e in range(count)]
    return EnvironmentChain(members, switching=random.dirichlet(np.ones(count), count))


def gappy(states, seed: int, share: float = 0.1):
    random = np.random.default_rng(seed)
    return np.where(random.random(states.shape) < share, -1, states).astype(np.int64)


def step_chance(chain: CoupledChain, now, after) -> float:
    """Probability of one step under a coupled chain; sequences without what it takes are left out."""
    return float(np.exp(plain_log_likelihood(chain, np.array([now, after]))))


def enumerate_paths(chain: EnvironmentChain, states):
    """Every path of environments with its joint probability, straight from the definition."""
    steps, count = len(states) - 1, len(chain.environments)
    chances = [
        [step_chance(member, now, after) for member in chain.environments] for now, after in itertools.pairwise(states)
    ]
    for path in itertools.product(range(count), repeat=steps):
        weight = chain.environment_law[path[0]]
        for before, after in itertools.pairwise(path):
            weight *= chain.switching[before, after]
        yield path, weight * float(np.prod([chances[t][e] for t, e in enumerate(path)]))


@pytest.mark.parametrize(("seed", "s", "m", "count", "skew"), [(1, 2, 2, 2, 1.0), (2, 3, 3, 3, 0.1), (3, 1, 2, 2, 5.0)])
def test_forward_and_backward_pass_agree_with_enumeration(seed, s, m, count, skew):
    chain = hidden_chain(seed, s, m, count, skew=skew)
    states = gappy(chain.simulate(6, seed=seed), seed)
    states[0] = np.maximum(states[0], 0)
    sample = read_sample(states, states=m)
    graph = join_graphs(chain.environments)
    scores = em.step_scores(sample, graph, em.mix_members(chain.environments, graph))
    forward, gains = em.filter_scores(scores, np.asarray(chain.environment_law), chain.switching)
    weights, switches = em.smooth_scores(scores, forward, chain.switching)
    paths = dict(enumerate_paths(chain, states))
    total = sum(paths.values())
    assert gains.sum() == pytest.approx(np.log(total), abs=1e-12)
    for t, e in itertools.product(range(len(states) - 1), range(count)):
        share = sum(weight for path, weight in paths.items() if path[t] == e) / total
        assert weights[t, e] == pytest.approx(share, abs=1e-12)
    for e, f in itertools.product(range(count), repeat=2):
        expected = sum(w * sum(p == (e, f) for p in itertools.pairwise(path)) for path, w in paths.items()) / total
        assert switches[e, f] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("hidden", [True, False])
def test_no_iteration_lowers_the_objective(hidden):
    chain = hidden_chain(8, 3, 3, 3, skew=0.3)
    sample, graph = read_sample(gappy(chain.simulate(300, seed=8), 8), states=3), complete_graph(3)
    common = np.full((9, 3, 3), 1.0)
    weights = np.random.default_rng(8).dirichlet(np.ones(3), 299)
    first = em.begin(graph, weights, common=common, hidden=hidden)
    fitted = em.climb(sample, first, common[..., None], iterations=60, tolerance=0.0)
    gains = np.diff(fitted.path)
    assert gains.min() > -1e-9
    assert gains.sum() > 1.0
    if hidden:
        assert fitted.weights.sum(axis=1) == pytest.approx(np.ones(299))
