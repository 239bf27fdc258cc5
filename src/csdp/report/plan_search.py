"""The search for useful plans: layouts, kinds of chain, queries, ages and noise, screened cheaply, certified sharply.

Plans are screened with the fitted chain alone and the bound that is quickest at any size; the best are certified for
the whole family of plausible chains with the sharpest bound.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from csdp.accountant import Accountant
from csdp.errors import CsdpError, CsdpWarning, InputError
from csdp.estimate import Error, LearnedEstimator, mse
from csdp.estimate.error import noise_variance
from csdp.estimate.result import USEFUL, About
from csdp.panel import Readings
from csdp.plan import Plan
from csdp.planning.curves import largest_level, least_level
from csdp.queries import Query
from csdp.report.layouts import FittedLayout, Layout

#: Largest number of distinct readings for which each becomes a state.
FEW_NUMBERS = 4
#: Numbers of states, and how many ticks become one, in the order in which they are tried.
STATES, FACTORS = (2, 3, 4), (1, 2, 4, 8)
#: Ticks that a layout has at least, where ticks were put together.
SHORTEST = 300
#: Ages of numbers about now that are tried, and the longest delay of numbers about the time of the readings.
AGES, LONGEST_DELAY = (0, 1, 2, 3, 4, 6, 8), 24
#: Shares of the squared error of guessing the usual value that late numbers are to remove: the first possible one.
ACCURATE = (0.75, 0.5)
#: How close to the budget a screen comes, plans that are certified at most, and the share of the time after which
#: nothing new is screened.
SCREENED_SHARE, CERTIFIED, SCREENING = 0.03, 6, 0.6


@dataclass(frozen=True)
class Screened:
    """A setting that promises to be useful: by a quick bound for the fitted chain alone, so no certificate yet."""

    fitted: FittedLayout
    query: Query
    text: str
    about: About
    age: int
    level: float
    usefulness: float

    @property
    def delay(self) -> int:
        """How long readings are held back, in the time of the readings."""
        return self.age * self.fitted.panel.step

    @property
    def order(self) -> tuple[float, float, float]:
        """The most useful first; of equally useful ones the least delay, then the most noise."""
        return -round(self.usefulness / 0.05), self.delay, self.level


@dataclass(frozen=True)
class CertifiedPlan:
    """A plan whose leakage, for ever, is certified, and what it is worth on the readings."""

    screened: Screened
    plan: Plan
    leakage: float
    bound: str
    error: Error
    estimator: LearnedEstimator | None
    ensemble: int  #: further plausible chains that it is certified for; 0 for the fitted chain alone
    chain: Any

    @property
    def order(self) -> tuple[float, ...]:
        """Those first whose model the readings accept; then as for what was screened."""
        seen = replace(self.screened, level=self.plan.epsilon_c, usefulness=self.error.usefulness)
        return (not self.plan.verdict.reliable, *replace(seen, age=self.plan.max_age).order)


class TimeLimit:
    """The time that a search may take."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._start = seconds, time.monotonic()

    @property
    def used(self) -> float:
        """The share of the time that is used up."""
        return (time.monotonic() - self._start) / self._seconds


