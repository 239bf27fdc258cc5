"""The oracle against every number that is stated of it: bounds, printed bounds, histories, temporal leakage."""

import numpy as np
import pytest

import oracle as o
import oracle_continual as oc
from reference_values import COLUMNS, ONE, REFERENCE, RTOL, binary, columns, pair


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


def test_contraction():
    assert columns(*REFERENCE["same-age pair"][0])["contraction"] == pytest.approx(0.304281582, rel=RTOL)


def test_uninformed_exceeds_the_informed_freshness():
    t = np.array([[binary(0.01, 0.04)] * 2, [binary(0.035, 0.275)] * 2])
    got = columns(np.array([[0, 1], [0, 1]]), t, (2, 2), 4, "mean")
    assert got["uninformed"] == pytest.approx(2.8221, abs=5e-5)
    assert got["freshness"] == pytest.approx(2.7637, abs=5e-5)


def test_printed_loose_underestimates():
    got = columns(ONE, binary(0.01, 0.3), (1,), 1, "mean")
    assert got["printed-loose"] == pytest.approx(0.690, abs=5e-4)
    assert got["exact"] == pytest.approx(0.7727, abs=5e-5)


def test_printed_tight_above_loose():
    got = columns(pair(0.5), binary(0.3, 0.3), (1, 1), 1, "mean")
    assert got["printed-tight"] == pytest.approx(1.045, abs=5e-4)
    assert got["printed-loose"] == pytest.approx(0.48, abs=5e-3)
    assert got["exact"] == pytest.approx(0.4088, abs=5e-5)


@pytest.mark.parametrize(("c", "expected"), [(1.0, 0.3740), (0.75, 0.4002), (0.5, 0.4088)])
def test_coupling_raises_exact_leakage(c, expected):
    assert columns(pair(c), binary(0.3, 0.3), (1, 1), 1, "mean")["exact"] == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("age", [4, 5, 6, 8])
def test_difference_fades_with_age(age):
    got = [columns(pair(c), binary(0.3, 0.3), (age, age), 1, "mean")["exact"] for c in (1.0, 0.75, 0.5)]
    assert max(got) / min(got) < 1.02


def test_comparative_figure():
    """Delta_k eps_c without d(2) is 4.5e-5, with it 9.0e-5, as ADP gives for one chain."""
    eps = 0.860662966
    got = columns(pair(0.5), binary(0.3, 0.3), (10, 10), eps, "mean")
    adp = columns(ONE, binary(0.3, 0.3), (10,), eps, "mean")
    assert got["printed-loose"] / 2 == pytest.approx(4.5e-5, abs=5e-7)
    assert got["printed-loose"] == pytest.approx(9.0e-5, abs=5e-7)
    assert adp["printed-loose"] == pytest.approx(9.0e-5, abs=5e-7)


def test_aging_can_raise_leakage_above_epsilon():
    got = columns(pair(0.5), binary(0.001, 0.1), (2, 2), 4, "mean")
    assert got["exact"] == pytest.approx(5.67, abs=5e-3)


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
    got = [oc.history_leakage(kernel, s, 2, age, eps, f, 1 / s, k) for k in range(1, n + 1)]
    assert got == pytest.approx(expected, abs=5e-5)
    assert oc.scalar_accountant(kernel, s, 2, age, s * eps, n) == pytest.approx(scalar, abs=5e-5)
    assert oc.metric_accountant(kernel, s, 2, age, eps, f, 1 / s, n) == pytest.approx(got, abs=1e-7)


def test_one_chain_freshness():
    assert columns(ONE, binary(0.3, 0.3), (1,), 0.5, "mean")["freshness"] == pytest.approx(0.8473, abs=5e-5)


def test_metric_is_above_exact_for_three_states():
    P = np.array([[0.2, 0.7, 0.1], [0.1, 0.7, 0.2], [0.1, 0.8, 0.1]])
    f = o.query_values("mean", 1, 3, range(3))
    assert oc.history_leakage(P, 1, 3, 1, 1.0, f, 2.0, 1) == pytest.approx(0.083243, abs=5e-7)
    assert oc.metric_accountant(P, 1, 3, 1, 1.0, f, 2.0, 1)[0] == pytest.approx(0.105499, abs=5e-7)


def test_stale_readings():
    kernel = o.joint_kernel(pair(0.75), binary(0.01, 0.01))
    f = o.query_values("mean", 2, 2, [0, 1])
    assert oc.history_leakage(kernel, 2, 2, (1, 1), 1.0, f, 0.5, 1) == pytest.approx(1.1535, abs=5e-5)
    assert oc.history_leakage(kernel, 2, 2, (1, 2), 1.0, f, 0.5, 1) == pytest.approx(1.3053, abs=5e-5)


def test_temporal_leakage():
    bpl, fpl, tpl = oc.temporal_leakage(binary(0.3, 0.3), [1.0] * 81)
    assert bpl[0] == fpl[-1] == 1
    assert bpl[1] - 1 == pytest.approx(0.37399, abs=5e-6)
    assert bpl[-1] == pytest.approx(1.5261, abs=5e-5)
    assert fpl[0] == pytest.approx(1.5261, abs=5e-5)
    assert max(tpl) == pytest.approx(2.0522, abs=5e-5)


def test_temporal_leakage_is_the_worst_likelihood_ratio_of_a_randomised_reading():
    """Brute force for a binary chain: each reading is flipped with odds e^-eps; the worst record per time."""
    P, eps, n = binary(0.1, 0.35), [0.7, 0.4, 1.1], 3
    law = o.stationary(P)
    bpl, fpl, tpl = oc.temporal_leakage(P, eps)

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
