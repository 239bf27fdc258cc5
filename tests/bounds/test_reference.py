"""Every reference value, through the public interface."""

import math

import numpy as np
import pytest

import csdp
from csdp import paper
from reference_values import COLUMNS, REFERENCE, RTOL
from reference_values import T3 as T3_SYSTEM


def binary(p, q):
    return [[1 - p, p], [q, 1 - q]]


def pair(c, p=0.3, q=0.3, **more):
    return csdp.CoupledChain([[c, 1 - c], [1 - c, c]], binary(p, q), **more)


def single(p, q):
    return csdp.CoupledChain([[1.0]], binary(p, q))


T3 = csdp.CoupledChain(*T3_SYSTEM)
PAPER = {"loose": paper.loose, "printed-loose": paper.printed_loose, "printed-tight": paper.printed_tight}
QUERIES = {"mean": csdp.Mean(), "max": csdp.Max(), "histogram": csdp.Histogram(), "identity": csdp.Identity()}


def asked(row):
    """The question of a row of the table, as the library takes it."""
    (coupling, transitions, ages, epsilon_c, query), expected = REFERENCE[row]
    return (csdp.CoupledChain(coupling, transitions), QUERIES[query], ages, epsilon_c), expected


def ask(chain, query, ages, epsilon_c, bound="exact", adversary="informed"):
    return csdp.leakage(chain, query, ages=ages, epsilon_c=epsilon_c, bound=bound, adversary=adversary)


@pytest.mark.parametrize("column", [name for name in COLUMNS if name != "lineage"])
@pytest.mark.parametrize("row", REFERENCE)
def test_the_reference_table(row, column):
    (chain, query, ages, epsilon_c), expected = asked(row)
    if column in PAPER:
        found = PAPER[column](chain, query, ages=ages, epsilon_c=epsilon_c)
    else:
        answer = ask(chain, query, ages, epsilon_c, bound=column)
        assert (answer.bound, answer.adversary) == (column, "informed")
        found = answer.epsilon
    assert found == pytest.approx(expected[COLUMNS.index(column)], rel=RTOL, abs=0)


def test_what_an_answer_rests_on():
    """Words that hold: the others are taken as known only where there are several groups, and only by exact."""
    apart = csdp.CoupledChain([[1, 0], [0, 1]], binary(0.3, 0.2))
    told = {
        (name, bound): " ".join(ask(chain, csdp.Mean(), 2, 1, bound).assumptions)
        for name, chain in (("one", pair(0.75)), ("several", apart))
        for bound in ("exact", "profile", "group")
    }
    assert {key for key, words in told.items() if "several independent components" in words} == {("several", "exact")}
    assert {bound for (_, bound), words in told.items() if "stationary law" in words} == {"exact", "profile"}
    assert {bound for (_, bound), words in told.items() if "follow the given model" not in words} == {"group"}


