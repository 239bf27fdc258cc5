"""Backward chains and `influence`: against brute force over all output histories, and the values of the theory page."""

import itertools
import math
import os

import numpy as np
import pytest

import csdp
from csdp.bounds.influence import InfluenceRule, costs_by_age, influence_of_release, influence_rule
from csdp.errors import InputError, TooLargeError
from csdp.paper import spectral_factor
from csdp.query import tabulate
from oracle import Output, World, joint_kernel, stationary

#: Rounding of brute force itself.
ROUNDING = 1e-12
KINDS = ("smooth", "skewed", "deterministic", "zeros", "persistent", "hub")


def ring(size, own, p, q, direction="backward"):
    other = (1 - own) / 2
    couplings = {(i, (i + d) % size): w for i in range(size) for d, w in ((0, own), (1, other), (size - 1, other))}
    return csdp.CoupledChain(couplings, [[1 - p, p], [q, 1 - q]], direction=direction)


def random_system(random, s, m):
    """Coupling and transitions of some awkward kind."""
    kind = random.choice(KINDS)
    coupling = random.dirichlet(np.full(s, 0.7), size=s)
    if kind == "hub":
        coupling = np.full((s, s), 1e-3)
        coupling[:, 0] += 1
    coupling = coupling / coupling.sum(axis=1, keepdims=True)
    rows = random.dirichlet(np.full(m, {"skewed": 0.2}.get(kind, 1.0)), size=(s, s, m))
    if kind == "deterministic":
        rows = np.eye(m)[random.integers(m, size=(s, s, m))]
    if kind == "zeros":
        rows = rows * (random.random(rows.shape) < 0.6) + 1e-300
    if kind == "persistent":
        rows = 0.05 * rows + 0.95 * np.eye(m)
    return coupling, rows / rows.sum(axis=-1, keepdims=True)


def past_given_present(coupling, transitions):
    """R and the presents that can occur."""
    kernel = joint_kernel(coupling, transitions)
    try:
        return kernel, stationary(kernel) > 0
    except ValueError:
        return kernel, np.ones(len(kernel), dtype=bool)


def history_truth(backward, seen, s, m, *, f, rate, ages, releases):
    """Brute force, back in time: the worst log ratio over all histories of presents that differ in one sequence."""
    outputs = [Output(tuple(n + age for age in ages), np.asarray(f, float), rate) for n in range(releases)]
    return World(backward, s, m, seen / seen.sum()).told(outputs, 0, "informed", begin=0)


def continual(chain, query, *, ages, epsilon_c, releases):
    """The influence recursion with a release at every tick, at the present of the newest."""
    rule, asked = InfluenceRule(chain), tabulate(query, chain)
    ages = np.broadcast_to(ages, chain.sequences).tolist()
    costs = costs_by_age(asked, range(chain.sequences), ages=ages, epsilon_c=epsilon_c)
    state = np.zeros((chain.sequences, chain.states, chain.states))
    for depth in range(releases - 1 + max(ages), -1, -1):  # slices, oldest first
        for n in range(releases):
            if depth - n in costs:
                state = state + costs[depth - n]
        state = rule.advance(state) if depth else state
    return float(state.max())


QUERIES = {
    "mean": csdp.Mean(),
    "sum": csdp.Sum(),
    "max": csdp.Max(),
    "count": csdp.Count(0),
    "histogram": csdp.Histogram(),
    "identity": csdp.Identity(),
    "custom": csdp.Custom(lambda v: v[0] * v[-1] + v[0], name="product"),
}


def answers(query, s, m):
    grid = np.array(list(itertools.product(range(m), repeat=s)))
    return query.evaluate(grid, np.broadcast_to(np.arange(m, dtype=float), (s, m)))


