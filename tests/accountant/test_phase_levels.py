"""A noise level for each phase of a clock: what the accountant charges against enumeration of all output histories."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan, Schedule
from csdp.accountant.protocol import PhaseLevels
from csdp.errors import InputError
from oracle_environment import (
    clock_backward_kernels,
    mean_answers,
    member_kernel,
    random_member,
    told_likelihoods,
    worst,
)

CYCLES = [(0, 1), (0, 1, 1), (0, 1, 0, 1), (1, 0, 0, 1)]


def chain_of(members, cycle, direction, **how):
    chains = [CoupledChain(coupling, transitions, direction=direction) for coupling, transitions in members]
    return EnvironmentChain(chains, cycle=cycle, **how)


def plan_of(chain, age, levels, **how):
    return Plan(chain, Mean(), age, max(levels), schedule=Schedule(tuple(levels), repeats=True), **how)


def truth(chain, members, direction, phase, told):
    """Leakage of a present at a phase; `told`: (steps ago that was read, epsilon_c) of every release."""
    back = clock_backward_kernels([member_kernel(members[e]) for e in chain.cycle], backward=direction == "backward")
    answers, delta = mean_answers(chain.sequences, chain.states)
    deepest = max((ago for ago, _ in told), default=0)
    steps = [back[(phase - n) % len(back)] for n in range(deepest)]
    logs = told_likelihoods(steps, answers, [(ago, e / delta) for ago, e in told if e > 0])
    return worst(logs, chain.sequences, chain.states)


def truths(chain, members, direction, levels, age, releases, quiet=0):
    """The same after releases at consecutive ticks, and some quiet ones, at every phase of the present."""
    count = len(levels)
    return np.array(
        [
            truth(
                chain,
                members,
                direction,
                phase,
                [(age + quiet + n, levels[(phase - quiet - n) % count]) for n in range(releases)],
            )
            for phase in range(count)
        ]
    )


def different_members(seed, s, m):
    """Two members with very different couplings: nearly on their own, and all following one of them."""
    rng = np.random.default_rng(seed)
    return [random_member(rng, s, m, "persistent"), random_member(rng, s, m, "hub")]


def two_bits():
    return [(np.eye(1), np.array([[[[1 - p, p], [q, 1 - q]]]])) for p, q in ((0.3, 0.2), (0.05, 0.1))]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("cycle", CYCLES)
def test_one_binary_sequence_is_exact_at_every_phase(cycle, direction):
    members, levels = two_bits(), [0.9, 0.3, 0.0, 0.6][: len(cycle)]
    chain = chain_of(members, cycle, direction)
    for age in (0, 1, 3):
        accountant = Accountant(plan_of(chain, age, levels))
        for releases in (1, 2, 4):
            exact = truths(chain, members, direction, levels, age, releases)
            told = np.array(accountant.by_phase(accountant.history(releases)))
            assert (told >= exact * (1 - 1e-9)).all()
            assert told == pytest.approx(exact, rel=1e-5, abs=1e-9)
            assert accountant.after(releases).epsilon == pytest.approx(exact.max(), rel=1e-5)


@pytest.mark.parametrize("state", ["metric", "scalar", "vector"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("cycle", CYCLES[:3])
def test_nothing_lies_below_enumeration_where_couplings_differ(cycle, direction, state):
    seed = len(cycle)
    members, levels = different_members(seed, 2, 2), np.random.default_rng(seed).uniform(0.1, 1.5, len(cycle))
    chain = chain_of(members, cycle, direction)
    age = 1 - len(cycle) % 2
    accountant = Accountant(plan_of(chain, age, levels), state=state)
    for releases in (1, 3):
        exact = truths(chain, members, direction, levels, age, releases)
        reached = accountant.history(releases)
        assert (np.array(accountant.by_phase(reached)) >= exact * (1 - 1e-9)).all()
        for quiet in (1, 2):
            later = truths(chain, members, direction, levels, age, releases, quiet)
            assert accountant.peak(reached) >= later.max() * (1 - 1e-9)
    settled = accountant.long_run()
    assert settled is not None
    assert (np.array(accountant.by_phase(settled)) >= exact * (1 - 1e-9)).all()
    assert accountant.ceiling() >= exact.max()


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("state", ["auto", "scalar", "vector"])
def test_levels_that_are_shifted_by_one_phase_are_caught(monkeypatch, state, direction, shift):
    right = PhaseLevels.at
    monkeypatch.setattr(PhaseLevels, "at", lambda self, read, behind=0: np.roll(right(self, read, behind), shift))
    members, levels = two_bits(), [1.0, 0.1, 0.4]
    chain = chain_of(members, (0, 1, 1), direction)
    accountant = Accountant(plan_of(chain, 1, levels), state=state)
    exact = truths(chain, members, direction, levels, 1, 2)
    assert (np.array(accountant.by_phase(accountant.history(2))) < 0.9 * exact).any()


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_without_end_is_the_periodic_fixed_point(direction):
    members, levels = two_bits(), [0.9, 0.2]
    chain = chain_of(members, (0, 1), direction)
    accountant = Accountant(plan_of(chain, 1, levels))
    settled = accountant.long_run()
    for releases in (1, 5, 11):
        exact = truths(chain, members, direction, levels, 1, releases)
        assert (np.array(accountant.by_phase(settled)) >= exact * (1 - 1e-9)).all()
    assert accountant.by_phase(settled) == pytest.approx(exact, rel=0.01)
    assert accountant.limit().epsilon == pytest.approx(max(accountant.by_phase(settled)), rel=1e-9)
    assert any("tick t lies at phase t mod 2" in words for words in accountant.limit().assumptions)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("state", ["auto", "scalar", "vector"])
def test_gaps_late_readings_and_restarts_keep_to_the_number_of_the_tick(state, direction):
    members, levels = different_members(7, 1, 2), [1.2, 0.2, 0.6]
    chain = chain_of(members, (0, 1, 1), direction)
    accountant = Accountant(plan_of(chain, 1, levels, stale_limit=2), state=state)
    restart = lambda state: accountant.restore(json.loads(json.dumps(state.to_dict())))  # noqa: E731
    reached, told = accountant.start(), []
    for tick, late in ((3, 0), (4, 0), (7, 1), (8, 0), (12, 2)):
        reached = restart(accountant.release(reached, tick, stale=late > 0, epsilon_c=levels[tick % 3]))
        told.append((tick, 1 + late))
        seen = [(tick - at + ago, levels[at % 3]) for at, ago in told]
        exact = truth(chain, members, direction, tick % 3, seen)
        assert accountant.by_phase(reached)[tick % 3] >= exact * (1 - 1e-9)
        assert accountant.leakage(reached).epsilon >= exact * (1 - 1e-9)
        if state == "auto" and not any(ago > 1 for _, ago in told):
            assert accountant.by_phase(reached)[tick % 3] == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("kind", ["hidden", "series"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_beside_a_clock_the_worst_path_of_the_other_environment_counts(direction, kind):
    rng = np.random.default_rng(11)
    members = [random_member(rng, 1, 2, which) for which in ("plain", "persistent", "skewed", "plain")]
    other = {"switching": [[0.8, 0.2], [0.3, 0.7]]} if kind == "hidden" else {"series": "weather"}
    chain = chain_of(members, (0, 1), direction, **other)
    kernels = [member_kernel(member) for member in members]
    levels, age, releases = [1.0, 0.25], 1, 2
    accountant = Accountant(plan_of(chain, age, levels))
    answers, delta = mean_answers(1, 2)
    for phase in (0, 1):
        value = accountant.by_phase(accountant.history(releases))[phase]
        told = [(age + n, levels[(phase - n) % 2] / delta) for n in range(releases)]
        exact = 0.0
        for regimes in product((0, 1), repeat=age + releases - 1):  # the present first
            steps = [kernels[chain.cycle[(phase - n) % 2] * 2 + g] for n, g in enumerate(regimes)]
            if direction == "forward":
                laws = [rng.dirichlet(np.ones(2))]
                for kernel in steps[::-1]:
                    laws.append(laws[-1] @ kernel)
                steps = [_reverse(kernel, laws[len(steps) - n - 1]) for n, kernel in enumerate(steps)]
            exact = max(exact, worst(told_likelihoods(steps, answers, told), 1, 2))
        assert value >= exact * (1 - 1e-9)
        if direction == "backward":
            assert value == pytest.approx(exact, rel=0.25)


def _reverse(kernel, before):
    joint = (before[:, None] * kernel).T
    return joint / joint.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_one_release_is_certified_at_its_own_phase(direction):
    members, levels = different_members(3, 2, 2), [0.4, 1.1, 0.0]
    chain = chain_of(members, (0, 1, 1), direction)
    plan = plan_of(chain, 2, levels)
    exact = truths(chain, members, direction, levels, 2, 1)
    assert plan.certified.epsilon == pytest.approx(exact.max(), rel=1e-9)
    assert plan.one_release(1).epsilon == pytest.approx(
        truths(chain, members, direction, levels, 2, 1, quiet=1).max(), rel=1e-9
    )


def test_another_level_than_that_of_the_phase_is_refused():
    accountant = Accountant(plan_of(chain_of(two_bits(), (0, 1), "forward"), 1, [0.5, 0.0]))
    assert accountant.release(accountant.start(), 4).tick == 4
    for tick, level in ((4, 0.3), (5, None), (5, 0.5)):
        with pytest.raises(InputError, match="the plan's level at its phase"):
            accountant.release(accountant.start(), tick, epsilon_c=level)
    with pytest.raises(InputError, match="released alone"):
        Accountant(accountant.plan, also=[accountant.plan])


def test_what_was_told_is_carried_to_levels_by_phase_and_back():
    members = two_bits()
    for direction in ("forward", "backward"):
        chain = chain_of(members, (0, 1), direction)
        plain, phased = Accountant(Plan(chain, Mean(), 1, 0.7)), Accountant(plan_of(chain, 1, [0.9, 0.2]))
        for old, new, before, after in (
            (plain, phased, [0.7, 0.7], [0.9, 0.2]),
            (phased, plain, [0.9, 0.2], [0.7, 0.7]),
        ):
            state = old.release(old.release(old.start(), 4), 5)
            state = new.take_over(old, state, tick=5, cost=10.0)
            state = new.release(new.release(state, 6), 7)
            told = [(1 + n, (after if n < 2 else before)[(7 - n) % 2]) for n in range(4)]
            assert new.leakage(state).epsilon >= truth(chain, members, direction, 1, told) * (1 - 1e-9)


def test_a_list_of_levels_that_is_changed_after_the_plan_was_made_changes_nothing():
    levels = [0.1, 0.1]
    chains = [CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]], direction="backward") for p in (0.3, 0.1)]
    chain = EnvironmentChain(chains, cycle=(0, 1))
    plan = Plan(chain, Mean(), 0, 0.1, schedule=Schedule(levels, repeats=True))  # type: ignore[arg-type]
    told, noise = Accountant(plan).after(2).epsilon, plan.at_tick(0).noise_variance
    levels[:] = [5.0, 5.0]
    assert plan.level(0) == 0.1
    assert plan.at_tick(0).noise_variance == noise  # it was that of level 5, charged as 0.1
    assert Accountant(plan).after(2).epsilon == told
