"""One reference test of each baseline: the numbers of its authors, its definition, or enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from study.baselines.dependent import correlations, pair_losses
from study.baselines.pufferfish import quantile_gap
from study.baselines.temporal import newest_bound
from study.baselines.windows import expiring_costs

import csdp
import oracle
from csdp.errors import InputError
from study import baselines

SYMMETRIC = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
CYCLE = csdp.CoupledChain([[1.0]], [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
PAPER = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
THREE = csdp.CoupledChain(
    [[0.6, 0.4], [0.3, 0.7]], [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], values=[0, 1, 3]
)
SUMS = {
    "tree": baselines.BinaryTree(window=2),
    "wavelet": baselines.HaarWavelet(window=2),
    "toeplitz": baselines.ToeplitzNoise(window=3),
    "banded": baselines.ToeplitzNoise(window=3, bands=2),
    "fourier": baselines.Fourier(window=3, coefficients=2),
}


def xor():
    law = np.zeros(8)
    for a, b in itertools.product((0, 1), repeat=2):
        law[4 * a + 2 * b + (a ^ b)] = 0.25
    return csdp.JointChain(np.tile(law, (8, 1)), states=2, sequences=3)


def test_pairwise_coefficients_are_no_guarantee():
    """x3 = x1 xor x2: every coefficient is 0, plain noise is used, and the truth is 1.434."""
    chain = xor()
    mechanism = baselines.DependentDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert pair_losses(chain, csdp.Sum(), 1.0) == pytest.approx(np.eye(3), abs=1e-12)
    assert mechanism.scale == pytest.approx(1.0)
    assert mechanism.leakage("uninformed").value == pytest.approx(1.434, abs=5e-4)
    assert mechanism.leakage("uninformed").value > mechanism.epsilon
    assert correlations(chain) == pytest.approx(np.eye(3), abs=1e-12)
    zhu = baselines.CorrelatedDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert zhu.leakage("uninformed").value == pytest.approx(1.434, abs=5e-4)
    exact = baselines.ExactDependentDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert exact.leakage("uninformed").value == pytest.approx(1.0, rel=1e-9)
    bayesian = baselines.BayesianDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert bayesian.scale == pytest.approx(2.0)
    with pytest.raises(InputError, match="norm inf"):
        baselines.InferentialPrivacy().calibrate(chain, csdp.Sum(), epsilon=1.0)


def random_chain(seed):
    rng = np.random.default_rng(seed)
    s, m = [(1, 2), (1, 3), (2, 2), (2, 3), (3, 2)][seed % 5]
    own = rng.uniform(0.3, 1.0)
    coupling = np.where(np.eye(s) > 0, own, (1 - own) / max(s - 1, 1)) if s > 1 else np.eye(1)
    rows = rng.dirichlet(np.full(m, rng.choice([0.3, 1.0, 4.0])), m)
    return csdp.CoupledChain(coupling, 0.98 * rows + 0.02 / m, values=np.sort(rng.choice(17, m, replace=False)) / 4)


@pytest.mark.parametrize("seed", range(20))
def test_guarantees_that_are_proven_hold(seed):
    """Leakage by enumeration, with the adversary that each guarantee speaks of, at what it was calibrated to."""
    chain = random_chain(seed)
    s, m = chain.sequences, chain.states
    epsilon = [0.3, 1.0, 3.0][seed % 3]
    delta = float(np.ptp(chain.values)) / s
    fvals = oracle.query_values("mean", s, m, chain.values)

    def truth(scale, age, adversary):
        B, law = oracle.aged_law(chain.kernel(), s, m, [age] * s)
        return oracle.exact_leakage(B, fvals, s, m, delta / scale, delta, adversary, law)

    refused: list[str] = []
    for baseline, adversary in (
        (baselines.LaplaceDP(), "informed"),
        (baselines.GroupDP(), "any"),
        (baselines.ExactDependentDP(), "uninformed"),
        (baselines.BayesianDP(), "any"),
        (baselines.InferentialPrivacy(), "uninformed"),
        (baselines.Wasserstein(), "uninformed"),
        (baselines.Wasserstein(age=2), "uninformed"),
        (baselines.MarkovQuilt(length=5), "any"),
        (baselines.TemporalBudgets(length=5), "any"),
    ):
        try:
            mechanism = baseline.calibrate(chain, csdp.Mean(), epsilon=epsilon)
        except InputError:
            refused.append(baseline.name)
            continue
        leakage = truth(mechanism.scale, baseline.age, adversary)
        assert leakage <= epsilon * (1 + 1e-9), baseline.name
        assert mechanism.leakage(adversary).value == pytest.approx(leakage, rel=1e-6, abs=1e-12)
        if baseline.name in {"ddp-exact", "bayesian"}:
            assert leakage == pytest.approx(epsilon, rel=1e-6)
    assert set(refused) <= {"inferential"}  # where influences are too strong for its theorem


def test_age_dependent_dp_is_what_its_formula_says():
    for p, q, age in ((0.3, 0.3, 2), (0.01, 0.3, 1), (0.2, 0.5, 4)):
        chain = csdp.CoupledChain(np.eye(2), [[1 - p, p], [q, 1 - q]])
        rest = abs(1 - p - q) ** age
        mechanism = baselines.AgeDP(age=age).calibrate(chain, csdp.Mean(), epsilon=0.4)
        level = math.log(1 + (math.exp(0.4) - 1) / rest)
        assert mechanism.scale == pytest.approx(0.5 / level, rel=1e-9)
        assert mechanism.leakage().value <= 0.4


def test_the_published_check_of_the_quilt():
    assert baselines.markov_quilt_scale(SYMMETRIC, length=100, epsilon=1.0) == pytest.approx(6.7236, abs=5e-5)
    approx = baselines.markov_quilt_scale(SYMMETRIC, length=100, epsilon=1.0, method="approx")
    assert approx == pytest.approx(15.572, abs=5e-4)


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


def test_the_published_check_of_temporal_leakage():
    leakage = baselines.temporal_leakage(SYMMETRIC, [1.0] * 200)
    assert leakage.bpl[1] - 1.0 == pytest.approx(0.37399, abs=5e-6)  # L(1)
    assert leakage.bpl.max() == pytest.approx(1.5261, abs=5e-5)
    assert leakage.tpl.max() == pytest.approx(2.0522, abs=5e-5)
    assert leakage.tpl == pytest.approx(leakage.bpl + leakage.fpl - 1.0)


@pytest.mark.parametrize("made", SUMS.values(), ids=SUMS)
def test_one_record_changes_the_coefficients_of_a_window_by_its_epsilon(made):
    """All pairs of windows that differ in one tick, rounding to the lattice of the noise included."""
    mechanism = made.calibrate(SKEWED, csdp.Mean(), epsilon=0.8)
    windows = np.array(list(itertools.product((0.0, 1.0), repeat=made.window)))
    coefficients = windows @ mechanism.strategy.T
    if mechanism.rounded:
        coefficients = np.round(coefficients / mechanism.step) * mechanism.step
    apart = np.abs(coefficients[:, None] - coefficients[None]).sum(axis=2) / mechanism.scales[0]
    one = np.abs(windows[:, None] - windows[None]).sum(axis=2) == 1
    assert apart[one].max() <= 0.8 * (1 + 1e-12)
    assert apart[one].max() >= 0.8 * (0.9 if made.name == "fourier" else 0.99)


@pytest.mark.parametrize(
    "rates", [(1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, 4.0), (3.0, 1.0, 0.2, 0.7), (1.0, 9.0, 9.0, 9.0)]
)
def test_what_a_record_costs_is_the_cheapest_way_to_hide_it_in_noise(rates):
    """Beside it a linear programme: noise of intervals that moves totals of ticks j to t by one, and none before."""
    window = 8
    inside, _ = baselines.BinaryTree(window=window).rows()
    price = np.array([rates[int(np.log2(size))] for size in inside.sum(axis=1)])
    costs = np.zeros((window, window))
    for j, t in itertools.product(range(window), repeat=2):
        seen = np.hstack([inside.T[: t + 1], -inside.T[: t + 1]])
        wanted = (np.arange(t + 1) >= j).astype(float)
        costs[j, t] = linprog(np.tile(price, 2), A_eq=seen, b_eq=wanted).fun
    by_age = [max(costs[j, min(j + d, window - 1)] for j in range(window)) for d in range(window)]
    assert expiring_costs(window, rates) == pytest.approx(by_age, abs=1e-9)


def random_mechanism(rng, size, ticks):
    """ln Pr(one output | path): all ticks speak for the same states, more or less, and pairs of ticks add their own."""
    side, found = rng.uniform(-1, 1, size), np.zeros((size,) * ticks)
    for t in range(ticks):
        one = rng.uniform(0.5, 1) * side + rng.uniform(-0.3, 0.3, size)
        found = found + one.reshape([size if k == t else 1 for k in range(ticks)])
    for a, b in itertools.combinations(range(ticks), 2):
        pair = rng.uniform(-1, 1, (size, size)) * rng.uniform(0, 0.2)
        found = found + pair.reshape([size if k in {a, b} else 1 for k in range(ticks)])
    return rng.uniform(0.1, 3) * found


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, CYCLE], ids=["symmetric", "skewed", "cycle"])
@pytest.mark.parametrize("window", [1, 3])
def test_any_stream_is_within_the_bound_of_its_privacy(chain, window):
    """Also one that looks at all ticks at once: the probability of an output, added up over all paths."""
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    ticks, mass = (5 if chain.size == 2 else 4), law
    for _ in range(ticks - 1):
        mass = mass[..., None] * kernel
    rng = np.random.default_rng(window)
    for _ in range(25):
        told = random_mechanism(rng, chain.size, ticks)
        blocks = [tuple(range(first, first + window)) for first in range(ticks - window + 1)]
        cost = max(float((told.max(axis=block) - told.min(axis=block)).max()) for block in blocks)
        given = np.log((mass * np.exp(told)).reshape(-1, chain.size).sum(axis=0) / law)
        assert np.ptp(given) <= newest_bound(chain, cost, window=window)
