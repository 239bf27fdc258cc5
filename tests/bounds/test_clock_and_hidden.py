"""A clock beside a hidden environment: leakage against enumeration."""

from itertools import product

import numpy as np
import pytest

import csdp
from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan
from oracle import likelihoods, mean_answers, member_kernel, random_member, reverse, stationary, worst

SEEDS = [seed if seed < 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(6)]
SIZES = ((2, 2), (1, 3), (2, 2))
KINDS = ("plain", "persistent", "hub", "own")
SWITCHING = np.array([[0.8, 0.2], [0.35, 0.65]])
#: Classes of the phases; each class has two environments.
CYCLE = (0, 1, 1)


def random_case(seed: int, direction: str):
    """Kernels [class][environment], and the chain that the library makes of them."""
    rng = np.random.default_rng(seed)
    s, m = SIZES[seed % len(SIZES)]
    members = [random_member(rng, s, m, KINDS[(seed + n) % 4]) for n in range(4)]
    members = [(coupling, 0.95 * rows + 0.05 / m) for coupling, rows in members]
    kernels = [member_kernel(member) for member in members]
    chains = [CoupledChain(coupling, rows, direction=direction) for coupling, rows in members]
    chain = EnvironmentChain(chains, cycle=CYCLE, switching=SWITCHING)
    return rng, s, m, [kernels[:2], kernels[2:]], chain


def joint_law(kernels, direction):
    """Backward kernel on (phase, environment, snapshot) and its law, from the definition."""
    phases, n = len(CYCLE), len(kernels[0][0])
    share = stationary(SWITCHING)
    back = reverse(SWITCHING, share)
    own = np.zeros((phases, 2, n, phases, 2, n))
    for h, e, f in product(range(phases), (0, 1), (0, 1)):
        if direction == "forward":
            following = (h + 1) % phases
            own[h, e, :, following, f, :] = SWITCHING[e, f] * kernels[CYCLE[following]][f]
        else:
            own[h, e, :, h - 1, f, :] = back[e, f] * kernels[CYCLE[h]][e]
    own = own.reshape(phases * 2 * n, -1)
    law = stationary(own)
    return (own if direction == "backward" else reverse(own, law)), law.reshape(phases, 2, n)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_who_knows_the_clock_alone_is_answered_exactly_at_every_phase(direction, seed):
    _, s, m, kernels, chain = random_case(seed, direction)
    joint, law = joint_law(kernels, direction)
    answers, delta = mean_answers(s, m)
    age, epsilon_c = 1 + seed % 2, 0.9
    logs = likelihoods([joint] * age, np.tile(answers, 6), epsilon_c / delta, age, 1)
    given = np.exp(logs).reshape(-1, 3, 2, m**s)
    for phase in range(3):
        ignorant = np.log((given[:, phase] * law[phase]).sum(axis=1) / law[phase].sum(axis=0))
        truths = {
            "hidden": worst(ignorant, s, m),
            "present": max(worst(np.log(given[:, phase, e]), s, m) for e in (0, 1)),
        }
        for environment, truth in truths.items():
            answer = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, phase=phase, environment=environment)
            assert answer.bound == "exact"
            assert answer.epsilon == pytest.approx(truth, rel=1e-8)
            assert answer.phase == phase
            assert f"phase {phase}" in " ".join(answer.assumptions)
            if direction == "forward":
                swing = csdp.leakage(
                    chain,
                    Mean(),
                    ages=age,
                    epsilon_c=epsilon_c,
                    phase=phase,
                    environment=environment,
                    bound="swing",
                )
                assert swing.epsilon >= truth * (1 - 1e-9)
    every = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, environment="hidden")
    each = [csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, environment="hidden", phase=h) for h in range(3)]
    assert every.epsilon == max(answer.epsilon for answer in each)


