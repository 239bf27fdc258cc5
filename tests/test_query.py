"""Queries as tables: answers and sensitivities are those of enumeration, for every kind of query."""

import itertools
import pickle

import numpy as np
import pytest

import csdp
import oracle as o
from csdp.errors import InputError, TooLargeError
from csdp.plan import Plan
from csdp.query import d, parse_query, tabulate

WEIGHTS = (2.0, -1.0, 0.5)
GROUPS = ((0, 2), (1,))
TABLE = np.arange(18.0).reshape(3, 3, 2) ** 2 / 8
#: Every kind of query on three sequences, and what it says in plain Python of values v and states z.
QUERIES = {
    "mean": (csdp.Mean(), lambda v, z: [sum(v) / 3]),
    "sum": (csdp.Sum(), lambda v, z: [sum(v)]),
    "max": (csdp.Max(), lambda v, z: [max(v)]),
    "min": (csdp.Min(), lambda v, z: [min(v)]),
    "count": (csdp.Count(1), lambda v, z: [z.count(1)]),
    "histogram": (csdp.Histogram(), lambda v, z: [z.count(a) for a in range(3)]),
    "identity": (csdp.Identity(), lambda v, z: v),
    "linear": (csdp.Linear(WEIGHTS), lambda v, z: [sum(w * u for w, u in zip(WEIGHTS, v, strict=True))]),
    "groups": (csdp.PerGroup("sum", GROUPS), lambda v, z: [sum(v[i] for i in group) for group in GROUPS]),
    "histograms": (
        csdp.PerGroup(csdp.Histogram(), GROUPS),
        lambda v, z: [sum(z[i] == a for i in group) for group in GROUPS for a in range(3)],
    ),
    "function": (csdp.Custom(lambda v: [v[0] * v[-1], v.sum()]), lambda v, z: [v[0] * v[-1], sum(v)]),
    "table": (csdp.Custom(TABLE, divisor=4), lambda v, z: list(TABLE[range(3), z].sum(axis=0) / 4)),
    "largest": (csdp.Custom(TABLE[:, :, 0], fold="max"), lambda v, z: [TABLE[range(3), z, 0].max()]),
    "groups of a table": (
        csdp.PerGroup(csdp.Custom(TABLE[:, :, 0]), GROUPS),
        lambda v, z: [sum(TABLE[i, z[i], 0] for i in group) for group in GROUPS],
    ),
}
VALUES = {
    "shared": np.broadcast_to(np.array([-1.5, 4.0, 0.25]), (3, 3)),
    "own": np.array([[0.0, 1.0, 2.5], [-3.0, 0.25, 7.0], [9.0, 10.0, 8.0]]),
}
TINY = np.broadcast_to([0.0, 1.0], (2, 2))
CHAIN = csdp.CoupledChain(np.eye(3), np.full((3, 3), 1 / 3), values=VALUES["own"])


def enumerated(answers, k, members):
    """s_k over pairs of snapshots that differ in at most k of the members, and nowhere else."""
    best = 0.0
    for (x, f), (y, g) in itertools.combinations(answers, 2):
        moved = {i for i in range(3) if x[i] != y[i]}
        if len(moved) <= k and moved <= set(members):
            best = max(best, o.l1(f, g))
    return best


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", QUERIES)
def test_answers_and_sensitivities_are_those_of_enumeration(name, kind):
    query, plain = QUERIES[name]
    values = VALUES[kind]
    snaps = o.snapshots(3, 3)
    want = [plain([float(values[i, a]) for i, a in enumerate(z)], list(z)) for z in snaps]
    assert query.evaluate(np.array(snaps), values) == pytest.approx(np.array(want, dtype=float), rel=1e-15)
    table = query.on(values)
    assert len(table.outputs) == len(set(table.outputs)) == len(want[0])
    answers = list(zip(snaps, want, strict=True))
    for members in ((0, 1, 2), (1,), (0, 2)):
        for k in (1, 2, 3):
            got = query.sensitivity(k, values, members=members)
            least = enumerated(answers, k, members)
            assert got >= least * (1 - 1e-12)
            if len(want[0]) == 1 or k == 1:
                assert got == pytest.approx(least, rel=1e-12)
    low, high = table.bounds_of(3)
    assert low / table.denominator == pytest.approx(np.min(want, axis=0))
    assert high / table.denominator == pytest.approx(np.max(want, axis=0))


