"""Leakage under environments: by phase of a clock, and for every knowledge of a hidden one, against enumeration."""

import numpy as np
import pytest

import csdp
from csdp import CoupledChain, EnvironmentChain, Histogram, Max, Mean
from csdp.bounds.slice.bound import spread_over_environments
from csdp.errors import InputError
from oracle import (
    clock_backward_kernels,
    hidden_law,
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
def test_phases_of_a_clock_have_their_reference_values(direction, cycle, expected):
    members = [CoupledChain(PAIR, binary(p, q), direction=direction) for p, q in ((0.3, 0.3), (0.1, 0.4))]
    chain = EnvironmentChain(members, cycle=cycle)
    for age, values in expected.items():
        each = [csdp.leakage(chain, Mean(), ages=age, epsilon_c=1.0, phase=h) for h in (0, 1)]
        assert [answer.epsilon for answer in each] == pytest.approx(values, abs=6e-7)
        whole = csdp.leakage(chain, Mean(), ages=age, epsilon_c=1.0)
        assert whole.epsilon == max(answer.epsilon for answer in each)
        assert whole.phase == max((0, 1), key=lambda h: values[h])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("hidden", (0.710140, 0.505816, 0.281706)),
        ("present", (0.578440, 0.357597, 0.191340)),
        ("path", (0.508455, 0.230798, 0.039745)),
    ],
)
def test_a_hidden_regime_has_its_reference_values(environment, expected):
    values = [
        csdp.leakage(regimes(2), Mean(), ages=age, epsilon_c=1.0, environment=environment).epsilon for age in (1, 2, 4)
    ]
    assert values == pytest.approx(expected, abs=6e-7)


def test_three_sequences_under_a_hidden_regime_leak_more_than_a_coupled_chain_says():
    answer = csdp.leakage(regimes(3), Mean(), ages=4, epsilon_c=1.0, environment="hidden")
    assert answer.epsilon == pytest.approx(0.358610, abs=6e-7)
    assert "does not know the environment" in " ".join(answer.assumptions)


def test_whoever_knows_the_whole_path_is_bounded_by_what_is_given_and_not_by_the_window():
    """Long known paths: 0.492314, 0.232714 and 0.043427 for the two sequences together."""
    chain = regimes(2)
    for age, truth in ((1, 0.492314), (2, 0.232714), (4, 0.043427)):
        given = csdp.leakage(chain, Mean(), ages=age, epsilon_c=1.0)
        assert truth <= given.epsilon <= 1.05 * truth
        assert given.environment == "given"
        assert "facts about the environment itself are not protected" in " ".join(given.assumptions)
    window = csdp.leakage(chain, Mean(), ages=2, epsilon_c=1.0, environment="path")
    assert window.epsilon < 0.232714


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_clock_is_exact_at_every_phase_and_no_bound_lies_below(direction, seed):
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
        age = 1 + seed % 3
        for phase in range(len(cycle)):
            assert np.allclose(chain.stationary(phase=phase), laws[phase], atol=1e-12)
            steps = [back[(phase - n) % len(cycle)] for n in range(age)]
            truth = worst(likelihoods(steps, answers, epsilon_c / delta, age, 1), s, m, laws[phase])
            exact = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, phase=phase)
            assert exact.epsilon == pytest.approx(truth, rel=1e-8, abs=1e-12)
            assert exact.epsilon >= truth * (1 - 1e-12)
            names = ["profile", "loose", "freshness", "group"]
            names += ["influence"] if backward else ["lineage", "slice"]
            for name in names:
                bound = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, phase=phase, bound=name)
                assert bound.epsilon >= truth * (1 - 1e-9), name


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", SEEDS[:6])
def test_a_hidden_environment_is_exact_on_the_joint_states(direction, seed):
    rng, s, m, members, epsilon_c = random_case(seed)
    if "deterministic" in (KINDS[seed % 6], KINDS[(seed + 1) % 6]):
        members = [(c, 0.9 * t + 0.1 / m) for c, t in members]
    switching = rng.dirichlet(np.ones(2), size=2)
    kernels = [member_kernel(member) for member in members]
    backward = direction == "backward"
    joint, law = hidden_law(switching, kernels, backward=backward)
    chain = EnvironmentChain(chains_of(members, direction), switching=switching)
    assert np.allclose(chain.joint_law_with_error[0], law, atol=1e-12)
    answers, delta = mean_answers(s, m)
    rate, age = epsilon_c / delta, 1 + seed % 2
    given_joint = np.exp(likelihoods([joint] * age, np.tile(answers, 2), rate, age, 1)).reshape(-1, 2, m**s)
    by_environment = law.reshape(2, -1)
    ignorant = np.log((given_joint * by_environment).sum(axis=1) / by_environment.sum(axis=0))
    truths = {
        "hidden": worst(ignorant, s, m),
        "present": max(worst(np.log(given_joint[:, e]), s, m) for e in (0, 1)),
    }
    for environment, truth in truths.items():
        answer = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, environment=environment)
        assert answer.bound == "exact"
        assert answer.epsilon == pytest.approx(truth, rel=1e-8)
        if not backward:
            swing = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, environment=environment, bound="swing")
            assert swing.epsilon >= truth * (1 - 1e-9)


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
    names += ["influence", "exact", "freshness"] if direction == "backward" else ["lineage", "slice"]
    for name in names:
        bound = csdp.leakage(chain, Mean(), ages=age, epsilon_c=epsilon_c, bound=name)
        assert bound.epsilon >= truth * (1 - 1e-9), name
        assert bound.sound


