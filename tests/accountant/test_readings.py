"""Readings are published, states are certified: against brute force over chains and laws of readings.

A reading is any function of its sequence's state and of a disturbance; the disturbances of all sequences and ticks have
any joint law, as long as it is independent of the states.
"""

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pytest

import csdp
from accountant.systems import follow
from oracle import joint_kernel, neighbour_pairs, snapshots, stationary

LEVELS = 2
RANGE = csdp.ReadingRange(0, 1, 1 / LEVELS)


@dataclass(frozen=True)
class Emission:
    """levels[k, state, u] of every sequence, and the joint law of u over (slices x sequences)."""

    levels: np.ndarray
    law: np.ndarray  # (2,) * (slices * sequences)


def random_emission(rng, s, m, slices):
    law = rng.dirichlet(np.full(2 ** (slices * s), rng.choice([0.05, 1.0])))
    return Emission(rng.integers(0, LEVELS + 1, (s, m, 2)), law)


def true_leakage(kernel, s, m, *, ages, epsilon_c, releases, emission, weights, read=None):
    """The worst log ratio of all histories of outputs, given two presents that differ in one sequence.

    `read[n]`: the sequences that release n could read (all by default).
    """
    snaps = snapshots(s, m)
    back = [[releases - 1 - n + age for age in ages] for n in range(releases)]
    horizon = max(map(max, back))
    delta = max(map(abs, weights)) * LEVELS
    start = stationary(kernel)
    noise = list(product((0, 1), repeat=(horizon + 1) * s))
    answers = sorted(
        {sum(w * level for w, level in zip(weights, row, strict=True)) for row in product(range(LEVELS + 1), repeat=s)}
        | {0}
    )
    outputs = np.array(list(product(answers, repeat=releases)), dtype=float)
    given = {}
    for path in product(range(len(snaps)), repeat=horizon + 1):
        mass = start[path[0]] * np.prod([kernel[a, b] for a, b in pairwise(path)])
        if mass <= 0:
            continue
        likelihood = np.zeros(len(outputs))
        for chance, bits in zip(emission.law, noise, strict=True):
            told = []
            for n, row in enumerate(back):
                total = 0.0
                for k in range(s):
                    if read is not None and not read[n][k]:
                        continue
                    state = snaps[path[-1 - row[k]]][k]
                    total += weights[k] * emission.levels[k, state, bits[row[k] * s + k]]
                told.append(total)
            likelihood += chance * np.exp(-np.abs(outputs - np.array(told)).sum(axis=1) * epsilon_c / delta)
        before, total = given.get(path[-1], (np.zeros(len(outputs)), 0.0))
        given[path[-1]] = before + mass * likelihood, total + mass
    log = {x: np.log(sum_ / mass) for x, (sum_, mass) in given.items()}
    pairs = neighbour_pairs(s, m, [float(x in log) for x in range(len(snaps))])
    return max((float((log[x] - log[y]).max()) for x, y in pairs), default=0.0)


