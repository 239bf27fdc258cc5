"""Estimates at the gate: from what the ledger holds, the same after a restart, and never at the price of a tick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from csdp import CoupledChain, Family, Identity, Max, Mean, Publisher, Release, Sum, fran
from csdp.errors import CsdpWarning, InputError, UnsafeRandomnessWarning
from csdp.estimate import (
    Estimated,
    HistoryEstimator,
    LearnedEstimator,
    LinearEstimator,
    Observation,
    learn_estimator,
    model_estimator,
)
from csdp.ledger import Ledger
from csdp.noise import Randomness
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import learn_from_past, plan_estimator

SLOW = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.95, 0.05], [0.05, 0.95]])
PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
STATES = SLOW.simulate(26, seed=3)


def recorded(file: Path, dataset: str = "d") -> list[Release]:
    with Ledger.open(file, read_only=True) as ledger:
        return sorted((Release.of(one) for one in ledger.published(dataset)), key=lambda one: one.tick)


def observations(releases: Sequence[Release]) -> list[Observation]:
    """What an estimator is to see, from recorded values alone."""
    seen = []
    for one in releases:
        assert one.noise is not None
        age = one.ages if isinstance(one.ages, int) else max(one.ages)
        seen.append(Observation(one.tick, one.values, age, one.noise, one.stale))
    return seen


def check_recomputed(releases: Sequence[Release], plan: Plan, about: str = "now") -> None:
    """Every estimate is that of an estimator made here, given the recorded releases up to its tick."""
    own = model_estimator(SLOW, plan.query, age=plan.max_age, about=about, bounds=(0.0, 1.0))  # type: ignore[arg-type]
    seen = observations(releases)
    for n, one in enumerate(releases):
        expected = own.of(seen[max(0, n - 7) : n + 1])
        for name in ("estimate", "standard_error", "low", "high"):
            assert getattr(one, name) == pytest.approx(getattr(expected, name), abs=1e-12)
        assert one.about == about
        assert one.level == 0.95
        assert 0 <= one.low[0] <= one.estimate[0] <= one.high[0] <= 1
        assert one.usefulness == pytest.approx(1 - one.standard_error[0] ** 2 / own.silent_error)


@pytest.mark.parametrize(
    ("how", "about"), [("batch", "now"), ("pushes", "then"), ("by turns", "now"), ("restarts", "then")]
)
def test_estimates_are_those_of_the_ledger(tmp_path: Path, how: str, about: str) -> None:
    plan, file = Plan(SLOW, Mean(), 2, 1.0), tmp_path / "ledger.db"
    options = {"dataset": "d", "ledger": file, "estimator": plan_estimator(plan, about=about)}  # type: ignore[arg-type]
    if how == "batch":
        with Publisher(plan, **options) as publisher:
            publisher.publish(Panel.from_states(STATES))
    elif how == "pushes":
        with Publisher(plan, **options) as publisher:
            for tick, row in enumerate(STATES):
                publisher.push(row, time=tick)
    elif how == "by turns":  # two at a time by each of them: what the other one published is not missed
        with Publisher(plan, **options) as one, Publisher(plan, **options) as other:
            for tick, row in enumerate(STATES):
                turn, idle = (one, other) if tick // 2 % 2 else (other, one)
                turn.push(row, time=tick)
                idle.observe(row, time=tick)
    else:
        for tick in range(2, len(STATES)):
            with Publisher(plan, **options) as publisher:
                for back in (2, 1):
                    publisher.observe(STATES[tick - back], time=tick - back)
                publisher.push(STATES[tick], time=tick)
    releases = recorded(file)
    assert len(releases) == 24
    check_recomputed(releases, plan, about)
    alone = HistoryEstimator(np.array([[0.5]]), np.array([[0.25]]), 2)
    assert releases[-1].estimate[0] != alone.of(observations(releases[-1:])).estimate[0]


def test_a_change_of_plan_keeps_the_releases_of_the_same_query(tmp_path: Path) -> None:
    file, first, second = tmp_path / "ledger.db", Plan(SLOW, Mean(), 2, 1.0), Plan(SLOW, Mean(), 1, 0.5)
    with Publisher(first, dataset="d", ledger=file) as publisher:
        publisher.publish(Panel.from_states(STATES[:20]))
        after = publisher.change_plan(second, from_tick=20)
        for tick in range(18, 24):
            after.push(STATES[tick], time=tick)
        third = after.change_plan(Plan(SLOW, Sum(), 1, 0.5), from_tick=24)
        for tick in range(23, 26):
            third.push(STATES[tick], time=tick)
    releases = recorded(file)
    means, sums = releases[:-2], releases[-2:]
    own = model_estimator(SLOW, Mean(), age=1, bounds=(0.0, 1.0))
    assert means[-1].estimate == own.of(observations(means[-8:])).estimate
    assert {one.ages for one in means[-8:]} == {1, 2}
    alone = model_estimator(SLOW, Sum(), age=1, bounds=(0.0, 2.0))
    assert sums[0].estimate == alone.of(observations(sums[:1])).estimate


class CustomEstimator:
    """A custom estimator."""

    kind, about, level, memory = "mine", "now", 0.9, 3

    def __init__(self, answer: object) -> None:
        self.answer, self.seen = answer, []  # type: ignore[var-annotated]

    def check(self, ages: Sequence[int], outputs: int) -> None:
        pass

    def of(self, releases: Sequence[Observation]) -> Estimated:
        self.seen.append([one.tick for one in releases])
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]

    def expected(self, noise: float) -> None:
        return None


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("0.123"),
        Estimated((0.5, 0.5), (0.1, 0.1), (0.2, 0.2), (0.8, 0.8), 0.1),
        Estimated((math.nan,), (0.1,), (0.2,), (0.8,), 0.1),
        Estimated((0.5,), (0.1,), (0.2,), (0.8,), math.inf),
    ],
    ids=[
        "raises",
        "too many",
        "no number",
        "infinite",
    ],
)
def test_a_tick_is_not_lost_for_want_of_an_estimate(tmp_path: Path, answer: object) -> None:
    plan = Plan(SLOW, Mean(), 1, 1.0)
    with Publisher(plan, dataset="d", ledger=tmp_path / "l.db", estimator=CustomEstimator(answer)) as publisher:  # type: ignore[arg-type]
        publisher.push(STATES[0], time=0)
        with pytest.warns(CsdpWarning, match=r"no estimate of tick 1: the estimator failed \(\w+\)$"):
            release = publisher.push(STATES[1], time=1)
    assert isinstance(release, Release)
    assert len(release.values) == 1
    assert release.estimate == release.low == ()


def test_an_estimator_without_a_level_gives_neither_a_band_nor_an_error(tmp_path: Path) -> None:
    estimator = CustomEstimator(None)
    estimator.level = None  # type: ignore[assignment]
    with Publisher(Plan(SLOW, Mean(), 0, 1.0), dataset="d", ledger=tmp_path / "l.db", estimator=estimator) as publisher:  # type: ignore[arg-type]
        for tick, rest in enumerate([((), (), (), 0.1), ((0.1,), (0.2,), (0.8,), None)]):
            estimator.answer = Estimated((0.5,), *rest)
            with pytest.warns(CsdpWarning, match="the estimator failed"):
                assert publisher.push(STATES[tick], time=tick).estimate == ()  # type: ignore[union-attr]
        estimator.answer = Estimated((0.5,), (), (), (), None)
        assert publisher.push(STATES[2], time=2).estimate == (0.5,)  # type: ignore[union-attr]


def test_a_past_with_timestamps_repeats_after_a_day() -> None:
    """Of half hours: after 48 ticks, if the past has eight days. Without timestamps nothing repeats."""
    plan, ticks = Plan(SLOW, Mean(), 1, 1.0), 8 * 48
    plain = Panel.from_states(SLOW.simulate(ticks, seed=1))
    dated = replace(plain, times=np.datetime64("2026-01-01", "s") + 1800 * np.arange(ticks), step=1800)
    assert learn_from_past(plan, dated).to_dict() == learn_from_past(plan, dated, period=48).to_dict()
    for past in (plain, dated.between(0, ticks - 1)):
        assert set(learn_from_past(plan, past).compared) == {"newest", "history"}


def other_estimators(plan: Plan) -> dict[str, Any]:
    """Estimators of the plan's age and number of outputs that were made for other plans, or for none."""
    past = Panel.from_states(SLOW.simulate(400, seed=1))
    frozen = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.999, 0.001], [0.001, 0.999]])
    shared = plan_estimator(plan)
    assert isinstance(shared, HistoryEstimator)
    return {
        "another query": plan_estimator(Plan(SLOW, Sum(), 1, 1.0)),
        "another chain": plan_estimator(Plan(frozen, Mean(), 1, 1.0)),
        "less noise": learn_from_past(Plan(SLOW, Mean(), 1, 50.0), past),
        "from a file": LearnedEstimator.from_dict(learn_from_past(Plan(SLOW, Sum(), 1, 1.0), past).to_dict()),
        "no plan": learn_estimator(SLOW.simulate(400, seed=1).sum(axis=1), age=1, noise=1.0),
        "altered": replace(shared, plan_digest="0" * 64),
        "by the model alone": model_estimator(SLOW, Sum(), age=1),
    }


