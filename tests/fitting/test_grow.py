"""Growing a class on simulated readings of known structure: what the tests notice, and what the limits cover."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.accountant.moment import every_moment
from csdp.chain import CoupledChain, EnvironmentChain, InfluenceGraph
from csdp.chain.graph import Odds
from csdp.errors import InputError
from csdp.fitting.additive import Law, Newest, Reading, first_law, fit_law, own_parents
from csdp.fitting.class_limits import limit_effects, shared_limit
from csdp.fitting.grow import Grown, _Growth, grow
from csdp.fitting.residuals import compare, run_tests
from csdp.fitting.sample import read_sample
from csdp.plan import Plan
from csdp.query import tabulate

S, T, M = 30, 1300, 2
BACK = np.array([[0.75, 0.25], [0.45, 0.55]])
#: Log odds by which a state moves the one before it, and of state 1 after state 0.
EFFECT, LEVEL = np.log(0.55 / 0.45) - np.log(0.25 / 0.75), np.log(0.25 / 0.75)
EPSILON = 0.5
NOTHING: frozenset[str] = frozenset()


def ticks(count: int = T, phases: int = 1) -> Newest:
    """Ticks without readings."""
    return Newest(np.zeros((count, S), np.int16), M, np.arange(count) % phases, phases)


def own_law(environments: int = 1, phases: int = 1, parents: object = None) -> Law:
    """Every sequence follows itself."""
    law = first_law(ticks(phases=phases), parents or own_parents(S), environments)  # type: ignore[arg-type]
    coefficients = law.coefficients.copy()
    coefficients[:, 0, 1], coefficients[:, law.first_effect, 1] = LEVEL, EFFECT
    return replace(law, coefficients=coefficients)


def simulate(law: Law, seed: int, count: int = T) -> np.ndarray:
    """Readings in natural order."""
    return law.simulate(ticks(count, law.phases), 1, np.random.default_rng([31, seed]))[0][::-1]


def grow_on(states: np.ndarray, **environment: object) -> Grown:
    """The class grown on readings, around any chain."""
    point = CoupledChain(np.eye(states.shape[1]), BACK, direction="backward")
    return grow(read_sample(np.ascontiguousarray(states), states=M), point, **environment)  # type: ignore[arg-type]


def odds_of(grown: Grown, lag: int = 1) -> np.ndarray:
    """The limits of what a sequence's own states add to log odds."""
    assert grown.graph is not None
    window = grown.graph.worlds[0][-1]
    assert isinstance(window, Odds)
    own = (window.edge_lags == lag) & (window.edge_targets == window.edge_sources)
    limits = np.zeros(grown.graph.sequences)
    limits[window.edge_targets[own]] = window.odds[own]
    return limits


def with_memory() -> Law:
    """The first three sequences also follow the state before their last one."""
    law = own_law(parents=tuple(((j, 1), (j, 2)) if j < 3 else ((j, 1),) for j in range(S)))
    coefficients = law.coefficients.copy()
    coefficients[:3, law.first_effect + 1, 1] = 1.2
    return replace(law, coefficients=coefficients)


def test_a_right_model_is_accepted_and_its_limits_hold() -> None:
    grown = grow_on(simulate(own_law(), 1))
    assert (grown.status, grown.reason) == ("accepted", "")
    assert grown.path[0] == "every sequence follows its own next state"
    assert len(grown.path) == 2
    assert grown.assumes.startswith("every sequence depends on its own last tick; no influence above 0.")
    assert "slow levels add" in grown.assumes
    assert "nine times in ten" in grown.power
    graph = grown.graph
    assert graph is not None
    assert (odds_of(grown) >= EFFECT).all()
    assert odds_of(grown).max() < EFFECT + 1.0
    assert graph.forward is not None
    true = InfluenceGraph.from_chain(CoupledChain([[1.0]], BACK, direction="backward"))
    cost = EPSILON * (1.0 - np.eye(2)) + np.zeros((S, 1, 1))
    alone = graph._again(swing=None)
    apart = ~np.eye(2, dtype=bool)
    assert every_moment(alone, cost)[:, apart].min() >= every_moment(true, cost[:1]).max()
    assert (every_moment(graph, cost) >= every_moment(alone, cost)).all()


def test_the_residuals_of_a_right_model_have_mean_zero_and_their_variance() -> None:
    z = []
    for seed in range(3):
        data = ticks().showing(np.ascontiguousarray(simulate(own_law(), seed)[::-1]))
        groups = run_tests(Reading(fit_law(own_law(), data, 1)[0], data), 1000, NOTHING)
        z.append(np.concatenate([each.z for each in groups if each.information.any() and each.who.shape[1]]))
    values = np.concatenate(z)
    values = values[values != 0.0]
    assert abs(values.mean()) < 0.05
    assert 0.9 < values.std() < 1.1


