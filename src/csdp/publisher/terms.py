"""What a dataset is published under: limits, guarantees in words, and what earlier plans still cost."""

from __future__ import annotations

import math
from typing import Any

from csdp.accountant import Accountant
from csdp.errors import InputError
from csdp.leakage import round_up
from csdp.plan import ALGORITHM, Plan
from csdp.publisher.exposure import fit_epsilon


def guarantee(plan: Plan, accountant: Accountant, age_words: str) -> dict[str, Any]:
    """The guarantees of a plan in words and numbers."""
    return {
        "one_release": plan.certified.epsilon,
        "bound": plan.certified.bound,
        "adversary": plan.adversary,
        "event_level": round_up(accountant.event_level(plan.stale_limit) + fit_epsilon(plan)),
        "algorithm": ALGORITHM,
        "words": [
            "Leakage of the present: how much everything published so far tells about anyone's present state, "
            f"to an {plan.adversary} adversary, if the sequences follow the model.",
            "Event level: plain epsilon-DP of one record, under any model; a record is exposed with this noise "
            "once it is old enough to be published.",
            "Group level: plain DP of all records of all releases together, of sequences that the model ties together, "
            "however they are tied.",
            "Which readings are missing must not depend on their values.",
            age_words,
        ],
    }


def checked_limits(**given: float | None) -> dict[str, float | None]:
    """Limits as positive numbers, None where there is none."""
    limits: dict[str, float | None] = {}
    for name, value in given.items():
        if value is None:
            limits[name] = None
            continue
        number = float(value)
        if not number > 0 or math.isnan(number):
            raise InputError(f"{name}: {value} given; a limit is a positive number (or None for no limit)")
        limits[name] = number
    return limits
