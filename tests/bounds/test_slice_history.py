"""`slice` with a history: the noise counts for forward chains too, where sequences depend weakly on each other."""

import os

import numpy as np
import pytest

import csdp
from csdp.bounds.slice import SliceHistory, slice_bound
from csdp.errors import InputError
from oracle import joint_kernel

from oracle import Told, history_leakage  # isort: skip
from bounds.test_influence import answers, ring  # isort: skip

#: Rounding of brute force itself.
ROUNDING = 1e-11


def test_rings_have_the_values_of_the_theory_page():
    chain = ring(12, 0.8, 0.3, 0.3, "forward")
    for age, forever, alone in ((1, 0.0860, 1.69), (3, 0.0183, 0.303)):
        costs = [np.full(12, 0.1)] * 24
        assert SliceHistory(chain).leakage(age, costs).max() == pytest.approx(forever, abs=6e-5)
        assert SliceHistory(chain).leakage(age, []).max() == pytest.approx(alone, rel=5e-3)
        assert SliceHistory(chain).leakage(age, []) == pytest.approx(slice_bound(chain, age).ranges)


def weakly_coupled(random, s, m):
    coupling = 0.8 * np.eye(s) + 0.2 * random.dirichlet(np.ones(s), size=s)
    rows = 0.5 * random.dirichlet(np.ones(m), size=(s, s, m)) + 0.5 / m
    return coupling, rows


def compare_with_truth(seed):
    """(bound, truth) after some releases with gaps, for the informed adversary."""
    random = np.random.default_rng(seed)
    s, m = [(2, 2), (3, 2), (2, 3)][random.integers(3)]
    coupling, rows = weakly_coupled(random, s, m)
    chain = csdp.CoupledChain(coupling, rows)
    query = [csdp.Mean(), csdp.Max(), csdp.Histogram(), csdp.Identity()][random.integers(4)]
    scale = query.sensitivity(1, chain.value_table)
    age, epsilon_c = int(random.integers(0, 3)), float(random.choice([0.1, 0.5, 2.0]))
    released = [0, *(n for n in (1, 2) if random.random() < 0.6)] if m**s <= 4 else [0]
    f = tuple(map(tuple, answers(query, s, m)))
    kernel = joint_kernel(coupling, rows)
    told = [Told(10 - n, (age,) * s, f, epsilon_c / scale) for n in released]
    truth = history_leakage(kernel, s, m, told, 10)
    costs = [np.full(s, epsilon_c) if n in released else None for n in range(12)]
    return [SliceHistory(chain, form=form).leakage(age, costs).max() for form in ("matrix", "shared", "row-sum")], truth


def test_it_is_never_below_brute_force():
    pairs = [compare_with_truth(seed) for seed in range(3000 if os.environ.get("CSDP_FULL") else 30)]
    assert all(min(bounds) >= truth - ROUNDING for bounds, truth in pairs)
    assert np.median([bounds[0] / truth for bounds, truth in pairs]) < 3.0


def test_a_deeper_history_is_never_worse_than_the_range_over_pasts():
    """Strongly persistent chains gain nothing from the noise; the range over pasts stays."""
    chain = ring(8, 0.8, 0.1, 0.1, "forward")
    for age in (1, 2):
        assert (
            SliceHistory(chain).leakage(age, [np.full(8, 5.0)] * 8) <= slice_bound(chain, age).ranges * (1 + 1e-9)
        ).all()


def test_backward_chains_are_refused():
    with pytest.raises(InputError, match=r"slice: needs .* a backward chain given"):
        SliceHistory(ring(3, 0.8, 0.3, 0.3))
