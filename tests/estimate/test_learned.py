"""Learned estimators: bands that hold on data sets and simulated sensors, and files that come back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import CoupledChain, Mean, Plan, learn_from_past
from csdp.errors import InputError
from csdp.estimate import LearnedEstimator, Observation, learn_estimator
from csdp.panel import Panel
from study import coverage, sets

DAY = 24


def test_coverage_on_sensors_is_within_three_points_of_nominal():
    """A daily cycle and a common factor; the model (independent chains) is wrong about them, the band is learned."""
    for found in coverage.measure("sensors", past=80 * DAY, rest=50 * DAY):
        assert abs(found.held - 0.95) < 0.03
        assert found.usefulness > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sensors", *sets.NAMES])
def test_coverage_on_every_data_set_is_within_three_points_of_nominal(name):
    """On readings that nothing was learned from; docs/estimates.md has the table."""
    found = coverage.measure(name)
    assert max(abs(one.held - 0.95) for one in found) < 0.03


def test_phases_count_from_the_first_tick():
    day = np.sin(np.arange(1200) * 2 * np.pi / DAY)
    shifted = learn_estimator(day[5:], age=1, noise=0.1, period=DAY, start=5)
    assert shifted.estimator.usual_at(np.arange(DAY))[:, 0] == pytest.approx(day[:DAY], abs=1e-9)


def test_a_file_comes_back_as_it_was(tmp_path):
    answers = np.random.default_rng(1).random((300, 2)).cumsum(axis=0) % 3
    learned = learn_estimator(answers, age=1, noise=0.2, bounds=(np.zeros(2), np.full(2, 3.0)), about="then")
    again = LearnedEstimator.from_dict(json.loads(json.dumps(learned.to_dict())))
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
        LearnedEstimator.from_dict(content)


def test_a_past_that_never_changes_has_a_band_and_no_nan():
    """A maximum that is always at its bound: the estimate is right, and its standard error is 0."""
    learned = learn_estimator(np.ones((400, 1)), age=0, noise=0.5, bounds=(np.zeros(1), np.ones(1)))
    assert (learned.coverage, learned.estimator.factor, learned.mse) == (1.0, 0.0, 0.0)


def test_a_past_with_several_ages_or_too_short_is_refused():
    chain = CoupledChain(np.eye(2), [[0.8, 0.2], [0.2, 0.8]])
    past = Panel.from_states(chain.simulate(200, seed=1))
    with pytest.raises(InputError, match="one common age"):
        learn_from_past(Plan(chain, Mean(), [1, 2], 1.0), past)
    with pytest.raises(InputError, match="longer public past"):
        learn_from_past(Plan(chain, Mean(), 1, 1.0), Panel.from_states(chain.simulate(40, seed=1)))
