"""Later releases say more of the time that an earlier one read: smoothing, with the error that is stated."""

from dataclasses import replace

import numpy as np
import pytest

import csdp
from csdp.errors import InputError
from csdp.estimate.history import HistoryEstimator, model_estimator
from csdp.estimate.protocol import Observation

CHAIN = csdp.CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.92, 0.08], [0.08, 0.92]])


@pytest.mark.parametrize("age", [0, 3])
def test_smoothing_has_less_error_and_states_it(age):
    noise = 0.3
    estimator = model_estimator(CHAIN, csdp.Mean(), age=age, about="then")
    truth = CHAIN.simulate(3000, seed=4).mean(axis=1)
    noisy = truth + np.random.default_rng(5).laplace(0, np.sqrt(noise / 2), truth.size)
    releases = [Observation(t + age, (float(y),), age=age, noise=noise) for t, y in enumerate(noisy)]
    smooth = np.array([found.estimate[0] for found in estimator.smooth(releases)])[20:-20]
    stated = np.array([found.standard_error[0] for found in estimator.smooth(releases)])[20:-20]
    plain = np.array([estimator.of(releases[: n + 1]).estimate[0] for n in range(20, truth.size - 20)])
    real = truth[20:-20]
    error = np.mean((smooth - real) ** 2)
    assert error < 0.85 * np.mean((plain - real) ** 2)
    assert error == pytest.approx(np.mean(stated**2), rel=0.12)


def test_gaps_and_ends_and_a_publisher(tmp_path):
    plan = csdp.Plan(CHAIN, csdp.Mean(), 1, 1.0)
    panel = csdp.Panel.from_states(CHAIN.simulate(60, seed=1))
    with csdp.Publisher(plan, dataset="a", ledger=tmp_path / "a.db") as publisher:
        releases = [release for release in publisher.publish(panel) if release.tick % 7]
        entries = publisher.ledger.summary("a").head_seq
        smooth = csdp.publisher.smooth_releases(plan, releases)
        assert publisher.ledger.summary("a").head_seq == entries
    assert [one.values for one in smooth] == [one.values for one in releases]
    assert all(one.about == "then" and 0 <= one.low[0] <= one.estimate[0] <= one.high[0] <= 1 for one in smooth)
    assert max(one.standard_error[0] for one in smooth[8:-8]) <= min(one.standard_error[0] for one in smooth[-1:])
    newest = csdp.publisher.smooth_releases(plan, [replace(one, noise=None) for one in releases])
    assert [one.estimate for one in newest] == [one.estimate for one in smooth]  # the noise is that of the plan


def test_what_is_refused():
    plan = csdp.Plan(CHAIN, csdp.Mean(), 1, 1.0)
    now = csdp.plan_estimator(plan)
    assert isinstance(now, HistoryEstimator)
    with pytest.raises(InputError, match="then"):
        csdp.publisher.smooth_releases(plan, [], estimator=now)
    other = csdp.plan_estimator(csdp.Plan(CHAIN, csdp.Sum(), 1, 1.0), about="then")
    with pytest.raises(InputError, match="made for the plan"):
        csdp.publisher.smooth_releases(plan, [], estimator=other)
    with pytest.raises(InputError, match="then"):
        now.smooth([])
    unequal = csdp.Plan(CHAIN, csdp.Mean(), (0, 1), 1.0)
    with pytest.raises(InputError):
        csdp.publisher.smooth_releases(unequal, [])
