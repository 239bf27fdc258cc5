"""Baselines that look at one snapshot: against their definitions and enumeration, and the known hole of pairs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import csdp
import oracle
from csdp import baselines
from csdp.baselines.dependent import correlations, influences
from csdp.baselines.laplace import LaplaceBaseline
from csdp.errors import InputError

from baselines.chains import PAPER, THREE  # isort: skip


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


@pytest.mark.parametrize("chain", [PAPER, THREE], ids=["paper", "three"])
def test_liu_by_definition(chain):
    """rho_ij from the law of the snapshot, sums over all records, and the fixed point in the scale."""
    epsilon = 0.9
    mechanism = baselines.DependentDP().calibrate(chain, csdp.Mean(), epsilon=epsilon)
    b = mechanism.scales[0]
    s, m, values = chain.sequences, chain.states, chain.values / chain.sequences
    law, snaps = oracle.stationary(chain.kernel()), oracle.snapshots(chain.sequences, chain.states)
    width = values.max() - values.min()
    rho = np.eye(s)
    for i, j in itertools.permutations(range(s), 2):
        conditional = np.zeros((m, m))
        for p, x in zip(law, snaps, strict=True):
            conditional[x[i], x[j]] += p
        conditional /= conditional.sum(axis=1, keepdims=True)
        density = np.array(
            [
                [sum(conditional[a, c] * math.exp(-abs(y - values[c]) / b) for c in range(m)) for y in values]
                for a in range(m)
            ]
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
        mechanism = baselines.InferentialPrivacy().calibrate(chain, csdp.Mean(), epsilon=0.5)
        assert mechanism.scales[0] == pytest.approx(nu / 0.5, rel=1e-9)


def test_strong_influences_are_refused():
    tight = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[0.999, 0.001], [0.001, 0.999]])
    with pytest.raises(InputError, match=r"norm \d.*needs it below 1"):
        baselines.InferentialPrivacy().calibrate(tight, csdp.Mean(), epsilon=1.0)


def test_a_baseline_without_a_formula_cannot_be_made():
    with pytest.raises(TypeError, match="nominal"):
        LaplaceBaseline()


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


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: baselines.CorrelatedDP(threshold=2.0).calibrate(PAPER, csdp.Mean(), epsilon=1.0),
            "threshold: 2.0 given",
        ),
        (
            lambda: baselines.CorrelatedDP(threshold="x").calibrate(PAPER, csdp.Mean(), epsilon=1.0),
            "threshold: 'x' given",
        ),
        (lambda: baselines.AgeDP(age=-1).calibrate(PAPER, csdp.Mean(), epsilon=1.0), "age: -1 given"),
        (lambda: baselines.ExactDependentDP(age=3).calibrate(PAPER, csdp.Mean(), epsilon=9.0), "without any noise"),
        (
            lambda: baselines.DependentDP().calibrate(PAPER, csdp.Custom(lambda v: float(v.max())), epsilon=1.0),
            "has no dependence coefficients",
        ),
    ],
)
def test_bad_input(ask, message):
    with pytest.raises(InputError, match=message):
        ask()
