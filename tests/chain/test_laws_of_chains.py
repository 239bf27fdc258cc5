"""Kernels, stationary laws, marginals, simulation and summaries, against the oracle."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import csdp
import oracle as o
from csdp.chain.stationary import closed_classes, eliminate, mixing_time
from csdp.errors import CsdpError, InputError, NoStationaryLawError, TooLargeError
from laws.reference import Reference
from laws.strategies import System, law_settings, systems

FLIP = [[0.7, 0.3], [0.3, 0.7]]
SLOW = [[0.99, 0.01], [0.01, 0.99]]
PAIR = [[0.75, 0.25], [0.25, 0.75]]


def ring(s, transitions=FLIP, **more):
    eye = np.eye(s)
    return csdp.CoupledChain(
        0.8 * eye + 0.1 * (np.roll(eye, 1, axis=1) + np.roll(eye, -1, axis=1)), transitions, **more
    )


def giant(s, transitions=FLIP, degree=8):
    target = np.repeat(np.arange(s), degree + 1)
    source = (target + np.tile(np.arange(degree + 1), s)) % s
    weight = np.tile([0.6, *[0.4 / degree] * degree], s)
    return csdp.CoupledChain(csr_array((weight, (target, source)), shape=(s, s)), transitions)


# ---------------------------------------------------------------- kernel and stationary law


@law_settings(100)
@given(systems(joint=False))
def test_kernel_and_positivity(system: System):
    chain, want = system.model, Reference(system).kernel
    assert chain.kernel() == pytest.approx(want, rel=1e-12, abs=0)
    assert chain.is_positive == bool((want > 0).all())
    assert chain.size == len(want)
    h = np.random.default_rng(0).random((chain.size, 3))
    assert chain.step.push(h) == pytest.approx(want.T @ h, rel=1e-12)


@law_settings(120)
@given(systems())
def test_stationary_law(system: System):
    reference = Reference(system)
    law = system.model.stationary()
    assert law == pytest.approx(o.stationary(reference.kernel), rel=1e-10, abs=0)  # rare states too
    assert law.sum() == pytest.approx(1, rel=1e-14)


@law_settings(60)
@given(systems(row_kinds=("smooth", "uniform", "zeros")))
def test_marginals_are_those_of_the_stationary_law(system: System):
    law = o.stationary(Reference(system).kernel).reshape((system.m,) * system.s)
    want = [law.sum(axis=tuple(j for j in range(system.s) if j != i)) for i in range(system.s)]
    assert system.model.marginals() == pytest.approx(np.array(want), rel=1e-9, abs=1e-13)


def test_stationary_law_of_many_states_by_iteration():
    """More than 512 joint states: iterated, not eliminated; every entry accurate."""
    rng = np.random.default_rng(2)
    for transitions in (FLIP, SLOW, [[0.999, 0.001], [0.2, 0.8]]):
        chain = csdp.CoupledChain(rng.dirichlet(np.ones(10), 10), transitions)
        law, error = chain.stationary_with_error
        want = eliminate(chain.kernel())
        assert np.abs(law / want - 1).max() < 1e-9
        assert np.abs(law / want - 1).max() <= error + 8 * 1024 * 2.0**-53
        assert error < 1e-6


@pytest.mark.parametrize("flip", [0.3, 0.02, 0.001])
def test_the_error_of_an_iterated_law_covers_the_rounding_of_a_step(flip):
    """Changes that are nothing but rounding may grow from one step to the next: no rate, and no error below 0."""
    chain = csdp.CoupledChain(np.roll(np.eye(10), 1, axis=1), [[1 - flip, flip], [2 * flip, 1 - 2 * flip]])
    law, error = chain.stationary_with_error
    ones = np.array([number.bit_count() for number in range(1024)])
    assert law == pytest.approx((2 / 3) ** 10 / 2.0**ones, rel=1e-12)  # each follows another: independent
    assert error >= 2 * chain.step.depth * 2.0**-53


@pytest.mark.parametrize("s", [1, 2, 3])
def test_elimination_counts_eight_roundings_for_every_state(s):
    """The factor of Grassmann, Taksar and Heyman's relative error, in units of 2**-53: certificates add it."""
    alone = csdp.CoupledChain([[1.0]], np.full((2**s, 2**s), 0.5**s))
    assert alone.stationary_with_error[1] == 8 * 2**s * 2.0**-53


