"""One contract for every query: declared sensitivities are those of enumeration, and all ways to ask agree."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import csdp
import oracle as o
from csdp.errors import InputError
from csdp.groups import PerGroup
from csdp.queries import FoldQuery, d, parse_query
from laws.strategies import law_settings

WEIGHTS = (2.0, -1.0, 0.5, 3.0)


def spread(v):
    return v.max() - v.min()


def two_numbers(v):
    return [v[0] * v[-1], v.sum()]


def halves(s):
    """Odd places and even ones; one group where there is one sequence."""
    return tuple(group for group in (tuple(range(1, s, 2)), tuple(range(0, s, 2))) if group)


QUERIES = {
    "mean": lambda s, m: csdp.Mean(),
    "sum": lambda s, m: csdp.Sum(),
    "max": lambda s, m: csdp.Max(),
    "min": lambda s, m: csdp.Min(),
    "count first": lambda s, m: csdp.Count(0),
    "count last": lambda s, m: csdp.Count(m - 1),
    "histogram": lambda s, m: csdp.Histogram(),
    "identity": lambda s, m: csdp.Identity(),
    "linear": lambda s, m: csdp.Linear(WEIGHTS[:s]),
    "sum of groups": lambda s, m: PerGroup(csdp.Sum(), halves(s)),
    "histogram of groups": lambda s, m: PerGroup(csdp.Histogram(), halves(s)),
    "custom": lambda s, m: csdp.Custom(spread, name="spread"),
    "custom of two": lambda s, m: csdp.Custom(two_numbers),
}
SIZES = [(1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2)]
CASES = [(name, s, m) for name in QUERIES for s, m in SIZES if not (name == "custom" and s == 1)]


def tables(s, m):
    """Shared values, values of one's own, and values whose ranges do not meet."""
    rng = np.random.default_rng(s * 10 + m)
    own = rng.integers(-16, 17, (s, m)) / 4.0 + np.arange(m)
    return {
        "default": np.broadcast_to(np.arange(float(m)), (s, m)),
        "shared": np.broadcast_to(np.array([-1.5, 4.0, 0.25, 9.0][:m]), (s, m)),
        "own": own,
        "apart": np.arange(float(m)) + 3.0 * m * np.arange(s)[:, None],
    }


def slow(name, s, m, values, z):
    """f(z) in plain Python."""
    v = [float(values[i, a]) for i, a in enumerate(z)]
    return {
        "mean": lambda: [sum(v) / s],
        "sum": lambda: [sum(v)],
        "max": lambda: [max(v)],
        "min": lambda: [min(v)],
        "count first": lambda: [z.count(0)],
        "count last": lambda: [z.count(m - 1)],
        "histogram": lambda: [z.count(a) for a in range(m)],
        "identity": lambda: v,
        "sum of groups": lambda: [sum(v[i] for i in group) for group in halves(s)],
        "histogram of groups": lambda: [sum(z[i] == a for i in group) for group in halves(s) for a in range(m)],
        "linear": lambda: [sum(w * u for w, u in zip(WEIGHTS, v, strict=False))],
        "custom": lambda: [max(v) - min(v)],
        "custom of two": lambda: [v[0] * v[-1], sum(v)],
    }[name]()


def enumerated(fvals, s, m, k, members):
    """s_k over pairs of snapshots that differ in at most k of the members, and nowhere else."""
    rows = list(zip(o.snapshots(s, m), fvals, strict=True))
    best = 0.0
    for (x, f), (y, g) in itertools.product(rows, repeat=2):
        moved = [i for i in range(s) if x[i] != y[i]]
        if len(moved) <= k and set(moved) <= set(members):
            best = max(best, o.l1(f, g))
    return best


@pytest.mark.parametrize(("name", "s", "m"), CASES)
def test_declared_sensitivity_is_that_of_enumeration(name, s, m):
    query = QUERIES[name](s, m)
    for kind, values in tables(s, m).items():
        fvals = [slow(name, s, m, values, z) for z in o.snapshots(s, m)]
        for k in range(1, s + 1):
            want = o.sensitivity(fvals, s, m, k)
            assert query.sensitivity(k, values) == pytest.approx(want, rel=1e-12, abs=1e-15), (kind, k)
        assert query.sensitivity(s + 5, values) == query.sensitivity(s, values)


@pytest.mark.parametrize(("name", "s", "m"), [case for case in CASES if case[1] > 1 and case[2] ** case[1] <= 16])
def test_sensitivity_to_some_members(name, s, m):
    query = QUERIES[name](s, m)
    for kind, values in tables(s, m).items():
        fvals = [slow(name, s, m, values, z) for z in o.snapshots(s, m)]
        for size in range(1, s + 1):
            for members in itertools.combinations(range(s), size):
                for k in range(1, size + 1):
                    want = enumerated(fvals, s, m, k, members)
                    got = query.sensitivity(k, values, members=members)
                    assert got == pytest.approx(want, rel=1e-12, abs=1e-15), (kind, k, members)


