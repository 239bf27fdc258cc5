"""What a dataset is published under: limits, guarantees in words, and what earlier plans still cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from csdp.accountant import Accountant
from csdp.bounds.result import round_up
from csdp.chain import fits_epsilon
from csdp.errors import InputError, LedgerTermsError
from csdp.ledger import Terms
from csdp.plan import ALGORITHM, Plan

#: What a dataset may limit.
LIMITS: Final = ("budget", "event_limit", "lifetime_limit")
Grid = tuple[int | None, int]


def guarantee(plan: Plan, accountant: Accountant, fits: Mapping[str, float], age_words: str) -> dict[str, Any]:
    """The guarantees of a plan in words and numbers, after the private fits that the dataset paid for."""
    return {
        "one_release": plan.certified.epsilon,
        "bound": plan.certified.bound,
        "adversary": plan.adversary,
        "event_level": round_up(accountant.event_level(plan.stale_limit) + fits_epsilon(fits)),
        "fits": dict(fits),
        "algorithm": ALGORITHM,
        "words": [
            "Leakage of the present: how much everything published so far tells about anyone's present state, "
            f"to an {plan.adversary} adversary, if the sequences follow the model.",
            "Event level: plain epsilon-DP of one record, under any model; a record is exposed with this noise "
            "once it is old enough to be published. Every private fit that the dataset's chains came from is in it.",
            "Group level: plain DP of all records of all releases together, of sequences that the model ties together, "
            "however they are tied.",
            "Which readings are missing must not depend on their values.",
            age_words,
        ],
    }


def record_terms(limits: dict[str, float | None], grid: Grid) -> dict[str, Any]:
    """Limits and grid as the ledger keeps them: a dataset has one grid of ticks, as it has one budget."""
    step, origin = grid
    return {
        **limits,
        **({"time_step": step} if step is not None else {}),
        **({"time_origin": origin} if origin else {}),
    }


def read_limits(terms: Terms, *, dataset: str, plan: Plan, grid: Grid) -> dict[str, float | None]:
    """The limits that bind now: those on record, whoever changed them, and whenever this publisher was opened.

    Another plan or grid makes other releases of the same ticks, so it cannot be adopted: LedgerTermsError.
    """
    differs = []
    if terms.plan_digest != plan.digest:
        differs.append(f"plan {terms.plan_digest[:12]}, not {plan.digest[:12]}")
    own = record_terms({}, grid)
    now = {name: value for name, value in terms.limits.items() if name not in LIMITS}
    if now != own:
        differs.append(f"grid and further terms {now}, not {own}")
    if differs:
        raise LedgerTermsError(
            f"dataset {dataset!r} is published under {' and '.join(differs)}, since its terms were changed; nothing "
            "was charged. Open a new publisher under the recorded terms"
        )
    return checked_limits(**{name: terms.limits.get(name) for name in LIMITS})


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
