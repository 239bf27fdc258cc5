"""The secret as a distance: one release and whole histories against enumeration, for every kind of state."""

from itertools import product

import numpy as np
import pytest

import csdp
from csdp.accountant import Accountant
from csdp.bounds.result import ANY_DISTANCE
from csdp.errors import InputError
from oracle import clock_backward_kernels, joint_kernel, likelihoods, reverse, snapshots, stationary


class Case:
    """A random small chain with its own values for every sequence, and a weighted sum of them."""

    def __init__(self, seed, direction):
        rng = np.random.default_rng([seed, direction == "backward"])
        self.s, self.m = (1, int(rng.integers(3, 6))) if seed % 3 == 0 else (2, 3)
        self.coupling = rng.dirichlet(np.ones(self.s), size=self.s)
        self.transitions = rng.dirichlet(0.7 * np.ones(self.m), size=(self.s, self.s, self.m))
        self.transitions = 0.9 * self.transitions + 0.1 / self.m
        self.values = np.array([rng.choice(12, self.m, replace=False) / 4.0 for _ in range(self.s)])
        self.weights = rng.integers(1, 4, size=self.s) / 2.0
        self.age, self.epsilon_c = int(rng.integers(0, 3)), float(rng.uniform(0.3, 2.0))
        self.releases = int(rng.integers(1, 4)) if self.s == 1 else int(rng.integers(1, 3))
        far = np.unique(np.abs(self.values[:, :, None] - self.values[:, None, :]))[1:]
        self.protect = float(rng.choice(far))
        self.chain = csdp.CoupledChain(self.coupling, self.transitions, values=self.values, direction=direction)
        kernel = joint_kernel(self.coupling, self.transitions)
        self.back = kernel if direction == "backward" else reverse(kernel, stationary(kernel))
        self.law = stationary(kernel)

    @property
    def query(self):
        return csdp.Linear(tuple(self.weights.tolist()))

    def plan(self, **options):
        return csdp.Plan(self.chain, self.query, self.age, self.epsilon_c, **{"protect": self.protect, **options})

    def truth(self, releases, *, adversary="informed", back=None):
        snaps = snapshots(self.s, self.m)
        own = self.weights[:, None] * self.values
        answers = np.array([own[np.arange(self.s), z].sum() for z in snaps])
        rate = self.epsilon_c / (self.weights * np.ptp(self.values, axis=1)).max()
        steps = [self.back] * (self.age + releases) if back is None else back
        logs = likelihoods(steps, answers, rate, self.age, releases)
        return largest_gap(logs, self.values, self.protect, self.law if adversary == "uninformed" else None)


