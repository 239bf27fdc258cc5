"""Fits with environments: known and hidden, forward and backward, chosen on readings that were set aside."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import csdp
from csdp.errors import InputError
from csdp.fitting.em import Effort
from csdp.fitting.environment import ChainCandidate, fit_candidate, read_clock
from csdp.fitting.sample import ignore_progress, read_sample
from fitting.systems import random_chain

pytestmark = pytest.mark.usefixtures("ungrown")

QUIET, BUSY = [[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]]


def own(matrix, s: int = 2, direction="forward") -> csdp.CoupledChain:
    return csdp.CoupledChain(np.eye(s), matrix, direction=direction)


def driven(s: int = 4, stay: float = 0.9, direction="forward") -> csdp.EnvironmentChain:
    """Own chains under a hidden regime that moves them up or down together."""
    members = [own(QUIET, s, direction), own(BUSY, s, direction)]
    return csdp.EnvironmentChain(members, switching=[[stay, 1 - stay], [1 - stay, stay]])


def closest(found: csdp.EnvironmentChain, true: csdp.EnvironmentChain) -> float:
    """Largest difference between members and switching, environments renamed as suits best."""
    count = len(true.environments)
    errors = []
    for order in itertools.permutations(range(count)):
        error = abs(found.switching[np.ix_(order, order)] - true.switching).max()
        for e, f in enumerate(order):
            own_found = _tables(found.environments[f])
            error = max(error, abs(own_found - _tables(true.environments[e])).max())
        errors.append(error)
    return float(min(errors))


def _tables(chain: csdp.CoupledChain):
    table, which = chain.transition_table
    return chain.edge_weights[:, None, None] * table[which]


def fit_clock(states, cycle, *, shrinkage, direction="forward") -> csdp.EnvironmentChain:
    """A chain by a clock with a shrinkage that the readings did not choose."""
    candidate = ChainCandidate("clock", 0, read_clock(cycle, states, len(states)), shrinkage=shrinkage)
    readings = read_sample(states, states=2).in_direction(direction)
    return fit_candidate(candidate, readings, effort=Effort(), progress=ignore_progress).chain


# ---- known environments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_members_of_a_clock_are_counts_shrunk_towards_all(direction):
    day, night = own([[0.9, 0.1], [0.2, 0.8]]), own([[0.3, 0.7], [0.6, 0.4]])
    states = csdp.EnvironmentChain([day, night], cycle=(0, 1, 1)).simulate(400, seed=1)
    chain = fit_clock(states, (0, 1, 1), shrinkage=20.0, direction=direction)
    steps = [(t, t - 1) if direction == "backward" else (t - 1, t) for t in range(1, 400)]
    for j in range(2):
        everywhere = np.full((2, 2), 0.5)
        counts = np.zeros((2, 2, 2))
        for now, after in steps:
            e = (0, 1, 1)[max(now, after) % 3]
            everywhere[states[now, j], states[after, j]] += 1
            counts[e, states[now, j], states[after, j]] += 1
        for e in range(2):
            table = counts[e] + 20.0 * everywhere / everywhere.sum()
            assert _tables(chain.environments[e])[j] == pytest.approx(table / table.sum(axis=1, keepdims=True))
    assert (chain.kind, chain.cycle, chain.direction) == ("clock", (0, 1, 1), direction)


def test_a_clock_is_found_again_and_gains():
    members = [random_chain(seed, 3, 2) for seed in (1, 2, 3)]
    true = csdp.EnvironmentChain(members, cycle=(0, 1, 2))
    chain = csdp.fit(
        true.simulate(9000, seed=2),
        public=True,
        environment="clock",
        environments=3,
        neighbours="all",
    )
    for phase in range(3):
        assert abs(chain.at_phase(phase).kernel() - true.at_phase(phase).kernel()).max() < 0.06
    ((name, gain, error),) = chain.fitted.gains
    assert name == "clock, forward"
    assert gain > 10 * error > 0
    assert chain.cycle == (0, 1, 2)


def test_the_clock_of_a_panel_is_its_day():
    from csdp.panel import Panel

    true = csdp.EnvironmentChain([own(QUIET), own(BUSY)], cycle=(0,) * 12 + (1,) * 12)
    states = true.simulate(24 * 60, seed=5)
    first = np.datetime64("2024-03-01T05:00:00")
    times = first + np.arange(len(states)) * np.timedelta64(3600, "s")
    ticks = times.astype("datetime64[s]").astype(np.int64) // 3600
    panel = Panel(("a", "b"), ticks, times.astype("datetime64[s]"), states, 3600)
    chain = csdp.fit(panel, public=True, environment="clock")
    assert chain.cycle == tuple(hour // 3 for hour in range(24))
    # Tick 0 of the readings is 5 o'clock, so the busy half of the day begins at 17.
    assert _tables(chain.environments[3])[0, 0, 0] > 0.75
    assert _tables(chain.environments[7])[0, 0, 0] < 0.65
    with pytest.raises(InputError, match="no timestamps"):
        csdp.fit(states, public=True, environment="clock")
    joined = Panel(("a", "b"), np.arange(len(states)), times.astype("datetime64[s]"), states, 3600)
    assert csdp.fit(joined, public=True, environment="clock").cycle[0] == 5 // 3
    with pytest.raises(InputError, match="do not follow each other"):
        csdp.fit(
            Panel(("a", "b"), np.arange(900), np.delete(times, slice(7, 9))[:900], states[:900], 3600),
            public=True,
            environment="clock",
        )


# ---- hidden environments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_hidden_environment_is_found_again(direction):
    true = driven(8, direction=direction)
    states = true.simulate(6000, seed=6)
    chain = csdp.fit(states, public=True, environment="hidden", environments=2, direction=direction)
    assert closest(chain, true) < 0.05
    assert chain.direction == direction
    assert chain.fitted.converged
    ((_, gain, error),) = chain.fitted.gains
    assert gain > 10 * error


def test_switching_of_a_backward_fit_leads_forward_in_time():
    ways = np.array([[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.2, 0.0, 0.8]])
    matrices = ([[0.95, 0.05]] * 2, [[0.5, 0.5]] * 2, [[0.05, 0.95]] * 2)
    true = csdp.EnvironmentChain([own(m, 12, "backward") for m in matrices], switching=ways)
    chain = csdp.fit(
        true.simulate(4000, seed=7),
        public=True,
        environment="hidden",
        environments=3,
        direction="backward",
    )
    assert closest(chain, true) < 0.08  # round the circle the other way it would be 0.2


def test_the_number_of_environments_is_chosen_on_held_out_readings():
    chain = csdp.fit(driven(6).simulate(2500, seed=8), public=True, environment="hidden")
    assert len(chain.environments) == 2
    assert [name for name, _, _ in chain.fitted.gains] == ["hidden 2, forward", "hidden 3, forward"]


def test_missing_readings_are_left_out():
    states = driven(6).simulate(4000, seed=10).astype(int)
    random = np.random.default_rng(10)
    states[random.random(states.shape) < 0.2] = -1
    chain = csdp.fit(states, public=True, environment="hidden", environments=2)
    assert closest(chain, driven(6)) < 0.08
    both = (states[:-1] >= 0) & (states[1:] >= 0)
    assert chain.fitted.observations == both.sum()


@pytest.mark.parametrize("matrix", [np.eye(2), [[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
def test_deterministic_reducible_and_periodic_sequences_have_fits(matrix):
    states = np.zeros((80, 3), dtype=int)
    states[0] = [0, 1, 1]
    for t in range(1, 80):
        states[t] = [int(np.argmax(np.asarray(matrix)[x])) for x in states[t - 1]]
    for how in ({"environment": "hidden", "environments": 2}, {"environment": "clock", "environments": 2}):
        fitted = csdp.fit(states, public=True, **how)
        for member in fitted.environments:
            assert np.isfinite(_tables(member)).all()
            assert (_tables(member) > 0).all()


# ---- what is refused, and what stays -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"environment": "weather"}, "'weather' given; one of 'clock', 'hidden'"),
        ({"environment": "clock", "environments": (0, 2)}, "without a gap"),
        ({"environment": "clock", "environments": 81}, "81 phases given for 80 ticks"),
        ({"environments": 3}, "without environment="),
        ({"environment": "hidden", "method": "joint"}, "use method='em'"),
        ({"environment": "hidden", "public": False, "epsilon": 1.0}, "without environment="),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    states = own(QUIET).simulate(80, seed=14)
    with pytest.raises(InputError, match=message):
        csdp.fit(states, **{"public": True, **settings})
