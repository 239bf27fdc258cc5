"""Leakage and error of a release as functions of the noise level, at fixed ages: the level that meets a target, and the
whole trade-off on a grid.

Error falls and leakage grows with epsilon_c. What is costly is computed once, and every level that is returned was
evaluated as it is and is on the safe side.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from csdp.accountant import Accountant
from csdp.bounds.adversary import Adversary
from csdp.bounds.closed_forms import PAIR_STATES
from csdp.bounds.influence import has_influence
from csdp.bounds.leakage import Setting
from csdp.bounds.result import UNSOUND, Leakage, round_up
from csdp.chain import Family, Model, certified_model
from csdp.display import Displayed
from csdp.errors import InputError, TooLargeError, UnsoundError
from csdp.estimate import Error, Moments, moments
from csdp.estimate.error import error_from_moments
from csdp.estimate.history import MEMORY, HistoryEstimator, has_history, model_estimator
from csdp.estimate.result import About, Estimate
from csdp.plan import Plan
from csdp.query import tabulate
from csdp.query_table import Query

Releases = int | Literal["continual"]

#: Default of the plain epsilon-DP that one record may be exposed to: old records must not be published almost without
#: noise only because their age alone certifies the present.
EVENT_LIMIT = 10.0
#: Least noise level that is tried.
SMALLEST_LEVEL = 1e-6
#: Share of the budget by which the leakage may stay below it: for one release, which is quickly computed, and for many,
#: where each evaluation follows a history to its limit.
EXACT, CLOSE = 1e-11, 1e-3
#: A slope (percent of leakage for a percent of level) that is as good as flat.
_FLAT = 0.05
#: Factor by which to go down while no level has kept the budget.
_FALL = 30.0
#: Evaluations after which every third one bisects (where leakage jumps, secants keep missing), and evaluations at most.
_PATIENCE, _EVALUATIONS = 6, 100


def least_level(error: Callable[[float], float], target: float, limit: float) -> float | None:
    """The smallest epsilon_c with error <= target; None where even the largest allowed one misses it."""
    if error(limit) > target:
        return None
    if error(SMALLEST_LEVEL) <= target:
        return SMALLEST_LEVEL
    from scipy.optimize import brentq

    # The noise variance, 1 / epsilon_c^2, is what the error is nearly linear in.
    root = brentq(lambda v: error(v**-0.5) - target, limit**-2, SMALLEST_LEVEL**-2, rtol=1e-14)
    level, back = float(root**-0.5), 1e-13
    while error(level) > target:  # to the safe side
        level, back = min(limit, level * (1 + back)), back * 4
    return level


def largest_level(
    leakage: Callable[[float], float],
    budget: float,
    limit: float,
    *,
    start: float | None = None,
    tolerance: float = EXACT,
) -> float | None:
    """The largest epsilon_c with leakage <= budget, to a share `tolerance` of the budget; None where even the least
    level passes it.

    Secant steps on logarithms, in which leakage is nearly a straight line, from `start` (the limit), between a level
    that fits and one that does not.

    >>> from math import expm1
    >>> level = largest_level(expm1, 1.0, 10.0)
    >>> expm1(level) <= 1.0, round(level, 9)
    (True, 0.693147181)
    """
    level, fits, passes = limit if start is None else min(start, limit), 0.0, math.inf
    known: list[tuple[float, float]] = []
    for n in range(_EVALUATIONS):
        epsilon = leakage(level)
        if epsilon > budget:
            passes = level
        elif level >= limit or epsilon >= (1 - tolerance) * budget:
            return level
        else:
            fits = level
        if passes <= max(SMALLEST_LEVEL, fits * (1 + tolerance / 10)):
            break
        if 0 < epsilon < math.inf:
            known.append((level, epsilon))
        trial = None if n > _PATIENCE and n % 3 == 0 else _secant(known, budget * (1 - tolerance / 2))
        if trial is None or not fits < trial < passes:
            trial = math.sqrt(fits * passes) if fits and passes < math.inf else passes / _FALL
        level = min(limit, max(SMALLEST_LEVEL, trial))
    return fits or None


def _secant(known: list[tuple[float, float]], aim: float) -> float | None:
    """The level at which the line through the two points nearest to the aim meets it; None where the line is flat."""
    nearest = sorted(known, key=lambda point: abs(math.log(point[1] / aim)))[:2]
    if not nearest:
        return None
    level, epsilon = nearest[0]
    slope = 1.0 if len(nearest) == 1 else math.log(epsilon / nearest[1][1]) / math.log(level / nearest[1][0])
    return None if slope < _FLAT else level * math.exp(math.log(aim / epsilon) / slope)


class Curves:
    """Leakage and error at one choice of ages, for any noise level; counts how often leakage was evaluated.

    `cap`: the leakage that no noise is needed for at these ages, of a system too large for anything sharper. `state`:
    the accountant's, for more than one release.
    """

    def __init__(
        self,
        chain: Model | Family,
        query: Query | str,
        ages: Sequence[int],
        *,
        estimate: Estimate,
        releases: Releases,
        bound: str,
        adversary: Adversary,
        protect: float | None = None,
        about: About = "now",
        cap: float | None = None,
        state: str = "auto",
    ) -> None:
        if bound in UNSOUND:
            raise UnsoundError(f"bound {bound!r} is not proven, so no plan can rest on it; use bound='auto'")
        chain = certified_model(chain)
        self._members = chain.members
        self.chain, self.query, self.ages = chain, tabulate(query, self._members[0]), tuple(ages)
        self._estimate: Estimate = estimate
        self._about: About = about
        self._releases: Releases = releases
        self._bound = bound
        self._adversary: Adversary = adversary
        self._protect = protect
        self._cap = cap
        self._state = state
        self._known: dict[float, Leakage] = {}
        self._firsts: dict[tuple[float, str], list[Leakage]] = {}
        self._prepared: dict[int, tuple[Moments, HistoryEstimator | None]] = {}
        self.evaluations = 0

    # ---- error: falls with epsilon_c -------------------------------------------------------------------------------

    def _prepare_error(self, number: int) -> tuple[Moments, HistoryEstimator | None]:
        """What the error under one model needs at every level; an estimator where the last releases are used."""
        if number not in self._prepared:
            law = self._members[number].point
            memory = MEMORY if self._releases == "continual" else min(MEMORY, self._releases)
            estimator = None
            if self._estimate == "history" and has_history(law, self.ages):
                estimator = model_estimator(law, self.query, age=self.ages[0], about=self._about, memory=memory)
            self._prepared[number] = moments(law, self.query, ages=self.ages), estimator
        return self._prepared[number]

    def point_error(self, epsilon_c: float, number: int = 0) -> Error:
        """The error at a noise level under one model alone, the fitted one where there is a family."""
        known, estimator = self._prepare_error(number)
        law = self._members[number].point
        return error_from_moments(law, self.query, known, self.ages, epsilon_c, self._estimate, self._about, estimator)

    def error(self, epsilon_c: float) -> Error:
        """The error at a noise level: the largest over the models."""
        errors = [self.point_error(epsilon_c, number) for number in range(len(self._members))]
        return max(errors, key=lambda error: error.safe)

    # ---- leakage: grows with epsilon_c -----------------------------------------------------------------------------

    @cached_property
    def _settings(self) -> list[list[Setting]]:
        """By model; several of one under a clock, one for each phase."""
        options: dict[str, Any] = {"ages": self.ages, "adversary": self._adversary}
        options |= {"protect": self._protect}
        return [Setting.list_all(member, self.query, epsilon_c=1.0, **options) for member in self._members]

    def leakage_value(self, epsilon_c: float) -> float:
        """The leakage as a number, for a search; of a giant system quickly, from its cap."""
        if self._cap is None:
            return self.leakage(epsilon_c).epsilon
        if self._releases != 1:
            return self._cap
        return min(self._cap, round_up(self._group_level * epsilon_c))

    def later_peak(self, epsilon_c: float) -> float:
        """The largest leakage of one release at any later moment; 0 for a giant system, whose leakage never grows."""
        return Accountant(self.plan(epsilon_c)).ceiling(1) if self._cap is None else 0.0

    @cached_property
    def _group_level(self) -> float:
        """Plain DP of all tied records at a noise level of 1."""
        return max(part.alpha for settings in self._settings for each in settings for part in each.components)

    def leakage(self, epsilon_c: float) -> Leakage:
        """The certified leakage of the present at a noise level: the largest over the models."""
        if epsilon_c not in self._known:
            self.evaluations += 1
            self._known[epsilon_c] = (
                _largest(self._one_release(epsilon_c, self._bound))
                if self._releases == 1
                else self._many_releases(epsilon_c)
            )
        return self._known[epsilon_c]

    def _one_release(self, epsilon_c: float, bound: str) -> list[Leakage]:
        """The leakage of one release, by model."""
        if (epsilon_c, bound) not in self._firsts:
            answers = []
            for i, settings in enumerate(self._settings):
                moved = [setting.at(epsilon_c) for setting in settings]
                answers.append(_largest([setting.answer(bound) for setting in moved]))
                self._settings[i] = moved  # with the aged laws that were just made
            self._firsts[epsilon_c, bound] = answers
        return self._firsts[epsilon_c, bound]

    def _many_releases(self, epsilon_c: float) -> Leakage:
        """A budget has to allow the largest leakage at any moment, also after the last release."""
        accountant = Accountant(self.plan(epsilon_c), state=self._state)
        count = None if self._releases == "continual" else self._releases
        last = accountant.limit() if count is None else accountant.after(count)
        return replace(last, epsilon=accountant.ceiling(count))

    # ---- levels ----------------------------------------------------------------------------------------------------

    def highest_level(self, budget: float, limit: float) -> float | None:
        """A noise level above which none keeps a budget, by a quick bound; None where there is no quick bound.

        The leakage of the first of many releases is quickly computed, and all of them leak no less.
        """
        if self._releases == 1 or self._cap is not None:
            return None
        bound = self._first_bound
        return largest_level(lambda e: _largest(self._one_release(e, bound)).epsilon, budget, limit, tolerance=CLOSE)

    @cached_property
    def _first_bound(self) -> str:
        """The bound of a first release that is no larger than what is certified for many, and quick.

        Beyond the size at which snapshots are enumerated, releases of a backward chain are certified by `influence`.
        """
        large = all(
            has_influence(model)
            and (not model.has_law or model.states ** min(map(len, model.components())) > PAIR_STATES)
            for model in self._members
        )
        return "influence" if large and self._adversary == "informed" else "auto"

    def largest_level(self, budget: float, limit: float, *, start: float | None = None) -> float | None:
        """The largest noise level that keeps a budget: to the last digits for one release, closely for many.

        `start`: a level near it, where one is known.
        """
        if self._releases == 1 or self._cap is not None:
            return largest_level(self.leakage_value, budget, limit)
        start = self.highest_level(budget, limit) if start is None else start
        if start is not None and len(self._members) > 1:
            worst = self._worst_member(start)
            start = worst.largest_level(budget, limit)
            self.evaluations += worst.evaluations
        return largest_level(self.leakage_value, budget, limit, start=start or SMALLEST_LEVEL, tolerance=CLOSE)

    def _worst_member(self, epsilon_c: float) -> Curves:
        """The model whose first release leaks most: what fits it mostly fits the family, for a fraction of the work."""
        leakages = [answer.epsilon for answer in self._one_release(epsilon_c, self._first_bound)]
        worst = self._members[leakages.index(max(leakages))]
        return Curves(
            worst,
            self.query,
            self.ages,
            estimate=self._estimate,
            releases=self._releases,
            bound=self._bound,
            adversary=self._adversary,
            protect=self._protect,
            about=self._about,
        )

    def plan(self, epsilon_c: float) -> Plan:
        """The plan at a noise level."""
        secret: dict[str, Any] = {"adversary": self._adversary, "protect": self._protect}
        return Plan(self.chain, self.query, self.ages, epsilon_c, bound=self._bound, **secret)


def _largest(answers: list[Leakage]) -> Leakage:
    return max(answers, key=lambda answer: answer.epsilon)


# ---- the whole trade-off ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One setting and what it achieves; `best` where no other point has less leakage and less error.

    About the time of the readings, age is a delay and counts as well.
    """

    age: int
    epsilon_c: float
    leakage: float
    bound: str
    mse: float
    best: bool


