"""A component seen backwards in time: powers, profiles, and the cost of a query that is not a sum."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import oracle as o
from accountant.systems import follow
from csdp import CoupledChain, Max
from csdp.accountant.kernels import BackwardKernel, ProfileTable
from csdp.bounds.metric import FlowSolver, LawPairs
from csdp.plan import Plan

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.3, 0.7]])
BROKEN = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])


@pytest.mark.parametrize("alpha", [1e-6, 0.3, 2.0, 50.0])
def test_profiles_are_the_oracle_s(alpha: float) -> None:
    kernel = BackwardKernel(PAIR).power(1)
    profile = ProfileTable(kernel, relative=0.0).pairs(alpha)
    for x, y in np.ndindex(4, 4):
        assert profile[x, y] == pytest.approx(o.profile(kernel, [(x, y)], alpha), rel=1e-9, abs=1e-13)
        assert profile[x, y] >= o.profile(kernel, [(x, y)], alpha) - 4e-16  # the oracle's own rounding


def test_profiles_at_the_ends_of_alpha() -> None:
    """Nothing published tells nothing; everything published tells the log ratio, endless where a zero gives it away."""
    table = ProfileTable(BROKEN, relative=0.0)
    assert (table.pairs(0.0) == 0).all()
    whole = table.pairs(math.inf)
    assert whole[0, 1] == pytest.approx(math.log(2.5))
    assert whole[1, 0] == math.inf
    assert whole[1, 2] == pytest.approx(0.0, abs=2e-12)
    assert table.largest(math.inf) == math.inf


def test_two_laws_that_seem_equal_may_differ_by_their_rounding() -> None:
    """What rounding hides is charged where it tells most: at the rarest snapshot."""
    law = np.array([[0.9, 0.1]])
    metric = np.array([[0.0, 1.0], [1.0, 0.0]])
    for exponent in (0, -40):
        rows = LawPairs(law, law, np.zeros((1, 2)), np.array([1e-15, 1e-15]), exponent)
        assert FlowSolver(metric).bounds(rows)[0] == pytest.approx(1e-14 * 2.0**exponent, rel=1e-9, abs=0)


def programme(metric: np.ndarray, p: np.ndarray, q: np.ndarray) -> float:
    """The largest ln sum p g / sum q g within the limits of a metric, by scipy."""
    n, rows = len(p), []
    for w, v in zip(*np.nonzero(~np.eye(n, dtype=bool)), strict=True):
        rows.append(np.zeros(n))
        rows[-1][[w, v]] = 1.0, -math.exp(metric[w, v])
    found = linprog(-p, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=[q], b_eq=[1.0])
    return math.log(-found.fun)


@pytest.mark.parametrize(("n", "size", "above"), [(2, 0.5, 1e-7), (5, 6.0, 1e-7), (9, 1e-4, 0.1), (9, 0.5, 1e-7)])
def test_bounds_of_the_metric_programme_are_scipy_s(n: int, size: float, above: float) -> None:
    """Never below, and hardly above: laws with rare and impossible snapshots, limits that are no metric, and ties."""
    random = np.random.default_rng(n)
    metrics = [size * random.random((n, n)), size * np.abs(np.subtract.outer(np.arange(n) // 2, np.arange(n) // 2)) / n]
    for metric in metrics:
        np.fill_diagonal(metric, 0.0)
        laws = random.dirichlet(np.full(n, 0.3), size=4)
        laws[3, 0] = 0.0
        laws = laws / laws.sum(axis=1, keepdims=True)
        solver = FlowSolver(metric)
        for q in laws:
            rows = LawPairs(laws, np.broadcast_to(q, laws.shape), laws - q, np.full(n, 1e-15), 0)
            for p, bound in zip(laws, solver.bounds(rows), strict=True):
                true = programme(metric, p, q)
                assert true - 1e-9 <= bound <= true * (1 + above) + 1e-6 * size  # scipy's own tolerance, and ours


def test_far_apart_snapshots_keep_their_distance() -> None:
    """Limits beyond what a float holds: what they allow is the log ratio of the laws."""
    p, q = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
    for far in (80.0, 2000.0, math.inf):
        metric = np.where(np.eye(3, dtype=bool), 0.0, far)
        told = FlowSolver(metric).bounds(LawPairs(p, q, p - q, np.full(3, 1e-15), 0))[0]
        assert told == pytest.approx(math.log(2.5), rel=1e-6)
        assert told >= math.log(2.5)


def test_any_flows_prove_a_bound() -> None:
    """The search may end anywhere: what is rebuilt from any flows lies above all likelihoods within the limits."""
    from csdp.bounds.loops import _rebuild

    random = np.random.default_rng(3)
    for n in (3, 6):
        metric = random.random((n, n)) * (1 - np.eye(n))
        limits, (p, q) = np.exp(metric), random.dirichlet(np.ones(n), size=2)
        q[0] = 0.0
        truth = math.expm1(programme(metric, p, q / q.sum()) - math.log(q.sum()))
        for _ in range(50):
            basis, flows = random.integers(0, n * n, size=n), random.exponential(0.2, size=n)
            assert _rebuild(limits, q, p - q, np.zeros(n), basis, flows) >= truth - 1e-9


@pytest.mark.parametrize(
    ("flips", "steps"), [((0.3, 0.3), 7), ((0.01, 0.3), 1), ((1e-3, 2e-3), 500), ((0.999, 0.998), 64)]
)
def test_errors_of_powers_are_counted(flips: tuple[float, float], steps: int) -> None:
    """Against exact fractions: entries lie within the stated error, and no profile is below the true one."""
    p, q = (Fraction(flip) for flip in flips)
    alone = BackwardKernel(CoupledChain([[1.0]], [[1 - flips[0], flips[0]], [flips[1], 1 - flips[1]]]))
    stay = [(q + (1 - p - q) ** steps * p) / (p + q), (p + (1 - p - q) ** steps * q) / (p + q)]
    exact = [[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]]
    for (x, w), entry in np.ndenumerate(alone.power(steps)):
        assert abs(Fraction(float(entry)) - exact[x][w]) <= Fraction(alone.relative(steps)) * exact[x][w]
    for alpha in (1e-9, 0.5, 3.0):
        growth = Fraction(math.expm1(alpha))
        true = max((1 + growth * exact[x][w]) / (1 + growth * exact[1 - x][w]) for x in range(2) for w in range(2))
        assert alone.profile_table(steps).largest(alpha) >= math.log1p(float(true - 1)) * (1 - 1e-15)


@pytest.mark.parametrize("kind", ["metric", "scalar"])
def test_a_forgotten_history_does_not_come_back(kind: str) -> None:
    """Waiting longer than the chain remembers adds nothing, not even rounding."""
    accountant = follow(Plan(PAIR, Max(), 1, 0.5), kind)
    state = accountant.release(accountant.start(), 1)
    far = [accountant.release(state, 1 + wait) for wait in (10**3, 10**5, 10**9)]
    fresh = accountant.after(1).epsilon
    assert [accountant.leakage(one).epsilon for one in far] == pytest.approx([fresh] * 3, rel=1e-11)
