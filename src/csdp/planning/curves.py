"""Leakage and error at one choice of ages, as functions of the noise level: error falls and leakage grows with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

from csdp.accountant import Accountant
from csdp.accountant.build import Rule, build_components
from csdp.accountant.joint import Known
from csdp.bounds.leakage import Setting
from csdp.bounds.result import Leakage
from csdp.chain import Family, Model, certified_model
from csdp.estimate import Error
from csdp.estimate.error import error_from_moments
from csdp.estimate.history import MEMORY, HistoryEstimator, has_history, model_estimator
from csdp.estimate.moments import Moments, moments
from csdp.estimate.result import About, Estimate
from csdp.plan import Plan
from csdp.planning.calibrate import CLOSE, largest_level
from csdp.query import tabulate
from csdp.query_table import Query

Releases = int | Literal["continual"]


class Curves:
    """Leakage and error at some ages, for any noise level; what does not depend on the level is computed once.

    Args:
        chain, query, estimate, releases, about: as for `find_plan`.
        ages: one age for each sequence.
        rule: which states the accountant keeps, for more than one release.
        known: what was computed at other ages, if this is one of several.
    """

    def __init__(
        self,
        chain: Model | Family,
        query: Query | str,
        ages: Sequence[int],
        *,
        estimate: Estimate = "history",
        releases: Releases = "continual",
        about: About = "now",
        rule: Rule = "auto",
        known: Known | None = None,
    ) -> None:
        self.chain = certified_model(chain)
        self._members = self.chain.members
        self.query = tabulate(query, self._members[0])
        self.ages = tuple(ages)
        self.releases: Releases = releases
        self.near: float | None = None  #: a level near the largest, if one is known
        self.evaluations = 0  #: how often leakage was evaluated
        self._estimate: Estimate = estimate
        self._about: About = about
        self._rule: Rule = rule
        self._parts = Known() if known is None else known
        self._known: dict[float, Leakage] = {}
        self._prepared: dict[int, tuple[Moments, HistoryEstimator | None]] = {}

    # ---- error: falls with epsilon_c -------------------------------------------------------------------------------

    def _prepare_error(self, number: int) -> tuple[Moments, HistoryEstimator | None]:
        """What the error under one model needs at every level; an estimator if the last releases are used."""
        if number not in self._prepared:
            law = self._members[number].point
            memory = MEMORY if self.releases == "continual" else min(MEMORY, self.releases)
            estimator = None
            if self._estimate == "history" and has_history(law, self.ages):
                estimator = model_estimator(law, self.query, age=self.ages[0], about=self._about, memory=memory)
            self._prepared[number] = moments(law, self.query, ages=self.ages), estimator
        return self._prepared[number]

    def _error_under(self, number: int, epsilon_c: float) -> Error:
        known, estimator = self._prepare_error(number)
        law = self._members[number].point
        return error_from_moments(law, self.query, known, self.ages, epsilon_c, self._estimate, self._about, estimator)

    def error(self, epsilon_c: float) -> Error:
        """The error at a noise level: the largest over the models."""
        errors = [self._error_under(number, epsilon_c) for number in range(len(self._members))]
        return max(errors, key=lambda error: error.safe)

    # ---- leakage: grows with epsilon_c -----------------------------------------------------------------------------

    @cached_property
    def _settings(self) -> list[Setting]:
        """Of one release: by model, and under a clock by phase."""
        return [
            setting
            for member in self._members
            for setting in Setting.list_all(member, self.query, ages=self.ages, epsilon_c=1.0, adversary="informed")
        ]

    def leakage(self, epsilon_c: float) -> Leakage:
        """The certified leakage of the present at a noise level: the largest over the models."""
        if epsilon_c not in self._known:
            self.evaluations += 1
            if self.releases == 1:
                self._settings[:] = [setting.at(epsilon_c) for setting in self._settings]  # keeps their aged laws
                answers = [setting.answer("auto") for setting in self._settings]
                self._known[epsilon_c] = max(answers, key=lambda answer: answer.epsilon)
            else:
                self._known[epsilon_c] = self._many_releases(epsilon_c)
        return self._known[epsilon_c]

    def _many_releases(self, epsilon_c: float) -> Leakage:
        """A budget has to allow the largest leakage at any moment, also after the last release."""
        plan = self.plan(epsilon_c)
        accountant = Accountant(plan, build_components(plan, self._rule, self._parts))
        count = None if self.releases == "continual" else self.releases
        last = accountant.limit() if count is None else accountant.after(count)
        return replace(last, epsilon=accountant.ceiling(count))

    def least_leakage(self, epsilon_c: float) -> float:
        """A lower bound on the leakage of many releases, quickly computed: that of the first two."""
        plan = self.plan(epsilon_c)
        return Accountant(plan, build_components(plan, self._rule, self._parts)).after(2).epsilon

    def later_peak(self, epsilon_c: float) -> float:
        """The largest leakage of one release at any later moment."""
        return Accountant(self.plan(epsilon_c)).ceiling(1)

    def largest_level(self, budget: float, limit: float, *, start: float | None = None) -> float | None:
        """The largest noise level that keeps a budget: to the last digits for one release, closely for many.

        `start`: a level near it, if one is known.
        """
        if self.releases == 1:
            return largest_level(lambda e: self.leakage(e).epsilon, budget, limit)
        start = self.near or min(budget, limit) if start is None else start
        if len(self._members) > 1:
            worst = self._worst_member(start)
            start = worst.largest_level(budget, limit, start=start) or start
            self.evaluations += worst.evaluations
        return largest_level(lambda e: self.leakage(e).epsilon, budget, limit, start=start, tolerance=CLOSE)

    def _worst_member(self, epsilon_c: float) -> Curves:
        """The model that leaks most at a level: what fits it mostly fits the family, for a fraction of the work."""
        alone = [
            Curves(
                member,
                self.query,
                self.ages,
                estimate=self._estimate,
                releases=self.releases,
                about=self._about,
                rule=self._rule,
                known=self._parts,
            )
            for member in self._members
        ]
        return max(alone, key=lambda curves: curves.leakage(epsilon_c).epsilon)

    def plan(self, epsilon_c: float) -> Plan:
        """The plan at a noise level."""
        return Plan(self.chain, self.query, self.ages, epsilon_c)
