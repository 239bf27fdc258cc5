"""The event-level cost of a plan, against dp_accounting and against brute force, by the recipe of the documentation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event, pld

import csdp

PAPER = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
UNEVEN = csdp.CoupledChain(
    np.full((3, 3), 1 / 3), [[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], values=[0.0, 0.75, 3.0]
)
PLANS = [
    (PAPER, csdp.Mean(), 1.0),
    (PAPER, csdp.Mean(), 0.1),
    (PAPER, csdp.Histogram(), 3.0),
    (UNEVEN, csdp.Sum(), 0.7),
    (UNEVEN, csdp.Max(), 2.0),
    (UNEVEN, csdp.Linear([1.0, -0.5, 0.25]), 0.3),
    (UNEVEN, csdp.Identity(), 1.5),
    (UNEVEN, csdp.Custom(lambda v: v.max() - v.min(), name="spread"), 1.0),
]


def lattice_steps(plan):
    """The sensitivity in steps of the lattice, on which all answers lie."""
    return int(Fraction(plan.lattice_sensitivity) / Fraction(plan.step))


def one_release(plan):
    """One release as an event of dp_accounting."""
    return dp_event.DiscreteLaplaceDpEvent(noise_parameter=float(1 / plan.scale), sensitivity=lattice_steps(plan))


def epsilon(event, delta=1e-15):
    accountant = pld.PLDAccountant()
    accountant.compose(event)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(("chain", "query", "level"), PLANS)
def test_dp_accounting_finds_the_event_level(chain, query, level):
    plan = csdp.Plan(chain, query, ages=2, epsilon_c=level)
    cost = epsilon(one_release(plan))
    # A custom query is given a little more noise than its answers, which lie on a lattice, can need.
    slack = 1e-5 if query.name == "spread" else 1e-9
    assert level * (1 - slack) - 1e-12 <= cost <= csdp.Accountant(plan).event_level() * (1 + 1e-9)


def test_it_would_notice_half_the_noise():
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=2, epsilon_c=1.0)
    one = one_release(plan)
    wrong = dp_event.DiscreteLaplaceDpEvent(2 * one.noise_parameter, one.sensitivity)
    assert epsilon(wrong) > 1.9


@pytest.mark.parametrize("stale", [0, 1, 3])
def test_readings_that_stand_in_for_missing_ones_compose(stale):
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=2, epsilon_c=0.5, stale_limit=stale)
    cost = epsilon(dp_event.SelfComposedDpEvent(one_release(plan), 1 + stale))
    assert cost == pytest.approx(0.5 * (1 + stale), rel=1e-9)
    assert cost <= csdp.Accountant(plan).event_level(stale) * (1 + 1e-9)


def test_composition_with_somebody_elses_events():
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=2, epsilon_c=0.5)
    both = dp_event.ComposedDpEvent([one_release(plan), dp_event.LaplaceDpEvent(2.0)])
    assert epsilon(both, 1e-10) == pytest.approx(1.0, rel=1e-6)


def profile(q, steps, level):
    """delta at epsilon `level` of two-sided geometric noise moved by `steps`, by adding it up."""
    far = steps + int(60 / -math.log(q))
    n = np.arange(-far, far + steps + 1)
    law = (1 - q) / (1 + q) * q ** np.abs(n)
    moved = (1 - q) / (1 + q) * q ** np.abs(n - steps)
    return float(np.maximum(law - math.exp(level) * moved, 0).sum())


@pytest.mark.parametrize("q", [0.3, 0.6])
@pytest.mark.parametrize("split", [(1, 1), (1, 3), (2, 2), (1, 1, 2)])
def test_several_outputs_that_share_the_sensitivity_tell_no_more_than_one_that_has_it_all(q, split):
    far = int(36 / -math.log(q))
    n = np.arange(-far, far + max(split) + 1)
    law, moved = np.ones(1), np.ones(1)
    for steps in split:
        law = np.outer(law, (1 - q) / (1 + q) * q ** np.abs(n)).ravel()
        moved = np.outer(moved, (1 - q) / (1 + q) * q ** np.abs(n - steps)).ravel()
    for level in np.linspace(0, -math.log(q) * sum(split), 17):
        together = float(np.maximum(law - math.exp(level) * moved, 0).sum())
        assert together <= profile(q, sum(split), level) + 1e-12


def test_steps_are_whole_and_exact():
    for chain, query, level in PLANS:
        plan = csdp.Plan(chain, query, ages=1, epsilon_c=level)
        steps = lattice_steps(plan)
        assert steps * Fraction(plan.step) <= Fraction(plan.lattice_sensitivity)
        assert (steps + 1) * Fraction(plan.step) > Fraction(plan.lattice_sensitivity)


def test_a_schedule_has_an_event_for_each_level():
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=1, epsilon_c=1.0, schedule=csdp.Schedule((1.0, 0.5)))
    events = [one_release(plan.at(level)) for level in plan.schedule.levels]
    assert epsilon(dp_event.ComposedDpEvent(events), 1e-12) == pytest.approx(1.5, rel=1e-6)
