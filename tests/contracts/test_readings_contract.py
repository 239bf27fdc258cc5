"""One contract for queries of readings: answers, sensitivities and lattice are those of plain Python, gaps are counted
and never filled, and what is hostile is refused before anything is charged.
"""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

import csdp
from csdp import Count, CoupledChain, Histogram, Linear, Mean, Panel, Plan, Publisher, Sum, fran
from csdp.errors import InputError
from csdp.noise import Randomness
from csdp.publisher import PanelSource, Skipped
from csdp.query import parse_query, tabulate

RANGE = csdp.ReadingRange(-1, 2, 0.5)  # levels 0..6
CHAIN = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
WEIGHTS = (2.0, -0.5)
NAN = math.nan


def level(reading):
    return min(max(round((Fraction(reading) + 1) * 2), 0), 6)  # half to even, as Python rounds


QUERIES = {
    "mean": (Mean(of=RANGE), lambda v: [sum(v) / len(v)]),
    "sum": (Sum(of=RANGE), lambda v: [sum(v)]),
    "count": (Count(at_least=0.5, below=1.5, of=RANGE), lambda v: [sum(0.5 <= x < 1.5 for x in v)]),
    "count above": (Count(at_least=0.6, of=RANGE), lambda v: [sum(x >= 0.6 for x in v)]),
    "histogram": (
        Histogram(edges=(0.0, 2.0), of=RANGE),
        lambda v: [sum(x < 0 for x in v), sum(0 <= x < 2 for x in v), sum(x >= 2 for x in v)],
    ),
}
WEIGHTED = (Linear(WEIGHTS, of=RANGE), lambda v: [sum(w * x for w, x in zip(WEIGHTS, v, strict=True))])
ROWS = [[-1.0, 2.0], [0.3, 0.76], [7.0, -99.0], [NAN, 1.0], [1.2499, 1.2501], [NAN, NAN], [0.25, 0.75], [1e300, 1.5]]


def panel_of(rows):
    readings = np.array(rows, dtype=float)
    states = np.where(np.isnan(readings), -1, readings > 0.5).astype(int)
    ticks = np.arange(len(readings))
    return Panel(("x1", "x2"), ticks, ticks, states, 1, None, readings)


def clipped(row):
    return [level(x) / 2 - 1 for x in row if not math.isnan(x)]


@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_those_of_plain_python(name):
    query, plain = QUERIES[name]
    plan = Plan(CHAIN, query, 1, 1.0)
    source = PanelSource(panel_of(ROWS), plan)
    ready = {tick for tick, _, reason in source.availability(plan) if not reason}
    assert ready == {tick + 1 for tick, row in enumerate(ROWS[:-1]) if clipped(row)}
    for tick in sorted(ready):
        aged = clipped(ROWS[tick - 1])
        (count,), answer = source.counts(plan, [tick]), source.answers(plan, [tick])[0]
        assert count == len(aged)
        assert (answer % plan.step == 0).all()
        assert plan.query.publish(answer, count).tolist() == pytest.approx(plain(aged), rel=1e-15)


def test_a_weighted_sum_needs_every_sequence():
    query, plain = WEIGHTED
    plan = Plan(CHAIN, query, [0, 1], 1.0)
    rows = [row for row in ROWS if len(clipped(row)) != 0]
    source = PanelSource(panel_of(rows), plan)
    for tick, _, reason in list(source.availability(plan))[1:]:
        mixed = [rows[tick][0], rows[tick - 1][1]]
        assert bool(reason) == (len(clipped(mixed)) < 2)
        if not reason:
            answer = source.answers(plan, [tick])[0]
            assert plan.query.publish(answer, 2).tolist() == pytest.approx(plain(clipped(mixed)), rel=1e-15)
        else:
            assert "needs all of them" in reason


@pytest.mark.parametrize("name", [*QUERIES, "linear"])
def test_sensitivity_is_that_of_enumeration(name):
    query, plain = QUERIES.get(name, WEIGHTED)
    computation = tabulate(query, CHAIN)
    values = [n / 2 - 1 for n in range(7)]
    for k in (1, 2):
        worst = 0.0
        for before, after in itertools.product(itertools.product(values, repeat=2), repeat=2):
            if sum(a != b for a, b in zip(before, after, strict=True)) <= k:
                worst = max(worst, sum(abs(a - b) for a, b in zip(plain(before), plain(after), strict=True)))
        assert computation.sensitivity(k, CHAIN.value_table) == pytest.approx(worst, rel=1e-12)
        assert query.sensitivity(k, CHAIN.value_table) == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("name", [*QUERIES, "linear"])
def test_a_text_leads_back_and_the_digest_tells_queries_apart(name):
    query = QUERIES.get(name, WEIGHTED)[0]
    plan = Plan(CHAIN, query, 1, 0.5)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert parse_query(query.text) == query
    other = csdp.ReadingRange(-1, 2, 0.25)
    assert Plan(CHAIN, parse_query(query.text.replace("by 0.5", "by 0.25")), 1, 0.5).digest != plan.digest
    assert other != RANGE


