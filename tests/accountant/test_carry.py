"""What a change of plan carries over, against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from csdp import CoupledChain, Family, Sum
from csdp.accountant import Accountant
from csdp.plan import Plan
from csdp.query import PerGroup
from csdp.query_table import Groups

from oracle import Told, history_leakage  # isort: skip
from accountant.changes import sweep  # isort: skip
from oracle import joint_kernel  # isort: skip
from accountant.systems import follow

SINGLES: Groups = ((0,), (1,))
TOGETHER: Groups = ((0, 1),)
#: Two sequences that follow each other now and then, so that what is told of both adds up.
MIRRORED = CoupledChain(
    [[0.8, 0.2], [0.2, 0.8]],
    [
        [[[0.1, 0.9], [0.2, 0.8]], [[0.7, 0.3], [0.9, 0.1]]],
        [[[0.7, 0.3], [0.9, 0.1]], [[0.1, 0.9], [0.2, 0.8]]],
    ],
)


def asked(groups: Groups, *, chain: CoupledChain | Family = MIRRORED, ages: object = 1, level: float = 2.0) -> Plan:
    return Plan(chain, PerGroup(Sum(), groups), ages, level)


def changed(old: Accountant, new: Accountant, releases: int = 1) -> float:
    """What is certified right after a change of plan that follows some releases at once."""
    state = old.history(releases)
    carried = new.take_over(old, state, tick=state.tick, cost=releases * old.history_cost())
    return new.leakage(carried).epsilon


def told(releases: int, level: float = 2.0) -> list[Told]:
    answers = tuple((float(a), float(b)) for a in range(2) for b in range(2))
    return [Told(tick, (1, 1), answers, level) for tick in range(1, releases + 1)]


def kernel() -> np.ndarray:
    own, other = [[0.1, 0.9], [0.2, 0.8]], [[0.7, 0.3], [0.9, 0.1]]
    return joint_kernel(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([[own, other], [other, own]]))


@pytest.mark.parametrize("state", ["vector", "scalar", "metric"])
@pytest.mark.parametrize("releases", [1, 2])
def test_no_change_of_groups_is_below_the_truth(state: str, releases: int) -> None:
    new = follow(asked(TOGETHER), state)
    truth = history_leakage(kernel(), 2, 2, told(releases), releases)
    assert changed(follow(asked(SINGLES), state), new, releases) >= truth


def test_random_changes_are_never_below_brute_force() -> None:
    below, least = sweep(seed=20250, cases=24)
    assert below == []
    assert least >= 1 - 1e-9


@pytest.mark.slow
def test_many_random_changes_are_never_below_brute_force() -> None:
    for seed in range(8):
        assert sweep(seed=seed, cases=350)[0] == []


def test_the_cost_under_any_model_is_taken_where_it_is_less() -> None:
    old, new = follow(asked(SINGLES, level=0.01), "vector"), follow(asked(TOGETHER), "scalar")
    state = old.history(1)
    carried = new.take_over(old, state, tick=state.tick, cost=0.02)
    assert float(carried.slices[0].max()) == 0.02 < old.largest(state)


def test_a_family_is_matched_by_its_members_in_any_order() -> None:
    weak = CoupledChain([[0.99, 0.01], [0.01, 0.99]], [[0.6, 0.4], [0.4, 0.6]])
    old = follow(asked(SINGLES, chain=Family([MIRRORED, weak])), "scalar")
    state = old.history(2)
    same = follow(asked(SINGLES, chain=Family([weak, MIRRORED])), "scalar")
    assert same.plan.chain == old.plan.chain
    carried = same.take_over(old, state, tick=state.tick, cost=1e9)
    before = [float(part.max()) for part in state.slices]
    assert [float(part.max()) for part in carried.slices] == before[::-1]


def test_the_newest_reading_of_all_plans_is_what_counts() -> None:
    """Age 1, then ages 5 and 8, then another change: the first plan's newest reading is still the newest."""
    first = follow(asked(SINGLES, ages=1), "scalar")
    second = follow(asked(SINGLES, ages=(5, 8), level=0.01), "scalar")
    third = follow(asked(SINGLES, ages=1), "scalar")
    state = second.take_over(first, first.history(1), tick=1, cost=4.0)
    state = second.release(state, 2)
    assert state.pending
    assert second.newest_depth(state) == 2  # tick 0, read at tick 1, seen from tick 2
    last = third.take_over(second, state, tick=2, cost=4.02)
    truth = history_leakage(kernel(), 2, 2, told(1), 2)
    assert third.leakage(last).epsilon >= truth
    misplaced = third.leakage(third.resume(second.largest(state), 2, 5)).epsilon
    assert misplaced < truth


def test_a_state_recorded_in_another_form_counts_from_its_newest_reading() -> None:
    """Ages 1 and 3: the state waits three ticks back, and what was read since lies one tick back."""
    rows = [[0.9, 0.1], [0.2, 0.8]]
    chain = CoupledChain([[0.8, 0.2], [0.2, 0.8]], rows)
    old, new = (follow(asked(SINGLES, chain=chain, ages=(1, 3)), form) for form in ("vector", "scalar"))
    state = old.release(old.release(old.start(), 1), 3)
    cost = 2 * old.history_cost()
    answers = tuple((float(a), float(b)) for a in range(2) for b in range(2))
    releases = [Told(tick, (1, 3), answers, 2.0) for tick in (1, 3)]
    truth = history_leakage(joint_kernel(chain.coupling, np.tile(rows, (2, 2, 1, 1))), 2, 2, releases, 3)
    assert new.leakage(new.restore(state.to_dict(), cost=cost)).epsilon >= truth
    assert new.leakage(new.resume(cost, 3, 3)).epsilon < truth


@pytest.mark.parametrize(
    ("state", "direction"),
    [(state, "forward") for state in ("scalar", "metric", "vector")]
    + [(state, "backward") for state in ("scalar", "metric", "vector")],
)
def test_components_that_become_alike_count_the_worst_of_them(state: str, direction: str) -> None:
    """Two equal chains, read at ages 2 and 1, and then both at 3: one stands for both, whose past differs."""
    rows = [[0.001, 0.999], [0.0909, 0.9091]]
    chain = CoupledChain(np.eye(2), rows, direction=direction)  # type: ignore[arg-type] # one of two words
    old = follow(asked(SINGLES, chain=chain, ages=(2, 1)), state)
    new = follow(asked(SINGLES, chain=chain, ages=(3, 3)), state)
    past = old.history(3)
    carried = new.take_over(old, past, tick=past.tick + 4, cost=3 * old.history_cost())
    certified = new.leakage(carried).epsilon
    one = np.array(rows)
    kernels = np.kron(one, one)
    answers = tuple((float(a), float(b)) for a in range(2) for b in range(2))
    releases = [Told(tick, (2, 1), answers, 2.0) for tick in range(past.tick - 2, past.tick + 1)]
    truth = history_leakage(kernels, 2, 2, releases, past.tick + 4)
    assert certified >= truth > 0
