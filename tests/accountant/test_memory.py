"""Readings that depend on the states of several ticks: charged at each of them, against enumeration of all paths."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.accountant.lateness import Lateness
from csdp.errors import InputError
from oracle import joint_kernel, snapshots, stationary
from oracle_environment import reverse


class Case:
    """A random chain of bits; a reading is 1 where most of the last states are, or where the newest two differ."""

    def __init__(self, seed, direction):
        rng = np.random.default_rng([seed, direction == "forward"])
        self.s = 1 + seed % 2
        self.memory, self.releases = (2, 2) if self.s == 1 else (1, 1 + seed // 2 % 2)
        self.age = int(rng.integers(0, 3 if self.s == 1 else 2))
        self.epsilon_c = float(rng.uniform(0.3, 2.0))
        self.coupling = rng.dirichlet(np.ones(self.s), size=self.s)
        self.transitions = 0.9 * rng.dirichlet(np.ones(2), size=(self.s, self.s, 2)) + 0.05
        self.chain = csdp.CoupledChain(self.coupling, self.transitions, direction=direction)
        kernel = joint_kernel(self.coupling, self.transitions)
        self.back = kernel if direction == "backward" else reverse(kernel, stationary(kernel))
        self.differ = bool(rng.integers(2))

    def reading(self, window):
        """Of states (memory + 1, s), newest first."""
        return window[0] != window[1] if self.differ else window.mean(axis=0) >= 0.5

    def truth(self):
        """The largest log ratio over all outputs of presents that differ in one sequence: every path is enumerated."""
        snaps, slices = np.array(snapshots(self.s, 2)), self.age + self.releases + self.memory
        likely = {}  # present -> {answers of the releases, newest first: probability}
        for path in product(range(len(snaps)), repeat=slices):  # path[n]: n ticks ago
            chance = np.prod([self.back[a, b] for a, b in pairwise(path)])
            states = snaps[list(path)]
            sums = tuple(
                int(self.reading(states[at : at + self.memory + 1]).sum())
                for at in range(self.age, self.age + self.releases)
            )
            table = likely.setdefault(path[0], {})
            table[sums] = table.get(sums, 0.0) + chance
        worst = 0.0
        for outputs in product(range(self.s + 1), repeat=self.releases):
            given = np.zeros(len(snaps))
            for x, table in likely.items():
                for sums, chance in table.items():
                    given[x] += chance * np.exp(-self.epsilon_c * np.abs(np.subtract(outputs, sums)).sum())
            tensor = np.log(given).reshape((2,) * self.s)
            worst = max(worst, *(float(np.abs(np.diff(tensor, axis=i)).max()) for i in range(self.s)))
        return worst

    def plan(self, memory):
        of = csdp.ReadingRange(0, 1, 1, memory=memory)
        return csdp.Plan(self.chain, csdp.Sum(of=of), self.age, self.epsilon_c)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", range(12))
def test_no_history_is_below_enumeration(seed, direction):
    case = Case(seed, direction)
    plan, truth = case.plan(case.memory), case.truth()
    for state in ("auto", "scalar", *(("vector",) if direction == "backward" else ())):
        assert truth <= Accountant(plan, state=state).after(case.releases).epsilon * (1 + 1e-9)
    if case.releases == 1:
        for row in csdp.leakage_table(case.chain, plan.query, ages=case.age, epsilon_c=case.epsilon_c).rows:
            assert not row.sound or truth <= row.epsilon * (1 + 1e-9)


def test_the_certificate_without_memory_would_be_too_low():
    """Both previous states copy the first sequence, and readings are one tick old: two readings tell of one state."""
    case = Case(1, "backward")
    case.age, case.epsilon_c, case.releases, case.reading = 0, 1.0, 1, lambda window: window[1]
    case.transitions = np.broadcast_to(np.array([[0.98, 0.02], [0.02, 0.98]]), (2, 2, 2, 2))
    case.coupling = np.array([[1.0, 0.0], [1.0, 0.0]])
    case.chain = csdp.CoupledChain(case.coupling, case.transitions[0, 0], direction="backward")
    case.back = joint_kernel(case.coupling, case.transitions)
    truth = case.truth()
    assert Accountant(case.plan(0)).after(1).epsilon < 0.7 * truth
    assert truth <= Accountant(case.plan(1)).after(1).epsilon * (1 + 1e-9)


def test_a_moving_average_is_refused_named_and_charged_with_its_memory():
    chain = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    states = chain.simulate(4000, seed=3)[:, 0]
    noise = np.random.default_rng(5).uniform(0, 0.2, size=4000)
    readings = (0.5 * states + 0.3 * np.concatenate([[0], states[:-1]]) + noise)[:, None]
    past = replace(csdp.Panel.from_states(states[:, None]), readings=readings)
    assert csdp.check_readings(past).verdict == "failed"
    assert csdp.check_readings(past, memory=1).verdict != "failed"
    fitted = csdp.fit(past, public=True, ensemble=0, direction="backward")
    of = csdp.ReadingRange(0, 1, 0.1)
    with pytest.raises(InputError, match="memory 3"):
        csdp.Plan(fitted, csdp.Mean(of=of), 1, 1.0)
    plan = csdp.Plan(fitted, csdp.Mean(of=replace(of, memory=1)), 1, 1.0)
    assert csdp.Plan.from_json(plan.to_json()) == plan
    assert plan.readings_check == "none"
    assert "at the 1 ticks before" in plan.query.assumption
    whole = Accountant(csdp.Plan(chain, csdp.Mean(of=of), 1, 1.0)).limit().epsilon
    assert Accountant(plan).limit().epsilon > 1.05 * whole


def test_a_persistent_signal_is_not_cured_by_a_memory():
    random, x = np.random.default_rng(1), np.zeros((4000, 1))
    for t in range(1, 4000):
        x[t] = 0.9 * x[t - 1] + random.normal()
    past = csdp.Discretiser.declared(["a"], edges=[0.0], bounds=(-6, 6)).apply(x)
    for memory in (0, 1, 2, 3):
        assert csdp.check_readings(past, memory=memory).verdict == "failed"


def test_what_cannot_be():
    for wrong in (-1, 65, True, 1.5):
        with pytest.raises(InputError, match="memory"):
            csdp.ReadingRange(0, 1, 0.1, memory=wrong)
    assert csdp.ReadingRange.parse("0..1 by 0.5 memory 3").memory == 3
    with pytest.raises(InputError):
        csdp.ReadingRange.parse("0..1 by 0.5 memory x")


# ---- disturbances that are chains of their own -----------------------------------------------------------------------


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
        csdp.Plan(chain, csdp.Mean(of=replace(of, memory=1)), 1, 1.0),
        csdp.Plan(chain, csdp.Mean(of=of), 1, 1.0, readings_check="failed"),
    ):
        with pytest.raises(InputError, match="reading_leakage"):
            csdp.reading_leakage(other, persistence=0.5, width=0.5)


@pytest.mark.parametrize("seed", range(12))
def test_changes_between_states_and_readings_with_a_memory_are_not_below_enumeration(seed):
    """Two releases under each of two plans; which readings are missing is public, what states make of them extreme."""
    rng = np.random.default_rng(seed)
    coupling, moves = rng.dirichlet(np.ones(2), 2), 0.9 * rng.dirichlet(np.ones(2), (2, 2, 2)) + 0.05
    chain = csdp.CoupledChain(coupling, moves, direction="backward")
    memories = [None, int(rng.integers(0, 3))][:: 1 if seed % 2 else -1]  # None: states
    ages, levels = rng.integers(0, 2, (2, 2)).tolist(), rng.uniform(0.3, 2.0, 2)
    releases, accountant, state, cost = [], None, None, 0.0
    for number, memory in enumerate(memories):
        query = csdp.Sum() if memory is None else csdp.Sum(of=csdp.ReadingRange(0, 1, 1, memory=memory))
        new = csdp.Accountant(csdp.Plan(chain, query, ages[number], float(levels[number])))
        state = new.start() if accountant is None else new.take_over(accountant, state, tick=1, cost=cost)
        accountant = new
        for tick in (2 * number, 2 * number + 1):
            read = np.ones(2, dtype=bool) if memory is None else rng.random(2) < 0.6
            state = new.release(state, tick, stale=False if read.all() else Lateness.from_missing(~read))
            cost += new.history_cost()
            releases.append((tick, number, memory or 0, read))
    first = min(tick - max(ages[number]) - memory for tick, number, memory, _ in releases)
    back, snaps = joint_kernel(coupling, moves), np.array(snapshots(2, 2))
    paths = np.array(list(product(range(4), repeat=4 - first)))  # the last one is the present, tick 3
    law = np.prod([back[paths[:, n], paths[:, n - 1]] for n in range(1, paths.shape[1])], axis=0)
    told = law[None]
    for tick, number, memory, read in releases:
        answer = np.zeros(len(paths))
        for k in np.flatnonzero(read):
            at = tick - ages[number][k] - first
            windows = snaps[paths[:, at - memory : at + 1], k] @ (1 << np.arange(memory + 1))
            table = np.array([0, 1]) if memory == 0 else rng.integers(0, 2, 2 ** (memory + 1))
            answer += table[windows]
        far = np.abs(np.unique(answer)[:, None] - answer)
        told = (told[:, None] * np.exp(-levels[number] * far)).reshape(-1, len(paths))
    given = np.log(np.stack([told[:, paths[:, -1] == x].sum(axis=1) for x in range(4)], axis=1)).reshape(-1, 2, 2)
    worst = max(float(np.abs(np.diff(given, axis=axis)).max()) for axis in (1, 2))
    assert worst <= accountant.epsilon(state) * (1 + 1e-9)
