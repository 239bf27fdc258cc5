"""The forward-backward attacker: against enumeration of every path, and against the leakage that bounds it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from csdp import CoupledChain, Family, Histogram, Identity, Max, Mean, attack, fran
from csdp.accountant import Accountant
from csdp.errors import InputError, TooLargeError
from csdp.noise import Randomness
from csdp.plan import Plan
from csdp.schedule import Schedule
from oracle import joint_kernel, snapshots, stationary

from audit.mechanisms import ONE, PAIR, SKEWED  # isort: skip

T3 = [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]


def publish_outputs(plan, states, key=0):
    outputs = fran.batch(plan, states, Randomness.from_key(bytes([key] * 32)))
    return [None if output is None else output.values for output in outputs]


def by_enumeration(coupling, transitions, ages, epsilon_c, outputs, tick, seen):
    """Law of the snapshot at a tick given the first `seen` outputs of the mean: every path, weighed."""
    kernel = joint_kernel(coupling, transitions)
    m, s = len(transitions), len(coupling)
    snaps = snapshots(s, m)
    oldest, last = -max(ages), len(outputs) - 1
    start, law = stationary(kernel), np.zeros(len(snaps))
    for path in itertools.product(range(len(snaps)), repeat=last - oldest + 1):
        weight = start[path[0]] * math.prod(kernel[a, b] for a, b in itertools.pairwise(path))
        for t, output in enumerate(outputs[:seen]):
            if output is not None:
                answer = sum(snaps[path[t - age - oldest]][i] for i, age in enumerate(ages)) / s
                weight *= math.exp(-abs(output - answer) * epsilon_c * s / (m - 1))
        law[path[tick - oldest]] += weight
    return law / law.sum()


@pytest.mark.parametrize(
    ("coupling", "transitions", "ages", "outputs"),
    [
        ([[1.0]], [[0.99, 0.01], [0.3, 0.7]], (1,), [0.4, None, 1.7, -0.2, 0.9]),
        ([[1.0]], T3, (2,), [0.4, 1.0, 2.5]),
        ([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], (1, 2), [0.4, None, 1.7]),
        ([[0.6, 0.4], [0.1, 0.9]], [[0.9, 0.1], [0.3, 0.7]], (1, 1), [0.4, 0.1, 0.9]),
    ],
)
def test_beliefs_are_those_of_an_enumeration_of_all_paths(coupling, transitions, ages, outputs):
    chain = CoupledChain(coupling, transitions)
    s, m = chain.sequences, chain.states
    plan = Plan(chain, Mean(), ages, 1.5)
    truth = np.zeros((len(outputs), s), dtype=int)
    alone = attack(plan, outputs)
    informed = attack(plan, outputs, truth=truth)
    for tick in range(len(outputs)):
        now, all_ = (
            by_enumeration(coupling, transitions, ages, 1.5, outputs, tick, seen).reshape((m,) * s)
            for seen in (tick + 1, len(outputs))
        )
        for i in range(s):
            rest = tuple(j for j in range(s) if j != i)
            np.testing.assert_allclose(alone.posterior[tick, i], now.sum(axis=rest), atol=1e-12)
            np.testing.assert_allclose(alone.hindsight[tick, i], all_.sum(axis=rest), atol=1e-12)
            conditional = now[tuple(slice(None) if j == i else 0 for j in range(s))]
            np.testing.assert_allclose(informed.posterior[tick, i], conditional / conditional.sum(), atol=1e-12)


@pytest.mark.parametrize(
    ("query", "chain", "ages"),
    [(Mean(), ONE, 1), (Max(), SKEWED, 1), (Histogram(), PAIR, 2), (Identity(), PAIR, (1, 2))],
    ids=["mean", "max", "histogram", "identity"],
)
def test_odds_never_move_more_than_the_leakage_of_the_present(query, chain, ages):
    """For every output that came, not only on average: the bound is for the worst of them."""
    plan = Plan(chain, query, ages, 2.0)
    states = chain.simulate(60, seed=3)
    belief = attack(plan, publish_outputs(plan, states), truth=states)
    accountant = Accountant(plan)
    for tick in range(plan.max_age, 60):
        releases = tick - plan.max_age + 1
        assert belief.swing[tick] <= accountant.after(releases).epsilon * (1 + 1e-9)
    assert belief.swing[: plan.max_age].max(initial=0.0) < 1e-12
    assert belief.swing.max() > 0.5 * accountant.after(1).epsilon  # it is an attack, not an idle one


def test_an_attacker_who_believes_in_half_the_noise_passes_the_bound():
    """The bound is tight enough to notice: outputs of a mechanism with half the noise move odds further."""
    plan, half = (Plan(ONE, Mean(), 1, epsilon_c) for epsilon_c in (1.0, 2.0))
    states = ONE.simulate(60, seed=4)
    assert attack(half, publish_outputs(half, states)).swing.max() > Accountant(plan).limit().epsilon


def test_hindsight_tells_more_than_the_present_is_allowed_to():
    plan = Plan(ONE, Mean(), 1, 2.0)
    states = ONE.simulate(400, seed=5)
    belief = attack(plan, publish_outputs(plan, states), truth=states)
    laws = (belief.prior, belief.posterior, belief.hindsight)
    idle, first, last = ((law.argmax(axis=2) == states).mean() for law in laws)
    assert idle < first < last
    assert "400 ticks, largest" in repr(belief)


def test_a_schedule_of_noise_levels_is_followed():
    plan = Plan(ONE, Mean(), 1, 2.0, schedule=Schedule((2.0, 0.1), start=10, then=1.0))
    first, second = attack(plan, [3.0, None], first_tick=10), attack(plan, [3.0, None], first_tick=11)
    assert first.swing[0] == pytest.approx(Plan(ONE, Mean(), 1, 2.0).certified.epsilon)
    assert second.swing[0] == pytest.approx(Plan(ONE, Mean(), 1, 0.1).certified.epsilon)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": []}, "one row of 1 numbers"),
        ({"outputs": [[1.0, 2.0]]}, "one row of 1 numbers"),
        ({"outputs": ["high"]}, "rows of numbers expected"),
        ({"outputs": [float("inf")]}, "infinite numbers"),
        ({"truth": [[2]]}, "state numbers 0..1"),
        ({"truth": [[0], [1]]}, r"shape \(1, 1\)"),
    ],
)
def test_bad_input_is_told(options, message):
    settings = {"outputs": [0.5]} | options
    outputs = settings.pop("outputs")
    with pytest.raises(InputError, match=message):
        attack(Plan(ONE, Mean(), 1, 1.0), outputs, **settings)


def test_more_bad_input():
    with pytest.raises(InputError, match="family"):
        attack(Plan(Family([ONE, SKEWED]), Mean(), 1, 1.0), [0.5])
    with pytest.raises(TooLargeError, match="at most 4,096"):
        attack(Plan(PAIR, Mean(), (1, 12), 1.0), [0.5])
