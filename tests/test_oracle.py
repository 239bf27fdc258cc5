"""The oracle against itself, done another way."""

import ast
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp

import oracle as o
from reference_values import COLUMNS, ONE, REFERENCE, RTOL, T3, T21, T, binary, columns, pair


def random_chain(rng: np.random.Generator, s: int, m: int, zeros: float = 0.0):
    coupling = rng.dirichlet(np.full(s, 0.7), size=s)
    t = rng.dirichlet(np.full(m, 0.7), size=(s, s, m))
    keep = np.maximum(rng.random(t.shape) >= zeros, np.eye(m)[rng.integers(m, size=(s, s, m))])
    t = t * keep
    return coupling, t / t.sum(axis=-1, keepdims=True)


def test_the_oracle_is_independent_of_the_library():
    tree = ast.parse(Path(o.__file__).read_text())
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
    snaps, count = o.snapshots(s, m), m**s
    joint = np.zeros((count, count))
    for path in product(range(count), repeat=max(ages) + 1):
        prob = (o.stationary(kernel) if initial is None else initial)[path[0]]
        for here, there in pairwise(path):
            prob *= kernel[here, there]
        z = tuple(snaps[path[-1 - ages[i]]][i] for i in range(s))
        joint[path[-1], snaps.index(z)] += prob
    np.testing.assert_allclose(law, joint.sum(axis=1), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(np.nan_to_num(B) * law[:, None], joint, rtol=1e-12, atol=1e-15)
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
    rows, pairs, _ = o.adversary_rows(B, law, 2, 3, adversary)

    def scan(points, margin):
        axes = [np.linspace(min(c) - margin, max(c) + margin, points) for c in zip(*f, strict=True)]
        return o.worst_output(rows, pairs, f, list(product(*axes)), 1.3, s1)[0]

    assert scan(points, 1.0) == pytest.approx(exact, rel=1e-12)  # the values are on the grid
    beside = scan(points - 1, 0.987)
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
    assert got["profile"] <= min(got["loose"], got["freshness"]) + slack
    assert got["any"] >= max(got["exact"], got["uninformed"])
    assert got["uninformed"] <= np.tanh(got["lineage"] / 4) * got["alpha"] + slack
    assert got["any"] <= o.lineage_uninformed(coupling, t, 1) + slack


@pytest.mark.parametrize("alpha", [0.01, 1.0, 30.0, 2000.0])
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_profile_by_thresholds_by_subsets_and_by_programme(alpha, zeros):
    rng = np.random.default_rng(3)
    rows = rng.dirichlet(np.ones(9), size=3) * (rng.random((3, 9)) >= zeros)
    rows /= rows.sum(axis=1, keepdims=True)
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    member = np.array(list(product((0.0, 1.0), repeat=9)))
    mixed = [o.log_mix(member @ row, (1 - member) @ row, alpha) for row in rows]
    subsets = max(float((mixed[a] - mixed[b]).max()) for a, b in pairs)
    assert o.profile(rows, pairs, alpha) == pytest.approx(subsets, rel=1e-12)
    if alpha <= 1:
        best = 0.0
        for a, b in pairs:  # 1 <= g/h <= e^alpha, q.g = 1
            limits = np.vstack([np.c_[-np.eye(9), np.ones(9)], np.c_[np.eye(9), np.full(9, -np.exp(alpha))]])
            found = linprog(np.r_[-rows[a], 0], A_ub=limits, b_ub=np.zeros(18), A_eq=[np.r_[rows[b], 0]], b_eq=[1])
            best = max(best, np.log(-found.fun))
        assert subsets == pytest.approx(best, abs=1e-8)


def test_large_epsilon_stays_finite_and_meets_freshness():
    """Without noise the identity query shows z itself, so exact tends to freshness."""
    for adversary in ("informed", "uninformed", "any"):
        B, law = o.aged_law(o.joint_kernel(*T3), 2, 3, (1, 2))
        f = o.query_values("identity", 2, 3, range(3))
        rows, pairs, _ = o.adversary_rows(B, law, 2, 3, adversary)
        got = o.exact_leakage(B, f, 2, 3, 1000.0, 2.0, adversary, law)
        assert got == pytest.approx(o.freshness(rows, pairs), rel=1e-12)
    assert o.loose(0.3, 1000.0) == pytest.approx(1000 + np.log(0.3), rel=1e-14)


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
    assert o.repeated_leakage(kernel, 2, 2, ages, 1.5, f, s1, 1) == pytest.approx(exact, rel=1e-11)


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
    got = o.repeated_leakage(P, 1, 2, 1, eps, f, 1.0, 2)
    assert np.abs(loglik[0] - loglik[1]).max() == pytest.approx(got, rel=1e-12)


def test_ages_of_releases_may_be_given_one_by_one():
    kernel = o.joint_kernel(pair(0.75), binary(0.1, 0.2))
    f = o.query_values("mean", 2, 2, [0, 1])
    same = o.repeated_leakage(kernel, 2, 2, (1, 2), 1.0, f, 0.5, 2)
    assert o.repeated_leakage(kernel, 2, 2, [(1, 2), (1, 2)], 1.0, f, 0.5, 2) == same
    assert o.repeated_leakage(kernel, 2, 2, [(1, 1), (1, 2)], 1.0, f, 0.5, 2) != same


def joint_of_paths(kernel: np.ndarray, start: np.ndarray, s: int, m: int, ticks: int) -> np.ndarray:
    """Law (m,) * (s * ticks) of the snapshots at some ticks of a chain."""
    joint = start
    for _ in range(ticks - 1):
        joint = joint[..., None] * kernel
    return joint.reshape((m,) * (s * ticks))


@pytest.mark.parametrize("seed", range(8))
def test_generation_from_any_tick_agrees_with_filtering_forward(seed):
    rng = np.random.default_rng(seed)
    s, m, ticks = ((1, 2, 7), (2, 2, 5), (1, 3, 5), (3, 2, 4))[seed % 4]
    kernel = o.joint_kernel(*random_chain(rng, s, m, zeros=0.3 * (seed > 3)))
    start = rng.dirichlet(np.ones(m**s))
    world = o.World(kernel, s, m, start)
    outputs = [
        o.Output(tuple(rng.integers(0, ticks, s).tolist()), rng.integers(0, 3, (m**s, 1)).astype(float), 1.3)
        for _ in range(3)
    ]
    for watched in range(ticks):
        law = o.conditional_law(joint_of_paths(kernel, start, s, m, ticks), s, -watched, memory=1)
        for adversary in ("informed", "uninformed"):
            told = o.Rooted(law, s, m).told(outputs, watched, adversary)
            assert told == pytest.approx(world.told(outputs, watched, adversary, begin=0), abs=1e-10)


def test_mixtures_by_hand():
    keep, flip = binary(0.1, 0.2), np.array([[0.0, 1.0], [1.0, 0.0]])
    law = o.mixture_law(
        [[(1, 0, 1, 1.0, keep)], [(1, 0, 0, 0.75, keep), (1, 1, 2, 0.25, flip)]], 2, [(1, 0, 2, 1.0, keep)]
    )
    assert law(1, 0)[0] == ()
    assert law(1, -1)[0] == [(0, 0)]
    parents, table = law(1, -5)
    assert parents == [(0, -5), (1, -3)]
    assert table[0, 1] == pytest.approx([0.75 * 0.9 + 0.25, 0.75 * 0.1])
    assert law(1, 1)[0] == [(0, -1)]


# ---- every number that is stated of it -----------------------------------------------------------------------------


@pytest.mark.parametrize("row", REFERENCE)
def test_reference_values(row):
    setting, expected = REFERENCE[row]
    got = columns(*setting)
    assert [got[name] for name in COLUMNS] == pytest.approx(expected, rel=RTOL, abs=0)


def test_histogram_needs_the_product_of_values():
    P = [[0.2, 0.4, 0.4], [0.6, 0.2, 0.2], [0.05, 0.05, 0.9]]
    f = o.query_values("histogram", 1, 3, range(3))
    B, law = o.aged_law(P, 1, 3, (1,))
    rows, pairs, _ = o.adversary_rows(B, law, 1, 3, "informed")
    assert o.sensitivity(f, 1, 3, 1) == 2
    assert o.exact_leakage(B, f, 1, 3, 1, 2, "informed", law) == pytest.approx(0.642244839, rel=RTOL)
    assert o.worst_output(rows, pairs, f, f, 1, 2)[0] == pytest.approx(0.582967653, rel=RTOL)


CONTINUAL = {
    "pair": (
        (pair(0.75), binary(0.3, 0.3), 1, 0.5),
        [0.2038, 0.2829, 0.3110, 0.3206],
        [0.2928, 0.4056, 0.4542, 0.4760],
    ),
    "skewed pair": (
        (pair(0.6), binary(0.01, 0.3), 2, 2.0),
        [1.7738, 3.0418, 3.1944, 3.2041],
        [2.0662, 3.2267, 3.3450, 3.3497],
    ),
    "single": (
        (ONE, binary(0.3, 0.3), 1, 0.5),
        [0.1966, 0.2695, 0.2956, 0.3048, 0.3080, 0.3091],
        [0.1966, 0.2695, 0.2956, 0.3048, 0.3080, 0.3091],
    ),
}


@pytest.mark.parametrize("case", CONTINUAL)
def test_histories_metric_and_scalar(case):
    (coupling, t, age, eps), expected, scalar = CONTINUAL[case]
    s = len(coupling)
    kernel = o.joint_kernel(coupling, t)
    f = o.query_values("mean", s, 2, [0, 1])
    n = len(expected)
    got = [o.repeated_leakage(kernel, s, 2, age, eps, f, 1 / s, k) for k in range(1, n + 1)]
    assert got == pytest.approx(expected, abs=5e-5)
    assert o.scalar_accountant(kernel, s, 2, age, s * eps, n) == pytest.approx(scalar, abs=5e-5)
    assert o.metric_accountant(kernel, s, 2, age, eps, f, 1 / s, n) == pytest.approx(got, abs=1e-7)


def test_metric_is_above_exact_for_three_states():
    P = np.array([[0.2, 0.7, 0.1], [0.1, 0.7, 0.2], [0.1, 0.8, 0.1]])
    f = o.query_values("mean", 1, 3, range(3))
    assert o.repeated_leakage(P, 1, 3, 1, 1.0, f, 2.0, 1) == pytest.approx(0.083243, abs=5e-7)
    assert o.metric_accountant(P, 1, 3, 1, 1.0, f, 2.0, 1)[0] == pytest.approx(0.105499, abs=5e-7)


def test_stale_readings():
    kernel = o.joint_kernel(pair(0.75), binary(0.01, 0.01))
    f = o.query_values("mean", 2, 2, [0, 1])
    assert o.repeated_leakage(kernel, 2, 2, (1, 1), 1.0, f, 0.5, 1) == pytest.approx(1.1535, abs=5e-5)
    assert o.repeated_leakage(kernel, 2, 2, (1, 2), 1.0, f, 0.5, 1) == pytest.approx(1.3053, abs=5e-5)


def test_temporal_leakage():
    bpl, fpl, tpl = o.temporal_leakage(binary(0.3, 0.3), [1.0] * 81)
    assert bpl[0] == fpl[-1] == 1
    assert bpl[1] - 1 == pytest.approx(0.37399, abs=5e-6)
    assert bpl[-1] == pytest.approx(1.5261, abs=5e-5)
    assert fpl[0] == pytest.approx(1.5261, abs=5e-5)
    assert max(tpl) == pytest.approx(2.0522, abs=5e-5)


def test_temporal_leakage_is_the_worst_likelihood_ratio_of_a_randomised_reading():
    """Brute force for a binary chain: each reading is flipped with odds e^-eps; the worst record per time."""
    P, eps, n = binary(0.1, 0.35), [0.7, 0.4, 1.1], 3
    law = o.stationary(P)
    bpl, fpl, tpl = o.temporal_leakage(P, eps)

    def worst(at: int, seen: list[int]) -> float:
        best = 0.0
        for y in np.ndindex(*(2,) * n):
            like = np.zeros(2)
            for x in np.ndindex(*(2,) * n):
                prob = law[x[0]] * np.prod([P[x[k], x[k + 1]] for k in range(n - 1)]) / law[x[at]]
                like[x[at]] += prob * np.exp(-sum(eps[k] * (x[k] != y[k]) for k in seen))
            best = max(best, abs(np.log(like[0] / like[1])))
        return best

    for at in range(n):
        assert bpl[at] == pytest.approx(worst(at, list(range(at + 1))), rel=1e-12)
        assert fpl[at] == pytest.approx(worst(at, list(range(at, n))), rel=1e-12)
        assert tpl[at] == pytest.approx(worst(at, list(range(n))), rel=1e-12)
