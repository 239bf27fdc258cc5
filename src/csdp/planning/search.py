"""The search for a plan: least leakage for an error target (the paper's P1), or least error for a budget (its dual).

For fixed ages both are one-dimensional: error falls and leakage grows with epsilon_c. Ages are searched in an order
in which a cheap bound on what an age can still achieve ends the search early; the survivors are certified with the
sharpest bound. Whatever a root finder returns is moved to the safe side and checked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, Progress
from csdp.bounds.leakage import leakage
from csdp.bounds.overview import age_curve
from csdp.bounds.result import Leakage, as_text
from csdp.chain import Family, Model, certified_model, is_forward
from csdp.computation import Computation, verify_query
from csdp.errors import InfeasibleError, InputError
from csdp.estimate import Error
from csdp.estimate.error import Estimate
from csdp.plan import Plan
from csdp.planning.curves import Curves, Releases
from csdp.planning.levels import EVENT_LIMIT, SMALLEST_LEVEL, least_level
from csdp.queries import Query

Floats = npt.NDArray[np.float64]

#: Sequences in a component above which a search asks first whether anything but lineage and slice is affordable.
GIANT = 16


class Found(Plan):
    """A plan that was searched for, ready for a Publisher, with what it achieves and how it was found.

    `leakage`: certified for the releases that were planned for; `error`: of the estimate that was asked for.
    `evaluations`: how often leakage was computed; `saved`: ages whose leakage never had to be. `note` says where
    publishing nothing would do as well.
    """

    leakage: Leakage
    error: Error
    evaluations: int
    saved: int
    note: str

    def __init__(
        self, plan: Plan, *, leakage: Leakage, error: Error, evaluations: int, saved: int, note: str = ""
    ) -> None:
        self.__dict__.update(plan.__dict__)
        self.__dict__.update(leakage=leakage, error=error, evaluations=evaluations, saved=saved, note=note)

    def __repr__(self) -> str:
        ages = self.ages[0] if len(set(self.ages)) == 1 else self.ages
        return (
            f"Found(ages {ages}, epsilon_c {self.epsilon_c:.6g}, leakage {as_text(self.leakage.epsilon)} "
            f"({self.leakage.bound}), error {self.error.mse:.6g})"
        )


@dataclass(frozen=True)
class Question:
    """What is asked, checked."""

    chain: Model | Family
    query: Query
    max_mse: float | None
    budget: float | None
    max_age: int
    min_age: int
    releases: Releases
    estimate: Estimate
    bound: str
    adversary: Adversary
    event_limit: float

    @property
    def _first(self) -> Model:
        return self.chain.members[0] if isinstance(self.chain, Family) else self.chain

    @property
    def sequences(self) -> int:
        """How many sequences there are."""
        return self._first.sequences

    @cached_property
    def _computation(self) -> Computation:
        """The query, verified once for the whole search."""
        return verify_query(self.query, self._first)

    def curves(self, ages: Sequence[int]) -> Curves:
        """Leakage and error at some ages."""
        return Curves(
            self.chain,
            self._computation,
            ages,
            estimate=self.estimate,
            releases=self.releases,
            bound=self.bound,
            adversary=self.adversary,
            cap=self._cap(ages),
        )

    def _cap(self, ages: Sequence[int]) -> float | None:
        """What no noise is needed for at these ages, where the system is too large for anything sharper."""
        if self._caps is None or min(ages) < 1:
            return None
        return float(self._caps[min(ages) - 1])

    @cached_property
    def _caps(self) -> Floats | None:
        """The bound of a giant system at every age, in one pass; None where something sharper is affordable."""
        members = self.chain.members if isinstance(self.chain, Family) else (self.chain,)
        if self.bound != "auto" or self.max_age < 1 or not all(is_forward(member) for member in members):
            return None
        if max(len(part) for member in members for part in member.components()) <= GIANT:
            return None
        newest = leakage(self.chain, self.query, ages=1, epsilon_c=1.0, adversary=self.adversary, at_any_tick=True)
        if newest.bound not in {"lineage", "slice", "group"}:
            return None
        kinds = ("lineage", "slice")
        curves = [age_curve(self.chain, max_age=self.max_age, bound=k, adversary=self.adversary) for k in kinds]
        return np.asarray(np.minimum(*curves))

    def solve(self, curves: Curves, best: float) -> tuple[float, float, float] | None:
        """(objective, epsilon_c, other) at fixed ages, or None where it cannot beat `best`."""
        return self._least_leakage(curves, best) if self.budget is None else self._least_error(curves, best)

    def _least_leakage(self, curves: Curves, best: float) -> tuple[float, float, float] | None:
        assert self.max_mse is not None
        level = least_level(lambda e: curves.error(e).safe, self.max_mse, self.event_limit)
        if level is None:
            return None
        told = curves.leaks(level)
        return (told, level, curves.error(level).safe) if told < best else None

    def _least_error(self, curves: Curves, best: float) -> tuple[float, float, float] | None:
        assert self.budget is not None
        highest = curves.highest_level(self.budget, self.event_limit)
        if highest is not None and curves.error(highest).safe >= best:
            return None
        level = curves.largest_level(self.budget, self.event_limit)
        if level is None:
            return None
        error = curves.error(level).safe
        return (error, level, curves.leaks(level)) if error < best else None

    def promise(self, curves: Curves) -> float:
        """The least error that these ages could reach: no budget could allow more than the event limit."""
        return curves.error(self.event_limit).safe


def find_plan(
    chain: Model | Family,
    query: Query,
    *,
    max_mse: float | None = None,
    budget: float | None = None,
    max_age: int = 50,
    min_age: int = 0,
    ages: Literal["common", "vector"] = "common",
    releases: Releases = 1,
    estimate: Estimate = "raw",
    bound: str = "auto",
    adversary: Adversary = "informed",
    event_limit: float = EVENT_LIMIT,
    progress: Progress | None = None,
) -> Found:
    """The plan with the least leakage for an error target (`max_mse`), or with the least error for a `budget`.

    Exactly one target. `ages="vector"` gives every sequence its own age where that is better. `releases`: 1, a number,
    or "continual": the level for more than one stays within a thousandth of the budget. `event_limit` bounds epsilon_c,
    by default at 10, so that old records keep some protection. The returned numbers are checked again: leakage <=
    budget and error <= target hold for them as they are.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> find_plan(chain, Mean(), budget=0.2, estimate="linear", min_age=1, max_age=5)
    Found(ages 1, epsilon_c 0.490663, leakage 0.2 (exact), error 0.132046)
    """
    question = _checked(
        chain=chain,
        query=query,
        max_mse=max_mse,
        budget=budget,
        max_age=max_age,
        min_age=min_age,
        releases=releases,
        estimate=estimate,
        bound=bound,
        adversary=adversary,
        event_limit=event_limit,
    )
    if ages not in {"common", "vector"}:
        raise InputError(f"ages: {ages!r} given; 'common' or 'vector'")
    common, curves = _best_common(question, progress)
    found = _refined(question, common, curves) if ages == "vector" and common is not None else common
    if found is None:
        raise _infeasible(question, curves)
    return _finished(question, found, curves)


@dataclass(frozen=True)
class _Candidate:
    objective: float
    epsilon_c: float
    curves: Curves


def _best_common(question: Question, progress: Progress | None) -> tuple[_Candidate | None, list[Curves]]:
    """The best common age; ages that cannot beat the best so far are passed over."""
    tried = [question.curves([age] * question.sequences) for age in range(question.min_age, question.max_age + 1)]
    best: _Candidate | None = None
    order = tried
    promises: dict[int, float] = {}
    if question.budget is not None:
        promises = {id(curves): question.promise(curves) for curves in tried}
        order = sorted(tried, key=lambda curves: promises[id(curves)])
    for done, curves in enumerate(order):
        if best is not None and promises and promises[id(curves)] >= best.objective:
            break
        if progress is not None:
            progress("planning", done, len(order))
        solved = question.solve(curves, best.objective if best is not None else float("inf"))
        if solved is not None:
            best = _Candidate(solved[0], solved[1], curves)
    return best, tried


def _refined(question: Question, start: _Candidate, tried: list[Curves]) -> _Candidate:
    """From the best common age: change the age of one sequence, or of two, as long as that helps."""
    best, seen = start, {start.curves.ages}
    improved = True
    while improved:
        improved = False
        for ages in _neighbours(best.curves.ages, question):
            if ages in seen:
                continue
            seen.add(ages)
            curves = question.curves(ages)
            tried.append(curves)
            if question.budget is not None and question.promise(curves) >= best.objective:
                continue
            solved = question.solve(curves, best.objective * (1 - 1e-9))
            if solved is not None:
                best, improved = _Candidate(solved[0], solved[1], curves), True
                break
    return best


def _neighbours(ages: tuple[int, ...], question: Question) -> list[tuple[int, ...]]:
    """One sequence up to three steps older or younger, then one a step older for another a step younger."""
    several = range(len(ages))
    moves = [{i: delta} for i in several for delta in (-3, -2, -1, 1, 2, 3)]
    moves += [{i: 1, j: -1} for i in several for j in several if i != j]
    moved = [tuple(age + move.get(i, 0) for i, age in enumerate(ages)) for move in moves]
    return [found for found in moved if question.min_age <= min(found) and max(found) <= question.max_age]


def _finished(question: Question, found: _Candidate, tried: list[Curves]) -> Found:
    """Build the plan and check its numbers once more."""
    plan = found.curves.plan(found.epsilon_c)
    certified, error = found.curves.leakage(found.epsilon_c), found.curves.error(found.epsilon_c)
    if question.budget is not None and not certified.epsilon <= question.budget:
        raise AssertionError("planning: the certified leakage passes the budget")
    if question.max_mse is not None and not error.safe <= question.max_mse:
        raise AssertionError("planning: the error passes the target")
    target = question.max_mse if question.max_mse is not None else error.safe
    note = ""
    if target >= error.no_data:
        note = f"publishing nothing but the long-run mean has error {error.no_data:.3g}, which is no more"
    if question.releases == 1 and question.budget is not None and found.curves.later(found.epsilon_c) > question.budget:
        note = "aging raises this leakage before it falls, so a publisher with this budget refuses it: plan for less"
    evaluated = [curves for curves in tried if curves.evaluations]
    return Found(
        plan,
        leakage=certified,
        error=error,
        evaluations=sum(curves.evaluations for curves in evaluated),
        saved=len(tried) - len(evaluated),
        note=note,
    )


def _infeasible(question: Question, tried: list[Curves]) -> InfeasibleError:
    if question.budget is not None:
        least = min(curves.leaks(SMALLEST_LEVEL) for curves in tried)
        return InfeasibleError(
            f"budget {question.budget:g} cannot be met: at ages up to {question.max_age} even epsilon_c "
            f"{SMALLEST_LEVEL:g} leaks {least:.3g}; raise the budget or max_age",
            nearest=least,
            no_data=tried[0].error(question.event_limit).no_data,
        )
    reachable = [curves.error(question.event_limit) for curves in tried]
    least = min(error.safe for error in reachable)
    no_data = reachable[0].no_data
    word = "publishing nothing" if no_data <= least else "it"
    return InfeasibleError(
        f"max_mse {question.max_mse:g} cannot be met: the least error with epsilon_c up to {question.event_limit:g} is "
        f"{least:.4g}; {word} has error {no_data:.4g}. Raise max_mse or event_limit, or use estimate='linear'",
        nearest=min(least, no_data),
        no_data=no_data,
    )


def _checked(**given: Any) -> Question:
    if (given["max_mse"] is None) == (given["budget"] is None):
        which = "both" if given["budget"] is not None else "neither"
        raise InputError(f"find_plan: {which} of max_mse and budget given; give exactly one target")
    for name in ("max_mse", "budget", "event_limit"):
        value = given[name]
        if value is not None and not (isinstance(value, int | float) and 0 < value < float("inf")):
            raise InputError(f"{name}: {value!r} given; a positive number expected")
    for name in ("max_age", "min_age"):
        if isinstance(given[name], bool) or not isinstance(given[name], int) or given[name] < 0:
            raise InputError(f"{name}: {given[name]!r} given; a whole number of steps, 0 or more")
    if given["min_age"] > given["max_age"]:
        raise InputError(f"min_age {given['min_age']} is above max_age {given['max_age']}")
    releases = given["releases"]
    if releases != "continual" and (isinstance(releases, bool) or not isinstance(releases, int) or releases < 1):
        raise InputError(f"releases: {releases!r} given; a whole number, 1 or more, or 'continual'")
    return Question(**{**given, "chain": certified_model(given["chain"])})
