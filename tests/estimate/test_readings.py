"""Estimates of readings: a level and a usefulness are stated only where a public past has shown them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import csdp
from csdp.errors import NotUsefulError
from csdp.panel import Panel
from csdp.planning import check_useful, find_plan
from csdp.publisher.sources import true_answers
from csdp.report.certificate import certify
from csdp.report.figures import release_figure
from csdp.report.series import release_records

CHAIN = csdp.CoupledChain(
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]], [[0.9, 0.1], [0.1, 0.9]], values=[17.0, 23.0]
)
QUERY = csdp.Mean(of=csdp.ReadingRange(low=11, high=29, resolution=0.5))


def rooms(ticks: int, seed: int) -> Panel:
    """Readings that move inside their states, partly together, which a chain of states does not know."""
    states = CHAIN.simulate(ticks, seed=seed)
    random = np.random.default_rng(seed)
    inside = random.uniform(-3, 3, (ticks, 1)) + random.uniform(-3, 3, states.shape)
    return replace(Panel.from_states(states), readings=np.where(states == 0, 17.0, 23.0) + inside)


@pytest.mark.parametrize(
    ("how", "about", "ages"),
    [("model", "now", 1), ("model", "then", 1), ("model", "now", (1, 1, 2)), ("past", "now", 1), ("past", "then", 1)],
)
@pytest.mark.filterwarnings("ignore::csdp.errors.UnsafeRandomnessWarning")
def test_a_stated_level_and_usefulness_hold(tmp_path: Path, how: str, about: Any, ages: Any) -> None:
    """By the model, bands of 95 % held 73 to 85 %, and a usefulness of 0.5 was claimed where it was 0.15."""
    plan = csdp.Plan(CHAIN, QUERY, ages=ages, epsilon_c=6.0)
    by_past, data = how == "past", rooms(1200, seed=1)
    learned = csdp.learn_from_past(plan, rooms(1500, seed=2), about=about) if by_past else None
    estimator = learned or csdp.plan_estimator(plan, about=about)
    assert estimator is not None
    where = {"dataset": "d", "ledger": tmp_path / "l.db"}
    with csdp.Publisher(plan, **where, estimator=estimator, unsafe_seed=3) as publisher:
        releases = publisher.publish(data).releases
        worth = certify(publisher, publisher.ledger).worth
    truth = true_answers(plan, data)[:, 0]
    at = np.array([one.tick - (plan.max_age if about == "then" else 0) for one in releases])
    off = np.array([one.estimate[0] for one in releases]) - truth[at]
    real = 1 - (off**2).mean() / truth.var()
    claimed, level = estimator.expected(plan.noise_variance).known_usefulness, releases[-1].level
    assert {one.level for one in releases} == {level}
    if level is not None:
        held = np.mean([one.low[0] <= truth[t] <= one.high[0] for t, one in zip(at, releases, strict=True)])
        assert held > level - 0.03
    for usefulness in (claimed, releases[-1].usefulness, worth and worth["usefulness"]):
        assert usefulness is None or abs(usefulness - real) < 0.05
    assert (level is None, claimed is None, worth is None) == (not by_past,) * 3


def test_an_estimate_without_a_band_is_shown_as_one(tmp_path: Path) -> None:
    plan = csdp.Plan(CHAIN, QUERY, ages=1, epsilon_c=6.0)
    with csdp.Publisher(plan, dataset="d", ledger=tmp_path / "l.db") as publisher:
        releases = publisher.publish(rooms(20, seed=1)).releases
    last = releases[-1]
    assert len(last.estimate) == 1
    assert last.standard_error == last.low == last.high == ()
    assert last.level is last.no_data is last.usefulness is None
    records = release_records(releases)
    assert (records[-1].estimate, records[-1].low, records[-1].high) == (last.estimate[0], None, None)
    _, labels = release_figure(records, what="mean").axes[0].get_legend_handles_labels()
    assert "estimate" in labels


def test_a_plan_for_readings_claims_nothing_that_was_not_measured() -> None:
    found = find_plan(CHAIN, QUERY, budget=1.0, min_age=1, max_age=1, estimate="history")
    assert found.error.known_usefulness is None
    assert "if each reading had its state's value (not measured)" in found.error.in_words
    weak = csdp.Plan(CHAIN, QUERY, ages=8, epsilon_c=0.1)  # the rule of 5 % holds by what is known
    with pytest.raises(NotUsefulError, match=r"would remove 0.* % .* if each reading had its state's value"):
        check_useful(weak, csdp.mse(CHAIN, QUERY, ages=8, epsilon_c=0.1, estimate="history"))
