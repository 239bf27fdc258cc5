"""Quality: a right chain passes at the stated level, and every kind of wrong one is told apart."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.errors import InputError, PrivacyLeakWarning
from fitting.systems import plain_log_likelihood, random_chain, shocked

pytestmark = pytest.mark.usefixtures("ungrown")


def fitted(data, **settings):
    return csdp.fit(data, **{"public": True, **settings})


def quality(chain, states):
    return csdp.fit_quality(chain, states, public=True)


def second_order(ticks, seed):
    """A sequence that repeats the state of two ticks ago, nine times in ten."""
    random = np.random.default_rng(seed)
    states = np.zeros((ticks, 2), dtype=int)
    for t in range(2, ticks):
        keep = random.random(2) < 0.9
        states[t] = np.where(keep, states[t - 2], 1 - states[t - 2])
    return states


def test_a_right_chain_passes():
    true = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]])
    states = true.simulate(5000, seed=1)
    found = quality(fitted(states), states)
    assert found.explains
    assert found.refitted
    assert found.gain > 3 * found.gain_error > 0
    assert found.chain > found.independent
    assert found.order.passed
    assert found.homogeneity.passed
    assert found.together.passed
    assert "better than independent chains" in found.verdict
    assert "No test rejects it" in found.verdict


def test_the_level_holds():
    """Right chains, fitted on the same data: at level 5 % each test may speak in 5 % of them.

    With 60 chains, 12 or more alarms in one test have a chance below 1e-4 at that level; the seeds are fixed.
    """
    alarms = np.zeros(3)
    for seed in range(60):
        states = random_chain(seed, 3, 3).simulate(700, seed=seed)
        found = quality(fitted(states, states=3), states)
        alarms += [check.p < 0.05 for check in (found.order, found.homogeneity, found.together)]
    assert (alarms < 12).all()


def test_movement_together_is_found_and_joint_is_offered():
    states = shocked(3000, 3, 1)
    found = quality(fitted(states), states)
    assert not found.explains
    assert not found.together.passed
    assert found.together.p < 1e-12
    assert "method='joint'" in found.verdict
    joint = quality(fitted(states, method="joint"), states)
    assert joint.together is None
    assert joint.explains
    assert joint.gain > found.gain + 0.1


def test_a_longer_memory_is_found():
    states = second_order(3000, 1)
    found = quality(fitted(states), states)
    assert not found.order.passed
    assert not found.explains
    assert "first-order chain is not enough" in found.verdict


def test_a_change_in_the_middle_is_found():
    slow, fast = (csdp.CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.1, 0.3))
    states = np.concatenate([slow.simulate(1500, seed=1), fast.simulate(1500, seed=2)])
    found = quality(fitted(states), states)
    assert not found.homogeneity.passed
    assert "second half moves differently" in found.verdict
    assert "one sequence" in found.verdict


def test_scores_are_those_of_the_definition():
    states = random_chain(5, 3, 2).simulate(900, seed=5).astype(int)
    chain = fitted(states[:600], states=2)
    chain = csdp.CoupledChain.from_dict({k: v for k, v in chain.to_dict().items() if k != "fitted"})  # as by hand
    found = quality(chain, states)
    assert not found.refitted
    assert found.chain == pytest.approx(plain_log_likelihood(chain, states[629:]) / (3 * 270), rel=1e-9)
    assert found.held_out_ticks == 270


def test_a_refit_does_not_see_what_is_held_out():
    states = random_chain(6, 3, 2).simulate(1000, seed=6).astype(int)
    found = quality(fitted(states, states=2), states)
    again = fitted(states[:700], states=2)
    assert found.chain == pytest.approx(plain_log_likelihood(again, states[699:]) / (3 * 300), rel=1e-6)


def test_it_tells_about_the_data():
    states = random_chain(9, 2, 2).simulate(200, seed=9)
    with pytest.warns(PrivacyLeakWarning, match="reveals something about the readings"):
        csdp.fit_quality(fitted(states, states=2), states)


def test_wrong_data():
    chain = fitted(random_chain(11, 2, 2).simulate(200, seed=11), states=2)
    with pytest.raises(InputError, match="too few"):
        quality(chain, np.zeros((30, 2), int))
    with pytest.raises(InputError, match="3 sequences x1, x2, x3 given; the chain has 2"):
        quality(chain, np.zeros((300, 3), int))
    with pytest.raises(InputError, match="beyond the declared 2"):
        quality(chain, np.full((300, 2), 2))
    with pytest.raises(InputError, match="CoupledChain, JointChain or EnvironmentChain"):
        csdp.fit_quality("chain", np.zeros((300, 2), int), public=True)
    with pytest.raises(InputError, match="sequences a, x2 given; the chain has x1, x2"):
        quality(chain, csdp.Panel.from_states(np.zeros((300, 2), int), names=["a", "x2"]))
