"""The mechanism: ages, missing readings, the lattice, the law of the noise."""

from __future__ import annotations

import math
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from csdp import (
    Count,
    CoupledChain,
    Custom,
    Histogram,
    Identity,
    Linear,
    Max,
    Mean,
    Min,
    Sum,
    fran,
    leakage,
)
from csdp.errors import InputError, UnsafeRandomnessWarning
from csdp.noise import Randomness
from csdp.plan import Plan
from csdp.query import PerGroup
from oracle import l1, snapshots

SYMMETRIC = [[0.7, 0.3], [0.3, 0.7]]
PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], SYMMETRIC)
THREE = CoupledChain(
    np.full((3, 3), 1 / 3), [[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.25, 0.25, 0.5]], values=[-1.5, 0.25, 4.0]
)
OWN = CoupledChain(np.eye(2), SYMMETRIC, values=[[0.0, 1.0], [2.0, 5.0]])
ALL = [
    Mean(),
    Sum(),
    Max(),
    Min(),
    Count(1),
    Histogram(),
    Identity(),
    Linear([0.3, -1.7, 0.4]),
    Custom(lambda v: [float(np.sin(v).sum()), float(v[0] * v[-1])], name="odd"),
]


def seeded(seed: int = 7) -> Randomness:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsafeRandomnessWarning)
        return Randomness.unsafe_seed(seed)


def folded(plan: Plan, states: np.ndarray, seed: int = 7) -> tuple[list[fran.Output | None], list[str]]:
    state, randomness = fran.init(plan), seeded(seed)
    outputs, reasons = [], []
    for row in states:
        state, output = fran.step(state, row, randomness)
        outputs.append(output)
        reasons.append(state.reason)
    return outputs, reasons


@given(
    st.sampled_from(ALL),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.integers(0, 2),
    st.integers(1, 14),
    st.sampled_from((0.0, 0.1, 0.4)),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=120, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_batch_is_the_fold_of_steps(
    query: object, ages: list[int], limit: int, ticks: int, missing: float, seed: int
) -> None:
    plan = Plan(THREE, query, ages, 0.8, stale_limit=limit)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 3, (ticks, 3)).astype(np.int8)
    states[rng.random(states.shape) < missing] = -1
    one_by_one, reasons = folded(plan, states)
    assert fran.batch(plan, states, seeded()) == one_by_one
    stale, counts = fran.freshness(plan, states < 0)
    why = fran.reasons_against(plan, counts)
    assert why == reasons
    assert [o is None for o in one_by_one] == [bool(r) for r in reasons]
    assert [o.stale for o in one_by_one if o is not None] == [int(s) for s, r in zip(stale, why, strict=True) if not r]


def reference_aged(states: np.ndarray, t: int, ages: list[int]) -> tuple[list[int], int] | None:
    """The aged snapshot in plain Python: the last reading at or before t - age, and how late the latest is."""
    values, worst = [], 0
    for i, age in enumerate(ages):
        known = [k for k in range(t - age + 1) if states[k, i] >= 0]
        if not known:
            return None
        values.append(int(states[known[-1], i]))
        worst = max(worst, t - age - known[-1])
    return values, worst


@given(st.lists(st.integers(0, 3), min_size=3, max_size=3), st.integers(0, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=80, derandomize=True, deadline=None, database=None)
def test_aged_values_are_the_aged_ones(ages: list[int], limit: int, seed: int) -> None:
    """Noise far below the distance of values: an age that is off by one would be seen."""
    plan = Plan(THREE, Identity(), ages, 1e6, stale_limit=limit)
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 3, (12, 3)).astype(np.int8)
    states[rng.random(states.shape) < 0.2] = -1
    outputs, _ = folded(plan, states)
    for t, output in enumerate(outputs):
        expected = reference_aged(states, t, ages) if t >= max(ages) else None
        if expected is None or expected[1] > limit:
            assert output is None
        else:
            assert output is not None
            assert output.stale == expected[1]
            assert np.allclose(output.values, THREE.values[expected[0]], atol=0.01)


