"""Pufferfish: quilts against the number of their authors, the definition and enumeration; W_inf against transport."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

import csdp
import oracle
from csdp import baselines
from csdp.baselines.pufferfish import eigengap, quantile_gap
from csdp.errors import InputError, NoStationaryLawError, TooLargeError

from baselines.chains import CYCLE, PAPER, PERIODIC, SKEWED, SYMMETRIC, series_leakage  # isort: skip


def plain_quilts(kernel, length, epsilon):
    """The definition, one node and one quilt after the other."""
    kernel = np.asarray(kernel)
    n = len(kernel)
    law = oracle.stationary(kernel)
    powers = [np.linalg.matrix_power(kernel, k) for k in range(length + 1)]

    def log_ratio(p, q):
        return -math.inf if p == 0 else math.inf if q == 0 else math.log(p / q)

    def influence(a, b):
        worst = 0.0
        for x, y in itertools.permutations(range(n), 2):
            value = 0.0
            if a:
                value += math.log(law[y] / law[x]) + max(log_ratio(powers[a][w, x], powers[a][w, y]) for w in range(n))
            if b:
                value += max(log_ratio(powers[b][x, v], powers[b][y, v]) for v in range(n))
            worst = max(worst, value)
        return worst

    known = {(a, b): influence(a, b) for a in range(length) for b in range(length)}
    sigma = 0.0
    for i in range(1, length + 1):
        best = length / epsilon
        for a in range(i):
            for b in range(length - i + 1):
                inside = (a or i) + (b or length - i + 1) - 1
                if known[a, b] < epsilon:
                    best = min(best, inside / (epsilon - known[a, b]))
        sigma = max(sigma, best)
    return sigma


def test_the_published_check_of_the_quilt():
    assert csdp.baselines.markov_quilt_scale(SYMMETRIC, length=100, epsilon=1.0) == pytest.approx(6.7236, abs=5e-5)
    approx = csdp.baselines.markov_quilt_scale(SYMMETRIC, length=100, epsilon=1.0, method="approx")
    assert approx == pytest.approx(15.572, abs=5e-4)


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, CYCLE], ids=["symmetric", "skewed", "cycle"])
@pytest.mark.parametrize(("length", "epsilon"), [(1, 1.0), (2, 0.5), (7, 1.0), (16, 3.0), (16, 20.0)])
def test_quilts_by_definition(chain, length, epsilon):
    expected = plain_quilts(chain.kernel(), length, epsilon)
    assert baselines.markov_quilt_scale(chain, length=length, epsilon=epsilon) == pytest.approx(expected, rel=1e-10)
    approx = baselines.markov_quilt_scale(chain, length=length, epsilon=epsilon, method="approx")
    assert approx >= expected * (1 - 1e-12)


def test_a_chain_that_never_forgets_is_one_group():
    assert baselines.markov_quilt_scale(PERIODIC, length=9, epsilon=0.5) == 18.0
    assert baselines.markov_quilt_scale(PERIODIC, length=9, epsilon=0.5, method="approx") == 18.0


def test_eigengap_of_both_kinds():
    assert eigengap(SYMMETRIC.kernel(), np.array([0.5, 0.5])) == pytest.approx(2 * (1 - 0.4))
    cycle = CYCLE.kernel()
    assert eigengap(cycle, np.full(3, 1 / 3)) == pytest.approx(1 - np.sort(np.linalg.eigvals(cycle @ cycle.T).real)[-2])


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, CYCLE], ids=["symmetric", "skewed", "cycle"])
def test_the_quilt_keeps_its_promise(chain):
    for epsilon in (0.7, 2.0):
        mechanism = baselines.MarkovQuilt(length=4).calibrate(chain, csdp.Mean(), epsilon=epsilon)
        worst = max(series_leakage(chain, mechanism.scales[0], 4, tick) for tick in range(4))
        assert worst <= epsilon


def test_wasserstein_against_transport():
    """W_inf is the least d for which all mass can be moved by at most d."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        values = np.sort(rng.choice(20, 5, replace=False)).astype(float)
        p, q = rng.dirichlet(np.full(5, 0.5), 2)
        if rng.random() < 0.5:
            p[rng.integers(5)] = 0.0
            p /= p.sum()
        far = np.abs(values[:, None] - values[None, :])
        sums = np.vstack([np.kron(np.eye(5), np.ones(5)), np.kron(np.ones(5), np.eye(5))])
        for d in np.unique(far):
            bounds = [(0, None) if f <= d else (0, 0) for f in far.ravel()]
            if linprog(np.zeros(25), A_eq=sums, b_eq=np.concatenate([p, q]), bounds=bounds).status == 0:
                break
        assert quantile_gap(values, p, q) == d


def test_wasserstein_does_not_shrink_with_age():
    scales = [baselines.Wasserstein(age=age).calibrate(PAPER, csdp.Mean(), epsilon=1.0).scales[0] for age in (1, 3, 9)]
    assert scales == pytest.approx([0.5] * 3)  # one step of the answer, however little mass must move


def test_limits_and_reducible_chains_are_named():
    with pytest.raises(TooLargeError, match="at most 1,000 ticks"):
        baselines.markov_quilt_scale(SYMMETRIC, length=1001)
    stuck = csdp.CoupledChain([[1.0]], [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(NoStationaryLawError):
        baselines.markov_quilt_scale(stuck)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: baselines.markov_quilt_scale(PAPER), "2 sequences given; one expected"),
        (lambda: baselines.markov_quilt_scale(SYMMETRIC, method="x"), "method: 'x' given"),
        (lambda: baselines.markov_quilt_scale(SYMMETRIC, length=0), "length: 0 given"),
        (lambda: baselines.markov_quilt_scale(SYMMETRIC, epsilon=-1), "epsilon: -1 given"),
        (lambda: baselines.markov_quilt_scale(3), "chain: int given"),
    ],
)
def test_bad_input(ask, message):
    with pytest.raises(InputError, match=message):
        ask()
