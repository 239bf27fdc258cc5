"""Dynamic noise: a noise level for every tick, so that a budget lasts and important ticks are more accurate.

The leakage of the present may never pass the budget. Under the accountant's scalar rule a history that counts `b` at
its newest slice counts `L(b)` one slice later, so a tick may spend `e_t = b_t - L(b_(t-1))`: dynamic programming over b
finds the shape with the least weighted error. The accountant's own, sharper rule then decides how far that shape can be
raised, and the last tick takes what is left. The result is compared with the best constant level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from csdp.accountant import Accountant, State
from csdp.accountant.build import build_components
from csdp.chain import Family, Model, certified_model
from csdp.check import number, whole
from csdp.errors import InfeasibleError, InputError
from csdp.estimate.result import Estimate
from csdp.numbers import Floats
from csdp.plan import Plan
from csdp.planning.calibrate import CLOSE, EVENT_LIMIT, SMALLEST_LEVEL, Curves, largest_level
from csdp.query_table import Query
from csdp.schedule import Schedule

#: Ticks that a schedule may list.
LONGEST = 10_000
#: Values of the state between which the dynamic programme chooses.
_GRID = 120


@dataclass(frozen=True)
class DynamicPlan:
    """Noise levels for every tick, their leakage and error, compared with the best constant level.

    `leakage[i]`: the largest leakage of the present from tick i on if nothing more were published; never above the
    budget. `mse`: weighted mean over the ticks that are listed.
    """

    plan: Plan
    levels: tuple[float, ...]
    leakage: tuple[float, ...]
    budget: float
    mse: float
    constant_level: float
    constant_mse: float
    no_data: float

    @property
    def gain(self) -> float:
        """By which share the weighted error lies below that of the constant level."""
        return 1.0 - self.mse / self.constant_mse

    def __repr__(self) -> str:
        less = f"{100 * self.gain:.3g} % less squared error than a constant level"
        return f"DynamicPlan({len(self.levels)} ticks, budget {self.budget:g}, {less})"


def dynamic_plan(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: int | Sequence[int],
    budget: float,
    horizon: int,
    weights: Sequence[float] | None = None,
    start: int = 0,
    estimate: Estimate = "linear",
    event_limit: float = EVENT_LIMIT,
) -> DynamicPlan:
    """A plan whose noise level changes from tick to tick, under one ceiling for the leakage of the present.

    Formal guarantee: after every tick the leakage of the present, then and at every later moment, is at most the
    budget. In the long run one level is kept: `find_plan(releases="continual")` finds it.

    Args:
        chain, query, estimate, event_limit: as for `find_plan`.
        ages: one age for all sequences, or one each.
        budget: the ceiling.
        horizon: how many ticks are published from tick `start` on, and none after them.
        weights: how much each tick of the horizon matters; 0 publishes nothing at that tick.
        start: the first tick of the schedule.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> dynamic = dynamic_plan(chain, Mean(), ages=1, budget=0.2, horizon=4)
    >>> dynamic.levels[0] > dynamic.constant_level, max(dynamic.leakage) <= 0.2, dynamic.mse <= dynamic.constant_mse
    (True, True, True)
    """
    importance = _read_weights(horizon, weights, budget)
    model = certified_model(chain).members[0]
    several = (ages,) * model.sequences if isinstance(ages, int) else tuple(ages)
    curves = Curves(chain, query, several, estimate=estimate, releases=1)
    plan = Plan(chain, query, several, event_limit)
    no_data = curves.error(event_limit).no_data
    search = _LevelSearch(plan, budget)
    constant = search.constant_level([w > 0 for w in importance])
    if constant is None:
        raise InfeasibleError(
            f"budget {budget:g} cannot be met at ages {several[:8]}: even epsilon_c {SMALLEST_LEVEL:g} at every tick "
            "passes it; raise the budget or the ages",
            nearest=_LevelSearch(plan, math.inf).peaks([SMALLEST_LEVEL if w > 0 else 0.0 for w in importance])[-1],
            no_data=no_data,
        )

    def error(levels: Sequence[float]) -> float:
        values = [curves.error(e).safe if e > 0 else no_data for e in levels]
        return float(np.average(values, weights=importance))

    uniform = [constant if w > 0 else 0.0 for w in importance]
    shaped = search.shape_levels(importance, lambda e: curves.error(e).safe)
    levels = min(uniform, shaped, key=error)
    schedule = Schedule(tuple(levels), start)
    final = Plan(chain, query, several, schedule.largest, schedule=schedule)
    leakage = _LevelSearch(final, budget).peaks(levels)
    if not max(leakage) <= budget:
        raise AssertionError("planning: a schedule passes the budget")
    return DynamicPlan(
        plan=final,
        levels=tuple(levels),
        leakage=tuple(leakage),
        budget=budget,
        mse=error(levels),
        constant_level=constant,
        constant_mse=error(uniform),
        no_data=no_data,
    )


class _LevelSearch:
    """The levels that a budget allows at the ticks of a schedule, by the accountant's rule."""

    def __init__(self, plan: Plan, budget: float) -> None:
        self._plan, self._budget = plan, budget
        self._accountant = Accountant(plan)

    def peaks(self, levels: Sequence[float]) -> list[float]:
        """The largest leakage from every tick on if nothing more were published; infinite once the budget is passed."""
        state, peaks, worst = self._accountant.start(0), list[float](), 0.0
        for tick, level in enumerate(levels, start=1):
            if level > 0:
                state = self._accountant.release(state, tick, epsilon_c=min(level, self._plan.epsilon_c))
                worst = self._accountant.peak(state)
            peaks.append(worst)
            if worst > self._budget:
                break
        return peaks + [math.inf] * (len(levels) - len(peaks))

    def constant_level(self, published: Sequence[bool]) -> float | None:
        """The largest level that all published ticks can have."""
        return self._scale(lambda e: [e if wanted else 0.0 for wanted in published], self._plan.epsilon_c)

    def shape_levels(self, weights: Floats, error: Callable[[float], float]) -> list[float]:
        """The best shape under the scalar rule, raised as far as the accountant allows; the last tick takes the rest.

        With the linear estimate and a tight budget the best shape concentrates on few ticks.
        """
        shape = _best_shape(
            Accountant(self._plan, build_components(self._plan, "scalar")), self._budget, weights, error
        )
        top = self._plan.epsilon_c / max(shape)
        factor = self._scale(lambda f: [f * e for e in shape], top) or 0.0
        levels = [factor * e for e in shape]
        last = max(i for i, w in enumerate(weights) if w > 0)
        end = self._scale(lambda e: [*levels[:last], e, *levels[last + 1 :]], self._plan.epsilon_c)
        levels[last] = max(levels[last], end or 0.0)
        return levels

    def _scale(self, levels: Callable[[float], list[float]], top: float) -> float | None:
        """The largest number up to `top` whose levels keep the budget."""

        def peak(value: float) -> float:
            return max(self.peaks(levels(value)))

        return largest_level(peak, self._budget, top, least=1e-3 * SMALLEST_LEVEL, tolerance=CLOSE)