def test_a_reading_older_than_the_limit_is_left_out_of_sums_and_ends_the_tick_of_others() -> None:
    rows = np.array([[0, 0], [0, 1], [-1, 1], [-1, 1], [-1, 1], [1, 1], [-1, -1], [1, 1]])
    outputs, reasons = folded(Plan(PAIR, Mean(), 1, 1.0), rows)
    assert [None if o is None else o.count for o in outputs] == [None, 2, 2, 1, 1, 1, 2, None]
    assert reasons[0] == "1 of 2 snapshots read so far"
    assert reasons[7] == "no sequence was read at its age"
    outputs, _ = folded(Plan(PAIR, Mean(), 1, 1.0, stale_limit=1), rows)
    assert [None if o is None else (o.count, o.stale) for o in outputs[1:]] == [
        (2, 0),
        (2, 0),
        (2, 1),
        (1, 0),
        (1, 0),
        (2, 0),
        (2, 1),
    ]
    outputs, reasons = folded(Plan(PAIR, Max(), 1, 1.0, stale_limit=1), rows)
    assert [None if o is None else o.stale for o in outputs] == [None, 0, 0, 1, None, None, 0, 1]
    assert {o.count for o in outputs if o is not None} == {None}
    assert reasons[4] == "some reading is missing, or more than 1 steps older than planned; max needs all of them"
    assert fran.release(fran.init(Plan(PAIR, Mean(), 1, 1.0)), seeded()) is None


LEFT_OUT = {
    "mean": (Mean(), lambda v, z: [sum(v) / len(v)]),
    "sum": (Sum(), lambda v, z: [sum(v)]),
    "count": (Count(2), lambda v, z: [z.count(2)]),
    "histogram": (Histogram(), lambda v, z: [z.count(a) for a in range(3)]),
    "linear, equal weights": (Linear([2.0] * 3), lambda v, z: [2.0 * sum(v)]),
    "custom": (Custom([[1, 2, 4], [0, 0, 1], [8, 8, 0]]), None),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_sequences_that_were_not_read_contribute_nothing(name: str) -> None:
    """Against plain Python, with noise far below the distance of values; the mean is that of those that were read."""
    query, plain = LEFT_OUT[name]
    plan = Plan(THREE, query, [1, 0, 2], 1e6)
    rng = np.random.default_rng(5)
    states = rng.integers(0, 3, (60, 3)).astype(np.int8)
    states[rng.random(states.shape) < 0.4] = -1
    outputs, _ = folded(plan, states)
    seen = 0
    for t, output in enumerate(outputs):
        aged = {i: int(states[t - age, i]) for i, age in enumerate(plan.ages) if t >= age and states[t - age, i] >= 0}
        if t < 2 or not aged:
            assert output is None
            continue
        if plain is None:
            wanted = [sum(query.contributions[i, a, 0] for i, a in aged.items())]
        else:
            wanted = plain([float(THREE.values[a]) for a in aged.values()], list(aged.values()))
        assert output is not None
        assert output.count == len(aged)
        assert np.allclose(output.values, wanted, atol=0.01)
        seen += len(aged) < 3
    assert seen > 20


@pytest.mark.parametrize(
    "query",
    [Max(), Min(), Identity(), Linear([1, 2, 1]), Custom(np.ptp), PerGroup("sum", ((0, 1), (2,)))],
)
def test_statistics_that_are_another_one_without_a_sequence_need_all(query: object) -> None:
    outputs, reasons = folded(Plan(THREE, query, 0, 1.0), np.array([[0, 1, 2], [0, -1, 2]]))  # type: ignore[arg-type]
    assert outputs[0] is not None
    assert outputs[0].count is None
    assert outputs[1] is None
    assert "needs all of them" in reasons[1]


def test_how_old_the_readings_of_a_release_are() -> None:
    """The planned age, and the ticks for which a reading was missing; None where nothing was read."""
    plan = Plan(THREE, Mean(), [0, 2, 1], 1.0, stale_limit=5)
    rows = np.array([[0, 0, -1], [1, -1, -1], [-1, 1, -1], [2, 2, 2], [-1, 0, 0]])
    state, found = fran.init(plan), []
    for row in rows:
        state = fran.observe(state, row)
        found.append(fran.information_ages(state))
    assert found == [[0, None, None], [0, None, None], [1, 2, None], [0, 3, None], [1, 2, 1]]
    alike = fran.observe(fran.init(Plan(THREE, Mean(), 0, 1.0)), [0, -1, 2])
    assert fran.information_ages(alike) == [0, None, 0]


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        ([0, 2], "unknown state; states are 0..1"),
        ([0, -2], "unknown state"),
        ([0], "one state for each of 2"),
        ([[0, 1]], "one state for each of 2"),
        ([0.0, 1.0], "float64 given; state numbers"),
    ],
)
def test_snapshots_outside_the_domain_are_refused(snapshot: object, message: str) -> None:
    plan = Plan(PAIR, Mean(), 1, 1.0)
    with pytest.raises(InputError, match=message):
        fran.observe(fran.init(plan), snapshot)  # type: ignore[arg-type]
    if "unknown state" in message:
        with pytest.raises(InputError, match="unknown state"):
            fran.batch(plan, np.array([[0, 0], snapshot, [0, 0]], dtype=np.int8), seeded())


