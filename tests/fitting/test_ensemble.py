"""Ensembles: repeatable, around the truth, narrower with more data."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.errors import InputError
from csdp.fitting.methods import draw_blocks
from fitting.systems import random_chain

WAYS = [
    ("em", "bootstrap"),
    ("em", "posterior"),
    ("joint", "bootstrap"),
    ("joint", "posterior"),
    ("counts", "bootstrap"),
]
WAYS += [("ching", "bootstrap"), ("moments", "bootstrap")]


def members(states, method, kind, **settings):
    chain = csdp.fit(states, states=2, method=method, ensemble_method=kind, public=True, **{"ensemble": 12, **settings})
    return chain, np.array([member.kernel() for member in chain.family.members[1:]])


@pytest.mark.parametrize(("method", "kind"), WAYS)
def test_repeatable_by_seed_and_different_within(method, kind):
    states = random_chain(1, 2, 2).simulate(400, seed=1)
    (one, kernels), (again, _), (other, _) = (members(states, method, kind, seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert one.family == again.family
    assert one.family != other.family
    np.testing.assert_allclose(one.kernel(), other.kernel(), atol=1e-3)  # the point estimate does not move
    assert len({kernel.tobytes() for kernel in kernels}) == 12


@pytest.mark.parametrize(("method", "kind"), [way for way in WAYS if way[0] in {"em", "joint", "moments"}])
def test_the_spread_is_about_the_error(method, kind):
    """Spread of the members against the error of the point estimate, over chains: the same size, and falling."""
    ratios, spreads = [], []
    for n in (400, 6400):
        spread, error = [], []
        for seed in range(6):
            true = random_chain(seed, 2, 2)
            chain, kernels = members(true.simulate(n, seed=seed), method, kind)
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


@pytest.mark.parametrize("method", ["ching", "counts", "moments"])
def test_a_posterior_needs_responsibilities(method):
    with pytest.raises(InputError, match="bootstrap"):
        members(random_chain(3, 2, 2).simulate(100, seed=1), method, "posterior")


def test_the_family_is_what_leakage_takes():
    """The largest over the members is at least that of the point estimate."""
    chain, _ = members(random_chain(4, 2, 2).simulate(500, seed=4), "em", "bootstrap")
    largest = csdp.leakage(chain.family, csdp.Mean(), ages=1, epsilon_c=1.0).epsilon
    alone = csdp.leakage(chain.without_family(), csdp.Mean(), ages=1, epsilon_c=1.0).epsilon
    each = [csdp.leakage(member, csdp.Mean(), ages=1, epsilon_c=1.0).epsilon for member in chain.family]
    assert largest == max(each) > alone
