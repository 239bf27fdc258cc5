"""Components of any size: states of every sequence by itself, against brute force over all output histories."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant, Lateness
from csdp.accountant.slice import WINDOW, SliceComponent
from csdp.errors import InputError
from oracle import joint_kernel, stationary

from oracle import Told, history_leakage  # isort: skip
from bounds.test_influence import QUERIES, answers, random_system, ring  # isort: skip
from bounds.test_slice_history import weakly_coupled  # isort: skip
from accountant.systems import follow
from csdp.accountant.account import newest

#: Rounding of brute force itself.
ROUNDING = 1e-10
#: Histories that are compared with brute force; thousands of others are slow.
HISTORIES = 80 if os.environ.get("CSDP_FULL") else 40


def forward_kernel(coupling, rows, direction):
    """The kernel of the process in time, by Bayes; None where it has several long runs."""
    kernel = joint_kernel(coupling, rows)
    if direction == "forward":
        return kernel
    law = stationary(kernel)
    joint = (kernel * law[:, None]).T
    total = joint.sum(axis=1, keepdims=True)
    return np.where(total > 0, joint / np.maximum(total, 1e-300), law[None, :])


def compare_with_truth(seed, direction):
    """(certified now, certified peak, truth, kinds) after a history with gaps, stale readings and levels."""
    random = np.random.default_rng(seed)
    s, m = [(1, 2), (1, 3), (2, 2), (2, 3), (3, 2)][random.integers(5)]
    coupling, rows = random_system(random, s, m) if direction == "backward" else weakly_coupled(random, s, m)
    chain = csdp.CoupledChain(coupling, rows, direction=direction)
    try:
        kernel = forward_kernel(coupling, rows, direction)
    except (AssertionError, ValueError):
        return None
    query = QUERIES[random.choice(list(QUERIES))]
    same = random.random() < 0.6
    ages = [int(random.integers(0, 3))] * s if same else random.integers(0, 3, size=s).tolist()
    epsilon_c = float(random.choice([0.1, 0.5, 2.0]))
    try:
        plan = csdp.Plan(chain, query, ages, epsilon_c)
    except InputError:
        return None
    ticks = np.cumsum([10, *random.integers(1, 3, size=int(random.integers(0, 2)))]).tolist()
    wait = int(random.integers(0, 2))
    if (m**s) ** (ticks[-1] - ticks[0] + max(ages) + wait + 2) > 500_000:
        return None
    accountant = follow(plan, "vector")
    state, told = accountant.start(), []
    f = tuple(map(tuple, answers(query, s, m)))
    for tick in ticks:
        level = float(random.choice([epsilon_c, epsilon_c / 2]))
        stale = bool(random.random() < 0.2)
        read = [age + int(stale and random.random() < 0.7) for age in ages]
        state = accountant.release(state, tick, stale=stale, epsilon_c=level)
        told.append(Told(tick, tuple(read), f, level / plan.sensitivity))
    now = ticks[-1] + wait
    truth = history_leakage(kernel, s, m, told, now)
    leakage = accountant.leakage(accountant.restore(state.to_dict()), now).epsilon
    return leakage, accountant.peak(state), truth


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_no_state_is_ever_below_brute_force(direction):
    found = [pair for seed in range(HISTORIES) if (pair := compare_with_truth(seed, direction)) is not None]
    assert len(found) > HISTORIES / 2
    assert all(now >= truth - ROUNDING for now, _, truth in found)
    assert all(peak >= truth - ROUNDING for _, peak, truth in found)
    assert sum(truth > 0.01 for *_, truth in found) > HISTORIES / 5


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_no_state_is_ever_below_brute_force_in_many_histories(direction):
    triples = [pair for seed in range(1000, 6000) if (pair := compare_with_truth(seed, direction)) is not None]
    assert all(now >= truth - ROUNDING and peak >= truth - ROUNDING for now, peak, truth in triples)


def test_a_history_at_rest_is_above_every_history():
    """What is found directly is not below what tick by tick leads to, and not far above."""
    for chain in (ring(9, 0.8, 0.1, 0.2), ring(9, 0.9, 0.02, 0.3)):
        for epsilon_c in (0.02, 0.3, 2.0):
            accountant = Accountant(csdp.Plan(chain, csdp.Mean(), 1, epsilon_c))
            told = [accountant.after(n).epsilon for n in (1, 10, 30, 100, 1500)]
            assert told == sorted(told)
            assert told[-1] == accountant.limit().epsilon == pytest.approx(accountant.ceiling())
            assert told[-1] <= told[-2] * 1.01


def test_forward_rings_count_the_noise_where_they_depend_weakly():
    accountant = Accountant(csdp.Plan(ring(12, 0.8, 0.3, 0.3, "forward"), csdp.Mean(), 1, 0.1))
    assert [type(component) for component in accountant.components] == [SliceComponent]
    assert accountant.limit().epsilon == pytest.approx(0.0860, abs=1e-4)
    assert accountant.ceiling() == pytest.approx(0.0860, abs=1e-4)
    assert accountant.after(1).epsilon <= accountant.after(3).epsilon <= accountant.limit().epsilon
    state = accountant.history(50)
    assert accountant.leakage(state, state.tick + WINDOW + 40).epsilon < 1e-6


def test_the_group_level_bounds_the_present_too():
    """However strongly sequences are tied, two releases tell no more than both together of all of them."""
    chain = ring(12, 0.75, 0.1, 0.2, "forward")
    accountant = Accountant(csdp.Plan(chain, csdp.Mean(), 1, 1e-6))
    assert accountant.after(2).epsilon <= accountant.group_level(2) * (1 + 1e-9)


def test_no_end_of_releases_is_not_bounded_by_the_group_level_of_some():
    """Sequences that hardly ever change: after 40 releases more is known than when the window of slices was full."""
    accountant = Accountant(csdp.Plan(ring(9, 0.998, 1e-4, 1e-4, "forward"), csdp.Sum(), 0, 1e-4))
    for releases in (1, 40, 1000):
        assert accountant.after(releases).epsilon <= accountant.limit().epsilon <= accountant.ceiling()


def test_hubs_may_raise_a_quiet_state_before_it_falls():
    """Many previous states copy one sequence: what they tell adds up a tick later, and the peak says so."""
    size = 8
    coupling = np.zeros((size, size))
    coupling[:, 0] = 1.0
    chain = csdp.CoupledChain(coupling, [[0.9, 0.1], [0.1, 0.9]], direction="backward")
    accountant = Accountant(csdp.Plan(chain, csdp.Sum(), 0, 0.3))
    state = accountant.release(accountant.start(), 1)
    later = [accountant.leakage(state, 1 + n).epsilon for n in range(6)]
    assert max(later) > later[0] * 1.5
    assert accountant.peak(state) >= max(later) * (1 - 1e-12)
    assert accountant.peak(state) <= max(later) * (1 + 1e-6)


def test_a_state_that_nothing_bounds_comes_to_rest_too():
    """Readings that are copied back for ever: the state overflows, and nothing is compared with infinity."""
    chain = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]], direction="backward")
    accountant = follow(csdp.Plan(chain, csdp.Sum(), [0, 1], 4.0), "vector")
    assert math.isinf(accountant.limit().epsilon)
    assert accountant.limit().reason.startswith("infinite")
    assert math.isinf(accountant.ceiling())
    assert accountant.long_run() is not None


def test_a_change_of_plan_keeps_what_is_known_of_every_sequence():
    chain = ring(20, 0.8, 0.3, 0.3)
    old = Accountant(csdp.Plan(chain, csdp.Mean(), 1, 0.1))
    state = old.history(10)
    new = Accountant(csdp.Plan(chain, csdp.Count(1), 1, 0.05))
    kept = new.take_over(old, state, tick=10, cost=1e9)
    assert new.leakage(kept, 10).epsilon == pytest.approx(old.leakage(state, 10).epsilon)
    other = Accountant(csdp.Plan(ring(20, 0.8, 0.3, 0.2), csdp.Mean(), 1, 0.1))
    assert other.leakage(other.take_over(old, state, tick=10, cost=2.0), 10).epsilon <= 2.0
    forward = ring(20, 0.8, 0.3, 0.3, "forward")
    before, after = (Accountant(csdp.Plan(forward, query, 1, 0.1)) for query in (csdp.Mean(), csdp.Max()))
    moved = after.take_over(before, before.history(10), tick=10, cost=1e9)
    assert after.leakage(moved, 10).epsilon == pytest.approx(before.after(10).epsilon, rel=1e-6)


def test_a_change_of_plan_gives_every_component_its_own_history():
    """Two pairs, one read at age 1 and one at age 4, which tells a tenth."""
    chain = csdp.CoupledChain(np.kron(np.eye(2), [[0.8, 0.2], [0.2, 0.8]]), [[0.7, 0.3], [0.3, 0.7]])
    old = follow(csdp.Plan(chain, csdp.Sum(), [1, 1, 4, 4], 0.5), "vector")
    new = follow(csdp.Plan(chain, csdp.Mean(), [1, 1, 4, 4], 0.25), "vector")

    def by_component(accountant, state):
        return [component.leakage(now, depth)[0] for component, now, depth in newest(accountant.components, state)]

    before = by_component(old, old.history(6))
    assert before[0] > 10 * before[1] > 0
    assert by_component(new, new.take_over(old, old.history(6), tick=6, cost=1e9)) == pytest.approx(before)


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_what_is_read_behind_the_state_counts_between_any_two_snapshots(direction):
    """Four sequences are read at age 2, each with half of the noise level 0.1: 0.2 together, and 0.45 if stale."""
    plan = csdp.Plan(ring(9, 0.8, 0.3, 0.3, direction), csdp.Sum(), [1, 2, 2, 1, 2, 1, 1, 1, 2], 0.1)
    (component,) = follow(plan, "vector").components
    fresh = component.initial_state()
    behind = component.add(fresh, component.reads(False)[1], behind=1, share=0.5)
    # The history of a forward chain knows the slice, where no sequence tells more than half of the level.
    told = component.leakage(behind, 0)[0]
    assert told == pytest.approx(0.2) if direction == "backward" else told <= 0.05
    (whole,) = component.reads(True)  # a stale release counts whole, once, at its newest age
    assert whole.age == 1
    assert component.leakage(component.add(fresh, whole, share=0.5), 0)[0] == pytest.approx(0.45)


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_a_late_reading_costs_no_more_than_it_reveals_of_its_own_sequence(direction):
    """The first of nine weighs ten times as much as the others; one of those is read a tick late."""
    query = csdp.Linear([1.0, *[0.1] * 8])
    plan = csdp.Plan(ring(9, 0.8, 0.3, 0.3, direction), query, 0, 1.0, stale_limit=1)
    (component,) = follow(plan, "vector").components
    (late,) = (read for read in component.reads(Lateness.from_delays([0, 1, *[0] * 7])) if read.delay)
    state = component.add(component.initial_state(), late, behind=1)
    assert 0.0 < component.leakage(state, 0)[0] <= 0.1 * (1 + 1e-5)  # weights are rounded to a lattice


@pytest.mark.parametrize("size", [40, 5000])
def test_sequences_that_were_not_read_cost_nothing_unless_they_are_too_many_to_record(size):
    accountant = Accountant(csdp.Plan(ring(size, 0.8, 0.3, 0.3), csdp.Sum(), 1, 0.1))
    nobody = accountant.release(accountant.start(), 1, stale=Lateness(missing=tuple(range(size))))
    expected = 0.0 if size == 40 else accountant.after(1).epsilon
    assert accountant.leakage(nobody).epsilon == pytest.approx(expected)


def test_states_of_many_sequences_are_written_small_and_read_back():
    accountant = Accountant(csdp.Plan(ring(3000, 0.8, 0.3, 0.3), csdp.Mean(), 1, 0.1))
    state = accountant.release(accountant.release(accountant.start(), 1), 3)
    content = state.to_dict()
    assert len(content["slices"][0]) < 4000
    again = accountant.restore(content)
    assert np.array_equal(again.slices[0], state.slices[0])
    assert accountant.leakage(again, 5).epsilon == accountant.leakage(state, 5).epsilon
