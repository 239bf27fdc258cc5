"""Drift: alarms at no more than the stated rate, and finds what changed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import csdp
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting.drift import DriftCheck
from fitting.systems import random_chain

pytestmark = pytest.mark.usefixtures("ungrown")

PAIR = csdp.CoupledChain([[0.7, 0.3], [0.4, 0.6]], [[0.8, 0.2], [0.4, 0.6]])


def watch(chain, **settings):
    return DriftCheck(chain, public=True, **settings)


def first_alarm(check, states):
    """The row of the first alarm; None if there is none."""
    return next((n for n, row in enumerate(states) if check.update(row.astype(int))), None)


def test_a_bet_has_mean_one():
    """E[L | past] = 1 exactly: the sum over all next snapshots of probability times ratio, after a random past."""
    chain = random_chain(1, 2, 3)
    past = chain.simulate(60, seed=1).astype(int)
    kernel = chain.kernel()
    for rows in (5, 60):
        each = np.zeros(2)
        for number in range(9):
            check = watch(chain)
            first_alarm(check, past[:rows])
            before = check._each.copy()
            check.update(np.array(np.unravel_index(number, (3, 3))))
            chance = kernel[np.ravel_multi_index(tuple(past[rows - 1]), (3, 3)), number]
            each += chance * np.exp(check._each - np.logaddexp(before, 0.0))
        np.testing.assert_allclose(each, 1.0, rtol=1e-12)


def count_alarms(runs, allowance=None):
    alarms, last = 0, []
    for seed in range(runs):
        check = watch(PAIR, rows_between_false_alarms=150 / 0.05)
        if allowance is not None:
            check._allowance = allowance
        told = [check.update(row) for row in PAIR.simulate(150, seed=seed)]
        alarms += any(told)
        last.append(math.exp(check.evidence))
    return alarms, np.mean(last)


def test_false_alarms_are_as_rare_as_stated():
    """Stated: at most 5 % in 150 rows. 16 or more of 100 have a chance of 4e-5 at 5 %; the seeds are fixed.

    If ratios were a fifth too large, more than half of the runs would have an alarm.
    """
    alarms, mean = count_alarms(100)
    assert alarms < 16
    assert 15 < mean < 1500  # the mean of R after n rows is n
    assert count_alarms(30, allowance=-math.log(1.2))[0] > 15


@pytest.mark.parametrize("kind", ["faster", "backward", "one of many", "stuck"])
def test_changes_are_found(kind):
    chain = random_chain(2, 4, 2) if kind != "one of many" else csdp.CoupledChain(np.eye(30), [[0.9, 0.1], [0.1, 0.9]])
    if kind == "backward":
        chain = csdp.CoupledChain(chain.coupling, chain.transitions, direction="backward")
    before = chain.simulate(400, seed=1)
    if kind in {"faster", "backward"}:
        after = random_chain(3, 4, 2).simulate(800, seed=2)
    elif kind == "one of many":
        after = chain.simulate(800, seed=2)
        after[:, 17] = np.arange(800) % 2
    else:
        after = np.zeros((800, 4), dtype=int)
    check = watch(chain, rows_between_false_alarms=1_200_000)
    assert first_alarm(check, before) is None
    assert first_alarm(check, after) < 600


@pytest.mark.parametrize("method", ["em", "joint"])
def test_the_error_of_a_fit_is_no_drift(method):
    states = random_chain(0, 3, 2).simulate(3000, seed=0)
    chain = csdp.fit(states[:1500], states=2, method=method, public=True)
    assert first_alarm(watch(chain), states[1500:]) is None
    assert first_alarm(watch(chain), random_chain(50, 3, 2).simulate(1500, seed=0)) is not None


def test_missing_readings_say_nothing():
    check = watch(PAIR)
    for row in ([0, -1], [-1, 1], [1, -1], [-1, -1]):
        assert not check.update(row)
    assert check.evidence == pytest.approx(math.log(3))  # R counts the rows


def test_it_warns_that_an_alarm_reveals_something():
    with pytest.warns(PrivacyLeakWarning, match="reveals something about the readings"):
        DriftCheck(PAIR)


@pytest.mark.parametrize("wrong", [[0], [0, 2], [0.0, 1.0]])
def test_wrong_snapshots(wrong):
    with pytest.raises(InputError, match="snapshot"):
        watch(PAIR).update(wrong)


def test_wrong_settings_and_chains():
    with pytest.raises(InputError, match="rows_between_false_alarms"):
        watch(PAIR, rows_between_false_alarms=1)
    with pytest.raises(InputError, match="no single kernel"):
        watch(csdp.EnvironmentChain([PAIR, PAIR], cycle=(0, 1)))
