"""Dynamic noise: a level for every tick, certified by the accountant, carried out by the gate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import csdp
from accountant.systems import Asked, follow
from csdp.accountant import Accountant
from csdp.errors import InfeasibleError, InputError
from csdp.plan import Plan
from csdp.planning import dynamic_plan
from csdp.schedule import Schedule
from oracle import history_leakage

PAIR = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
SKEWED = csdp.CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])


def truth(chain: csdp.CoupledChain, age: int, levels: list[float], moment: int) -> float:
    """Brute force over all output histories up to a moment."""
    s, m = chain.sequences, chain.states
    asked = Asked("mean", s, m)
    told = [asked.told(t, (age,) * s, e) for t, e in enumerate(levels, start=1) if e > 0 and t <= moment]
    return history_leakage(chain.kernel(), s, m, told, moment)


@pytest.mark.parametrize("weights", [None, [1, 4, 1], [1, 0, 1]], ids=["equal", "one matters", "one is left out"])
@pytest.mark.parametrize(("chain", "age", "budget"), [(PAIR, 1, 0.25), (SKEWED, 1, 0.9), (SKEWED, 2, 0.5)])
def test_a_schedule_never_passes_its_budget(
    chain: csdp.CoupledChain, age: int, budget: float, weights: list[float] | None
) -> None:
    found = dynamic_plan(chain, csdp.Mean(), ages=age, budget=budget, horizon=3, weights=weights)
    assert max(found.leakage) <= budget
    assert found.mse <= found.constant_mse
    for moment in range(1, 6):  # quiet ticks after the last release count as well
        assert truth(chain, age, list(found.levels), moment) <= budget + 1e-12


@pytest.mark.parametrize("weights", [[6, 1, 1, 1], [1, 6, 1, 1]])
def test_the_tick_that_matters_most_is_the_sharpest_and_nothing_is_left_over(weights: list[float]) -> None:
    slow = csdp.CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    found = dynamic_plan(slow, csdp.Mean(), ages=1, budget=0.9, horizon=4, weights=weights, estimate="raw")
    assert np.argmax(found.levels) == np.argmax(weights)
    assert found.gain > 0.25
    assert 0.999 * 0.9 <= max(found.leakage) <= 0.9
    even = Accountant(Plan(slow, csdp.Mean(), 1, found.constant_level))
    assert 0.99 * 0.9 <= even.ceiling(4) <= 0.9


@pytest.mark.parametrize(("weights", "gain"), [([1, 0, 0, 1], 0.04), ([1, 0, 1, 0], 0.015)])
def test_what_fades_while_nothing_is_published_is_spent(weights: list[float], gain: float) -> None:
    slow = csdp.CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    found = dynamic_plan(slow, csdp.Mean(), ages=1, budget=0.9, horizon=4, weights=weights, estimate="raw")
    assert [level > 0 for level in found.levels] == [weight > 0 for weight in weights]
    assert found.levels[0] > found.constant_level
    assert found.gain > gain
    assert max(found.leakage) <= 0.9


def test_the_constant_level_is_that_of_the_ticks_that_are_published() -> None:
    slow = csdp.CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    found = dynamic_plan(slow, csdp.Mean(), ages=1, budget=0.9, horizon=3, weights=[1, 0, 1], estimate="raw")
    charged = Accountant(Plan(slow, csdp.Mean(), 1, found.constant_level))
    state = charged.release(charged.release(charged.start(), 1), 3)
    assert 0.99 * 0.9 <= charged.peak(state) <= 0.9
    assert charged.ceiling(3) > 1.05 * 0.9  # at all three ticks it would be too much


def test_for_one_binary_sequence_the_charge_is_the_truth_and_less_would_be_wrong() -> None:
    levels = [0.6, 0.2, 0.5]
    accountant = Accountant(Plan(SKEWED, csdp.Mean(), 1, 0.6))
    state, half = accountant.start(0), accountant.start(0)
    for tick, level in enumerate(levels, start=1):
        state = accountant.release(state, tick, epsilon_c=level)
        half = accountant.release(half, tick, epsilon_c=level / 2)
        exact = truth(SKEWED, 1, levels, tick)
        assert accountant.leakage(state).epsilon == pytest.approx(exact, rel=1e-6)
        assert accountant.leakage(half).epsilon < exact


@given(
    st.lists(st.floats(0.05, 2.0), min_size=1, max_size=3),
    st.floats(0.02, 0.6),
    st.floats(0.02, 0.6),
    st.integers(1, 2),
    st.booleans(),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_levels_are_charged_at_least_their_truth(
    levels: list[float], up: float, down: float, age: int, stale: bool
) -> None:
    chain = csdp.CoupledChain([[0.7, 0.3], [0.4, 0.6]], [[1 - up, up], [down, 1 - down]])
    for kind in ("auto", "scalar"):
        accountant = follow(Plan(chain, csdp.Mean(), age, max(levels)), kind)
        state = accountant.start(0)
        for tick, level in enumerate(levels, start=1):
            state = accountant.release(state, tick, epsilon_c=level, stale=stale)
            state = accountant.restore(json.loads(json.dumps(state.to_dict())))
        exact = truth(chain, age, levels, len(levels))
        assert accountant.leakage(state).epsilon >= exact * (1 - 1e-12)
        assert accountant.peak(state) >= truth(chain, age, levels, len(levels) + 1) * (1 - 1e-12)


@pytest.mark.parametrize("levels", [[5.0, 5.0], [0.05, 5.0]], ids=["at once", "at the end"])
def test_a_schedule_that_passes_the_budget_is_an_error_not_a_plan(
    levels: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("csdp.planning.dynamic._LevelSearch.shape_levels", lambda self, weights, error: levels)
    with pytest.raises(AssertionError, match="a schedule passes the budget"):
        dynamic_plan(PAIR, csdp.Mean(), ages=1, budget=0.25, horizon=2)


def test_the_gate_draws_the_noise_of_each_tick_and_charges_it(tmp_path: Path) -> None:
    chain = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    schedule = Schedule((4.0, 0.25) * 400, start=1)
    plan = Plan(chain, csdp.Mean(), 1, 4.0, schedule=schedule)
    states = np.zeros((801, 1), dtype=np.int8)
    with pytest.warns(csdp.errors.UnsafeRandomnessWarning):
        opened = csdp.Publisher(plan, dataset="d", ledger=tmp_path / "l.db", unsafe_seed=5)
    with opened as publisher:
        batch = publisher.publish(csdp.Panel.from_states(states))
        assert len(batch) == 800
        noise = np.array([release.values[0] for release in batch])
        publisher.push([0], time=801)
        quiet = publisher.push([0], time=802)
        assert isinstance(quiet, csdp.Skipped)
        assert "schedule publishes nothing" in quiet.reason
        accountant, state, charged = Accountant(plan), Accountant(plan).start(0), []
        for tick in (1, 2, 3):
            state = accountant.release(state, tick, epsilon_c=schedule.level(tick))
            charged.append(accountant.leakage(state).epsilon)
        assert [release.epsilon_s for release in list(batch)[:3]] == charged
    # Mean of |noise| on whole numbers is 1 / sinh(epsilon_c); the seed is fixed, and the two differ by a factor of 108.
    assert np.abs(noise[0::2]).mean() == pytest.approx(1 / np.sinh(4.0), abs=0.02)
    assert np.abs(noise[1::2]).mean() == pytest.approx(1 / np.sinh(0.25), rel=0.2)


def test_a_scheduled_plan_survives_json_and_has_its_own_digest() -> None:
    found = dynamic_plan(PAIR, csdp.Mean(), ages=1, budget=0.25, horizon=3, start=7)
    again = Plan.from_json(found.plan.to_json())
    assert again == found.plan
    assert again.schedule == found.plan.schedule
    assert again.digest != found.plan.at(found.plan.epsilon_c).digest
    assert found.plan.level(6) == 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 0.0}, "a finite number above 0"),
        ({"horizon": 0}, "a whole number"),
        ({"horizon": 2, "weights": [1.0]}, "one per tick"),
        ({"horizon": 2, "weights": [0.0, 0.0]}, "at least one above 0"),
        ({"horizon": 2, "weights": [1.0, -1.0]}, "none negative"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], words: str) -> None:
    asked = {"ages": 1, "budget": 0.25, "horizon": 2, **changes}
    with pytest.raises(InputError, match=words):
        dynamic_plan(PAIR, csdp.Mean(), **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("levels", [(), (0.0,), (-1.0,), (float("nan"),), (float("inf"),)])
def test_a_schedule_needs_levels(levels: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="schedule"):
        Schedule(levels)


def test_a_level_above_the_plan_is_refused() -> None:
    with pytest.raises(InputError, match="above epsilon_c"):
        Plan(PAIR, csdp.Mean(), 1, 0.5, schedule=Schedule((0.6,)))
    accountant = Accountant(Plan(PAIR, csdp.Mean(), 1, 0.5))
    with pytest.raises(InputError, match="at most the plan's"):
        accountant.release(accountant.start(), 1, epsilon_c=0.6)


def test_a_budget_that_no_noise_meets_says_so() -> None:
    frozen = csdp.CoupledChain([[1.0]], [[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]])
    with pytest.raises(InfeasibleError, match="even epsilon_c") as told:
        dynamic_plan(frozen, csdp.Mean(), ages=0, budget=1e-7, horizon=5000, weights=[1.0] * 5000)
    assert 1e-7 < told.value.nearest < 1
