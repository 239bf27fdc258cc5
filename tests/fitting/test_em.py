"""Joint EM: the likelihood never falls, the kernel is found, and the simple cases are exact."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.fitting.em import Effort, fit_target
from csdp.fitting.sample import complete_graph, read_sample
from fitting.systems import kernel_error, long_run, plain_log_likelihood, random_chain

pytestmark = pytest.mark.usefixtures("ungrown")


def public(data, **settings):
    return csdp.fit(data, **{"public": True, **settings})


@pytest.mark.parametrize(("s", "m", "skew"), [(1, 2, 1.0), (5, 3, 0.3)])
def test_no_iteration_lowers_the_objective(s, m, skew):
    sample = read_sample(random_chain(s, s, m, skew=skew).simulate(600, seed=1), states=m)
    for target in range(s):
        path = fit_target(sample, complete_graph(s), target, effort=Effort()).path
        assert (np.diff(path) >= -1e-11 * np.abs(path[1:])).all()
        if s > 1:
            assert len(path) > 2
            assert path[-1] > path[0]


def test_one_sequence_gives_the_maximum_likelihood_estimate():
    m = 3
    states = random_chain(m, 1, m).simulate(4000, seed=2)
    counts = np.zeros((m, m))
    np.add.at(counts, (states[:-1, 0], states[1:, 0]), 1)
    raised = counts + 0.5
    found = public(states, states=m).kernel()
    np.testing.assert_allclose(found, raised / raised.sum(axis=1, keepdims=True), rtol=1e-12)


def test_the_recorded_likelihood_is_that_of_the_chain():
    states = random_chain(4, 3, 3).simulate(500, seed=3).astype(int)
    states[np.random.default_rng(0).random(states.shape) < 0.05] = -1
    chain = public(states, states=3)
    assert chain.fitted.log_likelihood == pytest.approx(plain_log_likelihood(chain, states), rel=1e-10)
    complete = (states[:-1] >= 0).all(axis=1)
    assert chain.fitted.observations == int((complete[:, None] & (states[1:] >= 0)).sum())


def test_agrees_with_a_general_optimiser():
    """The objective of one target, half a pseudo-count a cell included, as a function of softmax parameters."""
    from scipy.optimize import minimize

    states = random_chain(6, 2, 2).simulate(400, seed=5).astype(int)
    cells = np.zeros((2, 2, 2))
    np.add.at(cells, (states[:-1, 0], states[:-1, 1], states[1:, 0]), 1)

    def parts_of(z):
        share = np.exp(z[:2]) / np.exp(z[:2]).sum()
        rows = z[2:].reshape(2, 2, 2)
        return share[:, None, None] * np.exp(rows) / np.exp(rows).sum(axis=2, keepdims=True)

    def mixed(z):
        parts = parts_of(z)
        return parts[0][:, None, :] + parts[1][None, :, :]

    best = min(
        (
            minimize(
                lambda z: -(cells * np.log(mixed(z))).sum() - 0.25 * np.log(parts_of(z)).sum(),
                np.random.default_rng(seed).normal(size=10),
                method="L-BFGS-B",
                bounds=[(-15, 15)] * 10,
            )
            for seed in range(5)
        ),
        key=lambda result: result.fun,
    )
    found = fit_target(read_sample(states, states=2), complete_graph(2), 0, effort=Effort(50_000, 1e-14))
    parts = found.share[:, None, None] * found.moves
    law = parts[0][:, None, :] + parts[1][None, :, :]
    assert -(cells * np.log(law)).sum() - 0.25 * np.log(parts).sum() == pytest.approx(best.fun, abs=1e-5)
    np.testing.assert_allclose(law, mixed(best.x), atol=1e-3)


def test_the_kernel_error_falls_with_n():
    """Mean over chains of s = 3, m = 2: it falls like the root of n."""
    errors = []
    for n in (500, 5000, 50_000):
        chains = [random_chain(seed, 3, 2) for seed in range(4)]
        each = [kernel_error(public(long_run(true, n, seed), states=2), true) for seed, true in enumerate(chains)]
        errors.append(np.mean(each))
    assert errors[0] < 0.1
    assert errors[1] < 0.03
    assert errors[2] < 0.012


@pytest.mark.parametrize("method", ["em", "joint"])
def test_no_probability_is_zero(method):
    states = np.zeros((60, 2), dtype=int)
    states[20:30, 0] = 1  # state 2 is never seen, sequence 2 never moves
    chain = public(states, states=3, method=method)
    assert chain.kernel().min() > 0
    if method == "em":
        assert any("x2" in note and "one state" in note for note in chain.fitted.warnings)
        assert any("x1" in note and "every state" in note for note in chain.fitted.warnings)


@pytest.mark.parametrize("kind", ["periodic", "reducible", "deterministic follower"])
def test_awkward_chains(kind):
    if kind == "periodic":
        states = np.tile([[0, 1], [1, 0]], (200, 1))
    elif kind == "reducible":
        states = np.zeros((400, 2), dtype=int)
        states[100:] = 1
    else:
        first = random_chain(9, 1, 2).simulate(400, seed=1)[:, 0].astype(int)
        states = np.column_stack([first, np.concatenate([[0], first[:-1]])])
    chain = public(states)
    assert chain.fitted.converged
    assert chain.fitted.log_likelihood == pytest.approx(plain_log_likelihood(chain, states), rel=1e-9)
    if kind == "deterministic follower":
        law = chain.kernel().reshape(2, 2, 2, 2).sum(axis=2)  # (x1, x2) -> next x2
        assert law[0, :, 0].min() > 0.98
        assert law[1, :, 1].min() > 0.98
