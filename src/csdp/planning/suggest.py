"""Useful plans for a file of readings: layouts, kinds of chain, queries, ages and noise, screened cheaply, certified
sharply, and ranked.

Plans are screened roughly, and the best are certified sharply: both for the class of processes that the
fit grew around the chain. Only a chain without a class, which no readings accept, stands for itself. The
kind of chain that explains readings best is chosen on readings that were set aside, never by what leaks
least: a chain that does not explain them certifies too little.

Beside them there is a plan without a model, under plain differential privacy alone: nobody ends with nothing.
"""

from __future__ import annotations

import math
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from csdp.accountant import Accountant
from csdp.accountant.joint import Known
from csdp.aging import Progress
from csdp.bounds.influence import has_influence
from csdp.chain import NoModel, Verdict
from csdp.chain.files import save_model
from csdp.chain.model import Direction
from csdp.chain.steps import METRIC_STATES
from csdp.check import choice, number
from csdp.errors import CsdpError, CsdpWarning, InputError, NotUsefulError
from csdp.estimate import Error, LearnedEstimator, mse
from csdp.estimate.error import noise_variance
from csdp.estimate.result import USEFUL, About, about_words
from csdp.fitting.em import Effort
from csdp.fitting.environment import ChainCandidate, Comparison, Gain, has_clock, read_clock
from csdp.fitting.fit import fit
from csdp.fitting.sample import ignore_progress, read_sample
from csdp.panel import Discretiser, InputSpec, Panel, Readings, read_readings
from csdp.panel.times import coarsen
from csdp.plan import Plan
from csdp.planning.calibrate import CLOSE, EVENT_LIMIT, Curves, largest_level, least_level
from csdp.planning.frontier import plan_frontier
from csdp.planning.plan_file import PlanFile, end_of_past
from csdp.planning.protection import Protection, protection
from csdp.publisher import learn_from_past
from csdp.query import parse_query, with_readings
from csdp.query_table import Query
from csdp.readings import ReadingRange

#: Largest number of distinct readings for which each becomes a state.
FEW_NUMBERS = 4
#: Numbers of states, and how many ticks become one, in the order in which they are tried.
STATES, FACTORS = (2, 3, 4), (1, 2, 4, 8)
#: Ticks that a layout has at least, if ticks were put together.
SHORTEST = 300
#: Ages of numbers about now that are tried, and the longest delay of numbers about the time of the readings.
AGES, LONGEST_DELAY = (0, 1, 2, 3, 4, 6, 8), 24
#: Shares of the squared error of guessing the usual value that late numbers are to remove: the first possible one.
ACCURATE = (0.75, 0.5)
#: How close to the budget a screen comes, plans that are certified at most, and the share of the time after which
#: nothing new is screened.
SCREENED_SHARE, CERTIFIED, SCREENING = 0.03, 6, 0.6
#: Seconds after which the best plans so far are kept, and ticks that are needed at least.
SECONDS, FEWEST_TICKS = 20.0, 50
#: Largest leakage of the present, and largest epsilon_c of a plan without a model, if nothing else is asked for.
BUDGET, PLAIN_LIMIT = 1.0, 1.0
#: Factors of the budget that are tried if nothing is useful within it.
_MORE = (2.0, 4.0)
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
#: Largest number of joint states of a component for which the leakage of many releases is sharp and fast, and for which
#: a slow computation is accepted if nothing simpler explains the readings.
SHARP_STATES, SLOW_STATES = 8, 16
#: Ticks and sequences on which kinds of chain are compared, and hidden environments of such a chain.
COMPARED_TICKS, COMPARED_SEQUENCES, ENVIRONMENTS = 1500, 12, 2
#: Sequences that a screen looks at, and up to which it is asked how well a chain explains the readings.
SCREENED_SEQUENCES, JUDGED_SEQUENCES = 6, 60


# ---- layouts of readings, and the chains that explain them ---------------------------------------------------------

#: Kinds of chain, simple ones first: in words, and what `csdp.fit` needs for them.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "independent": ("every sequence by itself", {"neighbours": 0}),
    "clock": ("every sequence by itself, by the time of day", {"environment": "clock"}),
    "hidden": ("hidden environments", {"environment": "hidden"}),
    "coupled": ("sequences follow each other", {}),
}


@dataclass(frozen=True)
class Layout:
    """How readings become states: how many ticks are put together, and how many states there are."""

    factor: int
    states: int
    strategy: Literal["quantile", "categories"] = "quantile"


