"""Known numbers of histories, and the questions an accountant answers."""

from __future__ import annotations

import math
import threading
from contextlib import suppress

import numpy as np
import pytest

import csdp
from accountant.systems import follow
from csdp import Accountant, CoupledChain, Family, Identity, Max, Mean
from csdp.accountant import account, joint
from csdp.accountant.build import build_components
from csdp.errors import InputError
from csdp.plan import Plan
from oracle import (
    all_pairs,
    joint_kernel,
    metric_accountant,
    profile,
    repeated_leakage,
    scalar_accountant,
    stationary,
    temporal_leakage,
)

SYMMETRIC = [[0.7, 0.3], [0.3, 0.7]]
SKEWED = [[0.99, 0.01], [0.3, 0.7]]
VALLEY = [[0.2, 0.7, 0.1], [0.1, 0.7, 0.2], [0.1, 0.8, 0.1]]


def pair(own: float) -> list[list[float]]:
    return [[own, 1 - own], [1 - own, own]]


CASES = {
    "one chain": ([[1.0]], SYMMETRIC, 1, 0.5, [0.1966, 0.2695, 0.2956, 0.3048, 0.3080, 0.3091], None),
    "coupling .75": (
        pair(0.75), SYMMETRIC, 1, 0.5, [0.2038, 0.2829, 0.3110, 0.3206], [0.2928, 0.4056, 0.4542, 0.4760],
    ),
    "coupling .6, skewed": (
        pair(0.6), SKEWED, 2, 2.0, [1.7738, 3.0418, 3.1944, 3.2041], [2.0662, 3.2267, 3.3450, 3.3497],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_numbers_to_the_printed_digits(name: str) -> None:
    coupling, transitions, age, epsilon_c, metric, scalar = CASES[name]
    plan = Plan(CoupledChain(coupling, transitions), Mean(), age, epsilon_c)
    for rule, expected in (("auto", metric), ("metric", metric), ("scalar", scalar or metric)):
        accountant = follow(plan, rule)
        assert [round(accountant.after(n).epsilon, 4) for n in range(1, len(metric) + 1)] == expected
        assert accountant.after(2).bound == ("scalar" if rule == "scalar" else "metric")


@pytest.mark.parametrize("name", CASES)
def test_metric_state_equals_brute_force_over_all_histories(name: str) -> None:
    coupling, transitions, age, epsilon_c, _, _ = CASES[name]
    s = len(coupling)
    accountant = follow(Plan(CoupledChain(coupling, transitions), Mean(), age, epsilon_c), "metric")
    fvals = [(sum(map(int, np.binary_repr(z, s))) / s,) for z in range(2**s)]
    for releases in (1, 2, 3):
        truth = repeated_leakage(joint_kernel(coupling, transitions), s, 2, age, epsilon_c, fvals, 1 / s, releases)
        value = accountant.after(releases).epsilon
        assert value == pytest.approx(truth, rel=1e-9)
        assert value >= truth * (1 - 1e-13)


@pytest.mark.parametrize("name", CASES)
def test_both_states_agree_with_the_oracle_s_own_accountants(name: str) -> None:
    coupling, transitions, age, epsilon_c, metric, _ = CASES[name]
    s = len(coupling)
    kernel = joint_kernel(coupling, transitions)
    plan = Plan(CoupledChain(coupling, transitions), Mean(), age, epsilon_c)
    of_pairs, of_all = follow(plan, "metric"), follow(plan, "scalar")
    fvals = [(sum(map(int, np.binary_repr(z, s))) / s,) for z in range(2**s)]
    n = len(metric)
    by_metric = metric_accountant(kernel, s, 2, age, epsilon_c, fvals, 1 / s, n)
    by_scalar = scalar_accountant(kernel, s, 2, age, s * epsilon_c, n)
    assert [of_pairs.after(k + 1).epsilon for k in range(n)] == pytest.approx(by_metric, rel=1e-7)
    assert [of_all.after(k + 1).epsilon for k in range(n)] == pytest.approx(by_scalar, rel=1e-9)


def test_first_release_takes_the_smaller_of_exact_and_metric() -> None:
    accountant = Accountant(Plan(CoupledChain([[1.0]], VALLEY), Mean(), 1, 1.0))
    assert round(accountant.after(1).epsilon, 6) == 0.083243
    assert accountant.after(1).bound == "exact"
    assert round(follow(accountant.plan, "metric").after(1).epsilon, 6) == 0.105499


def test_a_first_release_is_followed_exactly_while_it_ages() -> None:
    """Three states, where the metric state is above the truth: neither later leakages nor the peak fall back on it."""
    chain = CoupledChain([[1.0]], [[0.1, 0.24, 0.66], [0.01, 0.84, 0.15], [0.08, 0.54, 0.38]])
    accountant, metric = (follow(Plan(chain, Mean(), 1, 1.0), kind) for kind in ("auto", "metric"))
    truth = [csdp.leakage(chain, Mean(), ages=age, epsilon_c=1.0).epsilon for age in (1, 2, 3)]
    assert [accountant.leakage(accountant.history(1), tick).epsilon for tick in (1, 2, 3)] == pytest.approx(
        truth, rel=1e-12
    )
    assert metric.leakage(metric.history(1), 2).epsilon > 1.2 * truth[1]
    assert accountant.peak(accountant.history(1)) == pytest.approx(max(truth), rel=1e-12)
    valley = Accountant(Plan(CoupledChain([[1.0]], VALLEY), Mean(), 1, 1.0))
    assert valley.peak(valley.history(1)) == pytest.approx(0.083243, abs=5e-7)


def test_a_state_that_was_handed_out_cannot_change_later_charges() -> None:
    """Equal histories share their numbers: one state set to 0 made later charges 0.365 where 0.631 was due."""
    plan = Plan(CoupledChain(pair(0.75), [[0.8, 0.2], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.7)
    accountant = Accountant(plan)
    states = [accountant.start(), accountant.history(2), accountant.release(accountant.history(2), 9)]
    for state in states:
        for numbers in state.slices:
            with pytest.raises(ValueError, match="read-only"):
                numbers[:] = 0.0
    assert accountant.after(3).epsilon == Accountant(plan).after(3).epsilon


def test_one_chain_never_passes_freshness() -> None:
    accountant = Accountant(Plan(CoupledChain([[1.0]], SYMMETRIC), Mean(), 1, 0.5))
    assert accountant.components[0].cap(1) == (pytest.approx(math.log(0.7 / 0.3), abs=1e-9), "freshness")
    strong = Accountant(Plan(CoupledChain([[1.0]], SYMMETRIC), Mean(), 1, 50.0))
    assert strong.after(3).epsilon == pytest.approx(0.8472979, abs=1e-6)
    assert accountant.limit().epsilon == pytest.approx(0.3096, abs=2e-4)
    assert accountant.limit().reason == ""


def test_the_peak_is_the_largest_of_all_later_moments_at_an_old_age_too() -> None:
    """Leakage rises for a tick after a release that reads three ticks back, before it falls."""
    moves = [[[[0.01, 0.99], [0.91, 0.09]], [[0.5, 0.5], [0.01, 0.99]]], [[[0.5, 0.5], [0.001, 0.999]]] * 2]
    accountant = follow(Plan(CoupledChain(pair(0.91), moves), Mean(), 3, 1.0), "metric")
    state = accountant.release(accountant.start(), 1)
    later = [accountant.leakage(state, 1 + wait).epsilon for wait in range(6)]
    assert later[1] > 1.02 * later[0]
    assert accountant.peak(state) == pytest.approx(max(later), rel=1e-12)


def test_limit_is_a_fixed_point_above_every_count() -> None:
    for coupling, transitions, age, epsilon_c, _, _ in CASES.values():
        accountant = Accountant(Plan(CoupledChain(coupling, transitions), Mean(), age, epsilon_c))
        limit = accountant.limit().epsilon
        far = [accountant.after(n).epsilon for n in (1, 2, 5, 10, 40, 200)]
        assert max(far) <= limit
        assert far[-1] == pytest.approx(limit, rel=1e-6)


def test_every_moment_is_temporal_privacy_leakage() -> None:
    accountant = Accountant(Plan(CoupledChain([[1.0]], SYMMETRIC), Mean(), 1, 1.0))
    component = accountant.components[0]
    assert component.kernels.profile_table(1).largest(1.0) == pytest.approx(0.37399, abs=5e-6)
    bpl, fpl, tpl = temporal_leakage(SYMMETRIC, [1.0] * 60)
    assert bpl[-1] == pytest.approx(1.5261, abs=5e-5)
    assert fpl[0] == pytest.approx(1.5261, abs=5e-5)
    assert accountant.every_moment() == pytest.approx(max(tpl), rel=1e-9)
    assert accountant.every_moment() == pytest.approx(2.0522, abs=5e-5)
    for n in (1, 2, 3, 7):
        *_, leakages = temporal_leakage(SYMMETRIC, [1.0] * n)
        assert accountant.every_moment(n) == pytest.approx(max(leakages), rel=1e-9)
    assert accountant.every_moment(1) == pytest.approx(1.0)
    assert accountant.every_moment(100_000) == pytest.approx(accountant.every_moment())


@pytest.mark.parametrize(
    ("oldest", "gap", "epsilon_c"), [(2, 1, 0.5), (2, 2, 8.0), (3, 1, 1.0), (3, 2, 8.0), (3, 3, 0.5)]
)
def test_every_moment_at_unequal_ages_covers_the_rule_at_every_slice(oldest: int, gap: int, epsilon_c: float) -> None:
    """Each output adds its full alpha, without L, at every slice from its oldest to its newest."""
    kernel = joint_kernel(pair(0.75), SYMMETRIC)
    law = stationary(kernel)
    back = (law[:, None] * kernel).T / law[:, None]
    alpha, ages, ticks = 2 * epsilon_c, (1, oldest), (0, gap)
    slices = range(min(ticks) - oldest, max(ticks))
    cost = [alpha * sum(tick - oldest <= n <= tick - 1 for tick in ticks) for n in slices]

    def told(rows: np.ndarray, costs: list[float]) -> list[float]:
        out: list[float] = []
        for c in costs:
            out.append(c + (profile(rows, all_pairs(law), out[-1]) if out else 0.0))
        return out

    before, after = told(back, cost), told(kernel, cost[::-1])[::-1]
    rule = max(b + a - c for b, a, c in zip(before, after, cost, strict=True))
    accountant = Accountant(Plan(CoupledChain(pair(0.75), SYMMETRIC), Mean(), ages, epsilon_c))
    assert accountant.every_moment(2) >= rule
    assert accountant.every_moment() >= rule


def test_two_independent_components_equal_one() -> None:
    one = Accountant(Plan(CoupledChain([[1.0]], SKEWED), Identity(), 1, 1.0))
    two = Accountant(Plan(CoupledChain(np.eye(2), SKEWED), Identity(), 1, 1.0))
    many = Accountant(Plan(CoupledChain(np.eye(200), SKEWED), Mean(), 1, 1.0))
    assert len(many.components) == 1
    for n in (1, 2, 4):
        assert two.after(n).epsilon == pytest.approx(one.after(n).epsilon, rel=1e-9)
        assert many.after(n).epsilon == pytest.approx(one.after(n).epsilon, rel=1e-9)
    unlike = CoupledChain(np.eye(2), np.array([[SKEWED] * 2, [SYMMETRIC] * 2]))
    both = Accountant(Plan(unlike, Mean(), 1, 1.0))
    assert len(both.components) == 2
    calm = Accountant(Plan(CoupledChain([[1.0]], SYMMETRIC), Mean(), 1, 1.0))
    assert both.after(3).epsilon == pytest.approx(max(one.after(3).epsilon, calm.after(3).epsilon), rel=1e-9)


def test_a_family_counts_its_worst_member() -> None:
    chains = [CoupledChain(pair(0.75), SYMMETRIC), CoupledChain(pair(0.6), SKEWED)]
    family = Accountant(Plan(Family(chains), Mean(), 1, 1.0))
    alone = [Accountant(Plan(chain, Mean(), 1, 1.0)) for chain in chains]
    for n in (1, 3):
        assert family.after(n).epsilon == pytest.approx(max(a.after(n).epsilon for a in alone), rel=1e-9)
    assert family.limit().epsilon == pytest.approx(max(a.limit().epsilon for a in alone), rel=1e-6)
    assert family.every_moment(3) == pytest.approx(max(a.every_moment(3) for a in alone), rel=1e-9)


def test_middle_sized_components_use_the_scalar_state() -> None:
    chain = CoupledChain(np.full((6, 6), 1 / 6), SYMMETRIC)
    accountant = Accountant(Plan(chain, Mean(), 1, 0.5))
    assert accountant.components[0].kind == "scalar"
    for query, oldest, kind in ((Max(), 2, "scalar"), (Mean(), 9, "metric"), (Mean(), 10, "scalar")):
        unequal = Accountant(Plan(CoupledChain(pair(0.75), SYMMETRIC), query, [1, oldest], 0.5))
        assert unequal.components[0].kind == kind


def test_event_and_group_level() -> None:
    plan = Plan(CoupledChain(pair(0.75), SYMMETRIC), Mean(), 1, 0.5)
    accountant = Accountant(plan)
    assert accountant.event_level() == pytest.approx(0.5)
    assert accountant.event_level(stale=2) == pytest.approx(1.5)
    assert accountant.group_level(4) == pytest.approx(4 * 2 * 0.5)
    assert accountant.group_level() == pytest.approx(2 * 0.5)
    assert accountant.history_cost() == pytest.approx(1.0)
    largest = Accountant(Plan(plan.chain, Max(), 2, 0.25))
    assert largest.event_level() == largest.group_level() == largest.history_cost() == pytest.approx(0.25)


def test_what_all_releases_add_to_one_slice() -> None:
    """A slice is read once for every age from the newest to the oldest, and once more for each stale tick."""
    plan = Plan(CoupledChain(pair(0.75), SYMMETRIC), Mean(), (1, 3), 0.5)
    accountant = Accountant(plan)
    for any_model in (False, True):
        assert accountant.slice_cost(any_model=any_model) == pytest.approx(3 * 1.0)
        assert accountant.slice_cost(2, any_model=any_model) == pytest.approx(5 * 1.0)
    apart = Accountant(Plan(CoupledChain(np.eye(2), SYMMETRIC), Mean(), (1, 3), 0.5))
    assert apart.slice_cost() == pytest.approx(0.5)  # each alone is read at one age
    assert apart.slice_cost(any_model=True) == pytest.approx(3 * 1.0)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5])
def test_bad_questions_say_what_is_allowed(bad: object) -> None:
    accountant = Accountant(Plan(CoupledChain([[1.0]], SYMMETRIC), Mean(), 1, 1.0))
    with pytest.raises(InputError, match="1 or more"):
        accountant.after(bad)  # type: ignore[arg-type]
    for level in (0.0, -0.5, 1.5, math.nan):
        with pytest.raises(InputError, match="above 0, at most the plan's"):
            accountant.release(accountant.start(), 1, epsilon_c=level)


def test_ticks_go_forward_only() -> None:
    accountant = Accountant(Plan(CoupledChain([[1.0]], SYMMETRIC), Mean(), 1, 1.0))
    state = accountant.release(accountant.start(), 10)
    for tick in (10, 9, -3):
        with pytest.raises(InputError, match="not after tick 10"):
            accountant.release(state, tick)
    with pytest.raises(InputError, match="before tick 10"):
        accountant.leakage(state, 9)


def test_a_recorded_state_of_another_plan_is_refused() -> None:
    small = Accountant(Plan(CoupledChain([[1.0]], SYMMETRIC), Mean(), 1, 1.0))
    large = Accountant(Plan(CoupledChain(pair(0.75), SYMMETRIC), Mean(), 1, 1.0))
    state = small.release(small.release(small.start(), 1), 5)
    with pytest.raises(InputError, match="another chain, plan or version"):
        large.restore(state.to_dict())


def test_a_state_at_rest_serves_every_common_age():
    chain = CoupledChain(pair(0.8), [[0.9, 0.1], [0.2, 0.8]])
    plans = [Plan(chain, Mean(), ages=age, epsilon_c=level) for level in (0.4, 0.5) for age in (1, 2, 3)]
    known = joint.Known()
    shared = [Accountant(plan, build_components(plan, known=known)).limit().epsilon for plan in plans]
    alone = [Accountant(plan).limit().epsilon for plan in plans]
    assert len(known.rests) == 2
    assert shared == alone
    assert len(set(shared)) == len(shared)  # another level has another state, another age another leakage


def test_threads_that_ask_at_once_follow_one_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each extends it as far as it needs; a step that both made would count one release as two."""
    plan = Plan(CoupledChain(pair(0.75), SYMMETRIC), Mean(), 1, 0.5)
    alone, shared = Accountant(plan), Accountant(plan)
    expected = [alone.after(n).epsilon for n in range(1, 5)]
    meeting, add = threading.Barrier(2), account.add_release

    def add_together(*given, **more):
        with suppress(threading.BrokenBarrierError):  # the other one waits for its turn
            meeting.wait(0.5)
        return add(*given, **more)

    monkeypatch.setattr(account, "add_release", add_together)
    threads = [threading.Thread(target=shared.after, args=(4,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [shared.after(n).epsilon for n in range(1, 5)] == expected
