"""What a search for a plan finds, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass

from csdp.aging import Progress
from csdp.bounds.result import Leakage, as_text
from csdp.display import Displayed
from csdp.estimate import Error
from csdp.plan import Plan
from csdp.planning.curves import Curves


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
        """Whether at least 5 % of the error of saying nothing is removed."""
        return self.error.useful

    @property
    def delay(self) -> int:
        """How many ticks a reading is held back before any release contains it."""
        return self.plan.min_age

    def __repr__(self) -> str:
        ages = self.plan.ages[0] if len(set(self.plan.ages)) == 1 else self.plan.ages
        return (
            f"FoundPlan(ages {ages}, epsilon_c {self.plan.epsilon_c:.6g}, leakage {as_text(self.leakage.epsilon)} "
            f"({self.leakage.bound}), error {self.error.mse:.6g})"
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
