"""What is made of a model that was used has the numbers of one that is made anew: nothing cached is left over."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import csdp
from csdp import CoupledChain, EnvironmentChain, Family, InfluenceGraph, JointChain, Plan
from csdp.accountant import Accountant
from csdp.chain.files import read_model
from csdp.errors import CsdpError

Derive = Callable[[Any], Any]
COST = {"epsilon": 0.5, "fit": "a"}


def _chain(seed: int, *, lonely: bool = False, **rest: Any) -> CoupledChain:
    random = np.random.default_rng(seed)
    coupling = np.eye(2) if lonely else random.dirichlet(np.ones(2), size=2)
    rows = random.dirichlet(np.full(2, 2.0), size=(2, 2, 2))
    return CoupledChain(coupling, rows, values=[0.0, 0.5], **rest)


def _members(**rest: Any) -> list[CoupledChain]:
    return [_chain(seed, **rest) for seed in (3, 4)]


MODELS: dict[str, Callable[[], Any]] = {
    "forward": lambda: _chain(1),
    "unconnected": lambda: _chain(2, lonely=True),
    "backward": lambda: _chain(1, direction="backward", names=["b", "a"]),
    "joint": lambda: JointChain(_chain(1).kernel(), states=2, sequences=2),
    "clock": lambda: EnvironmentChain(_members(lonely=True), cycle=[0, 1]),
    "hidden": lambda: EnvironmentChain(_members(direction="backward"), switching=[[0.9, 0.1], [0.3, 0.7]]),
    "influences": lambda: InfluenceGraph.around(_chain(1, direction="backward"), 0.01),
}
DERIVED: dict[str, Derive] = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "cost": lambda model: model.carrying(fit_cost=COST),
    "family": lambda model: model.carrying(family=Family([model])),
    "part": lambda model: model.subchain(model.components()[-1]),
    "part with a cost": lambda model: model.carrying(fit_cost=COST).subchain(model.components()[-1]),
}


def _fill(model: Any) -> None:
    """Ask for everything that a model keeps once it was asked for."""
    numbers(model)
    for kind in type(model).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, cached_property):
                with suppress(CsdpError, AssertionError):
                    getattr(model, name)
    with suppress(CsdpError):
        model.subchain(model.components()[-1])


def numbers(model: Any) -> dict[str, Any]:
    """What is certified, charged and said of a model."""

    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except CsdpError as error:
            return str(error)

    plan = Plan(model, "sum", ages=1, epsilon_c=1.0)
    accountant = Accountant(plan)
    gap = accountant.release(accountant.release(accountant.start(), 3), 5)
    asked: dict[str, Callable[[], Any]] = {
        "digest": lambda: (model.digest, plan.digest),
        "components": model.components,
        "fits": lambda: csdp.chain.private_fits(model),
        "laws": lambda: model.marginals().tolist(),
        "charged": lambda: (accountant.after(1).epsilon, accountant.epsilon(gap)),
        "levels": lambda: (accountant.group_level(2), accountant.every_moment(2)),
    }
    for bound in ("auto", "slice"):
        asked[bound] = lambda b=bound: csdp.leakage(model, "sum", ages=1, epsilon_c=1.0, bound=b).epsilon
    return {name: ask(question) for name, question in asked.items()}


def _used(make: Callable[[], Any]) -> Any:
    model = make()
    _fill(model)
    return model


def _differences(used: Any, make: Callable[[], Any], derive: Derive) -> dict[str, Any] | None:
    """Numbers of what is made of a used model that are not those of the same, rebuilt; None where it is refused."""
    try:
        derived = derive(used)
    except CsdpError:
        return None
    rebuilt = derive(make())
    if derived.values.tolist() == make().values.tolist():  # values of a part may be those of no chain of its own
        rebuilt = read_model(rebuilt.to_json())
    first, second = numbers(derived), numbers(rebuilt)
    return {name: (first[name], second[name]) for name in first if first[name] != second[name]}


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_made_of_a_model_does_not_depend_on_what_was_asked_before(kind: str) -> None:
    used = _used(MODELS[kind])
    found = {name: _differences(used, MODELS[kind], derive) for name, derive in DERIVED.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert sum(wrong is not None for wrong in found.values()) >= 3
