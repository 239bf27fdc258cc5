"""Estimates from the last releases: as good as theory says, learned on the public past, bands that hold."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from csdp import CoupledChain, Histogram, Mean, mse
from csdp.errors import InputError
from csdp.estimate import Observation
from csdp.estimate.error import noise_variance
from csdp.estimate.history import HistoryEstimator, model_estimator
from csdp.estimate.learned import learn_estimator

SLOW = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.95, 0.05], [0.05, 0.95]])


def autoregression(n, rho=0.9, seed=1):
    steps = np.random.default_rng(seed).standard_normal(n) * np.sqrt(1 - rho**2)
    path = np.empty(n)
    path[0] = steps[0]
    for t in range(1, n):
        path[t] = rho * path[t - 1] + steps[t]
    return path


def estimated(estimator, ticks, values, noise):
    """The estimate from releases at some ticks, and its standard error."""
    rows = zip(ticks, values, noise, strict=True)
    found = estimator.of([Observation(int(t), tuple(y), age=estimator.age, noise=float(n)) for t, y, n in rows])
    return np.array(found.estimate), np.array(found.standard_error)


@pytest.mark.parametrize("about", ["now", "then"])
@pytest.mark.parametrize("age", [0, 2])
def test_one_release_is_the_linear_estimate_and_more_are_better(age, about):
    noise = noise_variance(SLOW, Mean(), 0.5)
    linear = mse(SLOW, Mean(), ages=age, epsilon_c=0.5, estimate="linear", about=about)
    spread = []
    for memory in (1, 4, 8):
        estimator = model_estimator(SLOW, Mean(), age=age, about=about, memory=memory)
        ticks = np.arange(20, 20 + memory)
        spread.append(estimated(estimator, ticks, np.zeros((memory, 1)), np.full(memory, noise))[1].item())
    assert spread[0] ** 2 == pytest.approx(linear.mse, rel=1e-9)
    assert spread[0] > spread[1] > spread[2]


def test_the_stated_standard_error_is_the_error_along_a_simulated_path():
    estimator = model_estimator(SLOW, Mean(), age=1)
    answers = SLOW.simulate(20_000, seed=5).mean(axis=1)[:, None]
    off, spread, _ = estimator.errors(answers, noise_variance(SLOW, Mean(), 0.5), seed=6)
    assert (off**2).mean() == pytest.approx(spread[-1].item() ** 2, rel=0.05)
    naive = HistoryEstimator(estimator.usual, estimator.covariance * [[4.0]], 1)  # believes too little in the past
    assert (naive.errors(answers, noise_variance(SLOW, Mean(), 0.5), seed=6)[0] ** 2).mean() > (off**2).mean()


def test_gaps_between_releases_and_unequal_noise_are_counted():
    estimator = model_estimator(SLOW, Mean(), age=1)
    noise = np.array([0.5, 0.5, 0.5])
    values = np.zeros((3, 1))
    together = estimated(estimator, [7, 8, 9], values, noise)[1]
    apart = estimated(estimator, [2, 5, 9], values, noise)[1]
    quiet = estimated(estimator, [7, 8, 9], values, np.array([0.5, 0.5, 5.0]))[1]
    assert together < apart
    assert together < quiet


def test_every_output_is_estimated_by_itself():
    estimator = model_estimator(SLOW, Histogram(), age=0, memory=2)
    estimate, error = estimated(estimator, [2, 3], np.array([[2.0, 0.0], [2.0, 0.0]]), np.array([0.1, 0.1]))
    assert estimate.shape == error.shape == (2,)
    assert estimate[0] > 1 > estimate[1]


@pytest.mark.parametrize(("age", "period"), [(0, None), (1, 24), (3, 24)])
def test_a_learned_band_holds_what_it_promises_on_readings_never_seen(age, period):
    day = np.sin(np.arange(4000) * 2 * np.pi / 24) if period else 0.0
    answers = autoregression(4000) + day
    learned = learn_estimator(answers[:2400], age=age, noise=0.3, period=period)
    assert learned.kind == ("seasonal" if period else "history")
    assert learned.usefulness > 0.15
    off, spread, _ = learned.estimator.errors(answers[2400:, None], 0.3, seed=2)
    inside = (np.abs(off) <= learned.estimator.factor * spread).mean()
    assert 0.92 <= inside <= 0.98
    assert abs(learned.coverage - 0.95) < 0.05
    assert (np.abs(off) <= 0.5 * learned.estimator.factor * spread).mean() < 0.92  # a band half as wide is noticed


def test_bands_follow_the_size_of_errors():
    """Answers that move less or more than in the public past: noisy releases show it, and bands go most of the way."""
    answers = autoregression(3000)
    learned = learn_estimator(answers[:2000], age=1, noise=0.3).estimator
    held, width = {}, {}
    for size, watch in itertools.product((0.4, 1.0, 2.0), (learned.watch, 0)):
        off, spread, _ = replace(learned, watch=watch).errors(size * answers[2000:, None], 0.3, seed=2)
        held[size, watch > 0] = (np.abs(off) <= learned.factor * spread).mean()
        width[size, watch > 0] = spread.mean()
    assert 0.92 <= held[1.0, True] <= 0.98
    assert held[2.0, False] < 0.8
    assert held[2.0, True] > 0.86
    assert width[0.4, True] < 0.88 * width[0.4, False]


def test_what_is_followed_along_a_past_is_followed_at_the_gate():
    learned = learn_estimator(autoregression(600), age=1, noise=0.3)
    answers = 2 * autoregression(300)
    _, spread, _ = learned.estimator.errors(answers[:, None], 0.3, seed=2)
    noisy = answers + np.random.default_rng(2).laplace(0.0, np.sqrt(0.15), (300, 1))[:, 0]
    last = [Observation(t, (noisy[t - 1],), 1, 0.3) for t in range(1, 300)]
    for end in (1, 2, 9, 70, 299):
        found = learned.of(last[:end][-learned.memory :])
        assert found.standard_error[0] == pytest.approx(spread[end - 1].item(), rel=1e-9)
    few = learned.of(last[-8:])
    assert few.standard_error[0] < found.standard_error[0]
    assert few.no_data < found.no_data  # guessing the usual value is off by more, too


def test_a_release_that_tells_nothing_has_no_use():
    answers = np.random.default_rng(3).standard_normal(2000)
    learned = learn_estimator(answers, age=2, noise=0.1)
    assert abs(learned.usefulness) < 0.02


def test_estimates_and_bands_stay_inside_the_possible_range():
    answers = (autoregression(1000) > 0).astype(float)
    learned = learn_estimator(answers, age=0, noise=2.0, bounds=(0.0, 1.0))
    found = learned.of([Observation(t, (9.0,), age=0, noise=2.0) for t in (49, 50)])
    assert 0.0 <= found.low[0] <= found.estimate[0] <= found.high[0] <= 1.0


def test_missing_answers_of_the_past_are_left_out():
    answers = autoregression(3000)
    holes = answers.copy()
    holes[np.random.default_rng(4).random(3000) < 0.2] = np.nan
    whole, broken = (learn_estimator(one, age=1, noise=0.3) for one in (answers, holes))
    assert broken.estimator.covariance[:3] == pytest.approx(whole.estimator.covariance[:3], abs=0.1)


@pytest.mark.parametrize(
    ("past", "options", "words"),
    [
        (np.zeros(10), {}, "longer public past"),
        (np.full(500, np.nan), {}, "longer public past"),
        (autoregression(500), {"period": 400}, "longer public past"),
        (autoregression(500), {"age": -1}, "age of 0 or more"),
        (autoregression(500), {"noise": float("nan")}, "variance of 0 or more"),
        (autoregression(500), {"level": 1.0}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(past, options, words):
    with pytest.raises(InputError, match=words):
        learn_estimator(past, **{"age": 1, "noise": 0.3, **options})
