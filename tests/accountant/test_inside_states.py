"""Disturbances that are chains of their own, and changes between states and readings, against enumeration."""

from itertools import product

import numpy as np
import pytest

import csdp
from csdp.accountant.lateness import Lateness
from csdp.errors import InputError
from oracle import joint_kernel, snapshots


def random_rows(rng, m):
    return 0.9 * rng.dirichlet(np.ones(m), size=m) + 0.1 / m


@pytest.mark.parametrize("seed", range(16))
def test_no_present_reading_is_told_more(seed):
    """Reading = 3 x + u, x and u chains of their own read backwards; every output history is enumerated."""
    rng = np.random.default_rng(seed)
    rho, sigma = random_rows(rng, 2), random_rows(rng, 3)
    age, releases, epsilon_c = seed % 3, 1 + seed % 2, float(rng.uniform(0.3, 3.0))
    plan = csdp.Plan(
        csdp.CoupledChain([[1.0]], rho, direction="backward"),
        csdp.Mean(of=csdp.ReadingRange(0, 5, 1)),
        age,
        epsilon_c,
    )
    variation = max(0.5 * np.abs(a - b).sum() for a in sigma for b in sigma)
    bound = csdp.reading_leakage(plan, persistence=variation, width=2, releases=releases).epsilon
    back, readings = np.kron(rho, sigma), np.arange(6.0)
    worst = 0.0
    for outputs in product(readings, repeat=releases):
        told = np.ones(6)
        for output in outputs:
            told = np.exp(-epsilon_c * np.abs(output - readings) / 5) * (back @ told)
        given = np.log(np.linalg.matrix_power(back, age) @ told)
        worst = max(worst, float(np.ptp(given)))
    assert worst <= bound * (1 + 1e-9)
    independent = csdp.reading_leakage(plan, persistence=0.0, width=2, releases=releases).epsilon
    assert independent <= bound * (1 + 1e-12)


def test_the_certificate_of_independent_disturbances_would_be_too_low():
    rho, sigma = np.full((2, 2), 0.5), np.array([[0.98, 0.02], [0.02, 0.98]])
    chain = csdp.CoupledChain([[1.0]], rho, direction="backward")
    plan = csdp.Plan(chain, csdp.Mean(of=csdp.ReadingRange(0, 3, 1)), 1, 6.0)
    back, readings = np.kron(rho, sigma), np.arange(4.0)
    given = np.log(back @ np.exp(-6.0 * np.abs(readings[:, None] - readings[None, :]) / 3))
    truth = float(np.ptp(given, axis=0).max())
    assert csdp.reading_leakage(plan, persistence=0.0, width=1, releases=1).epsilon < 0.5 * truth
    assert csdp.reading_leakage(plan, persistence=0.96, width=1, releases=1).epsilon >= truth


def test_a_width_of_decimals_counts_all_the_steps_that_it_holds():
    """0.3 / 0.1 is below 3 in floats, and readings of 0.25 and 0.55 are rounded to levels four steps apart."""
    of, epsilon_c = csdp.ReadingRange(0, 1, 0.1), 1.0
    rho, sigma = np.full((2, 2), 0.5), np.array([[0.999, 0.001], [0.001, 0.999]])
    plan = csdp.Plan(csdp.CoupledChain([[1.0]], rho, direction="backward"), csdp.Mean(of=of), 1, epsilon_c)
    levels = of.levels([0.25, 0.55, 0.62, 0.92]).astype(float)
    assert np.diff(levels)[0] == 4
    given = np.log(np.kron(rho, sigma) @ np.exp(-epsilon_c * np.abs(levels[:, None] - levels[None, :]) / 10))
    told = float(np.ptp(given, axis=0).max())
    assert told <= csdp.reading_leakage(plan, persistence=0.998, width=0.3, releases=1).epsilon


def test_what_reading_leakage_refuses():
    chain = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    of = csdp.ReadingRange(0, 1, 0.1)
    plan = csdp.Plan(chain, csdp.Mean(of=of), 1, 1.0)
    assert np.isinf(csdp.reading_leakage(plan, persistence=1, width=0.5).epsilon)
    for wrong in (
        {"persistence": 1.1, "width": 0.5},
        {"persistence": 0.5, "width": -1},
        {"persistence": True, "width": 1},
    ):
        with pytest.raises(InputError):
            csdp.reading_leakage(plan, **wrong)
    for other in (
        csdp.Plan(chain, csdp.Mean(), 1, 1.0),
        csdp.Plan(chain, csdp.Mean(of=of), 1, 1.0, readings_check="failed"),
    ):
        with pytest.raises(InputError, match="reading_leakage"):
            csdp.reading_leakage(other, persistence=0.5, width=0.5)


@pytest.mark.parametrize("seed", range(12))
def test_changes_between_states_and_readings_are_not_below_enumeration(seed):
    """Two releases under each of two plans; which readings are missing is public."""
    rng = np.random.default_rng(seed)
    coupling, moves = rng.dirichlet(np.ones(2), 2), 0.9 * rng.dirichlet(np.ones(2), (2, 2, 2)) + 0.05
    chain = csdp.CoupledChain(coupling, moves, direction="backward")
    queries = [csdp.Sum(), csdp.Sum(of=csdp.ReadingRange(0, 1, 1))][:: 1 if seed % 2 else -1]
    ages, levels = rng.integers(0, 2, (2, 2)).tolist(), rng.uniform(0.3, 2.0, 2)
    releases, accountant, state, cost = [], None, None, 0.0
    for number, query in enumerate(queries):
        new = csdp.Accountant(csdp.Plan(chain, query, ages[number], float(levels[number])))
        state = new.start() if accountant is None else new.take_over(accountant, state, tick=1, cost=cost)
        accountant = new
        for tick in (2 * number, 2 * number + 1):
            read = np.ones(2, dtype=bool) if query == csdp.Sum() else rng.random(2) < 0.6
            state = new.release(state, tick, stale=False if read.all() else Lateness.from_missing(~read))
            cost += new.history_cost()
            releases.append((tick, number, read))
    first = min(tick - max(ages[number]) for tick, number, _ in releases)
    back, snaps = joint_kernel(coupling, moves), np.array(snapshots(2, 2))
    paths = np.array(list(product(range(4), repeat=4 - first)))  # the last one is the present, tick 3
    law = np.prod([back[paths[:, n], paths[:, n - 1]] for n in range(1, paths.shape[1])], axis=0)
    told = law[None]
    for tick, number, read in releases:
        answer = sum(
            (snaps[paths[:, tick - ages[number][k] - first], k] for k in np.flatnonzero(read)), np.zeros(len(paths))
        )
        far = np.abs(np.unique(answer)[:, None] - answer)
        told = (told[:, None] * np.exp(-levels[number] * far)).reshape(-1, len(paths))
    given = np.log(np.stack([told[:, paths[:, -1] == x].sum(axis=1) for x in range(4)], axis=1)).reshape(-1, 2, 2)
    worst = max(float(np.abs(np.diff(given, axis=axis)).max()) for axis in (1, 2))
    assert worst <= accountant.epsilon(state) * (1 + 1e-9)
