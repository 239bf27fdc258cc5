"""`about="then"`: numbers about the time of the readings, and how long they must be held back."""

from __future__ import annotations

import numpy as np
import pytest

from csdp import Accountant, CoupledChain, Histogram, Mean, Plan, find_plan, frontier, mse
from csdp.errors import InfeasibleError, InputError
from csdp.estimate.error import noise_variance

PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def ring(self_coupling, p, q, sequences=6):
    coupling = self_coupling * np.eye(sequences) + (1 - self_coupling) * np.roll(np.eye(sequences), 1, axis=1)
    return CoupledChain(coupling.tolist(), [[1 - p, p], [q, 1 - q]], direction="backward")


@pytest.mark.parametrize(
    ("own", "p", "q", "level", "ages", "at_most"),
    [
        (0.8, 0.3, 0.3, 1.0, (0, 1, 2, 4, 8), (1.5948, 0.5948, 0.2414, 0.0393, 0.0010)),
        (0.8, 0.3, 0.3, 50.0, (0, 1, 2, 4, 8), (50.98, 0.9763, 0.3895, 0.0639, 0.0016)),
        (0.8, 0.1, 0.1, 0.5, (1, 4, 8, 12, 16, 20), (2.4836, 1.7377, 1.1376, 0.6847, 0.3624, 0.1710)),
        (0.8, 0.1, 0.1, 50.0, (1, 4, 8, 12, 16, 20), (3.1771, 1.9877, 1.3051, 0.8130, 0.4483, 0.2184)),
        (0.9, 0.05, 0.2, 50.0, (1, 4, 8, 12, 16, 20), (3.7934, 2.4662, 1.5653, 0.8571, 0.3759, 0.1378)),
    ],
)
def test_leakage_for_ever_of_delayed_rings_is_at_most_the_reference(own, p, q, level, ages, at_most):
    chain = ring(own, p, q)
    certified = [Accountant(Plan(chain, Mean(), age, level)).limit().epsilon for age in ages]
    assert (np.array(certified) <= np.array(at_most) * 1.005 + 5e-5).all(), certified


@pytest.mark.parametrize("releases", [3, "continual"])
@pytest.mark.parametrize("chain", [PAIR, ring(0.8, 0.1, 0.1)], ids=["pair", "ring"])
def test_the_delay_is_the_least_that_keeps_both_targets(chain, releases):
    targets = {"about": "then", "budget": 0.5, "max_mse": 0.05, "releases": releases}
    found = find_plan(chain, Mean(), **targets)
    assert found.leakage.epsilon <= 0.5
    assert found.error.safe <= 0.05
    assert found.delay > 0
    with pytest.raises(InfeasibleError, match="held back"):
        find_plan(chain, Mean(), **targets, max_age=found.delay - 1)
    scanned = [age for age in range(found.delay + 3) if _meets(chain, age, found.plan.epsilon_c, releases)]
    assert scanned[0] == found.delay


def _meets(chain, age, level, releases):
    accountant = Accountant(Plan(chain, Mean(), age, level))
    return accountant.ceiling(None if releases == "continual" else releases) <= 0.5


@pytest.mark.parametrize("query", [Mean(), Histogram()], ids=str)
def test_the_error_about_the_time_read_is_the_noise_alone_whatever_the_age(query):
    errors = [mse(PAIR, query, ages=age, epsilon_c=0.8, about="then") for age in (0, 1, 7)]
    outputs = 1 if isinstance(query, Mean) else 2
    for error in errors:
        assert error.mse == pytest.approx(outputs * noise_variance(PAIR, query, 0.8))
        assert error.aging == pytest.approx(0.0, abs=1e-15)
    assert mse(PAIR, query, ages=7, epsilon_c=0.8).mse > errors[0].mse


def test_the_linear_estimate_of_the_time_read_has_the_error_that_is_stated():
    stated = mse(PAIR, Mean(), ages=3, epsilon_c=0.8, estimate="linear", about="then")
    path = PAIR.simulate(200_000, seed=3).mean(axis=1)
    rng, stop = np.random.default_rng(4), -np.expm1(-0.8)
    noisy = path + 0.5 * (rng.geometric(stop, path.size) - rng.geometric(stop, path.size))
    gain = np.cov(path, noisy)[0, 1] / noisy.var()
    squared = (path.mean() + gain * (noisy - noisy.mean()) - path) ** 2
    assert stated.mse == pytest.approx(squared.mean(), rel=0.02)  # a hundred standard errors would be 0.5
    assert stated.mse < min(stated.no_data, mse(PAIR, Mean(), ages=3, epsilon_c=0.8, about="then").mse)
    assert 0 < stated.usefulness < 1


def test_a_frontier_about_the_time_read_keeps_every_delay_that_leaks_less():
    now, then = (frontier(PAIR, Mean(), ages=(1, 2, 4), levels=(0.5, 2.0), about=about) for about in ("now", "then"))
    assert {point.age for point in then.points if point.best} == {1, 2, 4}
    assert all(a.leakage == b.leakage for a, b in zip(now.points, then.points, strict=True))
    assert all(a.mse >= b.mse for a, b in zip(now.points, then.points, strict=True))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget": 0.5}, "both targets"),
        ({"max_mse": 0.5}, "both targets"),
        ({"budget": 0.5, "max_mse": 0.1, "ages": "vector"}, "one age for all sequences"),
        ({"budget": 0.5, "max_mse": 0.1, "about": "yesterday"}, "'now', 'then' is allowed"),
    ],
)
def test_what_cannot_be_planned_about_the_time_read_is_refused(given, words):
    with pytest.raises(InputError, match=words):
        find_plan(PAIR, Mean(), **{"about": "then", **given})


def test_an_error_below_what_the_event_limit_allows_is_refused():
    with pytest.raises(InfeasibleError, match="event_limit"):
        find_plan(PAIR, Mean(), about="then", budget=0.5, max_mse=1e-5)


def test_one_release_is_held_back_until_no_later_tick_passes_the_budget():
    """Three previous states copy one sequence: what is told of all of them adds up a tick after the release."""
    copies = CoupledChain(np.eye(3)[[0, 0, 0]], [[0.9, 0.1], [0.1, 0.9]], direction="backward")
    steps = []
    found = find_plan(
        copies,
        Mean(),
        about="then",
        estimate="raw",
        budget=1.8,
        max_mse=noise_variance(copies, Mean(), 1.0) * (1 + 1e-9),
        max_age=2,
        releases=1,
        progress=lambda *step: steps.append(step),
    )
    told = [Accountant(Plan(copies, Mean(), age, found.plan.epsilon_c)).after(1).epsilon for age in (0, 1, 2)]
    assert told == pytest.approx([1.0, 2.328, 1.578], abs=1e-3)  # fresh it would do now, and not a tick later
    assert found.delay == 2
    assert Accountant(found.plan).ceiling(1) <= 1.8
    assert {name for name, _, _ in steps} == {"delay"}
    assert all(done < total for _, done, total in steps)