def test_an_estimator_of_another_plan_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    """Its ages and number of outputs fit, so it was used: bands of 95 % by another chain held 80 % of the truths."""
    plan, other, file = Plan(SLOW, Mean(), 1, 1.0), Plan(SLOW, Mean(), 1, 0.5), tmp_path / "l.db"
    for name, wrong in other_estimators(plan).items():
        made = "no plan" if name in {"no plan", "by the model alone"} else "the plan [0-9a-f]{12}"
        words = f"made for {made}, but the plan {plan.digest[:12]} is published.* Make it for this plan with csdp.learn"
        with Ledger.open(file) as ledger:
            with pytest.raises(InputError, match=words):
                Publisher(plan, dataset="d", ledger=ledger, estimator=wrong)
            assert not ledger.datasets(), name
        with Publisher(other, dataset=name, ledger=tmp_path / "changed.db") as publisher:
            with pytest.raises(InputError, match=words):
                publisher.change_plan(plan, from_tick=1, estimator=wrong)
            assert len(publisher.ledger.history(name)) == 1


@pytest.mark.parametrize(
    ("query", "ages"), [(Mean(), (1, 1)), (Max(), (1, 2)), (Identity(), (0, 3))], ids=["mean", "max", "identity"]
)
def test_standard_error_is_the_error(query: object, ages: tuple[int, int]) -> None:
    plan = Plan(PAIR, query, ages, 2.0)  # type: ignore[arg-type]
    path = PAIR.simulate(4000, seed=11)
    with pytest.warns(UnsafeRandomnessWarning):
        outputs = fran.batch(plan, path, Randomness.unsafe_seed(5))
    estimator = plan_estimator(plan)
    assert isinstance(estimator, HistoryEstimator | LinearEstimator)
    unclipped = replace(estimator, bounds=None)
    seen = [
        Observation(t, one.values, plan.max_age, plan.noise_variance)
        for t, one in enumerate(outputs)
        if one is not None
    ]
    ticks = [one.tick for one in seen[8:]]
    kept = [unclipped.of(seen[n - 7 : n + 1]) for n in range(8, len(seen))]
    now = plan.query.evaluate(path[ticks].astype(np.intp), PAIR.value_table)
    squares = (np.array([one.estimate for one in kept]) - now) ** 2
    error = np.array(kept[0].standard_error) ** 2
    blocks = squares[: len(squares) // 40 * 40].reshape(40, -1, squares.shape[1]).mean(axis=1)
    half = 4 * blocks.std(axis=0, ddof=1) / math.sqrt(40)
    assert (np.abs(squares.mean(axis=0) - error) < half + 1e-4).all()
    assert (error <= now.var(axis=0) * 1.05).all()


def test_a_family_in_another_order_has_the_estimator_of_its_own_first_member() -> None:
    """The plans are equal, so the second had the estimator of the first: an error of 0.121 was stated for 0.246."""
    chains = [CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.05, 0.4)]
    plans = [Plan(Family(order), Mean(), ages=1, epsilon_c=2.0) for order in (chains, chains[::-1])]
    assert plans[0] == plans[1]
    for plan, chain in zip(plans, chains, strict=True):
        estimator, own = plan_estimator(plan), model_estimator(chain, Mean(), age=1)
        assert estimator is not None
        assert estimator.expected(plan.noise_variance).mse == pytest.approx(own.expected(plan.noise_variance).mse)
