"""Layouts of readings and the chains that explain them: what plans are searched over.

What explains readings best is chosen on readings that were set aside, never by what leaks least: a chain that does not
explain them certifies too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from csdp.accountant.joint import Known
from csdp.bounds.influence import has_influence
from csdp.chain.model import Direction
from csdp.chain.steps import METRIC_STATES
from csdp.errors import InputError
from csdp.estimate import LearnedEstimator
from csdp.estimate.result import About
from csdp.fitting.em import Effort
from csdp.fitting.environment import ChainCandidate, Comparison, Gain, has_clock, read_clock
from csdp.fitting.fit import fit
from csdp.fitting.sample import ignore_progress, read_sample
from csdp.panel import Discretiser, Panel, Readings
from csdp.panel.times import coarsen
from csdp.plan import Plan
from csdp.planning.curves import Curves
from csdp.publisher import learn_from_past
from csdp.query_table import Query

#: Largest number of joint states of a component for which the leakage of many releases is sharp and fast, and for which
#: a slow computation is accepted if nothing simpler explains the readings.
SHARP_STATES, SLOW_STATES = 8, 16
#: Ticks and sequences on which kinds of chain are compared, and hidden environments of such a chain.
COMPARED_TICKS, COMPARED_SEQUENCES, ENVIRONMENTS = 1500, 12, 2
#: Further plausible chains of a certified plan, and sequences above which there are none but the fitted one.
ENSEMBLE, ENSEMBLE_SEQUENCES = 4, 60
#: Sequences that a screen looks at, and up to which it is asked how well a chain explains the readings.
SCREENED_SEQUENCES, JUDGED_SEQUENCES = 6, 60
#: Steps by which a missing reading may be older, and the share of ticks without a gap that is aimed at.
STALE_LIMITS, COMPLETE = (0, 1, 2, 4), 0.9

KindName = Literal["independent", "coupled", "clock", "hidden"]


@dataclass(frozen=True)
class Layout:
    """How readings become states: how many ticks are put together, and how many states there are."""

    factor: int
    states: int
    strategy: Literal["quantile", "categories"] = "quantile"


@dataclass(frozen=True)
class ChainKind:
    """A kind of chain, and what it gains over independent chains on readings that were set aside (nats a tick)."""

    name: KindName
    direction: Direction = "backward"
    gain: float = 0.0
    error: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `csdp.fit`, and options of `csdp fit`."""
        chosen: dict[str, Any] = {"direction": self.direction}
        if self.name == "independent":
            chosen["neighbours"] = 0
        elif self.name == "clock":
            chosen["environment"] = "clock"
        elif self.name == "hidden":
            chosen |= {"environment": "hidden", "environments": ENVIRONMENTS}
        return chosen

    @property
    def words(self) -> str:
        """The kind, in words."""
        named = {
            "independent": "every sequence by itself",
            "coupled": "sequences follow each other",
            "clock": "every sequence by itself, by the time of day",
            "hidden": f"{ENVIRONMENTS} hidden environments",
        }
        return f"{named[self.name]}; {self.direction}"


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
        self.stale_limit = choose_stale_limit(self.panel)
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
        """The chain with its family."""
        return self._fit_once(self.kind)

    def _fit_once(self, kind: ChainKind) -> Any:
        if kind not in self._chains:
            self._chains[kind] = self.fit(self.ensemble(kind), kind)
        return self._chains[kind]

    def ensemble(self, kind: ChainKind) -> int:
        """Further plausible chains beside the fitted one; none if each would make every release slower."""
        quick = kind.name != "coupled" and self.layout.states == 2
        return ENSEMBLE if quick and len(self.panel.names) <= ENSEMBLE_SEQUENCES else 0

    def fit(self, ensemble: int, kind: ChainKind) -> Any:
        """The chain of a kind, with some further plausible ones."""
        return fit(self.panel, ensemble=ensemble, public=True, **kind.settings)

    @cached_property
    def _screened_chain(self) -> Any:
        """The fitted chain alone; of many that do not follow each other, the most persistent and the widest one."""
        point = self.chain.without_family()
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
            [age] * model.sequences,
            rule="vector" if chain is None and has_influence(model) else "auto",
            known=self._known,
        )

    def learn(self, plan: Plan, about: About) -> LearnedEstimator | None:
        """The estimator that the readings teach; None if there are too few of them."""
        try:
            return learn_from_past(plan, self.panel, about=about)
        except InputError:
            return None

    def plan(self, query: Query, age: int, level: float, *, chain: Any = None) -> Plan:
        """The plan of a setting; for the fitted chain alone if no other is given."""
        model = self.chain.without_family() if chain is None else chain
        is_of_states = getattr(query, "of", None) is None
        return Plan(model, query, age, level, stale_limit=self.stale_limit if is_of_states else 0)


def choose_stale_limit(panel: Panel) -> int:
    """The fewest steps by which missing readings may be older, so that most ticks can be released."""
    there, shares = panel.states >= 0, []
    for limit in STALE_LIMITS:
        carried = there.copy()
        for steps in range(1, limit + 1):
            carried[steps:] |= there[:-steps]
        shares.append(float(carried.all(axis=1).mean()))
        if shares[-1] >= COMPLETE:
            return limit
    return STALE_LIMITS[int(np.argmax(np.array(shares) > max(shares) - 0.05))]


def _compare_kinds(panel: Panel, direction: Direction) -> list[Gain]:
    """What every kind of chain gains in one direction, the hidden environments also with members that follow others."""
    compared = Comparison(read_sample(panel, states=None), direction, Effort(tolerance=1e-6), ignore_progress)
    gains = [compared.gain(ChainCandidate("independent", 0)), compared.gain(ChainCandidate("coupled", None))]
    if has_clock(panel):
        gains.append(compared.best_shrinkage(ChainCandidate("clock", 0, read_clock(None, panel, len(panel)))))
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
        usable |= {("clock", "backward"), ("hidden", "backward")}
    if joint <= SHARP_STATES or joint > METRIC_STATES:  # slow between the two
        usable.add(("coupled", "backward"))
    if joint <= SHARP_STATES:
        usable.add(("coupled", "forward"))
    best = max(tried, key=lambda kind: kind.gain)
    order = ("independent", "clock", "hidden", "coupled")
    good = [k for k in tried if (k.name, k.direction) in usable and k.gain >= best.gain - best.error]
    if not good and joint <= SLOW_STATES:
        good = [k for k in tried if (k.name, k.direction) == ("coupled", "backward")]
    if not good and not strict:
        good = [max((k for k in tried if (k.name, k.direction) in usable), key=lambda kind: kind.gain)]
    return tuple(sorted(good, key=lambda kind: (order.index(kind.name), -kind.gain)))
