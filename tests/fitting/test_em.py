"""Joint EM: the likelihood never falls, the kernel is found, and the simple cases are exact."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import csdp
from csdp.errors import CsdpWarning
from fitting.systems import kernel_error, long_run, plain_em, plain_log_likelihood, random_chain


def public(data, **settings):
    return csdp.fit(data, **{"public": True, "ensemble": 0, **settings})


@pytest.mark.parametrize("smoothing", [0.0, 0.5, 5.0])
@pytest.mark.parametrize(("s", "m", "skew"), [(1, 2, 1.0), (3, 2, 1.0), (2, 4, 0.2), (5, 3, 0.3), (10, 2, 1.0)])
def test_no_iteration_lowers_the_objective(s, m, skew, smoothing):
    states = random_chain(s, s, m, skew=skew).simulate(600, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)  # unseen states are the point of a skewed chain
        record = public(states, states=m, smoothing=smoothing, restarts=2).fitted
    steps = np.diff(record.path)
    assert record.monotone
    assert (steps >= -1e-9 * abs(record.path[0])).all()
    if s > 1:
        assert len(record.path) > 2
        assert record.path[-1] > record.path[0]


def test_a_path_that_falls_is_called_so():
    assert not csdp.FitRecord(method="em", observations=1, path=(-3.0, -2.0, -2.5)).monotone


@pytest.mark.parametrize("m", [2, 3, 5])
def test_one_sequence_gives_the_maximum_likelihood_estimate(m):
    states = random_chain(m, 1, m).simulate(4000, seed=2)
    counts = np.zeros((m, m))
    np.add.at(counts, (states[:-1, 0], states[1:, 0]), 1)
    for smoothing in (0.0, 0.5):
        raised = counts + smoothing
        found = public(states, states=m, smoothing=smoothing).kernel()
        np.testing.assert_allclose(found, raised / raised.sum(axis=1, keepdims=True), rtol=1e-12)


def test_the_recorded_likelihood_is_that_of_the_chain():
    states = random_chain(4, 3, 3).simulate(500, seed=3).astype(int)
    states[np.random.default_rng(0).random(states.shape) < 0.05] = -1
    chain = public(states, states=3)
    assert chain.fitted.log_likelihood == pytest.approx(plain_log_likelihood(chain, states), rel=1e-10)
    complete = (states[:-1] >= 0).all(axis=1)
    assert chain.fitted.observations == int((complete[:, None] & (states[1:] >= 0)).sum())


def test_agrees_with_em_written_out():
    states = random_chain(5, 2, 2).simulate(120, seed=4)
    plain = plain_em(states, 2, 0.5, 400)
    found = public(states, states=2, tolerance=1e-13, max_iterations=20_000)
    np.testing.assert_allclose(found.kernel(), plain.kernel(), atol=2e-4)


def test_agrees_with_a_general_optimiser():
    """The likelihood of one target as a function of softmax parameters, given to scipy."""
    from scipy.optimize import minimize

    states = random_chain(6, 2, 2).simulate(400, seed=5).astype(int)
    cells = np.zeros((2, 2, 2))
    np.add.at(cells, (states[:-1, 0], states[:-1, 1], states[1:, 0]), 1)

    def mixed(z):
        share = np.exp(z[:2]) / np.exp(z[:2]).sum()
        rows = z[2:].reshape(2, 2, 2)
        moves = np.exp(rows) / np.exp(rows).sum(axis=2, keepdims=True)
        return share[0] * moves[0][:, None, :] + share[1] * moves[1][None, :, :]

    best = min(
        (
            minimize(
                lambda z: -(cells * np.log(mixed(z))).sum(),
                np.random.default_rng(seed).normal(size=10),
                method="L-BFGS-B",
                bounds=[(-15, 15)] * 10,
            )
            for seed in range(5)
        ),
        key=lambda result: result.fun,
    )
    found = public(states, states=2, smoothing=0.0, tolerance=1e-14, max_iterations=50_000)
    law = found.kernel().reshape(2, 2, 2, 2).sum(axis=3)
    assert -(cells * np.log(law)).sum() == pytest.approx(best.fun, abs=1e-3)
    np.testing.assert_allclose(law, mixed(best.x), atol=5e-3)


def test_every_start_leads_to_the_same_kernel():
    """The objective is concave in coupling times transitions: there is one maximum."""
    states = random_chain(7, 3, 3).simulate(800, seed=6)
    hard = {"states": 3, "tolerance": 1e-12, "max_iterations": 50_000}
    kernels = [public(states, restarts=n, seed=seed, **hard).kernel() for n, seed in ((1, 0), (4, 1), (4, 2))]
    for other in kernels[1:]:
        np.testing.assert_allclose(other, kernels[0], atol=2e-4)


def test_the_kernel_error_falls_with_n_and_beats_the_others():
    """Mean over chains of s = 3, m = 2: EM falls like the root of n; ching and counts stay where they are."""
    errors = {method: [] for method in ("em", "counts", "ching")}
    for n in (500, 5000, 50_000):
        found = {method: [] for method in errors}
        for seed in range(4):
            true = random_chain(seed, 3, 2)
            states = long_run(true, n, seed)
            for method, each in found.items():
                each.append(kernel_error(public(states, states=2, method=method), true))
        for method, each in found.items():
            errors[method].append(float(np.mean(each)))
    em, counts, ching = (np.array(errors[method]) for method in ("em", "counts", "ching"))
    assert em[0] < 0.1
    assert em[1] < 0.03
    assert em[2] < 0.012
    assert (em < counts).all()
    assert (em < ching).all()
    assert counts[2] > 0.03  # flat: more data does not help
    assert ching[2] > 0.08
    assert em[2] * 5 < counts[2] < ching[2]


def test_weights_are_not_identified_but_kernels_are():
    """Two ways to write one chain: constant rows can be shared out between sources at will."""
    one = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[[[0.8, 0.2]] * 2, [[0.6, 0.4], [0.2, 0.8]]]] * 2)
    other = csdp.CoupledChain(
        [[0.7, 0.3], [0.7, 0.3]],
        [[[[(0.4 + 0.1) / 0.7, 0.2 / 0.7]] * 2, [[0.2 / 0.3, 0.1 / 0.3], [0.0, 1.0]]]] * 2,
    )
    np.testing.assert_allclose(one.kernel(), other.kernel(), atol=1e-12)


@pytest.mark.parametrize("method", ["em", "counts", "ching", "moments", "joint"])
def test_no_probability_is_zero_with_smoothing(method):
    states = np.zeros((60, 2), dtype=int)
    states[20:30, 0] = 1  # state 2 is never seen, sequence 2 never moves
    chain = public(states, states=3, method=method, smoothing=0.5)
    assert chain.kernel().min() > 0
    if method == "em":
        assert any("x2" in note and "one state" in note for note in chain.fitted.warnings)
        assert any("x1" in note and "every state" in note for note in chain.fitted.warnings)


def test_without_smoothing_zeros_are_told():
    states = np.tile([[0, 0], [1, 1]], (30, 1))
    with pytest.warns(CsdpWarning, match="zero probabilities"):
        chain = public(states, smoothing=0.0)
    assert chain.kernel().min() == 0
    assert any("zero" in note for note in chain.fitted.warnings)


def test_not_settling_is_told():
    states = random_chain(8, 3, 3).simulate(500, seed=8)
    with pytest.warns(CsdpWarning, match="did not settle in 3 iterations"):
        record = public(states, states=3, max_iterations=3).fitted
    assert not record.converged
    assert record.iterations == 3
    assert record.monotone


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


def test_missing_readings_are_left_out_and_do_not_bias():
    true = random_chain(10, 3, 2)
    states = long_run(true, 30_000, 10)
    states[np.random.default_rng(1).random(states.shape) < 0.1] = -1
    assert kernel_error(public(states, states=2), true) < 0.02


def test_an_interrupt_stops_the_fit():
    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        public(random_chain(11, 40, 2).simulate(200, seed=1), states=2, progress=stop)


def test_progress_is_told():
    seen = []
    csdp.fit(
        random_chain(12, 12, 2).simulate(300, seed=1),
        states=2,
        public=True,
        ensemble=2,
        tolerance=1e-4,
        progress=lambda *a: seen.append(a),
    )
    assert {what for what, _, _ in seen} == {"choosing whom to follow", "fitting", "ensemble"}
    assert seen[-1] == ("ensemble", 2, 2)


def test_a_bar_appears_on_a_terminal_only(capsys, monkeypatch):
    from csdp.fitting import progress

    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    states = random_chain(13, 3, 2).simulate(200, seed=1)
    public(states, states=2)
    assert capsys.readouterr().err == ""
    public(states, states=2, progress=True)
    assert capsys.readouterr().out == ""
