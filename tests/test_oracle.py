"""The oracle against itself, done another way."""

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp

import oracle as o
import oracle_continual as oc
from reference_values import T3, T21, T, binary, columns, pair


def random_chain(rng: np.random.Generator, s: int, m: int, zeros: float = 0.0):
    coupling = rng.dirichlet(np.full(s, 0.7), size=s)
    t = rng.dirichlet(np.full(m, 0.7), size=(s, s, m))
    keep = np.maximum(rng.random(t.shape) >= zeros, np.eye(m)[rng.integers(m, size=(s, s, m))])
    t = t * keep
    return coupling, t / t.sum(axis=-1, keepdims=True)


def test_the_oracle_is_independent_of_the_library():
    for module in (o, oc):
        tree = ast.parse(Path(module.__file__).read_text())
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "csdp" for name in names)


def test_joint_kernel_by_hand():
    kernel = o.joint_kernel(*T3)
    to_first = 0.6 * T[0, 1] + 0.4 * T21[2, 1]
    to_second = 0.3 * T[0, 2] + 0.7 * T[2, 2]
    assert kernel[2, 5] == pytest.approx(to_first * to_second, rel=1e-14)  # (0, 2) -> (1, 2)
    assert kernel.sum(axis=1) == pytest.approx(np.ones(9), rel=1e-14)


def test_stationary_by_fractions_and_least_squares():
    skewed = binary(0.01, 0.3)
    p, q = Fraction(skewed[0, 1]), Fraction(skewed[1, 0])
    assert o.stationary(skewed) == pytest.approx([float(q / (p + q)), float(p / (p + q))], rel=1e-15)
    kernel = o.joint_kernel(*T3)
    system = np.vstack([kernel.T - np.eye(9), np.ones(9)])
    solved = np.linalg.lstsq(system, np.r_[np.zeros(9), 1.0])[0]
    assert o.stationary(kernel) == pytest.approx(solved, rel=1e-11)


def test_stationary_of_transient_states_is_exactly_zero():
    assert o.stationary([[0.5, 0.5, 0], [0, 0.2, 0.8], [0, 0.6, 0.4]])[0] == 0
    with pytest.raises(ValueError, match="several"):
        o.stationary(np.eye(2))