@pytest.mark.parametrize("query", ALL, ids=lambda q: q.name)
@pytest.mark.parametrize("epsilon_c", [0.01, 5.0])
def test_noise_scale_is_exactly_sensitivity_over_epsilon(query: object, epsilon_c: float) -> None:
    plan = Plan(THREE, query, 1, epsilon_c)  # type: ignore[arg-type]
    assert plan.scale * Fraction(plan.step) == Fraction(plan.lattice_sensitivity) / Fraction(epsilon_c)
    assert plan.lattice_sensitivity == pytest.approx(plan.sensitivity * plan.divisor, rel=1e-15)
    assert plan.step == plan.query.spacing


def test_a_quotient_s_rounding_does_not_shrink_the_noise() -> None:
    """1/49 * 49 is below 1 in floating point."""
    plan = Plan(CoupledChain(np.eye(49), SYMMETRIC), Mean(), 1, 1.0)
    assert plan.sensitivity * 49 < 1.0
    assert plan.scale * Fraction(plan.step) == 1


@pytest.mark.parametrize("query", ALL, ids=lambda q: q.name)
def test_answers_and_outputs_lie_on_the_lattice(query: object) -> None:
    plan = Plan(THREE, query, 0, 0.7)  # type: ignore[arg-type]
    everything = np.array(snapshots(3, 3))
    answers = plan.query.lattice_answers(everything)
    assert np.array_equal(answers / plan.unit, np.round(answers / plan.unit))
    exact = plan.query.evaluate(everything, THREE.value_table)
    assert np.allclose(answers / plan.divisor, exact, rtol=1e-15)
    neighbours = [
        l1(answers[a], answers[b])
        for a, x in enumerate(everything)
        for b, y in enumerate(everything)
        if (x != y).sum() == 1
    ]
    assert max(neighbours) <= plan.lattice_sensitivity
    for output in fran.batch(plan, everything.astype(np.int8), seeded()):
        assert output is not None
        steps = (np.array(output.values) * plan.divisor - plan.query.offset) / plan.step
        assert np.allclose(steps, np.round(steps), rtol=0, atol=1e-6 * max(1.0, np.abs(steps).max()))
        if plan.divisor == 1.0:
            assert np.array_equal(steps, np.round(steps))


@pytest.mark.parametrize("query", [Mean(), Max(), Identity()], ids=lambda q: q.name)
def test_values_of_their_own_per_sequence(query: object) -> None:
    plan = Plan(OWN, query, 0, 1e5)  # type: ignore[arg-type]
    rows = np.array([[0, 0], [1, 0], [1, 1]], dtype=np.int8)
    for row, output in zip(rows, fran.batch(plan, rows, seeded()), strict=True):
        assert output is not None
        assert np.allclose(output.values, plan.query.evaluate(row, OWN.value_table), atol=0.01)


def test_a_custom_query_is_certified_for_its_rounded_self() -> None:
    raw = Custom(lambda v: v.sum() / 3.0, name="third")
    plan = Plan(PAIR, raw, 1, 1.0)
    step = plan.query.step  # type: ignore[union-attr]
    table = PAIR.value_table
    assert plan.sensitivity == raw.sensitivity(1, table) + step
    assert step <= raw.sensitivity(1, table) / 2**19
    rounded = plan.query.evaluate(np.array(snapshots(2, 2)), table)
    assert np.array_equal(rounded / step, np.round(rounded / step))
    assert not np.array_equal(rounded, raw.evaluate(np.array(snapshots(2, 2)), table))
    plain = Plan(PAIR, Sum(), 1, 1.0).certified.epsilon
    assert plan.certified.epsilon == pytest.approx(plain, rel=1e-4)
    same = leakage(PAIR, plan.query, ages=1, epsilon_c=1.0).epsilon
    assert plan.certified.epsilon == same


