"""Segmentation: the charge of a cut is never below what crosses it, against the whole chain by enumeration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import csdp
from accountant.brute import Told, history_leakage
from csdp.accountant import Accountant
from csdp.accountant.segmented import SegmentComponent
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.planning import Segmentation, segment
from csdp.segments import PerGroup, cuts

Array = NDArray[np.float64]
HALVES = ((0, 1), (2, 3))


def halves(seed: int, crossing: float, kind: str = "smooth", m: int = 2) -> csdp.CoupledChain:
    """Two pairs of sequences, coupled across with a given weight."""
    rng = np.random.default_rng(seed)
    inside = np.kron(np.eye(2), np.ones((2, 2))) * (0.1 + rng.random((4, 4)))
    across = np.kron(1 - np.eye(2), np.ones((2, 2))) * (0.1 + rng.random((4, 4)))
    inside, across = (w / w.sum(axis=1, keepdims=True) for w in (inside, across))
    spread = {"smooth": 2.0, "skewed": 0.3, "persistent": 2.0}[kind]
    moves = rng.dirichlet(np.full(m, spread), (4, 4, m))
    if kind == "persistent":
        moves = 0.1 * moves + 0.9 * np.eye(m)
    return csdp.CoupledChain((1 - crossing) * inside + crossing * across, moves)


def rule(plan: Plan, releases: int = 1, charge: float = 1.0) -> float:
    """The rule of the cut alone, without the caps; with part of the charge only, for a rule that must fail."""
    worst = 0.0
    for unit in Accountant(plan, state="segmented").components:
        assert isinstance(unit, SegmentComponent)
        object.__setattr__(unit._cut, "inward", unit._cut.inward * charge)
        object.__setattr__(unit._cut, "outward", unit._cut.outward * charge)
        state = unit.initial_state()
        for n in range(releases):
            state = unit.add(unit.advance(state, int(n > 0)), plan.min_age, stale=False)
        worst = max(worst, unit._last_step(float(unit.advance(state, plan.min_age - 1).max())))
    return worst + max(unit._known_others for unit in Accountant(plan, state="segmented").components) * charge  # type: ignore


@given(
    st.integers(0, 10_000),
    st.sampled_from((0.003, 0.02, 0.1, 0.4)),
    st.sampled_from(("smooth", "skewed", "persistent")),
    st.integers(1, 3),
    st.sampled_from((0.2, 1.0, 3.0)),
    st.sampled_from(("informed", "uninformed", "any")),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_rule_is_never_below_the_exact_leakage_of_the_whole_chain(
    seed: int, crossing: float, kind: str, age: int, epsilon_c: float, adversary: str
) -> None:
    chain = halves(seed, crossing, kind)
    found = Segmentation(chain, HALVES)
    plan = Plan(chain, found.query(), age, epsilon_c, adversary=adversary)  # type: ignore[arg-type]
    exact = csdp.leakage(chain, found.query(), ages=age, epsilon_c=epsilon_c, adversary=adversary)  # type: ignore
    assert exact.bound == "exact"
    assert rule(plan) >= exact.epsilon * (1 - 1e-12)
    asked = {"ages": age, "epsilon_c": epsilon_c, "adversary": adversary}
    certified = max(answer.epsilon for answer in found.leakage(**asked))  # type: ignore[arg-type]
    assert certified >= exact.epsilon * (1 - 1e-12)


@given(st.integers(0, 1000), st.sampled_from((0.02, 0.2)), st.sampled_from(("smooth", "persistent")))
@settings(max_examples=4, deadline=None, derandomize=True)
def test_several_releases_are_never_below_brute_force(seed: int, crossing: float, kind: str) -> None:
    chain = halves(seed, crossing, kind)
    query = PerGroup(csdp.Sum(), HALVES)
    snapshots = np.array(np.unravel_index(np.arange(16), (2,) * 4)).T
    answers = tuple(map(tuple, query.evaluate(snapshots, chain.value_table).tolist()))
    told = [Told(t, (1,) * 4, answers, 0.8) for t in (1, 2)]
    plan = Plan(chain, query, 1, 0.8)
    for moment in (2, 3):
        truth = history_leakage(chain.kernel(), 4, 2, told, moment)
        assert rule(plan, releases=2) >= truth * (1 - 1e-12)


def test_a_rule_that_ignores_the_cut_is_caught() -> None:
    """The group alone would promise less than the whole chain leaks."""
    low = 0
    for seed in range(40):
        chain = halves(seed, 0.4, "persistent")
        plan = Plan(chain, PerGroup(csdp.Sum(), HALVES), 1, 0.5)
        exact = csdp.leakage(chain, plan.query, ages=1, epsilon_c=0.5).epsilon
        low += rule(plan, charge=0.0) < exact
    assert low > 0


def test_weak_cuts_cost_little_and_no_cut_costs_nothing() -> None:
    charges = [max(Segmentation(halves(3, w), HALVES).charges) for w in (0.0, 0.001, 0.01, 0.1)]
    assert charges[0] == 0.0
    assert charges == sorted(charges)
    assert charges[1] < 0.02
    found = Segmentation(halves(3, 0.0), HALVES)
    alone = max(csdp.leakage(c.chain, csdp.Sum(), ages=1, epsilon_c=1.0, bound="profile").epsilon for c in found.cuts)
    assert max(a.epsilon for a in found.leakage(ages=1, epsilon_c=1.0)) == pytest.approx(alone, rel=1e-6)


def test_the_charge_covers_every_factor_of_the_joint_law() -> None:
    """ln p(x' | x) - ln (own chain) varies with the group's two slices by no more than the charge, for fixed others."""
    for seed in range(8):
        for m in (2, 3):
            chain = halves(seed, 0.15, "smooth", m)
            kernel = chain.kernel().reshape((m,) * 8)
            for cut, axes in zip(cuts(chain, HALVES), ((0, 1, 4, 5), (2, 3, 6, 7)), strict=True):
                own = cut.chain.kernel().reshape((m,) * 4)
                outside = tuple(i for i in range(8) if i not in axes)
                log = np.log(np.moveaxis(kernel, outside, range(4))) - np.log(own)
                flat = log.reshape(m**4, -1)
                assert (flat.max(axis=1) - flat.min(axis=1)).max() <= cut.charge * (1 + 1e-9)


def test_groups_follow_the_couplings() -> None:
    ring = {(j, j): 0.8 for j in range(12)} | {(j, (j + 1) % 12): 0.2 if j % 3 else 0.01 for j in range(12)}
    ring = {e: w / sum(v for f, v in ring.items() if f[0] == e[0]) for e, w in ring.items()}
    chain = csdp.CoupledChain(ring, [[0.7, 0.3], [0.3, 0.7]])
    assert [len(g) for g in segment(chain, cut=0.05).groups] == [3, 3, 3, 3]
    assert max(len(g) for g in segment(chain, max_states=8).groups) == 3
    assert segment(chain, max_states=2).groups == tuple((i,) for i in range(12))
    assert len(segment(chain, max_states=2**12).groups) == 1


def test_a_release_per_group_goes_through_the_gate(tmp_path: Path) -> None:
    """A component too large for a state of its own is charged by its groups."""
    count = 24
    edges: dict[tuple[int, int], float] = {}
    for j in range(count):
        mate = j ^ 1
        edges |= {(j, j): 0.7, (j, mate): 0.298, (j, (j + 2) % count): 0.002}
    chain = csdp.CoupledChain(edges, [[0.7, 0.3], [0.3, 0.7]])
    found = segment(chain, cut=0.05)
    assert [len(g) for g in found.groups] == [2] * 12
    plan = Plan(chain, found.query(), 1, 0.3)
    assert Plan.from_json(plan.to_json()) == plan
    accountant = Accountant(plan)
    assert all(isinstance(unit, SegmentComponent) for unit in accountant.components)
    limit = accountant.limit()
    assert limit.bound == "segments"
    assert limit.epsilon < csdp.leakage(chain, csdp.Sum(), ages=1, epsilon_c=0.3).epsilon
    states = chain.simulate(30, seed=2)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "l.db", budget=accountant.ceiling()) as publisher:
        batch = publisher.publish(csdp.Panel.from_states(states))
        assert len(batch) == 29
        assert len(batch.releases[0].values) == 12
    late = [answer.epsilon for answer in found.leakage(ages=1, epsilon_c=0.3, releases="continual")]
    assert max(late) == pytest.approx(limit.epsilon, rel=1e-6)


def test_a_transition_that_only_the_outside_makes_possible_is_not_promised() -> None:
    moves = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]])
    chain = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[moves[0], moves[0]], [moves[1], moves[1]]])
    found = Segmentation(chain, ((0,), (1,)))
    assert np.isinf(found.charges[0])
    exact = csdp.leakage(chain, found.query(), ages=1, epsilon_c=1.0).epsilon
    assert max(a.epsilon for a in found.leakage(ages=1, epsilon_c=1.0)) >= exact


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "neither"),
        ({"cut": 0.1, "max_states": 4}, "both"),
        ({"cut": 0.0}, "between 0 and 1"),
        ({"max_states": 1}, "2 or more"),
    ],
)
def test_bad_input_is_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        segment(halves(0, 0.1), **asked)  # type: ignore[arg-type]


def test_what_has_no_couplings_or_another_law_is_refused() -> None:
    joint = csdp.JointChain([[0.5, 0.5], [0.5, 0.5]], states=2, sequences=1)
    with pytest.raises(InputError, match="only a CoupledChain"):
        segment(joint, cut=0.1)  # type: ignore[arg-type]
    timed = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], initial=[0.5, 0.5])
    with pytest.raises(InputError, match="initial law"):
        segment(timed, cut=0.1)
    with pytest.raises(InputError, match="exactly one group"):
        PerGroup(csdp.Sum(), ((0,), (0, 1)))
    with pytest.raises(InputError, match="sum, count or histogram"):
        PerGroup(csdp.Mean(), ((0,), (1,)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="query per group"):
        _ = Accountant(Plan(halves(0, 0.1), csdp.Mean(), 1, 1.0), state="segmented").components


def test_what_crosses_and_who_is_where_is_told() -> None:
    found = segment(halves(0, 0.1), max_states=4)
    assert found.groups == HALVES
    targets, sources = found.chain.edge_targets, found.chain.edge_sources
    assert found.crossing == found.chain.edge_weights[(targets < 2) != (sources < 2)].max()
    assert segment(halves(0, 0.0), max_states=4).crossing == 0.0
    records = found.records()
    assert [record["group"] for record in records] == [1, 2]
    assert [record["sequences"] for record in records] == [list(found.chain.names[:2]), list(found.chain.names[2:])]
    assert tuple(record["charge"] for record in records) == found.charges


def test_groups_that_hardly_forget_are_bounded_by_the_cap_for_ever() -> None:
    still = csdp.CoupledChain(np.eye(2), [[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]])
    found = segment(still, cut=0.5).leakage(ages=1, epsilon_c=0.001, releases="continual")
    freshness = csdp.leakage(still, csdp.Sum(), ages=1, epsilon_c=1.0, bound="freshness").epsilon
    assert [each.epsilon for each in found] == pytest.approx([freshness] * len(found), rel=1e-9)
    assert {each.bound for each in found} == {"freshness"}
