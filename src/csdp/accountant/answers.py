"""What the accountant answers: a leakage, what it holds for, and what it assumes."""

from __future__ import annotations

import math
from dataclasses import replace

from csdp.bounds.environment import find_vantages
from csdp.bounds.result import Leakage, round_up
from csdp.errors import InputError
from csdp.plan import Plan

#: What each bound of an answer holds for.
_HOLDS_FOR = {
    "metric": "all releases so far; state kept for every pair of snapshots",
    "scalar": "all releases so far; one number for the whole history",
    "contraction": "all releases so far, any law of the past",
    "freshness": "any number of releases: all published data is at least this old",
    "lineage": "any number of releases, any law of the past",
    "slice": "any number of releases, any law of the past, whatever others are known",
    "influence": "all releases so far; what each sequence tells is followed by itself",
    "group": "all releases so far, however the sequences are tied",
    "none": "no bound: fresh data is published without end",
}


def make_answer(plan: Plan, value: float, bound: str) -> Leakage:
    """The leakage of the present under a plan, rounded up, with its assumptions."""
    return Leakage(
        epsilon=round_up(value),
        bound=bound if bound not in {"cap", "none"} else "lineage",
        sound=True,
        adversary=plan.adversary,
        environment="given" if find_vantages(plan.model)[0][1].given else None,
        assumptions=(
            plan.chain.members[0].assumption,
            *_environment_words(plan),
            _HOLDS_FOR.get(bound, ""),
            "which readings were missing must not depend on their values",
        ),
        model=plan.verdict,
        reason="" if math.isfinite(value) else "infinite: no state and no cap applies",
    )


def level_share(plan: Plan, epsilon_c: float | None) -> float:
    """The noise level of one release as a share of the plan's, rounded up."""
    if epsilon_c is None or epsilon_c == plan.epsilon_c:
        return 1.0
    if not 0 < epsilon_c < plan.epsilon_c:
        raise InputError(
            f"accountant: epsilon_c {epsilon_c!r} given for one release; above 0, at most the plan's {plan.epsilon_c:g}"
        )
    return min(1.0, math.nextafter(epsilon_c / plan.epsilon_c, math.inf))


def _environment_words(plan: Plan) -> tuple[str, ...]:
    """What is assumed of the environment; of a clock every phase is accounted for, and the largest counts."""
    vantage = find_vantages(plan.model)[0][1]
    phases = plan.model.phases
    clock = f"given the clock: the largest over its {phases} phases"
    words = (clock, *replace(vantage, phase=None).assumptions)
    return vantage.assumptions if phases == 1 else tuple(text for text in words if text)