def test_a_stream_gives_what_a_batch_gives_and_says_how_many_were_read(tmp_path):
    for number, (query, _) in enumerate([*QUERIES.values(), WEIGHTED]):
        plan = Plan(CHAIN, query, [1, 0], 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", csdp.errors.UnsafeRandomnessWarning)
            one = Publisher(plan, dataset=f"batch {number}", ledger=tmp_path / "a.db", unsafe_seed=1)
            two = Publisher(plan, dataset=f"stream {number}", ledger=tmp_path / "a.db", unsafe_seed=1)
            fold = fran.batch(plan, np.array(ROWS), Randomness.unsafe_seed(1))
        with one, two:
            batch = one.publish(panel_of(ROWS))
            pushed = [two.push(row, time=tick) for tick, row in enumerate(ROWS)]
        assert batch.releases == tuple(each for each in pushed if not isinstance(each, Skipped))
        assert {release.count for release in batch} <= ({None} if plan.query.needs_all else {1, 2})
        assert [(output.values, output.count) for output in fold if output] == [(r.values, r.count) for r in batch]


def test_names_and_gaps_of_a_stream(tmp_path):
    plan = Plan(CHAIN, Mean(of=RANGE), 1, 1e6)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        publisher.push({"x2": 1.5}, time=1)
        release = publisher.push({"x1": None, "x2": 0.0}, time=2)
        assert (release.values, release.count) == ((1.5,), 1)
        assert publisher.information_ages() == (2, [None, 1])
        skipped = publisher.push([0.0, 0.0], time=4)  # nothing was read at tick 3
        assert skipped.reason == "no sequence was read at its age"
        assert publisher.push([0.0, 0.0], time=5).count == 2


HOSTILE_RANGES = [
    (0, 1, 0),
    (0, 1, 0.3),
    (1, 1, 0.1),
    (0, math.inf, 1),
    (0, 1, 1e-9),
    (-1e308, 1e308, 1e300),
]


@pytest.mark.parametrize(("low", "high", "resolution"), HOSTILE_RANGES)
def test_a_range_that_makes_no_lattice_is_refused(low, high, resolution):
    with pytest.raises(InputError, match="readings: "):
        csdp.ReadingRange(low, high, resolution)


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        ([math.inf, 0.0], "infinite values"),
        ([0.0, -math.inf], "infinite values"),
        (["a", 0.0], "numbers expected"),
        ([0.0], "one reading for each of 2"),
        ([[0.0, 1.0]], "one reading for each of 2"),
        ({"y": 1.0}, "unknown sequence 'y'"),
    ],
)
def test_hostile_snapshots_are_refused_and_cost_nothing(tmp_path, snapshot, words):
    with Publisher(Plan(CHAIN, Mean(of=RANGE), 0, 1.0), dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        with pytest.raises(InputError, match=words):
            publisher.push(snapshot, time=1)
        assert publisher.charged == 0


def test_readings_outside_the_range_are_its_ends():
    levels = RANGE.levels([[1e308, -1e308], [2.0, -1.0]])
    assert (levels == [[6, 0], [6, 0]]).all()


@pytest.mark.parametrize(
    "made",
    [
        lambda: Count(of=RANGE),
        lambda: Count(at_least=1.0),
        lambda: Count(at_least=1.0, below=0.5, of=RANGE),
        lambda: Histogram(of=RANGE),
        lambda: Histogram(edges=(1.0, 0.0), of=RANGE),
        lambda: csdp.PerGroup(Sum(of=RANGE), ((0,), (1,))),
        lambda: parse_query("mean of readings 0..1"),
        lambda: Plan(CHAIN, Count(at_least=9.0, of=RANGE), 1, 1.0),
        lambda: Plan(CHAIN, Mean(of=RANGE), 1, 1.0, stale_limit=1),
        lambda: Plan(CHAIN, Linear([1.0], of=RANGE), 1, 1.0),
        lambda: csdp.leakage(CHAIN, Mean(of=RANGE), ages=1, epsilon_c=1.0, bound="exact"),
    ],
)
def test_what_makes_no_sense_is_refused(made):
    with pytest.raises(InputError):
        made()


def test_states_alone_cannot_be_published_as_readings(tmp_path):
    plan = Plan(CHAIN, Mean(of=RANGE), 1, 1.0)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        with pytest.raises(InputError, match="holds states only"):
            publisher.publish(Panel.from_states([[0, 1]] * 5))
        assert publisher.charged == 0


@pytest.mark.parametrize(
    "readings",
    [[[0.0, NAN]], [[0.0, math.inf]], [[0.0]]],
)
def test_a_panel_whose_readings_are_not_those_of_its_states_is_refused(readings):
    ticks = np.arange(1)
    with pytest.raises(InputError, match="panel: readings"):
        Panel(("a", "b"), ticks, ticks, np.array([[0, 1]]), 1, None, np.array(readings))


def test_what_needs_the_law_of_the_answers_is_refused_in_words():
    plan = Plan(CHAIN, Mean(of=RANGE), 1, 1.0)
    for question in (
        lambda: plan.query.lattice_answers(np.zeros((1, 2), dtype=int)),
        lambda: plan.query.evaluate([0, 1], CHAIN.value_table),
        lambda: csdp.audit(plan, samples=1000, seed=1),
        lambda: csdp.attack(plan, [[0.5], [0.5], [0.5]]),
    ):
        with pytest.raises(InputError):
            question()