@dataclass(frozen=True)
class ChainKind:
    """A kind of chain, and what it gains over independent chains on readings that were set aside (nats a tick)."""

    name: str
    direction: Direction = "backward"
    gain: float = 0.0
    error: float = 0.0

    @property
    def words(self) -> str:
        """The kind, in words."""
        return f"{_KINDS[self.name][0]}; {self.direction}"


class FittedLayout:
    """One layout of the readings, the kind of chain that explains it best, and the chain, fitted."""

    def __init__(
        self,
        readings: Readings,
        layout: Layout,
        *,
        strict: bool,
        take_past: Callable[[Readings], Readings],
    ) -> None:
        self.layout, self._strict = layout, strict
        # Ticks are put together first, as the commands do: the last of them may reach beyond the past.
        self.readings = take_past(readings if layout.factor == 1 else coarsen(readings, layout.factor))
        self.discretiser = Discretiser.fit(self.readings, states=layout.states, strategy=layout.strategy, public=True)
        self.panel = self.discretiser.apply(self.readings)
        self._chains: dict[ChainKind, Any] = {}
        self._known = Known()

    @cached_property
    def kinds(self) -> tuple[ChainKind, ...]:
        """Kinds of chain that are quick to certify and explain readings set aside about as well as any, simple first.

        Empty if another kind is better by more than a standard error.
        """
        return choose_kinds(self.panel, strict=self._strict)

    @cached_property
    def kind(self) -> ChainKind:
        """The simplest kind whose chain the readings do not contradict; else the one that explains most.

        A chain that leaves out what ties sequences together certifies too little: it is not taken for being simple.
        """
        best = max(self.kinds, key=lambda kind: kind.gain)
        if len(self.panel.names) > JUDGED_SEQUENCES:
            return best
        return next((kind for kind in self.kinds if kind == best or self._fit_once(kind).verdict.reliable), best)

    @property
    def chain(self) -> Any:
        """The chain with its class."""
        return self._fit_once(self.kind)

    def _fit_once(self, kind: ChainKind) -> Any:
        if kind not in self._chains:
            self._chains[kind] = fit(self.panel, public=True, direction=kind.direction, **_KINDS[kind.name][1])
        return self._chains[kind]

    @cached_property
    def _screened_chain(self) -> Any:
        """The chain with its class, which is quick and needs more noise than the chain.

        Without a class the chain; of many sequences that do not follow each other, the most persistent and
        the widest.
        """
        if self.chain.family is not None:
            return self.chain
        point = self.chain
        if self.kind.name == "coupled" or point.sequences <= SCREENED_SEQUENCES:
            return point
        states = np.where(self.panel.states < 0, np.nan, self.panel.states.astype(np.float64))
        off = np.nan_to_num(states - np.nanmean(states, axis=0))
        persistence = (off[1:] * off[:-1]).mean(axis=0) / np.maximum((off**2).mean(axis=0), 1e-9)
        widest = int(np.argmax(np.ptp(point.value_table, axis=1)))
        members = {widest, *np.argsort(-persistence)[: SCREENED_SEQUENCES - 1].tolist()}
        return point.given_path().subchain(sorted(members))

    def curves(self, query: Query, age: int, *, chain: Any = None) -> Curves:
        """Leakage at an age, in the long run, of the screened chain or of another one."""
        model = self._screened_chain if chain is None else chain
        return Curves(
            model,
            query,
            (age,) * model.sequences,
            rule="vector" if chain is None and model.family is None and has_influence(model) else "auto",
            known=self._known,
        )

    def learn(self, plan: Plan, about: About) -> LearnedEstimator | None:
        """The estimator that the readings teach; None if there are too few of them."""
        try:
            return learn_from_past(plan, self.panel, about=about)
        except InputError:
            return None

    def judge(self, plan: Plan, about: About) -> tuple[Error, LearnedEstimator | None]:
        """The error of a plan, and the estimator that the readings teach; else the error by the model."""
        learned = self.learn(plan, about)
        if learned is not None:
            return learned.expected(plan.noise_variance), learned
        return mse(plan.model.point, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, about=about), None

    def plan(self, query: Query, age: int, level: float, *, chain: Any = None) -> Plan:
        """The plan of a setting; for the fitted chain alone if no other is given."""
        model = self.chain.without_family() if chain is None else chain
        return Plan(model, query, age, level)


