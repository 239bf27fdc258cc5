"""Learned estimators: bands that hold on sensors with a daily cycle and a common factor, and files that come back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import CoupledChain, Discretiser, LearnedEstimator, Mean, Plan, Readings, learn_estimator, learn_from_past
from csdp.errors import InputError
from csdp.estimate import Observation
from csdp.panel import Panel

DAY = 24


def sensors(days: int, seed: int) -> np.ndarray:
    """Twelve sensors: a daily cycle, a common factor that stays for hours, and noise of each."""
    random = np.random.default_rng(seed)
    ticks = days * DAY
    common = np.zeros(ticks)
    for t in range(1, ticks):
        common[t] = 0.85 * common[t - 1] + 0.5 * random.standard_normal()
    day = np.sin(np.arange(ticks) * 2 * np.pi / DAY)
    return day[:, None] + common[:, None] + 0.8 * random.standard_normal((ticks, 12))


@pytest.mark.parametrize(("age", "about"), [(0, "now"), (1, "now"), (3, "then")])
def test_coverage_on_sensors_is_within_three_points_of_nominal(age, about):
    """The model (independent chains) is wrong about them; the band is learned, so it holds all the same."""
    readings = Readings.from_array(sensors(300, seed=1))
    past, rest = readings.split(200 * DAY)
    discretiser = Discretiser.fit(past, states=2, strategy="quantile", public=True, values=[0.0, 1.0])
    chain = CoupledChain(np.eye(12), [[0.8, 0.2], [0.2, 0.8]], names=readings.names)
    plan = Plan(chain, Mean(), age, 1.0)
    learned = learn_from_past(plan, discretiser.apply(past), period=DAY, about=about)
    assert learned.kind == "seasonal"
    assert learned.usefulness > 0.05
    assert abs(learned.coverage - 0.95) < 0.03
    states = discretiser.apply(rest).states.astype(np.intp)
    truth = plan.query.evaluate(states, chain.value_table)
    random = np.random.default_rng(2)
    noisy = truth + random.laplace(0, np.sqrt(plan.noise_variance / 2), truth.shape)
    inside = []
    for t in range(age + 8, len(truth)):
        last = [
            Observation(200 * DAY + at, tuple(noisy[at - age]), age, plan.noise_variance) for at in range(t - 7, t + 1)
        ]
        found = learned.of(last)
        (answer,) = truth[t - (age if about == "then" else 0)]
        inside.append(found.low[0] <= answer <= found.high[0])
    assert abs(np.mean(inside) - 0.95) < 0.03


def test_phases_count_from_the_first_tick():
    day = np.sin(np.arange(1200) * 2 * np.pi / DAY)
    shifted = learn_estimator(day[5:], age=1, noise=0.1, period=DAY, start=5)
    assert shifted.estimator.usual_at(np.arange(DAY))[:, 0] == pytest.approx(day[:DAY], abs=1e-9)


def test_a_file_comes_back_as_it_was(tmp_path):
    answers = np.random.default_rng(1).random((300, 2)).cumsum(axis=0) % 3
    learned = learn_estimator(answers, age=1, noise=0.2, bounds=(np.zeros(2), np.full(2, 3.0)), about="then")
    learned.save(tmp_path / "estimator.json")
    again = LearnedEstimator.load(tmp_path / "estimator.json")
    last = [Observation(t, (1.0, 2.0), 1, 0.2, stale=t % 2) for t in (3, 5, 6)]
    assert again.of(last) == learned.of(last)
    assert again.to_dict() == learned.to_dict()
    assert again.expected(0.2) == learned.expected(0.2)
    assert again.expected(5.0).mse > again.expected(0.2).mse == learned.mse


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(schema="csdp.estimator/2"), "this version reads schema"),
        (lambda c: c.pop("coverage"), "lacks or garbles"),
        (lambda c: c["estimator"].update(about="later"), "about: 'later' given"),
        (lambda c: c["estimator"].update(usual=[[float("nan")]]), "lacks or garbles"),
        (lambda c: c["estimator"].update(usual=[[0.0, 0.0]]), "lacks or garbles"),
        (lambda c: c["estimator"].update(memory=99), "lacks or garbles"),
    ],
)
def test_a_file_that_was_altered_is_refused(change, words):
    content = learn_estimator(np.sin(np.arange(200) / 9), age=0, noise=0.1).to_dict()
    change(content)
    with pytest.raises(InputError, match=words):
        LearnedEstimator.from_json(json.dumps(content))


def test_a_past_with_several_ages_or_too_short_is_refused():
    chain = CoupledChain(np.eye(2), [[0.8, 0.2], [0.2, 0.8]])
    past = Panel.from_states(chain.simulate(200, seed=1))
    with pytest.raises(InputError, match="one common age"):
        learn_from_past(Plan(chain, Mean(), [1, 2], 1.0), past)
    with pytest.raises(InputError, match="longer public past"):
        learn_from_past(Plan(chain, Mean(), 1, 1.0), Panel.from_states(chain.simulate(40, seed=1)))