def test_closed_classes():
    kernel = np.array([[1, 0, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=float)
    assert [c.tolist() for c in closed_classes(kernel)] == [[0], [2, 3]]
    with pytest.raises(NoStationaryLawError, match="2 closed classes"):
        csdp.JointChain(kernel, states=2, sequences=2).stationary()
    assert csdp.JointChain([[0, 1], [1, 0]], states=2, sequences=1).stationary().tolist() == [0.5, 0.5]
    assert csdp.JointChain([[0.5, 0.5], [0, 1]], states=2, sequences=1).stationary().tolist() == [0, 1]


def test_zeros_in_many_states_cannot_be_checked():
    chain = ring(13, [[0.5, 0.5], [0.0, 1.0]])
    with pytest.raises(NoStationaryLawError, match="cannot be checked; smooth the transitions"):
        chain.stationary()
    with pytest.raises(NoStationaryLawError, match="no single stationary law"):
        csdp.CoupledChain(np.eye(2), np.eye(2)).marginals()


def test_too_large_for_a_kernel_or_a_joint_law():
    with pytest.raises(TooLargeError, match=r"kernel: 2\*\*13 joint states; at most 4,096"):
        ring(13).kernel()
    for chain in (ring(40), giant(20_000)):  # the second has more joint states than a float can hold
        for ask in (chain.stationary, chain.kernel, lambda c=chain: c.step):
            with pytest.raises(TooLargeError) as refused:
                ask()
            assert refused.value.needed > refused.value.limit


# ---------------------------------------------------------------- marginals


@law_settings(60)
@given(systems(joint=False), st.integers(0, 5))
def test_evolve_follows_the_joint_law(system: System, steps):
    chain, kernel = system.model, Reference(system).kernel
    rng = np.random.default_rng(0)
    margins = rng.dirichlet(np.ones(system.m), system.s)
    joint = np.ones(1)
    for row in margins:
        joint = np.outer(joint, row).ravel()
    law = (joint @ np.linalg.matrix_power(kernel, steps)).reshape((system.m,) * system.s)
    want = [law.sum(axis=tuple(j for j in range(system.s) if j != i)) for i in range(system.s)]
    assert chain.evolve(margins, steps) == pytest.approx(np.array(want), rel=1e-10, abs=1e-14)
    flat = margins.ravel()
    for _ in range(steps):
        flat = chain.q_matrix() @ flat
    assert flat == pytest.approx(np.array(want).ravel(), rel=1e-10, abs=1e-14)


# ---------------------------------------------------------------- components and subchains


def test_components_and_subchains():
    coupling = np.zeros((5, 5))
    coupling[[0, 2], [2, 0]] = 1.0
    coupling[1, 1] = 1.0
    coupling[3] = [0, 0, 0, 0.5, 0.5]
    coupling[4, 4] = 1.0
    values = np.arange(10).reshape(5, 2)
    chain = csdp.CoupledChain(coupling, FLIP, values=values, names=list("abcde"))
    assert chain.components() == [(0, 2), (1,), (3, 4)]
    part = chain.subchain([4, 3])
    assert part.names == ("d", "e")
    assert part.value_table.tolist() == [[6, 7], [8, 9]]
    assert part.sparse_coupling.toarray().tolist() == [[0.5, 0.5], [0, 1]]
    assert chain.subchain([4]).names == ("e",)  # e follows nobody else
    assert chain.subchain(range(5)).kernel().tolist() == chain.kernel().tolist()
    with pytest.raises(InputError, match="subchain: the chosen sequences follow 'e'; take whole components"):
        chain.subchain([3])
    for members in ([], [-1], [5], [0, 9]):
        with pytest.raises(InputError, match="subchain: give sequence numbers between 0 and 4"):
            chain.subchain(members)


# ---------------------------------------------------------------- simulation


@pytest.mark.parametrize(
    "chain",
    [
        csdp.CoupledChain(PAIR, FLIP),
        csdp.CoupledChain(PAIR, [[[[0.9, 0.1], [0.4, 0.6]], FLIP], [FLIP, [[0.2, 0.8], [0.5, 0.5]]]]),
        csdp.CoupledChain([[0.5, 0.5], [0.1, 0.9]], [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]),
        csdp.JointChain(np.random.default_rng(4).dirichlet(np.ones(4), 4), states=2, sequences=2),
    ],
)
def test_simulation_follows_the_law(chain):
    steps = 40_000
    path = chain.simulate(steps, seed=7)
    assert path.shape == (steps, 2)
    assert path.dtype == np.int8
    assert path.min() >= 0
    assert path.max() < chain.states
    number = path @ np.array([chain.states, 1])
    seen = np.bincount(number, minlength=chain.size) / steps
    assert seen == pytest.approx(chain.stationary(), abs=0.02)
    moves = np.zeros((chain.size, chain.size))
    np.add.at(moves, (number[:-1], number[1:]), 1.0)
    assert moves / moves.sum(axis=1, keepdims=True) == pytest.approx(chain.kernel(), abs=0.04)


# ---------------------------------------------------------------- mixing


def test_how_fast_the_papers_chain_mixes():
    chain = csdp.CoupledChain(PAIR, FLIP)
    assert chain.rate() == pytest.approx(0.4)
    assert chain.marginals() == pytest.approx(np.full((2, 2), 0.5))
    parts = csdp.CoupledChain(np.diag([1.0, 0, 0, 1.0]) + np.diag([0, 1.0, 0], 1) + np.diag([0, 1.0, 0], -1), FLIP)
    assert sorted(map(len, parts.components())) == [1, 1, 2]


@pytest.mark.parametrize(
    ("model", "mixing"),
    [
        (csdp.CoupledChain([[1.0]], [[0, 1], [1, 0]]), math.inf),  # periodic
        (csdp.CoupledChain([[1.0]], np.eye(2)), math.inf),  # reducible
        (csdp.CoupledChain([[1.0]], [[0.5, 0.5], [0, 1]]), 2),  # transient state
        (csdp.CoupledChain([[1.0]], [[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]]), 4),
        (csdp.JointChain(np.full((4, 4), 0.25), states=2, sequences=2), 1),
    ],
)
def test_mixing_times(model, mixing):
    assert mixing_time(model.rate()) == mixing


def test_a_law_that_does_not_settle_is_said_so(monkeypatch):
    from csdp.chain import stationary

    monkeypatch.setattr(stationary, "_leap", lambda step, law: law)
    chain = ring(10, [[1 - 1e-3, 1e-3], [2e-3, 1 - 2e-3]])
    monkeypatch.setattr(stationary, "range", lambda *_: range(1, 30), raising=False)
    with pytest.raises(CsdpError, match=r"did not settle .* smooth the transitions"):
        chain.stationary()


def test_components_that_are_alike_are_found_once():
    """Same couplings, same matrices, same labels, in order: one of each kind, with its copies."""
    block = np.array([[0.8, 0.2], [0.5, 0.5]])
    coupling = np.kron(np.eye(4), block)
    chain = csdp.CoupledChain(coupling, FLIP)
    assert chain.distinct_components(np.zeros(8, dtype=int)) == [((0, 1), 4)]
    assert chain.distinct_components(np.array([0, 1, 0, 1, 1, 0, 0, 1])) == [((0, 1), 3), ((4, 5), 1)]
    other = coupling.copy()
    other[6, 6:] = [0.7, 0.3]
    assert csdp.CoupledChain(other, FLIP).distinct_components(np.zeros(8, dtype=int)) == [((0, 1), 3), ((6, 7), 1)]
    swapped = coupling.copy()
    swapped[6:, 6:] = block[::-1, ::-1]
    assert csdp.CoupledChain(swapped, FLIP).distinct_components(np.zeros(8, dtype=int)) == [((0, 1), 3), ((6, 7), 1)]
    single = csdp.CoupledChain(np.eye(3), np.array([[FLIP] * 3, [SLOW] * 3, [FLIP] * 3]))
    assert sorted(single.distinct_components(np.zeros(3, dtype=int))) == [((0,), 2), ((1,), 1)]
    assert csdp.JointChain(np.eye(2), states=2, sequences=1).distinct_components(np.zeros(1, dtype=int)) == [((0,), 1)]