def _compare_kinds(panel: Panel, direction: Direction) -> list[Gain]:
    """What every kind of chain gains in one direction, the hidden environments also with members that follow others."""
    compared = Comparison(read_sample(panel, states=None), direction, Effort(tolerance=1e-6), ignore_progress)
    gains = [compared.gain(ChainCandidate("independent", 0)), compared.gain(ChainCandidate("coupled", None))]
    if has_clock(panel):
        gains.append(compared.best_shrinkage(ChainCandidate("clock", 0, read_clock(None, panel, len(panel)))))
    if len(panel.names) == 1:
        return gains
    hidden = ChainCandidate("hidden", 0, count=ENVIRONMENTS)
    return [*gains, compared.gain(hidden), compared.gain(replace(hidden, name="hidden, coupled", neighbours=None))]


def choose_kinds(panel: Panel, *, strict: bool = True) -> tuple[ChainKind, ...]:
    """Kinds of chain within a standard error of the best on the last 30 % of a part of the readings, simple first.

    Only those that are quick to certify; empty if none of them is as good, but if not `strict` the best of them.
    """
    s, m = len(panel.names), panel.state_count
    columns = np.unique(np.linspace(0, s - 1, min(s, COMPARED_SEQUENCES)).astype(np.intp))
    last = slice(max(0, len(panel) - COMPARED_TICKS), None)
    values = None if panel.values is None else panel.values[columns]
    names = tuple(panel.names[i] for i in columns)
    sample = Panel(names, panel.ticks[last], panel.times[last], panel.states[last][:, columns], panel.step, values)
    tried: list[ChainKind] = []
    try:
        for direction in get_args(Direction)[::-1]:
            for each in _compare_kinds(sample, direction):
                name: Any = each.candidate.name
                tried.append(ChainKind(name, direction, each.gain, each.error))
    except InputError:  # too few ticks to set some aside
        return (ChainKind("independent"),)
    joint = m**s if s * math.log(m) < 50 else math.inf
    usable = {("independent", "backward")}
    if m == 2:  # with more states, every release under environments would be slow to account for
        usable |= {("clock", "backward")} | ({("hidden", "backward")} if s > 1 else set())
    if joint <= SHARP_STATES or joint > METRIC_STATES:  # slow between the two
        usable.add(("coupled", "backward"))
    if joint <= SHARP_STATES:
        usable.add(("coupled", "forward"))
    best = max(tried, key=lambda kind: kind.gain)
    good = [k for k in tried if (k.name, k.direction) in usable and k.gain >= best.gain - best.error]
    if not good and joint <= SLOW_STATES:
        good = [k for k in tried if (k.name, k.direction) == ("coupled", "backward")]
    if not good and not strict:
        good = [max((k for k in tried if (k.name, k.direction) in usable), key=lambda kind: kind.gain)]
    return tuple(sorted(good, key=lambda kind: (list(_KINDS).index(kind.name), -kind.gain)))


# ---- the search ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Screened:
    """A setting that promises to be useful: by a rough search, so no certificate yet."""

    fitted: FittedLayout
    query: Query
    text: str
    about: About
    age: int
    level: float
    usefulness: float

    @property
    def order(self) -> tuple[float, float, float]:
        """The most useful first; of equally useful ones the least delay, then the most noise."""
        return -round(self.usefulness / 0.05), self.age * self.fitted.panel.step, self.level