def test_the_present_environment_alone_does_not_make_up_for_a_path_that_is_not_known():
    """40 own chains, a fair independent environment: true 3.650, known path 1.898, range over e_t alone 1.412."""
    s, epsilon_c = 40, 2.0
    members = [CoupledChain(np.eye(s), binary(p, q)) for p, q in ((0.002, 0.2), (0.2, 0.002))]
    chain = EnvironmentChain(members, switching=[[0.5, 0.5], [0.5, 0.5]])
    truth, by_present = _leakage_of_lumped_regimes(s, epsilon_c)
    assert truth == pytest.approx(3.650, abs=1e-3)
    assert by_present == pytest.approx(1.412, abs=1e-3)
    path = csdp.leakage(chain, Mean(), ages=1, epsilon_c=epsilon_c)
    alone = [CoupledChain([[1.0]], binary(p, q)) for p, q in ((0.002, 0.2), (0.2, 0.002))]
    one = EnvironmentChain(alone, switching=[[0.5, 0.5], [0.5, 0.5]])
    assert path.epsilon == pytest.approx(csdp.leakage(one, Mean(), ages=1, epsilon_c=epsilon_c).epsilon)
    assert 1.898 <= path.epsilon < 1.95
    assert 1.898 + by_present < truth  # what would be too low
    ignorant = csdp.leakage(chain, Mean(), ages=1, epsilon_c=epsilon_c, environment="hidden")
    swing = float(spread_over_environments(chain.given_path(), 64).max())
    assert truth <= ignorant.epsilon <= path.epsilon + swing + 1e-9


