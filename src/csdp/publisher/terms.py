"""What a dataset is published under: limits, guarantees in words, and what earlier plans still cost."""

from __future__ import annotations

import math
from typing import Any

from csdp.accountant import Accountant
from csdp.errors import InputError
from csdp.plan import ALGORITHM, Plan


def guarantee(plan: Plan, accountant: Accountant) -> dict[str, Any]:
    """The guarantees of a plan in words and numbers."""
    return {
        "one_release": plan.certified.epsilon,
        "bound": plan.certified.bound,
        "adversary": plan.adversary,
        "event_level": accountant.event_level(plan.stale_limit),
        "algorithm": ALGORITHM,
        "words": [
            "Leakage of the present: how much everything published so far tells about anyone's present state, "
            f"to an {plan.adversary} adversary, if the sequences follow the model.",
            "Event level: plain epsilon-DP of one record, under any model; a record is exposed with this noise "
            "once it is old enough to be published.",
            "Group level: plain DP of all records of all releases together, of sequences that the model ties together, "
            "however they are tied.",
            "Which readings are missing must not depend on their values.",
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


def earlier_costs(
    plan: Plan,
    accountant: Accountant,
    event: float,
    last: dict[str, Any],
    last_tick: int,
    following: Plan,
    from_tick: int,
) -> dict[str, Any]:
    """What the releases under a plan, and under those before it, mean for limits on records under the next."""
    stale = int(last["stale"])
    before = last.get("earlier") or {
        "releases": 0,
        "group": 0.0,
        "slice": 0.0,
        "slice_any": 0.0,
        "newest": None,
        "overlap": False,
    }

    def joined(earlier: float, own: float) -> float:
        return earlier + own if before["overlap"] else max(earlier, own)

    released = int(last["releases"])
    any_model = joined(before["slice_any"], accountant.slice_cost(stale, any_model=True) * bool(released))
    this_chain = joined(before["slice"], accountant.slice_cost(stale) * bool(released))
    newest = [] if before["newest"] is None else [int(before["newest"])]
    newest += [last_tick - plan.min_age] if released else []
    return {
        "releases": int(before["releases"]) + released,
        "event": event,
        "group": float(before["group"]) + accountant.group_level(max(released, 1)) * bool(released),
        "slice": this_chain if following.chain == plan.chain else any_model,
        "slice_any": any_model,
        "newest": max(newest),
        "overlap": from_tick - following.max_age - following.stale_limit <= max(newest),
    }
