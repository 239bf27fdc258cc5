"""Publishing under environments: the gate, the ledger and its replay, and what the words say."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import csdp
from csdp import Accountant, CoupledChain, EnvironmentChain, Ledger, Mean, Panel, Plan, Publisher, Schedule
from csdp.errors import BudgetExceeded
from csdp.ledger import Charge
from csdp.report.certificate import certify
from oracle_environment import told_likelihoods, worst


def chain_of(kind: str) -> EnvironmentChain:
    members = [
        CoupledChain([[1.0]], [[1 - p, p], [q, 1 - q]], direction="backward") for p, q in ((0.3, 0.3), (0.1, 0.4))
    ]
    if kind == "clock":
        return EnvironmentChain(members, cycle=(0, 1))
    if kind == "hidden":
        return EnvironmentChain(members, switching=[[0.9, 0.1], [0.2, 0.8]])
    return EnvironmentChain(members, series="weather")


def panel_of(chain: EnvironmentChain, ticks: int) -> Panel:
    return Panel.from_states(chain.simulate_given([t % 2 for t in range(ticks)], seed=1), names=chain.names)


@pytest.mark.parametrize("kind", ["clock", "hidden", "series"])
def test_a_dataset_is_published_continued_and_replayed(tmp_path: Path, kind: str) -> None:
    chain = chain_of(kind)
    plan = Plan.from_json(Plan(chain, Mean(), 1, 0.4).to_json())
    panel, path = panel_of(chain, 8), tmp_path / "ledger.db"
    with Publisher(plan, dataset="d", ledger=path) as publisher:
        publisher.publish(Panel.from_states(panel.states[:4], names=chain.names))
    with Publisher(plan, dataset="d", ledger=path) as publisher:
        assert publisher.publish(panel).releases
        words = publisher.guarantee()["words"]
        paper = certify(publisher, publisher.ledger)
        assert csdp.replay(publisher.ledger, dataset="d").ok
    condition = "given the phase of the clock" if kind == "clock" else "given the environment of every tick"
    assert condition in paper.sentence
    assert condition in " ".join(words)
    says_what_is_open = any("Facts about the environment" in text for text in paper.not_promised)
    assert says_what_is_open == (kind != "clock")


def test_a_budget_holds_at_every_phase(tmp_path: Path) -> None:
    chain = chain_of("clock")
    plan, budget = Plan(chain, Mean(), 1, 0.4), 0.3
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db", budget=budget) as publisher:
        with pytest.raises(BudgetExceeded):
            publisher.publish(panel_of(chain, 12))
        assert 0 < publisher.summary()["present"] <= budget


# ---- a noise level for each phase ------------------------------------------------------------------------------------

LEVELS = (0.9, 0.2, 0.5)


def clock_of_three(direction: str = "backward") -> EnvironmentChain:
    laws = ((0.3, 0.3), (0.05, 0.1), (0.2, 0.4))
    members = [CoupledChain([[1.0]], [[1 - p, p], [q, 1 - q]], direction=direction) for p, q in laws]  # type: ignore[arg-type]
    return EnvironmentChain(members, cycle=(0, 1, 2))


def phased(chain: EnvironmentChain, levels: tuple[float, ...] = LEVELS, **how: int) -> Plan:
    return Plan(chain, Mean(), 1, max(levels), schedule=Schedule(levels, repeats=True), **how)


def charges_of(ledger: Ledger, dataset: str = "d") -> dict[int, Charge]:
    reserved = ledger.entries(dataset, kind="reserve")
    return {entry.tick: Charge.from_record(entry.data()["charge"]) for entry in reserved if entry.tick is not None}


def states_of(chain: EnvironmentChain, ticks: int) -> Panel:
    return Panel.from_states(chain.simulate(ticks, seed=2), names=chain.names)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_levels_by_phase_are_charged_drawn_and_replayed_by_tick(tmp_path: Path, direction: str) -> None:
    chain = clock_of_three(direction)
    plan = Plan.from_json(phased(chain, stale_limit=2).to_json())
    panel = states_of(chain, 20)
    late = panel.states.copy()
    late[[4, 9, 10]] = -1  # missing: tick 5 reads what is one step older, ticks 10 and 11 too
    cuts = {"whole": [20], "parts": [5, 6, 7, 13, 20]}
    told = {}
    for name, ends in cuts.items():
        path = tmp_path / f"{name}.db"
        for end in ends:  # every part by a process of its own, as after a restart
            with Publisher(plan, dataset="d", ledger=path, budget=5.0) as publisher:
                publisher.publish(Panel.from_states(late[:end], names=chain.names))
        with Ledger.open(path, read_only=True) as ledger:
            told[name] = charges_of(ledger)
            assert csdp.replay(ledger, dataset="d").ok
            for one in ledger.published("d"):
                assert one.output["noise"] == plan.at(LEVELS[one.tick % 3]).noise_variance
                assert one.output["epsilon_s"] == told[name][one.tick].present
    assert told["whole"] == told["parts"]
    assert {tick: charge.epsilon_c for tick, charge in told["whole"].items()} == {
        tick: LEVELS[tick % 3] for tick in told["whole"]
    }
    accountant = Accountant(plan)
    state = accountant.release(accountant.release(accountant.start(), 1), 2)
    assert told["whole"][2].present == accountant.leakage(state).epsilon
    assert max(charge.present for charge in told["whole"].values()) <= Accountant(phased(chain)).ceiling() * 2


def test_a_publisher_whose_levels_are_shifted_by_one_phase_is_caught_by_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = clock_of_three()
    plan, right = phased(chain), Schedule.level
    with monkeypatch.context() as wrong:
        wrong.setattr(Schedule, "level", lambda self, tick: right(self, tick + 1))
        with Publisher(plan, dataset="d", ledger=tmp_path / "l.db") as publisher:
            publisher.publish(states_of(chain, 6))
    with Ledger.open(tmp_path / "l.db", read_only=True) as ledger:
        told = csdp.replay(ledger, dataset="d")
    assert not told.ok
    assert any("the schedule says" in str(finding) for finding in told.findings)


def test_plans_with_and_without_levels_by_phase_follow_each_other(tmp_path: Path) -> None:
    chain = clock_of_three()
    panel, path = states_of(chain, 18), tmp_path / "l.db"
    one, two, three = Plan(chain, Mean(), 1, 0.4), phased(chain), phased(chain, (0.1, 0.6, 0.3))
    publisher = Publisher(one, dataset="d", ledger=path, budget=4.0)
    publisher.publish(Panel.from_states(panel.states[:5], names=chain.names))
    for plan, first, last in ((two, 5, 11), (three, 11, 18)):
        publisher = publisher.change_plan(plan, from_tick=first)
        publisher.publish(Panel.from_states(panel.states[:last], names=chain.names))
    told = charges_of(publisher.ledger)
    assert [told[tick].epsilon_c for tick in range(5, 11)] == [LEVELS[tick % 3] for tick in range(5, 11)]
    assert [told[tick].epsilon_c for tick in (11, 12, 13)] == [0.3, 0.1, 0.6]
    assert csdp.replay(publisher.ledger, dataset="d").ok
    publisher.ledger.close()


def test_a_found_plan_is_never_refused_and_a_phase_of_level_0_is_silent(tmp_path: Path) -> None:
    chain, budget = clock_of_three(), 0.6
    found = csdp.phase_plan(chain, Mean(), ages=1, budget=budget, estimate="raw")
    assert found.worthwhile
    with Publisher(found.plan, dataset="d", ledger=tmp_path / "l.db", budget=budget) as publisher:
        batch = publisher.publish(states_of(chain, 50))
        assert len(batch) == 49
        assert max(release.epsilon_s for release in batch) <= budget
        assert any("goes by the clock: tick t lies at phase t mod 3" in text for text in publisher.guarantee()["words"])
    with Publisher(phased(chain, (0.5, 0.0, 0.2)), dataset="e", ledger=tmp_path / "l.db") as publisher:
        batch = publisher.publish(states_of(chain, 8))
        assert [release.tick for release in batch] == [2, 3, 5, 6]
        assert {skip.tick for skip in batch.skipped if skip.why == "schedule"} == {1, 4, 7}
        assert csdp.replay(publisher.ledger, dataset="e").ok


def test_the_noise_of_a_tick_is_that_of_its_phase(tmp_path: Path) -> None:
    chain = clock_of_three()
    plan = phased(chain, (4.0, 0.25, 1.0))
    with pytest.warns(csdp.errors.UnsafeRandomnessWarning):
        opened = Publisher(plan, dataset="d", ledger=tmp_path / "l.db", unsafe_seed=5)
    with opened as publisher:
        batch = publisher.publish(Panel.from_states(np.zeros((1201, 1), dtype=np.int8), names=chain.names))
    for phase, level in enumerate((4.0, 0.25, 1.0)):
        noise = np.abs([release.values[0] for release in batch if release.tick % 3 == phase])
        # Mean of |noise| on whole numbers is 1 / sinh(epsilon_c); the seed is fixed, any two differ by a factor of 4.
        assert noise.mean() == pytest.approx(1 / np.sinh(level), rel=0.2, abs=0.02)


def test_a_refusal_names_a_later_tick_at_which_something_is_published(tmp_path: Path) -> None:
    chain = clock_of_three()
    plan = phased(chain, (0.9, 0.0, 0.5))
    assert repr(plan).startswith("Plan(mean, ages 1, epsilon_c 0.9, 0, 0.5 by phase, certified ")
    with Publisher(plan, dataset="d", ledger=tmp_path / "l.db", budget=0.4) as publisher:
        with pytest.raises(BudgetExceeded) as told:
            publisher.publish(states_of(chain, 30))
        later = told.value.affordable_from
        assert later is not None
        assert later % 3 != 1
        publisher.push([0], time=later - 1)
        assert isinstance(publisher.push([1], time=later), csdp.Release)


def test_the_noise_that_errors_are_told_with_is_the_mean_over_the_phases() -> None:
    plan = phased(clock_of_three(), (0.9, 0.0, 0.5))
    assert plan.noise_variance == pytest.approx((plan.at(0.9).noise_variance + plan.at(0.5).noise_variance) / 2)
    assert plan.schedule is not None
    assert 0.5 < plan.schedule.mean_level < 0.9


def test_whatever_path_a_public_series_takes_every_charge_covers_it(tmp_path: Path) -> None:
    """The publisher does not read the series: it charges the worst environment, which no path passes."""
    chain = chain_of("series")
    plan = Plan(chain, Mean(), 1, 0.4)
    kernels = [np.array([[1 - p, p], [q, 1 - q]]) for p, q in ((0.3, 0.3), (0.1, 0.4))]
    with Publisher(plan, dataset="d", ledger=tmp_path / "l.db") as publisher:
        charged = {release.tick: release.epsilon_s for release in publisher.publish(panel_of(chain, 6))}
    worst_seen = 0.0
    for path in product((0, 1), repeat=4):  # environments of ticks 1 to 4
        for tick in (1, 2, 3, 4):
            back = [kernels[path[tick - 1 - n]] for n in range(tick)]  # from tick to the one before, and so on
            told = [(1 + n, 0.4) for n in range(tick)]
            exact = worst(told_likelihoods(back, np.array([0.0, 1.0]), told), 1, 2)
            assert exact <= charged[tick] * (1 + 1e-9)
            worst_seen = max(worst_seen, exact / charged[tick])
    assert worst_seen > 0.99
