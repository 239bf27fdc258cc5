"""One group of a segmented component: its charge, its worst moment, and what bounds it where the charge is endless."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from csdp import CoupledChain, Histogram, segment
from csdp.accountant import Accountant
from csdp.accountant.segmented import SegmentComponent
from csdp.plan import Plan
from csdp.segments import PerGroup

from accountant.brute import Told, history_leakage  # isort: skip


def followers(weight: float, flip: float) -> CoupledChain:
    """The first follows the second with some weight; the second goes its own way."""
    return CoupledChain([[1 - weight, weight], [0, 1]], [[1 - flip, flip], [flip, 1 - flip]])


def accountant(chain: CoupledChain, *, age: int, epsilon_c: float, **rest: object) -> Accountant:
    return Accountant(Plan(chain, segment(chain, max_states=2).query(), age, epsilon_c, **rest), state="segmented")  # type: ignore[arg-type] # any option


def test_the_peak_of_fresh_data_is_a_tick_later() -> None:
    """Known others are charged from the step after the release on, so the release itself is not the worst moment."""
    accounting = accountant(followers(1e-4, 0.01), age=0, epsilon_c=0.1336778)
    # Where the number of releases is known, so is what they tell together, which is less.
    state = replace(accounting.release(accounting.start(), 1), consecutive=None)
    told = [accounting.leakage(state, 1 + later).epsilon for later in range(4)]
    assert told[1] > told[0] * 1.005
    assert accounting.peak(state) == pytest.approx(max(told), rel=1e-12)


@pytest.mark.parametrize("age", [0, 1, 3])
@pytest.mark.parametrize("adversary", ["informed", "uninformed"])
def test_no_later_moment_passes_the_peak(age: int, adversary: str) -> None:
    draw = np.random.default_rng(7)
    for _ in range(40):
        chain = followers(10 ** draw.uniform(-4, -1), 10 ** draw.uniform(-4, -0.5))
        accounting = accountant(chain, age=age, epsilon_c=draw.uniform(0.05, 3), adversary=adversary)
        state = accounting.release(accounting.release(accounting.start(), 1), 3)
        peak = accounting.peak(state)
        told = [accounting.leakage(state, 3 + later).epsilon for later in range(6)]
        assert max(told) <= peak * (1 + 1e-12)
        assert all(new <= old * (1 + 1e-12) for old, new in pairwise(told[1:]))  # older data tell less


def test_an_endless_charge_leaves_the_bounds_of_the_whole() -> None:
    """A state that only the outside makes possible tells which path it took; only what bounds the whole remains."""
    own, copied, free = [[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]], [[0.7, 0.3], [0.3, 0.7]]
    chain = CoupledChain([[0.5, 0.5], [0, 1]], [[own, copied], [free, free]])
    accounting = accountant(chain, age=2, epsilon_c=2.5)
    (component, _) = accounting.components
    assert isinstance(component, SegmentComponent)
    assert math.isinf(float(component.initial_state().max()))
    answer = accounting.leakage(accounting.release(accounting.start(), 1))
    assert (answer.epsilon, answer.bound) == (pytest.approx(component.cap(2)[0], rel=1e-12), component.cap(2)[1])


def test_lifetime_and_group_level_are_those_of_the_whole() -> None:
    chain = followers(0.01, 0.2)
    plan = Plan(chain, segment(chain, max_states=2).query(), 1, 0.5)
    cut, whole = Accountant(plan, state="segmented"), Accountant(plan, state="scalar")
    assert [cut.lifetime(n) for n in (1, 5, None)] == [whole.lifetime(n) for n in (1, 5, None)]


@pytest.mark.parametrize("ages", [(3, 1), (2, 1), (1, 3), (4, 0)])
@pytest.mark.parametrize("adversary", ["informed", "uninformed"])
def test_groups_of_other_ages_are_capped_from_the_newest_reading_on(ages: tuple[int, int], adversary: str) -> None:
    """The other group's reading tells of this one: how old this group's own readings are caps nothing."""
    copied, free = [[1.0, 0.0], [1.0, 0.0]], [[7 / 15, 8 / 15], [5 / 11, 6 / 11]]
    chain = CoupledChain(
        [[0.25, 0.75], [2 / 3, 1 / 3]], [[copied, [[7 / 11, 4 / 11], [7 / 16, 9 / 16]]], [free, copied]]
    )
    plan = Plan(chain, PerGroup(Histogram(), ((0,), (1,))), list(ages), 0.5, adversary=adversary)  # type: ignore[arg-type] # a parameter
    accounting = Accountant(plan, state="segmented")
    fvals = tuple((1.0 - a, float(a), 1.0 - b, float(b)) for a in (0, 1) for b in (0, 1))
    state, outputs = accounting.start(), []
    for tick in (1, 2):
        state = accounting.release(state, tick)
        outputs.append(Told(tick, ages, fvals, 0.25))
        true = history_leakage(chain.kernel(), 2, 2, outputs, tick, adversary=adversary)
        assert accounting.leakage(state).epsilon >= true * (1 - 1e-9)
        assert accounting.peak(state) >= true * (1 - 1e-9)
