"""The calibrator: on the safe side, as close as promised, in few evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from accountant.systems import Asked
from csdp import Accountant, CoupledChain, Family, JointChain, Mean, Plan, find_plan
from csdp.errors import InfeasibleError
from csdp.planning.calibrate import CLOSE, EXACT, SMALLEST_LEVEL, largest_level, least_level
from oracle import history_leakage

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
RARE = CoupledChain([[0.6, 0.4], [0.4, 0.6]], [[0.99, 0.01], [0.3, 0.7]])


class Counted:
    """A leakage that counts how often it was asked for."""

    def __init__(self, rule: Callable[[float], float]) -> None:
        self.rule, self.count = rule, 0

    def __call__(self, level: float) -> float:
        self.count += 1
        return self.rule(level)


SMOOTH = {
    "straight": lambda e: 0.3 * e,
    "flattens": lambda e: 2.5 * math.tanh(e),
    "steepens": lambda e: math.log1p(0.01 * math.expm1(e)),
}


@pytest.mark.parametrize(("tolerance", "most", "start"), [(EXACT, 14, None), (EXACT, 14, 0.5), (CLOSE, 9, 0.5)])
@pytest.mark.parametrize("budget", [1e-4, 1.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_close_to_the_budget_never_above_in_few_evaluations(name, budget, tolerance, most, start):
    leakage = Counted(SMOOTH[name])
    level = largest_level(leakage, budget, 10.0, start=start, tolerance=tolerance)
    assert (1 - tolerance) * budget <= SMOOTH[name](level) <= budget
    assert leakage.count <= most


def test_the_limit_is_taken_where_it_fits():
    leakage = Counted(lambda e: 0.09 * e)
    assert largest_level(leakage, 1.0, 10.0) == 10.0
    assert leakage.count == 1
    assert largest_level(leakage, 1.0, 10.0, start=0.5) == 10.0
    assert largest_level(lambda e: 0.0, 1.0, 10.0, start=0.5) == 10.0


@pytest.mark.parametrize("tolerance", [EXACT, CLOSE])
def test_a_jump_past_the_budget_is_closed_in_on_from_below(tolerance):
    leakage = Counted(lambda e: 0.1 if e < 0.7 else math.inf)
    level = largest_level(leakage, 1.0, 10.0, tolerance=tolerance)
    assert 0.7 * (1 - tolerance) <= level < 0.7
    assert leakage.count <= 50


def test_a_plateau_just_above_the_budget_does_not_hold_the_search_up():
    leakage = Counted(lambda e: min(1.0005, e))
    level = largest_level(leakage, 1.0, 10.0)
    assert 1 - EXACT <= level <= 1.0
    assert leakage.count <= 25


@pytest.mark.parametrize("told", [math.inf, 1.001])
def test_nothing_fits(told):
    leakage = Counted(lambda e: told)
    assert largest_level(leakage, 1.0, 10.0) is None
    assert leakage.count <= 8


def test_a_certificate_that_is_not_a_number_never_fits():
    assert largest_level(lambda e: math.nan, 1.0, 10.0) is None


def test_the_smallest_level_that_meets_an_error():
    def error(level: float) -> float:
        return 0.1 + level**-2

    level = least_level(error, 1.1, 10.0)
    assert level == pytest.approx(1.0, rel=1e-12)
    assert error(level) <= 1.1
    assert least_level(error, 0.1, 10.0) is None
    assert least_level(lambda e: 0.0, 0.1, 10.0) == SMALLEST_LEVEL


@pytest.mark.parametrize(("chain", "budget"), [(PAIR, 0.05), (PAIR, 3.0), (RARE, 0.3)])
def test_for_ever_close_to_the_budget_and_certified_as_returned(chain, budget):
    found = find_plan(chain, Mean(), budget=budget, min_age=2, max_age=2, releases="continual")
    assert found.leakage.epsilon == Accountant(found.plan).ceiling() <= budget
    assert found.leakage.epsilon >= (1 - CLOSE) * budget or found.plan.epsilon_c == 10.0


def test_the_level_of_a_family_is_that_of_its_worst_member():
    options = {"budget": 0.4, "min_age": 1, "max_age": 1, "releases": "continual"}
    whole = find_plan(Family([PAIR, RARE]), Mean(), **options)
    alone = [find_plan(member, Mean(), **options).plan.epsilon_c for member in (PAIR, RARE)]
    assert whole.leakage.epsilon == Accountant(whole.plan).ceiling() <= 0.4
    assert whole.plan.epsilon_c == pytest.approx(min(alone), rel=2 * CLOSE)
    assert min(alone) < 0.9 * max(alone)


def test_a_chain_that_never_forgets_says_what_it_would_leak():
    still = JointChain([[0.0, 1.0], [1.0, 0.0]], states=2, sequences=1)
    with pytest.raises(
        InfeasibleError, match=r"budget 0\.1 cannot be met: at ages up to 1 even epsilon_c 1e-06"
    ) as told:
        find_plan(still, Mean(), budget=0.1, min_age=1, max_age=1, releases="continual")
    assert told.value.nearest > 0.1


def test_solver_noise_does_not_keep_a_tiny_state_from_its_rest():
    # Leakage is proportional to a level this small, so a larger level tells what to expect.
    expected = Accountant(Plan(RARE, Mean(), 1, 1e-4)).ceiling() * 1e-2
    accountant = Accountant(Plan(RARE, Mean(), 1, 1e-6))
    found = accountant.ceiling()
    assert found == pytest.approx(expected, rel=0.01)
    told = [Asked("mean", 2, 2).told(t, (1, 1), 1e-6) for t in range(1, 5)]
    assert found > history_leakage(RARE.kernel(), 2, 2, told, 4) > 0.5 * expected
    settled = accountant.long_run()
    after = accountant.release(settled, settled.tick + 1, epsilon_c=1e-6)
    for above, following in zip(settled.slices, after.slices, strict=True):
        assert (following <= above + 1e-3 * above.max()).all()
