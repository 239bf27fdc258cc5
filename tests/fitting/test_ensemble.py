"""Ensembles: repeatable, around the truth, narrower with more data."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
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
