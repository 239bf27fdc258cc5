"""Lemma 1 of the paper as laws: independent records give plain DP, temporal correlation alone gives ADP."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import csdp
import oracle
from laws.strategies import law_settings
from study import baselines

probability = st.integers(1, 99).map(lambda n: n / 100)
level = st.sampled_from([0.05, 0.3, 1.0, 2.0, 6.0])


def two_state(p, q):
    return [[1 - p, p], [q, 1 - q]]


@given(ps=st.lists(probability, min_size=1, max_size=3), epsilon_c=level)
@law_settings(40)
def test_independent_records_give_plain_dp(ps, epsilon_c):
    """Every record its own coin, at every tick anew: the leakage of fresh data is epsilon_c, that of plain DP."""
    s = len(ps)
    chain = csdp.CoupledChain(np.eye(s), {(i, i): [[1 - p, p], [1 - p, p]] for i, p in enumerate(ps)})
    for query in (csdp.Mean(), csdp.Max(), csdp.Histogram()):
        plain = baselines.LaplaceDP().calibrate(chain, query, epsilon=epsilon_c)
        assert plain.leakage().value == pytest.approx(epsilon_c, rel=1e-9)
        assert plain.leakage("any").value <= epsilon_c * (1 + 1e-9)
    # What was not read tells nothing, however little noise: such a release is no DP at all, and leaks nothing.
    aged = csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=200.0)
    assert aged.epsilon <= 1e-10


@given(
    chances=st.lists(st.tuples(probability, probability), min_size=1, max_size=3),
    age=st.integers(0, 5),
    epsilon_c=level,
    query=st.sampled_from([csdp.Mean(), csdp.Max(), csdp.Count(1), csdp.Histogram()]),
)
@law_settings(60)
def test_temporal_correlation_alone_gives_adp(chances, age, epsilon_c, query):
    """Sequences that ignore each other: the exact leakage is within ADP's statement for the age that is used."""
    s = len(chances)
    chain = csdp.CoupledChain(np.eye(s), {(i, i): two_state(p, q) for i, (p, q) in enumerate(chances)})
    width = query.sensitivity(1, chain.value_table)
    adp = baselines.AgeDP(age=age).calibrate(chain, query, scale=width / epsilon_c)
    leakage = csdp.leakage(chain, query, ages=age, epsilon_c=epsilon_c)
    assert leakage.epsilon <= adp.epsilon * (1 + 1e-9) + 1e-13
    rest = max(abs(1 - p - q) ** age for p, q in chances)
    assert adp.epsilon == pytest.approx(math.log1p(rest * math.expm1(epsilon_c)), rel=1e-7, abs=1e-12)


@given(chances=st.tuples(*[st.tuples(probability, probability)] * 2), age=st.integers(0, 5), epsilon_c=level)
@law_settings(20)
def test_the_leakage_is_that_of_the_joint_law_which_knows_nothing_of_components(chances, age, epsilon_c):
    chain = csdp.CoupledChain(np.eye(2), {(i, i): two_state(p, q) for i, (p, q) in enumerate(chances)})
    B, law = oracle.aged_law(chain.kernel(), 2, 2, [age, age])
    answers = oracle.query_values("mean", 2, 2, [0, 1])
    truth = oracle.exact_leakage(B, answers, 2, 2, epsilon_c, 0.5, "informed", law)
    leakage = csdp.leakage(chain, csdp.Mean(), ages=age, epsilon_c=epsilon_c).epsilon
    assert truth <= leakage * (1 + 1e-9) + 1e-12


@given(p=probability, epsilon_c=level)
@law_settings(20)
def test_adp_is_met_where_a_present_rules_out_a_past(p, epsilon_c):
    chain = csdp.CoupledChain([[1.0]], [[1 - p, p], [1.0, 0.0]])
    adp = baselines.AgeDP(age=1).calibrate(chain, csdp.Mean(), scale=1.0 / epsilon_c)
    assert csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=epsilon_c).epsilon == pytest.approx(adp.epsilon, rel=1e-9)


def test_coupled_sequences_break_adp():
    """The case the lemma leaves out: with coupling, aging can tell more than ADP states, more than epsilon_c even."""
    chain = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], two_state(0.001, 0.1))
    adp = baselines.AgeDP(age=2).calibrate(chain, csdp.Mean(), scale=0.5 / 4.0)
    assert adp.leakage().value == pytest.approx(5.67, abs=5e-3)
    assert adp.epsilon < 4.0 < adp.leakage().value