@pytest.mark.parametrize(("name", "s", "m"), CASES)
def test_evaluate_is_the_function_one_by_one_and_all_at_once(name, s, m):
    query = QUERIES[name](s, m)
    snaps = np.array(o.snapshots(s, m))
    for values in tables(s, m).values():
        want = np.array([slow(name, s, m, values, tuple(z)) for z in snaps.tolist()], dtype=float)
        assert query.evaluate(snaps, values) == pytest.approx(want, rel=1e-15)
        assert query.evaluate(snaps.astype(np.int8), values) == pytest.approx(want, rel=1e-15)
        one_by_one = [query.evaluate(z, values) for z in snaps]
        assert np.array(one_by_one).tolist() == query.evaluate(snaps, values).tolist()
        stacked = query.evaluate(np.stack([snaps, snaps[::-1]]), values)
        assert stacked.shape == (2, len(snaps), want.shape[1])
        assert stacked[1].tolist() == query.evaluate(snaps[::-1], values).tolist()
        assert query.evaluate(snaps[0].tolist(), values).shape == (want.shape[1],)


@pytest.mark.parametrize(("name", "s", "m"), CASES)
def test_one_name_per_output(name, s, m):
    query = QUERIES[name](s, m)
    values = tables(s, m)["own"]
    names = [f"sequence {i}" for i in range(s)]
    shown = query.output_names(names, values)
    assert len(shown) == query.evaluate(np.zeros(s, dtype=int), values).shape[-1]
    assert len(set(shown)) == len(shown)
    assert all(isinstance(text, str) and text for text in shown)
    assert isinstance(query, csdp.Query)
    assert query.name
    if name == "identity":
        assert shown == tuple(names)


@pytest.mark.parametrize(("name", "s", "m"), [case for case in CASES if not case[0].startswith("custom")])
def test_parts_folded_are_the_answer(name, s, m):
    query = QUERIES[name](s, m)
    assert isinstance(query, FoldQuery)
    fold = {"sum": np.sum, "max": np.max, "min": np.min}[query.fold]
    snaps = np.array(o.snapshots(s, m))
    for values in tables(s, m).values():
        parts = query.parts(values)
        assert parts.shape[:2] == (s, m)
        got = fold(parts[np.arange(s), snaps], axis=-2) / query.divisor(values)
        assert got == pytest.approx(query.evaluate(snaps, values), rel=1e-15)
        for members in ([0], [s - 1], list(range(s))[::-1]):
            some = query.parts(values, members)
            assert some.shape[:2] == (len(members), m)
            if name not in {
                "identity",
                "sum of groups",
                "histogram of groups",
            }:  # they leave out the coordinates that nobody in `members` moves
                assert some.tolist() == parts[members].tolist()


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in {"custom", "custom of two"}])
def test_queries_are_values(name):
    assert QUERIES[name](3, 2) == QUERIES[name](3, 2)
    assert hash(QUERIES[name](3, 2)) == hash(QUERIES[name](3, 2))
    with pytest.raises(AttributeError):
        QUERIES[name](3, 2).weights = (1.0,)


def test_d_of_the_paper():
    values = np.broadcast_to(np.arange(3.0), (4, 3))
    for k in (1, 2, 3, 4):
        for query in (csdp.Mean(), csdp.Sum(), csdp.Count(1), csdp.Histogram(), csdp.Identity()):
            assert d(query, k, values) == k
        assert d(csdp.Max(), k, values) == d(csdp.Min(), k, values) == 1
    assert csdp.Histogram().sensitivity(1, values) == 2
    assert d(csdp.Linear([2, -1, 1, 0]), 2, values) == 1.5


@law_settings(60)
@given(st.lists(st.floats(-1e6, 1e6).filter(lambda w: abs(w) > 1e-3), min_size=1, max_size=4))
def test_weights_are_put_on_a_lattice(weights):
    query = csdp.Linear(weights)
    unit = 2.0 ** (np.frexp(max(map(abs, weights)))[1] - 20)
    assert np.abs(np.array(query.weights) - weights).max() <= unit / 2
    assert all((w / unit) % 1 == 0 for w in query.weights)
    assert csdp.Linear(query.weights) == query


# ---------------------------------------------------------------- custom


def test_declared_custom_sensitivities():
    values = np.broadcast_to([0.0, 1.0], (3, 2))
    assert csdp.Custom(spread, 2.0).sensitivity(1, values) == 2.0
    assert csdp.Custom(spread, 2.0).sensitivity(3, values) == 6.0  # never too small where only s_1 is known
    assert csdp.Custom(spread, 2.0).sensitivity(9, values) == 6.0
    assert csdp.Custom(spread, lambda k: 1 + k).sensitivity(2, values) == 3.0
    assert csdp.Custom(spread, 2.0).sensitivity(2, values, members=[0]) == 2.0
    assert csdp.Custom(two_numbers, name="pair").output_names(["a", "b", "c"], values) == ("pair 0", "pair 1")


