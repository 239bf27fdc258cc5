"""Leakage under environments: the worst phase of a clock, and given the environment, against enumeration."""

import numpy as np
import pytest

import csdp
from csdp import CoupledChain, EnvironmentChain, Histogram, Mean
from csdp.errors import InputError
from oracle import (
    clock_backward_kernels,
    likelihoods,
    mean_answers,
    member_kernel,
    periodic_laws,
    random_member,
    reverse,
    worst,
)

PAIR = [[0.75, 0.25], [0.25, 0.75]]
KINDS = ("plain", "skewed", "persistent", "deterministic", "hub", "own")
SEEDS = [seed if seed < 5 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(16)]
#: (sequences, states) of random chains
SIZES = ((1, 2), (2, 2), (3, 2), (1, 4), (2, 3))


def binary(p: float, q: float) -> list[list[float]]:
    return [[1 - p, p], [q, 1 - q]]


def regimes(s: int) -> EnvironmentChain:
    """Own chains under a hidden common regime that stays with 0.9."""
    members = [CoupledChain(np.eye(s), binary(p, q)) for p, q in ((0.1, 0.5), (0.5, 0.1))]
    return EnvironmentChain(members, switching=[[0.9, 0.1], [0.1, 0.9]])


def random_case(seed: int, count: int = 2):
    rng = np.random.default_rng(seed)
    s, m = SIZES[seed % len(SIZES)]
    kinds = [KINDS[(seed + n) % len(KINDS)] for n in range(count)]
    members = [random_member(rng, s, m, kind) for kind in kinds]
    return rng, s, m, members, float(rng.choice([0.3, 1.0, 3.0]))


def chains_of(members, direction):
    return [CoupledChain(coupling, transitions, direction=direction) for coupling, transitions in members]


@pytest.mark.parametrize(
    ("direction", "cycle", "expected"),
    [
        ("backward", (0, 1), {1: (0.400180, 0.606472), 2: (0.223834, 0.211122), 3: (0.081287, 0.114612)}),
        ("forward", (1, 0), {1: (0.564128, 0.424432), 2: (0.238018, 0.206059), 3: (0.112966, 0.090250)}),
    ],
)
def test_the_worst_phase_of_a_clock_has_its_reference_value(direction, cycle, expected):
    members = [CoupledChain(PAIR, binary(p, q), direction=direction) for p, q in ((0.3, 0.3), (0.1, 0.4))]
    chain = EnvironmentChain(members, cycle=cycle)
    for age, values in expected.items():
        worst_phase = csdp.leakage(chain, Mean(), ages=age, epsilon_c=1.0)
        assert worst_phase.epsilon == pytest.approx(max(values), abs=6e-7)
        assert worst_phase.phase == max((0, 1), key=lambda h: values[h])


