"""What the closed forms, counts and boxes rest on: edges where there is nothing to tell apart, and stated errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import csdp
from csdp.bounds.dependence import logit_distance
from csdp.bounds.metric import AgedPairs, _range, contraction_coefficient
from csdp.chain.environment import PathView
from csdp.paper import spectral_factor

FLIP = [[0.7, 0.3], [0.3, 0.7]]


@pytest.mark.parametrize("adversary", ["informed", "uninformed"])
def test_where_only_one_present_can_occur_there_is_nothing_to_tell_apart(adversary: Any) -> None:
    pairs = AgedPairs(csdp.CoupledChain([[1.0]], [[1, 0], [1, 0]]), ages=[1], adversary=adversary)
    assert pairs.total_variation == pairs.log_ratio == pairs.profile(1.0) == 0.0


def _given(rows: list[list[float]]) -> csdp.EnvironmentChain:
    return csdp.EnvironmentChain([csdp.CoupledChain([[1.0]], rows)], switching=[[1.0]]).given_path()


def test_the_present_itself_does_not_contract() -> None:
    assert contraction_coefficient(PathView(_given(FLIP), []), 0) == 1.0


@pytest.mark.parametrize("flip", [0.05, 0.1, 0.2, 0.3, 0.4, 0.45])
def test_one_step_of_a_symmetric_sequence_contracts_by_no_less_than_it_should(flip: float) -> None:
    """|1 - 2p| for one step, its square for two: known exactly, and certified from above."""
    chain = _given([[1 - flip, flip], [flip, 1 - flip]])
    for age in (1, 2):
        exact = abs(1 - 2 * flip) ** age
        assert exact <= contraction_coefficient(PathView(chain, [0] * age), age) <= exact * (1 + 1e-10)


@pytest.mark.parametrize("error", [1e-12, 1e-6, 0.01, 0.05, 0.09])
@pytest.mark.parametrize("low", [-0.8, -0.5, 0.0])
def test_a_range_of_log_odds_covers_rounding_in_the_worst_directions(low: float, error: float) -> None:
    """Four shifts that are all `low` as computed, while the true ones lie as far apart as the error allows."""
    computed, coarse = np.full((1, 2), low), np.array([[0.0, 50.0]])
    first, second = np.log1p(low + error * np.array([[1, -1], [-1, 1]]))
    truth = np.ptp(first - second)
    assert _range(coarse, np.zeros((1, 2)), computed, computed, 0.0, error) >= truth * (1 - 1e-9)


@pytest.mark.parametrize("low", [(1.0, 0.0), (0.0, 1.0), (0.5, 0.0), (0.0, 0.0)])
def test_a_probability_that_may_leave_0_has_no_bound(low: tuple[float, float]) -> None:
    assert logit_distance(np.array([low, low]), np.array([0.1, 0.0])).tolist() == [np.inf, 0.0]


@pytest.mark.parametrize("first", [True, False])
def test_log_odds_near_minus_infinity_are_not_sharpened(first: bool) -> None:
    """Where the error is as large as what is left of a probability, only the plain difference holds."""
    near, usual = np.array([[-0.95, 0.0]]), np.zeros((1, 2))
    fine = (near, usual) if first else (usual, near)
    assert _range(np.array([[0.0, 50.0]]), np.zeros((1, 2)), *fine, 0.0, 0.09) == 50.0


@pytest.mark.parametrize("age", [0, 1, 3])
def test_the_repaired_theorem_holds_for_three_states(age: int) -> None:
    rows = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]
    chain = csdp.CoupledChain([[0.8, 0.2], [0.3, 0.7]], rows, direction="backward")
    question: dict[str, Any] = {"ages": age, "epsilon_c": 0.5}
    exact = csdp.leakage(chain, csdp.Mean(), bound="exact", **question).epsilon
    assert exact <= spectral_factor(chain, age) * 0.5


def test_many_states_count_what_the_other_sequences_surely_add() -> None:
    """Twelve states: each set of states keeps the least probability that its other source gives it."""
    rows = 0.5 * np.eye(12) + 0.5 * np.random.default_rng(0).dirichlet(np.ones(12), 12)
    chain = csdp.CoupledChain([[0.8, 0.2], [0.2, 0.8]], rows, direction="backward")
    for age, most in ((1, 0.43949), (2, 0.38303), (3, 0.33112)):
        question: dict[str, Any] = {"ages": age, "epsilon_c": 0.5}
        exact, above = (csdp.leakage(chain, csdp.Mean(), bound=b, **question).epsilon for b in ("exact", "influence"))
        assert exact <= above <= most