def path_truth(kernels, path, phase, direction, s, m, epsilon_c, age, releases, rng, law=None):
    """The leakage given a path of environments, the present first, that ends at a phase; any law of the past."""
    members = [kernels[CYCLE[(phase - n) % 3]][e] for n, e in enumerate(path)]
    answers, delta = mean_answers(s, m)
    steps = members
    if direction == "forward":
        laws = [rng.dirichlet(np.ones(m**s)) if law is None else law]
        for kernel in members[::-1]:
            laws.append(laws[-1] @ kernel)
        steps = [reverse(members[n], laws[len(members) - n - 1]) for n in range(len(members))]
    return worst(likelihoods(steps, answers, epsilon_c / delta, age, releases), s, m)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_who_knows_the_path_is_answered_at_every_phase(direction, seed):
    rng, s, m, kernels, chain = random_case(seed, direction)
    law = joint_law(kernels, direction)[1]
    age, epsilon_c = 1 + seed % 2, 0.9
    for phase in range(3):
        truth = 0.0
        for path in product((0, 1), repeat=age + 1):
            oldest = law[(phase - age) % 3, path[-1]]
            truth = max(
                truth,
                path_truth(kernels, path[:age], phase, direction, s, m, epsilon_c, age, 1, rng, oldest / oldest.sum()),
            )
        answer = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, phase=phase, environment="path")
        assert answer.epsilon == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_given_the_environment_lies_below_any_path_of_the_clock(direction, seed):
    rng, s, m, kernels, chain = random_case(seed, direction)
    age, epsilon_c = 1 + seed % 2, 0.9
    names = ["auto", "group"]
    names += ["influence", "exact", "freshness"] if direction == "backward" else ["lineage", "slice"]
    for phase in range(3):
        draws = [p for p in product((0, 1), repeat=age) for _ in range(20)]
        truth = max(path_truth(kernels, path, phase, direction, s, m, epsilon_c, age, 1, rng) for path in draws)
        for name in names:
            bound = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, bound=name, phase=phase)
            assert bound.epsilon >= truth * (1 - 1e-9), name
            assert bound.environment == "given"
        if direction == "backward":
            exact = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, bound="exact", phase=phase)
            assert exact.epsilon == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize("state", ["metric", "scalar", "vector"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_no_state_lies_below_any_path_of_the_clock(state, direction, seed):
    rng, s, m, kernels, chain = random_case(seed, direction)
    age, epsilon_c, releases = seed % 2, 0.8, 3
    accountant = Accountant(Plan(chain, Mean(), age, epsilon_c), state=state)
    value = accountant.after(releases)
    assert value.environment == "given"
    assert "given the clock: the largest over its 3 phases" in value.assumptions
    assert any("facts about the environment" in words for words in value.assumptions)
    length = age + releases - 1
    for phase, path in product(range(3), product((0, 1), repeat=length)):
        truth = path_truth(kernels, path, phase, direction, s, m, epsilon_c, age, releases, rng)
        assert value.epsilon >= truth * (1 - 1e-9)
    assert accountant.limit().epsilon >= value.epsilon * (1 - 1e-9)


def test_the_clock_counts_where_members_of_one_phase_only_are_slow():
    """Given the environment, each step takes the worst member of its phase, not of all."""
    ring = {(i, (i + d) % 50): w for i in range(50) for d, w in ((0, 0.8), (1, 0.1), (49, 0.1))}
    fast, slow = (CoupledChain(ring, [[1 - p, p], [p, 1 - p]], direction="backward") for p in (0.3, 0.1))
    hidden = [[0.9, 0.1], [0.1, 0.9]]
    limits = [
        Accountant(Plan(chain, Mean(), 1, 0.1)).limit().epsilon
        for chain in (
            EnvironmentChain([fast, slow], cycle=(0, 1)),
            EnvironmentChain([fast, fast, fast, slow], cycle=(0, 1), switching=hidden),
            EnvironmentChain([fast, fast, fast, slow], switching=np.kron([[0, 1], [1, 0]], hidden)),
        )
    ]
    assert limits[0] == pytest.approx(limits[1], rel=1e-9)  # the slow member of odd ticks may always hold
    assert limits[1] < 0.9 * limits[2]


def test_the_error_is_that_of_the_long_run():
    """A clock of classes that do not differ is no clock."""
    one = [CoupledChain([[1.0]], [[1 - p, p], [q, 1 - q]]) for p, q in ((0.1, 0.5), (0.5, 0.1))]
    hidden = EnvironmentChain(one, switching=SWITCHING)
    both = EnvironmentChain([*one, *one], cycle=(0, 1), switching=SWITCHING)
    errors = [csdp.mse(chain, Mean(), ages=2, epsilon_c=0.7, estimate="linear").mse for chain in (hidden, both)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-9)