def test_a_custom_query_on_few_of_many_sequences():
    values = np.broadcast_to([0.0, 1.0], (13, 2))
    with pytest.raises(InputError, match=r"2\*\*13 snapshots are too many to enumerate; declare sensitivity="):
        csdp.Custom(spread).sensitivity(1, values)
    assert csdp.Custom(spread, 1.0).sensitivity(1, values) == 1.0


def test_a_custom_query_that_ignores_some_members():
    values = np.broadcast_to([0.0, 1.0], (2, 2))
    first = csdp.Custom(lambda v: v[0])
    assert first.sensitivity(1, values) == 1.0
    assert first.sensitivity(1, values, members=[0]) == 1.0
    assert first.sensitivity(1, values, members=[1]) == 0.0


# ---------------------------------------------------------------- refusals


VALUES = np.broadcast_to([0.0, 1.0], (2, 2))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: csdp.Mean().evaluate([0, 2], VALUES), r"snapshot: unknown state; states are whole numbers 0..1"),
        (lambda: csdp.Mean().evaluate([0, -1], VALUES), r"snapshot: unknown state"),
        (lambda: csdp.Identity().evaluate([0, 2], VALUES), r"snapshot: unknown state"),
        (lambda: csdp.Custom(spread).evaluate([0, 2], VALUES), r"snapshot: unknown state"),
        (lambda: csdp.Mean().evaluate([0.0, 1.0], VALUES), r"snapshot: float64 given; states are whole numbers 0..1"),
        (
            lambda: csdp.Mean().evaluate([0, 1, 1], VALUES),
            r"snapshot: shape \(3,\) given; .* one state per sequence \(2\)",
        ),
        (lambda: csdp.Mean().evaluate(0, VALUES), r"snapshot: shape \(\) given"),
        (lambda: csdp.Count(2).evaluate([0, 1], VALUES), r"count: unknown state 2; states are 0..1"),
        (lambda: csdp.Count(-1).sensitivity(1, VALUES), r"count: unknown state -1; states are 0..1"),
        (lambda: csdp.Mean().sensitivity(0, VALUES), r"sensitivity: k=0 given; at least one record changes"),
        (lambda: csdp.Max().sensitivity(-1, VALUES), r"sensitivity: k=-1 given"),
        (lambda: csdp.Custom(spread).sensitivity(0, VALUES), r"sensitivity: k=0 given"),
        (
            lambda: csdp.Linear([1.0]).evaluate([0, 1], VALUES),
            r"linear: 1 weights given for 2 sequences; give one each",
        ),
        (lambda: csdp.Linear([]), r"linear: give one finite weight per sequence, not all of them zero"),
        (lambda: csdp.Linear([0.0, 0.0]), r"linear: give one finite weight"),
        (lambda: csdp.Linear([np.nan, 1.0]), r"linear: give one finite weight"),
        (lambda: csdp.Linear([np.inf, 1.0]), r"linear: give one finite weight"),
        (lambda: csdp.Linear([[1.0, 2.0]]), r"linear: give one finite weight"),
        (lambda: csdp.Linear(["heavy", "light"]), r"linear: give one finite weight"),
        (lambda: csdp.Custom("mean"), r"custom: str given; a function of a snapshot's values expected"),
        (lambda: csdp.Custom(spread, 0.0), r"custom: sensitivity 0.0 given; it must be positive and finite"),
        (lambda: csdp.Custom(spread, -1), r"custom: sensitivity -1 given"),
        (lambda: csdp.Custom(spread, np.inf), r"custom: sensitivity inf given"),
        (lambda: csdp.Custom(spread, np.nan), r"custom: sensitivity nan given"),
        (lambda: csdp.Custom(lambda v: 3.0).sensitivity(1, VALUES), r"custom: the function is constant"),
        (
            lambda: csdp.Custom(lambda v: np.nan).evaluate([0, 1], VALUES),
            r"custom: the function must return a finite number",
        ),
        (
            lambda: csdp.Custom(lambda v: [1.0] * int(1 + v[0])).evaluate([[0, 1], [1, 1]], VALUES),
            r"custom: the function must return .* always the same count of them",
        ),
        (lambda: csdp.Custom(lambda v: "many").evaluate([0, 1], VALUES), r"custom: the function must return"),
    ],
)
def test_bad_input_is_refused_with_a_reason(ask, message):
    with pytest.raises(InputError, match=message):
        ask()


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("mean", csdp.Mean()),
        (" Mean ", csdp.Mean()),
        ("sum", csdp.Sum()),
        ("max", csdp.Max()),
        ("min", csdp.Min()),
        ("histogram", csdp.Histogram()),
        ("identity", csdp.Identity()),
        ("count:2", csdp.Count(2)),
        ("linear:1,-2,0.5", csdp.Linear([1, -2, 0.5])),
    ],
)
def test_queries_by_name(text, query):
    assert parse_query(text) == query
    assert parse_query(query.name) == query


@pytest.mark.parametrize(
    "text", ["", "median", "count", "count:x", "linear", "linear:", "linear:a", "mean:2", "linear:0,0"]
)
def test_unknown_names(text):
    with pytest.raises(InputError, match=r"use mean, sum, max|linear: give one finite weight"):
        parse_query(text)
