"""The noise level that a budget allows for ever, over a family of models, found in a few evaluations."""

from __future__ import annotations

import math

from csdp.accountant import Accountant
from csdp.aging import Progress
from csdp.chain import Family, Model
from csdp.errors import InfeasibleError
from csdp.plan import Plan
from csdp.planning.search import EVENT_LIMIT
from csdp.queries import Query

#: Evaluations after which the last level that fits is taken, and how close to the budget one is close enough.
_EVALUATIONS, _CLOSE = 12, 0.95


def continual_level(
    chain: Model | Family,
    query: Query,
    *,
    age: int,
    budget: float,
    start: float = 0.5,
    stale_limit: int = 0,
    progress: Progress | None = None,
) -> tuple[Plan, float]:
    """A plan whose releases at every tick, for ever, stay below a budget; and what they tell at most.

    The level is within a few percent of the largest that fits; what is returned is certified as it is. One evaluation
    over a family costs as many as it has members, so a finer search would cost more than it gains.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> plan, most = continual_level(chain, Mean(), age=1, budget=0.3)
    >>> 0.28 < most <= 0.3, 0.45 < plan.epsilon_c < 0.5
    (True, True)
    """
    level, slope = min(start, EVENT_LIMIT), 1.0
    fits: tuple[Plan, float] | None = None
    last: tuple[float, float] | None = None
    for n in range(_EVALUATIONS):
        plan = Plan(chain, query, age, level, stale_limit=stale_limit)
        most = Accountant(plan).ceiling()
        if progress is not None:
            progress("planning", n + 1, _EVALUATIONS)
        if most <= budget and (fits is None or level > fits[0].epsilon_c):
            fits = plan, most
        if fits is not None and (fits[1] >= _CLOSE * budget or fits[0].epsilon_c >= EVENT_LIMIT):
            break
        if last is not None and level != last[0]:
            # How many percent of leakage a percent of noise level is worth, here; never so little that steps explode.
            slope = max(0.25, min(2.0, _log(most / last[1]) / _log(level / last[0])))
        last = level, most
        wanted = 0.975 * budget / most if math.isfinite(most) else 0.5
        level = min(EVENT_LIMIT, level * wanted ** (1 / slope))
    if fits is None:
        raise InfeasibleError(
            f"budget {budget:g} cannot be met at age {age}: the lowest noise level that was tried still passes it; "
            "raise the budget or the age",
            nearest=last[1] if last else math.inf,
            no_data=math.nan,
        )
    return fits


def _log(ratio: float) -> float:
    return math.log(ratio) or 1e-12
