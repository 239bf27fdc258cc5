"""Do readings tell more than their states? Honest emissions pass at the stated level, a thresholded signal fails."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from csdp.fitting.checks import _kruskal_p, emission_ps, inside_scores


def autoregression(ticks, sequences, rho, seed):
    """A Gaussian signal whose neighbouring ticks have correlation rho."""
    noise = np.random.default_rng(seed).standard_normal((ticks, sequences))
    signal = noise.copy()
    for t in range(1, ticks):
        signal[t] = rho * signal[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    return signal


def chain_states(ticks, sequences, m, seed):
    """Independent Markov sequences with skewed, persistent states."""
    random = np.random.default_rng(seed)
    rows = 0.5 * random.dirichlet(np.full(m, 0.7), size=m) + 0.5 * np.eye(m)
    above = rows.cumsum(axis=1)[:, :-1]
    states = np.zeros((ticks, sequences), dtype=int)
    for t in range(1, ticks):
        states[t] = (random.random(sequences)[:, None] > above[states[t - 1]]).sum(axis=1)
    return states


EMISSIONS = {
    "spread": lambda u, _: u,
    "lattice": lambda u, _: np.floor(4 * u) / 4,
    "overlapping": lambda u, random: 3 * random.standard_normal(u.shape),
}


@pytest.mark.parametrize("kind", EMISSIONS)
@pytest.mark.parametrize(("ticks", "m"), [(100, 2), (400, 6)])
def test_honest_emissions_pass_at_the_stated_level(kind, ticks, m):
    """Of 400 sequences at level 5 % at most 20 are expected; 45 or more have a chance below 1e-6."""
    states = chain_states(ticks, 400, m, seed=m)
    random = np.random.default_rng(1)
    ps = emission_ps(states + EMISSIONS[kind](random.random(states.shape), random), states, m)
    assert ((ps < 0.05).sum(axis=0) < 45).all()
    assert ps.min() * 400 > 1e-3  # and the whole panel passes


def test_a_thresholded_signal_is_caught_in_nearly_every_sequence():
    signal = autoregression(400, 200, 0.9, seed=1)
    ps = emission_ps(signal, (signal > 0).astype(int), 2)
    assert (ps < 1e-3).mean(axis=0) == pytest.approx([1.0, 1.0], abs=0.02)


def test_dependence_inside_states_that_are_unrelated_to_it_speaks_of_readings_only():
    """u dependent over time but independent of the states: certificates of the state stand, of the reading not."""
    states = chain_states(1000, 20, 2, seed=3)
    ps = emission_ps(10 * states + autoregression(1000, 20, 0.6, seed=3), states, 2)
    assert ps[:, 0].min() * 20 > 1e-3
    assert ps[:, 1].max() < 1e-3


def test_the_statistic_is_kruskal_and_wallis():
    states = chain_states(300, 1, 2, seed=4)[:, 0]
    readings = states + np.random.default_rng(4).random(300)
    now, then = states[:-1], states[1:]
    statistic = 0.0
    for a in range(2):
        groups = [readings[:-1][(now == a) & (then == b)] for b in range(2)]
        assert min(map(len, groups)) >= 5
        statistic += stats.kruskal(*groups).statistic
    # Ranks are among all readings of the state, the last one included, which belongs to no pair.
    told = _kruskal_p(inside_scores(readings, states), states, states, 1, 2)
    assert told == pytest.approx(stats.chi2.sf(statistic, 2), rel=0.02)


def test_what_a_public_clock_does_to_readings_is_no_alarm_given_the_clock():
    """By night readings are lower and states more often 0: without the clock the one tells of the other."""
    random = np.random.default_rng(10)
    phase = np.arange(900) % 3
    states = (random.random((900, 10)) < np.array([0.2, 0.5, 0.8])[phase, None]).astype(int)
    readings = 10 * states + phase[:, None] + random.random(states.shape)
    assert emission_ps(readings, states, 2).max() < 1e-3
    assert emission_ps(readings, states, 2, phase).min() * 10 > 1e-3
