"""One reference test of each baseline: the numbers of its authors, its definition, or enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp
from study.baselines.dependent import correlations
from study.baselines.pufferfish import quantile_gap
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
    assert np.array(mechanism.details["coefficients"]) == pytest.approx(np.eye(3), abs=1e-12)
    assert mechanism.scales == pytest.approx((1.0,))
    assert mechanism.leakage("uninformed").value == pytest.approx(1.434, abs=5e-4)
    assert mechanism.leakage("uninformed").value > mechanism.epsilon
    assert correlations(chain) == pytest.approx(np.eye(3), abs=1e-12)
    zhu = baselines.CorrelatedDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert zhu.leakage("uninformed").value == pytest.approx(1.434, abs=5e-4)
    exact = baselines.ExactDependentDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert exact.leakage("uninformed").value == pytest.approx(1.0, rel=1e-9)
    bayesian = baselines.BayesianDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert bayesian.scales == pytest.approx((2.0,))
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
        leakage = truth(min(mechanism.scales), baseline.age, adversary)
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
        assert mechanism.scales[0] == pytest.approx(0.5 / level, rel=1e-9)
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


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, PAPER, THREE], ids=["symmetric", "skewed", "paper", "three"])
@pytest.mark.parametrize("length", [1, 30])
def test_budgets_keep_the_bound_and_use_it(chain, length):
    budgets = baselines.temporal_budgets(chain, bound=0.9, length=length)
    leakage = baselines.temporal_leakage(chain, budgets).tpl
    assert (leakage <= 0.9 * (1 + 1e-12)).all()
    assert leakage.max() >= 0.9 * (1 - 1e-6)
    even = baselines.temporal_budgets(chain, bound=0.9, length=length, allocation="uniform")
    assert budgets.sum() >= even.sum() * (1 - 1e-9)


@pytest.mark.parametrize("made", SUMS.values(), ids=SUMS)
@pytest.mark.parametrize("chain", [SKEWED, CYCLE], ids=["skewed", "cycle"])
def test_sums_of_answers_by_enumeration(made, chain):
    """All paths, outputs at the corners: the leakage is the largest over the ticks at which something is published."""
    mechanism = made.calibrate(chain, csdp.Mean(), epsilon=0.8)
    strategy, ready = made.rows()
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    window, values = strategy.shape[1], chain.values
    worst = 0.0
    for tick in sorted(set(ready.tolist())):
        rows = strategy[ready <= tick]
        logs, reads = {}, {}
        for path in itertools.product(range(chain.states), repeat=window):
            mass = law[path[0]] * math.prod(kernel[a, b] for a, b in itertools.pairwise(path)) / law[path[tick]]
            logs.setdefault(path[tick], []).append(math.log(mass))
            reads.setdefault(path[tick], []).append(rows @ values[list(path)])
        corners = [sorted({float(c[k]) for found in reads.values() for c in found}) for k in range(len(rows))]
        outputs = np.array(list(itertools.product(*corners)))
        density = [
            logsumexp(
                np.array(logs[x])[:, None]
                - np.abs(outputs[None] - np.array(reads[x])[:, None]).sum(axis=2) / mechanism.scales[0],
                axis=0,
            )
            for x in logs
        ]
        worst = max(worst, float(np.ptp(density, axis=0).max()))
    found = mechanism.leakage().value
    assert found is not None
    assert found == pytest.approx(worst, rel=1e-2 if mechanism.rounded else 1e-9)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED], ids=["symmetric", "skewed"])
def test_fourier_leakage_by_enumeration(chain, count):
    """All paths, and a fine grid of outputs: never above the corners, and met by them."""
    mechanism = baselines.Fourier(window=3, coefficients=count).calibrate(chain, csdp.Mean(), epsilon=1.2)
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    basis = np.array([[1.0, 1.0, 1.0] / np.sqrt(3), np.sqrt(2 / 3) * np.cos(2 * np.pi * np.arange(3) / 3)])[:count]
    points = [np.linspace(-2, 3, 101)] * count
    outputs = np.array(list(itertools.product(*points)))
    rows = {0: [], 1: []}
    for path in itertools.product((0, 1), repeat=3):
        mass = law[path[0]] * kernel[path[0], path[1]] * kernel[path[1], path[2]] / law[path[2]]
        rows[path[2]].append(
            math.log(mass) - np.abs(outputs - basis @ np.array(path)).sum(axis=1) / mechanism.scales[0]
        )
    densities = [logsumexp(rows[x], axis=0) for x in (0, 1)]
    grid = float(np.abs(densities[0] - densities[1]).max())
    leakage = mechanism.leakage().value
    assert grid <= leakage * (1 + 5e-3)  # coefficients are rounded to a thousandth of the noise
    assert leakage == pytest.approx(grid, rel=2e-2)


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
