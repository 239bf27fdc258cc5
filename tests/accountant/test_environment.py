"""The accountant under environments: every phase of a clock, and the worst path of a given environment."""

from itertools import pairwise, product

import numpy as np
import pytest

from accountant.systems import follow
from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan
from csdp.accountant.account import newest
from csdp.accountant.kernels import _SCALAR_STEPS
from csdp.accountant.record import State
from oracle import (
    clock_backward_kernels,
    likelihoods,
    mean_answers,
    member_kernel,
    random_member,
    reverse,
    worst,
)

SEEDS = [seed if seed < 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(4)]
PAIR = [[0.75, 0.25], [0.25, 0.75]]


def binary(p: float, q: float) -> list[list[float]]:
    return [[1 - p, p], [q, 1 - q]]


def chains_of(members, direction):
    return [CoupledChain(coupling, transitions, direction=direction) for coupling, transitions in members]


def clock_truth(members, cycle, direction, s, m, epsilon_c, age, releases):
    """The largest over the phases of the present, from enumeration of all output histories."""
    back = clock_backward_kernels([member_kernel(members[e]) for e in cycle], backward=direction == "backward")
    answers, delta = mean_answers(s, m)
    values = []
    for phase in range(len(cycle)):
        steps = [back[(phase - n) % len(cycle)] for n in range(age + releases)]
        values.append(worst(likelihoods(steps, answers, epsilon_c / delta, age, releases), s, m))
    return max(values)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_one_binary_sequence_under_a_clock_is_exact_after_every_release(direction):
    members = [(np.eye(1), np.array(binary(p, q)).reshape(1, 1, 2, 2)) for p, q in ((0.3, 0.2), (0.1, 0.4))]
    chain = EnvironmentChain(chains_of(members, direction), cycle=(0, 1, 1))
    for age in (0, 1, 2):
        plan = Plan(chain, Mean(), age, 0.7)
        # Sequence by sequence if that is as sharp: a reading that is missing then costs nothing.
        assert [each.follows_missing for each in Accountant(plan).components] == [direction == "backward"]
        for releases in (1, 2, 3):
            truth = clock_truth(members, (0, 1, 1), direction, 1, 2, 0.7, age, releases)
            value = Accountant(plan).after(releases).epsilon
            assert truth <= value * (1 + 1e-9)
            assert value <= truth * (1 + 1e-5)