def noise_of(plan: Plan, count: int, seed: int) -> np.ndarray:
    """Released minus exact, in lattice steps."""
    rows = np.zeros((count, plan.model.sequences), dtype=np.int8)
    values = np.array([o.values for o in fran.batch(plan, rows, seeded(seed)) if o is not None])
    return np.round(values[:, 0] * plan.divisor / plan.step)


def geometric_fit(noise: np.ndarray, scale: float) -> float:
    """p-value of a chi-square test over 40 cells of equal probability."""
    edges = stats.laplace.ppf(np.arange(1, 40) / 40, scale=scale)
    cells = np.unique(np.round(edges))
    q = math.exp(-1 / scale)

    def cdf(n: float) -> float:
        return 1 - q ** (n + 1) / (1 + q) if n >= 0 else q ** (-n) / (1 + q)

    probabilities = np.diff([0.0, *(cdf(c) for c in cells), 1.0])
    counts = np.histogram(noise, bins=[-np.inf, *(cells + 0.5), np.inf])[0]
    return float(stats.chisquare(counts, probabilities * noise.size).pvalue)


@pytest.mark.parametrize("query", [Mean(), Max()], ids=lambda q: q.name)
def test_released_noise_is_two_sided_geometric_of_the_planned_scale(query: object) -> None:
    plan = Plan(PAIR, query, 0, 0.5)  # type: ignore[arg-type]
    noise = noise_of(plan, 20_000, seed=3)
    scale = float(plan.scale)
    assert scale * plan.step == pytest.approx(1 / 0.5)
    assert geometric_fit(noise, scale) > 1e-3
    for wrong in (0.5, 0.9, 1.1, 2.0):
        assert geometric_fit(noise, wrong * scale) < 1e-6


def test_every_coordinate_has_its_own_noise() -> None:
    plan = Plan(THREE, Histogram(), 0, 1.0)
    rows = np.zeros((4000, 3), dtype=np.int8)
    values = np.array([o.values for o in fran.batch(plan, rows, seeded(1)) if o is not None]) - [3, 0, 0]
    correlation = np.corrcoef(values.T)
    assert np.abs(correlation - np.eye(3)).max() < 0.08
    assert np.allclose(values.var(axis=0), 2 * 2**2, rtol=0.15)


def test_secure_and_seeded_randomness_are_told_apart() -> None:
    plan = Plan(PAIR, Mean(), 0, 1.0)
    _, safe = fran.step(fran.init(plan), [0, 1], Randomness.secure())
    _, seed = fran.step(fran.init(plan), [0, 1], seeded())
    assert safe is not None
    assert seed is not None
    assert (safe.unsafe, seed.unsafe) == (False, True)
    rows = np.zeros((60, 2), dtype=np.int8)
    drawn = [[o.values for o in fran.batch(plan, rows, Randomness.secure()) if o is not None] for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_a_step_of_100_000_sequences_takes_linear_memory() -> None:
    """Its time is measured by `python -m bench fran`."""

    def peak_bytes(s: int) -> int:
        plan = Plan(CoupledChain({(j, j): 1.0 for j in range(s)}, SYMMETRIC), Mean(), 5, 1.0)
        rng = np.random.default_rng(0)
        rows = [rng.integers(0, 2, s).astype(np.int8) for _ in range(8)]
        state, randomness = fran.init(plan), seeded()
        for row in rows:  # warm: estimator and ages are computed once
            state, _ = fran.step(state, row, randomness)
        tracemalloc.start()
        try:
            for row in rows:
                state, output = fran.step(state, row, randomness)
                assert output is not None
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak_bytes(10_000), peak_bytes(100_000)
    assert large < 12 * small
    assert large < 40 * 100_000  # a few bytes for each sequence, and no square of their number