def compare_with_truth(seed, *, query=None):
    """(recursion, truth) of one random history; None where the query never changes."""
    random = np.random.default_rng(seed)
    s, m = [(1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (3, 2)][random.integers(6)]
    releases = int(random.integers(1, 4 if m**s <= 4 else 3))
    ages = (random.integers(0, 3, size=s) if random.random() < 0.5 else np.full(s, random.integers(0, 4))).tolist()
    while (m**s) ** (releases - 1 + max(ages)) > 40_000:
        ages = [max(age - 1, 0) for age in ages]
        releases = max(1, releases - 1)
    coupling, transitions = random_system(random, s, m)
    chain = csdp.CoupledChain(coupling, transitions, direction="backward")
    chosen = QUERIES[query or random.choice(list(QUERIES))]
    epsilon_c = float(random.choice([0.1, 0.5, 1.0, 4.0]))
    table = chain.value_table
    try:
        scale = chosen.sensitivity(1, table)
    except InputError:
        return None
    if not scale > 0:
        return None
    f = answers(chosen, s, m)
    backward, seen = past_given_present(coupling, transitions)
    truth = history_truth(backward, seen, s, m, f=f, rate=epsilon_c / scale, ages=ages, releases=releases)
    return continual(chain, chosen, ages=ages, epsilon_c=epsilon_c, releases=releases), truth


@pytest.mark.timeout(3600)
def test_it_is_never_below_brute_force_over_all_output_histories():
    count = 20_000 if os.environ.get("CSDP_FULL") else 150
    pairs = [pair for pair in map(compare_with_truth, range(count)) if pair is not None]
    assert len(pairs) > 0.8 * count
    assert all(bound >= truth - ROUNDING for bound, truth in pairs)
    assert sum(truth > 0.01 for _, truth in pairs) > 0.5 * count


@pytest.mark.parametrize(
    ("own", "p", "q", "age", "epsilon_c", "after", "forever"),
    [
        (0.8, 0.3, 0.3, 1, 0.1, (0.040244, 0.056555, 0.065875), 0.067721),
        (0.8, 0.3, 0.3, 0, 0.5, (0.500000, 0.703200, 0.816586), 0.836739),
        (0.8, 0.1, 0.1, 1, 0.1, (0.081068, 0.148298, 0.253532), 0.665093),
        (0.8, 0.1, 0.1, 3, 0.1, (0.052909, 0.098326, 0.172160), 0.490143),
        (0.9, 0.05, 0.2, 1, 0.1, (0.076068, 0.135327, 0.220015), 0.400911),
        (0.9, 0.05, 0.2, 3, 0.5, (0.247715, 0.500817, 1.024529), 2.358253),
    ],
)
def test_rings_have_the_values_of_the_theory_page(own, p, q, age, epsilon_c, after, forever):
    chain = ring(6, own, p, q)
    told = [continual(chain, csdp.Mean(), ages=age, epsilon_c=epsilon_c, releases=n) for n in (1, 2, 4)]
    assert told == pytest.approx(after, abs=6e-7)
    assert continual(chain, csdp.Mean(), ages=age, epsilon_c=epsilon_c, releases=300) == pytest.approx(
        forever, rel=2e-5
    )


def test_three_states_have_the_values_of_the_theory_page():
    usual = [[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
    cross = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]]
    chain = csdp.CoupledChain([[0.6, 0.4], [0.3, 0.7]], [[usual, cross], [usual, usual]], direction="backward")
    for age, expected in ((1, (0.343352, 0.603377, 0.950686, 1.548159)), (2, (0.229559, 0.414413, 0.674990, 1.131187))):
        told = [continual(chain, csdp.Mean(), ages=age, epsilon_c=0.5, releases=n) for n in (1, 2, 4, 400)]
        assert told == pytest.approx(expected, abs=6e-7)


@pytest.mark.parametrize("states", [3, 9])
def test_states_that_never_occur_change_nothing(states):
    """By sets of states, by prefixes of them, and for a family of one chain."""
    usual = ring(4, 0.8, 0.3, 0.3)
    rows = np.zeros((states, states))
    rows[:, :2], rows[1, :2] = [0.7, 0.3], [0.3, 0.7]
    wide = csdp.CoupledChain(usual.coupling, rows, direction="backward")
    for age, releases in ((1, 1), (1, 4), (2, 2)):
        asked = {"ages": age, "epsilon_c": 0.5, "releases": releases}
        expected = continual(usual, csdp.Count(1), **asked)
        assert continual(wide, csdp.Count(1), **asked) == pytest.approx(expected, rel=1e-10)
    models = (wide, csdp.InfluenceGraph.around(wide, 0)) if states == 3 else (wide,)
    for model, age in itertools.product(models, (1, 3)):
        cap = InfluenceRule(usual).cap(age).max()
        assert influence_rule(model).cap(age).max() == pytest.approx(cap, rel=1e-10)


def test_one_binary_sequence_is_exact():
    chain = csdp.CoupledChain([[1.0]], [[0.8, 0.2], [0.3, 0.7]], direction="backward")
    backward, seen = past_given_present([[1.0]], [[[[0.8, 0.2], [0.3, 0.7]]]])
    f = answers(csdp.Mean(), 1, 2)
    for age, releases in ((0, 3), (1, 1), (1, 4), (3, 2)):
        truth = history_truth(backward, seen, 1, 2, f=f, rate=1.0, ages=[age], releases=releases)
        assert continual(chain, csdp.Mean(), ages=age, epsilon_c=1.0, releases=releases) == pytest.approx(truth)


def test_sets_of_states_need_their_own_base():
    """Prefixes of the likelihood ratio with the true base of only those sets are unsound: 0.0589 against 0.2153."""
    own = [[0.1, 0.05, 0.85], [0.5, 0.3, 0.2], [0.1, 0.05, 0.85]]
    always = [[0, 1, 0]] * 3
    coupling, transitions = [[0.1, 0.9], [0.0, 1.0]], [[own, always], [own, always]]
    chain = csdp.CoupledChain(coupling, transitions, direction="backward")
    backward = joint_kernel(coupling, transitions)
    f = answers(csdp.Count(0), 2, 3)
    truth = history_truth(backward, np.ones(9, dtype=bool), 2, 3, f=f, rate=2.0, ages=[1, 1], releases=1)
    assert truth == pytest.approx(0.2153, abs=5e-5)
    assert continual(chain, csdp.Count(0), ages=1, epsilon_c=2.0, releases=1) >= truth


def test_unequal_ages_are_charged_where_they_are_read():
    """The smallest age for all is unsound: 1.0 charged, 1.977 true."""
    coupling = [[1.0, 0.0], [1.0, 0.0]]
    matrix = [[0.99, 0.01], [0.01, 0.99]]
    chain = csdp.CoupledChain(coupling, matrix, direction="backward")
    backward = joint_kernel(coupling, np.broadcast_to(matrix, (2, 2, 2, 2)))
    f = answers(csdp.Sum(), 2, 2)
    truth = history_truth(backward, np.ones(4, dtype=bool), 2, 2, f=f, rate=1.0, ages=[0, 1], releases=1)
    assert truth == pytest.approx(1.977, abs=5e-4)
    assert csdp.leakage(chain, csdp.Sum(), ages=[0, 1], epsilon_c=1.0, bound="influence").epsilon >= truth


def test_many_states_are_bounded_by_prefixes_with_single_bases():
    """Nine states and more: never below the rule that looks at every set."""
    random = np.random.default_rng(3)
    coupling = random.dirichlet(np.ones(2), size=2)
    few = random.dirichlet(np.full(4, 0.5), size=(2, 2, 4))
    # Each of the four states is split into three alike: the same process, twelve states.
    many = np.repeat(np.repeat(few / 3.0, 3, axis=2), 3, axis=3)
    values = np.repeat(np.arange(4.0), 3)
    told = []
    for rows, numbers in ((few, np.arange(4.0)), (many, values)):
        chain = csdp.CoupledChain(coupling, rows, values=numbers, direction="backward")
        told.append([continual(chain, csdp.Mean(), ages=age, epsilon_c=1.0, releases=2) for age in (0, 1, 2)])
    assert all(wide >= sharp * (1 - 1e-12) for sharp, wide in zip(*told, strict=True))
    assert all(wide <= 2.0 * sharp for sharp, wide in zip(*told, strict=True))


def test_no_number_of_releases_passes_the_cap():
    chain = ring(5, 0.8, 0.1, 0.2)
    caps = [float(InfluenceRule(chain).cap(age).max()) for age in (1, 2, 3)]
    assert caps == sorted(caps, reverse=True)
    for age, cap in zip((1, 2, 3), caps, strict=True):
        assert continual(chain, csdp.Mean(), ages=age, epsilon_c=50.0, releases=40) <= cap


def test_spectral_is_never_below_influence_and_has_the_values_of_the_theory_page():
    for own, p, expected in ((0.8, 0.3, (0.1707, 0.0707, 0.01213)), (0.95, 0.2, (0.2607, 0.1607, 0.0610))):
        levels = [0.1 * spectral_factor(ring(7, own, p, p), age, for_ever=True) for age in (0, 1, 3)]
        assert levels == pytest.approx(expected, abs=6e-5)
    random = np.random.default_rng(5)
    for _ in range(60):
        s, m = [(1, 3), (2, 2), (2, 4), (4, 2)][random.integers(4)]
        chain = csdp.CoupledChain(*random_system(random, s, m), direction="backward")
        age, level = int(random.integers(0, 4)), float(random.choice([0.1, 1.0, 4.0]))
        one = continual(chain, csdp.Identity(), ages=age, epsilon_c=level, releases=1)
        assert spectral_factor(chain, age) * level >= one * (1 - 1e-12)
        many = continual(chain, csdp.Identity(), ages=age, epsilon_c=level, releases=30)
        assert spectral_factor(chain, age, for_ever=True) * level >= many * (1 - 1e-12)
    still = csdp.CoupledChain([[1.0]], [[1, 0], [0, 1]], direction="backward")
    assert math.isinf(spectral_factor(still, 1, for_ever=True))


def test_giant_chains_are_bounded_in_one_pass():
    for size in (50, 3000):
        told = csdp.leakage(ring(size, 0.8, 0.3, 0.3), csdp.Mean(), ages=1, epsilon_c=0.1)
        assert (told.bound, told.epsilon) == ("influence", pytest.approx(0.040244, abs=5e-7))


def test_what_it_does_not_hold_for_is_refused():
    chain = ring(3, 0.8, 0.3, 0.2)
    with pytest.raises(InputError, match=r"slice: needs .* direction='forward'.*a backward chain given"):
        csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=1.0, bound="slice")
    with pytest.raises(InputError, match="influence: needs a CoupledChain with direction='backward'"):
        csdp.leakage(ring(3, 0.8, 0.3, 0.2, "forward"), csdp.Mean(), ages=1, epsilon_c=1.0, bound="influence")
    with pytest.raises(InputError, match="'informed' only"):
        csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=1.0, bound="influence", adversary="uninformed")
    many = csdp.CoupledChain([[1.0]], np.full((33, 33), 1 / 33), direction="backward")
    with pytest.raises(TooLargeError, match="at most 32"):
        influence_of_release(many, {1: np.zeros((1, 33, 33))})