def test_statistics_are_those_of_functions_freed_by_least_squares() -> None:
    data = ticks(400).of(np.arange(4))
    law = replace(own_law(), parents=own_parents(4), coefficients=own_law().coefficients[:4])
    states = law.simulate(data, 1, np.random.default_rng(15))[0]
    states[50:90, 1] = -1
    reading = Reading(law, data.showing(states))
    groups = run_tests(reading, 100, NOTHING)
    pairs = next(one for one in groups if one.test == "others" and one.who.shape[1] == 2)
    chance = reading.predicted[:, :, 1]
    known = reading.known
    shown = np.where(states >= 0, (states == 1) - (states == 1).sum(axis=0) / (states >= 0).sum(axis=0), 0.0)
    for (j, i), z, information in zip(pairs.who, pairs.z, pairs.information, strict=True):
        at = np.flatnonzero(known[:, j])
        newer = shown[at - 1, i]
        p = chance[at, j]
        free = np.column_stack([np.eye(4)[at // 100], states[at - 1, j] == 1])
        root = np.sqrt(p * (1.0 - p))
        tested = root * newer - root[:, None] * free @ np.linalg.lstsq(root[:, None] * free, root * newer)[0]
        assert information == pytest.approx(tested @ tested, rel=1e-4)
        left = ((states[at, j] == 1) - p) / root
        assert z == pytest.approx(left @ tested / np.sqrt(tested @ tested), rel=1e-4)


def test_memory_in_three_of_thirty_sequences_is_named() -> None:
    grown = grow_on(simulate(with_memory(), 2))
    assert grown.status == "accepted"
    assert "x1 also on the one before, x2 also on the one before, x3 also on the one before" in grown.assumes
    assert "x4" not in grown.assumes
    assert grown.graph is not None
    assert grown.graph.memory == 2
    assert (odds_of(grown, 2)[:3] >= 1.2).all()


def test_common_shocks_are_noticed() -> None:
    random = np.random.default_rng(3)
    states = simulate(own_law(), 3).copy()
    shock = random.random(T) < 0.03
    states[shock] = random.random((shock.sum(), S)) < 0.8
    grown = grow_on(states)
    assert grown.status == "rejected"
    assert "sequences move together" in grown.reason
    assert "environment='hidden'" in grown.reason
    assert grow_on(states, hidden=2).status == "accepted"


def test_a_change_in_mid_year_is_noticed_and_limits_hold_in_both_halves() -> None:
    later = own_law()
    coefficients = later.coefficients.copy()
    coefficients[:, later.first_effect, 1] = EFFECT + 1.5
    states = simulate(own_law(), 4).copy()
    cut = T * 2 // 5
    states[cut:] = simulate(replace(later, coefficients=coefficients), 5)[cut:]
    grown = grow_on(states)
    assert any("limits in every block" in step for step in grown.path)
    assert (odds_of(grown) >= EFFECT + 1.5).all()


def test_slow_levels_are_covered() -> None:
    random = np.random.default_rng(6)
    level, states = random.integers(2, size=S), np.zeros((T, S), np.int16)
    for tick in range(1, T):
        level = np.where(random.random(S) < 1 / 400, 1 - level, level)
        chance = np.where(level > 0, 0.6, 0.4) + np.where(states[tick - 1] > 0, 0.1, -0.1)
        states[tick] = random.random(S) < chance
    grown = grow_on(states)
    assert grown.graph is not None
    assert grown.graph.swing is not None
    swing = np.log(0.625 / 0.375)  # of the long-run shares at either level, against one half
    assert grown.graph.swing[:, 0, 1].min() >= swing


@pytest.mark.parametrize("kind", ["hidden", "clock"])
def test_environments(kind: str) -> None:
    law = own_law(2 if kind == "hidden" else 1, 2 if kind == "clock" else 1)
    coefficients = law.coefficients.copy()
    coefficients[:, 2, 1] = 1.5
    switching = np.array([[0.95, 0.05], [0.1, 0.9]]) if kind == "hidden" else np.ones((1, 1))
    law = replace(law, coefficients=coefficients, switching=switching)
    states = simulate(law, 7)
    environment = {"hidden": 2} if kind == "hidden" else {"clock": ((np.arange(T)[::-1] % 2), 2)}
    grown = grow_on(states, **environment)
    assert grown.status == "accepted"
    assert (odds_of(grown) >= EFFECT).all()
    assert odds_of(grown).max() < EFFECT + 1.0
    assert ("2 hidden environments" if kind == "hidden" else "given the clock") in grown.assumes
    rejected = grow_on(states)
    assert rejected.status == "rejected"


def test_three_states() -> None:
    chain = CoupledChain(np.eye(6), [[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]], direction="backward")
    fitted = csdp.fit(chain.simulate(2000, seed=1), public=True, direction="backward")
    assert fitted.verdict.status == "accepted"
    graph = fitted.family
    assert isinstance(graph, InfluenceGraph)
    (window,) = graph.worlds[0]
    assert isinstance(window, Odds)
    assert (window.odds >= np.log(0.7 * 0.5 / (0.1 * 0.2))).all()
    query = tabulate(csdp.Mean(), chain)
    certified = Accountant(Plan(graph, tabulate(csdp.Mean(), graph), 1, EPSILON)).ceiling()
    assert certified >= Accountant(Plan(chain, query, 1, EPSILON)).ceiling()


def test_sequences_that_follow_each_other_get_edges() -> None:
    ring = {(i, k): 0.7 if i == k else 0.3 for i in range(3) for k in (i, (i + 1) % 3)}
    chain = CoupledChain(ring, [[0.8, 0.2], [0.2, 0.8]], direction="backward")
    fitted = csdp.fit(chain.simulate(3000, seed=1), public=True, direction="backward")
    graph = fitted.family
    assert isinstance(graph, InfluenceGraph)
    assert graph.forward is None  # their law forwards is not a product
    assert fitted.verdict.status == "accepted"
    certified = Accountant(Plan(graph, tabulate(csdp.Mean(), graph), 1, EPSILON)).ceiling()
    assert certified >= Accountant(Plan(chain, tabulate(csdp.Mean(), chain), 1, EPSILON)).ceiling()


def test_longer_memory_of_coupled_sequences_has_no_limits_and_is_not_accepted() -> None:
    random = np.random.default_rng(8)
    states = np.zeros((4000, 2), np.int16)
    for tick in range(2, 4000):
        states[tick, 0] = random.random() < 0.1 + 0.4 * states[tick - 1, 1] + 0.4 * states[tick - 2, 0]
        states[tick, 1] = random.random() < 0.2 + 0.6 * states[tick - 1, 1]
    fitted = csdp.fit(states, public=True)
    assert fitted.family is None
    assert fitted.verdict.status == "rejected"
    assert "no limits" in fitted.verdict.reason


def test_of_many_sequences_some_are_tested_and_all_are_limited() -> None:
    random = np.random.default_rng(12)
    states = np.zeros((900, 300), np.int16)
    for tick in range(1, 900):
        states[tick] = random.random(300) < np.where(states[tick - 1] > 0, 0.6, 0.3)
    grown = grow_on(states)
    assert grown.status == "accepted"
    assert any("tested on 128 of 300 sequences" in step for step in grown.path)
    assert (odds_of(grown) >= np.log(0.6 / 0.4) - np.log(0.3 / 0.7)).all()


def test_of_long_readings_the_newest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("csdp.fitting.grow.READINGS", 18_000)
    older = own_law()
    coefficients = older.coefficients.copy()
    coefficients[:, older.first_effect, 1] = EFFECT - 2.0
    states = simulate(own_law(), 21).copy()
    states[:600] = simulate(replace(older, coefficients=coefficients), 22)[:600]
    grown = grow_on(states)
    assert grown.status == "accepted"
    assert "fitted, tested and limited on the newest 600 of 1,300 ticks" in grown.path
    assert not any("limits in every block" in step for step in grown.path)
    assert (odds_of(grown) >= EFFECT).all()  # older readings, never tested, would have lowered them


def test_readings_that_hardly_change_test_nothing_and_are_not_accepted() -> None:
    states = np.zeros((600, 2), np.int16)
    states[::97, 0] = 1
    grown = grow_on(states)
    assert grown.status == "untested"
    assert "nothing to test" in grown.reason


def test_a_hidden_environment_of_one_sequence_is_refused() -> None:
    spells = np.repeat(np.arange(60) % 2, np.random.default_rng(1).integers(8, 11, 60))[:, None]
    with pytest.raises(InputError, match="a fact about that sequence"):
        csdp.fit(spells, public=True, environment="hidden", environments=2)


def test_a_parent_that_was_never_seen_to_change_has_no_limit_of_its_own() -> None:
    states = np.zeros((600, 1), np.int16)
    data = Newest(states, M, np.zeros(600, np.intp), 1)
    law = fit_law(first_law(data, own_parents(1)), data, 1)
    odds, _ = limit_effects(*law, 0.005, 1.0)
    assert odds[0, 0] == pytest.approx(30.0)  # the largest that is written


def test_private_readings_are_never_tested() -> None:
    states = np.asarray(np.random.default_rng(9).integers(2, size=(1000, 2)))
    fitted = csdp.fit(states, states=2, epsilon=2.0)
    assert fitted.verdict.status == "untested"
    assert fitted.fitted is not None
    assert (fitted.fitted.growing, fitted.fitted.power, fitted.fitted.assumes) == ((), "", "")


def test_the_class_survives_a_file() -> None:
    chain = EnvironmentChain(
        [CoupledChain(np.eye(4), rows, direction="backward") for rows in (BACK, BACK[::-1])], cycle=(0, 1)
    )
    fitted = csdp.fit(
        chain.simulate(1200, seed=1), public=True, environment="clock", environments=2, direction="backward"
    )
    again = EnvironmentChain.from_json(fitted.to_json())
    assert again == fitted
    assert again.family == fitted.family
    assert again.fitted == fitted.fitted


@pytest.mark.parametrize(("shape", "spread"), [((20, 2), 0.2), ((60, 1), 0.05), ((1, 1), 0.3), ((4, 1), 0.4)])
def test_limits_of_values_that_scatter_hold_together(shape: tuple[int, int], spread: float) -> None:
    failed = 0
    for seed in range(300):
        random = np.random.default_rng([10, seed])
        true = random.normal(0.3, spread, shape)
        failed += bool(np.abs(true).max() > shared_limit(random.normal(true, 0.1), np.full(shape, 0.1), 0.05))
    assert failed <= 15


def test_a_limit_from_the_largest_estimate_alone_would_fail() -> None:
    failed = 0
    for seed in range(300):
        true = np.random.default_rng([10, seed]).normal(0.3, 0.2, (20, 2))
        failed += bool(np.abs(true).max() > np.abs(np.random.default_rng([11, seed]).normal(true, 0.1)).max())
    assert failed > 15


def test_an_outlier_keeps_its_own_readings_and_what_was_never_seen_those_of_the_others() -> None:
    values, errors = np.full((30, 1), 0.2), np.full((30, 1), 0.1)
    values[0] = 3.0
    assert 3.0 < shared_limit(values, errors, 0.01) < 3.6
    errors[0] = np.inf
    assert 0.2 < shared_limit(values, errors, 0.01) < 1.0
    assert shared_limit(values, np.full((30, 1), np.inf), 0.01) == pytest.approx(30.0)


def test_statistics_that_lie_like_simulated_ones_are_not_surprising_and_others_are() -> None:
    law, like = own_law(), ticks()
    series = [
        run_tests(Reading(law, like.showing(states)), 100, NOTHING)
        for states in law.simulate(like, 40, np.random.default_rng(11))
    ]
    assert compare(series[0], series[1:]).p > 0.025
    wrong = run_tests(Reading(law, like.showing(simulate(with_memory(), 12)[::-1].copy())), 100, NOTHING)
    compared = compare(wrong, series)
    assert compared.p == pytest.approx(1 / 41)
    assert compared.chance < 1e-6
    assert compared.worst().test in {"order", "level"}


def test_an_answer_that_does_not_help_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = _Growth._answers

    def with_useless_ones_first(growth: _Growth) -> object:
        yield "nothing at all", lambda: growth.model
        yield from answers(growth)

    monkeypatch.setattr(_Growth, "_answers", with_useless_ones_first)
    path = grow_on(simulate(with_memory(), 2)).path
    assert path[1] == "nothing at all, which did not help"
    assert path[2].startswith("x1 also on the one before")
    assert "judged" in path[3]


@pytest.mark.slow
@pytest.mark.parametrize("sequences", [2, 30])
def test_the_chance_of_the_largest_statistic_is_calibrated(sequences: int) -> None:
    like = ticks(600).of(np.arange(sequences))
    law = replace(own_law(), parents=own_parents(sequences), coefficients=own_law().coefficients[:sequences])
    series = [
        run_tests(Reading(law, like.showing(states)), 100, NOTHING)
        for states in law.simulate(like, 900, np.random.default_rng(14))
    ]
    chances = np.array([compare(series[k], series[k + 1 : k + 60]).chance for k in range(840)])
    for level, most in ((0.1, 1.5), (0.05, 1.6), (0.02, 2.0)):
        assert 1.0 / most < (chances <= level).mean() / level < most


@pytest.mark.slow
def test_a_right_model_is_accepted_as_often_as_the_level_says() -> None:
    grown = [grow_on(simulate(own_law(), 100 + seed)) for seed in range(100)]
    assert sum(each.status != "accepted" for each in grown) <= 6  # one expected; seven or more once in 10,000
    assert sum(bool((odds_of(each) < EFFECT).any()) for each in grown) <= 1
