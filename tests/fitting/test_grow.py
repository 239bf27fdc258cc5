"""Growing a class on simulated readings of known structure: what the tests notice, and what the limits cover."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.accountant.moment import every_moment
from csdp.chain import CoupledChain, EnvironmentChain, InfluenceGraph
from csdp.fitting.class_limits import shared_limits
from csdp.fitting.grow import Grown, grow
from csdp.fitting.parents import Law, Newest, Reading, first_law, fit_law
from csdp.fitting.residuals import run_tests
from csdp.fitting.sample import read_sample
from csdp.plan import Plan
from csdp.query import Share, tabulate

S, T, M = 30, 1300, 2
BACK = np.array([[0.75, 0.25], [0.45, 0.55]])
EPSILON = 0.5


def own_law(rows: np.ndarray = BACK) -> Law:
    """Every sequence follows itself."""
    return replace(first_law(S, M), rows=np.tile(rows, (1, S, 1, 1)))


def simulate(law: Law, seed: int, ticks: int = T) -> np.ndarray:
    """Readings in natural order."""
    like = Newest(np.zeros((ticks, S), np.int16), M)
    return law.simulate(like, 1, np.random.default_rng([31, seed]))[0][::-1]


def grow_on(states: np.ndarray, **environment: object) -> Grown:
    """The class grown on readings, around any chain."""
    point = CoupledChain(np.eye(S), BACK, direction="backward")
    return grow(read_sample(np.ascontiguousarray(states), states=M), point, **environment)  # type: ignore[arg-type]


def with_memory() -> Law:
    """The first three sequences also follow the state before their last one."""
    law = own_law().with_parents(tuple(((j, 1), (j, 2)) if j < 3 else ((j, 1),) for j in range(S)))
    rows = law.rows.copy()
    rows[0, :3, :, 1] = [0.2, 0.4, 0.45, 0.65]
    rows[..., 0] = 1.0 - rows[..., 1]
    return replace(law, rows=rows)


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
    ((window,),) = graph.worlds
    assert window.gains[:, 0, 1, 1].min() >= 0.3  # type: ignore[union-attr]
    assert (window.bases[:, :, 1] <= BACK[:, 1]).all()  # type: ignore[union-attr]
    assert graph.forward is not None
    true = InfluenceGraph.from_chain(CoupledChain([[1.0]], BACK, direction="backward"))
    cost = EPSILON * (1.0 - np.eye(2)) + np.zeros((S, 1, 1))
    alone = graph._again(swing=None)
    assert every_moment(alone, cost).min() >= every_moment(true, cost[:1]).max()
    assert (every_moment(graph, cost) >= every_moment(alone, cost)).all()


def test_the_residuals_of_a_right_model_have_mean_zero_and_their_variance() -> None:
    z = []
    for seed in range(3):
        data = Newest(np.ascontiguousarray(simulate(own_law(), seed)[::-1]), M)
        statistics = run_tests(Reading(fit_law(own_law(), data, 1), data), 100)
        z.append(np.concatenate([g.z.ravel() for g in statistics.groups if g.who and g.test != "drift"]))
    values = np.concatenate(z)
    values = values[values != 0.0]
    assert abs(values.mean()) < 0.05
    assert 0.9 < values.std() < 1.1


def test_memory_in_three_of_thirty_sequences_is_named() -> None:
    grown = grow_on(simulate(with_memory(), 2))
    assert grown.status == "accepted"
    assert "x1 also on the one before, x2 also on the one before, x3 also on the one before" in grown.assumes
    assert "x4" not in grown.assumes
    assert grown.graph is not None
    assert grown.graph.memory == 2


def test_common_shocks_are_noticed() -> None:
    random = np.random.default_rng(3)
    states = simulate(own_law(), 3).copy()
    shock = random.random(T) < 0.03
    states[shock] = random.random((shock.sum(), S)) < 0.8
    grown = grow_on(states)
    assert grown.status == "rejected"
    assert "sequences move together" in grown.reason
    assert "environment='hidden'" in grown.reason


def test_a_change_in_mid_year_is_noticed_and_limits_hold_in_both_halves() -> None:
    later = np.array([[0.85, 0.15], [0.25, 0.75]])
    states = simulate(own_law(), 4).copy()
    states[T // 2 :] = simulate(own_law(later), 5)[T // 2 :]
    grown = grow_on(states)
    assert any("limits over blocks" in step for step in grown.path)
    assert grown.graph is not None
    ((window,),) = grown.graph.worlds
    assert window.gains[:, 0, 1, 1].min() >= 0.6  # type: ignore[union-attr]
    assert (window.bases[:, 0, 1] <= 0.15).all()  # type: ignore[union-attr]


def test_slow_levels_are_noticed_and_covered() -> None:
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
    rows = np.array([BACK, [[0.45, 0.55], [0.3, 0.7]]])
    law = Law(own_law().parents, np.repeat(rows[:, None], S, axis=1), np.full(2, 0.5))
    like = Newest(np.zeros((T, S), np.int16), M)
    if kind == "hidden":
        law = replace(law, switching=np.array([[0.95, 0.05], [0.1, 0.9]]))
        environment: dict[str, object] = {"hidden": 2}
    else:
        labels = np.arange(T) // 3 % 2
        newest = labels[::-1]
        like = replace(like, path=np.concatenate([newest[:1], newest[:-1]]))
        environment = {"clock": (labels, 2)}
    states = law.simulate(like, 1, np.random.default_rng(7))[0][::-1]
    grown = grow_on(states, **environment)
    assert grown.status == "accepted"
    assert grown.graph is not None
    members = [CoupledChain([[1.0]], each, direction="backward") for each in rows]
    true = EnvironmentChain(members, switching=np.full((2, 2), 0.5)).given_path()
    query = tabulate(Share(1), grown.graph)
    class_ = Accountant(Plan(grown.graph._again(swing=None), query, 0, EPSILON)).ceiling()
    assert class_ >= Accountant(Plan(true, tabulate(Share(1), true), 0, EPSILON)).ceiling()


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


def test_limits_of_values_that_scatter_hold_together() -> None:
    failed = 0
    for seed in range(300):
        random = np.random.default_rng([10, seed])
        true = random.normal(0.3, 0.2, (20, 2))
        low, high, _ = shared_limits(random.normal(true, 0.1), np.full((20, 2), 0.1), 0.05)
        failed += bool(((true < low) | (true > high)).any())
    assert failed <= 20  # 15 expected at most


@pytest.mark.slow
def test_a_right_model_is_accepted_as_often_as_the_level_says() -> None:
    grown = [grow_on(simulate(own_law(), 100 + seed)) for seed in range(100)]
    assert sum(each.status != "accepted" for each in grown) <= 6  # one expected; seven or more once in 10,000
    bad = sum(bool((each.graph.worlds[0][0].gains[:, 0, 1, 1] < 0.3).any()) for each in grown)  # type: ignore[union-attr]
    assert bad <= 1