@pytest.mark.parametrize("name", QUERIES)
def test_a_table_travels_and_names_what_it_computes(name):
    query, _ = QUERIES[name]
    plan = Plan(CHAIN, query, 1, 1.0)
    again = pickle.loads(pickle.dumps(plan.query))
    assert again == plan.query
    assert again.fingerprint == plan.query.fingerprint
    assert tabulate(again, CHAIN, on_lattice=True) == plan.query
    if plan.query.custom:
        with pytest.raises(InputError, match="cannot be written as JSON"):
            plan.to_json()
    else:
        assert Plan.from_json(plan.to_json()) == plan


def test_the_name_of_a_built_in_does_not_make_another_table_that_built_in():
    for other in (csdp.Custom(TABLE[:, :, 0], name="mean"), csdp.Custom(np.sum, name="mean")):
        assert Plan(CHAIN, other, 1, 1.0).digest != Plan(CHAIN, csdp.Mean(), 1, 1.0).digest


def test_tables_are_made_once_and_read_only():
    calls = []
    given = np.array([[0.0, 1.0], [0.0, 3.0]])
    chain = csdp.CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]])
    plan = Plan(chain, csdp.Custom(lambda v: calls.append(1) or v.sum()), 1, 1.0)
    asked = len(calls)
    plan.query.lattice_answers(np.zeros((3, 2), dtype=int))
    assert len(calls) == asked
    table = Plan(chain, csdp.Custom(given), 1, 1.0)
    given[:] = 0.0
    assert table.sensitivity == 3.0
    with pytest.raises(ValueError, match="read-only"):
        table.query.rows[0] = 9.0


def test_many_sequences_have_one_row_and_blocks():
    values = np.broadcast_to(np.arange(2.0), (100_000, 2))
    assert csdp.Mean().on(values).rows.shape == (1, 2, 1)
    identity = csdp.Identity().on(values)
    assert (identity.rows.shape, identity.blocks) == ((1, 2, 1), 100_000)
    with pytest.raises(TooLargeError, match="entries; at most"):
        identity.contributions()
    groups = csdp.PerGroup("sum", np.arange(100_000).reshape(1000, 100)).on(values)
    assert (groups.rows.shape, groups.blocks) == ((1, 2, 1), 1000)
    with pytest.raises(InputError, match="use larger groups"):
        csdp.PerGroup("sum", np.arange(100_000)[:, None]).on(values)


def test_d_of_the_paper():
    values = np.broadcast_to(np.arange(3.0), (4, 3))
    for k in (1, 2, 3, 4):
        for query in (csdp.Mean(), csdp.Sum(), csdp.Count(1), csdp.Histogram(), csdp.Identity()):
            assert d(query, k, values) == k
        assert d(csdp.Max(), k, values) == d(csdp.Min(), k, values) == 1
    assert d(csdp.Linear([2, -1, 1, 0]), 2, values) == 1.5


