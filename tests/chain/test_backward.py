"""A chain read backwards: the same process as its reversal, in every room that asks for a law."""

import numpy as np
import pytest

import csdp
from accountant.systems import follow
from csdp.bounds.result import BOUNDS
from csdp.chain.files import read_model
from csdp.errors import InputError
from csdp.estimate.moments import moments
from oracle import joint_kernel, stationary

COUPLING = [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.0, 0.4, 0.6]]
MATRICES = np.random.default_rng(7).dirichlet(np.ones(2), size=(3, 3, 2))


def backward_chain():
    return csdp.CoupledChain(COUPLING, MATRICES, names=["a", "b", "c"], direction="backward")


def as_joint():
    """The same process as a joint chain, by Bayes, without the library."""
    past = joint_kernel(COUPLING, MATRICES)
    law = stationary(past)
    forward = (past * law[:, None]).T
    forward /= forward.sum(axis=1, keepdims=True)
    return csdp.JointChain(forward, states=2, sequences=3, names=["a", "b", "c"])


def test_kernels_and_law_are_those_of_the_reversed_process():
    chain, joint = backward_chain(), as_joint()
    assert chain.backward_kernel() == pytest.approx(joint_kernel(COUPLING, MATRICES))
    assert chain.kernel() == pytest.approx(joint.kernel())
    assert chain.stationary() == pytest.approx(joint.stationary())
    assert joint.backward_kernel() == pytest.approx(chain.backward_kernel())
    columns = np.random.default_rng(1).random((8, 3))
    for model in (chain, joint, csdp.CoupledChain(COUPLING, MATRICES)):
        assert model.step.push(columns) == pytest.approx(model.kernel().T @ columns)
        assert model.step.pull(columns) == pytest.approx(model.kernel() @ columns)


@pytest.mark.parametrize("ages", [0, 1, 3, (0, 2, 1)])
@pytest.mark.parametrize("adversary", ["informed", "uninformed"])
def test_every_bound_of_the_joint_law_is_that_of_the_reversed_process(ages, adversary):
    chain, joint = backward_chain(), as_joint()
    for bound in set(BOUNDS) - {"metric", "slice", "influence"}:
        asked = {"ages": ages, "epsilon_c": 0.7, "bound": bound, "adversary": adversary}
        here, there = csdp.leakage(chain, csdp.Mean(), **asked), csdp.leakage(joint, csdp.Mean(), **asked)
        assert here.epsilon == pytest.approx(there.epsilon, rel=1e-9), bound


def test_continual_leakage_is_that_of_the_reversed_process():
    for state in ("metric", "scalar"):
        told = [
            follow(csdp.Plan(model, csdp.Mean(), 1, 0.5), state).after(4).epsilon
            for model in (backward_chain(), as_joint())
        ]
        assert told[0] == pytest.approx(told[1], rel=1e-6)


def test_errors_are_those_of_the_reversed_process():
    for ages in ((2, 2, 2), (0, 3, 1)):
        here, there = (moments(model, csdp.Linear([1, 2, -1]), ages=ages) for model in (backward_chain(), as_joint()))
        assert here.how == "pair laws"
        for name in ("mean_now", "cov_now", "cov_aged", "cross"):
            assert getattr(here, name) == pytest.approx(getattr(there, name), abs=1e-12)


def test_a_simulation_runs_in_time():
    path = backward_chain().simulate(60_000, seed=1).astype(int) @ [4, 2, 1]
    counts = np.zeros((8, 8))
    np.add.at(counts, (path[:-1], path[1:]), 1)
    assert np.abs(counts / counts.sum() - as_joint().stationary()[:, None] * as_joint().kernel()).max() < 0.006


def test_files_keep_the_direction_and_older_readers_refuse_it():
    chain = backward_chain()
    again = read_model(chain.to_json())
    assert again == chain
    assert again.direction == "backward"
    assert chain != csdp.CoupledChain(COUPLING, MATRICES, names=["a", "b", "c"])
    assert chain.to_dict()["schema"] != csdp.CoupledChain.schema
    with pytest.raises(InputError, match="does not go with direction"):
        csdp.CoupledChain.from_dict({**chain.to_dict(), "direction": "forward"})
    assert chain.subchain([0, 1, 2]).direction == "backward"
    assert "backward" in repr(chain)


def test_directions_are_checked():
    with pytest.raises(InputError, match="direction: 'sideways' given; 'forward' or 'backward'"):
        csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], direction="sideways")
