"""Chains are made from many forms, refused with a reason, and are equal, hashed, stored and frozen by content."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix

import csdp
from csdp.errors import CsdpError, InputError

FLIP = [[0.7, 0.3], [0.3, 0.7]]
SKEW = [[0.99, 0.01], [0.3, 0.7]]
PAIR = [[0.75, 0.25], [0.25, 0.75]]
THREE = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]


def sample(**more):
    return csdp.CoupledChain(PAIR, [[FLIP, SKEW], [SKEW, FLIP]], **more)


# ---------------------------------------------------------------- forms


def test_one_matrix_all_matrices_and_one_per_edge_are_the_same():
    full = np.broadcast_to(np.array(FLIP), (2, 2, 2, 2))
    one = csdp.CoupledChain(PAIR, FLIP)
    for other in (
        csdp.CoupledChain(PAIR, full),
        csdp.CoupledChain(PAIR, full.tolist()),
        csdp.CoupledChain(np.array(PAIR), [FLIP] * 4),
        csdp.CoupledChain(csr_array(PAIR), FLIP),
        csdp.CoupledChain(csr_matrix(PAIR), [FLIP] * 4),
        csdp.CoupledChain(coo_matrix(PAIR), full),
        csdp.CoupledChain({(j, k): PAIR[j][k] for j in range(2) for k in range(2)}, FLIP),
        csdp.CoupledChain(
            {(j, k): PAIR[j][k] for k in range(2) for j in range(2)}, {(j, k): FLIP for j in range(2) for k in range(2)}
        ),
    ):
        assert other == one
        assert other.digest == one.digest
        assert hash(other) == hash(one)
        assert other.kernel().tolist() == one.kernel().tolist()


def test_coupling_and_transitions_are_those_that_were_given():
    chain = csdp.CoupledChain(PAIR, FLIP)
    assert chain.coupling.tolist() == PAIR
    assert chain.transitions.tolist() == FLIP
    chain.coupling[:] = 0  # a copy: the chain does not change
    assert chain.coupling.tolist() == PAIR
    with pytest.raises(ValueError, match="read-only"):
        chain.transitions[0] = 0.5
    coupling, matrices = [[1.0, 0.0], [0.5, 0.5]], [FLIP, SKEW, [[0.2, 0.8], [0.9, 0.1]]]
    by_edge = csdp.CoupledChain(coupling, matrices)
    assert by_edge.coupling.tolist() == coupling
    assert by_edge.transitions.tolist() == matrices
    assert by_edge.edge_starts.tolist() == [0, 1, 3]
    with pytest.raises(ValueError, match="read-only"):
        by_edge.transitions[0] = 0.5
    for one in (chain, by_edge, sample(), csdp.CoupledChain(csr_array(coupling), FLIP)):
        assert csdp.CoupledChain(one.coupling, one.transitions) == one
        back = csdp.CoupledChain.from_json(one.to_json())
        assert back.coupling.tolist() == one.coupling.tolist()
        assert back.transitions.tolist() == one.transitions.tolist()


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("values", "unit", "stored"),
    [
        (None, 1.0, [0, 1]),
        ([0.5, 2], 0.5, [0.5, 2]),
        ([-0.0, 1], 1.0, [0, 1]),
    ],
)
def test_values_on_a_lattice_stay(values, unit, stored):
    chain = csdp.CoupledChain([[1.0]], FLIP, values=values)
    assert chain.values.tolist() == stored
    assert chain.unit == unit
    assert not np.signbit(chain.values[chain.values == 0]).any()


def test_values_off_the_lattice_move_by_little():
    given = np.array([0.1, math.pi, -7.3])
    chain = csdp.CoupledChain([[1.0]], THREE, values=given)
    assert np.abs(chain.values - given).max() <= 2.0**-21 * 8
    assert math.frexp(chain.unit)[0] == 0.5  # a power of two
    assert ((chain.values / chain.unit) % 1 == 0).all()
    again = csdp.CoupledChain([[1.0]], THREE, values=chain.values)
    assert again == chain


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("coupling", "message"),
    [
        ([[0.7, 0.2], [0.5, 0.5]], r"coupling: row 0 sums to 0.9; each row \(from -> to\) must sum to 1"),
        ([[0.75, 0.5], [0.25, 0.5]], r"coupling: row 0 sums to 1.25; .* here the columns do: .* pass its transpose"),
        ([[1.5, -0.5], [0.5, 0.5]], r"coupling: negative probability -0.5 at \(0, 1\); probabilities lie in \[0, 1\]"),
        ([[math.nan, 1.0], [0.5, 0.5]], r"coupling: missing or infinite numbers given"),
        ([[0.5, 0.5]], r"coupling: shape \(1, 2\) given; a square matrix \(s, s\) expected"),
        (
            csr_array([[0.7, 0.2], [0.5, 0.5]]),
            r"coupling: row 0 sums to 0.9; the weights of one sequence must sum to 1",
        ),
        ({(0, 1): 1.0}, r"coupling: row 1 sums to 0; the weights of one sequence must sum to 1"),
        ({(0, -1): 1.0}, r"coupling: keys must be pairs \(target, source\) of sequence numbers from 0"),
    ],
)
def test_bad_couplings(coupling, message):
    with pytest.raises(InputError, match=message) as refused:
        csdp.CoupledChain(coupling, FLIP)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, CsdpError)


@pytest.mark.parametrize(
    ("transitions", "message"),
    [
        ([[0.6, 0.3], [0.3, 0.7]], r"transitions: row 0 sums to 0.9; each row \(from -> to\) must sum to 1$"),
        (
            [[0.9, 0.3], [0.1, 0.7]],
            r"transitions: row 0 sums to 1.2; each row .*; here the columns do: the matrix seems to be transposed, "
            r"pass its transpose",
        ),
        ([[1.2, -0.2], [0.3, 0.7]], r"transitions: negative probability -0.2 at \(0, 1\)"),
        ([[0.7, 0.3]], r"transitions: shape \(1, 2\) given; \(m, m\) with m >= 2, \(s, s, m, m\) with s = 2"),
        ([FLIP, FLIP, FLIP], r"transitions: 3 matrices given for 4 coupled pairs"),
        ({(0, 0): FLIP}, r"transitions: none given for the coupled pair \(0, 1\)"),
    ],
)
def test_bad_transitions(transitions, message):
    with pytest.raises(InputError, match=message):
        csdp.CoupledChain(PAIR, transitions)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"values": [0, 1, 2]},
            r"values: shape \(3,\) given; one value per state \(2,\), or one row per sequence \(2, 2\)",
        ),
        ({"values": [[0, 1]]}, r"values: shape \(1, 2\) given"),
        ({"values": [3, 3]}, r"values: all states carry the same value; at least two must differ"),
        ({"values": [0, math.nan]}, r"values: missing or infinite numbers given"),
        ({"values": ["low", "high"]}, r"values: .*cells that are not numeric"),
        ({"names": ["a"]}, r"names: 1 given for 2 sequences; give one each"),
        ({"names": ["a", "a"]}, r"names: 'a' appears twice; give each one a separate name"),
    ],
)
def test_bad_values_and_names(more, message):
    with pytest.raises(InputError, match=message):
        csdp.CoupledChain(PAIR, FLIP, **more)
    with pytest.raises(InputError, match=message):
        csdp.JointChain(np.full((4, 4), 0.25), states=2, sequences=2, **more)


@pytest.mark.parametrize(
    ("kernel", "sizes", "message"),
    [
        (np.eye(4) * 0.9, (2, 2), r"kernel: row 0 sums to 0.9"),
        (np.array([[0.9, 0.3], [0.1, 0.7]]), (2, 1), r"kernel: row 0 sums to 1.2; .* pass its transpose"),
        (np.eye(3), (2, 2), r"kernel: shape \(3, 3\) given; \(4, 4\) = 2\*\*2 expected"),
        ([[1.0]], (1, 1), r"states=1, sequences=1 given; at least 2 states and 1 sequence"),
    ],
)
def test_bad_kernels(kernel, sizes, message):
    with pytest.raises(InputError, match=message):
        csdp.JointChain(kernel, states=sizes[0], sequences=sizes[1])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "Family: no models given; give at least one"),
        ([1], "Family: int given; members are models"),
        (
            [sample(), csdp.CoupledChain([[1.0]], FLIP)],
            "Family: members must agree in sequences, states, names and values",
        ),
        ([sample(), sample(names=["a", "b"])], "Family: members must agree"),
    ],
)
def test_bad_families(members, message):
    with pytest.raises(InputError, match=message):
        csdp.Family(members)


def test_text_of_another_kind_is_refused():
    with pytest.raises(InputError, match="chain: a JointChain given; a CoupledChain expected"):
        csdp.CoupledChain.from_json(MODELS["joint"].to_json())


# ---------------------------------------------------------------- identity


MODELS = {
    "plain": csdp.CoupledChain(PAIR, FLIP),
    "matrices": sample(),
    "values": sample(values=[0.1, 3.7], names=["north", "süd"]),
    "own values": sample(values=[[0, 1], [0.25, 8]]),
    "thirds": csdp.CoupledChain(np.full((3, 3), 1 / 3), [[1 / 3, 2 / 3], [1 / 7, 6 / 7]]),
    "joint": csdp.JointChain(
        [[0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]], states=2, sequences=2
    ),
    "joint with all": csdp.JointChain(np.full((3, 3), 1 / 3), states=3, sequences=1, values=[1, 2, 4], names=["a"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_json_round_trip_is_exact(name):
    model = MODELS[name]
    text = model.to_json()
    again = type(model).from_json(text)
    assert again == model
    assert again.digest == model.digest
    assert again.to_json() == text
    assert again.unit == model.unit
    assert again.names == model.names
    assert json.loads(text)["schema"] == model.schema
    assert "\n  " in model.to_json(indent=2)


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
@pytest.mark.parametrize("name", ["own values", "joint with all"])
def test_copies_are_equal(name, copied):
    model = MODELS[name]
    again = copied(model)
    assert again == model
    assert hash(again) == hash(model)
    assert again.unit == model.unit
    with pytest.raises(AttributeError, match="frozen"):
        again.states = 3
    with pytest.raises(ValueError, match="read-only"):
        again.values[0] = 9.0


def test_chains_are_frozen():
    chain = sample()
    with pytest.raises(AttributeError, match="CoupledChain is frozen; make a new one to change 'values'"):
        chain.values = np.array([0.0, 2.0])
    for array in (chain.values, chain.edge_weights, chain.edge_sources, chain.transition_table[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.5
    with pytest.raises(ValueError, match="read-only"):
        chain.stationary()[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        chain.sparse_coupling.data[:] = 0
    chain.q_matrix().data[:] = 0
    assert chain == sample()
    assert chain.sparse_coupling.toarray().tolist() == PAIR


def test_what_a_chain_hands_out_cannot_change_it():
    """The cost of a private fit could be changed in what `to_dict` gave, and then was what publishers charged."""
    given = {"epsilon": 0.5, "fit": "a", "more": {"states": 2}}
    chain = sample().carrying(fit_cost=given)
    digest, kept = chain.digest, {"epsilon": 0.5, "fit": "a", "more": {"states": 2}}
    family = csdp.InfluenceGraph.around(sample(direction="backward").carrying(fit_cost=given), 0.01)
    plan = csdp.Plan(chain, "mean", ages=1, epsilon_c=1.0)
    for cost in (given, chain.fit_cost, chain.to_dict()["fit_cost"], plan.record()["chain"][0]["fit_cost"]):
        cost["epsilon"] = cost["more"]["states"] = 0
    for cost in (family.fit_cost, family.to_dict()["fit_cost"], family.point.fit_cost):
        cost["epsilon"] = 0
    assert chain.fit_cost == family.fit_cost == family.point.fit_cost == kept
    assert csdp.chain.private_fits(chain) == csdp.chain.private_fits(family) == {"a": 0.5}
    assert sample().carrying(fit_cost=kept).digest == digest
    for matrices in chain.local.matrices:
        assert not matrices.flags.writeable


# ---------------------------------------------------------------- families


@pytest.mark.parametrize("model", [csdp.CoupledChain(PAIR, FLIP), MODELS["joint"]])
def test_a_file_with_an_initial_law_is_refused_and_one_without_is_read(model):
    assert type(model).from_dict({**model.to_dict(), "initial": None}) == model
    with pytest.raises(InputError, match=r"initial: a law of the oldest snapshot given; .* Make the chain again"):
        type(model).from_dict({**model.to_dict(), "initial": [0.25] * 4})