def random_case(seed):
    rng = np.random.default_rng(seed)
    s, m = [(1, 2), (2, 2), (1, 3), (2, 2)][seed % 4]
    coupling = rng.dirichlet(np.ones(s), size=s)
    transitions = rng.dirichlet(np.full(m, rng.choice([0.3, 1.0])), size=(s, s, m)) * 0.98 + 0.02 / m
    direction = ["forward", "backward"][seed // 4 % 2]
    chain = csdp.CoupledChain(coupling, transitions, direction=direction)
    kernel = joint_kernel(coupling, transitions)
    if direction == "backward":  # the oracle walks forward in time
        law = stationary(kernel)
        kernel = (law[:, None] * kernel).T / law[:, None]
    ages = rng.integers(0, 3, s) if s == 1 or rng.random() < 0.5 else np.full(s, rng.integers(0, 2))
    releases = int(rng.integers(1, 3 if max(ages) > 1 else 4)) if s == 1 else int(rng.integers(1, 3))
    weights = [1.0] * s if rng.random() < 0.6 else rng.choice([1.0, -1.0, 0.5, 2.0], s).tolist()
    horizon = releases - 1 + int(max(ages))
    if s * (horizon + 1) > 6:
        ages, releases = np.minimum(ages, 1), min(releases, 2)
        horizon = releases - 1 + int(max(ages))
    emission = random_emission(rng, s, m, horizon + 1)
    epsilon_c = float(rng.choice([0.3, 1.0, 3.0]))
    query = csdp.Mean(of=RANGE) if weights == [1.0] * s else csdp.Linear(weights, of=RANGE)
    return chain, kernel, query, [int(a) for a in ages], epsilon_c, releases, emission, weights


def certified(chain, query, ages, epsilon_c, releases):
    """What every accountant that applies says."""
    plan = csdp.Plan(chain, query, ages, epsilon_c)
    kinds = ["auto", "metric", "scalar"] + ["vector"] * (chain.direction == "backward")
    values = {kind: follow(plan, kind).after(releases).epsilon for kind in kinds}
    if releases == 1:
        values |= {
            bound: csdp.leakage(chain, query, ages=ages, epsilon_c=epsilon_c, bound=bound).epsilon
            for bound in ("auto", "metric", "profile", "group")
        }
    return values


@pytest.mark.parametrize("seed", range(40))
def test_no_certificate_is_below_brute_force(seed):
    chain, kernel, query, ages, epsilon_c, releases, emission, weights = random_case(seed)
    s, m = chain.sequences, chain.states
    setting = {"ages": ages, "epsilon_c": epsilon_c, "releases": releases, "weights": weights}
    truth = true_leakage(kernel, s, m, emission=emission, **setting)
    for name, value in certified(chain, query, ages, epsilon_c, releases).items():
        assert truth <= value * (1 + 1e-9) + 1e-12, name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_no_certificate_is_below_brute_force_at_length(seed):
    test_no_certificate_is_below_brute_force(seed)


@pytest.mark.parametrize("seed", [1, 3, 5, 7, 9])
def test_readings_that_are_missing_leave_certificates_valid(seed):
    chain, kernel, query, ages, epsilon_c, releases, emission, weights = random_case(seed)
    s = chain.sequences
    read = np.random.default_rng(seed).random((releases, s)) < 0.6
    truth = true_leakage(
        kernel,
        s,
        chain.states,
        ages=ages,
        epsilon_c=epsilon_c,
        releases=releases,
        emission=emission,
        weights=weights,
        read=read,
    )
    assert truth <= min(certified(chain, query, ages, epsilon_c, releases).values()) * (1 + 1e-9) + 1e-12


def test_a_certificate_of_states_would_be_too_low():
    """Parts of states may cancel; readings need not: high where one state is high and the other low."""
    transitions = np.array([[0.99, 0.01], [0.01, 0.99]])
    chain = csdp.CoupledChain([[0.6, 0.4], [0.4, 0.6]], transitions)
    kernel = joint_kernel([[0.6, 0.4], [0.4, 0.6]], np.broadcast_to(transitions, (2, 2, 2, 2)))
    opposite = Emission(np.array([[[0, 0], [2, 2]], [[2, 2], [0, 0]]]), np.full(2**4, 2.0**-4))
    setting = {"ages": [1, 1], "epsilon_c": 1.0, "releases": 1, "emission": opposite}
    truth = true_leakage(kernel, 2, 2, weights=[1.0, 1.0], **setting)
    of_states = csdp.leakage(chain, csdp.Linear([1.0, -1.0]), ages=1, epsilon_c=1.0).epsilon
    assert truth == pytest.approx(of_states, rel=1e-9)  # the oracle: these readings are that query of states
    copied = [[0.0, 1.0], [0.0, 1.0]]
    backward = csdp.CoupledChain(copied, transitions, direction="backward")
    back = joint_kernel(copied, np.broadcast_to(transitions, (2, 2, 2, 2)))
    law = stationary(back)
    forward = (law[:, None] * back).T / np.where(law > 0, law, 1)[:, None]
    truth = true_leakage(forward, 2, 2, weights=[1.0, -1.0], **setting)
    cancelling = csdp.leakage(backward, csdp.Linear([1.0, -1.0]), ages=1, epsilon_c=1.0).epsilon
    safe = csdp.leakage(backward, csdp.Linear([1.0, -1.0], of=RANGE), ages=1, epsilon_c=1.0).epsilon
    assert cancelling < truth <= safe * (1 + 1e-9)
