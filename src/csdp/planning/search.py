"""The search for a plan: least leakage for an error target (the paper's P1), least error for a budget (its dual), or
the least delay for both.

For fixed ages both are one-dimensional: error falls and leakage grows with epsilon_c. Ages are searched in an order
in which a cheap bound on what an age can still achieve ends the search early; the survivors are certified with the
sharpest bound. Whatever a root finder returns is moved to the safe side and checked again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from csdp.aging import Progress
from csdp.arrays import Floats
from csdp.bounds.adversary import Adversary
from csdp.bounds.leakage import leakage
from csdp.bounds.overview import age_curve
from csdp.chain import Family, Model, certified_model, is_forward
from csdp.errors import InfeasibleError, InputError
from csdp.estimate.result import About, Estimate, check_about
from csdp.plan import Plan
from csdp.planning.curves import EVENT_LIMIT, SMALLEST_LEVEL, Curves, Releases, least_level
from csdp.planning.found import Candidate, FoundPlan, SearchRun
from csdp.planning.screening import ScalarScreen
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query

#: Sequences in a component above which a search asks first whether anything but lineage and slice is affordable.
GIANT = 16
#: How much more than the sharp rule allowed at the ages that were tried it may allow at another one, and ages that are
#: certified by it at most.
_CREDIT, _FINALISTS = 1.2, 6
#: Said of a plan that a publisher with its budget would refuse.
_RISES_LATER: Final = (
    "aging raises this leakage before it falls, so a publisher with this budget refuses it: plan for less"
)


def find_plan(
    chain: Model | Family,
    query: Query | str,
    *,
    max_mse: float | None = None,
    budget: float | None = None,
    max_age: int = 50,
    min_age: int = 0,
    ages: Literal["common", "vector"] = "common",
    releases: Releases = 1,
    estimate: Estimate = "history",
    bound: str = "auto",
    adversary: Adversary = "informed",
    protect: float | None = None,
    about: About = "now",
    event_limit: float = EVENT_LIMIT,
    progress: Progress | None = None,
) -> FoundPlan:
    """Find the plan with the least leakage for an error target, with the least error for a budget, or the least delay.

    What is published about the present (`about="now"`) has one target, error or budget. What is published about the
    time of the readings (`about="then"`) has both: the least age is found at which numbers may be this accurate.

    Formal guarantee: the returned numbers are checked again, so leakage <= budget and error <= max_mse hold for the
    plan as it is. An interrupt (Ctrl-C) returns the best plan so far, whose `note` says so.

    Args:
        chain: the model, or a Family of models; the largest leakage and the largest error count.
        query: what is published.
        max_mse, budget: the target, exactly one of the two; both for about="then".
        max_age, min_age: the ages that a plan may have.
        ages: "common" for one age of all sequences, "vector" for an age of each where that is better.
        releases: what the leakage is certified for: 1, a number, or "continual". For more than one the level stays
            within a thousandth of the budget.
        estimate: the estimate whose error counts: by default what a publisher puts out, from the last releases (from
            one where `releases` is 1).
        bound, adversary, protect: as for `csdp.leakage`.
        about: "now": the error is that of telling the present answer. "then": that of telling the answer of the time
            of the readings, so that age costs delay only.
        event_limit: the largest epsilon_c, so that old records keep some protection.
        progress: called with (what, done, total).

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> best = find_plan(chain, Mean(), budget=0.2, estimate="linear", min_age=1, max_age=5)
    >>> best
    FoundPlan(ages 1, epsilon_c 0.490663, leakage 0.2 (exact), squared error 0.132022)
    >>> best.plan
    Plan(mean, ages 1, epsilon_c 0.490663, certified 0.2)
    >>> find_plan(chain, Mean(), about="then", budget=0.2, max_mse=0.1, releases="continual").delay
    3
    """
    search = _Search(
        chain=certified_model(chain),
        query=query,
        max_mse=max_mse,
        budget=budget,
        max_age=max_age,
        min_age=min_age,
        releases=releases,
        estimate=estimate,
        bound=bound,
        adversary=adversary,
        protect=protect,
        about=about,
        event_limit=event_limit,
    )
    if ages not in {"common", "vector"}:
        raise InputError(f"ages: {ages!r} given; 'common' or 'vector'")
    if about == "then" and ages == "vector":
        raise InputError(
            "about='then': answers of one time have one age for all sequences; an age of each (--vector) is for "
            "about='now'"
        )
    run = SearchRun(progress)
    try:
        if about == "then":
            search.least_delay(run)
        else:
            search.best_common_age(run)
        if ages == "vector" and run.best is not None:
            search.best_age_vector(run)
    except KeyboardInterrupt:
        if run.best is None:
            raise
        run.interrupted = True
    if run.best is None:
        raise search.infeasible(run.tried)
    return search.finish(run.best, run)


@dataclass(frozen=True)
class _Search:
    """The arguments of `find_plan`, checked, and the steps of the search."""

    chain: Model | Family
    query: Query | str
    max_mse: float | None
    budget: float | None
    max_age: int
    min_age: int
    releases: Releases
    estimate: Estimate
    bound: str
    adversary: Adversary
    protect: float | None
    about: About
    event_limit: float

    def __post_init__(self) -> None:
        check_about(self.about, self.estimate)
        if self.about == "then" and (self.max_mse is None or self.budget is None):
            raise InputError(
                "find_plan: about='then' finds the least delay for both targets; give max_mse (or --max-error), how "
                "accurate the published numbers are, and budget, the leakage of the present that is allowed"
            )
        if self.about == "now" and (self.max_mse is None) == (self.budget is None):
            which = "both" if self.budget is not None else "neither"
            raise InputError(f"find_plan: {which} of max_mse and budget given; give exactly one target")
        for name in ("max_mse", "budget", "event_limit"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise InputError(f"{name}: {value!r} given; a positive number expected")
        for name in ("max_age", "min_age"):
            age = getattr(self, name)
            if isinstance(age, bool) or not isinstance(age, int) or age < 0:
                raise InputError(f"{name}: {age!r} given; a whole number of steps, 0 or more")
        if self.min_age > self.max_age:
            raise InputError(f"min_age {self.min_age} is above max_age {self.max_age}")
        count: Any = self.releases
        if count != "continual" and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise InputError(f"releases: {count!r} given; a whole number, 1 or more, or 'continual'")

    @cached_property
    def _computation(self) -> QueryTable:
        """The query, verified once for the whole search."""
        return tabulate(self.query, self.chain.members[0])

    def _curves(self, ages: Sequence[int], *, state: str = "auto") -> Curves:
        """Leakage and error at some ages."""
        return Curves(
            self.chain,
            self._computation,
            ages,
            estimate=self.estimate,
            releases=self.releases,
            bound=self.bound,
            adversary=self.adversary,
            protect=self.protect,
            about=self.about,
            state=state,
            cap=None if self._caps is None or min(ages) < 1 else float(self._caps[min(ages) - 1]),
        )

    @cached_property
    def _caps(self) -> Floats | None:
        """The bound of a giant system at every age, in one pass; None where something sharper is affordable."""
        members = self.chain.members
        if self.bound != "auto" or self.max_age < 1 or not all(is_forward(member) for member in members):
            return None
        if max(len(component) for member in members for component in member.components()) <= GIANT:
            return None
        newest = leakage(self.chain, self.query, ages=1, epsilon_c=1.0, adversary=self.adversary)
        if newest.bound not in {"lineage", "slice", "group"}:
            return None
        kinds = ("lineage", "slice")
        curves = [age_curve(self.chain, max_age=self.max_age, bound=k, adversary=self.adversary) for k in kinds]
        return np.asarray(np.minimum(*curves))

    def least_delay(self, run: SearchRun) -> None:
        """The least common age at which the level that meets the error target keeps the budget, by bisection.

        A release of age A + 1 is one of age A seen a tick later, and the leakage that a budget is held against includes
        all later ticks: it never grows with age.
        """
        low, high = self.min_age, self.max_age
        while low <= high:
            age = high if not run.tried else (low + high) // 2  # the oldest first: it tells whether there is any
            run.report("delay", len(run.tried), 2 + (self.max_age - self.min_age).bit_length())
            candidate = self._within_both(age, run.tried)
            if candidate is not None:
                high, run.best = age - 1, candidate
            elif len(run.tried) == 1:
                break
            else:
                low = age + 1

    def _within_both(self, age: int, tried: list[Curves]) -> Candidate | None:
        """The least level that meets the error target at an age, if it keeps the budget."""
        assert self.budget is not None
        curves = self._curves([age] * self.chain.members[0].sequences)
        tried.append(curves)
        level = self._level_for_error(curves)
        if level is None or not curves.leakage_value(level) <= self.budget:
            return None
        if self.releases == 1 and curves.later_peak(level) > self.budget:  # many releases count later ticks anyway
            return None
        return Candidate(curves.leakage_value(level), level, curves)

    def _solve(self, curves: Curves, best: float, *, start: float | None = None) -> Candidate | None:
        """The level that meets the target at fixed ages; None where there is none or it does not beat `best`.

        `start`: a level near it, where one is known.
        """
        if self.budget is None:
            level = self._level_for_error(curves)
        else:
            highest = curves.highest_level(self.budget, self.event_limit) if start is None else None
            if highest is not None and curves.error(highest).safe >= best:
                return None
            level = curves.largest_level(self.budget, self.event_limit, start=start)
        if level is None:
            return None
        objective = curves.leakage_value(level) if self.budget is None else curves.error(level).safe
        return Candidate(objective, level, curves) if objective < best else None

    def _level_for_error(self, curves: Curves) -> float | None:
        """The least level that meets the error target; None where even the event limit misses it."""
        assert self.max_mse is not None
        return least_level(lambda e: curves.error(e).safe, self.max_mse, self.event_limit)

    def _least_error(self, curves: Curves) -> float:
        """The least error that these ages could reach: no budget could allow more than the event limit."""
        return curves.error(self.event_limit).safe

    def best_common_age(self, run: SearchRun) -> None:
        """The best common age; those that cannot beat the best are passed over."""
        sequences = self.chain.members[0].sequences
        run.tried += [self._curves([age] * sequences) for age in range(self.min_age, self.max_age + 1)]
        screen = self._screen
        if screen is not None:
            self._best_screened_age(screen, run)
            if run.best is not None:
                return
        order, least = run.tried, dict[int, float]()
        if self.budget is not None:
            least = {id(curves): self._least_error(curves) for curves in run.tried}
            order = sorted(run.tried, key=lambda curves: least[id(curves)])
        for done, curves in enumerate(order):
            if run.best is not None and least and least[id(curves)] >= run.best.objective:
                break
            run.report("planning", done, len(order))
            run.offer(self._solve(curves, run.best.objective if run.best is not None else math.inf))

    @cached_property
    def _screen(self) -> ScalarScreen | None:
        """What the scalar rule allows at every age; None for one release, and where it is not what takes long."""
        if self.releases == 1 or self.bound != "auto" or self.max_age - self.min_age < 2:
            return None
        ages = [self.min_age] * self.chain.members[0].sequences
        secret: dict[str, Any] = {"adversary": self.adversary, "protect": self.protect}
        return ScalarScreen.make(Plan(self.chain, self._computation, ages, 1.0, **secret))

    def _best_screened_age(self, screen: ScalarScreen, run: SearchRun) -> None:
        """Ages in the order of what the scalar rule allows; the first few are certified sharply, while they might win.

        The sharp rule allows more by a factor that hardly depends on the age: the largest that was seen, and a fifth
        more, is what the others are given credit for. What is passed over costs accuracy at most, never soundness.
        """
        waiting: dict[int, tuple[float, Curves]] = {}  # the level that the scalar rule allows, or the error needs
        for curves in run.tried:
            if self.budget is not None:
                level: float | None = screen.level(curves.ages[0], self.budget, limit=self.event_limit)
            else:
                level = self._level_for_error(curves)
            if level is not None and level > SMALLEST_LEVEL:
                waiting[curves.ages[0]] = level, curves
        gain, total = 1.0, len(waiting)

        def promise(age: int, credit: float) -> float:
            level, curves = waiting[age]
            if self.budget is None:
                return screen.leakage(age, level) / credit
            return curves.point_error(min(self.event_limit, level * credit)).safe  # no more than under all models

        while waiting and total - len(waiting) < _FINALISTS:
            credit = gain if run.best is None else gain * _CREDIT
            age = min(waiting, key=lambda age: promise(age, credit))
            if run.best is not None and promise(age, credit) >= run.best.objective:
                return
            if run.best is None and self.budget is not None:
                run.offer(self._scalar_candidate(age, waiting[age][0]))
            run.report("planning", total - len(waiting), min(total, _FINALISTS))
            promised, (level, curves) = promise(age, 1.0), waiting.pop(age)
            candidate = self._solve(curves, math.inf, start=level * gain)
            run.offer(candidate)
            if candidate is not None:
                gain = max(
                    gain, candidate.epsilon_c / level if self.budget is not None else promised / candidate.objective
                )

    def _scalar_candidate(self, age: int, level: float) -> Candidate | None:
        """A plan within the budget by the scalar rule alone: there at once, and what an interrupt leaves."""
        assert self.budget is not None
        curves = self._curves([age] * self.chain.members[0].sequences, state="scalar")
        if curves.leakage_value(level) > self.budget:
            return None
        return Candidate(curves.error(level).safe, level, curves)

    def best_age_vector(self, run: SearchRun) -> None:
        """From the best common age: change the age of one sequence, or of two, as long as that helps."""
        assert run.best is not None
        seen = {run.best.curves.ages}
        improved = True
        while improved:
            improved = False
            for ages in self._neighbours(run.best.curves.ages):
                if ages in seen:
                    continue
                seen.add(ages)
                curves = self._curves(ages)
                run.tried.append(curves)
                if self.budget is not None and self._least_error(curves) >= run.best.objective:
                    continue
                better = self._solve(curves, run.best.objective * (1 - 1e-9))
                if better is not None:
                    run.best, improved = better, True
                    break

    def _neighbours(self, ages: tuple[int, ...]) -> list[tuple[int, ...]]:
        """One sequence up to three steps older or younger, then one a step older for another a step younger."""
        several = range(len(ages))
        moves = [{i: delta} for i in several for delta in (-3, -2, -1, 1, 2, 3)]
        moves += [{i: 1, j: -1} for i in several for j in several if i != j]
        moved = [tuple(age + move.get(i, 0) for i, age in enumerate(ages)) for move in moves]
        return [one for one in moved if self.min_age <= min(one) and max(one) <= self.max_age]

    def finish(self, best: Candidate, run: SearchRun) -> FoundPlan:
        """Build the plan and check its numbers once more."""
        curves, level = best.curves, best.epsilon_c
        certified, error = curves.leakage(level), curves.error(level)
        if self.budget is not None and not certified.epsilon <= self.budget:
            raise AssertionError("planning: the certified leakage passes the budget")
        if self.max_mse is not None and not error.safe <= self.max_mse:
            raise AssertionError("planning: the error passes the target")
        target = error.safe if self.max_mse is None or self.about == "then" else self.max_mse
        note = ""
        if target >= error.no_data:
            note = f"publishing nothing but the long-run mean has squared error {error.no_data:.3g}, which is no more"
        if self.releases == 1 and self.budget is not None and curves.later_peak(level) > self.budget:
            note = _RISES_LATER
        if run.interrupted:
            words = "the search was interrupted; this is the best plan so far, and there may be better ones"
            note = f"{note}; {words}" if note else words
        evaluated = [one for one in run.tried if one.evaluations]
        return FoundPlan(
            curves.plan(level),
            leakage=certified,
            error=error,
            evaluations=sum(one.evaluations for one in evaluated),
            saved=len(run.tried) - len(evaluated),
            note=note,
        )

    def infeasible(self, tried: list[Curves]) -> InfeasibleError:
        """The error that says which target could be met."""
        if self.about == "then" and tried[0].error(self.event_limit).safe <= (self.max_mse or 0.0):
            leak = tried[0].leakage(self._level_for_error(tried[0]) or self.event_limit).epsilon
            return InfeasibleError(
                f"budget {self.budget:g} cannot be met: numbers with max_mse {self.max_mse:g} leak {leak:.3g} "
                f"even when they are held back {self.max_age} ticks; raise max_age, the budget or max_mse",
                nearest=leak,
                no_data=tried[0].error(self.event_limit).no_data,
            )
        if self.budget is not None and self.about == "now":
            least = min(curves.leakage_value(SMALLEST_LEVEL) for curves in tried)
            return InfeasibleError(
                f"budget {self.budget:g} cannot be met: at ages up to {self.max_age} even epsilon_c "
                f"{SMALLEST_LEVEL:g} leaks {least:.3g}; raise the budget or max_age",
                nearest=least,
                no_data=tried[0].error(self.event_limit).no_data,
            )
        reachable = [curves.error(self.event_limit) for curves in tried]
        least = min(error.safe for error in reachable)
        no_data = reachable[0].no_data
        return InfeasibleError(
            f"max_mse {self.max_mse:g} cannot be met: the least squared error with epsilon_c up to "
            f"{self.event_limit:g} is {least:.4g}; publishing nothing has squared error {no_data:.4g}. Raise "
            "max_mse or event_limit",
            nearest=min(least, no_data),
            no_data=no_data,
        )