def test_slice_is_false_for_backward_chains():
    """Three sequences whose previous states all copy the first: 6.14 true where slice would say 4.394."""
    coupling, matrix = [[1.0, 0, 0]] * 3, [[0.9, 0.1], [0.1, 0.9]]
    chain = csdp.CoupledChain(coupling, matrix, direction="backward")
    assert csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=4.0).epsilon == pytest.approx(6.140, abs=5e-4)
    forward = csdp.CoupledChain(coupling, matrix)
    assert csdp.leakage(forward, csdp.Mean(), ages=1, epsilon_c=4.0, bound="slice").epsilon == pytest.approx(
        4.394, abs=5e-4
    )


def copies_in_a_circle(random, s, m, copies):
    """A random system, several times, each sequence following its own copy and the next one."""
    coupling, transitions = random_system(random, s, m)
    coupling[random.random((s, s)) < 0.3] = 0.0
    coupling += np.eye(s) * (coupling.sum(axis=1) == 0)
    coupling /= coupling.sum(axis=1, keepdims=True)
    couplings, tables = {}, {}
    for copy, j, k in itertools.product(range(copies), range(s), range(s)):
        for ahead, share in ((0, 0.75), (1, 0.25)):
            edge = (copy * s + j, (copy + ahead) % copies * s + k)
            if coupling[j, k] > 0:
                couplings[edge], tables[edge] = share * coupling[j, k], transitions[j, k]
    return csdp.CoupledChain(couplings, tables, direction="backward")


@pytest.mark.parametrize("states", [2, 3, 9])
@pytest.mark.parametrize("seed", range(8))
def test_one_sequence_of_each_kind_stands_for_all(states, seed):
    random = np.random.default_rng([seed, states])
    s, copies = int(random.integers(1, 4)), int(random.integers(4, 8))
    rule = InfluenceRule(copies_in_a_circle(random, s, states, copies))
    assert rule.kinds is not None
    assert len(rule.kinds[0]) <= s
    per_kind = random.random((s, states, states)) * (1 - np.eye(states))
    alike = np.tile(per_kind, (copies, 1, 1))[rule.kinds[0]][rule.kinds[1]]
    one_by_one = alike
    for _ in range(3):
        one_by_one = rule._advance(one_by_one, 1)
    reduced = rule.advance(alike, 3)
    assert (reduced >= one_by_one * (1 - 1e-12)).all()
    np.testing.assert_allclose(reduced, one_by_one, rtol=1e-9)