def test_weights_and_tables_are_put_on_a_lattice():
    for numbers in (csdp.Linear([0.1, -1e6, 1 / 3]).weights, csdp.Custom([[0.1, -1e6], [1 / 3, 0]]).contributions):
        assert np.array_equal(np.asarray(numbers) % 1.0, np.zeros_like(numbers))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: csdp.Mean().evaluate([0, 2], TINY), r"snapshot: unknown state; states are whole numbers 0..1"),
        (lambda: csdp.Identity().evaluate([0, -1], TINY), r"snapshot: unknown state"),
        (lambda: csdp.Mean().evaluate([0.0, 1.0], TINY), r"snapshot: float64 given; states are whole numbers 0..1"),
        (lambda: csdp.Mean().evaluate([0, 1, 1], TINY), r"snapshot: shape \(3,\) given; .* one state per sequence"),
        (lambda: csdp.Count(2).evaluate([0, 1], TINY), r"count: unknown state 2; states are 0..1"),
        (lambda: csdp.Mean().sensitivity(0, TINY), r"sensitivity: k=0 given; at least one record changes"),
        (lambda: csdp.Linear([1.0]).evaluate([0, 1], TINY), r"linear: 1 weights given for 2 sequences"),
        (lambda: csdp.Linear([np.nan, 1.0]), r"linear: give one finite weight"),
        (lambda: csdp.Linear(["heavy", "light"]), r"linear: give one finite weight"),
        (lambda: csdp.Custom("mean"), r"custom: a function of a snapshot's values, or a table"),
        (lambda: csdp.Custom([[np.inf, 1.0]]), r"custom: .* a table of finite numbers"),
        (lambda: csdp.Custom([[0, 1]], fold="median"), r"custom fold: 'median' given; one of 'sum', 'max', 'min'"),
        (lambda: csdp.Custom([[0, 1]], divisor=0), r"custom divisor: 0 given"),
        (lambda: csdp.Custom(np.sum, divisor=2), r"fold and divisor belong to a table"),
        (lambda: csdp.Custom(TABLE, fold="max"), r"custom: the max of contributions to several outputs"),
        (lambda: csdp.Custom([[0, 1]]).sensitivity(1, TINY), r"a table of shape \(1, 2, 1\) given; .* \(2, 2, d\)"),
        (lambda: csdp.Custom(lambda v: 3.0).sensitivity(1, TINY), r"custom: the function is constant"),
        (lambda: csdp.Custom(lambda v: np.nan).evaluate([0, 1], TINY), r"must return a finite number"),
        (lambda: csdp.Custom(lambda v: [1.0] * int(1 + v[0])).sensitivity(1, TINY), r"function failed|same count"),
        (lambda: csdp.Custom(np.sum).on(np.zeros((13, 2))), r"2\*\*13 snapshots are too many to tabulate"),
        (lambda: csdp.PerGroup("mean", GROUPS), r"per group: mean given; sum, count or histogram"),
        (lambda: csdp.PerGroup("max", GROUPS), r"per group: max given"),
        (lambda: csdp.PerGroup(csdp.Custom(np.sum), GROUPS), r"per group: custom given"),
        (lambda: csdp.PerGroup("sum", ((0, 1), (1,))), r"every sequence must be in exactly one group"),
        (lambda: csdp.PerGroup("sum", GROUPS).on(TINY), r"groups of 3 sequences given for 2"),
        (lambda: csdp.leakage(CHAIN, csdp.Mean, ages=1, epsilon_c=1.0), r"an instance, Mean\(\) not Mean"),
        (lambda: csdp.leakage(CHAIN, object(), ages=1, epsilon_c=1.0), r"Custom\(\.\.\.\), \.\.\. or a text"),
    ],
)
def test_bad_input_is_refused_with_a_reason(ask, message):
    with pytest.raises(InputError, match=message):
        ask()


@pytest.mark.parametrize("text", ["mean", " Mean ", "max", "histogram", "identity", "count:2", "linear:1.0,-2.0,0.5"])
def test_queries_by_name(text):
    assert parse_query(text).text == text.strip().lower()


@pytest.mark.parametrize("text", ["", "median", "count", "count:x", "linear", "linear:a", "mean:2", "linear:0,0"])
def test_unknown_names(text):
    with pytest.raises(InputError, match=r"use mean, sum, max|linear: give one finite weight"):
        parse_query(text)