@dataclass
class PlanSearch:
    """A search over layouts, kinds of chain, queries, ages and noise, within a budget.

    Args:
        readings: what it is for.
        budget: largest leakage of the present.
        event_limit: largest epsilon_c.
        queries: texts and queries for a number of states.
        abouts: what the numbers may be about.
        factors: how many ticks may be put together.
        seconds: after which the best so far is kept.
        report: called with what is being tried, and the share of the time that is used.
        take_past: the public past of readings; a plan is made from it alone.
    """

    readings: Readings
    budget: float
    event_limit: float
    queries: Callable[[int], Sequence[tuple[str, Query]]]
    abouts: Sequence[About]
    factors: Sequence[int]
    seconds: float
    report: Callable[[str, float], None]
    take_past: Callable[[Readings], Readings]
    screened: list[Screened] = field(default_factory=list)
    certified: list[CertifiedPlan] = field(default_factory=list)
    tried: int = 0
    interrupted: bool = False

    def __post_init__(self) -> None:
        self._time = TimeLimit(self.seconds)

    def run(self) -> None:
        """Screen and certify until the time is up; what was found stays if it is interrupted."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CsdpWarning)  # said once, by whoever started this
                for layout in self._layouts():
                    if self.tried and self._time.used > SCREENING:
                        break
                    self._screen(layout)
                    if not self.certified:  # a first plan, before anything else is tried
                        self._certify(1)
                if not self.screened and not self.certified:  # no kind of chain explains any layout well
                    self._screen(next(self._layouts()), strict=False)
                self._certify(CERTIFIED)
        except KeyboardInterrupt:
            self.interrupted = True
            if not self.certified:
                raise
        self.certified.sort(key=lambda plan: plan.order)

    def _layouts(self) -> Iterator[Layout]:
        """How readings might become states, the most promising first."""
        past = self.take_past(self.readings)
        cells = past.readings[np.isfinite(past.readings)]
        distinct = np.unique(cells[: 10**6]).size
        if distinct < 2:
            raise InputError("data: all readings are equal; there is nothing to publish")
        few = distinct <= FEW_NUMBERS
        layouts = [Layout(1, distinct, "categories")] if few else []
        layouts += [
            Layout(factor, states)
            for factor in self.factors
            for states in STATES
            if (factor == 1 and not few) or (factor > 1 and len(past) // factor >= SHORTEST)
        ]
        # Few states and short steps first: they are quick, and leak least or lose least.
        yield from sorted(layouts, key=lambda layout: math.log2(layout.factor) + layout.states)

    # ---- screening -------------------------------------------------------------------------------------------------

    def _screen(self, layout: Layout, *, strict: bool = True) -> None:
        fitted = FittedLayout(self.readings, layout, strict=strict, take_past=self.take_past)
        where = f"{layout.states} states, step {fitted.readings.step}"
        self.report(f"comparing chains: {where}", self._time.used)
        self.tried += 1
        if not fitted.kinds:
            return
        self.report(f"fitting: {where}", self._time.used)
        words = f"{where}, {fitted.kind.words}"
        queries = self.queries(layout.states)
        levels: dict[int, float] = {}
        for about in self.abouts:
            for text, query in queries:
                if self.certified and self._time.used > SCREENING:
                    return
                self.report(f"screening: {text} about {about}, {words}", self._time.used)
                try:
                    candidate = self.screen_now(fitted, text, query, levels) if about == "now" else None
                    candidate = self._screen_then(fitted, text, query) if about == "then" else candidate
                except CsdpError:  # a query that this chain cannot have, or readings that speak against it
                    continue
                self.tried += 1
                if candidate is not None:
                    self.screened.append(candidate)

    def screen_now(
        self,
        fitted: FittedLayout,
        text: str,
        query: Query,
        levels: dict[int, float],
        *,
        budget: float | None = None,
    ) -> Screened | None:
        """The best age of numbers about now; `levels`: what the budget allows at an age, as soon as it is known."""
        best: Screened | None = None
        last = -1
        for age in AGES:
            if age not in levels:
                if self._time.used > 1 and best is not None:
                    break
                levels[age] = self._screened_level(fitted, query, age, budget or self.budget, levels.get(last))
            last = age
            if levels[age] <= 0:
                continue
            worth = self._usefulness(fitted, query, age, levels[age], "now")
            if best is None or worth > best.usefulness:
                best = Screened(fitted, query, text, "now", age, levels[age], worth)
            # More age allows no less noise than the least; and usefulness has one peak over ages.
            if levels[age] >= self.event_limit or age > best.age + 2:
                break
        return best

    def _screened_level(
        self, fitted: FittedLayout, query: Query, age: int, budget: float, start: float | None
    ) -> float:
        """About the largest level that keeps a budget at an age, from that of a younger one; 0 where none does."""
        curves = fitted.curves(query, age)
        level = largest_level(
            lambda level: curves.leakage(level).epsilon,
            budget,
            self.event_limit,
            start=start or min(budget, self.event_limit) / 3,
            tolerance=SCREENED_SHARE,
        )
        return level or 0.0

    def _screen_then(self, fitted: FittedLayout, text: str, query: Query) -> Screened | None:
        """The least delay at which accurate numbers about the time of the readings keep the budget."""
        learned = fitted.learn(fitted.plan(query, 0, self.event_limit), "then")
        if learned is None:
            return None
        model = fitted.chain.without_family()

        def share_left(level: float) -> float:
            return 1.0 - learned.expected(noise_variance(model, query, level)).usefulness

        for share in ACCURATE:
            level = least_level(share_left, 1.0 - share, self.event_limit)
            age = None if level is None else self._least_age(fitted, query, level)
            if level is not None and age is not None:
                return Screened(fitted, query, text, "then", age, level, share)
        return None

    def _least_age(self, fitted: FittedLayout, query: Query, level: float, *, chain: Any = None) -> int | None:
        """The least delay that keeps the budget at a level: leakage at any later moment never grows with it."""

        def fits(age: int) -> bool:
            return fitted.curves(query, age, chain=chain).leakage(level).epsilon <= self.budget

        low, high, step = 0, 0, 1
        while not fits(high):
            low, high, step = high + 1, high + step, 2 * step
            if high > LONGEST_DELAY:
                return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle + 1, high)
        return high

    def _usefulness(self, fitted: FittedLayout, query: Query, age: int, level: float, about: About) -> float:
        plan = fitted.plan(query, age, level)
        learned = fitted.learn(plan, about)
        return self._error_by_model(plan, about).usefulness if learned is None else learned.usefulness

    def _error_by_model(self, plan: Plan, about: About) -> Error:
        return mse(plan.model.point, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, about=about)

    # ---- certificates ----------------------------------------------------------------------------------------------

    def _certify(self, count: int) -> None:
        """Certify the most promising settings, one of each query and kind of number first."""
        waiting = sorted((one for one in self.screened if one.usefulness >= USEFUL), key=lambda one: one.order)
        kinds: set[tuple[str, str]] = set()
        first = [one for one in waiting if (one.text, one.about) not in kinds and not kinds.add((one.text, one.about))]  # type: ignore[func-returns-value]
        for one in [*first, *(other for other in waiting if other not in first)][:count]:
            if self.certified and self._time.used > 1:
                return
            self.screened.remove(one)
            self.report(f"certifying: {one.text} about {one.about}, age {one.age}", self._time.used)
            certified = self._certify_one(one, one.fitted.chain, one.fitted.ensemble(one.fitted.kind))
            if (certified is None or not certified.error.useful) and one.fitted.ensemble(one.fitted.kind):
                certified = self._certify_one(
                    one, one.fitted.fit(0, one.fitted.kind), 0
                )  # a family too wide to be of use
            if certified is not None and certified.error.useful:
                self.certified.append(certified)

    def _certify_one(self, one: Screened, chain: Any, ensemble: int) -> CertifiedPlan | None:
        """The largest level (about now) or the least delay (about the time of the readings) by the sharp bound."""
        fitted, query = one.fitted, one.query
        try:
            if one.about == "now":
                age, level = one.age, self._sharp_level(one, chain)
            else:
                level = one.level
                age = self._least_age(fitted, query, _round_level(level, up=True), chain=chain)  # type: ignore[assignment]
            if level is None or age is None or level <= 0:
                return None
            level = _round_level(level, up=one.about == "then")
            plan = fitted.plan(query, age, min(level, self.event_limit), chain=chain)
            accountant = Accountant(plan)
            certified = accountant.ceiling(None)
        except CsdpError:
            return None
        if not certified <= self.budget:
            return None
        learned = fitted.learn(plan, one.about)
        try:
            error = self._error_by_model(plan, one.about) if learned is None else learned.expected(plan.noise_variance)
        except CsdpError:
            return None
        return CertifiedPlan(one, plan, certified, accountant.limit().bound, error, learned, ensemble, chain)

    def _sharp_level(self, one: Screened, chain: Any) -> float | None:
        """The largest level by the sharp bound: searched for, or of many components found by a few trials."""
        curves = one.fitted.curves(one.query, one.age, chain=chain)
        components = sum(len(member.components()) for member in curves.chain.members)
        if components <= 100:
            return curves.largest_level(self.budget, self.event_limit, start=one.level)
        for share in (1.0, 0.9, 0.75, 0.5):
            if curves.leakage(_round_level(one.level * share)).epsilon <= self.budget:
                return one.level * share
        return None


def _round_level(level: float, *, up: bool = False) -> float:
    """A level with three digits, for a command; down, so that it leaks no more, or up.

    >>> _round_level(0.34567), _round_level(0.34567, up=True)
    (0.345, 0.346)
    """
    unit = 10.0 ** (math.floor(math.log10(level)) - 2)
    return float(f"{(math.ceil if up else math.floor)(level / unit * (1 - 1e-12 if up else 1 + 1e-12)) * unit:.3g}")