@pytest.mark.parametrize(
    ("s", "m", "ages"), [(1, 3, (3,)), (2, 2, (1, 3)), (2, 2, (0, 2)), (2, 3, (2, 1)), (3, 2, (2, 0, 1))]
)
@pytest.mark.parametrize("start", ["stationary", "random", "point"])
def test_aged_law_agrees_with_path_enumeration(s, m, ages, start):
    rng = np.random.default_rng(7)
    kernel = o.joint_kernel(*random_chain(rng, s, m, zeros=0.3 if start == "point" else 0.0))
    initial = {"stationary": None, "random": rng.dirichlet(np.ones(m**s)), "point": np.eye(m**s)[0]}[start]
    B, law = o.aged_law(kernel, s, m, ages, initial)
    B2, law2 = o.aged_law_paths(kernel, s, m, ages, initial)
    np.testing.assert_allclose(B, B2, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(law, law2, rtol=1e-12, atol=1e-15)
    assert np.array_equal(np.isnan(B).any(axis=1), law == 0)


def test_query_values_and_sensitivities():
    v = [0.0, 1.0, 5.0]
    z = o.snapshots(2, 3).index((1, 2))
    assert o.query_values("mean", 2, 3, v)[z] == (3.0,)
    assert o.query_values("sum", 2, 3, v)[z] == (6.0,)
    assert o.query_values("max", 2, 3, v)[z] == (5.0,)
    assert o.query_values("min", 2, 3, v)[z] == (1.0,)
    assert o.query_values("count", 2, 3, v, state=2)[z] == (1.0,)
    assert o.query_values("histogram", 2, 3, v)[z] == (0.0, 1.0, 1.0)
    assert o.query_values("identity", 2, 3, v)[z] == (1.0, 5.0)
    assert o.query_values("linear", 2, 3, v, weights=[2, -1])[z] == (-3.0,)
    with pytest.raises(ValueError, match="median"):
        o.query_values("median", 2, 3, v)
    expected = {"mean": (5 / 3, 1, 2, 3), "max": (5, 1, 1, 1), "min": (5, 1, 1, 1), "histogram": (2, 1, 2, 3)}
    expected |= {"identity": (5, 1, 2, 3), "count": (1, 1, 2, 3)}
    for name, (s1, *d) in expected.items():
        f = o.query_values(name, 3, 3, v, state=1)
        assert [o.sensitivity(f, 3, 3, k) / s1 for k in (1, 2, 3)] == pytest.approx(d)
    f = o.query_values("linear", 2, 3, v, weights=[2, -1])
    assert [o.sensitivity(f, 2, 3, k) for k in (1, 2)] == [10, 15]


@pytest.mark.parametrize("adversary", ["informed", "uninformed", "any"])
@pytest.mark.parametrize(("query", "points"), [("mean", 4001), ("max", 4001), ("identity", 81), ("histogram", 21)])
def test_the_finite_maximum_is_the_sup(query, points, adversary):
    f = o.query_values(query, 2, 3, range(3))
    s1 = o.sensitivity(f, 2, 3, 1)
    B, law = o.aged_law(o.joint_kernel(*T3), 2, 3, (1, 2))
    exact = o.exact_leakage(B, f, 2, 3, 1.3, s1, adversary, law)
    # margin 1 puts the values on the grid, 0.987 beside them
    assert o.dense_grid_leakage(B, f, 2, 3, 1.3, s1, adversary, law, points) == pytest.approx(exact, rel=1e-12)
    beside = o.dense_grid_leakage(B, f, 2, 3, 1.3, s1, adversary, law, points - 1, margin=0.987)
    assert exact * 0.8 < beside <= exact * (1 + 1e-12)


def test_adversary_rows_by_direct_conditioning():
    B, law = o.aged_law(o.joint_kernel(*T3), 2, 3, (1, 1))
    rows, pairs, labels = o.adversary_rows(B, law, 2, 3, "uninformed")
    at = labels.index((1, {1: 2}))
    assert rows[at] == pytest.approx(law[[2, 5, 8]] @ B[[2, 5, 8]] / law[[2, 5, 8]].sum(), rel=1e-14)
    assert all(labels[n][0] == labels[p][0] for n, p in pairs)
    assert len(pairs) == 2 * 3 * 2
    assert len(o.adversary_rows(B, law, 2, 3, "any")[1]) == 12 + len(o.neighbour_pairs(2, 3))


@pytest.mark.parametrize("seed", range(12))
def test_order_of_bounds_on_random_chains(seed):
    rng = np.random.default_rng(seed)
    s, m = [(1, 3), (2, 2), (2, 3), (3, 2)][seed % 4]
    coupling, t = random_chain(rng, s, m)
    ages = tuple(int(a) for a in rng.integers(1, 4, size=s))
    query = ["mean", "max", "histogram", "identity"][seed % 3]
    got = columns(coupling, t, ages, float(rng.uniform(0.1, 5)), query)
    slack = 1e-9
    assert got["exact"] <= got["profile"] + slack
    assert got["profile"] <= min(got["two-point"], got["contraction"], got["freshness"]) + slack
    assert got["two-point"] <= got["loose"] + slack
    assert got["any"] >= max(got["exact"], got["uninformed"])
    assert got["uninformed"] <= np.tanh(got["lineage"] / 4) * got["alpha"] + slack
    assert got["any"] <= o.lineage_uninformed(coupling, t, 1) + slack


@pytest.mark.parametrize("alpha", [0.01, 1.0, 30.0, 2000.0])
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_profile_by_subsets_by_sorting_and_by_programme(alpha, zeros):
    rng = np.random.default_rng(3)
    rows = rng.dirichlet(np.ones(9), size=3) * (rng.random((3, 9)) >= zeros)
    rows /= rows.sum(axis=1, keepdims=True)
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    assert o.profile_sorted(rows, pairs, alpha) == pytest.approx(o.profile_subsets(rows, pairs, alpha), rel=1e-12)
    if alpha <= 1:
        best = 0.0
        for a, b in pairs:  # 1 <= g/h <= e^alpha, q.g = 1
            limits = np.vstack([np.c_[-np.eye(9), np.ones(9)], np.c_[np.eye(9), np.full(9, -np.exp(alpha))]])
            found = linprog(np.r_[-rows[a], 0], A_ub=limits, b_ub=np.zeros(18), A_eq=[np.r_[rows[b], 0]], b_eq=[1])
            best = max(best, np.log(-found.fun))
        assert o.profile_subsets(rows, pairs, alpha) == pytest.approx(best, abs=1e-8)


def test_large_epsilon_stays_finite_and_meets_freshness():
    """Without noise the identity query shows z itself, so exact tends to freshness."""
    for adversary in ("informed", "uninformed", "any"):
        B, law = o.aged_law(o.joint_kernel(*T3), 2, 3, (1, 2))
        f = o.query_values("identity", 2, 3, range(3))
        rows, pairs, _ = o.adversary_rows(B, law, 2, 3, adversary)
        got = o.exact_leakage(B, f, 2, 3, 1000.0, 2.0, adversary, law)
        assert got == pytest.approx(o.freshness(rows, pairs), rel=1e-12)
    assert o.loose(0.3, 1000.0) == pytest.approx(1000 + np.log(0.3), rel=1e-14)
    assert o.two_point(0.3, np.inf, 5.0) == pytest.approx(o.loose(0.3, 5.0), rel=1e-14)
    assert o.two_point(0.0, 0.0, 5.0) == 0


def test_age_zero_is_the_plain_mechanism():
    f = o.query_values("mean", 2, 2, [0, 1])
    B, law = o.aged_law(o.joint_kernel(pair(0.75), binary(0.3, 0.3)), 2, 2, (0, 0))
    assert np.array_equal(B, np.eye(4))
    assert o.exact_leakage(B, f, 2, 2, 1.7, 0.5, "informed", law) == pytest.approx(1.7, rel=1e-14)
    pairs = o.neighbour_pairs(2, 2, law)
    assert o.freshness(B, pairs) == np.inf
    assert o.total_variation(B, pairs) == 1


def test_impossible_snapshots_are_left_out():
    """The second sequence copies the first, late; one step after 00 only 00 and 10 occur, with one past."""
    t = np.array([[[[0.7, 0.3], [0.4, 0.6]], np.eye(2)], [np.eye(2), np.eye(2)]])
    kernel = o.joint_kernel([[1, 0], [1, 0]], t)
    B, law = o.aged_law(kernel, 2, 2, (1, 1), initial=[1, 0, 0, 0])
    assert np.array_equal(law > 0, [True, False, True, False])
    assert np.isnan(B[[1, 3]]).all()
    f = o.query_values("mean", 2, 2, [0, 1])
    assert o.exact_leakage(B, f, 2, 2, 1.0, 0.5, "informed", law) == 0
    assert o.neighbour_pairs(2, 2, law) == [(0, 2), (2, 0)]


@pytest.mark.parametrize("ages", [(1, 1), (2, 1), (1, 3), (0, 1)])
@pytest.mark.parametrize("query", ["mean", "max", "identity", "histogram"])
def test_one_release_of_the_history_is_exact_leakage(ages, query):
    rng = np.random.default_rng(11)
    kernel = o.joint_kernel(*random_chain(rng, 2, 2))
    f = o.query_values(query, 2, 2, [0, 1])
    s1 = o.sensitivity(f, 2, 2, 1)
    B, law = o.aged_law(kernel, 2, 2, ages)
    exact = o.exact_leakage(B, f, 2, 2, 1.5, s1, "informed", law)
    assert oc.history_leakage(kernel, 2, 2, ages, 1.5, f, s1, 1) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_histories_stay_below_metric_scalar_and_freshness(seed):
    rng = np.random.default_rng(seed)
    kernel = o.joint_kernel(*random_chain(rng, 2, 2))
    f = o.query_values("mean", 2, 2, [0, 1])
    B, law = o.aged_law(kernel, 2, 2, (1, 1))
    got = [oc.history_leakage(kernel, 2, 2, 1, 0.8, f, 0.5, n) for n in (1, 2, 3)]
    metric = oc.metric_accountant(kernel, 2, 2, 1, 0.8, f, 0.5, 3)
    scalar = oc.scalar_accountant(kernel, 2, 2, 1, 1.6, 3)
    fresh = o.freshness(B, o.neighbour_pairs(2, 2, law))
    assert got == sorted(got)
    for value, sharp, cheap in zip(got, metric, scalar, strict=True):
        assert value <= sharp + 1e-7
        assert sharp <= cheap + 1e-7
        assert value <= fresh + 1e-12


def test_history_grid_is_the_sup_over_two_outputs():
    """A fine scan of both outputs of a two-release history finds nothing above the finite maximum."""
    P, eps = binary(0.05, 0.2), 1.4
    law = o.stationary(P)
    grid = np.linspace(-0.5, 1.5, 61)
    loglik = np.empty((2, len(grid), len(grid)))
    for x in range(2):
        terms = [
            np.log(law[a] * P[a, b] * P[b, x] / law[x])
            - eps * np.abs(grid[:, None] - a)  # first release, tick t-1, reads slice t-2
            - eps * np.abs(grid[None, :] - b)  # second release, tick t, reads slice t-1
            for a in range(2)
            for b in range(2)
        ]
        loglik[x] = logsumexp(terms, axis=0)
    f = o.query_values("mean", 1, 2, [0, 1])
    got = oc.history_leakage(P, 1, 2, 1, eps, f, 1.0, 2)
    assert np.abs(loglik[0] - loglik[1]).max() == pytest.approx(got, rel=1e-12)


def test_ages_of_releases_may_be_given_one_by_one():
    kernel = o.joint_kernel(pair(0.75), binary(0.1, 0.2))
    f = o.query_values("mean", 2, 2, [0, 1])
    same = oc.history_leakage(kernel, 2, 2, (1, 2), 1.0, f, 0.5, 2)
    assert oc.history_leakage(kernel, 2, 2, [(1, 2), (1, 2)], 1.0, f, 0.5, 2) == same
    assert oc.history_leakage(kernel, 2, 2, [(1, 1), (1, 2)], 1.0, f, 0.5, 2) != same
    with pytest.raises(ValueError, match="a release"):
        oc.history_leakage(kernel, 2, 2, [(1, 2)], 1.0, f, 0.5, 2)
