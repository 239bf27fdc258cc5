"""What a plan protects: every moment, with noise, or the present only, by a delay, or without a model single readings.

Nobody chooses this: it follows from what a plan reveals in the long run, and from the limits that were asked of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from csdp.accountant import Accountant
from csdp.bounds.result import as_text, chance, with_chance
from csdp.chain import fits_epsilon, private_fits
from csdp.plan import Plan

#: Epsilon up to which something counts as protected if no limit was asked: a 50 % guess stays below 96 %.
PROTECTED: Final = 3.0

Protected = Literal["every_moment", "present", "readings", "nothing"]


@dataclass(frozen=True)
class Protection:
    """What a plan protects, as one word for programs and in one sentence with numbers."""

    what: Protected
    words: str

    def to_dict(self) -> dict[str, str]:
        """As plain data, for JSON."""
        return {"what": self.what, "words": self.words}


def protection(
    plan: Plan,
    present: float | None,
    moment: float | None,
    *,
    budget: float | None = None,
    moment_limit: float | None = None,
) -> Protection:
    """What a plan protects.

    Args:
        plan: the plan.
        present: what its releases reveal of the present at most, in the long run; None if nothing is known.
        moment: the same of any one moment.
        budget, moment_limit: the limits on both, if there are any.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> for age, level in ((0, 0.5), (8, 5.0)):
    ...     accountant = Accountant(Plan(chain, "mean", age, level))
    ...     print(protection(accountant.plan, accountant.ceiling(), accountant.every_moment()).words)
    Protects every moment, with noise: in the long run all releases reveal at most 0.81 (70 %) of the present and 1.12 \
(76 %) of any moment.
    Protects the present only, by a delay of 8 ticks and nearly without noise: in the long run all releases reveal at \
most 0.00131 (50.1 %) of the present, but up to 6.69 (99.9 %) of any moment.
    """
    if plan.verdict.status == "none":
        return _of_readings(plan)
    now = math.inf if present is None else present
    ever = math.inf if moment is None else moment
    what: Protected = "nothing"
    if now <= _limit(budget):
        what = "present"
    if ever <= _limit(moment_limit):
        what = "every_moment"
    lead = {
        "every_moment": "protects every moment, with noise",
        "present": f"protects the present only{_by_delay(plan)}",
        "nothing": "hardly protects anything",
    }[what]
    lead = f"{lead[0].upper()}{lead[1:]}" if plan.verdict.reliable else f"Only if the model holds, it {lead}"
    return Protection(what, f"{lead}: {_revealed(what, now, ever)}.")


def _limit(asked: float | None) -> float:
    return PROTECTED if asked is None else asked * (1 + 1e-9)


def _by_delay(plan: Plan) -> str:
    if not plan.min_age:
        return ""
    ticks = "1 tick" if plan.min_age == 1 else f"{plan.min_age} ticks"
    return f", by a delay of {ticks}{' and nearly without noise' if plan.epsilon_c > PROTECTED else ''}"


def _revealed(what: Protected, present: float, moment: float) -> str:
    """Both numbers, as the end of a sentence."""
    now, ever = with_chance(present, 3), with_chance(moment, 3)
    if math.isinf(present):
        known = math.isfinite(moment)
        return f"all releases reveal at most {ever} of any moment" if known else "nothing bounds what releases reveal"
    start = f"in the long run all releases reveal {'up to' if what == 'nothing' else 'at most'} {now} of the present"
    if math.isinf(moment):
        return f"{start}, but of any moment more with every release"
    return f"{start}, but up to {ever} of any moment" if what == "present" else f"{start} and {ever} of any moment"


def _of_readings(plan: Plan) -> Protection:
    fits = plan.unit_size * fits_epsilon(private_fits(plan.chain))
    event = Accountant(plan).event_level(plan.stale_limit) + fits
    return Protection(
        "readings",
        f"Protects single readings: each has plain differential privacy with epsilon {as_text(event, 3)} (a 50 % guess "
        f"becomes at most {chance(event)}), and n consecutive ones of a sequence with at most n times as much, under "
        "any model.",
    )
