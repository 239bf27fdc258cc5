"""Whether readings may be published under a certificate of their states: asked of a public past, by default."""

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.errors import InputError
from csdp.fitting.checks import check_readings

pytestmark = pytest.mark.usefixtures("ungrown")

RANGE = csdp.ReadingRange(-3, 3, 0.01)


def autoregressive(ticks, sequences, seed, rho=0.9):
    """A persistent signal of variance 1."""
    rng = np.random.default_rng(seed)
    out = np.empty((ticks, sequences))
    out[0] = rng.normal(size=sequences)
    for t in range(1, ticks):
        out[t] = rho * out[t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=sequences)
    return out


def thresholded(seed=1, ticks=4000, sequences=1):
    names = [f"x{i + 1}" for i in range(sequences)]
    cut = csdp.Discretiser.declared(names, edges=[0.0], bounds=(-3, 3))
    return cut.apply(autoregressive(ticks, sequences, seed))


def by_state(seed=1, ticks=4000):
    """Readings of a chain with disturbances that tell nothing more."""
    chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.2, 0.8]])
    states = chain.simulate(ticks, seed=seed)
    readings = np.where(states == 1, 1.0, -1.0) + np.random.default_rng(seed + 99).uniform(-0.99, 0.99, states.shape)
    return csdp.Discretiser.declared(["x1", "x2"], edges=[0.0], bounds=(-3, 3)).apply(readings)


def true_leakage_of_the_sign(age, epsilon_c, releases, rho=0.9, points=241):
    """Of an AR(1) signal on a fine grid, clipped readings published: the worst histories are the two ends."""
    grid = np.linspace(-4.5, 4.5, points)
    kernel = np.exp(-((grid[None, :] - rho * grid[:, None]) ** 2) / (2 * (1 - rho**2)))
    kernel /= kernel.sum(axis=1, keepdims=True)
    law = np.exp(-(grid**2) / 2)
    law /= law.sum()
    told = np.exp(-np.abs(3.0 - np.clip(grid, -3, 3)) * epsilon_c / 6.0)  # every output at the upper end
    mass = law
    for n in range(releases):
        mass = mass * told
        if n < releases - 1:
            mass = mass @ kernel
    for _ in range(age):
        mass = mass @ kernel
    given = [mass[side].sum() / law[side].sum() for side in (grid > 0, grid < 0)]
    return abs(float(np.log(given[0] / given[1])))


def test_a_thresholded_signal_would_be_certified_at_half_the_truth():
    chain = csdp.fit(thresholded().states, public=True)  # states alone: nothing of their readings is known
    plan = csdp.Plan(chain, csdp.Mean(of=RANGE), 3, 1.0)
    certified = Accountant(plan).after(10).epsilon
    truth = true_leakage_of_the_sign(3, 1.0, 10)
    assert certified == pytest.approx(0.6, abs=0.05)
    assert truth > 1.15
    assert truth > 1.7 * certified
    assert plan.readings_check == "none"
    assert any("neither assumption on readings was tested" in words for words in plan.certified.assumptions)


def test_it_is_caught_where_the_readings_are_public():
    chain = csdp.fit(thresholded(), public=True)
    assert chain.fitted.readings_check == "failed"
    csdp.Plan(chain, csdp.Mean(), 3, 1.0)  # states may be published
    with pytest.raises(InputError, match=r"finer states or a longer step.*query of states"):
        csdp.Plan(chain, csdp.Mean(of=RANGE), 3, 1.0)
    again = type(chain).from_json(chain.to_json())
    with pytest.raises(InputError, match="finer states"):
        csdp.Plan(again, csdp.Mean(of=RANGE), 3, 1.0, readings_check="passed")


def test_readings_of_a_chain_pass():
    panel = by_state()
    assert check_readings(panel).verdict == "passed"
    chain = csdp.fit(panel, public=True)
    assert chain.fitted.readings_check == "passed"
    plan = csdp.Plan(chain, csdp.Mean(of=RANGE), 1, 1.0)
    assert plan.readings_check == "passed"
    assert any("tested on a public past, and not rejected" in words for words in plan.certified.assumptions)


def test_a_drifting_disturbance_leaves_certificates_of_the_state_only():
    states = csdp.CoupledChain([[1.0]], [[0.8, 0.2], [0.2, 0.8]]).simulate(4000, seed=2)
    drift = autoregressive(4000, 1, 7, rho=0.95)
    readings = np.where(states == 1, 2.0, -2.0) + 1.9 * np.tanh(drift)
    panel = csdp.Discretiser.declared(["x1"], edges=[0.0], bounds=(-4, 4)).apply(readings)
    assert check_readings(panel).verdict == "states"
    plan = csdp.Plan(csdp.fit(panel, public=True), csdp.Mean(of=RANGE), 1, 1.0)
    assert any("nothing is certified about the present reading" in words for words in plan.certified.assumptions)


def test_private_readings_are_not_looked_at():
    with pytest.warns(csdp.errors.PrivacyLeakWarning):
        chain = csdp.fit(thresholded())
    assert chain.fitted.readings_check is None
    assert csdp.fit(thresholded(), epsilon=1.0).fitted.readings_check is None


def test_what_the_check_needs():
    with pytest.raises(InputError, match="states only"):
        check_readings(csdp.Panel.from_states([[0], [1]]))
    chain = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    with pytest.raises(InputError, match="publishes no readings"):
        csdp.Plan(chain, csdp.Mean(), 1, 1.0, readings_check="passed")
    with pytest.raises(InputError, match="one of none, passed"):
        csdp.Plan(chain, csdp.Mean(of=RANGE), 1, 1.0, readings_check="surely")
