"""Transition matrices of ordered states from few numbers."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.fitting.ordinal import ordinal_rows
from fitting.systems import random_chain


def logistic_rows(cuts, places):
    below = 1 / (1 + np.exp(np.asarray(places)[:, None] - np.asarray(cuts)))
    return np.diff(below, axis=1, prepend=0.0, append=1.0)


def autoregression(ticks: int, s: int, m: int, seed: int):
    """Readings of an autoregression, cut into states of equal width on [-4, 4]."""
    random = np.random.default_rng(seed)
    signal = np.zeros((ticks, s))
    for t in range(1, ticks):
        signal[t] = 0.9 * signal[t - 1] + random.normal(0.0, np.sqrt(1 - 0.81), s)
    return np.clip(np.floor((signal + 4) * m / 8), 0, m - 1).astype(int)


@pytest.mark.parametrize("m", [2, 3, 8, pytest.param(20, marks=pytest.mark.slow)])
def test_no_other_cuts_and_places_are_better(m):
    random = np.random.default_rng(m)
    counts = random.gamma(0.3, 5.0, (4, m, m))
    rows = ordinal_rows(counts)
    assert rows.sum(axis=2) == pytest.approx(np.ones((4, m)))
    logit = np.log(np.cumsum(rows, axis=2)[:, :, :-1]) - np.log(np.cumsum(rows[:, :, ::-1], axis=2)[:, :, -2::-1])
    cuts, places = logit[:, 0], logit[:, :1, 0] - logit[:, :, 0]
    assert logit == pytest.approx(cuts[:, None, :] - places[:, :, None], abs=1e-6)
    best = (counts * np.log(rows)).sum(axis=(1, 2))
    for _ in range(50):
        for n in range(4):
            moved = np.sort(cuts[n] + random.normal(0, 0.02, m - 1)), places[n] + random.normal(0, 0.02, m)
            assert (counts[n] * np.log(logistic_rows(*moved))).sum() <= best[n] + 1e-7


def test_two_states_have_all_matrices():
    counts = np.array([[[30.0, 10.0], [5.0, 55.0]]])
    assert ordinal_rows(counts)[0] == pytest.approx(np.array([[0.75, 0.25], [1 / 12, 11 / 12]]), abs=1e-7)


@pytest.mark.parametrize("shape", ["stay", "round", "one", "nothing"])
def test_counts_without_overlap_have_a_matrix(shape):
    tables = {
        "stay": 100.0 * np.eye(5),
        "round": 100.0 * np.eye(5)[[1, 2, 3, 4, 0]],
        "one": np.pad([[7.0]], (0, 4)),
        "nothing": np.zeros((5, 5)),
    }
    rows = ordinal_rows(tables[shape][None])[0]
    assert np.isfinite(rows).all()
    assert rows.sum(axis=1) == pytest.approx(np.ones(5))
    if shape in {"stay", "round"}:
        assert rows[tables[shape] > 0].min() > 0.99


def test_many_states_need_few_numbers_and_predict_better():
    states = autoregression(1500, 2, 20, 1)
    ordinal = csdp.fit(states, public=True, states=20, neighbours=0, kernel="ordinal", ensemble=2)
    free = csdp.fit(states, public=True, states=20, neighbours=0, ensemble=0)
    assert (ordinal.fitted.parameters, free.fitted.parameters) == (2 * 38, 2 * (361 + 19))
    ((name, gain, error),) = ordinal.fitted.gains
    assert name == "ordinal, forward"
    assert gain > 5 * error  # over independent chains with free matrices
    assert type(ordinal) is csdp.CoupledChain
    assert len(ordinal.family) == 3
    assert ordinal.fitted.kernel == "ordinal"
    assert ordinal.fitted.monotone


def test_coupled_ordinal_chains_are_found_again():
    steep, flat = logistic_rows([-2.0, 0.0, 2.0], [-3.0, -1.0, 1.0, 3.0]), logistic_rows([-1.0, 0.0, 1.0], [0.0] * 4)
    true = csdp.CoupledChain({(0, 0): 1.0, (1, 0): 0.6, (1, 1): 0.4}, {(0, 0): steep, (1, 0): steep, (1, 1): flat})
    chain = csdp.fit(true.simulate(8000, seed=2), public=True, kernel="ordinal", ensemble=0, tolerance=1e-6)
    assert abs(chain.kernel() - true.kernel()).max() < 0.05
    backward = csdp.fit(true.simulate(500, seed=2), public=True, kernel="ordinal", ensemble=0, direction="auto")
    assert [name for name, _, _ in backward.fitted.gains] == ["ordinal, forward", "ordinal, backward"]


def test_environments_may_have_ordinal_members():
    slow, fast = (logistic_rows([-2.0, 0.0, 2.0], np.array([-3.0, -1.0, 1.0, 3.0]) * k) for k in (2.0, 0.1))
    members = [csdp.CoupledChain(np.eye(4), rows) for rows in (slow, fast)]
    states = csdp.EnvironmentChain(members, switching=[[0.95, 0.05], [0.05, 0.95]]).simulate(2500, seed=3)
    chain = csdp.fit(states, public=True, kernel="ordinal", environment="hidden", environments=2, ensemble=0)
    stay = sorted(np.mean([np.diagonal(t) for t in member.transitions]) for member in chain.environments)
    assert stay[0] < 0.35
    assert stay[1] > 0.6
    assert chain.fitted.parameters == 2 * 4 * 6 + 2


def test_quality_fits_the_same_kernel_again():
    states = random_chain(4, 2, 3).simulate(400, seed=4)
    chain = csdp.fit(states, public=True, kernel="ordinal", ensemble=0)
    quality = csdp.fit_quality(chain, states, public=True)
    assert quality.refitted
    assert np.isfinite(quality.gain)
