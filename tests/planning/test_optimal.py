"""The best table for one release: reference values, when it is offered, and what it does not go together with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import csdp
from csdp import Count, CoupledChain, Custom, EnvironmentChain, Histogram, Mean, Plan, Publisher, Schedule
from csdp.auditing.attacker import attack
from csdp.auditing.audit import audit
from csdp.auditing.replay import replay
from csdp.errors import AlteredPlanError, BudgetExceeded, InputError, TooLargeError
from csdp.groups import PerGroup
from csdp.noise import MechanismTable
from csdp.planning import find_plan, optimal_plan, table_error
from csdp.publisher import learn_from_past

SKEWED = [[0.98, 0.02], [0.1, 0.9]]
PAIR = CoupledChain([[0.6, 0.4], [0.4, 0.6]], SKEWED)


def coupled(s: int, own: float) -> list[list[float]]:
    """Every sequence follows itself with `own`, and the others alike."""
    return (np.full((s, s), (1 - own) / (s - 1)) + np.eye(s) * (own - (1 - own) / (s - 1))).tolist()


SIX = CoupledChain(coupled(6, 0.6), SKEWED)


def made(budget: float = 1.0, event_limit: float = 2.0) -> Plan:
    return optimal_plan(PAIR, Mean(), ages=1, budget=budget, event_limit=event_limit)


def test_six_skewed_sequences_at_leakage_one() -> None:
    """With the record epsilon of noise a table is as good as noise with its posterior mean; with twice it, better."""
    noise = find_plan(SIX, Mean(), budget=1.0, min_age=1, max_age=1, estimate="posterior")
    assert noise.error.mse / noise.error.no_data == pytest.approx(0.553, abs=5e-4)
    shares = []
    for factor in (1.0, 2.0):
        plan = optimal_plan(SIX, Mean(), ages=1, budget=1.0, event_limit=factor * noise.plan.epsilon_c)
        error = table_error(plan)
        assert plan.certified.epsilon <= 1.0
        assert plan.epsilon_c <= factor * noise.plan.epsilon_c
        shares.append(error.mse / error.no_data)
    assert shares[0] == pytest.approx(noise.error.mse / noise.error.no_data, rel=1e-4)
    assert shares[1] == pytest.approx(0.457, abs=5e-4)


@pytest.mark.parametrize("seed", range(6))
def test_with_the_record_epsilon_of_noise_nothing_is_gained(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chain = CoupledChain(coupled(2 + seed % 2, 0.7), rng.dirichlet([1.5, 1.5], size=2))
    noise = find_plan(chain, Count(1), budget=0.6, min_age=seed % 2, max_age=seed % 2, estimate="posterior")
    plan = optimal_plan(chain, Count(1), ages=seed % 2, budget=0.6, event_limit=noise.plan.epsilon_c)
    assert table_error(plan).mse == pytest.approx(noise.error.mse, rel=1e-4)


def test_the_error_is_that_of_its_releases() -> None:
    plan = made(event_limit=6.0)
    states = PAIR.simulate(40_001, seed=3)
    answers = plan.query.lattice_answers(states)[:, 0]
    assert plan.mechanism is not None
    drawn = plan.mechanism.draw(answers[:-1], csdp.noise.Randomness.from_key(bytes(32)))
    squares = (drawn - answers[1:] / 2) ** 2
    # Batches of the path are nearly independent: six standard errors of their means.
    batches = squares.reshape(100, -1).mean(axis=1)
    error = table_error(plan)
    assert squares.mean() == pytest.approx(error.mse, abs=6 * batches.std() / 100**0.5)
    assert error.aging <= error.mse <= error.no_data


def test_a_table_is_offered_where_it_is_worth_it() -> None:
    offered = find_plan(SIX, Mean(), budget=1.0, min_age=1, max_age=1, estimate="posterior", mechanism="auto")
    assert offered.plan.mechanism is not None
    assert "less squared error than noise" in offered.note
    assert offered.leakage.epsilon <= 1.0
    tight = find_plan(
        SIX, Mean(), budget=1.0, min_age=1, max_age=1, estimate="posterior", event_limit=0.9, mechanism="auto"
    )
    assert tight.plan.mechanism is None
    assert tight.note.startswith("noise is used")
    kept = find_plan(PAIR, Histogram(), budget=1.0, max_age=1, mechanism="auto")
    assert kept.plan.mechanism is None
    assert find_plan(PAIR, Mean(), budget=1.0, max_age=1, mechanism="optimal").plan.mechanism is not None


def test_a_plan_with_a_table_is_written_read_and_named_by_its_content() -> None:
    plan = made()
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.mechanism == plan.mechanism
    assert again.certified.epsilon == plan.certified.epsilon
    assert plan.digest != made(event_limit=3.0).digest
    assert "table of" in repr(plan)
    content = json.loads(plan.to_json())
    assert content["schema"] == "csdp/plan/2"
    with pytest.raises(InputError, match="schema"):
        Plan.from_json(json.dumps({**content, "schema": "csdp/plan/1"}))
    with pytest.raises(InputError, match="above epsilon_c"):
        Plan.from_json(json.dumps({**content, "epsilon_c": plan.epsilon_c / 2}))
    weights = [row[::-1] for row in content["mechanism"]["weights"]]
    altered = Plan.from_json(json.dumps({**content, "mechanism": {**content["mechanism"], "weights": weights}}))
    assert altered.digest != plan.digest
    with pytest.raises(AlteredPlanError):
        Plan.from_json(json.dumps({**content, "chain_digest": "0" * 64}))


def test_what_a_table_does_not_go_together_with_is_refused() -> None:
    table, level = made().mechanism, 2.0
    assert table is not None
    clock = EnvironmentChain([PAIR, PAIR], cycle=(0, 1))
    begun = CoupledChain(PAIR.coupling, SKEWED, initial=[0.25] * 4)
    large = CoupledChain(np.eye(13), SKEWED)
    for chain, query, message in (
        (PAIR, Histogram(), "one output"),
        (PAIR, PerGroup(Count(1), ((0,), (1,))), "one output"),
        (PAIR, Custom(lambda v: v.sum(), name="f"), "function"),
        (clock, Mean(), "one law"),
        (begun, Mean(), "one law"),
        (SIX, Mean(), "possible ones"),
        (PAIR, Count(1), None),
    ):
        if message is None:
            Plan(chain, query, 1, level, mechanism=table)  # the same answers before the division
            continue
        with pytest.raises(InputError, match=message):
            Plan(chain, query, 1, level, mechanism=table)
    with pytest.raises(TooLargeError, match="joint states"):
        Plan(large, Mean(), 1, level, mechanism=table)
    with pytest.raises(InputError, match="schedule"):
        Plan(PAIR, Mean(), 1, level, mechanism=table, schedule=Schedule((1.0,)))
    with pytest.raises(InputError, match="bound"):
        Plan(PAIR, Mean(), 1, level, mechanism=table, bound="freshness")
    with pytest.raises(InputError, match="MechanismTable"):
        Plan(PAIR, Mean(), 1, level, mechanism="optimal")  # type: ignore[arg-type]
    plan, panel = made(), csdp.Panel.from_states(PAIR.simulate(200, seed=1), names=PAIR.names)
    for noise in (lambda: plan.scale, lambda: plan.at(0.1), lambda: learn_from_past(plan, panel)):
        with pytest.raises(InputError, match="table"):
            noise()
    for options in ({"max_mse": 0.1}, {"budget": 1.0, "releases": 3}, {"budget": 1.0, "releases": "continual"}):
        with pytest.raises(InputError, match="a table is found for one release"):
            find_plan(PAIR, Mean(), mechanism="optimal", **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'noise', 'optimal' or 'auto'"):
        find_plan(PAIR, Mean(), budget=1.0, mechanism="best")  # type: ignore[arg-type]
    for name, value in (("budget", 0.0), ("event_limit", -1.0), ("budget", True)):
        with pytest.raises(InputError, match=name):
            optimal_plan(PAIR, Mean(), **{"ages": 1, "budget": 1.0, "event_limit": 1.0, name: value})  # type: ignore[arg-type]


def test_it_is_published_through_the_gate(tmp_path: Path) -> None:
    plan = made()
    states = PAIR.simulate(40, seed=1)
    with Publisher(plan, dataset="pair", ledger=tmp_path / "ledger.db", event_limit=plan.epsilon_c) as publisher:
        batch = publisher.publish(csdp.Panel.from_states(states, names=PAIR.names))
        assert len(batch) == 39
        assert plan.mechanism is not None
        assert {release.values[0] for release in batch} <= set(plan.mechanism.outputs)
        for release in batch:
            # The outputs are named by their posterior means, which is what the estimate is.
            assert release.estimate[0] == pytest.approx(release.values[0], abs=1e-9)
            assert 0 < release.standard_error[0] < 1
            assert 0 <= release.low[0] <= release.estimate[0] <= release.high[0] <= 1
        epsilons = [release.epsilon_s for release in batch]
        assert epsilons[0] == plan.certified.epsilon
        assert epsilons[-1] <= csdp.Accountant(plan).limit().epsilon
        assert "no leakage is recorded too low" in replay(publisher.ledger).verdict


def test_a_limit_refuses_it_before_anything_is_read(tmp_path: Path) -> None:
    plan = made()
    budget = csdp.Accountant(plan).ceiling(1)
    with Publisher(plan, dataset="pair", ledger=tmp_path / "l.db", budget=budget) as publisher:
        publisher.push([0, 1], time=0)
        publisher.push([0, 1], time=1)
        with pytest.raises(BudgetExceeded):
            publisher.push([0, 1], time=2)


def test_no_engine_draws_for_a_table(tmp_path: Path) -> None:
    from csdp.publisher import PanelSource

    class Drawing(PanelSource):
        trusted_noise = True

        def draws(self, plan: Plan) -> bool:
            return True

        def noisy_answers(self, plan: Plan, keys: object) -> object:
            raise AssertionError("asked for noise that a table has not")

    plan = made()
    source = Drawing(csdp.Panel.from_states(PAIR.simulate(5, seed=1), names=PAIR.names), plan)
    with Publisher(plan, dataset="pair", ledger=tmp_path / "l.db") as publisher:
        assert len(publisher.publish(source)) == 4


def test_audits_and_attacks_know_the_table() -> None:
    plan = made()
    result = audit(plan, samples=40_000, seed=1)
    assert not result.violated
    assert result.lower > 0.5 * plan.certified.epsilon
    assert audit(plan, samples=40_000, seed=1, claim=plan.certified.epsilon / 3).violated
    assert plan.mechanism is not None
    belief = attack(plan, [plan.mechanism.outputs[-1]])
    assert belief.posterior[0, 0, 1] > belief.prior[0, 0, 1]
    with pytest.raises(InputError, match="output"):
        attack(plan, [0.123])


def test_a_table_of_an_outsider_is_certified_by_its_own_numbers() -> None:
    """Nothing is believed: a table that hides nothing has the certificate of one that hides nothing."""
    bare = MechanismTable.from_probabilities([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], np.eye(3) + 1e-9)
    level = bare.record_epsilon(1.0)
    assert level > 20
    plan = Plan(PAIR, Mean(), 1, level, mechanism=bare)
    assert plan.certified.epsilon == pytest.approx(csdp.leakage(PAIR, Mean(), ages=1, epsilon_c=40.0).epsilon, rel=1e-5)


def test_a_query_that_no_record_changes_is_refused_in_words() -> None:
    chain = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], values=[[2.0, 2.0], [0.0, 1.0]])
    with pytest.raises(InputError, match="max never changes with one record, so there is nothing to publish"):
        optimal_plan(chain, "max", ages=1, budget=0.5, event_limit=2.0)


def test_where_the_past_tells_nothing_one_output_is_left() -> None:
    coins = CoupledChain(np.eye(2), [[0.5, 0.5], [0.5, 0.5]])
    plan = optimal_plan(coins, Mean(), ages=1, budget=0.5, event_limit=1.0)
    assert plan.mechanism is not None
    assert len(plan.mechanism.outputs) == 1
    assert plan.certified.epsilon < 1e-10
    assert table_error(plan).mse == pytest.approx(0.125)


def test_a_programme_that_is_too_large_is_refused_or_noise_is_used() -> None:
    wide = CoupledChain([[1.0]], np.full((60, 60), 1 / 60) * 0.5 + 0.5 * np.eye(60))
    with pytest.raises(TooLargeError, match="programme"):
        optimal_plan(wide, Mean(), ages=0, budget=1.0, event_limit=2.0)
    found = find_plan(wide, Mean(), budget=1.0, max_age=0, estimate="posterior", mechanism="auto")
    assert found.plan.mechanism is None
    assert found.note.startswith("noise is used: mechanism: a programme")
