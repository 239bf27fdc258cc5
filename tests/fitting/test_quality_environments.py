"""Quality of chains with environments: the right one passes, one without them fails."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import csdp
from csdp.fitting.checks import EnvironmentPrediction, add_environments
from csdp.fitting.sample import read_sample

pytestmark = pytest.mark.usefixtures("ungrown")

SWITCHING = [[0.9, 0.1], [0.2, 0.8]]


def members(direction="forward", s=3, calm=(0.05, 0.5), storm=(0.5, 0.05)):
    coupling = 0.9 * np.eye(s) + 0.1 * np.roll(np.eye(s), 1, axis=1)
    return [csdp.CoupledChain(coupling, [[1 - p, p], [q, 1 - q]], direction=direction) for p, q in (calm, storm)]


def environment_chain(kind, direction="forward", **settings):
    how = {"hidden": {"switching": SWITCHING}, "clock": {"cycle": (0, 0, 1)}}[kind]
    return csdp.EnvironmentChain(members(direction, **settings), **how)


def quality(chain, states):
    return csdp.fit_quality(chain, states, public=True)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["hidden", "clock"])
def test_the_prediction_is_the_law_by_enumeration(kind, direction):
    """ln Pr of all steps: the sum over sequences, against sums over every path of environments."""
    chain = environment_chain(kind, direction, s=2)
    states = chain.simulate(7, seed=1)
    sample = add_environments(chain, read_sample(states, states=2), np.arange(7))
    prediction = EnvironmentPrediction(chain, sample)
    told = sum(prediction.scores(j)[0].sum() for j in range(2))
    # The law of every step under each environment, in time: from t to t + 1, or back from t + 1 to t, under e_{t+1}.
    kernels = [member.kernel() if direction == "forward" else member.backward_kernel() for member in chain.environments]
    number = states @ [2, 1]
    ends = (
        list(itertools.pairwise(number)) if direction == "forward" else [(b, a) for a, b in itertools.pairwise(number)]
    )
    law, total = chain.environment_law if kind == "hidden" else None, 0.0
    for path in itertools.product(range(2), repeat=6):
        chance = np.prod([kernels[e][a, b] for e, (a, b) in zip(path, ends, strict=True)])
        if kind == "hidden":
            chance *= law[path[0]] * np.prod([SWITCHING[e][f] for e, f in itertools.pairwise(path)])
        elif list(path) != sample.environments[1:].tolist():
            continue
        total += chance
    assert told == pytest.approx(np.log(total), rel=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["hidden", "clock"])
def test_the_right_chain_passes_and_one_without_environments_does_not(kind, direction):
    chain = environment_chain(kind, direction)
    states = chain.simulate(1500, seed=3)
    found = quality(chain, states)
    assert found.explains
    assert found.gain > 3 * found.gain_error
    assert "The chain explains these data better" in found.verdict
    plain = quality(csdp.fit(states, public=True, direction=direction), states)
    assert not plain.together.passed
    assert "environment='hidden'" in plain.verdict


def test_the_level_holds_under_a_hidden_environment():
    """At 5 % each test may speak in 2 of 40; 10 or more have a chance below 1e-4. Shocks are rare: the harder case."""
    chain = environment_chain("hidden", calm=(0.02, 0.5), storm=(0.8, 0.05))
    alarms = np.zeros(3)
    for seed in range(40):
        found = quality(chain, chain.simulate(300, seed=seed))
        alarms += [check.p < 0.05 for check in (found.order, found.homogeneity, found.together)]
    assert (alarms < 10).all()


def test_a_wrong_environment_chain_is_caught():
    true = environment_chain("hidden")
    states = true.simulate(1500, seed=4)
    milder = csdp.EnvironmentChain(members(calm=(0.15, 0.35), storm=(0.35, 0.15)), switching=SWITCHING)
    found = quality(milder, states)
    assert not found.together.passed
    assert "more environments" in found.verdict


def test_the_clock_of_a_panel_is_its_ticks():
    chain = environment_chain("clock")
    states = chain.simulate(1502, seed=7)
    shifted = csdp.Panel.from_states(states[2:], first_tick=2)
    assert quality(chain, shifted).gain > 0.1
    assert quality(chain, states[2:]).gain < -0.1  # an array counts from tick 0