@dataclass(frozen=True)
class Frontier(Displayed):
    """Points by age and noise level, and the squared error of publishing nothing (leakage 0).

    `releases` and `about` are those of the points, as for `find_plan`.
    """

    points: tuple[Point, ...]
    no_data: float
    releases: Releases = 1
    about: About = "now"

    def __repr__(self) -> str:
        best = sum(point.best for point in self.points)
        return f"Frontier({len(self.points)} points, {best} of them best, no-data squared error {self.no_data:.6g})"

    def records(self) -> list[dict[str, Any]]:
        """One plain record per point."""
        return [asdict(point) for point in self.points]

    def to_dict(self) -> dict[str, Any]:
        """To be written into a plan file under "frontier"; no part of the digest of the plan."""
        return {**asdict(self), "points": self.records()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Frontier:
        """Read what `to_dict` wrote."""
        try:
            points = tuple(Point(**point) for point in content["points"])
            return cls(points, float(content["no_data"]), content["releases"], content["about"])
        except (KeyError, TypeError, ValueError):
            raise InputError("frontier: cannot be read; make the plan again with `csdp plan`") from None


def plan_frontier(
    plan: Plan, *, releases: Releases = "continual", estimate: Estimate = "history", about: About = "now"
) -> Frontier | None:
    """Leakage and error of settings around those of a plan, to be stored with it; None if they cannot be bounded.

    All sequences have one age: that of the plan, about half of it, and about twice as much.
    """
    ages = {age for own in (plan.min_age, plan.max_age) for age in (own // 2, own, 2 * own + 1)}
    levels = [plan.epsilon_c * factor for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
    try:
        line = frontier(
            plan.chain,
            plan.query,
            ages=sorted(ages),
            levels=[level for level in levels if level <= max(EVENT_LIMIT, plan.epsilon_c)],
            releases=releases,
            estimate=estimate,
            adversary=plan.adversary,
            protect=plan.protect,
            about=about,
        )
    except TooLargeError:
        return None
    points = tuple(point for point in line.points if math.isfinite(point.leakage))
    return replace(line, points=points) if points else None


def frontier(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Sequence[int] = (0, 1, 2, 3, 5, 8),
    levels: Sequence[float] | None = None,
    releases: Releases = 1,
    estimate: Estimate = "history",
    bound: str = "auto",
    adversary: Adversary = "informed",
    protect: float | None = None,
    about: About = "now",
) -> Frontier:
    """Leakage and error over a grid of common ages and noise levels; about="then": of delay, leakage and error.

    Args:
        chain, query, releases, estimate, bound, adversary, protect, about: as for `find_plan`.
        ages: the common ages of the grid.
        levels: its values of epsilon_c; default 12 between 0.05 and 10.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> line = frontier(chain, Mean(), ages=(1, 2), levels=(0.5, 1.0))
    >>> len(line.points), round(line.no_data, 4)
    (4, 0.1333)
    """
    grid = np.geomspace(0.05, EVENT_LIMIT, 12).tolist() if levels is None else list(levels)
    model = certified_model(chain).members[0]
    query = tabulate(query, model)
    settings, no_data = [], 0.0
    for age in ages:
        curves = Curves(
            chain,
            query,
            [age] * model.sequences,
            estimate=estimate,
            releases=releases,
            bound=bound,
            adversary=adversary,
            protect=protect,
            about=about,
        )
        for level in grid:
            answer, error = curves.leakage(level), curves.error(level)
            no_data = error.no_data
            settings.append((age, level, answer.epsilon, answer.bound, error.safe))
    points = []
    for age, level, leak, name, mse in settings:
        costs = (leak, mse) if about == "now" else (leak, mse, age)
        rivals = [(o[2], o[4]) if about == "now" else (o[2], o[4], o[0]) for o in settings]
        beaten = any(all(map(operator.le, rival, costs)) and rival != costs for rival in rivals)
        points.append(Point(age, level, leak, name, mse, not beaten and mse < no_data))
    return Frontier(tuple(points), no_data, releases, about)
