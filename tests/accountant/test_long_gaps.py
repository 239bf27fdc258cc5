"""Gaps of about 4,096 ticks under a clock, after which steps are no longer counted, against a direct recursion."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from accountant.systems import follow
from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan
from csdp.accountant.kernels import _SCALAR_STEPS
from oracle import clock_backward_kernels, joint_kernel, mean_answers, worst

GAPS = [_SCALAR_STEPS + n for n in (-1, 0, 1, 2, 5)]
ALONE, PAIR = np.eye(1), np.array([[0.9, 0.1], [0.2, 0.8]])


def flips(p, m=2):
    """Rows of a state that stays, or changes to any other one."""
    return np.full((m, m), p / (m - 1)) + (1 - p - p / (m - 1)) * np.eye(m)


def member(coupling, p, m=2, direction="backward"):
    return CoupledChain(coupling, flips(p, m), direction=direction)


def joint(coupling, p, m=2):
    s = len(coupling)
    return joint_kernel(coupling, np.broadcast_to(flips(p, m), (s, s, m, m)))


def truth(back, releases, until, s, m=2):
    """What releases tell of the present at a tick, all of age 0.

    `back[n]` leads back from tick n; `releases`: the noise level by tick. One row for every worst output history.
    """
    answers, delta = mean_answers(s, m)
    told = np.ones((1, m**s))
    for tick in range(min(releases), until + 1):
        told = told @ back(tick).T
        if tick in releases:
            outputs = np.unique(answers)
            density = np.exp(-releases[tick] / delta * np.abs(outputs[:, None] - answers))
            told = (told[:, None] * density).reshape(-1, m**s)
    return worst(np.log(told), s, m)


def at_any_phase(kernels, releases, until, s, m=2):
    """The largest over the phases that tick 0 may have."""
    count = len(kernels)
    return max(truth(lambda n, h=h: kernels[(n + h) % count], releases, until, s, m) for h in range(count))


@pytest.mark.parametrize("gap", GAPS)
def test_blocks_are_led_to_their_phase_by_every_tick_of_a_gap(gap):
    chain = EnvironmentChain([member(PAIR, 1e-6) for _ in range(7)], cycle=tuple(range(7)))
    (component,) = follow(Plan(chain, Mean(), 0, 1.0), "scalar").components
    state = np.zeros((7, 1, 1))
    state[2] = 1.0
    assert component.advance(state, gap).argmax() == (2 + gap) % 7


@pytest.mark.parametrize("state", ["auto", "scalar", "vector"])
@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize(("period", "slow"), [(3, 1e-6), (7, 1e-4)])
def test_one_level_at_every_phase_is_not_below_the_truth_after_a_gap(period, slow, direction, state):
    """Also with other levels by tick, and with quiet ticks after the last release."""
    rates = [slow, *[1e-9] * (period - 1)]
    chain = EnvironmentChain([member(PAIR, p, direction=direction) for p in rates], cycle=tuple(range(period)))
    kernels = clock_backward_kernels([joint(PAIR, p) for p in rates], backward=direction == "backward")
    accountant = follow(Plan(chain, Mean(), 0, 1.0), state)
    for gap, levels in product(GAPS[1:4], ((1.0, 1.0, 1.0), (0.25, 1.0, 0.5))):
        releases = dict(zip((0, 2, 2 + gap), levels, strict=True))
        reached = accountant.start()
        for tick, level in releases.items():
            reached = accountant.release(reached, tick, epsilon_c=level)
        for later in (0, 1):
            exact = at_any_phase(kernels, releases, 2 + gap + later, 2)
            assert exact <= accountant.epsilon(reached, 2 + gap + later) * (1 + 1e-9)
            assert exact <= accountant.peak(reached) * (1 + 1e-9)


@pytest.mark.parametrize("gap", GAPS[1:4])
def test_a_change_of_plan_in_a_gap(gap):
    rates = (1e-4, 1e-6, 1e-6)
    chain = EnvironmentChain([member(PAIR, p) for p in rates], cycle=(0, 1, 2))
    kernels = [joint(PAIR, p) for p in rates]
    first, second = (Accountant(Plan(chain, Mean(), 0, level)) for level in (1.0, 0.5))
    state = first.release(first.release(first.start(), 0), 1)
    state = second.take_over(first, state, tick=gap // 2, cost=4.0)
    state = second.release(second.release(state, gap + 1), gap + 2)
    releases = {0: 1.0, 1: 1.0, gap + 1: 0.5, gap + 2: 0.5}
    assert at_any_phase(kernels, releases, gap + 2, 2) <= second.epsilon(state) * (1 + 1e-9)
