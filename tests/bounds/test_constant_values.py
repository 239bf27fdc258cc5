"""Values that are the same in all states of some sequences: the others are certified, nothing at all is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import csdp
from accountant.systems import follow
from csdp import CoupledChain, JointChain, Sum
from csdp.bounds.result import BOUNDS
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.query import PerGroup

ROWS, RARE = [[0.7, 0.3], [0.3, 0.7]], [[1.0, 0.0], [0.5, 0.5]]
VALUES = [[0.0, 1.0], [2.0, 2.0]]
CHAINS = {
    "usual": CoupledChain(np.eye(2), ROWS, values=VALUES),
    "a state that dies out": CoupledChain(np.eye(2), [[ROWS, ROWS], [RARE, RARE]], values=VALUES),
}


@pytest.mark.parametrize("age", [0, 1, 2])
@pytest.mark.parametrize("bound", [*BOUNDS, "auto"])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_every_bound_certifies_the_sequence_that_varies(chain: CoupledChain, bound: str, age: int) -> None:
    asked = {"ages": age, "epsilon_c": 1.0, "bound": bound}
    if bound == "influence":
        chain = CoupledChain(np.eye(2), chain.transition_table[0][[0, -1]], values=VALUES, direction="backward")
    for query in (csdp.Mean(), csdp.Identity(), csdp.Count(0)):
        leakage = csdp.leakage(chain, query, **asked)
        exact = csdp.leakage(chain, query, ages=age, epsilon_c=1.0, bound="exact")
        assert leakage.epsilon >= exact.epsilon * (1 - 1e-9)


@pytest.mark.parametrize("state", ["auto", "scalar", "metric"])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_the_accountant_certifies_it(chain: CoupledChain, state: str) -> None:
    for query in (csdp.Mean(), csdp.Count(0)):
        accountant = follow(Plan(chain, query, 1, 1.0), state)
        assert accountant.ceiling(3) >= accountant.after(1).epsilon > 0
        assert accountant.limit().epsilon < 3


def test_a_group_of_constant_values() -> None:
    chain = CoupledChain([[0.95, 0.05], [0.05, 0.95]], ROWS, values=VALUES)
    accountant = follow(Plan(chain, PerGroup(Sum(), ((0,), (1,))), 1, 1.0), "vector")
    whole = csdp.leakage(chain, Sum(), ages=1, epsilon_c=1.0)
    assert accountant.after(1).epsilon >= whole.epsilon


def test_a_part_with_constant_values_can_be_sent_to_another_process() -> None:
    part = CHAINS["usual"].subchain([1])
    again = pickle.loads(pickle.dumps(part))
    assert again == part
    assert again.value_table.tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    "chain",
    [
        CoupledChain(np.eye(2), ROWS, values=[[3.0, 3.0], [2.0, 2.0]]),
        JointChain(np.full((4, 4), 0.25), states=2, sequences=2, values=[[3.0, 3.0], [2.0, 2.0]]),
    ],
)
def test_where_no_value_varies_there_is_nothing_to_publish(chain: csdp.CoupledChain) -> None:
    with pytest.raises(InputError, match="nothing to publish"):
        Plan(chain, csdp.Mean(), 1, 1.0)
    assert Plan(chain, csdp.Count(0), 1, 1.0).certified.epsilon >= 0  # states still differ
