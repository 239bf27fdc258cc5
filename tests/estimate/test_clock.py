"""Under a clock, what is usual at a time of day needs no data: errors are measured around it, and estimates use it."""

import numpy as np
import pytest

import csdp
from csdp.estimate.history import linear_estimator, model_estimator
from csdp.estimate.moments import _by_joint_law, _by_simulation, moments
from csdp.estimate.result import Observation

DAY, NIGHT = [[0.3, 0.7], [0.1, 0.9]], [[0.9, 0.1], [0.7, 0.3]]


def clocked(sequences=2, **options):
    members = [csdp.CoupledChain(np.eye(sequences), rows, **options) for rows in (DAY, NIGHT)]
    return csdp.EnvironmentChain(members, cycle=(0, 0, 1))


def means_by_phase(chain):
    """The mean of the mean at each phase, from the members' own transitions."""
    law = np.array([0.5, 0.5])
    for tick in range(300):
        law = law @ np.array((DAY, DAY, NIGHT)[tick % 3])
    out = []
    for phase in range(3):
        law = law @ np.array((DAY, DAY, NIGHT)[phase])
        out.append(law[1])
    return np.array(out)


def test_no_data_is_what_is_usual_at_the_time_of_day():
    chain = clocked()
    usual = means_by_phase(chain)
    known = moments(chain, csdp.Mean(), ages=(1, 1))
    aged, now = known.usual
    assert np.allclose(now[:, 0], usual, atol=1e-9)
    assert np.allclose(aged[:, 0], np.roll(usual, 1), atol=1e-9)
    inside = np.mean(usual * (1 - usual)) / 2  # two independent bits
    assert known.cov_now[0, 0] == pytest.approx(inside)
    error = csdp.mse(chain, csdp.Mean(), ages=1, epsilon_c=1.0, estimate="history")
    assert error.no_data == pytest.approx(inside)
    assert error.mse <= inside
    assert inside < 0.85 * (inside + np.var(usual))  # around one mean, the profile itself would count as error


def test_joint_law_and_simulation_agree():
    chain = clocked()
    for ages in ((0, 0), (2, 2), (0, 1)):
        exact, drawn = (
            by(chain, csdp.Plan(chain, csdp.Mean(), 1, 1.0).query, ages) for by in (_by_joint_law, _by_simulation)
        )
        for first, second in zip(exact.usual, drawn.usual, strict=True):
            assert np.allclose(first, second, atol=0.06)
        for name in ("cov_aged", "cov_now", "cross"):
            assert np.allclose(getattr(exact, name), getattr(drawn, name), atol=0.02)
        assert exact.aging == pytest.approx(drawn.aging, abs=0.03)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_moments_of_independent_parts_add_up(direction):
    coupling = np.array([[0.8, 0.2, 0, 0], [0.3, 0.7, 0, 0], [0, 0, 0.6, 0.4], [0, 0, 0.1, 0.9]])
    members = [csdp.CoupledChain(coupling, rows, direction=direction) for rows in (DAY, NIGHT)]
    chain = csdp.EnvironmentChain(members, cycle=(0, 1, 1))
    for query in (csdp.Mean(), csdp.Histogram(), csdp.Identity(), csdp.PerGroup(csdp.Sum(), ((0, 1), (2, 3)))):
        computation = csdp.Plan(chain, query, 1, 1.0).query
        for ages in ((1,) * 4, (0, 1, 2, 1)):
            parts, whole = moments(chain, query, ages=ages), _by_joint_law(chain, computation, ages)
            for name in ("mean_aged", "mean_now", "cov_aged", "cov_now", "cross", "now_by_phase", "aged_by_phase"):
                assert getattr(parts, name) == pytest.approx(getattr(whole, name), abs=1e-12)


@pytest.mark.parametrize("kind", ["history", "linear"])
@pytest.mark.parametrize("age", [0, 1])
def test_the_error_that_is_stated_is_that_of_a_path(kind, age):
    chain, noise = clocked(), 0.05
    make = {
        "history": lambda: model_estimator(chain, csdp.Mean(), age=age),
        "linear": lambda: linear_estimator(chain, csdp.Mean(), ages=(age, age)),
    }
    estimator = make[kind]()
    truth = chain.simulate(6000, seed=8).mean(axis=1)
    noisy = truth + np.random.default_rng(9).laplace(0, np.sqrt(noise / 2), truth.size)
    off, silent = [], []
    for tick in range(20, truth.size):
        back = range(tick - 7, tick + 1)
        seen = [Observation(t, (float(noisy[t - age]),), age=age, noise=noise) for t in back]
        off.append(estimator.of(seen).estimate[0] - truth[tick])
        silent.append(estimator.usual_at([tick])[0, 0] - truth[tick])
    expected = estimator.expected(noise)
    assert np.mean(np.square(off)) == pytest.approx(expected.mse, rel=0.12)
    assert np.mean(np.square(silent)) == pytest.approx(expected.no_data, rel=0.08)
    # Around one mean for all ticks, guessing the usual value would look worse than it is.
    assert np.mean(np.square(truth - truth.mean())) > 1.2 * expected.no_data


def test_a_learned_estimate_takes_the_clock_of_the_model():
    chain = clocked()
    plan = csdp.Plan(chain, csdp.Mean(), 0, 1.0)
    past = csdp.Panel.from_states(chain.simulate(900, seed=6))
    learned = csdp.learn_from_past(plan, past)
    assert learned.kind == "seasonal"
    assert len(learned.estimator.usual) == 3
    assert learned.no_data < 0.8 * np.var(chain.simulate(900, seed=6).mean(axis=1))