def largest_gap(logs, values, protect, law=None):
    """The largest log ratio of presents whose values of one sequence are at most `protect` apart, all others known.

    With `law`: nothing else known.
    """
    s, m = values.shape
    tensor, worst = np.exp(logs).reshape(-1, *(m,) * s), 0.0
    for i in range(s):
        told = np.moveaxis(tensor, i + 1, 1).reshape(len(tensor), m, -1)
        if law is not None:
            weight = np.moveaxis(law.reshape((m,) * s), i, 0).reshape(m, -1)
            told = (told * weight).sum(axis=2, keepdims=True) / weight.sum(axis=1)[:, None]
        for a, b in product(range(m), repeat=2):
            if a != b and abs(values[i, a] - values[i, b]) <= protect:
                worst = max(worst, float(np.log(told[:, a] / told[:, b]).max()))
    return worst


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", range(24))
def test_one_release_is_exact_and_no_bound_is_below(seed, direction):
    case = Case(seed, direction)
    ask = {"ages": case.age, "epsilon_c": case.epsilon_c}
    for adversary in ("informed", "uninformed"):
        truth = case.truth(1, adversary=adversary)
        whole = csdp.leakage(case.chain, case.query, adversary=adversary, **ask).epsilon
        table = csdp.leakage_table(case.chain, case.query, adversary=adversary, protect=case.protect, **ask)
        connected = len(case.chain.components()) == 1
        assert truth <= table["exact"].epsilon <= (truth * (1 + 1e-9) + 1e-12 if connected else whole)
        for row in table.rows:
            assert not row.sound or row.epsilon >= truth * (1 - 1e-12)
            assert row.protect == case.protect
            assert any("at most" in words for words in row.assumptions) or not row.sound


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", range(24))
def test_no_history_is_below_enumeration(seed, direction):
    case = Case(seed, direction)
    truth = case.truth(case.releases)
    states = ["auto", "metric", "scalar", *(["vector"] if direction == "backward" else [])]
    for state in states:
        accountant = Accountant(case.plan(), state=state)
        after = accountant.after(case.releases)
        assert after.epsilon >= truth * (1 - 1e-12)
        assert accountant.peak(accountant.history(case.releases)) >= after.epsilon * (1 - 1e-9)
        assert accountant.limit().epsilon >= truth * (1 - 1e-12)
        assert after.epsilon <= Accountant(case.plan(protect=None), state=state).after(case.releases).epsilon
    uninformed = Accountant(case.plan(adversary="uninformed")).after(case.releases)
    assert uninformed.epsilon >= case.truth(case.releases, adversary="uninformed") * (1 - 1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", range(6))
def test_under_a_clock(seed, direction):
    one, two = Case(3 * seed, direction), Case(3 * seed, direction)
    rng = np.random.default_rng(seed)
    two.transitions = 0.9 * rng.dirichlet(np.ones(one.m), size=(1, 1, one.m)) + 0.1 / one.m
    members = [
        csdp.CoupledChain([[1.0]], each.transitions, values=one.values, direction=direction) for each in (one, two)
    ]
    one.chain = csdp.EnvironmentChain(members, cycle=(0, 1))
    kernels = [joint_kernel([[1.0]], each.transitions) for each in (one, two)]
    back = clock_backward_kernels(kernels, backward=direction == "backward")
    for state in ("auto", "metric", "scalar"):
        for releases in (1, 2):
            epsilon = Accountant(one.plan(), state=state).after(releases).epsilon
            for phase in (0, 1):
                path = [back[(phase - n) % 2] for n in range(one.age + releases)]
                assert one.truth(releases, back=path) <= epsilon * (1 + 1e-9)


SLOW = [[0.8, 0.19, 0.01], [0.1, 0.8, 0.1], [0.01, 0.19, 0.8]]


def test_a_distance_that_protects_nothing_is_refused():
    chain = csdp.CoupledChain([[1.0]], SLOW)
    for wrong in (0.5, 0, -1, float("nan"), float("inf"), True, "1"):
        with pytest.raises(InputError, match="protect"):
            csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=1.0, protect=wrong)
        with pytest.raises(InputError, match="protect"):
            csdp.Plan(chain, csdp.Mean(), 1, 1.0, protect=wrong)


def test_what_counts_any_two_values_says_so():
    ring = {(i, (i + d) % 40): w for i in range(40) for d, w in ((0, 0.8), (1, 0.1), (39, 0.1))}
    chain = csdp.CoupledChain(ring, SLOW)
    answer = csdp.leakage(chain, csdp.Mean(), ages=2, epsilon_c=0.1, protect=1)
    assert answer.bound in ANY_DISTANCE
    assert any("counts any two values" in words for words in answer.assumptions)
    assert answer.epsilon == csdp.leakage(chain, csdp.Mean(), ages=2, epsilon_c=0.1).epsilon


def test_equal_components_with_other_values_are_not_alike():
    apart = csdp.CoupledChain(np.eye(2), SLOW, values=[[0.0, 1.0, 2.0], [0.0, 4.0, 8.0]])
    query = csdp.Count(state=1)
    near = csdp.leakage(apart, query, ages=1, epsilon_c=1.0, protect=4)
    assert near.epsilon == csdp.leakage(apart, query, ages=1, epsilon_c=1.0).epsilon  # all values of the first
    assert csdp.leakage(apart, query, ages=1, epsilon_c=1.0, protect=1).epsilon <= near.epsilon
    plan = csdp.Plan(apart, query, 1, 1.0, protect=1)
    assert len(Accountant(plan).components) == 2
    assert len(Accountant(csdp.Plan(apart, query, 1, 1.0)).components) == 1
