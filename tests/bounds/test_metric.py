"""The metric programme: never below scipy's optimum, whatever the search finds, and hardly above it."""

import math
from unittest import mock

import numpy as np
import pytest
from scipy.optimize import linprog

from csdp import CoupledChain
from csdp.bounds import metric as rules
from csdp.bounds.loops import _rebuild
from csdp.bounds.metric import AgedPairs, FlowSolver, LawPairs


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
    random = np.random.default_rng(3)
    for n in (3, 6):
        metric = random.random((n, n)) * (1 - np.eye(n))
        limits, (p, q) = np.exp(metric), random.dirichlet(np.ones(n), size=2)
        q[0] = 0.0
        truth = math.expm1(programme(metric, p, q / q.sum()) - math.log(q.sum()))
        for _ in range(50):
            basis, flows = random.integers(0, n * n, size=n), random.exponential(0.2, size=n)
            assert _rebuild(limits, q, p - q, np.zeros(n), basis, flows) >= truth - 1e-9


def test_what_does_not_depend_on_the_noise_is_found_once() -> None:
    pairs = AgedPairs(CoupledChain(np.full((5, 5), 0.2), [[0.7, 0.3], [0.3, 0.7]]), ages=[1] * 5, adversary="informed")
    with mock.patch.object(rules, "_sort_thresholds", wraps=rules._sort_thresholds) as sort:
        low = pairs.profile(0.5)
        sorted_sets = sort.call_count
        assert pairs.profile(1.0) > low
        assert sort.call_count == sorted_sets > 0
