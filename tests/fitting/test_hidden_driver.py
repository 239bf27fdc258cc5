"""A hidden common driver: environment chains say what it leaks, coupled and joint chains say less."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from oracle import hidden_leakage

REGIMES = ([[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]])


def driver(s: int) -> csdp.EnvironmentChain:
    members = [csdp.CoupledChain(np.eye(s), matrix) for matrix in REGIMES]
    return csdp.EnvironmentChain(members, switching=[[0.9, 0.1], [0.1, 0.9]])


def leak(model, age: int) -> float:
    """The exact leakage; under environments that of an adversary who knows none of them, by enumeration."""
    if not isinstance(model.members[0], csdp.EnvironmentChain):
        return csdp.leakage(model, csdp.Mean(), ages=age, epsilon_c=1.0, bound="exact").epsilon
    return max(
        hidden_leakage(
            member.switching,
            [chain.kernel() for chain in member.environments],
            member.sequences,
            2,
            epsilon_c=1.0,
            age=age,
        )
        for member in model.members
    )


@pytest.mark.usefixtures("ungrown")
@pytest.mark.parametrize(
    ("s", "truth", "coupled", "joint"), [(2, 0.281706, 0.198543, 0.193359), (3, 0.358610, 0.252578, 0.274468)]
)
def test_a_fit_with_environments_finds_what_a_hidden_driver_leaks(s, truth, coupled, joint):
    """At age 4; `coupled` and `joint` are the leakages of the best chains of first order."""
    true = driver(s)
    assert leak(true, 4) == pytest.approx(truth, abs=1e-6)
    states = true.simulate(12_000, seed=1)
    fitted = csdp.fit(states, public=True, environment="hidden", environments=2)
    assert leak(fitted, 4) == pytest.approx(truth, rel=0.15)
    for method, best in (("em", coupled), ("joint", joint)):
        first_order = csdp.fit(states, public=True, method=method)
        assert leak(first_order, 4) == pytest.approx(best, rel=0.15)


def test_the_class_that_grows_covers_a_hidden_driver_or_is_not_accepted():
    states = driver(2).simulate(3000, seed=1)
    for public, environment in ((states[:1500], {"environment": "hidden", "environments": 2}), (states[:1500], {})):
        chain = csdp.fit(public, public=True, **environment)
        assert chain.verdict.status == "accepted"
        assert csdp.leakage(chain, csdp.Mean(), ages=4, epsilon_c=1.0, bound="influence").epsilon >= 0.281706
    assert csdp.fit(states, public=True).verdict.status == "rejected"
