"""Every public function that takes a query takes its name as well, as the command line does."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import csdp
from csdp import estimate
from csdp.errors import InputError

CHAIN = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


CALLS = {
    "leakage": lambda q: csdp.leakage(CHAIN, q, ages=2, epsilon_c=1.0),
    "Plan": lambda q: csdp.Plan(CHAIN, q, ages=2, epsilon_c=1.0),
    "find_plan": lambda q: csdp.find_plan(CHAIN, q, budget=0.2, max_age=2).plan,
    "frontier": lambda q: csdp.frontier(CHAIN, q, ages=(1,), levels=(0.5,)),
    "dynamic_plan": lambda q: csdp.dynamic_plan(CHAIN, q, ages=1, budget=0.2, horizon=2).plan,
    "mse": lambda q: csdp.mse(CHAIN, q, ages=1, epsilon_c=1.0),
    "estimate.linear_estimator": lambda q: estimate.linear_estimator(CHAIN, q, ages=[1, 1]).expected(0.1),
    "estimate.model_estimator": lambda q: estimate.model_estimator(CHAIN, q, age=1).expected(0.1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_name_and_the_query_give_the_same(name):
    assert CALLS[name]("mean") == CALLS[name](csdp.Mean())


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_name_lists_those_allowed(name):
    with pytest.raises(InputError, match=r"'average' given; use mean, sum, .*linear:W1,W2"):
        CALLS[name]("average")


def test_no_public_function_with_a_query_is_left_out():
    rooms = {"": csdp, "estimate.": estimate}
    takers = set()
    for prefix, room in rooms.items():
        for name in room.__all__:
            found = getattr(room, name)
            if callable(found) and "query" in inspect.signature(found).parameters and name != "PerGroup":
                takers.add(prefix + name)
    takers.discard("estimate.mse")  # the same function as csdp.mse
    assert takers == set(CALLS)
    for name in takers:
        room, _, plain = name.rpartition(".")
        found = getattr(rooms[f"{room}." if room else ""], plain)
        assert "str" in str(inspect.signature(found).parameters["query"].annotation), f"{name} does not say so"


def test_names_with_settings():
    weights = csdp.leakage(CHAIN, "linear:1,2", ages=1, epsilon_c=1.0)
    assert weights == csdp.leakage(CHAIN, csdp.Linear([1, 2]), ages=1, epsilon_c=1.0)
    groups = csdp.PerGroup("count:1", ((0,), (1,)))
    assert groups == csdp.PerGroup(csdp.Count(1), ((0,), (1,)))
    assert np.array_equal(groups.evaluate([0, 1], CHAIN.value_table), [0.0, 1.0])