def _leakage_of_lumped_regimes(s: int, epsilon_c: float) -> tuple[float, float]:
    """The leakage to the ignorant, from the law of (own state, ones among the others), and the range over e_t."""
    from scipy.stats import binom

    n = s - 1
    kernels = []
    for up, down in ((0.002, 0.2), (0.2, 0.002)):
        one = np.array(binary(up, down))
        counts = np.zeros((s, s))
        for k in range(s):
            stay, rise = binom.pmf(np.arange(s), k, 1 - down), binom.pmf(np.arange(s), n - k, up)
            counts[k] = np.convolve(stay, rise)[:s]
        kernels.append(np.kron(one, counts))
    mean = sum(kernels) / 2
    law = np.linalg.matrix_power(mean, 4096)[0]
    answers = (np.arange(2)[:, None] + np.arange(s)[None, :]).ravel().astype(float)
    back = reverse(mean, law)
    logs = np.log(np.exp(-epsilon_c * np.abs(np.arange(s + 1)[:, None] - answers[None, :])) @ back.T)
    gap = logs.reshape(s + 1, 2, s)
    truth = float(np.abs(gap[:, 0] - gap[:, 1]).max())
    present = np.array([law @ kernel for kernel in kernels]).reshape(2, 2, s)
    odds = np.log(present[:, 1] / present[:, 0])
    return truth, float(np.abs(odds[0] - odds[1]).max())


def test_unequal_ages_and_other_queries_are_exact_at_every_phase():
    members = [CoupledChain(PAIR, binary(p, q)) for p, q in ((0.3, 0.2), (0.1, 0.4))]
    chain = EnvironmentChain(members, cycle=(0, 1))
    whole = [member.kernel() for member in members]
    laws = periodic_laws(whole, backward=False)
    for phase in (0, 1):
        mass = np.zeros((4, 2, 2))  # x_t, x1 two steps ago, x2 one step ago
        for old in range(4):
            for mid in range(4):
                prob = laws[phase - 2][old] * whole[phase - 1][old, mid] * whole[phase][mid]
                mass[:, old // 2, mid % 2] += prob
        rows = mass.reshape(4, 4) / mass.reshape(4, 4).sum(axis=1, keepdims=True)
        for query, f, delta in ((Mean(), [0, 0.5, 0.5, 1], 0.5), (Max(), [0, 1, 1, 1], 1.0)):
            logs = np.log(np.exp(-1.5 / delta * np.abs(np.unique(f)[:, None] - np.array(f)[None])) @ rows.T)
            answer = csdp.leakage(chain, query, ages=(2, 1), epsilon_c=1.5, phase=phase)
            assert answer.epsilon == pytest.approx(worst(logs, 2, 2), rel=1e-9)
    assert csdp.leakage(chain, Histogram(), ages=1, epsilon_c=1.0).bound == "exact"


def test_questions_that_do_not_fit_the_environment_are_refused():
    members = [CoupledChain(PAIR, binary(p, q)) for p, q in ((0.3, 0.3), (0.1, 0.4))]
    clock = EnvironmentChain(members, cycle=(0, 1))
    hidden = EnvironmentChain(members, switching=[[0.9, 0.1], [0.1, 0.9]])
    ask = {"ages": 1, "epsilon_c": 1.0}
    with pytest.raises(InputError, match="phase=0 to 1"):
        csdp.leakage(clock, Mean(), phase=2, **ask)
    with pytest.raises(InputError, match="a clock is public"):
        csdp.leakage(clock, Mean(), environment="hidden", **ask)
    with pytest.raises(InputError, match="not a clock"):
        csdp.leakage(hidden, Mean(), phase=0, **ask)
    with pytest.raises(InputError, match="without environments"):
        csdp.leakage(members[0], Mean(), environment="given", **ask)
    with pytest.raises(InputError, match="use one of given, path, present, hidden"):
        csdp.leakage(hidden, Mean(), environment="all", **ask)
    for chain, bound in ((hidden, "exact"), (hidden, "profile"), (clock, "printed-loose"), (clock, "swing")):
        with pytest.raises(InputError):
            csdp.leakage(chain, Mean(), bound=bound, **ask)
    back = EnvironmentChain([CoupledChain(PAIR, binary(0.3, 0.3), direction="backward")] * 2, switching=np.eye(2))
    with pytest.raises(InputError, match="'informed'"):
        csdp.leakage(back, Mean(), adversary="uninformed", bound="exact", **ask)
