"""Ensembles: repeatable, around the truth, narrower with more data."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.fitting.em import draw_blocks
from fitting.systems import random_chain

METHODS = ["em", "joint"]


def members(states, method):
    chain = csdp.fit(states, states=2, method=method, ensemble=12, public=True)
    return chain, np.array([member.kernel() for member in chain.family.members[1:]])


@pytest.mark.parametrize("method", METHODS)
def test_repeatable_and_different_within(method):
    states = random_chain(1, 2, 2).simulate(400, seed=1)
    (one, kernels), (again, _) = (members(states, method) for _ in range(2))
    assert one == again
    assert one.family == again.family
    assert one.fitted.ensemble_method == "bootstrap"
    assert len({kernel.tobytes() for kernel in kernels}) == 12


@pytest.mark.parametrize("method", METHODS)
def test_the_spread_is_about_the_error(method):
    """Spread of the members against the error of the point estimate, over chains: the same size, and falling."""
    ratios, spreads = [], []
    for n in (400, 6400):
        spread, error = [], []
        for seed in range(6):
            true = random_chain(seed, 2, 2)
            chain, kernels = members(true.simulate(n, seed=seed), method)
            spread.append(np.sqrt(np.square(kernels - chain.kernel()).mean()))
            error.append(np.sqrt(np.square(chain.kernel() - true.kernel()).mean()))
        ratios.append(np.mean(spread) / np.mean(error))
        spreads.append(np.mean(spread))
    assert min(ratios) > 0.4
    assert max(ratios) < 2.5
    assert spreads[1] < spreads[0] / 2


def test_blocks_draw_as_many_transitions():
    for steps in (1, 2, 10, 1000):
        often = draw_blocks(steps, np.random.default_rng(steps))
        assert often.sum() == steps
        assert often.size == steps
    long = draw_blocks(100_000, np.random.default_rng(0))
    assert (long > 0).mean() == pytest.approx(1 - np.exp(-1), abs=0.02)
    neighbours = np.corrcoef(long[:-1], long[1:])[0, 1]
    assert neighbours > 0.95  # blocks, not single transitions


def test_none_is_none():
    chain = csdp.fit(random_chain(2, 2, 2).simulate(100, seed=1), public=True, ensemble=0)
    assert chain.family is None
    assert chain.fitted.ensemble_method is None


def test_the_family_is_what_leakage_takes():
    """The largest over the members is at least that of the point estimate."""
    chain, _ = members(random_chain(4, 2, 2).simulate(500, seed=4), "em")
    largest = csdp.leakage(chain.family, csdp.Mean(), ages=1, epsilon_c=1.0).epsilon
    alone = csdp.leakage(chain.without_family(), csdp.Mean(), ages=1, epsilon_c=1.0).epsilon
    each = [csdp.leakage(member, csdp.Mean(), ages=1, epsilon_c=1.0).epsilon for member in chain.family]
    assert largest == max(each) > alone