@pytest.mark.parametrize("state", ["metric", "scalar", "vector"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_state_under_a_clock_lies_below_enumeration(state, direction, seed):
    rng = np.random.default_rng(seed)
    s, m = ((2, 2), (1, 3), (2, 2), (1, 2))[seed]
    members = [random_member(rng, s, m, kind) for kind in (("plain", "persistent"), ("hub", "skewed"))[seed % 2]]
    chain = EnvironmentChain(chains_of(members, direction), cycle=(0, 1))
    age, epsilon_c = seed % 3, 0.8
    accountant = follow(Plan(chain, Mean(), age, epsilon_c), state)
    for releases in (1, 3):
        truth = clock_truth(members, (0, 1), direction, s, m, epsilon_c, age, releases)
        assert accountant.after(releases).epsilon >= truth * (1 - 1e-9)
    limit = accountant.limit().epsilon
    assert limit >= accountant.after(3).epsilon * (1 - 1e-9)
    assert accountant.ceiling() >= limit


@pytest.mark.parametrize("state", ["metric", "vector"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_state_of_a_given_environment_lies_below_any_path(state, direction, seed):
    rng = np.random.default_rng(seed)
    s, m = ((2, 2), (1, 3), (2, 2), (1, 2))[seed]
    members = [random_member(rng, s, m, kind) for kind in (("plain", "persistent"), ("own", "skewed"))[seed % 2]]
    chain = EnvironmentChain(chains_of(members, direction), switching=[[0.8, 0.2], [0.3, 0.7]])
    kernels = [member_kernel(member) for member in members]
    answers, delta = mean_answers(s, m)
    age, epsilon_c, releases = 1 + seed % 2, 0.8, 3
    accountant = follow(Plan(chain, Mean(), age, epsilon_c), state)
    value = accountant.after(releases)
    assert value.environment == "given"
    assert any("facts about the environment" in words for words in value.assumptions)
    length = age + releases - 1
    for path in product((0, 1), repeat=length):  # the present first
        steps = [kernels[e] for e in path]
        if direction == "forward":
            laws = [rng.dirichlet(np.ones(m**s))]
            for e in path[::-1]:
                laws.append(laws[-1] @ kernels[e])
            steps = [reverse(kernels[path[n]], laws[length - n - 1]) for n in range(length)]
        truth = worst(likelihoods(steps, answers, epsilon_c / delta, age, releases), s, m)
        assert value.epsilon >= truth * (1 - 1e-9)


def test_equal_environments_leak_as_the_plain_chain():
    for direction in ("forward", "backward"):
        plain = CoupledChain(PAIR, binary(0.3, 0.3), direction=direction)
        clock = EnvironmentChain([plain, plain], cycle=(0, 1))
        for state in ("metric", "scalar", "vector"):
            one, two = (follow(Plan(chain, Mean(), 1, 0.5), state) for chain in (plain, clock))
            for releases in (1, 2, 5):
                assert two.after(releases).epsilon == pytest.approx(one.after(releases).epsilon, rel=1e-6)


@pytest.mark.parametrize(
    ("direction", "how", "state", "kind"),
    [
        ("forward", {"cycle": (0, 1)}, "metric", "metric"),
        ("backward", {"cycle": (0, 1)}, "scalar", "scalar"),
        ("backward", {"switching": [[0.8, 0.2], [0.3, 0.7]]}, "metric", "metric"),
        ("forward", {"switching": [[0.8, 0.2], [0.3, 0.7]]}, "auto", "contraction"),
    ],
)
def test_what_far_later_ticks_are_bounded_by_never_grows(direction, how, state, kind):
    """And lies above what is told then; a history that is told long after lies below both."""
    members = [CoupledChain(PAIR, binary(p, q), direction=direction) for p, q in ((0.02, 0.03), (0.1, 0.2))]
    accountant = follow(Plan(EnvironmentChain(members, **how), Mean(), 1, 0.5), state)
    (component,) = accountant.components
    assert component.kind == kind
    ((_, now, depth),) = newest(accountant.components, accountant.history(3))
    steps = [depth + n for n in (0, 1, 2, 5, 40, 400)]
    told = [component.leakage(now, n)[0] for n in steps]
    bounds = [component.decaying_bound(now, n) for n in steps]
    assert all(bound >= value for bound, value in zip(bounds, told, strict=True))
    assert all(later <= bound for bound, later in pairwise(bounds[1:]))
    assert component.peak(now, depth) >= max(told)
    nothing = component.advance(np.zeros_like(now), 3)
    assert component.leakage(nothing, 1)[0] == component.decaying_bound(nothing, 1) == 0.0


def test_states_of_a_clock_survive_a_ledger_and_a_change_of_plan():
    members = [CoupledChain(PAIR, binary(p, q)) for p, q in ((0.3, 0.3), (0.1, 0.4))]
    chain = EnvironmentChain(members, cycle=(0, 1))
    accountant = Accountant(Plan(chain, Mean(), 1, 0.5))
    state = accountant.release(accountant.release(accountant.start(0), 1), 4, epsilon_c=0.3)
    again = accountant.restore(state.to_dict())
    assert isinstance(again, State)
    assert accountant.leakage(again).epsilon == accountant.leakage(state).epsilon
    later = Accountant(Plan(chain, Mean(), 2, 0.5))
    taken = later.take_over(accountant, state, tick=5, cost=10.0)
    assert later.leakage(taken).epsilon > 0


def test_a_hidden_environment_ties_all_sequences_at_the_group_level():
    members = [CoupledChain(np.eye(3), binary(p, q)) for p, q in ((0.1, 0.5), (0.5, 0.1))]
    hidden = EnvironmentChain(members, switching=[[0.9, 0.1], [0.1, 0.9]])
    clock = EnvironmentChain(members, cycle=(0, 1))
    assert Accountant(Plan(hidden, Mean(), 1, 1.0)).group_level() == pytest.approx(3.0)
    assert Accountant(Plan(hidden, Mean(), 1, 1.0)).largest_component == 3
    assert Accountant(Plan(clock, Mean(), 1, 1.0)).group_level() == pytest.approx(1.0)


@pytest.mark.parametrize("gap", [_SCALAR_STEPS + n for n in (-1, 0, 1, 2, 5)])
def test_blocks_are_led_to_their_phase_by_every_tick_of_a_gap(gap):
    members = [CoupledChain(PAIR, binary(1e-6, 1e-6), direction="backward") for _ in range(7)]
    chain = EnvironmentChain(members, cycle=tuple(range(7)))
    (component,) = follow(Plan(chain, Mean(), 0, 1.0), "scalar").components
    state = np.zeros((7, 1, 1))
    state[2] = 1.0
    assert component.advance(state, gap).argmax() == (2 + gap) % 7
