"""An initial law belongs to no tick of a plan: whenever it held, no certificate of a plan is below the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import csdp
from csdp import CoupledChain, JointChain, Mean
from csdp.accountant import Accountant
from csdp.errors import InputError, NoStationaryLawError
from csdp.plan import Plan
from csdp.publisher import Publisher
from oracle import joint_kernel

from accountant.brute import Told, history_leakage  # isort: skip

ROWS = [[0.7, 0.3], [0.2, 0.8]]
SURE = CoupledChain([[1.0]], ROWS, initial=[1.0, 0.0])
STILL = CoupledChain([[1.0]], [[1.0, 0.0], [0.0, 1.0]], initial=[0.5, 0.5])


def truths(kernel: np.ndarray, s: int, initial: np.ndarray, outputs: list[Told], moment: int) -> list[float]:
    """The leakage where the initial law held 0, 1, 2, ... ticks before the oldest reading."""
    laws = [initial @ np.linalg.matrix_power(kernel, n) for n in (0, 1, 2, 3, 7, 50)]
    return [history_leakage(kernel, s, 2, outputs, moment, initial=law) for law in laws]


def one(ticks: list[int], age: int = 1, level: float = 1.0) -> list[Told]:
    return [Told(tick, (age,), ((0.0,), (1.0,)), level) for tick in ticks]


def test_a_first_release_at_any_tick() -> None:
    """If the oldest reading follows the law nothing is told; a tick later much is."""
    worst = max(truths(np.array(ROWS), 1, np.array([1.0, 0.0]), one([1]), 1))
    assert worst > 0.3
    plan = Plan(SURE, Mean(), 1, 1.0)
    assert csdp.leakage(SURE, Mean(), ages=1, epsilon_c=1.0).epsilon < 1e-12  # one release, read as documented
    assert plan.certified.epsilon >= worst
    assert plan.certified.bound == "contraction"
    assert Accountant(plan).after(1).epsilon >= worst
    assert Accountant(plan).peak(Accountant(plan).history(1)) >= worst


def test_what_is_recorded_holds_for_any_tick_of_the_law(tmp_path: Path) -> None:
    with Publisher(Plan(SURE, Mean(), 1, 2.0), dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        released = [publisher.push([tick % 2], time=tick) for tick in range(5)]
        for n in range(1, 4):
            worst = max(truths(np.array(ROWS), 1, np.array([1.0, 0.0]), one(list(range(1, n + 1)), level=2.0), n))
            assert released[n].epsilon_s >= worst > 0.5  # type: ignore[union-attr] # all of them are releases
        assert publisher.guarantee()["one_release"] >= max(
            truths(np.array(ROWS), 1, np.array([1.0, 0.0]), one([1], level=2.0), 1)
        )


def test_random_chains_under_a_law_that_held_at_any_tick() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        s = int(rng.integers(1, 3))
        coupling = rng.dirichlet(np.ones(s), size=s)
        moves = rng.uniform(0.02, 0.98, size=(s, s, 2))
        transitions = np.stack([moves, 1 - moves], axis=-1)
        kernel = joint_kernel(coupling, transitions)
        initial = rng.dirichlet(np.full(2**s, 0.2))
        age, level = int(rng.integers(0, 3)), float(rng.uniform(0.2, 3))
        model = (
            CoupledChain(coupling, transitions, initial=initial)
            if rng.random() < 0.6
            else JointChain(kernel, states=2, sequences=s, initial=initial)
        )
        plan = Plan(model, csdp.Identity(), age, level)
        accountant = Accountant(plan)
        answers = tuple(tuple(float(v) for v in np.unravel_index(x, (2,) * s)) for x in range(2**s))
        for releases, later in ((1, 0), (1, 2), (2, 0)):
            outputs = [Told(tick, (age,) * s, answers, level) for tick in range(1, releases + 1)]
            worst = max(truths(kernel, s, initial, outputs, releases + later))
            state = accountant.history(releases)
            assert accountant.leakage(state, releases + later).epsilon >= worst * (1 - 1e-9)
            assert accountant.peak(state) >= worst * (1 - 1e-9)
            if releases == 1 and later == 0:
                assert plan.certified.epsilon >= worst * (1 - 1e-9)


def test_components_that_an_initial_law_ties_stay_one(tmp_path: Path) -> None:
    """Two sequences that go their own ways but start alike: what is told of one tells of the other."""
    alike = np.array([0.5, 0.0, 0.0, 0.5])
    slow = [[0.95, 0.05], [0.05, 0.95]]
    chain = CoupledChain(np.eye(2), slow, initial=alike)
    kernel = np.kron(np.array(slow), np.array(slow))
    answers = ((0.0,), (1.0,), (1.0,), (2.0,))
    worst = max(truths(kernel, 2, alike, [Told(1, (1, 1), answers, 1.0)], 1))
    for plan in (Plan(chain, csdp.Sum(), 1, 1.0), Plan(chain, csdp.Sum(), (1, 1), 1.0, bound="contraction")):
        assert plan.certified.epsilon >= worst


def test_a_chain_with_several_long_runs() -> None:
    """It needs an initial law; then what a reading tells never fades, and the certificate says so."""
    with pytest.raises(NoStationaryLawError):
        Plan(CoupledChain([[1.0]], [[1.0, 0.0], [0.0, 1.0]]), Mean(), 1, 1.0).certified  # noqa: B018 # raises
    plan = Plan(STILL, Mean(), 3, 1.0)
    assert plan.certified.epsilon == pytest.approx(1.0)
    assert Accountant(plan).after(3).epsilon == pytest.approx(3.0)


@pytest.mark.parametrize("bound", ["exact", "profile", "two-point", "loose", "freshness"])
def test_bounds_that_rest_on_the_law_do_not_certify_a_plan(bound: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="belongs to no tick of a plan"):
        Publisher(Plan(SURE, Mean(), 1, 1.0, bound=bound), dataset="d", ledger=tmp_path / "ledger.db")
    assert Plan(CoupledChain([[1.0]], ROWS), Mean(), 1, 1.0, bound=bound).certified.bound == bound


@pytest.mark.parametrize("bound", ["contraction", "lineage", "slice", "group"])
def test_bounds_for_any_past_certify_a_plan(bound: str) -> None:
    worst = max(truths(np.array(ROWS), 1, np.array([1.0, 0.0]), one([1]), 1))
    assert Plan(SURE, Mean(), 1, 1.0, bound=bound).certified.epsilon >= worst


def test_changes_from_and_to_an_initial_law(tmp_path: Path) -> None:
    """Another chain: the old release counts in full; the law of the new one is not relied on either."""
    usual = CoupledChain([[1.0]], ROWS)
    kernel, start = np.array(ROWS), np.array([1.0, 0.0])
    for number, (first, second) in enumerate(((SURE, usual), (usual, SURE))):
        with Publisher(Plan(first, Mean(), 1, 1.0), dataset=f"d{number}", ledger=tmp_path / "ledger.db") as publisher:
            publisher.push([0], time=0)
            publisher.push([1], time=1)
            changed = publisher.change_plan(Plan(second, Mean(), 1, 1.0), from_tick=2)
            told = [changed.summary()["present"]]
            changed.observe([0], time=1)
            told.append(changed.push([0], time=2).epsilon_s)  # type: ignore[union-attr] # it is a release
        for n in (1, 2):
            outputs = one(list(range(1, n + 1)))
            pinned = truths(kernel, 1, start, outputs, n)
            worst = max(pinned) if second is SURE else history_leakage(kernel, 1, 2, outputs, n)
            assert told[n - 1] >= worst * (1 - 1e-9)


def test_planning_does_not_rest_on_the_law() -> None:
    plan = csdp.find_plan(SURE, Mean(), budget=0.2, max_age=3).plan
    worst = max(truths(np.array(ROWS), 1, np.array([1.0, 0.0]), one([5], plan.min_age, plan.epsilon_c), 5))
    assert 0.2 >= plan.certified.epsilon >= worst


def test_a_state_that_relied_on_the_law_is_replaced_by_the_cost_of_its_history():
    """Before, the law was applied to whatever tick came first; such a state is one number, like the present one."""
    chain = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], initial=[0.9, 0.1])
    accountant = csdp.Accountant(csdp.Plan(chain, csdp.Mean(), 1, 0.5))
    state = accountant.release(accountant.release(accountant.start(), 0), 3)
    recorded = state.to_dict()
    assert accountant.largest(accountant.restore(recorded, cost=1.0)) == accountant.largest(state)
    older = {name: value for name, value in recorded.items() if name != "algorithm"}
    assert accountant.largest(accountant.restore(older, cost=1.0)) == pytest.approx(1.0)
    with pytest.raises(InputError, match="another chain, plan or version"):
        accountant.restore(older)
