"""What a search for a plan finds, how far it has come, and whether a plan tells more than guessing the usual value."""

from __future__ import annotations

from dataclasses import dataclass

from csdp.aging import Progress
from csdp.bounds.result import Leakage, as_text
from csdp.chain import certified_model
from csdp.display import Displayed
from csdp.errors import CsdpError, NotUsefulError
from csdp.estimate import Error, mse
from csdp.estimate.result import USEFUL, About, about_words
from csdp.plan import Plan
from csdp.planning.curves import EVENT_LIMIT, Curves, least_level


@dataclass(frozen=True)
class FoundPlan(Displayed):
    """The result of a search: the plan, what it achieves, and how it was found.

    Args:
        plan: the plan, ready for a Publisher.
        leakage: certified for the releases that were planned for.
        error: of the estimate that was planned for.
        evaluations: how often leakage was computed.
        saved: ages whose leakage never had to be computed.
        note: where publishing nothing would do as well, or where a publisher would refuse the plan; else empty.
    """

    plan: Plan
    leakage: Leakage
    error: Error
    evaluations: int
    saved: int
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
            f"({self.leakage.bound}), squared error {self.error.mse:.6g})"
        )


@dataclass(frozen=True)
class Candidate:
    """Ages and a level that meet the target, and what they achieve: the leakage, or for a budget the error."""

    objective: float
    epsilon_c: float
    curves: Curves


class SearchRun:
    """How far a search has come."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.best: Candidate | None = None
        self.tried: list[Curves] = []
        self.interrupted = False

    def report(self, what: str, done: int, total: int) -> None:
        """Tell what is being tried."""
        if self.progress is not None:
            self.progress(what, done, total)

    def offer(self, candidate: Candidate | None) -> None:
        """Keep a candidate that is no worse than the best so far."""
        if candidate is not None and (self.best is None or candidate.objective <= self.best.objective):
            self.best = candidate


def check_useful(plan: Plan, error: Error) -> None:
    """Raise NotUsefulError where an estimate removes less than 5 % of the squared error of guessing the usual value.

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
    """What would make the releases of a plan useful: computed where that is quick, and what else to try."""
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
    """The share that the estimate from the last releases removes; 0 where it cannot be computed."""
    model = certified_model(plan.chain).members[0].point
    try:
        return mse(model, plan.query, ages=age, epsilon_c=epsilon_c, estimate="history", about=about).usefulness
    except CsdpError:
        return 0.0
