"""What would fit where a release was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from csdp.accountant import Accountant, State
from csdp.bounds.result import as_text
from csdp.errors import BudgetExceeded
from csdp.ledger import Published, Reserved
from csdp.plan import Plan
from csdp.publisher.records import Skipped

#: How far ahead the first affordable tick is looked for.
HORIZON = 100_000
#: What each limit of a dataset limits.
LIMITED = {
    "budget": "the leakage of the present",
    "event_limit": "the plain epsilon-DP of a record",
    "lifetime_limit": "what all releases tell of a record",
}


class StoppedError(Exception):
    """A batch was refused part of the way; what was granted before is still to be released."""

    def __init__(self, before: list[Reserved | Published | Skipped], error: BudgetExceeded) -> None:
        super().__init__(str(error))
        self.before = before
        self.error = error


def check_limit(dataset: str, name: str, limit: float | None, value: float, spent_now: Callable[[], float]) -> None:
    """Refuse a release that would bring what a limit limits above it."""
    if limit is None or value <= limit:
        return
    spent = spent_now()
    raise BudgetExceeded(
        f"{dataset}: a release would bring {LIMITED[name]} to {as_text(value)}, above its limit {limit:g} "
        f"(now {as_text(spent)}); this release was not made",
        limit_name=name,
        spent=spent,
        requested=value,
        remaining=max(0.0, limit - spent),
    )


def explained(
    error: BudgetExceeded, *, accountant: Accountant, state: State, tick: int, limit: float
) -> BudgetExceeded:
    """The same refusal, with the first affordable tick and settings that would fit at every tick."""
    later = affordable_from(accountant, state, tick, limit)
    fits = fitting(accountant.plan, error.requested, limit)
    hints = [f"{name} {value:.4g} would fit at every tick" for name, value in fits.items()]
    if later is not None:
        hints.insert(0, f"it could be afforded from tick {later} on if nothing is published before")
    return BudgetExceeded(
        "; ".join([str(error), ", or ".join(hints)] if hints else [str(error)]),
        limit_name=error.limit_name,
        spent=error.spent,
        requested=error.requested,
        remaining=error.remaining,
        fits=fits,
        affordable_from=later,
    )


def affordable_from(accountant: Accountant, state: State, tick: int, limit: float) -> int | None:
    """The first tick after `tick`, and after all that is charged, at which a release would be admitted if nothing is
    published before.
    """
    if state.consecutive != 0:
        tick = max(tick, state.tick)

    def cost(at: int) -> float:
        return accountant.peak(accountant.release(state, at))

    wait = 1
    while cost(tick + wait) > limit:
        wait *= 2
        if wait > HORIZON:
            return None
    low, high = tick + wait // 2, tick + wait
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cost(middle) <= limit else (middle, high)
    return high


def fitting(plan: Plan, requested: float, limit: float) -> dict[str, Any]:
    """A noise level, and an age, at which releasing at every tick stays below the ceiling."""
    fits: dict[str, Any] = {}
    level = plan.epsilon_c
    for _ in range(30):
        level *= min(0.9, max(0.1, limit / max(requested, 1e-300)))
        if _long_run(plan, plan.ages, level) <= limit:
            fits["epsilon_c"] = level
            break
    for more in (1, 2, 3, 5, 8, 13, 21):
        ages = tuple(age + more for age in plan.ages)
        if _long_run(plan, ages, plan.epsilon_c) <= limit:
            fits["age"] = min(ages)
            break
    return fits


def _long_run(plan: Plan, ages: Sequence[int], epsilon_c: float) -> float:
    other = Plan(plan.chain, plan.query, ages, epsilon_c, adversary=plan.adversary)
    return Accountant(other, state="scalar").limit().epsilon
