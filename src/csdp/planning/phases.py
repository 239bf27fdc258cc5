"""A noise level for each phase of a public clock: quiet phases take less, where that lowers the error of a cycle.

The leakage of the present may pass the budget at no phase. With one level for all ticks the worst phase sets it, and
the others stay below. For one release every phase has its own largest level. For a release at every tick a phase pays
for what the ones before have told, so the levels are searched together, by a rule that is quick to evaluate; the
accountant's own rule then decides how far that shape can be raised, and what is returned is certified by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from csdp.accountant import Accountant
from csdp.accountant.protocol import AccountedComponent, PhaseLevels
from csdp.arrays import Floats
from csdp.bounds.adversary import Adversary
from csdp.bounds.influence import has_influence
from csdp.chain import Family, Model, certified_model
from csdp.display import Displayed
from csdp.errors import InfeasibleError, InputError
from csdp.estimate.result import About, check_about
from csdp.plan import Plan
from csdp.planning.curves import CLOSE, EVENT_LIMIT, SMALLEST_LEVEL, Curves, largest_level
from csdp.queries import Query
from csdp.schedule import Schedule

PhaseEstimate = Literal["linear", "raw"]

#: Share of the error by which levels for each phase must be better than one level to be offered.
WORTHWHILE: Final = 0.01
#: Groups of neighbouring phases that are searched over, factors by which the levels of one are changed, and evaluations
#: of the quick rule at most.
_GROUPS: Final = 8
_FACTORS: Final = (1.6, 1.2, 1.06, 1.02)
_EVALUATIONS: Final = 250
#: Rounds in which every phase is moved towards the budget, how far, and how close to it is good enough.
_ROUNDS, _PACE, _EVEN = 12, 0.7, 0.005
#: Times that the quick rule is made anew, where it is not the sharp one.
_SHARP_ROUNDS: Final = 3
#: Phases up to which each is raised by itself, and by which factor, to see what that does to all of them.
_RAISED_PHASES, _RAISE = 6, 1.15
#: Share of the largest level below which none is tried.
_LEAST: Final = 1e-3

#: Levels by phase to the leakage of the present at each of them.
Rule = Callable[[Floats], Floats]


@dataclass(frozen=True)
class PhasePlan(Displayed):
    """Noise levels for every phase, their leakage and error, compared with the best constant level.

    `leakage[h]`: of a present at phase h, after one release or in the long run of a release at every tick. `mse`: the
    mean over the phases, of the estimate that knows the phase. Where one level is as good but for 1 %, it is kept.
    """

    plan: Plan
    levels: tuple[float, ...]
    leakage: tuple[float, ...]
    budget: float
    mse: float
    constant_level: float
    constant_mse: float
    no_data: float
    possible_gain: float  #: by which share the levels that were found lower the error, whether they are kept or not

    @property
    def gain(self) -> float:
        """By which share the error lies below that of the constant level; 0 where that is kept."""
        return 1.0 - self.mse / self.constant_mse

    @property
    def worthwhile(self) -> bool:
        """Whether the plan has a level for each phase: its error is over 1 % below that of the constant level."""
        return self.plan.phase_levels is not None

    def __repr__(self) -> str:
        less = f"{100 * self.gain:.3g} % less squared error than a constant level"
        return f"PhasePlan({len(self.levels)} phases, budget {self.budget:g}, {less})"

    def records(self) -> list[dict[str, Any]]:
        """One plain record per phase."""
        return [
            {"phase": phase, "epsilon_c": level, "leakage": leak}
            for phase, (level, leak) in enumerate(zip(self.levels, self.leakage, strict=True))
        ]

    def summary(self) -> dict[str, Any]:
        """The figures without the phases."""
        content = asdict(self)
        for name in ("plan", "levels", "leakage"):
            del content[name]
        return {**content, "gain": self.gain, "worthwhile": self.worthwhile, "phases": len(self.levels)}


def phase_plan(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: int | Sequence[int],
    budget: float,
    releases: Literal[1, "continual"] = "continual",
    estimate: PhaseEstimate = "linear",
    about: About = "now",
    adversary: Adversary = "informed",
    protect: float | None = None,
    event_limit: float = EVENT_LIMIT,
) -> PhasePlan:
    """A plan whose noise level goes by the chain's clock, where that lowers the mean error over a cycle by over 1 %.

    Formal guarantee: at every phase the leakage of the present, after one release or after any number of them, then and
    at every later moment, is at most the budget. Tick t is taken to lie at phase t mod H of the clock.

    Args:
        chain: a chain with a public clock (`EnvironmentChain` with cycle=), or a Family of such.
        query, adversary, protect, event_limit: as for `find_plan`.
        ages: one age for all sequences, or one each.
        budget: the ceiling.
        releases: what is certified: 1 for one release, at whatever phase, or "continual" for one at every tick.
        estimate: whose error counts, from the newest release and what is usual at its phase: "linear", or "raw".
        about: "now", the error of telling the present answer, or "then", that of the time of the readings.

    >>> from csdp import CoupledChain, EnvironmentChain, Mean
    >>> slow, fast = (CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.02, 0.4))
    >>> chain = EnvironmentChain([slow, fast], cycle=(0, 0, 1))
    >>> found = phase_plan(chain, Mean(), ages=1, budget=0.5, releases=1, about="then")
    >>> [round(level, 2) for level in found.levels], round(found.constant_level, 2), f"{found.gain:.0%}"
    ([0.52, 0.52, 10.0], 0.52, '33%')
    >>> max(found.leakage) <= 0.5, found.worthwhile
    (True, True)
    """
    if not (isinstance(budget, int | float) and 0 < budget < math.inf):
        raise InputError(f"budget: {budget!r} given; a positive number expected")
    if releases not in {1, "continual"}:
        raise InputError(f"releases: {releases!r} given; 1 or 'continual'")
    if estimate not in {"linear", "raw"}:
        raise InputError(f"estimate: {estimate!r} given; a level for each phase weighs 'linear' or 'raw'")
    check_about(about, estimate)
    certified = certified_model(chain)
    phases = {member.phases for member in certified.members}
    if len(phases) > 1:
        raise InputError(f"chain: clocks of {sorted(phases)} phases given; the members of a family must share one")
    several = [ages] * certified.members[0].sequences if isinstance(ages, int) else list(ages)
    clock = [
        Curves(
            certified,
            query,
            several,
            estimate=estimate,
            releases=1,
            bound="auto",
            adversary=adversary,
            protect=protect,
            about=about,
            phase=phase if max(phases) > 1 else None,
        )
        for phase in range(max(phases))
    ]
    base = Plan(certified, query, several, event_limit, adversary=adversary, protect=protect)
    return _PhaseSearch(base, clock, budget, releases).find()


class _PhaseSearch:
    """The levels that a budget allows at the phases of a clock, and which of them have the least error."""

    def __init__(self, base: Plan, clock: Sequence[Curves], budget: float, releases: Literal[1, "continual"]) -> None:
        self._base, self._clock, self._budget, self._releases = base, clock, budget, releases
        self._limit, self._count = base.epsilon_c, len(clock)
        self._components: dict[str, Sequence[AccountedComponent]] = {}

    def error(self, levels: Floats) -> float:
        """The mean error over a cycle."""
        return float(np.mean([curves.error(level).mse for curves, level in zip(self._clock, levels, strict=True)]))

    def plan(self, levels: Floats) -> Plan:
        """The plan of some levels; with one noise level where they are all the same."""
        if (levels == levels[0]).all():
            return self._base.at(float(levels[0]))
        return self._base.at(float(levels.max()), schedule=Schedule(tuple(levels.tolist()), repeats=True))

    def find(self) -> PhasePlan:
        """The best levels, held against the best constant one."""
        no_data = float(np.mean([curves.error(self._limit).no_data for curves in self._clock]))
        constant = self._best_constant()
        if constant is None:
            raise InfeasibleError(
                f"budget {self._budget:g} cannot be met at ages {list(self._base.ages[:8])}: even epsilon_c "
                f"{SMALLEST_LEVEL:g} at every tick passes it; raise the budget or the ages",
                nearest=float(self._certified(np.full(self._count, SMALLEST_LEVEL)).max()),
                no_data=no_data,
            )
        best = constant
        if self._count > 1:
            best = min([constant, *self._candidates(constant)], key=self.error)
        gain = 1.0 - self.error(best) / self.error(constant)
        kept = best if gain > WORTHWHILE else constant
        leakage = tuple(self._by_phase(kept, "auto").tolist())
        if not (self._certified(kept).max() <= self._budget and max(leakage) <= self._budget):
            raise AssertionError("planning: levels by phase pass the budget")
        return PhasePlan(
            plan=self.plan(kept),
            levels=tuple(kept.tolist()),
            leakage=leakage,
            budget=self._budget,
            mse=self.error(kept),
            constant_level=float(constant[0]),
            constant_mse=self.error(constant),
            no_data=no_data,
            possible_gain=gain,
        )

    def _best_constant(self) -> Floats | None:
        """The best level for all phases; None where none keeps the budget."""
        first: Floats | None = np.ones(self._count)
        if self._releases == "continual" and self._quick_rule() == "auto":
            first = self._raise_to_budget(np.ones(self._count), lambda levels: self._quickly(levels, "auto"))
        return self._raise_to_budget(np.ones(self._count) if first is None else first, self._certified)

    # ---- leakage -------------------------------------------------------------------------------------------------

    def _certified(self, levels: Floats) -> Floats:
        """The largest leakage at any phase and moment, as a publisher holds it against a budget."""
        return np.array([Accountant(self.plan(levels)).ceiling(1 if self._releases == 1 else None)])

    def _by_phase(self, levels: Floats, state: str) -> Floats:
        """The leakage at every phase, by one rule of the accountant for a release at every tick."""
        if self._releases == 1:
            each = zip(self._clock, levels, strict=True)
            return np.array([curves.leakage(float(level)).epsilon for curves, level in each])
        accountant = Accountant(self.plan(levels), state=state)
        settled = accountant.long_run()
        told = [accountant.limit().epsilon] if settled is None else accountant.by_phase(settled)
        return np.broadcast_to(told, self._count).astype(np.float64)

    def _quickly(self, levels: Floats, state: str) -> Floats:
        """The same for a search: by components that are made once, and given other levels."""
        if state not in self._components:
            self._components[state] = Accountant(self._base, state=state).components
        components, worst = self._components[state], np.zeros(self._count)
        for component in components:
            component.levels = PhaseLevels(levels / self._limit)
            at_rest = component.state_at_rest() if component.finds_rest and len(component.ages) == 1 else None
            if at_rest is None:
                return self._by_phase(levels, state)
            worst = np.maximum(worst, component.by_phase(at_rest, component.oldest))
        return worst

    def _quick_rule(self) -> str:
        """How leakage is told quickly: by which state of the accountant, or by "powers" (see `_rule_near`)."""
        accountant = Accountant(self._base)
        if all(component.kind != "metric" for component in accountant.components):
            return "auto"
        if self._base.adversary == "informed" and all(has_influence(each.model) for each in accountant.components):
            return "vector"
        # Of more than two snapshots a scalar state takes phases for alike that are not.
        few = self._count > _RAISED_PHASES or all(each.model.size <= 2 for each in accountant.components)
        return "scalar" if few else "powers"

    # ---- levels --------------------------------------------------------------------------------------------------

    def _raise_to_budget(self, shape: Floats, rule: Rule) -> Floats | None:
        """A shape, raised or lowered as far as a rule allows; None where hardly anything is left of it."""
        least = SMALLEST_LEVEL / float(shape.max())
        factor = largest_level(
            lambda f: float(rule(np.minimum(f * shape, self._limit)).max()) if f >= least else 0.0,
            self._budget,
            self._limit / float(shape.min()),
            start=min(1.0, self._limit / float(shape.max())),
            tolerance=CLOSE,
        )
        return None if factor is None or factor < least else np.minimum(factor * shape, self._limit)

    def _candidates(self, constant: Floats) -> Iterator[Floats]:
        """Levels that keep the budget, by the accountant's own rule."""
        single = [curves.largest_level(self._budget, self._limit) for curves in self._clock]
        alone = np.array([SMALLEST_LEVEL if level is None else level for level in single])
        alone = np.maximum(alone, _LEAST * alone.max())
        shape = alone if self._releases == 1 else self._best_shape(constant, alone)
        levels = self._raise_to_budget(shape, self._certified)
        if levels is not None:
            yield levels

    def _best_shape(self, constant: Floats, alone: Floats) -> Floats:
        """The levels with the least error by a quick rule, which is made anew at the best so far, round after round."""
        best, quick = constant, self._quick_rule()
        for _ in range(1 if quick == "auto" else _SHARP_ROUNDS):
            rule = self._rule_near(best, quick)
            best = best * min(1.0, self._budget / float(rule(best).max()))
            fitted = [self._raise_to_budget(shape, rule) for shape in (self._level_out(best, rule), alone)]
            start = min((each for each in (best, *fitted) if each is not None), key=self.error)
            searched = self._search(start, rule)
            if self.error(searched) > self.error(best) * (1 - _EVEN):
                break
            best = searched
        return best

    def _rule_near(self, levels: Floats, quick: str) -> Rule:
        """The leakage at every phase of levels near some, quickly; nothing is certified by it.

        A state of the accountant, corrected to agree with the sharp one at these levels; or a product of powers, from
        the sharp one with each phase raised a little.
        """
        if quick == "auto":
            return lambda near: self._quickly(near, "auto")
        here = self._quickly(levels, "auto")
        if quick == "powers":
            raised = [np.where(np.arange(self._count) == phase, _RAISE, 1.0) for phase in range(self._count)]
            slopes = [np.log(self._quickly(levels * each, "auto") / here) / math.log(_RAISE) for each in raised]
            return lambda near: np.asarray(here * np.exp(np.log(near / levels) @ np.array(slopes)))
        told = self._quickly(levels, quick)
        correction = np.divide(here, told, out=np.ones(self._count), where=told > 0)
        return lambda near: self._quickly(near, quick) * correction

    def _level_out(self, levels: Floats, rule: Rule) -> Floats:
        """Levels at which every phase leaks about as much as the budget, from others."""
        for _ in range(_ROUNDS):
            told = rule(levels)
            if not (np.isfinite(told).all() and (told > 0).all()):
                break
            moved = np.minimum(levels * (self._budget / told) ** _PACE, self._limit)
            moved = np.maximum(moved, _LEAST * moved.max())
            if (np.abs(np.log(moved / levels)) < _EVEN).all():
                break
            levels = moved
        return levels

    def _search(self, levels: Floats, rule: Rule) -> Floats:
        """The least error by a rule: some phases more or less, the others as far as the budget then allows."""
        used, best = 0, self.error(levels)
        groups = np.array_split(np.arange(self._count), min(self._count, _GROUPS))

        def counted(trial: Floats) -> Floats:
            nonlocal used
            used += 1
            return rule(trial)

        for factor in _FACTORS:
            moves = [(group, change) for group in range(len(groups)) for change in (factor, 1 / factor)]
            waiting = list(moves)
            while waiting and used < _EVALUATIONS:
                group, change = waiting.pop(0)
                shape = levels.copy()
                shape[groups[group]] *= change
                trial = self._raise_to_budget(np.maximum(shape, _LEAST * shape.max()), counted)
                if trial is not None and self.error(trial) < best * (1 - 1e-5):
                    levels, best = trial, self.error(trial)
                    waiting = [(group, change), *(move for move in moves if move != (group, change))]
        return levels
