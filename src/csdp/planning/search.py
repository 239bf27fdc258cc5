"""The search for a plan: least leakage for an error target (the paper's P1), least error for a budget (its dual), or
the least delay for both.

At fixed ages the calibrator finds the level. Ages are searched only if the level at which they would beat the best so
far keeps the budget. Whatever is found is certified again.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

from csdp.accountant.build import Rule
from csdp.accountant.joint import Known
from csdp.aging import Progress
from csdp.bounds.result import Leakage, as_text
from csdp.chain import Family, Model, certified_model
from csdp.chain.steps import METRIC_STATES
from csdp.check import choice, number, whole
from csdp.errors import CsdpError, InfeasibleError, InputError, NotUsefulError
from csdp.estimate import Error, mse
from csdp.estimate.result import USEFUL, About, Estimate, about_words, check_about
from csdp.plan import Plan
from csdp.planning.calibrate import (
    CLOSE,
    EVENT_LIMIT,
    SMALLEST_LEVEL,
    Curves,
    Releases,
    largest_level,
    least_level,
)
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query

#: Said of a plan that a publisher with its budget would refuse.
_RISES_LATER: Final = (
    "aging raises this leakage before it falls, so a publisher with this budget refuses it: plan for less"
)


@dataclass(frozen=True)
class FoundPlan:
    """The result of a search: the plan, what it achieves, and how it was found.

    Args:
        plan: the plan, ready for a Publisher.
        leakage: certified for the releases that were planned for.
        error: of the estimate that was planned for.
        moment: what these releases reveal of the state at any one tick.
        note: says if publishing nothing would do as well, or if a publisher would refuse the plan; else empty.
    """

    plan: Plan
    leakage: Leakage
    error: Error
    moment: float
    note: str = ""

    @property
    def useful(self) -> bool:
        """Whether at least 5 % of the squared error of guessing the usual value is removed."""
        return self.error.useful

    @property
    def delay(self) -> int:
        """How many ticks a reading is held back before any release contains it."""
        return self.plan.min_age

    def __repr__(self) -> str:
        ages = self.plan.ages[0] if len(set(self.plan.ages)) == 1 else self.plan.ages
        return (
            f"FoundPlan(ages {ages}, epsilon_c {self.plan.epsilon_c:.6g}, leakage {as_text(self.leakage.epsilon)} "
            f"({self.leakage.bound}), any moment {as_text(self.moment)}, squared error {self.error.mse:.6g})"
        )


def find_plan(
    chain: Model | Family,
    query: Query | str,
    *,
    max_mse: float | None = None,
    budget: float | None = None,
    moment_limit: float | None = None,
    about: About = "now",
    max_age: int = 50,
    min_age: int = 0,
    ages: Literal["common", "vector"] = "common",
    releases: Releases = 1,
    estimate: Estimate = "history",
    event_limit: float = EVENT_LIMIT,
    units: Sequence[Sequence[str | int]] | None = None,
    progress: Progress | None = None,
) -> FoundPlan:
    """Find the plan with the least leakage for an error target, with the least error for a budget, or the least delay.

    What is published about the present (`about="now"`) has one target, error or budget. What is published about the
    time of the readings (`about="then"`) has both: the least age is found at which numbers may be this accurate.
    Beside these, or alone, there may be a limit on what is revealed of every moment: now, with noise, can protect every
    moment; later, nearly without noise, protects the present only.

    Formal guarantee: the returned numbers are certified again, so leakage <= budget and error <= max_mse hold for the
    plan as it is. An interrupt (Ctrl-C) returns the best plan so far, whose `note` says so.

    Args:
        chain: the model, or a Family of models; the largest leakage and the largest error count.
        query: what is published.
        max_mse, budget: the target, exactly one of the two; both for about="then". None is needed with `moment_limit`.
        moment_limit: the most that all releases may reveal of the state at any one tick.
        about: "now": the error is against the present answer. "then": against the answer of the time of the readings,
            so that age costs only delay.
        max_age, min_age: the ages that a plan may have.
        ages: "common" for one age of all sequences, "vector" for an age of each if that is better.
        releases: what the leakage is certified for: 1, a number, or "continual". For more than one the level stays
            within a thousandth of the budget.
        estimate: the estimate whose error counts: by default what a publisher puts out, from the last releases (from
            one if `releases` is 1).
        event_limit: the largest epsilon_c, so that old records keep some protection.
        units: lists of sequences that belong to one person, whose states are one secret.
        progress: called with (what, done, total).

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> best = find_plan(chain, Mean(), budget=0.2, estimate="linear", min_age=1, max_age=5)
    >>> best
    FoundPlan(ages 1, epsilon_c 0.490663, leakage 0.2 (exact), any moment 0.981327, squared error 0.132022)
    >>> best.plan
    Plan(mean, ages 1, epsilon_c 0.490663, certified 0.2)
    >>> find_plan(chain, Mean(), about="then", budget=0.2, max_mse=0.1, releases="continual").delay
    3
    """
    choice("ages", ages, ("common", "vector"))
    if about == "then" and ages == "vector":
        raise InputError(
            "find_plan: a vector of ages asked for with about='then'; answers of one time have one age for all "
            "sequences, so ask for a common age"
        )
    if certified_model(chain).members[0].verdict.status == "none":
        raise InputError(
            "find_plan: without a model nothing bounds the present or any moment, so there is nothing to search for; "
            "publish new readings within an event limit: csdp.Plan of age 0 with the limit as epsilon_c, or "
            "`csdp plan` with --event-limit alone"
        )
    count: Releases = "continual"
    if releases != "continual":
        count = whole("releases", releases, least=1, hint="or 'continual'")
    search = _Search(
        chain=certified_model(chain),
        query=query,
        max_mse=None if max_mse is None else number("max_mse", max_mse, above=0),
        budget=None if budget is None else number("budget", budget, above=0),
        max_age=whole("max_age", max_age),
        min_age=whole("min_age", min_age),
        releases=count,
        estimate=estimate,
        about=about,
        event_limit=number("event_limit", event_limit, above=0),
        units=units,
        progress=progress,
    )
    if moment_limit is not None:
        search = search.within(number("moment_limit", moment_limit, above=0))
    if moment_limit is None or max_mse is not None or budget is not None:
        search.check_targets()
    try:
        if search.max_mse is None and search.budget is None:
            search.least_noise()
        elif about == "then":
            search.least_delay()
        else:
            search.best_common_age()
        if ages == "vector" and search.run.best is not None:
            search.best_age_vector()
    except KeyboardInterrupt:
        if search.run.best is None:
            raise
        search.run.interrupted = True
    if search.run.best is None:
        raise search.infeasible()
    return search.finish(search.run.best)


@dataclass(frozen=True)
class _Candidate:
    """Ages and a level that meet the target, and what they achieve: the leakage, or for a budget the error."""

    objective: float
    epsilon_c: float
    curves: Curves


class _SearchRun:
    """How far a search has come."""

    def __init__(self) -> None:
        self.best: _Candidate | None = None
        self.tried: list[Curves] = []
        self.interrupted = False


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
    about: About
    event_limit: float
    units: Sequence[Sequence[str | int]] | None
    progress: Progress | None
    #: the most that may be revealed of any moment, which `event_limit` keeps
    moment_limit: float | None = None
    run: _SearchRun = field(default_factory=_SearchRun)

    def __post_init__(self) -> None:
        check_about(self.about)
        whole("min_age", self.min_age, most=self.max_age, hint="it may not be above max_age")

    def check_targets(self) -> None:
        """Refuse targets that no search is for."""
        if self.about == "then" and (self.max_mse is None or self.budget is None):
            raise InputError(
                "find_plan: about='then' finds the least delay for both targets; give max_mse (or --max-error), how "
                "accurate the published numbers are, and budget, the leakage of the present that is allowed"
            )
        if self.about == "now" and (self.max_mse is None) == (self.budget is None):
            which = "both" if self.budget is not None else "neither"
            raise InputError(
                f"find_plan: {which} of max_mse and budget given; give exactly one target, or moment_limit alone"
            )

    def within(self, moment_limit: float) -> _Search:
        """The same search with levels at which every moment keeps a limit, which no age changes."""
        young = self._common(self.min_age)
        level = largest_level(young.every_moment, moment_limit, self.event_limit, tolerance=CLOSE)
        if level is None:
            least = young.every_moment(SMALLEST_LEVEL)
            raise InfeasibleError(
                f"moment_limit {moment_limit:g} cannot be met: even epsilon_c {SMALLEST_LEVEL:g} reveals "
                f"{as_text(least)} of any one moment. Raise the limit, or use a model with influences in both "
                "directions of time, such as sequences that follow themselves alone or csdp.InfluenceGraph.declared",
                nearest=least,
                no_data=math.nan,
            )
        return replace(self, event_limit=level, moment_limit=moment_limit)

    def least_noise(self) -> None:
        """The youngest age and the largest level that every moment allows."""
        curves = self._common(self.min_age)
        self.run.tried.append(curves)
        self.run.best = _Candidate(curves.error(self.event_limit).safe, self.event_limit, curves)

    @cached_property
    def _table(self) -> QueryTable:
        return tabulate(self.query, self.chain.members[0])

    @cached_property
    def _known(self) -> Known:
        return Known()

    def _curves(self, ages: tuple[int, ...], rule: Rule = "auto") -> Curves:
        """Leakage and error at some ages."""
        return Curves(
            self.chain,
            self._table,
            ages,
            estimate=self.estimate,
            releases=self.releases,
            about=self.about,
            rule=rule,
            known=self._known,
            units=self.units,
        )

    def _common(self, age: int) -> Curves:
        return self._curves((age,) * self.chain.members[0].sequences)

    def _report(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)

    def least_delay(self) -> None:
        """The least common age at which the level that meets the error target keeps the budget.

        A release of age A + 1 is one of age A seen a tick later, and the leakage that a budget is held against includes
        all later ticks: it never grows with age.
        """
        steps = 2 + (self.max_age - self.min_age).bit_length()

        def fits(age: int) -> bool:
            self._report("delay", len(self.run.tried), steps)
            candidate = self._within_both(age)
            self.run.best = candidate or self.run.best
            return candidate is not None

        if fits(self.max_age):  # the oldest first: it shows whether there is any
            bisect_left(range(self.min_age, self.max_age), True, key=fits)

    def _within_both(self, age: int) -> _Candidate | None:
        """The least level that meets the error target at an age, if it keeps the budget."""
        assert self.budget is not None
        curves = self._common(age)
        self.run.tried.append(curves)
        level = self._level_for_error(curves)
        if level is None or not curves.leakage(level).epsilon <= self.budget:
            return None
        if self.releases == 1 and curves.later_peak(level) > self.budget:  # many releases count later ticks anyway
            return None
        return _Candidate(curves.leakage(level).epsilon, level, curves)

    def _level_for_error(self, curves: Curves) -> float | None:
        """The least level that meets the error target; None if even the event limit misses it."""
        assert self.max_mse is not None
        return least_level(lambda e: curves.error(e).safe, self.max_mse, self.event_limit)

    def _solve(self, curves: Curves, best: float) -> _Candidate | None:
        """The level that meets the target at fixed ages; None if there is none or it does not beat `best`."""
        if self.budget is None:
            level = self._level_for_error(curves)
            objective = math.inf if level is None else curves.leakage(level).epsilon
        else:
            level = self._level_for_budget(curves, self.budget, best)
            objective = math.inf if level is None else curves.error(level).safe
        return None if level is None or not objective < best else _Candidate(objective, level, curves)

    def _level_for_budget(self, curves: Curves, budget: float, best: float) -> float | None:
        """The largest level that keeps the budget; None if it cannot have less error than the best so far."""
        start: float | None = None
        if best < math.inf:
            start = least_level(lambda e: curves.error(e).safe, best, self.event_limit)
            if start is None:
                return None
            if self._is_costly and curves.least_leakage(start) > budget:
                return None
            if not curves.leakage(start).epsilon <= budget:
                return None
        return curves.largest_level(budget, self.event_limit, start=start)

    def best_common_age(self) -> None:
        """The best common age; those that cannot beat the best are passed over."""
        self.run.tried += [self._common(age) for age in range(self.min_age, self.max_age + 1)]
        for done, curves in enumerate(self._order(self.run.tried)):
            self._report("planning", done, len(self.run.tried))
            self.run.best = (
                self._solve(curves, math.inf if self.run.best is None else self.run.best.objective) or self.run.best
            )

    def _order(self, tried: list[Curves]) -> list[Curves]:
        """Where each new level is costly: first the youngest age that keeps the budget at the event limit.

        The others need as much accuracy to beat it, and the state at rest at this one level serves every age.
        """
        budget = self.budget
        if budget is None or not self._is_costly:
            return tried
        quick = [self._curves(curves.ages, rule="scalar") for curves in tried]  # no smaller, and quickly computed
        first = bisect_left(quick, True, key=lambda curves: curves.leakage(self.event_limit).epsilon <= budget)
        if first == len(tried):
            return tried
        tried[first] = replace(tried[first], near=self.event_limit)
        return [*tried[first::-1], *tried[first + 1 :]]

    @cached_property
    def _is_costly(self) -> bool:
        """Whether the leakage of many releases is that of a metric state, whose state at rest takes long to find."""
        sizes = [model.states ** len(part) for model in self.chain.members for part in model.components()]
        return self.releases != 1 and min(sizes) <= METRIC_STATES

    def best_age_vector(self) -> None:
        """From the best common age: change the age of one sequence, or of two, as long as that helps."""
        assert self.run.best is not None
        seen = {self.run.best.curves.ages}
        improved = True
        while improved:
            improved = False
            for ages in self._neighbours(self.run.best.curves.ages):
                if ages in seen:
                    continue
                seen.add(ages)
                better = self._solve(self._curves(ages), self.run.best.objective * (1 - 1e-9))
                if better is not None:
                    self.run.best, improved = better, True
                    break

    def _neighbours(self, ages: tuple[int, ...]) -> list[tuple[int, ...]]:
        """One sequence up to three steps older or younger, then one a step older for another a step younger."""
        several = range(len(ages))
        moves = [{i: delta} for i in several for delta in (-3, -2, -1, 1, 2, 3)]
        moves += [{i: 1, j: -1} for i in several for j in several if i != j]
        moved = [tuple(age + move.get(i, 0) for i, age in enumerate(ages)) for move in moves]
        return [one for one in moved if self.min_age <= min(one) and max(one) <= self.max_age]

    def finish(self, best: _Candidate) -> FoundPlan:
        """Build the plan and check its numbers once more."""
        curves, level = best.curves, best.epsilon_c
        certified, error = curves.leakage(level), curves.error(level)
        if self.budget is not None and not certified.epsilon <= self.budget:
            raise AssertionError("planning: the certified leakage passes the budget")
        if self.max_mse is not None and not error.safe <= self.max_mse:
            raise AssertionError("planning: the error passes the target")
        target = error.safe if self.max_mse is None or self.about == "then" else self.max_mse
        note = ""
        if error.no_data > 0 and target >= error.no_data:
            note = f"publishing nothing but the long-run mean has squared error {error.no_data:.3g}, which is no more"
        if self.releases == 1 and self.budget is not None and curves.later_peak(level) > self.budget:
            note = _RISES_LATER
        if self.run.interrupted:
            words = "the search was interrupted; this is the best plan so far, and there may be better ones"
            note = f"{note}; {words}" if note else words
        moment = curves.every_moment(level)
        if self.moment_limit is not None and not moment <= self.moment_limit:
            raise AssertionError("planning: what is revealed of any moment passes its limit")
        return FoundPlan(curves.plan(level), certified, error, moment, note)

    def _slow_levels(self) -> str:
        """What slow levels add, which neither noise nor a delay lowers, in words."""
        swing = getattr(certified_model(self.chain), "swing", None)
        if swing is None or not swing.any():
            return ""
        return (
            f". Slow levels alone add {as_text(float(swing.max()))}, whatever the noise and the age are: use a longer "
            "public past, declare a model, or plan without one (csdp.NoModel)"
        )

    def infeasible(self) -> InfeasibleError:
        """The error that says which target could be met."""
        tried = self.run.tried
        if self.about == "then" and tried[0].error(self.event_limit).safe <= (self.max_mse or 0.0):
            leak = tried[0].leakage(self._level_for_error(tried[0]) or self.event_limit).epsilon
            return InfeasibleError(
                f"budget {self.budget:g} cannot be met: numbers with max_mse {self.max_mse:g} leak {leak:.3g} "
                f"even when they are held back {self.max_age} ticks; raise max_age, the budget or max_mse"
                f"{self._slow_levels()}",
                nearest=leak,
                no_data=tried[0].error(self.event_limit).no_data,
            )
        if self.budget is not None and self.about == "now":
            least = min(curves.leakage(SMALLEST_LEVEL).epsilon for curves in tried)
            return InfeasibleError(
                f"budget {self.budget:g} cannot be met: at ages up to {self.max_age} even epsilon_c "
                f"{SMALLEST_LEVEL:g} leaks {least:.3g}; raise the budget or max_age{self._slow_levels()}",
                nearest=least,
                no_data=tried[0].error(self.event_limit).no_data,
            )
        reachable = [curves.error(self.event_limit) for curves in tried]
        least = min(error.safe for error in reachable)
        no_data = reachable[0].no_data
        nothing = f"; publishing nothing has squared error {no_data:.4g}" if no_data > 0 else ""
        limit = "event_limit" if self.moment_limit is None else "moment_limit"
        return InfeasibleError(
            f"max_mse {self.max_mse:g} cannot be met: the least squared error with epsilon_c up to "
            f"{self.event_limit:g} is {least:.4g}{nothing}. Raise max_mse or {limit}",
            nearest=min(least, no_data) if no_data > 0 else least,
            no_data=no_data,
        )


# ---- whether a plan is worth its leakage ---------------------------------------------------------------------------


def check_useful(plan: Plan, error: Error) -> None:
    """Raise NotUsefulError if an estimate removes less than 5 % of the squared error of guessing the usual value.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=2, epsilon_c=1)
    >>> check_useful(plan, mse(plan.chain, plan.query, ages=2, epsilon_c=1, estimate="history"))
    Traceback (most recent call last):
      ...
    csdp.errors.NotUsefulError: a release removes 0.637 % of the squared error of guessing the usual value (about ...
    """
    if error.useful:
        return
    helps = improvements(plan, error.about)
    raise NotUsefulError(
        f"a release {error.in_words} ({about_words(error.about, plan.max_age)}), less than {100 * USEFUL:g} %: it is "
        f"hardly worth its leakage. What would help: {'; '.join(helps)}",
        usefulness=error.usefulness,
        helps=helps,
    )


def improvements(plan: Plan, about: About = "now") -> tuple[str, ...]:
    """What would make the releases of a plan useful: computed if that is quick, and what else to try."""
    helps = []
    then = _usefulness(plan, plan.max_age, plan.epsilon_c, "then")
    if about == "now" and then >= USEFUL:
        words = about_words("then", plan.max_age)
        helps.append(f"numbers {words}, which remove {100 * then:.3g} % (--about then)")
    younger = next(
        (age for age in range(plan.max_age - 1, -1, -1) if _usefulness(plan, age, plan.epsilon_c, about) >= USEFUL),
        None,
    )
    if younger is not None:
        helps.append(f"readings of age {younger}, which leak more of the present")
    level = least_level(lambda e: 1.0 - _usefulness(plan, plan.max_age, e, about), 1.0 - USEFUL, EVENT_LIMIT)
    if level is not None and level > plan.epsilon_c:
        helps.append(f"less noise, an epsilon_c of {level:.2g} or a larger budget")
    return (*helps, "more sequences in one answer", "a longer step, a query that changes less, or fewer states")


def _usefulness(plan: Plan, age: int, epsilon_c: float, about: About) -> float:
    """The share that the estimate from the last releases removes; 0 if it cannot be computed."""
    model = certified_model(plan.chain).members[0].point
    try:
        return mse(model, plan.query, ages=age, epsilon_c=epsilon_c, estimate="history", about=about).usefulness
    except CsdpError:
        return 0.0
