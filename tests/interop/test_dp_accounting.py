"""The event-level cost of a plan, against dp_accounting and against brute force."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event, pld, rdp

import csdp
from csdp.errors import InputError
from csdp.interop import dp_accounting_event
from csdp.interop.conversions import lattice_steps

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


def epsilon(event, delta=1e-15):
    accountant = pld.PLDAccountant()
    accountant.compose(event)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(("chain", "query", "level"), PLANS)
def test_dp_accounting_finds_the_event_level(chain, query, level):
    plan = csdp.Plan(chain, query, ages=2, epsilon_c=level)
    cost = epsilon(dp_accounting_event(plan))
    # A custom query is given a little more noise than its answers, which lie on a lattice, can need.
    slack = 1e-5 if query.name == "spread" else 1e-9
    assert level * (1 - slack) - 1e-12 <= cost <= csdp.Accountant(plan).event_level() * (1 + 1e-9)


def test_it_would_notice_half_the_noise():
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=2, epsilon_c=1.0)
    one = dp_accounting_event(plan)
    wrong = dp_event.DiscreteLaplaceDpEvent(2 * one.noise_parameter, one.sensitivity)
    assert epsilon(wrong) > 1.9


@pytest.mark.parametrize("stale", [0, 1, 3])
@pytest.mark.parametrize("releases", [1, 2, 10])
def test_releases_compose_as_often_as_they_read_a_reading(stale, releases):
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=2, epsilon_c=0.5, stale_limit=stale)
    cost = epsilon(dp_accounting_event(plan, releases))
    assert cost == pytest.approx(0.5 * min(releases, 1 + stale), rel=1e-9)
    assert cost <= csdp.Accountant(plan).event_level(stale) * (1 + 1e-9)
    assert epsilon(dp_accounting_event(plan, releases, unit="sequence")) == pytest.approx(0.5 * releases, rel=1e-9)


def test_composition_with_somebody_elses_events():
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=2, epsilon_c=0.5)
    both = dp_event.ComposedDpEvent([dp_accounting_event(plan), dp_event.LaplaceDpEvent(2.0)])
    assert epsilon(both, 1e-10) == pytest.approx(1.0, rel=1e-6)


def profile(q, steps, level):
    """delta at epsilon `level` of two-sided geometric noise moved by `steps`, by adding it up."""
    far = steps + int(60 / -math.log(q))
    n = np.arange(-far, far + steps + 1)
    law = (1 - q) / (1 + q) * q ** np.abs(n)
    moved = (1 - q) / (1 + q) * q ** np.abs(n - steps)
    return float(np.maximum(law - math.exp(level) * moved, 0).sum())


@pytest.mark.parametrize(("scale", "steps"), [(4.0, 3), (20.0, 40), (20.0, 1), (1000.0, 250)])
def test_the_continuous_law_is_never_below_the_one_that_is_drawn(scale, steps):
    q = math.exp(-1 / scale)
    below_same_scale = 0
    for level in np.linspace(0, steps / scale, 83):
        truth = profile(q, steps, level)
        larger, same = (steps + 1) / scale, steps / scale
        assert truth <= -math.expm1((level - larger) / 2) + 1e-12
        below_same_scale += truth > -math.expm1(min(0.0, level - same) / 2) + 1e-12
    assert below_same_scale > 10  # so the step more is needed


@pytest.mark.parametrize("plan", [csdp.Plan(c, q, ages=1, epsilon_c=e) for c, q, e in PLANS[:4]], ids=repr)
def test_the_laplace_event_is_a_step_larger_and_every_accountant_knows_it(plan):
    event = dp_accounting_event(plan, law="laplace")
    steps = lattice_steps(plan)
    assert 1 / event.noise_multiplier == pytest.approx(plan.epsilon_c * (1 + 1 / steps))
    accountant = rdp.RdpAccountant(orders=[2.0, 64.0, 1e6])
    assert accountant.supports(event)
    accountant.compose(event)
    assert plan.epsilon_c < accountant.get_epsilon(1e-12) < plan.epsilon_c * (1 + 1 / steps) * 1.02
    for delta in (1e-15, 1e-6, 0.01, 0.3):
        assert epsilon(dp_accounting_event(plan), delta) <= epsilon(event, delta) + 1e-12


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"releases": 0}, "releases: 0 given"),
        ({"releases": True}, "releases: True given"),
        ({"releases": 1.5}, "releases: 1.5 given"),
        ({"unit": "person"}, "unit: 'person' given"),
        ({"law": "gauss"}, "law: 'gauss' given"),
    ],
)
def test_bad_input(given, message):
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=1, epsilon_c=1.0)
    with pytest.raises(InputError, match=message):
        dp_accounting_event(plan, **given)


def test_a_schedule_has_no_single_event():
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=1, epsilon_c=1.0, schedule=csdp.Schedule((1.0, 0.5)))
    with pytest.raises(InputError, match=r"plan\.at\(level\)"):
        dp_accounting_event(plan)
    events = [dp_accounting_event(plan.at(level)) for level in plan.schedule.levels]
    assert epsilon(dp_event.ComposedDpEvent(events), 1e-12) == pytest.approx(1.5, rel=1e-6)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    plan = csdp.Plan(PAPER, csdp.Mean(), ages=1, epsilon_c=1.0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    sys.path_importer_cache.clear()
    with pytest.raises(InputError, match="pip install dp-accounting"):
        dp_accounting_event(plan)


def test_a_version_that_is_too_old(monkeypatch):
    monkeypatch.delattr(dp_event, "DiscreteLaplaceDpEvent")
    with pytest.raises(InputError, match=r"0\.5 or later"):
        dp_accounting_event(csdp.Plan(PAPER, csdp.Mean(), ages=1, epsilon_c=1.0))
