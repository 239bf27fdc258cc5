"""Laws of the accountant, against brute force over all output histories of small random systems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import csdp
from csdp.accountant import Accountant, State
from csdp.plan import Plan

from oracle import snapshot_leakage  # isort: skip
from accountant.systems import Asked, System, systems  # isort: skip
from laws.strategies import law_settings  # isort: skip
from accountant.systems import by_states, follow
from csdp.accountant.account import add_release

#: Rounding of brute force itself.
ROUNDING = 1e-11
GAPS = st.lists(st.sampled_from((1, 1, 1, 2, 3)), min_size=1, max_size=3)
SETTLED = ("smooth", "skewed")


def never_below(bound: float, truth: float) -> None:
    assert bound >= truth * (1 - 1e-10) - ROUNDING, (bound, truth)


def ticks_of(gaps: list[int]) -> list[int]:
    return np.cumsum([10, *gaps[1:]]).tolist()


def affordable(system: System, ticks: list[int], wait: int = 0, older: int = 0) -> None:
    """Skip what brute force cannot enumerate."""
    size = system.m**system.s
    steps = ticks[-1] + wait - ticks[0] + max(system.ages) + older
    assume(size ** (steps + 1) <= 600_000)
    outputs = len(set(system.asked.fvals)) if system.asked.name != "histogram" else (system.s + 1) ** system.m
    assume(outputs ** len(ticks) <= 5000)


def run(accountant: Accountant, ticks: list[int], stale: frozenset[int] = frozenset()) -> State:
    state = accountant.start()
    for n, tick in enumerate(ticks):
        state = accountant.release(state, tick, stale=n in stale)
    return state


@given(systems(), GAPS, st.integers(0, 2))
@law_settings(160)
def test_no_state_is_ever_below_brute_force(system: System, gaps: list[int], wait: int) -> None:
    ticks = ticks_of(gaps)
    affordable(system, ticks, wait)
    now = ticks[-1] + wait
    truth = system.truth([system.told(tick) for tick in ticks], now)
    plan = system.plan()
    cap = max(
        component.cap(min(u.ages[0] for u in (component,)) + wait)[0] for component in Accountant(plan).components
    )
    leakages = {}
    for kind in ("auto", "scalar"):
        accountant = follow(plan, kind)
        state = run(accountant, ticks)
        leakages[kind] = accountant.leakage(state, now).epsilon
        never_below(leakages[kind], truth)
        assert accountant.peak(state) >= accountant.leakage(state).epsilon * (1 - 1e-12)
        never_below(accountant.peak(state), truth)
    assert leakages["auto"] <= leakages["scalar"] * (1 + 1e-9) + 1e-13
    assert leakages["scalar"] <= cap * (1 + 1e-9) + 1e-13


@given(systems(oldest=2), GAPS, st.data())
@law_settings(80)
def test_stale_readings_are_never_below_brute_force(system: System, gaps: list[int], data: st.DataObject) -> None:
    ticks = ticks_of(gaps)
    affordable(system, ticks, older=2)
    late = [tuple(data.draw(st.lists(st.integers(0, 2), min_size=system.s, max_size=system.s))) for _ in ticks]
    outputs = [
        system.told(tick, tuple(a + b for a, b in zip(system.ages, more, strict=True)))
        for tick, more in zip(ticks, late, strict=True)
    ]
    truth = system.truth(outputs, ticks[-1])
    stale = frozenset(n for n, more in enumerate(late) if any(more))
    for kind in ("auto", "scalar"):
        accountant = follow(system.plan(), kind)
        never_below(accountant.leakage(run(accountant, ticks, stale)).epsilon, truth)


@given(systems(kinds=SETTLED, oldest=2), systems(kinds=SETTLED, oldest=2, sizes=((1, 2),)), st.data())
@law_settings(100)
def test_a_change_of_plan_is_never_below_brute_force(system: System, level: System, data: st.DataObject) -> None:
    """Two plans in sequence on one chain; the first history is carried over by its worst log ratio."""
    ages = tuple(data.draw(st.lists(st.integers(0, 3), min_size=system.s, max_size=system.s)))
    asked = Asked(data.draw(st.sampled_from(("mean", "identity", "max"))), system.s, system.m)
    next_plan = system.plan(asked=asked, ages=ages, epsilon_c=level.epsilon_c)
    first = data.draw(st.sampled_from(([10], [10, 11], [10, 12])))
    gap = data.draw(st.integers(0, 1))
    second = data.draw(st.sampled_from(([1], [1, 2])))
    change = first[-1] + 1 + gap
    later = [change - 1 + n for n in second]
    wait = data.draw(st.integers(0, 1))
    told = [*(system.told(t) for t in first), *(asked.told(t, ages, level.epsilon_c) for t in later)]
    slices = [o.tick - a for o in told for a in o.ages]
    assume((system.m**system.s) ** (later[-1] + wait - min(slices) + 1) <= 300_000)
    assume(np.prod([float(len(o.output.likelihoods)) for o in told]) <= 3000)
    truth = system.truth(told, later[-1] + wait)
    old, new = Accountant(system.plan()), Accountant(next_plan)
    state = run(old, first)
    passed = change - 1 - first[-1]
    for cost in (old.largest(state), len(first) * old.history_cost()):
        carried = new.resume(cost, change - 1, old.newest_depth(state) + passed)
        for tick in later:
            carried = new.release(carried, tick)
            carried = new.restore(carried.to_dict())
        never_below(new.leakage(carried, later[-1] + wait).epsilon, truth)


@given(systems(kinds=("smooth",), sizes=((1, 2), (1, 3), (2, 2))), st.integers(1, 4))
@law_settings(40)
def test_leakage_grows_with_releases_towards_its_limit(system: System, wait: int) -> None:
    accountant = Accountant(system.plan())
    limit = accountant.limit().epsilon
    last = 0.0
    for n in range(1, 6):
        now = accountant.after(n).epsilon
        assert now >= last * (1 - 1e-9)
        assert now <= limit * (1 + 1e-9)
        last = now
    state = run(accountant, [1, 2, 3])
    skipped = run(accountant, [1, 2, 3 + wait])
    assert accountant.leakage(skipped).epsilon <= limit * (1 + 1e-9)
    one_more = accountant.release(state, 4)
    assert accountant.leakage(one_more).epsilon >= accountant.leakage(state, 4).epsilon * (1 - 1e-9)


@given(systems(kinds=("smooth", "skewed", "zeros")), GAPS)
@law_settings(60)
def test_no_quiet_tick_passes_the_peak(system: System, gaps: list[int]) -> None:
    """Aging may raise leakage between neighbours, so a ceiling must be held against the peak."""
    accountant = Accountant(system.plan())
    state = run(accountant, ticks_of(gaps))
    peak = accountant.peak(state)
    scalar = follow(system.plan(), "scalar")
    one = run(scalar, ticks_of(gaps))
    before = np.inf
    for quiet in range(12):
        assert accountant.leakage(state, state.tick + quiet).epsilon <= peak * (1 + 1e-12)
        now = scalar.leakage(one, one.tick + quiet).epsilon
        assert now <= before * (1 + 1e-9)
        before = now


@given(systems(), GAPS, st.sets(st.integers(0, 2)))
@law_settings(60)
def test_states_survive_a_ledger_exactly(system: System, gaps: list[int], stale: set[int]) -> None:
    import json

    accountant = Accountant(system.plan())
    state = accountant.start()
    for n, tick in enumerate(ticks_of(gaps)):
        state = accountant.release(state, tick, stale=n in stale)
        back = accountant.restore(json.loads(json.dumps(state.to_dict())))
        assert (back.tick, back.behind, back.pending, back.consecutive) == (
            state.tick,
            state.behind,
            state.pending,
            state.consecutive,
        )
        assert all(np.array_equal(a, b) for a, b in zip(state.slices, back.slices, strict=True))
        other = Accountant(system.plan()).restore(state.to_dict())
        assert all(np.allclose(a, b, rtol=1e-9, atol=0) for a, b in zip(state.slices, other.slices, strict=True))
        assert accountant.leakage(back) == accountant.leakage(state)
        state = back


@given(systems(kinds=SETTLED), st.integers(1, 4))
@law_settings(30)
def test_consecutive_histories_agree_with_the_general_rule(system: System, count: int) -> None:
    accountant = Accountant(system.plan())
    quick = run(accountant, list(range(1, count + 1)))
    slow = accountant.start()
    for tick in range(1, count + 1):
        slow = add_release(accountant.components, slow, tick)
    general = by_states(accountant, slow, 0)
    if count == 1:  # a single release takes its exact leakage where that is smaller
        plan = system.plan()
        general = min(general, csdp.leakage(plan.chain, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c).epsilon)
    assert accountant.leakage(quick).epsilon == pytest.approx(general, rel=1e-9)


@given(systems(kinds=("smooth", "skewed", "zeros"), oldest=2, sizes=((1, 2), (1, 3), (2, 2))), GAPS, st.data())
@law_settings(80)
def test_every_moment_is_never_below_brute_force(system: System, gaps: list[int], data: st.DataObject) -> None:
    """Any record, before, between or after the readings; gaps must not make it worse than the bound."""
    ticks = ticks_of(gaps)
    affordable(system, ticks, wait=1)
    late = data.draw(st.sampled_from((0, 0, 1)))
    ages = [tuple(a + data.draw(st.integers(0, late)) for a in system.ages) for _ in ticks]
    told = [system.told(t, a) for t, a in zip(ticks, ages, strict=True)]
    slices = [o.tick - age for o in told for age in o.ages]
    bound = Accountant(system.plan()).every_moment(len(ticks), stale=late)
    assert bound <= Accountant(system.plan()).every_moment(stale=late) * (1 + 1e-9)
    for moment in range(min(slices), max(slices) + 1):
        never_below(bound, snapshot_leakage(system.kernel, system.s, system.m, told, moment))


def test_a_part_read_behind_a_carried_state_is_charged() -> None:
    """After a change of plan the older readings of unequal ages lie behind the state: they must count all the same."""
    system = System(
        np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.95, 0.05], [0.05, 0.95]]),
        2, 2, (1, 1), Asked("identity", 2, 2), 0.01,
    )  # fmt: skip
    old = Accountant(system.plan())
    state = run(old, [10])
    new = Accountant(system.plan(ages=(1, 4), epsilon_c=3.0))
    carried = new.resume(old.largest(state), 10, old.newest_depth(state))
    told = [system.told(10)]
    for tick in (11, 12):
        carried = new.release(carried, tick)
        told.append(system.asked.told(tick, (1, 4), 3.0))
        never_below(new.leakage(carried).epsilon, system.truth(told, tick))


@pytest.mark.parametrize("kind", ["auto", "metric"])
def test_quiet_ticks_can_raise_leakage_and_the_peak_knows(kind: str) -> None:
    move = np.array([[0.999, 0.001], [0.0001, 0.9999]])
    system = System(np.array([[0.4, 0.6], [0.6, 0.4]]), move, 2, 2, (0, 0), Asked("mean", 2, 2), 4.0)
    accountant = follow(system.plan(), kind)
    state = run(accountant, [10])
    now, soon = (system.truth([system.told(10)], tick) for tick in (10, 11))
    assert now < 4.1
    assert soon > 6.5
    assert accountant.leakage(state).epsilon < 4.1
    assert accountant.peak(state) >= max(accountant.leakage(state, 10 + k).epsilon for k in range(30)) >= soon
    assert isinstance(system.plan(), Plan)
