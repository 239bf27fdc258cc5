"""What the accountant asks of a component: fresh readings, long gaps, and records that several slices tell of."""

from __future__ import annotations

import math

import pytest

from csdp import Accountant, CoupledChain, Mean
from csdp.plan import Plan

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


@pytest.mark.parametrize("state", ["metric", "scalar", "vector"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_nothing_caps_what_is_told_of_a_fresh_reading(state: str, direction: str) -> None:
    chain = CoupledChain(PAIR.coupling, PAIR.transitions, direction=direction)
    (component,) = Accountant(Plan(chain, Mean(), 0, 50.0), state=state).components
    assert component.cap(0)[0] == math.inf
    assert Accountant(Plan(chain, Mean(), 0, 50.0), state=state).after(1).epsilon >= 50.0


@pytest.mark.parametrize("state", ["metric", "scalar"])
def test_a_long_gap_forgets_what_was_released_before_it(state: str) -> None:
    accountant = Accountant(Plan(PAIR, Mean(), 1, 0.5), state=state)
    first = accountant.release(accountant.start(), 1)
    again = accountant.release(first, 60)
    assert accountant.leakage(again).epsilon == pytest.approx(accountant.leakage(first).epsilon, rel=1e-9)


def test_the_lifetime_of_a_record_at_unequal_ages_is_whole_or_that_of_no_end() -> None:
    """It is read at several slices, and gaps may be worse than none: no count of releases is sharper."""
    accountant = Accountant(Plan(PAIR, Mean(), (1, 3), 0.5))
    for releases in (1, 2, 3, 5, 50):
        whole = releases * 3 * accountant.group_level()
        assert accountant.lifetime(releases) == pytest.approx(min(whole, accountant.lifetime()))
    assert accountant.lifetime(2) == pytest.approx(6.0)


def test_earlier_costs_add_to_a_record_only_where_it_is_read_again() -> None:
    accountant = Accountant(Plan(PAIR, Mean(), 1, 0.5))
    own = accountant.lifetime(1)
    assert accountant.lifetime(1, earlier=0.7) == accountant.lifetime(1, earlier=0.7, overlap=False) == own
    assert accountant.lifetime(1, earlier=1.7) == pytest.approx(1.7)
    assert accountant.lifetime(1, earlier=0.7, overlap=True) == pytest.approx(own + 0.7)
