"""Laws of leakage on random chains, against brute force that shares no code with the library."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import csdp
import oracle as o
from csdp import paper
from csdp.errors import NoStationaryLawError
from laws.reference import Reference
from laws.strategies import SIZES, System, law_settings, systems
from oracle import precise_leakage

#: The oracle's own rounding: its laws are products of matrices, so logs of their ratios are good to about this.
NOISE = 1e-12
ABOVE = 1e-8
SMALL = tuple(size for size in SIZES if size[1] ** size[0] <= 9)


def at_least(got: float, truth: float, noise: float = NOISE) -> None:
    """Sound: never below the truth."""
    assert not math.isnan(got)
    assert got > 0
    assert got >= truth * (1 - 1e-12) - noise


def equals(got: float, truth: float, noise: float = NOISE) -> None:
    """Sound, and sharp."""
    at_least(got, truth, noise)
    assert got <= truth * (1 + ABOVE) + noise


def not_above(small: float, large: float, noise: float = NOISE) -> None:
    """Order of two bounds; each is exact up to rounding."""
    assert small <= large * (1 + ABOVE) + noise


def useful(system: System) -> Reference:
    """The reference of a system whose query can change with one record."""
    reference = Reference(system)
    assume(reference.delta_f > 0)
    return reference


# ---------------------------------------------------------------- against brute force


@law_settings(700)
@given(systems())
def test_exact_equals_brute_force_on_connected_chains_and_is_never_below(system):
    reference = useful(system)
    answer = system.leakage("exact")
    assert answer.bound == "exact"
    at_least(answer.epsilon, reference.exact)
    if len(reference.components) == 1:
        equals(answer.epsilon, reference.exact)


@law_settings(120)
@given(systems(joint=True, row_kinds=("smooth", "skewed", "zeros", "deterministic")))
def test_exact_equals_brute_force_on_joint_chains(system):
    equals(system.leakage("exact").epsilon, useful(system).exact)


@pytest.mark.parametrize("bound", ["profile", "freshness"])
@law_settings(150)
@given(system=systems())
def test_each_bound_equals_the_oracle(bound, system):
    reference = useful(system)
    equals(system.leakage(bound).epsilon, reference.bound(bound))


@law_settings(100)
@given(systems(joint=False, ages=(1, 1)))
def test_slice_is_exact_one_step_after_the_past(system):
    equals(system.leakage("slice").epsilon, useful(system).bound("one step"))


@law_settings(40)
@given(systems(sizes=SMALL, joint=False, ages=(1, 3), common_age=True, adversaries=("informed",)))
def test_the_printed_formulas_are_those_of_the_paper(system):
    reference = useful(system)
    assume(len(reference.components) == 1)
    B, law = reference.aged
    assume((law > 0).all())
    pairs = o.neighbour_pairs(system.s, system.m, law)
    degree = paper.correlation_degree(system.model)
    ratio = o.sensitivity(reference.fvals, system.s, system.m, degree) / reference.delta_f
    asked = {"ages": system.ages, "epsilon_c": system.epsilon_c}
    printed = paper.printed_loose(system.model, system.asked, **asked)
    assert printed == pytest.approx(o.printed_loose(B, pairs, ratio * system.epsilon_c), rel=1e-8, abs=NOISE)
    expected = o.printed_tight(B, law, system.s, system.m, system.epsilon_c)
    assert paper.printed_tight(system.model, system.asked, **asked) == pytest.approx(expected, rel=1e-8, abs=1e-9)


@law_settings(80)
@given(systems(adversaries=("informed",)))
def test_loose_is_the_theorem_before_its_wrong_step(system):
    reference = useful(system)
    noise = NOISE * math.exp(min(max(map(reference.alpha, reference.components)), 60.0))
    loose = paper.loose(system.model, system.asked, ages=system.ages, epsilon_c=system.epsilon_c)
    equals(loose, reference.bound("loose"), noise)
    not_above(system.leakage("profile").epsilon, loose)
    not_above(loose, system.leakage("group").epsilon, noise)


@law_settings(200)
@given(
    st.floats(0.02, 0.98),
    st.floats(0.02, 0.98),
    st.sampled_from([0.5, 0.6, 0.75, 0.9, 1.0]),
    st.integers(1, 60),
    st.sampled_from([1e-3, 0.5, 1.0, 5.0, 50.0]),
    st.sampled_from([1, 2]),
)
def test_tiny_leakages_keep_twelve_digits_on_the_safe_side(p, q, own, age, epsilon_c, s):
    """Against 60 decimal digits: never below by more than 1e-12, never above by more than 1e-8, however small."""
    transitions = np.array([[1 - p, p], [q, 1 - q]])
    coupling = np.array([[1.0]]) if s == 1 else np.array([[own, 1 - own], [1 - own, own]])
    assume(s == 1 or own < 1)
    truth = precise_leakage(
        coupling, transitions, fvals=[0, 1] if s == 1 else [0, 1, 1, 2], delta_f=1, age=age, epsilon_c=epsilon_c
    )
    assume(truth > 1e-45)  # 60 digits hold this much
    got = csdp.leakage(csdp.CoupledChain(coupling, transitions), csdp.Sum(), ages=age, epsilon_c=epsilon_c).epsilon
    assert truth * (1 - 1e-12) <= got <= truth * (1 + 1e-8)


# ---------------------------------------------------------------- order


# ---------------------------------------------------------------- the witness


@law_settings(100)
@given(systems())
def test_the_witness_attains_the_leakage(system):
    reference = useful(system)
    answer = system.leakage("exact")
    assume(len(reference.components) == 1 and 1e-6 < answer.epsilon < math.inf)
    witness = answer.witness
    assert witness is not None
    names = list(system.model.names)
    secret = names.index(witness.sequence)
    known = {names.index(name): value for name, value in witness.others.items()}

    def row(present: float) -> np.ndarray:
        B, law = reference.aged
        fixed = known | {secret: present}
        match = [
            n
            for n, x in enumerate(o.snapshots(system.s, system.m))
            if law[n] > 0 and all(system.values[i, x[i]] == value for i, value in fixed.items())
        ]
        mass = (law[match, None] * B[match]).sum(axis=0)
        return mass / mass.sum()

    rows = np.array([row(witness.present), row(witness.alternative)])
    loglik = o.log_likelihood(rows, reference.fvals, [witness.output], system.epsilon_c, reference.delta_f)
    assert loglik[0, 0] - loglik[1, 0] == pytest.approx(answer.epsilon, rel=1e-7, abs=1e-11)


# ---------------------------------------------------------------- symmetries


@law_settings(60)
@given(
    systems(
        sizes=((2, 2), (2, 3), (3, 2), (4, 2)),
        couplings=("identity",),
        joint=False,
        common_age=True,
        queries=("mean", "sum", "count", "histogram", "identity"),
        row_kinds=("smooth", "skewed", "uniform"),
        table="default",
    )
)
def test_independent_sequences_give_the_one_sequence_value(system):
    together = system.leakage("exact").epsilon
    transitions = system.transitions
    alone = []
    for i in range(system.s):
        matrix = transitions if transitions.ndim == 2 else transitions[i, i]
        chain = csdp.CoupledChain([[1.0]], matrix, values=system.values[i])
        query = system.asked if system.query != "mean" else csdp.Sum()
        alone.append(csdp.leakage(chain, query, ages=system.ages[0], epsilon_c=system.epsilon_c).epsilon)
    assert together == pytest.approx(max(alone), rel=ABOVE, abs=NOISE)


# ---------------------------------------------------------------- monotone


@law_settings(60)
@given(systems())
def test_monotone_in_epsilon_c(system):
    useful(system)
    for bound in ("exact", "profile", "group"):
        got = [system.leakage(bound, epsilon_c=e).epsilon for e in (1e-6, 1e-3, 0.1, 1.0, 3.0, 30.0, 300.0, 1000.0)]
        for small, large in pairwise(got):
            not_above(small, large)


@law_settings(60)
@given(systems(common_age=True))
def test_bounds_never_grow_with_a_common_age(system):
    useful(system)
    for bound in ("profile", "freshness", "slice"):
        if bound == "slice" and system.kernel is not None:
            continue
        got = [system.leakage(bound, ages=age).epsilon for age in (0, 1, 2, 3, 5, 9)]
        for young, old in pairwise(got):
            not_above(old, young)


# ---------------------------------------------------------------- families, several laws, zeros


@law_settings(40)
@given(systems(sizes=SMALL, table="default"), st.integers(0, 2**32 - 1))
def test_a_family_is_the_largest_over_its_members(system, seed):
    useful(system)
    rng = np.random.default_rng(seed)
    size = system.m**system.s
    kernel = rng.dirichlet(np.ones(size), size)
    other = csdp.JointChain(kernel, states=system.m, sequences=system.s, values=system.values)
    family = csdp.Family([system.model, other])
    options = {"ages": system.ages, "epsilon_c": system.epsilon_c, "adversary": system.adversary}
    answers_ = [csdp.leakage(member, system.asked, **options) for member in family]
    whole = csdp.leakage(family, system.asked, **options)
    assert whole.epsilon == max(answer.epsilon for answer in answers_)
    assert "one of 2 given models" in whole.assumptions[0]


@law_settings(60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(1, 2), (2, 2), (1, 4), (3, 2)]))
def test_several_stationary_laws_are_refused(seed, size):
    """Identity rows absorb: as many laws as snapshots that never move."""
    s, m = size
    rng = np.random.default_rng(seed)
    coupling = rng.dirichlet(np.ones(s), s)
    chain = csdp.CoupledChain(coupling, np.eye(m))
    for bound in ("exact", "profile", "freshness", "auto"):
        with pytest.raises(NoStationaryLawError, match="smooth the transitions"):
            csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=1.0, bound=bound)


@law_settings(100)
@given(systems(row_kinds=("deterministic", "zeros"), epsilons=(0.5, 1000.0)))
def test_zeros_give_a_finite_number_or_infinity_with_a_reason(system):
    useful(system)
    for bound in ["exact", "profile", "freshness"] + ["slice"] * (system.kernel is None):
        answer = system.leakage(bound)
        assert not math.isnan(answer.epsilon)
        assert answer.epsilon > 0
        if math.isinf(answer.epsilon):
            assert bound in {"freshness", "slice"}
            assert answer.reason
