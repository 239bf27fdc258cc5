"""Drift: alarms at no more than the stated rate, and finds what changed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import csdp
import csdp.fitting.drift
from csdp.errors import InputError, PrivacyLeakWarning
from fitting.systems import random_chain

PAIR = csdp.CoupledChain([[0.7, 0.3], [0.4, 0.6]], [[0.8, 0.2], [0.4, 0.6]])


def watch(chain, **settings):
    return csdp.fitting.drift.DriftCheck(chain, public=True, **settings)


def test_a_bet_has_mean_one():
    """E[L | past] = 1 exactly: the sum over all next snapshots of probability times ratio, after a random past."""
    chain = random_chain(1, 2, 3)
    past = chain.simulate(60, seed=1).astype(int)
    kernel = chain.kernel()
    for rows in (5, 60):
        each = np.zeros(2)
        for number in range(9):
            check = watch(chain)
            for row in past[:rows]:
                check.update(row)
            before = check._bets._each.copy()
            following = np.array(np.unravel_index(number, (3, 3)))
            check.update(following)
            chance = kernel[np.ravel_multi_index(tuple(past[rows - 1]), (3, 3)), number]
            each += chance * np.exp(check._bets._each - np.logaddexp(before, 0.0))
        np.testing.assert_allclose(each, 1.0, rtol=1e-12)


def test_false_alarms_are_as_rare_as_stated():
    """Stated: at most 5 % in 150 rows. 16 or more of 100 have a chance of 4e-5 at 5 %; the seeds are fixed."""
    alarms, last = 0, []
    for seed in range(100):
        check = watch(PAIR, rows_between_false_alarms=150 / 0.05)
        for row in PAIR.simulate(150, seed=seed):
            status = check.update(row.astype(int))
        alarms += check.alarmed_at is not None
        last.append(math.exp(status.evidence))
    assert alarms < 16
    assert 15 < np.mean(last) < 1500  # the mean of R after n rows is n


def test_an_overconfident_bet_would_be_found_out():
    """The same count for ratios a fifth too large: the test above would fail."""
    alarms = 0
    for seed in range(30):
        check = watch(PAIR, rows_between_false_alarms=150 / 0.05)
        check._bets._allowance = -math.log(1.2)
        for row in PAIR.simulate(150, seed=seed):
            check.update(row.astype(int))
        alarms += check.alarmed_at is not None
    assert alarms > 15


@pytest.mark.parametrize("kind", ["faster", "other coupling", "one of many", "stuck"])
def test_changes_are_found(kind):
    chain = random_chain(2, 4, 2) if kind != "one of many" else csdp.CoupledChain(np.eye(30), [[0.9, 0.1], [0.1, 0.9]])
    before = chain.simulate(400, seed=1).astype(int)
    if kind == "faster":
        after = random_chain(3, 4, 2).simulate(800, seed=2)
    elif kind == "other coupling":
        swapped = chain.sparse_coupling.toarray()[:, ::-1]
        after = csdp.CoupledChain(swapped, [[0.9, 0.1], [0.1, 0.9]]).simulate(800, seed=2)
    elif kind == "one of many":
        after = chain.simulate(800, seed=2)
        after[:, 17] = np.arange(800) % 2
    else:
        after = np.zeros((800, 4), dtype=int)
    states = np.concatenate([before, after]).astype(int)
    assert not csdp.drift(chain, before, public=True).drifted
    found = csdp.drift(chain, states, public=True)
    assert found.drifted
    assert 400 <= found.at < 1000
    assert "no longer describes" in found.verdict
    if kind == "one of many":
        assert found.sequences[0] == "x18"
    assert found.evidence >= found.threshold


@pytest.mark.parametrize(("method", "ensemble"), [("em", 8), ("joint", 0)])
def test_the_error_of_a_fit_is_no_drift(method, ensemble):
    for seed in range(2):
        true = random_chain(seed, 3, 2)
        states = true.simulate(3000, seed=seed)
        chain = csdp.fit(states[:1500], states=2, method=method, public=True, ensemble=ensemble)
        assert not csdp.drift(chain, states[1500:], public=True).drifted
        changed = csdp.drift(chain, random_chain(seed + 50, 3, 2).simulate(1500, seed=seed), public=True)
        assert changed.drifted


def test_missing_readings_say_nothing():
    check = watch(PAIR)
    for row in ([0, -1], [-1, 1], [1, -1], [-1, -1]):
        status = check.update(row)
    assert not status.alarm
    with pytest.raises(InputError, match="nothing can be said"):
        csdp.drift(PAIR, np.array([[0, -1], [-1, 0], [0, -1]]), public=True)


def test_it_tells_about_the_data():
    with pytest.warns(PrivacyLeakWarning, match="reveals something about the readings"):
        csdp.fitting.drift.DriftCheck(PAIR)
    with pytest.warns(PrivacyLeakWarning, match="reveals something about the readings"):
        csdp.drift(PAIR, np.zeros((9, 2), int))


@pytest.mark.parametrize("wrong", [[0], [0, 2], [0, -2], [0.0, 1.0]])
def test_wrong_snapshots(wrong):
    with pytest.raises(InputError, match="snapshot"):
        watch(PAIR).update(wrong)


@pytest.mark.parametrize(
    "settings",
    [{"rows_between_false_alarms": 1}, {"rows_between_false_alarms": math.inf}],
)
def test_wrong_settings(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        watch(PAIR, **settings)


@pytest.mark.parametrize("how", [{"cycle": (0, 1, 1)}, {"switching": [[0.9, 0.1], [0.2, 0.8]]}])
def test_backward_chains_with_environments_are_read_from_the_last_row_back(how):
    chain, other = (backward_environments(laws, how) for laws in (((0.1, 0.5), (0.5, 0.1)), ((0.5, 0.5), (0.6, 0.4))))
    states = chain.simulate(700, seed=3)
    assert not csdp.drift(chain, states, public=True).drifted
    changed = np.concatenate([states[:350], other.simulate(700, seed=3)[350:]])
    assert csdp.drift(chain, changed, public=True).at >= 350
    with pytest.raises(InputError, match="no single kernel"):
        csdp.fitting.drift.DriftCheck(chain, public=True)


def backward_environments(laws, how):
    ring = [[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.2, 0.0, 0.8]]
    members = [csdp.CoupledChain(ring, [[1 - p, p], [q, 1 - q]], direction="backward") for p, q in laws]
    return csdp.EnvironmentChain(members, **how)
