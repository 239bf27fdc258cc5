"""What a search returns, and what is said where its plan is not worth its leakage."""

from __future__ import annotations

import pytest

import csdp
from csdp import CoupledChain, Mean, Plan
from csdp.errors import InfeasibleError, InputError, NotUsefulError
from csdp.estimate import mse
from csdp.planning import find_plan, optimal_plan, table_error
from csdp.planning.found import check_useful, improvements
from csdp.planning.optimal import offer_table

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


def test_where_no_table_can_be_made():
    """Noise is used where a table was only one choice; who asked for one is told."""
    found = find_plan(PAIR, Mean(), budget=0.3, min_age=1, max_age=1, event_limit=0.4)
    assert found.useful == found.error.useful
    with pytest.raises(InputError, match="has no table"):
        table_error(found.plan)
    wide = CoupledChain([[0.4, 0.3, 0.3]] * 3, [[0.7, 0.3], [0.3, 0.7]])
    unequal = find_plan(wide, csdp.Identity(), budget=3.0, min_age=1, max_age=1)
    with pytest.raises(csdp.errors.CsdpError):
        offer_table(unequal, budget=3.0, event_limit=10.0, choice="optimal")
    assert offer_table(unequal, budget=3.0, event_limit=10.0, choice="auto").note.startswith("noise is used")


def test_a_table_that_always_passes_its_limits_is_refused(monkeypatch):
    """Rounding may lift a table above a limit; with a margin it fits, and else there is none."""
    from csdp.planning import optimal

    asked = []
    rounding = optimal.round_up

    def lifted(value):
        asked.append(value)
        return rounding(value) * (2.0 if len(asked) < 3 else 1.0)

    monkeypatch.setattr(optimal, "round_up", lifted)
    assert optimal_plan(PAIR, Mean(), ages=1, budget=0.5, event_limit=1.0).certified.epsilon <= 0.5
    assert len(asked) == 3
    monkeypatch.setattr(optimal, "round_up", lambda value: 2.0 * value)
    with pytest.raises(InfeasibleError, match="leave it out"):
        optimal_plan(PAIR, Mean(), ages=1, budget=0.5, event_limit=1.0)
