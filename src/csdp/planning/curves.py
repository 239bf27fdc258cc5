"""Leakage and error of a release as functions of the noise level, for fixed ages; what is costly is done once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

from csdp.accountant import Accountant
from csdp.aging import Adversary
from csdp.bounds.leakage import Setting
from csdp.bounds.result import UNSOUND, Leakage, round_up
from csdp.chain import Family, Model, certified_model
from csdp.computation import verify_query
from csdp.errors import UnsoundError
from csdp.estimate import Error, Moments, moments
from csdp.estimate.error import Estimate, error_from_moments
from csdp.plan import Plan
from csdp.planning.levels import CLOSE, SMALLEST_LEVEL, largest_level
from csdp.queries import Query

Releases = int | Literal["continual"]


class Curves:
    """What happens at one choice of ages, for any noise level; counts how often leakage was evaluated."""

    def __init__(
        self,
        chain: Model | Family,
        query: Query,
        ages: Sequence[int],
        *,
        estimate: Estimate,
        releases: Releases,
        bound: str,
        adversary: Adversary,
        cap: float | None = None,
    ) -> None:
        if bound in UNSOUND:
            raise UnsoundError(f"bound {bound!r} is not proven, so no plan can rest on it; use bound='auto'")
        chain = certified_model(chain)
        self._members = chain.members if isinstance(chain, Family) else (chain,)
        self.chain, self.query, self.ages = chain, verify_query(query, self._members[0]), tuple(ages)
        self._estimate: Estimate = estimate
        self._releases: Releases = releases
        self._bound = bound
        self._adversary: Adversary = adversary
        self._cap = cap
        self._known: dict[float, Leakage] = {}
        self._firsts: dict[tuple[float, str], list[Leakage]] = {}
        self.evaluations = 0

    # ---- error: falls with epsilon_c -------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> list[Moments]:
        return [moments(member, self.query, ages=self.ages) for member in self._members]

    def error(self, epsilon_c: float) -> Error:
        """The error at a noise level: the largest over the models."""
        found = [
            error_from_moments(member, self.query, known, self.ages, epsilon_c, self._estimate)
            for member, known in zip(self._members, self._moments, strict=True)
        ]
        return max(found, key=lambda error: error.safe)

    # ---- leakage: grows with epsilon_c -----------------------------------------------------------------------------

    @cached_property
    def _settings(self) -> list[Setting]:
        return [
            Setting.make(member, self.query, ages=self.ages, epsilon_c=1.0, adversary=self._adversary, at_any_tick=True)
            for member in self._members
        ]

    def leaks(self, epsilon_c: float) -> float:
        """The leakage alone, as a search needs it: of a giant system from what is known of its ages."""
        if self._cap is None:
            return self.leakage(epsilon_c).epsilon
        if self._releases != 1:
            return self._cap
        return min(self._cap, round_up(self._group_level * epsilon_c))

    def later(self, epsilon_c: float) -> float:
        """The largest leakage of one release at any later moment; of a giant system it never grows."""
        return Accountant(self.plan(epsilon_c)).ceiling(1) if self._cap is None else 0.0

    @cached_property
    def _group_level(self) -> float:
        """Plain DP of all tied records at a noise level of 1."""
        return max(part.alpha for setting in self._settings for part in setting.components)

    def leakage(self, epsilon_c: float) -> Leakage:
        """The certified leakage of the present at a noise level: the largest over the models."""
        if epsilon_c not in self._known:
            self.evaluations += 1
            self._known[epsilon_c] = (
                _largest(self._one_release(epsilon_c, self._bound)) if self._releases == 1 else self._many(epsilon_c)
            )
        return self._known[epsilon_c]

    def _one_release(self, epsilon_c: float, bound: str) -> list[Leakage]:
        """The leakage of one release, by model."""
        if (epsilon_c, bound) not in self._firsts:
            answers = []
            for i, setting in enumerate(self._settings):
                moved = setting.at(epsilon_c)
                answers.append(moved.answer(bound))
                self._settings[i] = moved  # with the aged law that was just made
            self._firsts[epsilon_c, bound] = answers
        return self._firsts[epsilon_c, bound]

    def _many(self, epsilon_c: float) -> Leakage:
        """What a budget has to allow is the largest leakage at any moment, also after the last release."""
        accountant = Accountant(self.plan(epsilon_c))
        count = None if self._releases == "continual" else self._releases
        last = accountant.limit() if count is None else accountant.after(count)
        return replace(last, epsilon=accountant.ceiling(count))

    # ---- levels ----------------------------------------------------------------------------------------------------

    def highest_level(self, budget: float, limit: float) -> float | None:
        """A noise level that surely none above keeps a budget; None where nothing quick tells one.

        The leakage of the first of many releases is quickly computed, and all of them tell no less.
        """
        if self._releases == 1 or self._cap is not None:
            return None
        return largest_level(lambda e: _largest(self._one_release(e, "auto")).epsilon, budget, limit, tolerance=CLOSE)

    def largest_level(self, budget: float, limit: float) -> float | None:
        """The largest noise level that keeps a budget: to the last digits for one release, closely for many."""
        if self._releases == 1 or self._cap is not None:
            return largest_level(self.leaks, budget, limit)
        start = self.highest_level(budget, limit)
        if start is not None and len(self._members) > 1:
            alone = self._worst_member(start)
            start = alone.largest_level(budget, limit)
            self.evaluations += alone.evaluations
        return largest_level(self.leaks, budget, limit, start=start or SMALLEST_LEVEL, tolerance=CLOSE)

    def _worst_member(self, epsilon_c: float) -> Curves:
        """The model whose first release tells most: what fits it mostly fits the family, for a fraction of the work."""
        told = [answer.epsilon for answer in self._one_release(epsilon_c, "auto")]
        worst = self._members[told.index(max(told))]
        return Curves(
            worst,
            self.query,
            self.ages,
            estimate=self._estimate,
            releases=self._releases,
            bound=self._bound,
            adversary=self._adversary,
        )

    def plan(self, epsilon_c: float) -> Plan:
        """The plan at a noise level."""
        return Plan(self.chain, self.query, self.ages, epsilon_c, adversary=self._adversary, bound=self._bound)


def _largest(answers: list[Leakage]) -> Leakage:
    return max(answers, key=lambda answer: answer.epsilon)