@dataclass(frozen=True)
class ProposedPlan:
    """A plan whose leakage, in the long run, is certified, and what it is worth on the readings, held out.

    `leakage`: that of the present, of a release at every tick; `moment`: that of any one moment; both are infinite
    without a model. `limits`: those that the plan keeps, as a publisher takes them. `past_end`: the end of the public
    past.
    """

    screened: Screened
    plan: Plan
    leakage: float
    moment: float
    limits: dict[str, float]
    error: Error
    estimator: LearnedEstimator | None
    chain: Any
    past_end: str | int | None = None

    @property
    def order(self) -> tuple[float, ...]:
        """Those first whose model the readings accept, then those without a model; then as for what was screened."""
        seen = replace(self.screened, level=self.plan.epsilon_c, usefulness=self.error.usefulness)
        rank = 2 if not self.plan.verdict.reliable else int(not self.has_model)
        return (rank, *replace(seen, age=self.plan.max_age).order)

    @property
    def has_model(self) -> bool:
        """Whether anything is assumed of the sequences; else plain differential privacy is all that is promised."""
        return self.plan.verdict.status != "none"

    @property
    def protection(self) -> Protection:
        """Which moments the plan protects."""
        asked = {name: self.limits.get(name) for name in ("budget", "moment_limit")}
        return protection(self.plan, self.leakage, self.moment, **asked)

    @property
    def about(self) -> About:
        """Whether the numbers are about now, or about the time of the readings."""
        return self.screened.about

    @property
    def step(self) -> str:
        """The time between ticks, in words."""
        panel = self.screened.fitted.panel
        if panel.times.dtype.kind != "M":
            return f"{panel.step:g}"
        size, unit = next((size, unit) for size, unit in _UNITS if panel.step % size == 0)
        return f"{panel.step // size} {unit}"

    @property
    def longer_step(self) -> int | None:
        """The step of ticks that were put together by their mean; None if the step is that of the readings."""
        fitted = self.screened.fitted
        return None if fitted.layout.factor == 1 else int(fitted.panel.step)

    @property
    def limits_in_words(self) -> str:
        """The limits that the plan keeps, in words."""
        return f"{'' if self.has_model else 'without a model '}{_limit_words(self.limits)}"

    @property
    def sure(self) -> str:
        """What the certificate is for."""
        if not self.has_model:
            return "any model"
        return "the fitted chain alone" if self.chain.family is None else "all within limits"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        fitted, plan = self.screened.fitted, self.plan
        kind = fitted.kind if self.has_model else None
        return {
            "query": self.screened.text,
            "about": self.about,
            "usefulness": self.error.known_usefulness,
            "leakage": self.leakage if self.has_model else None,
            "every_moment": self.moment if self.has_model else None,
            "limits": self.limits,
            "protects": self.protection.to_dict(),
            "age": plan.max_age,
            "event_level": plan.epsilon_c,
            "step": fitted.panel.step,
            "states": fitted.layout.states,
            "kind": "none" if kind is None else kind.name,
            "direction": None if kind is None else kind.direction,
            "certified_for": self.sure,
            "model": plan.verdict.to_dict(),
            "plan_digest": plan.digest,
        }

    def save(self, folder: Path) -> list[Path]:
        """Write discretiser, chain and plan, with what settings around it would achieve."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in ("discretiser.json", "chain.json", "plan.json")]
        discretiser = self.screened.fitted.discretiser
        discretiser.save(paths[0])
        save_model(self.chain, paths[1])
        frontier = plan_frontier(self.plan, about=self.about)
        PlanFile(self.plan, self.about, self.estimator, discretiser, frontier, self.past_end).save(paths[2])
        return paths


@dataclass(frozen=True)
class PlanSearch:
    """A search over layouts, kinds of chain, queries, ages and noise, within limits.

    `plain_limit`: epsilon_c of a plan without a model. `model_unchecked`: whether models that the readings do not
    accept count. `queries`: texts and queries for a number of states. `factors`: how many ticks may be put together.
    `seconds`: after which the best so far is kept. `report`: called with what is being tried, and the share of the time
    that is used. `take_past`: the public past of readings, from which alone a plan is made; `past_end`: its end.
    """

    readings: Readings
    budget: float | None
    moment_limit: float | None
    event_limit: float
    plain_limit: float
    model_unchecked: bool
    queries: Callable[[int], Sequence[tuple[str, Query]]]
    abouts: Sequence[About]
    factors: Sequence[int]
    seconds: float
    report: Callable[[str, float], None]
    take_past: Callable[[Readings], Readings]
    past_end: str | int | None
    screened: list[Screened] = field(default_factory=list)
    certified: list[ProposedPlan] = field(default_factory=list)
    plain: list[ProposedPlan] = field(default_factory=list)
    refused: list[Verdict] = field(default_factory=list)
    accepted: list[Verdict] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)

    def run(self) -> bool:
        """Screen and certify until the time is up; what was found stays if it is interrupted, which is the result."""
        interrupted = False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CsdpWarning)  # said once, by whoever started this
                for layout in self._layouts():
                    if self.tried and self._used > SCREENING:
                        break
                    self._screen(layout)
                    if not self.certified:  # a first plan, before anything else is tried
                        self._certify(1)
                if not self.screened and not self.certified:  # no kind of chain explains any layout well
                    self._screen(next(self._layouts()), strict=False)
                self._certify(CERTIFIED)
        except KeyboardInterrupt:
            if not self.certified and not self.plain:
                raise
            interrupted = True
        return interrupted

    @property
    def proposals(self) -> tuple[ProposedPlan, ...]:
        """What was certified, and the best plan without a model, in order."""
        plain = sorted(self.plain, key=lambda plan: plan.order)[:1]
        return tuple(sorted([*self.certified, *plain], key=lambda plan: plan.order))

    @property
    def _used(self) -> float:
        """The share of the time that is used up."""
        return (time.monotonic() - self._start) / self.seconds

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
        self.report(f"comparing chains: {where}", self._used)
        self.tried.append(where)
        if strict:
            self._plan_without_model(fitted)
        if not fitted.kinds:
            return
        self.report(f"fitting: {where}", self._used)
        try:
            accepted = self._accepts(fitted.chain.verdict)
        except CsdpError:  # readings that no chain of this kind can be fitted to
            return
        if not accepted:
            return
        words = f"{where}, {fitted.kind.words}"
        queries = self.queries(layout.states)
        limit = self._level_limit(fitted.curves(queries[0][1], 0), SCREENED_SHARE)
        if limit is None:
            return
        levels: dict[int, float] = {}
        for about in self.abouts:
            for text, query in queries:
                if self.certified and self._used > SCREENING:
                    return
                self.report(f"screening: {text} about {about}, {words}", self._used)
                try:
                    if about == "now":
                        candidate = self.screen_now(fitted, text, query, levels, limit=limit)
                    else:
                        candidate = self._screen_then(fitted, text, query, limit)
                except CsdpError:  # a query that this chain cannot have, or readings that speak against it
                    continue
                self.tried.append(f"{text} about {about}, {words}")
                if candidate is not None:
                    self.screened.append(candidate)

    def _accepts(self, verdict: Verdict) -> bool:
        """Whether plans under a model are proposed; else it is noted why not."""
        if verdict.reliable or self.model_unchecked:
            self.accepted.append(verdict)
            return True
        self.refused.append(verdict)
        return False

    def _level_limit(self, curves: Curves, tolerance: float) -> float | None:
        """The largest level at which no reading and no moment reveals more than its limit, at any age; None if none."""
        if self.moment_limit is None:
            return self.event_limit
        return largest_level(curves.every_moment, self.moment_limit, self.event_limit, tolerance=tolerance)

    def _plan_without_model(self, fitted: FittedLayout) -> None:
        """The most useful plan of a layout by plain differential privacy alone.

        Its readings are new: age protects nothing if nothing is assumed of how sequences change.
        """
        panel = fitted.panel
        model = NoModel(panel.names, range(panel.state_count) if panel.values is None else panel.values)
        for text, query in self.queries(fitted.layout.states):
            try:
                plan = Plan(model, query, 0, self.plain_limit)
            except CsdpError:  # a query that these states cannot have
                continue
            learned = fitted.learn(plan, self.abouts[0])
            if learned is None:
                continue
            error = learned.expected(plan.noise_variance)
            if error.useful:
                one = Screened(fitted, query, text, self.abouts[0], 0, self.plain_limit, error.usefulness)
                limits = {"event_limit": self.plain_limit}
                found = ProposedPlan(one, plan, math.inf, math.inf, limits, error, learned, model, self.past_end)
                self.plain.append(found)

    def screen_now(
        self,
        fitted: FittedLayout,
        text: str,
        query: Query,
        levels: dict[int, float],
        *,
        limit: float,
        budget: float | None = None,
    ) -> Screened | None:
        """The best age of numbers about now; `levels`: what the budget allows at an age, as soon as it is known.

        `limit`: the largest level at any age.
        """
        best: Screened | None = None
        last = -1
        for age in AGES:
            if age not in levels:
                if self._used > 1 and best is not None:
                    break
                curves = fitted.curves(query, age)
                levels[age] = _screened_level(curves, budget or self.budget, limit, levels.get(last))
            last = age
            if levels[age] <= 0:
                continue
            worth = fitted.judge(fitted.plan(query, age, levels[age]), "now")[0].usefulness
            if best is None or worth > best.usefulness:
                best = Screened(fitted, query, text, "now", age, levels[age], worth)
            # More age allows no less noise than the least; and usefulness has one peak over ages.
            if levels[age] >= limit or age > best.age + 2:
                break
        return best

    def _screen_then(self, fitted: FittedLayout, text: str, query: Query, limit: float) -> Screened | None:
        """The least delay at which accurate numbers about the time of the readings keep the budget."""
        learned = fitted.learn(fitted.plan(query, 0, limit), "then")
        if learned is None:
            return None
        model = fitted.chain.without_family()

        def share_left(level: float) -> float:
            return 1.0 - learned.expected(noise_variance(model, query, level)).usefulness

        for share in ACCURATE:
            level = least_level(share_left, 1.0 - share, limit)
            age = None if level is None else self._least_age(fitted, query, level)
            if level is not None and age is not None:
                return Screened(fitted, query, text, "then", age, level, share)
        return None

    def _least_age(self, fitted: FittedLayout, query: Query, level: float, *, chain: Any = None) -> int | None:
        """The least delay that keeps the budget at a level: leakage at any later moment never grows with it."""

        budget = self.budget
        if budget is None:
            return 0

        def fits(age: int) -> bool:
            return fitted.curves(query, age, chain=chain).leakage(level).epsilon <= budget

        delay = bisect_left(range(LONGEST_DELAY + 1), True, key=fits)
        return delay if delay <= LONGEST_DELAY else None

    # ---- certificates ----------------------------------------------------------------------------------------------

    def _certify(self, count: int) -> None:
        """Certify the most promising settings, one of each query and kind of number first."""
        waiting = sorted((one for one in self.screened if one.usefulness >= USEFUL), key=lambda one: one.order)
        first: dict[tuple[str, str], Screened] = {}
        for one in waiting:
            first.setdefault((one.text, one.about), one)
        best = list(first.values())
        for one in [*best, *(other for other in waiting if other not in best)][:count]:
            if self.certified and self._used > 1:
                return
            self.screened.remove(one)
            self.report(f"certifying: {one.text} about {one.about}, age {one.age}", self._used)
            certified = self._certify_one(one)
            if certified is not None:
                self.certified.append(certified)

    def _certify_one(self, one: Screened) -> ProposedPlan | None:
        """The largest level (about now) or the least delay (about the time of the readings) by the sharp bound.

        None if none keeps the budget, or the plan is not useful.
        """
        fitted, query = one.fitted, one.query
        chain = fitted.chain
        age: int | None = one.age
        try:
            curves = fitted.curves(query, one.age, chain=chain)
            limit = self._level_limit(curves, CLOSE)
            if limit is None:
                return None
            level: float | None = min(one.level, limit)
            if one.about == "then":
                age = self._least_age(fitted, query, min(one.level, limit), chain=chain)
            elif self.budget is None:
                level = limit
            else:
                level = curves.largest_level(self.budget, limit, start=level)
            if level is None or age is None:
                return None
            plan = fitted.plan(query, age, level, chain=chain)
            if not self._accepts(plan.verdict):
                return None
            accountant = Accountant(plan)
            certified, moment = accountant.ceiling(None), accountant.every_moment()
            error, learned = fitted.judge(plan, one.about)
        except CsdpError:
            return None
        limits = {"budget": self.budget, "moment_limit": self.moment_limit, "event_limit": self.event_limit}
        asked = {name: limit for name, limit in limits.items() if limit is not None}
        within = certified <= asked.get("budget", math.inf) and moment <= asked.get("moment_limit", math.inf)
        if not within or not error.useful:
            return None
        return ProposedPlan(one, plan, certified, moment, asked, error, learned, chain, self.past_end)


def _screened_level(curves: Curves, budget: float | None, limit: float, start: float | None) -> float:
    """About the largest level that keeps a budget at an age, from that of a younger one; 0 if none does."""
    if budget is None:
        return limit
    level = largest_level(
        lambda level: curves.leakage(level).epsilon,
        budget,
        limit,
        start=start or min(budget, limit) / 3,
        tolerance=SCREENED_SHARE,
    )
    return level or 0.0


# ---- proposals ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suggestion:
    """Useful plans, the best first, and the reason for each choice of the best.

    `tried`: settings that were looked at. `interrupted`: whether the search was ended by hand. `note`: why there is no
    plan under a model, if there is none.
    """

    plans: tuple[ProposedPlan, ...]
    tried: int
    interrupted: bool
    note: str = ""

    @property
    def best(self) -> ProposedPlan:
        """The plan that is proposed first."""
        return self.plans[0]

    @property
    def reasons(self) -> tuple[tuple[str, str, str], ...]:
        """Of the best plan: what, the choice, why."""
        best, plan = self.best, self.best.plan
        layout = best.screened.fitted.layout
        about = f"{about_words(best.about, plan.max_age)}, age {plan.max_age}, epsilon_c {plan.epsilon_c:.3g}"
        learned = best.estimator
        return (
            ("states", f"{layout.states} ({layout.strategy}), step {best.step}", "as useful as any tried"),
            *(_reasons_of_model(best) if best.has_model else ()),
            ("model", plan.verdict.status, plan.verdict.words),
            ("plan", f"{best.screened.text} {about}", f"it {best.error.in_words}"),
            ("protects", best.protection.what.replace("_", " "), best.protection.words),
            (
                "estimate",
                "by the chain" if learned is None else f"{learned.kind}, learned on these readings",
                "too few complete ticks to learn from" if learned is None else learned.in_words,
            ),
        )


def _reasons_of_model(best: ProposedPlan) -> tuple[tuple[str, str, str], ...]:
    kind = best.screened.fitted.kind
    gain = f"gains {kind.gain:.3f} nats a tick on readings set aside (standard error {kind.error:.3f})"
    limited = "limits that the readings leave, with an allowance for slow levels"
    why = "no class was grown around it" if best.chain.family is None else limited
    return (
        ("chain", kind.words, gain),
        ("certified for", best.sure, why),
    )


def _limit_words(limits: dict[str, float]) -> str:
    """Limits in words.

    >>> _limit_words({"budget": 1.0, "moment_limit": 2.0, "event_limit": 10.0})
    'the present 1, any moment 2, one reading 10'
    """
    names = {"budget": "the present", "moment_limit": "any moment", "event_limit": "one reading"}
    return ", ".join(f"{names[name]} {limit:g}" for name, limit in limits.items())


def suggest(
    data: Any,
    *,
    budget: float | None = None,
    moment_limit: float | None = None,
    event_limit: float | None = None,
    query: str | None = None,
    about: About | None = None,
    of: ReadingRange | None = None,
    fixed_step: bool = False,
    seconds: float = SECONDS,
    public: bool = False,
    until: str | int | None = None,
    model_unchecked: bool = False,
    progress: Progress | None = None,
) -> Suggestion:
    """Search for useful plans for readings: step, states, kind of chain, query, age and noise within limits.

    Kinds of chain (independent, by the clock, a hidden environment, coupled; forward, backward) are chosen by how well
    they explain readings that were set aside. Usefulness is measured on the readings; leakage is certified for a
    release at every tick, in the long run.

    Plans under a model that the readings accept come first. After them, or instead if there are none, comes a plan
    without a model: plain differential privacy only, of one reading within the event limit. NotUsefulError, with what
    would help, if no plan is useful.

    The proposal is derived from the readings, so they must be public: all of them, or those before `until`.

    Args:
        data: a file, a frame, an array, or `Readings`.
        budget: largest leakage of the present; by default 1, or none if there is a limit on any moment.
        moment_limit: largest leakage of the state at any one tick, past or present; by default none.
        event_limit: largest epsilon_c; by default 10, and 1 for the plan without a model.
        query: the text of the query; by default mean, max, and with several states a count and a histogram.
        about: "now" or "then"; by default both.
        of: the range of the readings, if it is known without them: means of readings are then proposed.
        fixed_step: keep the step of the readings; by default longer ones are tried.
        seconds: after about which the best so far is kept; an interrupt (Ctrl-C) keeps it as well.
        public: declares that the readings are public, which they must be.
        until: use only ticks that are over at this time, the public past; a release publishes what follows.
        model_unchecked: propose plans under models, too, that the readings do not accept.
        progress: called with (what is tried, done, total).

    >>> from csdp import CoupledChain
    >>> states = CoupledChain(np.eye(8), [[0.7, 0.3], [0.3, 0.7]]).simulate(1000, seed=2)
    >>> proposal = suggest(states.astype(float), query="mean", public=True, fixed_step=True)
    >>> proposal.best.leakage <= 1.0, proposal.best.error.usefulness > 0.05, proposal.best.plan.model.sequences
    (True, True, 8)
    """
    if not public:
        raise InputError(
            "data: not declared public, and a proposal made from private readings would reveal them without limit. "
            "Declare what is public (public=True), or an older part of them (with until=), and release what follows"
        )
    if budget is None and moment_limit is None:
        budget = BUDGET
    for name, limit in (("budget", budget), ("moment_limit", moment_limit), ("event_limit", event_limit)):
        if limit is not None:
            number(name, limit, above=0)
    seconds = number("seconds", seconds, above=0)
    if about is not None:
        choice("about", about, ("now", "then"), hint="leave it out for both")
    readings = data if isinstance(data, Readings) else read_readings(data)
    zone = data.timezone if isinstance(data, InputSpec) else None

    def take_past(every: Readings) -> Readings:
        return every if until is None else every.split(until, timezone=zone)[0]

    ticks = len(take_past(readings))
    if ticks < FEWEST_TICKS:
        raise InputError(f"data: {ticks} ticks; at least {FEWEST_TICKS} are needed to propose anything")

    # A delay protects the present alone: without a budget for it, late numbers are those about now.
    abouts: Sequence[About] = (about,) if about else ("now",) if budget is None else ("now", "then")

    def report(what: str, share: float) -> None:
        if progress is not None:
            progress(what, min(100, round(100 * share)), 100)

    search = PlanSearch(
        readings,
        budget=budget,
        moment_limit=moment_limit,
        event_limit=EVENT_LIMIT if event_limit is None else event_limit,
        plain_limit=PLAIN_LIMIT if event_limit is None else event_limit,
        model_unchecked=model_unchecked,
        queries=partial(_queries, query, of, len(readings.names)),
        abouts=abouts,
        factors=FACTORS[:1] if fixed_step else FACTORS,
        seconds=seconds,
        report=report,
        take_past=take_past,
        past_end=end_of_past(until, readings.times, zone),
    )
    interrupted = search.run()
    if not search.proposals:
        raise _not_useful(search)
    note = "" if search.certified else f"{_shortfall(search)}."
    return Suggestion(search.proposals, len(search.tried), interrupted, note)


def _queries(given: str | None, of: ReadingRange | None, sequences: int, states: int) -> Sequence[tuple[str, Query]]:
    """The queries to try for a number of states; of readings first, if their range is known."""
    texts = [given] if given is not None else ["mean", *(["max"] if sequences > 1 else [])]
    if given is None and states > 2:
        texts += [f"count:{states - 1}", "histogram"]
    made: list[tuple[str, Query]] = []
    if of is not None:
        try:
            ranged = with_readings(texts[0], of)
            made.append((getattr(ranged, "text", texts[0]), ranged))
        except InputError:
            if given is not None:
                raise
    return [*made, *((text, parse_query(text)) for text in texts)]


def _shortfall(search: PlanSearch) -> str:
    """Why there is no plan under a model."""
    best = min(search.screened, key=lambda one: one.order, default=None)
    if search.refused and not search.accepted:
        words = search.refused[0].words.partition(". ")[0].rstrip(".")
        return f"no model that was tried is accepted by the readings ({words}; --model-unchecked proposes it anyway)"
    asked = {"budget": search.budget, "moment_limit": search.moment_limit}
    limits = _limit_words({name: limit for name, limit in asked.items() if limit is not None})
    outcome = f"none is useful within {LONGEST_DELAY} ticks of delay"
    if best is not None:
        removed = f"{100 * max(best.usefulness, 0.0):.2g} % of the squared error of guessing the usual value"
        outcome = f"the best removes {removed}, less than {100 * USEFUL:g} %"
    tried = f"of {len(search.tried)} settings {outcome}"
    return f"no useful plan under a model within the limits ({limits}): {tried}"


def _not_useful(search: PlanSearch) -> NotUsefulError:
    """The error that says what would help, computed if that is quick."""
    best = min(search.screened, key=lambda one: one.order, default=None)
    helps: list[str] = []
    if best is not None and best.about == "now" and search.budget is not None:
        for factor in _MORE:
            budget = search.budget * factor
            try:
                limit = search.event_limit
                wider = search.screen_now(best.fitted, best.text, best.query, {}, limit=limit, budget=budget)
            except CsdpError:
                break
            if wider is not None and wider.usefulness >= USEFUL:
                helps.append(f"a budget of {budget:g}, with which about {100 * wider.usefulness:.0f} % are removed")
                break
    if search.plain_limit < EVENT_LIMIT:
        helps.append("a larger --event-limit")
    if "then" not in search.abouts:
        helps.append("numbers about the time of the readings (--about then)")
    helps += ["more sequences in one answer", "longer readings", "a longer --step with --resample mean"]
    return NotUsefulError(
        f"{_shortfall(search)}, and the plan without a model is not useful either. What would help: {'; '.join(helps)}",
        usefulness=0.0 if best is None else best.usefulness,
        helps=tuple(helps),
    )
