"""What the accountant asks of a component: fresh readings, long gaps, and records that several slices tell of."""

from __future__ import annotations

import math
from itertools import cycle

import numpy as np
import pytest

from accountant.systems import follow
from csdp import Accountant, CoupledChain, Identity, Max, Mean, Sum
from csdp.accountant.component import PEAK_STEPS
from csdp.accountant.fixed_point import Consecutive, follow_to_rest
from csdp.accountant.record import State
from csdp.plan import Plan

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


@pytest.mark.parametrize("state", ["metric", "scalar", "vector"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_nothing_caps_what_is_told_of_a_fresh_reading(state: str, direction: str) -> None:
    chain = CoupledChain(PAIR.coupling, PAIR.transitions, direction=direction)
    (component,) = follow(Plan(chain, Mean(), 0, 50.0), state).components
    assert component.cap(0)[0] == math.inf
    assert follow(Plan(chain, Mean(), 0, 50.0), state).after(1).epsilon >= 50.0


def test_every_moment_of_a_record_at_unequal_ages_is_whole_or_that_of_no_end() -> None:
    """It is read at several slices, and gaps may be worse than none: no count of releases is sharper."""
    accountant = Accountant(Plan(PAIR, Mean(), (1, 3), 0.5))
    for releases in (1, 2, 3, 5, 50):
        whole = releases * 3 * accountant.group_level()
        assert accountant.every_moment(releases) == pytest.approx(min(whole, accountant.every_moment()))
    assert accountant.every_moment(2) == pytest.approx(6.0)


def test_earlier_costs_add_to_a_record_only_where_it_is_read_again() -> None:
    accountant = Accountant(Plan(PAIR, Mean(), 1, 0.5))
    own = accountant.every_moment(1)
    assert accountant.every_moment(1, earlier=0.7) == accountant.every_moment(1, earlier=0.7, overlap=False) == own
    assert accountant.every_moment(1, earlier=1.7) == pytest.approx(1.7)
    assert accountant.every_moment(1, earlier=0.7, overlap=True) == pytest.approx(own + 0.7)


def test_the_peak_of_a_first_release_is_that_of_the_component_that_still_rises() -> None:
    """Beside two sequences that tell 4 at once and 6.85 two ticks later stands one that only forgets."""
    slow, quick = [[0.999, 0.001], [0.0001, 0.9999]], [[0.7, 0.3], [0.3, 0.7]]
    coupling = {(0, 0): 0.4, (0, 1): 0.6, (1, 0): 0.6, (1, 1): 0.4, (2, 2): 1.0}
    chain = CoupledChain(coupling, {pair: quick if pair == (2, 2) else slow for pair in coupling})
    accountant = Accountant(Plan(chain, Sum(), 0, 4.0))
    state = accountant.release(accountant.start(), 1)
    later = [accountant.leakage(state, 1 + n).epsilon for n in range(4)]
    assert max(later) > 6.8 > 1.5 * later[0]
    assert accountant.peak(state) == max(later)


def test_the_peak_covers_ticks_that_are_not_followed_one_by_one() -> None:
    """Sequences that hardly ever change: what is known of both comes to tell of each, most of all after 40 ticks."""
    chain = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[1 - 1e-6, 1e-6], [1e-6, 1 - 1e-6]])
    accountant = follow(Plan(chain, Identity(), 0, 1.0), "metric")
    state = accountant.release(accountant.start(), 1)
    later = [accountant.leakage(state, 1 + n).epsilon for n in range(60)]
    assert PEAK_STEPS < np.argmax(later) < 59
    assert max(later) <= accountant.peak(state) <= 1.01 * max(later)


def test_one_number_counts_a_release_at_unequal_ages_once() -> None:
    accountant = follow(Plan(PAIR, Max(), (1, 2), 0.5), "scalar")
    assert accountant.largest(accountant.history(1)) == pytest.approx(0.5)


@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_a_state_that_noise_keeps_moving_comes_to_rest_hardly_above_the_one_without_noise(kept: float) -> None:
    """b <- 1 + kept b, and a little more: 1 / (1 - kept) in the long run."""
    noise = cycle([0.0, 1e-4, 3e-5])

    def release(state: State) -> State:
        return State(state.tick + 1, (1,), (1 + kept * state.slices[0] + next(noise),))

    history = Consecutive(State(0, (1,), (np.zeros((1, 1)),)), release, lambda: None, oldest=1, followed=10**6)
    history.extend(400)
    assert history.at_rest
    assert 1 <= history.states[-1].slices[0].item() * (1 - kept) <= 1.01


def test_a_state_that_only_the_noise_of_a_solver_moves_comes_to_rest() -> None:
    """Leakage is proportional to levels this small, so a larger one tells where."""
    rare = CoupledChain([[0.6, 0.4], [0.4, 0.6]], [[0.99, 0.01], [0.3, 0.7]])
    expected = 0.01 * Accountant(Plan(rare, Mean(), 1, 1e-4)).limit().epsilon
    accountant = Accountant(Plan(rare, Mean(), 1, 1e-6))
    assert accountant.limit().epsilon == pytest.approx(expected, rel=1e-3)
    assert accountant.after(20).epsilon <= accountant.limit().epsilon * (1 + 1e-3)


def test_a_state_that_every_release_raises_as_much_is_given_up_soon():
    """A graph of strong declared limits: beyond some noise level no state is at rest."""
    steps = []

    def advance(state):
        steps.append(state)
        return np.log1p(0.4 * np.expm1(state))

    apart = 1.0 - np.eye(2)
    assert follow_to_rest(lambda state: advance(state) * apart, 1.0 * apart, apart) is None
    assert len(steps) < 1000
    assert follow_to_rest(lambda state: advance(state) * apart, 0.5 * apart, apart).max() < 1.7