def _best_shape(accountant: Accountant, budget: float, weights: Floats, error: Callable[[float], float]) -> list[float]:
    """Levels with the least weighted error under `b_t = cost(e_t) + L(b_(t-1)) <= b`, by dynamic programming over b."""
    plan = accountant.plan
    unit = accountant.largest(accountant.release(accountant.start(0))) / plan.epsilon_c  # cost of a level of 1
    depth = plan.min_age

    def resume(b: float) -> State:
        return accountant.resume(b, 0, depth)

    top = unit * plan.epsilon_c * weights.size
    highest = largest_level(lambda b: accountant.peak(resume(b)), budget, top, least=1e-9 * top, tolerance=CLOSE)
    grid = np.linspace(0.0, highest or unit * SMALLEST_LEVEL, _GRID)
    tiny = SMALLEST_LEVEL * plan.epsilon_c
    faded = np.array([accountant.largest(accountant.release(resume(b), 1, epsilon_c=tiny)) for b in grid])
    levels = (grid[None, :] - faded[:, None]) / unit  # from b before to b after
    known = np.geomspace(plan.epsilon_c * 1e-4, plan.epsilon_c, 80)
    errors = np.interp(levels, known, [error(e) for e in known])
    cost = np.where((levels >= known[0]) & (levels <= plan.epsilon_c), errors, np.inf)
    quiet = np.abs(faded[:, None] - grid[None, :]) <= (grid[1] - grid[0])
    value = np.zeros(_GRID)
    choices = []
    for weight in weights[::-1]:
        total = (weight * cost if weight > 0 else np.where(quiet, 0.0, np.inf)) + value[None, :]
        choices.append(total.argmin(axis=1))
        value = total.min(axis=1)
    at, shape = 0, []
    for choice, weight in zip(choices[::-1], weights, strict=True):
        to = int(choice[at])
        shape.append(float(np.clip(levels[at, to], known[0], plan.epsilon_c)) if weight > 0 else 0.0)
        at = to
    return shape


def _read_weights(horizon: int, weights: Sequence[float] | None, budget: float) -> Floats:
    """The importance of every tick that is listed."""
    number("budget", budget, above=0)
    whole("horizon", horizon, least=1, most=LONGEST)
    importance = np.ones(horizon) if weights is None else np.asarray(weights, dtype=np.float64)
    valid = importance.shape == (horizon,) and np.isfinite(importance).all() and (importance >= 0).all()
    if not valid or not importance.any():
        raise InputError(
            f"weights: {importance.shape} numbers given; {horizon}, one per tick, none negative, at least one above 0"
        )
    return importance
