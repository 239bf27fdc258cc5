"""The one calibrator: the noise level that meets a target, for any certificate or error that is monotone in it.

Secant steps on logarithms, in which leakage and error are nearly straight lines, between a level that fits and one that
does not, with bisection if the curve jumps. The level that is returned was evaluated as it is and is on the safe side.
The idea is that of `calibrate_dp_mechanism` of dp_accounting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

from csdp.accountant import Accountant
from csdp.accountant.build import Rule, build_components
from csdp.accountant.joint import Known
from csdp.bounds.leakage import Setting
from csdp.bounds.result import Leakage
from csdp.bounds.units import read_units
from csdp.chain import Family, Model, certified_model
from csdp.estimate import Error
from csdp.estimate.error import error_from_moments, error_of_noise
from csdp.estimate.history import MEMORY, HistoryEstimator, has_history, model_estimator
from csdp.estimate.moments import Moments, moments
from csdp.estimate.result import About, Estimate
from csdp.plan import Plan
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query

Releases = int | Literal["continual"]

#: Default of the plain epsilon-DP that one record may be exposed to: old records must not be published almost without
#: noise only because their age alone certifies the present.
EVENT_LIMIT: Final = 10.0
#: Smallest epsilon_c that is tried.
SMALLEST_LEVEL: Final = 1e-6
#: Share of the target by which a result may stay below it: for one release, which is quickly computed; for many, whose
#: evaluation follows a history to its limit; and for an error.
EXACT, CLOSE, ERROR_TOLERANCE = 1e-11, 1e-3, 1e-12
#: A slope (percent of the value for a percent of the level) that is as good as flat.
_FLAT = 0.05
#: Factor by which to go down while no level has kept the target.
_FALL = 30.0
#: Evaluations after which every third one bisects (secants keep missing a jump), and evaluations at most.
_PATIENCE, _EVALUATIONS = 6, 100


def largest_level(
    certificate: Callable[[float], float],
    budget: float,
    limit: float,
    *,
    start: float | None = None,
    least: float = SMALLEST_LEVEL,
    tolerance: float = EXACT,
) -> float | None:
    """The largest level up to `limit` whose certificate keeps the budget; None if even the least level passes it.

    Formal guarantee: the certificate was evaluated at the level that is returned, and was at most the budget.

    Args:
        certificate: grows with the level; may be infinite.
        budget: what it may reach.
        limit: the largest level.
        start: a level near the result, if one is known; by default the limit.
        least: the smallest level that is tried.
        tolerance: the share of the budget by which the certificate may stay below it.

    >>> level = largest_level(math.expm1, 1.0, 10.0)
    >>> math.expm1(level) <= 1.0, round(level, 9)
    (True, 0.693147181)
    """
    level = limit if start is None else min(max(start, least), limit)
    fits = 0.0
    passes = math.inf
    known: list[tuple[float, float]] = []
    for n in range(_EVALUATIONS):
        value = certificate(level)
        if not value <= budget:
            passes = level
        elif level >= limit or value >= (1 - tolerance) * budget:
            return level
        else:
            fits = level
        if passes <= max(least, fits * (1 + tolerance / 10)):
            break
        if 0 < value < math.inf:
            known.append((level, value))
        trial = None if n > _PATIENCE and n % 3 == 0 else _secant(known, budget * (1 - tolerance / 2))
        if trial is None or not fits < trial < passes:
            trial = math.sqrt(fits * passes) if fits and passes < math.inf else passes / _FALL
        level = min(limit, max(least, trial))
    return fits or None


def least_level(error: Callable[[float], float], target: float, limit: float) -> float | None:
    """The smallest epsilon_c up to `limit` whose error meets the target; None if even the limit misses it.

    >>> round(least_level(lambda level: 0.1 + level**-2, 0.35, 10.0), 9)
    2.0
    """

    def level(noise: float) -> float:
        return min(limit, max(SMALLEST_LEVEL, 1.0 / noise))

    noise = largest_level(
        lambda noise: error(level(noise)),
        target,
        1.0 / SMALLEST_LEVEL,
        start=1.0 / limit,
        least=1.0 / limit,
        tolerance=ERROR_TOLERANCE,
    )
    return None if noise is None else level(noise)


def _secant(known: list[tuple[float, float]], aim: float) -> float | None:
    """The level at which the line through the two points nearest to the aim meets it; None if the line is flat."""
    nearest = sorted(known, key=lambda point: abs(math.log(point[1] / aim)))[:2]
    if not nearest:
        return None
    level, value = nearest[0]
    slope = 1.0 if len(nearest) == 1 else math.log(value / nearest[1][1]) / math.log(level / nearest[1][0])
    return None if slope < _FLAT else level * math.exp(math.log(aim / value) / slope)


# ---- at some ages ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curves:
    """Leakage and error at some ages, for any noise level; what does not depend on the level is computed once.

    Args:
        chain, query, estimate, releases, about: as for `find_plan`.
        ages: one age for each sequence.
        rule: which states the accountant keeps, for more than one release.
        known: what was computed at other ages, if this is one of several.
        near: a level near the largest, if one is known.
        units: as for a plan.
    """

    chain: Model | Family
    query: Query | str
    ages: tuple[int, ...]
    _: KW_ONLY
    estimate: Estimate = "history"
    releases: Releases = "continual"
    about: About = "now"
    rule: Rule = "auto"
    known: Known = field(default_factory=Known)
    near: float | None = None
    units: Sequence[Sequence[str | int]] | None = None

    @cached_property
    def _members(self) -> Sequence[Model]:
        return certified_model(self.chain).members

    @cached_property
    def _table(self) -> QueryTable:
        return tabulate(self.query, self._members[0])

    @cached_property
    def _leakages(self) -> dict[float, Leakage]:
        return {}

    # ---- error: falls with epsilon_c -------------------------------------------------------------------------------

    @cached_property
    def _prepared(self) -> list[tuple[Model, Moments, HistoryEstimator | None]]:
        """What the error under each model needs at every level; an estimator if the last releases are used."""
        memory = MEMORY if self.releases == "continual" else min(MEMORY, self.releases)
        found = []
        for law in (member.point for member in self._members):
            estimator = None
            if self.estimate == "history" and has_history(law, self.ages):
                estimator = model_estimator(law, self._table, age=self.ages[0], about=self.about, memory=memory)
            found.append((law, moments(law, self._table, ages=self.ages), estimator))
        return found

    def error(self, epsilon_c: float) -> Error:
        """The error at a noise level: the largest over the models."""
        points = [member.point for member in self._members]
        if not points[0].has_law:
            return error_of_noise(points[0], self._table, self.ages, epsilon_c, self.about)
        errors = [
            error_from_moments(law, self._table, known, self.ages, epsilon_c, self.estimate, self.about, estimator)
            for law, known, estimator in self._prepared
        ]
        return max(errors, key=lambda error: error.safe)

    # ---- leakage: grows with epsilon_c -----------------------------------------------------------------------------

    @cached_property
    def _settings(self) -> list[Setting]:
        """Of one release: by model, and under a clock by phase."""
        asked = {"ages": self.ages, "epsilon_c": 1.0, "units": read_units(self.units, self._members[0].names)}
        return [setting for member in self._members for setting in Setting.list_all(member, self._table, **asked)]

    def leakage(self, epsilon_c: float) -> Leakage:
        """The certified leakage of the present at a noise level: the largest over the models."""
        if epsilon_c not in self._leakages:
            if self.releases == 1:
                self._settings[:] = [setting.at(epsilon_c) for setting in self._settings]  # keeps their aged laws
                answers = [setting.answer("auto") for setting in self._settings]
                self._leakages[epsilon_c] = max(answers, key=lambda answer: answer.epsilon)
            else:
                self._leakages[epsilon_c] = self._many_releases(epsilon_c)
        return self._leakages[epsilon_c]

    def _many_releases(self, epsilon_c: float) -> Leakage:
        """A budget has to allow the largest leakage at any moment, also after the last release."""
        plan = self.plan(epsilon_c)
        accountant = Accountant(plan, build_components(plan, self.rule, self.known))
        count = None if self.releases == "continual" else self.releases
        last = accountant.limit() if count is None else accountant.after(count)
        return replace(last, epsilon=accountant.ceiling(count))

    def least_leakage(self, epsilon_c: float) -> float:
        """A lower bound on the leakage of many releases, quickly computed: that of the first two."""
        plan = self.plan(epsilon_c)
        return Accountant(plan, build_components(plan, self.rule, self.known)).after(2).epsilon

    def later_peak(self, epsilon_c: float) -> float:
        """The largest leakage of one release at any later moment."""
        return Accountant(self.plan(epsilon_c)).ceiling(1)

    def largest_level(self, budget: float, limit: float, *, start: float | None = None) -> float | None:
        """The largest noise level that keeps a budget: to the last digits for one release, closely for many.

        `start`: a level near it, if one is known.
        """
        if self.releases == 1:
            return largest_level(lambda e: self.leakage(e).epsilon, budget, limit)
        near = start or self.near or min(budget, limit)
        if len(self._members) > 1:
            # What fits the model that leaks most mostly fits the family, for a fraction of the work.
            alone = [replace(self, chain=member, query=self._table, near=None) for member in self._members]
            worst = max(alone, key=lambda curves: curves.leakage(near).epsilon)
            near = worst.largest_level(budget, limit, start=near) or near
        return largest_level(lambda e: self.leakage(e).epsilon, budget, limit, start=near, tolerance=CLOSE)

    def plan(self, epsilon_c: float) -> Plan:
        """The plan at a noise level."""
        return Plan(self.chain, self._table, self.ages, epsilon_c, units=self.units)

    def every_moment(self, epsilon_c: float) -> float:
        """What all releases reveal of the state at any one tick, at a noise level; it does not depend on the ages."""
        plan = self.plan(epsilon_c)
        accountant = Accountant(plan, build_components(plan, self.rule, self.known))
        return accountant.every_moment(None if self.releases == "continual" else self.releases)
