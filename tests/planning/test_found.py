"""What a search returns, and what is said where its plan is not worth its leakage."""

from __future__ import annotations

import pytest

import csdp
from csdp import CoupledChain, Mean, Plan
from csdp.errors import NotUsefulError
from csdp.estimate import mse
from csdp.planning import find_plan
from csdp.planning.found import check_useful, improvements

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
SLOW = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.98, 0.02], [0.02, 0.98]])


def error_of(plan: Plan, about: str = "now") -> csdp.estimate.Error:
    return mse(plan.chain, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, estimate="history", about=about)


def test_a_useful_plan_is_let_through_and_another_is_told_what_would_help():
    useful = Plan(SLOW, Mean(), 1, 2.0)
    check_useful(useful, error_of(useful))
    with pytest.raises(NotUsefulError) as refused:
        check_useful(Plan(PAIR, Mean(), 6, 1.0), error_of(Plan(PAIR, Mean(), 6, 1.0)))
    assert refused.value.helps == improvements(Plan(PAIR, Mean(), 6, 1.0))


@pytest.mark.parametrize(
    ("plan", "about", "helps"),
    [
        (Plan(PAIR, Mean(), 6, 1.0), "now", ["--about then", "readings of age"]),  # too old for any noise level
        (Plan(SLOW, Mean(), 1, 0.01), "now", ["less noise"]),
        (Plan(PAIR, Mean(), 6, 1e-3), "then", ["less noise"]),
        (Plan(PAIR, Mean(), 0, 1e-3), "now", ["less noise"]),  # nothing younger is left
    ],
)
def test_only_what_helps_is_proposed(plan, about, helps):
    told = improvements(plan, about)
    assert [any(words in each for each in told) for words in helps] == [True] * len(helps)
    assert any("--about then" in each for each in told) == ("--about then" in helps)
    assert any("readings of age" in each for each in told) == ("readings of age" in helps)
    assert any("less noise" in each for each in told) == ("less noise" in helps)


def test_a_found_plan_is_as_useful_as_its_error_says():
    found = find_plan(PAIR, Mean(), budget=0.3, min_age=1, max_age=1, event_limit=0.4)
    assert found.useful == found.error.useful