def test_whoever_knows_the_whole_path_is_bounded_by_what_is_given():
    """Long known paths: 0.492314, 0.232714 and 0.043427 for the two sequences together."""
    chain = regimes(2)
    for age, truth in ((1, 0.492314), (2, 0.232714), (4, 0.043427)):
        given = csdp.leakage(chain, Mean(), ages=age, epsilon_c=1.0)
        assert truth <= given.epsilon <= 1.05 * truth
        assert given.environment == "given"
        assert "facts about the environment itself are not protected" in " ".join(given.assumptions)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_clock_is_exact_and_no_bound_lies_below(direction, seed):
    _, s, m, members, epsilon_c = random_case(seed)
    cycle = ((0, 1), (0, 1, 1), (1, 0))[seed % 3]
    kernels = [member_kernel(members[e]) for e in cycle]
    backward = direction == "backward"
    chain = EnvironmentChain(chains_of(members, direction), cycle=cycle)
    try:
        laws = periodic_laws(kernels, backward=backward)
    except ValueError:  # several stationary laws
        with pytest.raises(csdp.errors.NoStationaryLawError):
            chain.stationary(phase=0)
    else:
        assert chain.periodic_with_error[1] < 1e-9
        back = clock_backward_kernels(kernels, backward=backward)
        answers, delta = mean_answers(s, m)
        age, truth = 1 + seed % 3, 0.0
        for phase in range(len(cycle)):
            assert np.allclose(chain.stationary(phase=phase), laws[phase], atol=1e-12)
            steps = [back[(phase - n) % len(cycle)] for n in range(age)]
            truth = max(truth, worst(likelihoods(steps, answers, epsilon_c / delta, age, 1), s, m, laws[phase]))
        exact = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c)
        assert exact.epsilon == pytest.approx(truth, rel=1e-8, abs=1e-12)
        assert exact.epsilon >= truth * (1 - 1e-12)
        names = ["profile", "freshness", "group"]
        names += ["influence"] if backward else ["slice"]
        for name in names:
            bound = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, bound=name)
            assert bound.epsilon >= truth * (1 - 1e-9), name


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_for_a_given_environment_lies_below_any_path(direction, seed):
    rng, s, m, members, epsilon_c = random_case(seed)
    kernels = [member_kernel(member) for member in members]
    chain = EnvironmentChain(chains_of(members, direction), switching=[[0.5, 0.5], [0.5, 0.5]])
    answers, delta = mean_answers(s, m)
    age, truth = 1 + seed % 3, 0.0
    for _ in range(40):
        path = rng.integers(2, size=age + 6) if rng.random() < 0.8 else np.full(age + 6, rng.integers(2))
        if direction == "backward":
            steps, law = [kernels[e] for e in path[:age]], None
        else:  # the present first; a past with any law
            law = rng.dirichlet(np.ones(m**s))
            for e in path[:age:-1]:
                law = law @ kernels[e]
            laws = [law]
            for e in path[age - 1 :: -1] if age else ():
                laws.append(laws[-1] @ kernels[e])
            steps = [reverse(kernels[path[n]], laws[age - n - 1]) for n in range(age)]
            law = laws[-1]
        truth = max(truth, worst(likelihoods(steps, answers, epsilon_c / delta, age, 1), s, m, law))
    names = ["auto", "group"]
    names += ["influence", "exact", "freshness"] if direction == "backward" else ["slice"]
    for name in names:
        bound = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, bound=name)
        assert bound.epsilon >= truth * (1 - 1e-9), name


def test_unequal_ages_and_other_queries_are_exact_under_a_clock():
    members = [CoupledChain(PAIR, binary(p, q)) for p, q in ((0.3, 0.2), (0.1, 0.4))]
    chain = EnvironmentChain(members, cycle=(0, 1))
    whole = [member.kernel() for member in members]
    laws = periodic_laws(whole, backward=False)
    truths = {"mean": 0.0, "max": 0.0}
    for phase in (0, 1):
        mass = np.zeros((4, 2, 2))  # x_t, x1 two steps ago, x2 one step ago
        for old in range(4):
            for mid in range(4):
                prob = laws[phase - 2][old] * whole[phase - 1][old, mid] * whole[phase][mid]
                mass[:, old // 2, mid % 2] += prob
        rows = mass.reshape(4, 4) / mass.reshape(4, 4).sum(axis=1, keepdims=True)
        for query, f, delta in (("mean", [0, 0.5, 0.5, 1], 0.5), ("max", [0, 1, 1, 1], 1.0)):
            logs = np.log(np.exp(-1.5 / delta * np.abs(np.unique(f)[:, None] - np.array(f)[None])) @ rows.T)
            truths[query] = max(truths[query], worst(logs, 2, 2))
    for query, truth in truths.items():
        assert csdp.leakage(chain, query, ages=(2, 1), epsilon_c=1.5).epsilon == pytest.approx(truth, rel=1e-9)
    assert csdp.leakage(chain, Histogram(), ages=1, epsilon_c=1.0).bound == "exact"


def test_questions_that_do_not_fit_the_environment_are_refused():
    members = [CoupledChain(PAIR, binary(p, q)) for p, q in ((0.3, 0.3), (0.1, 0.4))]
    hidden = EnvironmentChain(members, switching=[[0.9, 0.1], [0.1, 0.9]])
    ask = {"ages": 1, "epsilon_c": 1.0}
    for chain, bound in ((hidden, "exact"), (hidden, "profile")):
        with pytest.raises(InputError):
            csdp.leakage(chain, Mean(), bound=bound, **ask)
    back = EnvironmentChain([CoupledChain(PAIR, binary(0.3, 0.3), direction="backward")] * 2, switching=np.eye(2))
    with pytest.raises(InputError, match="'informed'"):
        csdp.leakage(back, Mean(), adversary="uninformed", bound="exact", **ask)
