"""Rivals against numbers of their authors and against enumeration that shares no code with them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp

import csdp
import oracle
from csdp import rivals
from csdp.errors import InputError, NoStationaryLawError, TooLargeError
from csdp.noise import Randomness
from csdp.rivals.dependent import correlations, influences
from csdp.rivals.pufferfish import eigengap, quantile_gap
from csdp.rivals.window import budgets_spent

SYMMETRIC = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
CYCLE = csdp.CoupledChain([[1.0]], [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
PERIODIC = csdp.CoupledChain([[1.0]], [[0.0, 1.0], [1.0, 0.0]])
PAPER = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
THREE = csdp.CoupledChain(
    [[0.6, 0.4], [0.3, 0.7]], [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], values=[0, 1, 3]
)


def xor():
    law = np.zeros(8)
    for a, b in itertools.product((0, 1), repeat=2):
        law[4 * a + 2 * b + (a ^ b)] = 0.25
    return csdp.JointChain(np.tile(law, (8, 1)), states=2, sequences=3)


# ---------------------------------------------------------------- Markov Quilt


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
    assert csdp.rivals.markov_quilt_scale(SYMMETRIC, length=100, epsilon=1.0) == pytest.approx(6.7236, abs=5e-5)
    approx = csdp.rivals.markov_quilt_scale(SYMMETRIC, length=100, epsilon=1.0, method="approx")
    assert approx == pytest.approx(15.572, abs=5e-4)


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, CYCLE], ids=["symmetric", "skewed", "cycle"])
@pytest.mark.parametrize(("length", "epsilon"), [(1, 1.0), (2, 0.5), (7, 1.0), (16, 3.0), (16, 20.0)])
def test_quilts_by_definition(chain, length, epsilon):
    expected = plain_quilts(chain.kernel(), length, epsilon)
    assert rivals.markov_quilt_scale(chain, length=length, epsilon=epsilon) == pytest.approx(expected, rel=1e-10)
    approx = rivals.markov_quilt_scale(chain, length=length, epsilon=epsilon, method="approx")
    assert approx >= expected * (1 - 1e-12)


def test_a_chain_that_never_forgets_is_one_group():
    assert rivals.markov_quilt_scale(PERIODIC, length=9, epsilon=0.5) == 18.0
    assert rivals.markov_quilt_scale(PERIODIC, length=9, epsilon=0.5, method="approx") == 18.0


def test_eigengap_of_both_kinds():
    assert eigengap(SYMMETRIC.kernel(), np.array([0.5, 0.5])) == pytest.approx(2 * (1 - 0.4))
    cycle = CYCLE.kernel()
    assert eigengap(cycle, np.full(3, 1 / 3)) == pytest.approx(1 - np.sort(np.linalg.eigvals(cycle @ cycle.T).real)[-2])


def series_leakage(chain, scale, length, tick):
    """Exact log ratio of a whole noisy series given the state of one tick: every path, every corner output."""
    kernel, law = chain.kernel(), oracle.stationary(chain.kernel())
    values = chain.values
    n = len(law)
    rows = []
    outputs = np.array(list(itertools.product(values, repeat=length)))
    for x in range(n):
        terms = []
        for path in itertools.product(range(n), repeat=length):
            if path[tick] != x:
                continue
            mass = oracle.safe_log(law[path[0]]) + sum(
                oracle.safe_log(kernel[a, b]) for a, b in itertools.pairwise(path)
            )
            terms.append(mass - np.abs(outputs - values[list(path)]).sum(axis=1) / scale)
        rows.append(logsumexp(terms, axis=0) - math.log(law[x]))
    return max(float((a - b).max()) for a, b in itertools.permutations(rows, 2))


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, CYCLE], ids=["symmetric", "skewed", "cycle"])
def test_the_quilt_keeps_its_promise(chain):
    for epsilon in (0.7, 2.0):
        mechanism = rivals.MarkovQuilt(length=4).calibrate(chain, csdp.Mean(), epsilon=epsilon)
        worst = max(series_leakage(chain, mechanism.scales[0], 4, tick) for tick in range(4))
        assert worst <= epsilon


# ---------------------------------------------------------------- temporal privacy leakage


def test_the_published_check_of_temporal_leakage():
    found = rivals.temporal_leakage(SYMMETRIC, [1.0] * 200)
    assert found.bpl[1] - 1.0 == pytest.approx(0.37399, abs=5e-6)  # L(1)
    assert found.bpl.max() == pytest.approx(1.5261, abs=5e-5)
    assert found.tpl.max() == pytest.approx(2.0522, abs=5e-5)
    assert found.tpl == pytest.approx(found.bpl + found.fpl - 1.0)


@pytest.mark.parametrize("tick", range(4))
def test_temporal_leakage_is_what_a_binary_series_tells(tick):
    found = rivals.temporal_leakage(SYMMETRIC, [0.8] * 4)
    assert found.tpl[tick] == pytest.approx(series_leakage(SYMMETRIC, 1 / 0.8, 4, tick), rel=1e-9)
    skewed = rivals.temporal_leakage(SKEWED, [0.8] * 4)
    assert skewed.tpl[tick] >= series_leakage(SKEWED, 1 / 0.8, 4, tick) * (1 - 1e-9)
    cycle = rivals.temporal_leakage(CYCLE, [0.8] * 4)  # values 0, 1, 2: a tick costs 0.8 between the ends
    assert cycle.tpl[tick] >= series_leakage(CYCLE, 2 / 0.8, 4, tick) * (1 - 1e-9)


def test_large_costs_do_not_overflow():
    found = rivals.temporal_leakage(SYMMETRIC, [1e6] * 5)
    assert np.isfinite(found.tpl).all()
    assert found.tpl.max() == pytest.approx(1e6 + 2 * math.log(0.7 / 0.3), rel=1e-6)
    assert rivals.temporal_leakage(PERIODIC, [1e3] * 5).tpl == pytest.approx([5e3] * 5)


@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED, PAPER, THREE], ids=["symmetric", "skewed", "paper", "three"])
@pytest.mark.parametrize("length", [1, 2, 3, 30])
def test_budgets_keep_the_bound_and_use_it(chain, length):
    budgets = rivals.temporal_budgets(chain, bound=0.9, length=length)
    found = rivals.temporal_leakage(chain, budgets).tpl
    assert (found <= 0.9 * (1 + 1e-12)).all()
    assert found.max() >= 0.9 * (1 - 1e-6)
    even = rivals.temporal_budgets(chain, bound=0.9, length=length, allocation="uniform")
    assert budgets.sum() >= even.sum() * (1 - 1e-9)


def test_a_series_that_never_forgets_shares_the_bound():
    assert rivals.temporal_budgets(PERIODIC, bound=1.0, length=8) == pytest.approx([1 / 8] * 8)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: rivals.temporal_leakage(SYMMETRIC, []), "epsilons"),
        (lambda: rivals.temporal_leakage(SYMMETRIC, [-1.0]), "0 or more"),
        (lambda: rivals.temporal_leakage(SYMMETRIC, [[1.0]]), "one per tick"),
        (lambda: rivals.temporal_leakage(SYMMETRIC, ["a"]), "one non-negative number per tick"),
        (lambda: rivals.temporal_leakage("chain", [1.0]), "chain: str given"),
        (lambda: rivals.temporal_budgets(SYMMETRIC, bound=0, length=3), "bound: 0 given"),
        (lambda: rivals.temporal_budgets(SYMMETRIC, bound=1.0, length=0), "length: 0 given"),
        (lambda: rivals.temporal_budgets(SYMMETRIC, bound=1.0, length=3, allocation="x"), "allocation: 'x' given"),
        (lambda: rivals.markov_quilt_scale(PAPER), "2 sequences given; this is for one"),
        (lambda: rivals.markov_quilt_scale(SYMMETRIC, method="x"), "method: 'x' given"),
        (lambda: rivals.markov_quilt_scale(SYMMETRIC, length=0), "length: 0 given"),
        (lambda: rivals.markov_quilt_scale(SYMMETRIC, epsilon=-1), "epsilon: -1 given"),
        (lambda: rivals.markov_quilt_scale(3), "chain: int given"),
        (lambda: rivals.Fourier(window=3, coefficients=4).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "has 3"),
        (lambda: rivals.Fourier(level="x").calibrate(PAPER, csdp.Mean(), epsilon=1.0), "level: 'x' given"),
        (lambda: rivals.Pegasus(share=1.0).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "share: 1.0 given"),
        (lambda: rivals.WindowAbsorption(window=0).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "window: 0 given"),
        (lambda: rivals.WindowAbsorption().calibrate(PAPER, csdp.Mean(), scale=1.0), "no one scale; give epsilon="),
        (lambda: rivals.CorrelatedDP(threshold=2.0).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "threshold: 2.0 given"),
        (lambda: rivals.AgeDP(age=-1).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "age: -1 given"),
        (lambda: rivals.ExactDependentDP(age=3).calibrate(PAPER, csdp.Mean(), epsilon=9.0), "without any noise"),
        (
            lambda: rivals.DependentDP().calibrate(PAPER, csdp.Custom(lambda v: float(v.max())), epsilon=1.0),
            "has no part per record",
        ),
    ],
)
def test_bad_input(ask, message):
    with pytest.raises(InputError, match=message):
        ask()


def test_limits_and_reducible_chains_are_named():
    with pytest.raises(TooLargeError, match="at most 1,000 ticks"):
        rivals.markov_quilt_scale(SYMMETRIC, length=1001)
    stuck = csdp.CoupledChain([[1.0]], [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(NoStationaryLawError):
        rivals.markov_quilt_scale(stuck)
    giant = csdp.CoupledChain(np.full((9, 9), 1 / 9), [[0.7, 0.3], [0.3, 0.7]])
    with pytest.raises(TooLargeError, match="at most 256"):
        rivals.temporal_leakage(giant, [1.0])


# ---------------------------------------------------------------- records of one snapshot


def test_pairwise_coefficients_are_no_guarantee():
    """x3 = x1 xor x2: every coefficient is 0, plain noise is used, and the truth is 1.434."""
    chain = xor()
    mechanism = rivals.DependentDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert np.array(mechanism.details["coefficients"]) == pytest.approx(np.eye(3), abs=1e-12)
    assert mechanism.scales == pytest.approx((1.0,))
    assert mechanism.leakage("uninformed").value == pytest.approx(1.434, abs=5e-4)
    assert mechanism.leakage("uninformed").value > mechanism.epsilon
    assert correlations(chain) == pytest.approx(np.eye(3), abs=1e-12)
    zhu = rivals.CorrelatedDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert zhu.leakage("uninformed").value == pytest.approx(1.434, abs=5e-4)
    exact = rivals.ExactDependentDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert exact.leakage("uninformed").value == pytest.approx(1.0, rel=1e-9)
    bayesian = rivals.BayesianDP().calibrate(chain, csdp.Sum(), epsilon=1.0)
    assert bayesian.scales == pytest.approx((2.0,))
    with pytest.raises(InputError, match="norm inf"):
        rivals.InferentialPrivacy().calibrate(chain, csdp.Sum(), epsilon=1.0)


@pytest.mark.parametrize("chain", [PAPER, THREE], ids=["paper", "three"])
def test_liu_by_definition(chain):
    """rho_ij from the law of the snapshot, sums over all records, and the fixed point in the scale."""
    epsilon = 0.9
    mechanism = rivals.DependentDP().calibrate(chain, csdp.Mean(), epsilon=epsilon)
    b = mechanism.scales[0]
    s, m, values = chain.sequences, chain.states, chain.values / chain.sequences
    law, snaps = oracle.stationary(chain.kernel()), oracle.snapshots(chain.sequences, chain.states)
    width = values.max() - values.min()
    rho = np.eye(s)
    for i, j in itertools.permutations(range(s), 2):
        given = np.zeros((m, m))
        for p, x in zip(law, snaps, strict=True):
            given[x[i], x[j]] += p
        given /= given.sum(axis=1, keepdims=True)
        density = np.array(
            [[sum(given[a, c] * math.exp(-abs(y - values[c]) / b) for c in range(m)) for y in values] for a in range(m)]
        )
        rho[i, j] = b / width * np.log(density.max(axis=0) / density.min(axis=0)).max()
    assert (rho.sum(axis=1) * width).max() / epsilon == pytest.approx(b, rel=1e-9)
    assert np.array(mechanism.details["coefficients"]) == pytest.approx(rho, abs=1e-9)


@pytest.mark.parametrize("chain", [PAPER, THREE], ids=["paper", "three"])
def test_correlations_and_influences_by_definition(chain):
    law, snaps = oracle.stationary(chain.kernel()), np.array(oracle.snapshots(chain.sequences, chain.states))
    values = chain.values[snaps]
    mean = law @ values
    cov = (values - mean).T @ ((values - mean) * law[:, None])
    pearson = cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    assert correlations(chain) == pytest.approx(pearson, abs=1e-10)
    m = chain.states
    table = law.reshape(m, m)
    gamma = np.zeros((2, 2))
    for i in range(2):
        rows = (table if i == 1 else table.T) / (table if i == 1 else table.T).sum(axis=1, keepdims=True)
        spread = [abs(math.log(p / q)) for a, b in itertools.permutations(rows, 2) for p, q in zip(a, b, strict=True)]
        gamma[i, 1 - i] = 0.5 * max(spread)
    assert influences(chain) == pytest.approx(gamma, abs=1e-10)
    norm = np.linalg.norm(gamma, 2)
    if norm < 1:
        nu = 2 * np.linalg.inv(np.eye(2) - gamma).sum(axis=1).max() * np.ptp(chain.values) / 2
        found = rivals.InferentialPrivacy().calibrate(chain, csdp.Mean(), epsilon=0.5)
        assert found.scales[0] == pytest.approx(nu / 0.5, rel=1e-9)


def test_strong_influences_are_refused():
    tight = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[0.999, 0.001], [0.001, 0.999]])
    with pytest.raises(InputError, match=r"norm \d.*needs it below 1"):
        rivals.InferentialPrivacy().calibrate(tight, csdp.Mean(), epsilon=1.0)


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
    for rival, adversary in (
        (rivals.LaplaceDP(), "informed"),
        (rivals.GroupDP(), "any"),
        (rivals.ExactDependentDP(), "uninformed"),
        (rivals.BayesianDP(), "any"),
        (rivals.InferentialPrivacy(), "uninformed"),
        (rivals.Wasserstein(), "uninformed"),
        (rivals.Wasserstein(age=2), "uninformed"),
        (rivals.MarkovQuilt(length=5), "any"),
        (rivals.TemporalBudgets(length=5), "any"),
    ):
        try:
            mechanism = rival.calibrate(chain, csdp.Mean(), epsilon=epsilon)
        except InputError:
            refused.append(rival.name)
            continue
        found = truth(min(mechanism.scales), rival.age, adversary)
        assert found <= epsilon * (1 + 1e-9), rival.name
        assert mechanism.leakage(adversary).value == pytest.approx(found, rel=1e-6, abs=1e-12)
        if rival.name in {"ddp-exact", "bayesian"}:
            assert found == pytest.approx(epsilon, rel=1e-6)
    assert set(refused) <= {"inferential"}  # where influences are too strong for its theorem


def test_age_dependent_dp_is_what_its_formula_says():
    for p, q, age in ((0.3, 0.3, 2), (0.01, 0.3, 1), (0.2, 0.5, 4)):
        chain = csdp.CoupledChain(np.eye(2), [[1 - p, p], [q, 1 - q]])
        rest = abs(1 - p - q) ** age
        mechanism = rivals.AgeDP(age=age).calibrate(chain, csdp.Mean(), epsilon=0.4)
        level = math.log(1 + (math.exp(0.4) - 1) / rest)
        assert mechanism.scales[0] == pytest.approx(0.5 / level, rel=1e-9)
        assert mechanism.leakage().value <= 0.4


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
    scales = [rivals.Wasserstein(age=age).calibrate(PAPER, csdp.Mean(), epsilon=1.0).scales[0] for age in (1, 3, 9)]
    assert scales == pytest.approx([0.5] * 3)  # one step of the answer, however little mass must move


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("chain", [SYMMETRIC, SKEWED], ids=["symmetric", "skewed"])
def test_fourier_leakage_by_enumeration(chain, count):
    """All paths, and a fine grid of outputs: never above the corners, and met by them."""
    mechanism = rivals.Fourier(window=3, coefficients=count).calibrate(chain, csdp.Mean(), epsilon=1.2)
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
    found = mechanism.leakage().value
    assert grid <= found * (1 + 5e-3)  # coefficients are rounded to a thousandth of the noise
    assert found == pytest.approx(grid, rel=2e-2)


def test_fourier_errors_against_simulation():
    mechanism = rivals.Fourier(window=4, coefficients=2).calibrate(PAPER, csdp.Mean(), epsilon=2.0)
    states = np.concatenate([PAPER.simulate(4, seed=seed) for seed in range(4000)])
    out = mechanism.release(states, Randomness.from_key(bytes(32)))[3::4, 0]
    truth = PAPER.values[states].mean(axis=1)[3::4]
    errors = mechanism.errors()
    assert ((out - truth) ** 2).mean() == pytest.approx(errors.raw, rel=0.08)
    coefficients = mechanism.trace(states, Randomness.from_key(bytes(32))).noisy[:, :, 0]
    design = np.column_stack([np.ones(len(truth)), coefficients])
    fitted = design @ np.linalg.lstsq(design, truth, rcond=None)[0]
    assert ((fitted - truth) ** 2).mean() == pytest.approx(errors.linear, rel=0.05)


def test_fourier_keeps_everything_with_all_coefficients():
    mechanism = rivals.Fourier(window=6, coefficients=6).calibrate(PAPER, csdp.Mean(), epsilon=1e6)
    states = PAPER.simulate(12, seed=1)
    out = mechanism.release(states, Randomness.secure())
    assert out[:, 0] == pytest.approx(PAPER.values[states].mean(axis=1), abs=1e-3)


def test_unknown_leakage_is_said():
    wide = rivals.Fourier(window=40, coefficients=3).calibrate(PAPER, csdp.Mean(), epsilon=1.0)
    assert wide.leakage().value is None
    assert "not computed" in wide.leakage().how
    assert wide.lifetime(40).value is None
    assert rivals.Pegasus().calibrate(PAPER, csdp.Mean(), epsilon=1.0).leakage().value is None


@pytest.mark.parametrize("scheme", ["distribution", "absorption"])
@pytest.mark.parametrize("window", [1, 3, 10])
def test_no_window_spends_more_than_half(scheme, window):
    """w-event: the other half goes to the dissimilarities, epsilon / 2w a tick."""
    rng = np.random.default_rng(window)
    sums = []
    for chance in (0.1, 0.5, 1.0):
        spent = budgets_spent(scheme, epsilon=1.0, window=window, ticks=200, publish=lambda t: rng.random() < chance)  # noqa: B023 - called at once
        sums += [spent[t : t + window].sum() for t in range(200 - window + 1)]
    assert 0.2 < max(sums) <= 0.5 * (1 + 1e-12)


def test_w_event_repeats_until_the_answer_moves():
    chain = csdp.CoupledChain(np.eye(2), [[0.99, 0.01], [0.01, 0.99]])
    states = np.zeros((30, 2), dtype=int)
    states[15:] = 1
    for rival in (rivals.WindowDistribution(window=3), rivals.WindowAbsorption(window=3)):
        out = rival.calibrate(chain, csdp.Mean(), epsilon=1e4).release(states, Randomness.from_key(bytes(32)))[:, 0]
        assert out[:15] == pytest.approx(np.zeros(15), abs=0.05)
        assert out[19:] == pytest.approx(np.ones(11), abs=0.05)


@pytest.mark.parametrize(
    ("name", "epsilon", "slack"), [("w-event-bd", 40.0, 0.15), ("w-event-ba", 20.0, 0.08), ("pegasus", 2.0, 0.08)]
)
def test_simulated_errors_are_those_of_real_releases(name, epsilon, slack):
    """Lattice noise from a release's own source, on other paths: the same error, raw and after a fitted line."""
    chain = csdp.CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    made = rivals.Pegasus() if name == "pegasus" else type(rivals.get(name))(window=2)
    mechanism = made.calibrate(chain, csdp.Mean(), epsilon=epsilon)
    states = chain.simulate(6000, seed=5)
    out = mechanism.release(states, Randomness.from_key(bytes(range(32))))[:, 0]
    truth = chain.values[states[:, 0]]
    errors = mechanism.errors()
    assert ((out - truth) ** 2).mean() == pytest.approx(
        errors.raw, rel=0.2
    )  # rare wide noise of a spent window dominates
    share = 1 - np.corrcoef(out, truth)[0, 1] ** 2
    assert share * errors.no_data == pytest.approx(errors.linear, rel=slack)


def test_pegasus_groups_what_is_alike():
    chain = csdp.CoupledChain(np.eye(2), [[0.99, 0.01], [0.01, 0.99]])
    states = np.zeros((400, 2), dtype=int)
    states[200:] = 1
    mechanism = rivals.Pegasus(share=0.05).calibrate(chain, csdp.Mean(), epsilon=40.0)
    run = mechanism.trace(states, Randomness.from_key(bytes(32)))
    smooth, noisy = run.values[:, 0], run.noisy[:, 0]
    assert np.abs(smooth[50:200]).mean() < 0.3 * np.abs(noisy[50:200]).mean()
    assert smooth[260:].mean() == pytest.approx(1.0, abs=0.1)  # the step ends a group