@pytest.mark.parametrize(("query", "third"), [(csdp.Max(), [0.0, 1.0]), (csdp.Min(), [1.0, 2.0])])
def test_what_the_other_groups_cannot_contribute_is_left_out(query, third):
    """The second sequence hides the first beyond 0.625 or 1.375, whatever the third may be: as by enumeration."""
    chain = csdp.CoupledChain(np.eye(3), binary(0.3, 0.2), values=[[0.0, 2.0], [0.625, 1.375], third])
    same = csdp.Custom(lambda v: [float(v.max() if query.name == "max" else v.min())], name="same")
    assert query.sensitivity(1, chain.value_table) == 1.375
    values = [ask(chain, asked, 1, 1.0).epsilon for asked in (query, same)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_auto_is_exact_here_and_says_so():
    answer = csdp.leakage(pair(0.75), csdp.Mean(), ages=2, epsilon_c=1)
    assert (answer.bound, answer.reason) == ("exact", "exact fits the size limit")
    assert answer.epsilon == pytest.approx(0.153045546, rel=RTOL)


def test_uninformed_exceeds_the_informed_freshness():
    one, two = binary(0.01, 0.04), binary(0.035, 0.275)
    chain = csdp.CoupledChain([[0, 1], [0, 1]], [[one, one], [two, two]])
    uninformed = ask(chain, csdp.Mean(), 2, 4, adversary="uninformed").epsilon
    informed = ask(chain, csdp.Mean(), 2, 4, "freshness").epsilon
    assert uninformed == pytest.approx(2.8221, abs=5e-5)
    assert informed == pytest.approx(2.7637, abs=5e-5)
    # so the bounds of an adversary come from that adversary's own rows
    for bound in ("profile", "freshness", "slice"):
        assert ask(chain, csdp.Mean(), 2, 4, bound, "uninformed").epsilon >= uninformed


def test_printed_tight_is_below_the_truth_on_some_chains():
    for chain, age, epsilon_c in ((single(0.38, 0.02), 3, 4), (single(0.2, 0.6), 2, 2)):
        printed = paper.printed_tight(chain, "mean", ages=age, epsilon_c=epsilon_c)
        assert printed < 0.9 * ask(chain, csdp.Mean(), age, epsilon_c).epsilon


def test_exact_may_grow_with_age_where_the_bounds_do_not():
    chain = pair(0.75, 1e-4, 1e-4)
    young, old = (ask(chain, csdp.Mean(), age, 1).epsilon for age in (1, 10))
    assert old > young * 1.1
    for bound in ("profile", "freshness"):
        assert ask(chain, csdp.Mean(), 10, 1, bound).epsilon <= ask(chain, csdp.Mean(), 1, 1, bound).epsilon


def test_the_papers_quantities():
    chain = pair(0.75)
    assert paper.correlation_degree(chain) == 2
    assert paper.correlation_degree(single(0.3, 0.3)) == 1
    assert paper.aged_correlation(chain, ages=2) == pytest.approx(0.1, rel=RTOL)
    assert paper.aged_correlation(chain, ages=0) == pytest.approx(1, rel=RTOL)
    tight = paper.printed_tight(chain, "mean", ages=2, epsilon_c=3)
    assert paper.bounded_aged_correlation(chain, ages=(2, 2)) * 3 == pytest.approx(tight, rel=1e-12)


def test_the_leakage_coefficient_sweeps_couplings():
    coefficient = paper.cmc_leakage_coefficient(binary(0.3, 0.3), strength=0.5, ages=1)
    assert coefficient.value == pytest.approx(0.4, rel=1e-9)  # independent sequences are the worst for Delta_k
    weaker = paper.cmc_leakage_coefficient(binary(0.01, 0.3), strength=0.25, ages=2, points=3)
    stronger = paper.cmc_leakage_coefficient(binary(0.01, 0.3), strength=0.5, ages=2, points=5)
    assert weaker.value <= stronger.value * (1 + 1e-12)


# ---------------------------------------------------------------- what an answer says


def test_the_witness_is_in_the_users_words():
    chain = csdp.CoupledChain(
        [[0.75, 0.25], [0.25, 0.75]], binary(0.01, 0.3), values=[10, 20], names=["north", "south"]
    )
    answer = ask(chain, csdp.Mean(), 2, 2)
    witness = answer.witness
    assert witness is not None
    assert {witness.sequence} | set(witness.others) == {"north", "south"}
    assert {witness.present, witness.alternative} == {10.0, 20.0}
    assert witness.output is not None
    assert witness.output[0] in {10.0, 15.0, 20.0}
    assert witness.sequence in str(witness)
    plain = answer.to_dict()
    assert plain["witness"]["sequence"] == witness.sequence
    assert plain["components"][0]["sequences"] == ["north", "south"]


def test_an_infinite_answer_has_a_reason():
    answer = ask(pair(0.75), csdp.Mean(), 0, 1, "freshness")
    assert answer.epsilon == math.inf
    assert "infinite" in answer.reason


def test_components_are_said_to_be_an_upper_bound():
    chain = csdp.CoupledChain(np.eye(2), binary(0.3, 0.3))
    answer = ask(chain, csdp.Mean(), 1, 1)
    assert sum(part["copies"] for part in answer.components) == 2
    assert any("upper bound" in words for words in answer.assumptions)


def test_a_custom_query_may_ignore_a_component():
    chain = csdp.CoupledChain(np.eye(2), binary(0.3, 0.3))
    first = csdp.Custom(lambda v: v[0])
    for bound in ("exact", "profile", "group"):
        alone = ask(csdp.CoupledChain([[1.0]], binary(0.3, 0.3)), csdp.Sum(), 1, 1, bound).epsilon
        assert ask(chain, first, 1, 1, bound).epsilon == pytest.approx(alone, rel=1e-9)


# ---------------------------------------------------------------- bad questions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ages": -1}, r"ages: -1 given; an age is a whole number of steps, 0 or more"),
        ({"ages": [1, [2, 3]]}, r"whole numbers of steps expected"),
        ({"ages": None}, r"ages: None given; whole numbers of steps expected"),
        ({"epsilon_c": 0}, r"epsilon_c: 0 given; a finite number above 0"),
        ({"bound": "best"}, r"bound: 'best' given; one of 'auto', 'exact', 'metric', 'profile'"),
        ({"adversary": "clever"}, r"adversary: 'clever' given; one of 'informed', 'uninformed' is allowed"),
        ({"query": "average"}, r"query: 'average' given; use mean, sum, max"),
        ({"query": 3}, r"query: 3 given; expected Mean\(\), Max\(\)"),
        ({"query": csdp.Mean}, r"expected an instance, Mean\(\) not Mean"),
        ({"query": csdp.Count(2)}, r"count: unknown state 2; states are 0..1"),
        ({"query": csdp.Linear([1, 2, 3])}, r"linear: 3 weights given for 2 sequences; give one each"),
        ({"query": csdp.Custom(lambda v: 1.0)}, r"custom: the function is constant"),
        ({"chain": "chain.json"}, r"chain: str given; a model or a Family expected"),
    ],
)
def test_bad_questions_are_refused_with_a_reason(change, message):
    question = {"chain": pair(0.75), "query": csdp.Mean(), "ages": 2, "epsilon_c": 1.0} | change
    with pytest.raises(csdp.errors.InputError, match=message):
        csdp.leakage(question.pop("chain"), question.pop("query"), **question)


def test_bad_sweeps_are_refused():
    for options, named in (({"strength": 1.5}, "strength"), ({"strength": 0.5, "points": 1}, "points")):
        with pytest.raises(csdp.errors.InputError, match=f"{named}: 1.* given"):
            paper.cmc_leakage_coefficient(binary(0.3, 0.3), ages=1, **options)
