"""A noise level for each phase of a clock: found, certified, and kept only where it lowers the error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import csdp
from accountant.test_phase_levels import truths
from command import run_command
from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan, Schedule, phase_plan
from csdp.errors import InfeasibleError, InputError
from csdp.estimate import second_order
from csdp.estimate.second_order import moments
from oracle_environment import clock_backward_kernels, mean_answers, member_kernel, periodic_laws

OWN = np.eye(1)
HUB = np.array([[0.9, 0.1], [0.8, 0.2]])
APART = np.array([[0.95, 0.05], [0.05, 0.95]])


def binary(p: float, q: float) -> list[list[float]]:
    return [[1 - p, p], [q, 1 - q]]


def member(coupling: np.ndarray, p: float, q: float) -> tuple[np.ndarray, np.ndarray]:
    s = len(coupling)
    return coupling, np.broadcast_to(binary(p, q), (s, s, 2, 2))


def chain_of(members, cycle, direction="forward", **how):
    chains = [CoupledChain(coupling, rows, direction=direction) for coupling, rows in members]
    return EnvironmentChain(chains, cycle=cycle, **how)


BITS = [member(OWN, 0.05, 0.05), member(OWN, 0.4, 0.3)]
PAIRS = [member(APART, 0.1, 0.2), member(HUB, 0.4, 0.3)]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("members", "cycle"), [(BITS, (0, 1)), (BITS, (0, 0, 1)), (PAIRS, (0, 1))])
def test_no_phase_passes_the_budget_in_any_history(members, cycle, direction) -> None:
    chain, budget = chain_of(members, cycle, direction), 0.6
    found = phase_plan(chain, Mean(), ages=1, budget=budget, estimate="raw")
    assert found.worthwhile
    assert found.gain == found.possible_gain > 0.01
    assert found.mse < 0.99 * found.constant_mse
    assert max(found.leakage) <= budget
    assert max(found.leakage) >= 0.99 * budget
    assert Accountant(found.plan).ceiling() <= budget
    for releases in (1, 4):
        for quiet in (0, 1):
            exact = truths(chain, members, direction, list(found.levels), 1, releases, quiet)
            assert (exact <= budget).all()
            assert quiet or (exact <= np.array(found.leakage) * (1 + 1e-9)).all()
    flat = Accountant(Plan(chain, Mean(), 1, found.constant_level)).ceiling()
    assert 0.99 * budget <= flat <= budget


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_for_one_release_every_phase_has_its_own_largest_level(direction) -> None:
    chain, budget = chain_of(PAIRS, (0, 1), direction), 0.5
    found = phase_plan(chain, Mean(), ages=1, budget=budget, releases=1, estimate="raw")
    exact = truths(chain, PAIRS, direction, list(found.levels), 1, 1)
    assert (exact <= budget).all()
    for phase, (level, leak) in enumerate(zip(found.levels, found.leakage, strict=True)):
        own = csdp.leakage(chain, Mean(), ages=1, epsilon_c=level, phase=phase).epsilon
        assert leak == own == pytest.approx(exact[phase], rel=1e-9)
        assert leak >= 0.998 * budget or level == 10.0
    assert found.plan.certified.epsilon == max(found.leakage)


def test_beside_a_clock_a_hidden_environment_counts_with_all_its_paths() -> None:
    members = [member(OWN, p, q) for p, q in ((0.05, 0.1), (0.1, 0.05), (0.4, 0.5), (0.3, 0.3))]
    chain = chain_of(members, (0, 1), "backward", switching=[[0.8, 0.2], [0.3, 0.7]])
    for releases in (1, "continual"):
        found = phase_plan(chain, Mean(), ages=1, budget=0.5, releases=releases, estimate="raw")
        assert found.worthwhile
        assert Accountant(found.plan).ceiling(1 if releases == 1 else None) <= 0.5
        for phase, level in enumerate(found.levels):
            assert csdp.leakage(chain, Mean(), ages=1, epsilon_c=level, phase=phase).epsilon <= 0.5
    words = found.plan.certified.assumptions
    assert any("given the environment" in text for text in words)
    assert any("tick t lies at phase t mod 2" in text for text in words)


@pytest.mark.parametrize("cycle", [(0,), (0, 0)])
def test_one_level_is_kept_where_phases_are_alike(cycle) -> None:
    chain = chain_of(BITS[:1], cycle)
    found = phase_plan(chain, Mean(), ages=1, budget=0.6, estimate="raw")
    assert not found.worthwhile
    assert found.gain == 0.0
    assert found.plan == Plan(chain, Mean(), 1, found.constant_level)
    assert set(found.levels) == {found.constant_level}
    assert found.plan.schedule is None


def test_a_family_keeps_the_budget_in_each_of_its_members() -> None:
    chains = [chain_of([member(OWN, p, p), BITS[1]], (0, 1), "backward") for p in (0.05, 0.1)]
    found = phase_plan(csdp.Family(chains), Mean(), ages=1, budget=0.6, estimate="raw")
    assert found.worthwhile
    for chain in chains:
        assert Accountant(Plan(chain, Mean(), 1, max(found.levels), schedule=found.plan.schedule)).ceiling() <= 0.6


def test_many_sequences_have_a_level_for_each_phase_too() -> None:
    ring = {(i, (i + d) % 30): w for i in range(30) for d, w in ((0, 0.8), (1, 0.1), (29, 0.1))}
    members = [CoupledChain(ring, binary(p, p), direction="backward") for p in (0.3, 0.1)]
    chain = EnvironmentChain(members, cycle=(0, 0, 1, 1))
    found = phase_plan(chain, Mean(), ages=1, budget=0.5, estimate="raw", about="then")
    assert found.gain > 0.05
    assert Accountant(found.plan).ceiling() <= 0.5


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_error_of_a_phase_is_that_of_its_ticks(direction) -> None:
    """Moments at a phase against the periodic law and the kernels by enumeration."""
    chain, cycle = chain_of(PAIRS, (0, 1, 1), direction), (0, 1, 1)
    kernels = [member_kernel(PAIRS[e]) for e in cycle]
    laws = periodic_laws(kernels, backward=direction == "backward")
    back = clock_backward_kernels(kernels, backward=direction == "backward")
    answers, _ = mean_answers(2, 2)
    for phase in range(3):
        joint = laws[phase][:, None] * (back[phase] @ back[phase - 1])  # present, two ticks before
        known = moments(chain, Mean(), ages=(2, 2), phase=phase)
        mean, old = joint.sum(axis=1) @ answers, joint.sum(axis=0) @ answers
        assert known.mean_now[0] == pytest.approx(mean, abs=1e-12)
        assert known.mean_aged[0] == pytest.approx(old, abs=1e-12)
        assert known.cross[0, 0] == pytest.approx((answers - mean) @ joint @ (answers - old), abs=1e-12)
        assert known.cov_aged[0, 0] == pytest.approx(joint.sum(axis=0) @ (answers - old) ** 2, abs=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_moments_of_independent_parts_add_up(direction) -> None:
    coupling = np.array([[0.8, 0.2, 0, 0], [0.3, 0.7, 0, 0], [0, 0, 0.6, 0.4], [0, 0, 0.1, 0.9]])
    chain = chain_of([member(coupling, 0.1, 0.4), member(coupling, 0.5, 0.2)], (0, 1, 1), direction)
    for query in (Mean(), csdp.Histogram(), csdp.Identity(), csdp.PerGroup(csdp.Sum(), ((0, 1), (2, 3)))):
        computation = second_order.on_values(second_order.verify_query(query, chain))
        for ages in ((1,) * 4, (0, 1, 2, 1)):
            for phase in (None, 0, 2):
                parts = vars(moments(chain, query, ages=ages, phase=phase))
                whole = vars(second_order._by_joint_law(chain, computation, ages, phase))
                for name in ("mean_aged", "mean_now", "cov_aged", "cov_now", "cross"):
                    assert parts[name] == pytest.approx(whole[name], abs=1e-12)


def test_many_phases_of_backward_parts_are_followed_sequence_by_sequence() -> None:
    rows = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    chains = [CoupledChain(np.eye(2), mixed, direction="backward") for mixed in (rows, 0.5 * rows + 0.125)]
    few, many = (EnvironmentChain(chains, cycle=(0, 1) * half) for half in (1, 24))
    kinds = [{each.kind for each in Accountant(Plan(chain, Mean(), 1, 0.3)).components} for chain in (few, many)]
    assert kinds == [{"metric"}, {"vector"}]
    sharp, quick = (Accountant(Plan(chain, Mean(), 1, 0.3)).limit().epsilon for chain in (few, many))
    assert sharp <= quick * (1 + 1e-9)
    assert quick < 1.5 * sharp


def test_moments_at_the_phases_of_a_clock_beside_a_hidden_environment_average_to_the_long_run() -> None:
    members = [member(OWN, p, q) for p, q in ((0.05, 0.4), (0.1, 0.3), (0.5, 0.1), (0.4, 0.05))]
    chain = chain_of(members, (0, 1), switching=[[0.8, 0.2], [0.3, 0.7]])
    each = [moments(chain, Mean(), ages=(1,), phase=phase) for phase in (0, 1)]
    whole = moments(chain, Mean(), ages=(1,))
    assert np.mean([one.mean_now for one in each]) == pytest.approx(whole.mean_now[0], abs=1e-12)
    assert each[0].mean_now != pytest.approx(each[1].mean_now, abs=1e-3)
    states = chain.simulate(40_000, seed=4)[:, 0]
    for phase in (0, 1):
        assert states[phase::2].mean() == pytest.approx(each[phase].mean_now[0], abs=0.03)


def test_moments_at_a_phase_of_a_large_system_come_from_the_ticks_of_that_phase() -> None:
    sequences = 24
    ring = 0.8 * np.eye(sequences) + 0.2 * np.roll(np.eye(sequences), 1, axis=1)
    members = [CoupledChain(ring, binary(p, q)) for p, q in ((0.02, 0.6), (0.6, 0.02))]
    chain = EnvironmentChain(members, cycle=(0, 1))
    known = [moments(chain, Mean(), ages=(1,) * sequences, phase=phase) for phase in (0, 1)]
    assert {one.how for one in known} == {"simulation"}
    for phase in (0, 1):
        assert known[phase].mean_now[0] == pytest.approx(chain.marginals(phase=phase)[0, 1], abs=0.02)
        assert known[phase].mean_aged[0] == pytest.approx(chain.marginals(phase=1 - phase)[0, 1], abs=0.02)


def test_levels_that_pass_the_budget_are_an_error_not_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = "csdp.planning.phases._PhaseSearch._candidates"
    monkeypatch.setattr(candidates, lambda self, constant: iter([np.array([5.0, 5.1])]))
    with pytest.raises(AssertionError, match="pass the budget"):
        phase_plan(chain_of(BITS, (0, 1)), Mean(), ages=1, budget=0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 0.0}, "a positive number"),
        ({"budget": float("nan")}, "a positive number"),
        ({"releases": 2}, "1 or 'continual'"),
        ({"estimate": "history"}, "'linear' or 'raw'"),
        ({"about": "soon"}, "about"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], words: str) -> None:
    asked = {"ages": 1, "budget": 0.25, **changes}
    with pytest.raises(InputError, match=words):
        phase_plan(chain_of(BITS, (0, 1)), Mean(), **asked)  # type: ignore[arg-type]


def test_members_of_a_family_must_share_a_clock_and_a_series_has_no_error() -> None:
    with pytest.raises(InputError, match="share one"):
        phase_plan(csdp.Family([chain_of(BITS, (0, 1)), chain_of(BITS, (0, 1, 1))]), Mean(), ages=1, budget=0.5)
    both = chain_of([*BITS, *BITS], (0, 1), series="weather")
    with pytest.raises(InputError, match="no law"):
        phase_plan(both, Mean(), ages=1, budget=0.5)


def test_a_budget_that_no_noise_meets_says_so() -> None:
    frozen = [member(OWN, 1e-9, 1e-9), member(OWN, 1e-8, 1e-8)]
    with pytest.raises(InfeasibleError, match="even epsilon_c") as told:
        phase_plan(chain_of(frozen, (0, 1)), Mean(), ages=0, budget=1e-7)
    assert told.value.nearest > 1e-7


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ((0.5,), "at least 2"),
        ((0.0, 0.0), "every level is 0"),
        ((0.5, -0.1), "0 or more"),
        ((0.5, 0.1, 0.1), "2 phases"),
    ],
)
def test_levels_that_repeat_must_fit_the_clock(levels: tuple[float, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Plan(chain_of(BITS, (0, 1)), Mean(), 1, 0.5, schedule=Schedule(levels, repeats=True))


def test_a_chain_without_a_clock_has_no_phases() -> None:
    plain = CoupledChain(APART, binary(0.1, 0.1))
    with pytest.raises(InputError, match=r"1 phases \(1: no clock\)"):
        Plan(plain, Mean(), 1, 0.5, schedule=Schedule((0.5, 0.2), repeats=True))
    with pytest.raises(InputError, match="neither beginning nor end"):
        Schedule((0.5, 0.2), start=3, repeats=True)


def test_a_plan_with_levels_by_phase_survives_json_and_old_plans_keep_their_digest() -> None:
    chain = chain_of(BITS, (0, 1))
    plan = Plan(chain, Mean(), 1, 0.5, schedule=Schedule((0.5, 0.2), repeats=True))
    content = json.loads(plan.to_json())
    assert content["schema"] == "csdp/plan/3"
    assert content["schedule"] == {"levels": [0.5, 0.2], "start": 0, "then": 0.0, "repeats": True}
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.phase_levels == (0.5, 0.2)
    assert [again.level(tick) for tick in (0, 7, 1_000_000)] == [0.5, 0.2, 0.5]
    assert again.at_tick(3).epsilon_c == 0.2
    listed = Plan(chain, Mean(), 1, 0.5, schedule=Schedule((0.5, 0.2)))
    assert json.loads(listed.to_json())["schedule"] == {"levels": [0.5, 0.2], "start": 0, "then": 0.0}
    assert json.loads(listed.to_json())["schema"] == "csdp/plan/1"
    assert len({plan.digest, listed.digest, Plan(chain, Mean(), 1, 0.5).digest}) == 3
    for altered in (
        {**content, "schema": "csdp/plan/1"},
        {**content, "schedule": {**content["schedule"], "repeats": 1}},
    ):
        with pytest.raises(InputError, match=r"altered, make the plan anew|true or false"):
            Plan.from_json(json.dumps(altered))


def test_the_command_writes_the_levels_of_the_phases(tmp_path: Path) -> None:
    chain, plan = tmp_path / "clock.json", tmp_path / "plan.json"
    chain.write_text(chain_of(BITS, (0, 0, 1), "backward").to_json())
    asked = ["plan", str(chain), "--budget", "1.5", "--continual", "--per-phase", "--max-age", "1", "--estimate", "raw"]
    told = run_command(*asked, "-o", str(plan), "--anyway")
    assert told.returncode == 0, told.stderr
    assert "Levels by phase" in told.stdout
    assert "Tick t has the level of phase t mod 3." in told.stdout
    made = Plan.from_json(plan.read_text())
    assert made.phase_levels is not None
    assert Accountant(made).ceiling() <= 1.5
    facts = json.loads(run_command(*asked, "--format", "json", "--anyway").stdout)["per_phase"]
    assert [one["epsilon_c"] for one in facts["levels"]] == list(made.phase_levels)
    assert facts["plan_digest"] == made.digest
    assert facts["worthwhile"]
    alike = tmp_path / "alike.json"
    alike.write_text(chain_of(BITS[:1], (0, 0), "backward").to_json())
    told = run_command("plan", str(alike), "--budget", "1.5", "--per-phase", "--max-age", "1", "--anyway")
    assert "one level is kept" in told.stdout
    for wrong in (["--horizon", "3"], ["--mechanism", "optimal"]):
        told = run_command("plan", str(chain), "--budget", "1", "--per-phase", *wrong)
        assert told.returncode != 0
        assert "--per-phase needs --budget" in told.stderr
