"""Leakage and bounds of nine settings to eight digits: the same table for the oracle and for the library."""

import numpy as np

import oracle as o

RTOL = 5e-9  # eight significant digits


def binary(p: float, q: float) -> np.ndarray:
    return np.array([[1 - p, p], [q, 1 - q]])


def pair(c: float) -> np.ndarray:
    return np.array([[c, 1 - c], [1 - c, c]])


ONE = np.array([[1.0]])
T = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
T21 = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]])
T3 = (np.array([[0.6, 0.4], [0.3, 0.7]]), np.array([[T, T21], [T, T]]))

COLUMNS = ("exact", "profile", "loose", "freshness", "lineage", "printed-loose", "printed-tight")
_T3_ENDS = (2.82623436, 4.56434819)
REFERENCE = {
    "same-age pair": (
        (pair(0.75), binary(0.3, 0.3), (2, 2), 1, "mean"),
        (0.153045546, 0.196442729, 0.494028708, 0.334202088, 0.645546785, 0.2, 0.269052934),
    ),
    "unequal ages": (
        (pair(0.75), binary(0.3, 0.3), (1, 3), 1, "mean"),
        (0.316819682, 0.505098507, 1.07045861, 0.712565266, 1.69459572, 0.6, 0.485395702),
    ),
    "old pair": (
        (pair(0.5), binary(0.3, 0.3), (10, 10), 0.860662966, "mean"),
        (
            *(8.38639986e-05, 1.07109921e-04, 2.40720852e-04),
            *(1.92956579e-04, 4.19430402e-04, 9.02470622e-05, 1.80505216e-04),
        ),
    ),
    "skewed pair": (
        (pair(0.75), binary(0.01, 0.3), (2, 2), 2, "mean"),
        (1.71359106, 2.1804457, 3.07729427, 3.37621331, 4.03539539, 1.54480031, 17.6656451),
    ),
    "skewed single": (
        (ONE, binary(0.01, 0.3), (1,), 1, "mean"),
        (0.77269118, 0.77269118, 0.781897007, 4.24849524, 5.44241771, 0.69, 0.69),
    ),
    "T3 mean": (
        (*T3, (1, 1), 1, "mean"),
        (0.696025338, 1.02448587, 1.48824821, *_T3_ENDS, 1.07350113, 2.08936215),
    ),
    "T3 max": (
        (*T3, (1, 1), 1, "max"),
        (0.450690142, 0.537139837, 0.65351653, *_T3_ENDS, 0.536750566, 2.08936215),
    ),
    "T3 histogram": (
        (*T3, (1, 1), 1, "histogram"),
        (0.781317207, 1.02448587, 1.48824821, *_T3_ENDS, 1.07350113, 2.08936215),
    ),
    "T3 identity": (
        (*T3, (1, 1), 1, "identity"),
        (0.696025338, 1.02448587, 1.48824821, *_T3_ENDS, 1.07350113, 2.08936215),
    ),
}


def columns(coupling, transitions, ages, eps, query) -> dict[str, float]:
    """A row of the reference table, and the other adversaries beside it."""
    s, m = len(coupling), np.shape(transitions)[-1]
    kernel = o.joint_kernel(coupling, transitions)
    B, law = o.aged_law(kernel, s, m, ages)
    f = o.query_values(query, s, m, range(m))
    s1 = o.sensitivity(f, s, m, 1)
    alpha = eps * o.sensitivity(f, s, m, s) / s1
    pairs = o.neighbour_pairs(s, m, law)
    delta, r = o.total_variation(B, pairs), o.freshness(B, pairs)
    return {
        "exact": o.exact_leakage(B, f, s, m, eps, s1, "informed", law),
        "profile": o.profile(B, pairs, alpha),
        "loose": o.loose(delta, alpha),
        "freshness": r,
        "lineage": o.lineage_uninformed(coupling, transitions, min(ages)),
        "printed-loose": o.printed_loose(B, pairs, alpha),
        "printed-tight": o.printed_tight(B, law, s, m, eps),
        "uninformed": o.exact_leakage(B, f, s, m, eps, s1, "uninformed", law),
        "any": o.exact_leakage(B, f, s, m, eps, s1, "any", law),
        "alpha": alpha,
    }
