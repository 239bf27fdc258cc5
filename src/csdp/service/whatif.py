"""What other settings would cost and give: leakage by bound, error, and the line between both."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from csdp.accountant import Accountant
from csdp.bounds.overview import leakage_table
from csdp.bounds.result import round_up
from csdp.chain import Family, certified_model, fits_epsilon, private_fits
from csdp.estimate import Moments, moments
from csdp.estimate.error import Estimate, error_from_moments
from csdp.plan import Plan

Releases = Literal["1", "continual"]
#: ("what-if", age, epsilon_c, releases), or ("frontier", releases).
Question = tuple[Literal["what-if"], int, float, Releases] | tuple[Literal["frontier"], Releases]
#: Bounds that hold for any number of releases.
_ANY_NUMBER = ("freshness", "lineage", "slice")
FRONTIER_AGES = (0, 1, 2, 3, 5, 8, 13)
#: Noise levels of the frontier of releases at every tick: each costs a whole accountant.
_LEVELS = (0.05, 0.15, 0.4, 1.0, 3.0, 10.0)


class WhatIf:
    """Answers questions about one plan with other settings. It may take long: see `csdp.service.questions`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        found = certified_model(plan.chain)
        self._models = found.members if isinstance(found, Family) else (found,)
        self._moments: Callable[[int], list[Moments]] = lru_cache(maxsize=64)(self._moments_at)

    def solve(self, question: Question) -> dict[str, Any]:
        """The answer to a question."""
        return self.frontier(question[1]) if question[0] == "frontier" else self.answer(*question[1:])

    def answer(self, age: int, epsilon_c: float, releases: Releases) -> dict[str, Any]:
        """Leakage and error of one common age and one noise level, for one release or for one at every tick."""
        plan = self._plan
        other = Plan(plan.chain, plan.query, age, epsilon_c, adversary=plan.adversary, stale_limit=plan.stale_limit)
        other.check_noise()
        proven, unproven = self._bounds(age, epsilon_c)
        accountant = Accountant(other)
        if releases == "continual":
            last = accountant.limit()
            certified, bound = accountant.ceiling(), last.bound
            proven = {name: value for name, value in proven.items() if name in _ANY_NUMBER}
            proven[bound] = min(certified, proven.get(bound, certified))
            unproven = {}
        else:
            certified, bound = other.certified.epsilon, other.certified.bound
        errors = {name: self._error(age, epsilon_c, name) for name in ("raw", "linear")}
        return {
            "age": age,
            "epsilon_c": epsilon_c,
            "releases": releases,
            "leakage": proven,
            "unproven": unproven,
            "certified": certified,
            "bound": bound,
            "mse": {name: error.safe for name, error in errors.items()},
            "no_data": errors["raw"].no_data,
            "event_level": round_up(accountant.event_level(plan.stale_limit) + fits_epsilon(private_fits(plan.chain))),
        }

    def _bounds(self, age: int, epsilon_c: float) -> tuple[dict[str, float], dict[str, float]]:
        """Every bound: the largest over the models, and only where it applies to all of them."""
        plan = self._plan
        tables = [
            leakage_table(model, plan.query, ages=age, epsilon_c=epsilon_c, adversary=plan.adversary, at_any_tick=True)
            for model in self._models
        ]
        proven: dict[str, float] = {}
        unproven: dict[str, float] = {}
        for row in tables[0].rows:
            same = [[other for other in table.rows if other.bound == row.bound] for table in tables]
            if all(same):
                into = proven if row.sound else unproven
                into[row.bound] = max(other.epsilon for others in same for other in others)
        return proven, unproven

    def _moments_at(self, age: int) -> list[Moments]:
        return [moments(model, self._plan.query, ages=(age,) * model.sequences) for model in self._models]

    def _error(self, age: int, epsilon_c: float, estimate: Estimate) -> Any:
        found = [
            error_from_moments(model, self._plan.query, known, (age,) * model.sequences, epsilon_c, estimate)
            for model, known in zip(self._models, self._moments(age), strict=True)
        ]
        return max(found, key=lambda error: error.safe)

    def frontier(self, releases: Releases) -> dict[str, Any]:
        """Leakage and error over a grid of ages and noise levels, and the error of publishing nothing."""
        from csdp.planning import frontier

        plan = self._plan
        line = frontier(
            plan.chain,
            plan.query,
            ages=FRONTIER_AGES,
            levels=None if releases == "1" else _LEVELS,
            releases=1 if releases == "1" else "continual",
            adversary=plan.adversary,
        )
        return {"releases": releases, "points": line.records(), "no_data": line.no_data}
