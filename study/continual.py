"""Beyond the paper: releases at every tick, and noise that changes from tick to tick."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import csdp
from study import drawing
from study.record import Chapter, Finding, format_list, no_entries
from study.setting import MEAN, leak, pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from csdp.planning import DynamicPlan

COUNTS = (1, 2, 3, 4, 5, 6, 8, 10)
AGES = (1, 2, 4)
#: One tick in the middle matters ten times as much.
WEIGHTS = (1, 1, 1, 1, 10, 1, 1, 1)


@lru_cache
def accountant(age: int, epsilon_c: float = 1.0) -> csdp.Accountant:
    """The accountant of a mean at weight 0.75, released at every tick."""
    return csdp.Accountant(csdp.Plan(pair(0.75), MEAN, ages=age, epsilon_c=epsilon_c))


def leakage_after(age: int) -> list[float]:
    """Leakage of the present after so many releases."""
    return [accountant(age).after(count).epsilon for count in COUNTS]


@lru_cache
def dynamic() -> DynamicPlan:
    """A noise level for every tick of a horizon, on a slow chain, under one ceiling of 0.5."""
    slow = pair(0.75, 0.05, 0.05)
    return csdp.dynamic_plan(slow, MEAN, ages=2, budget=0.5, horizon=len(WEIGHTS), weights=WEIGHTS)


def findings() -> list[Finding]:
    """What many releases tell, and what dynamic noise gains."""
    plan = dynamic()
    one = [leak(pair(0.75), age, 1.0) for age in AGES]
    limits = [accountant(age).limit().epsilon for age in AGES]
    caps = [leak(pair(0.75), age, 1.0, "freshness") for age in AGES]
    return [
        Finding(
            "many-releases",
            "What does a release at every tick tell, where the paper counts one (weight 0.75, epsilon_c 1, "
            f"age {format_list(AGES, 'd')})?",
            f"one: {format_list(one)}; all: {format_list(limits)}, however long it lasts",
            f"no noise at all: at most {format_list(caps)}",
        ),
        Finding(
            "event-level",
            "And of a record itself, once it is old enough to be published?",
            f"epsilon_c for each release that reads it: {accountant(1).event_level():g} for one; over its lifetime "
            f"all releases together tell up to {accountant(1).every_moment(10):.2f} (10 releases, age 1)",
            "CSDP protects the present only",
        ),
        Finding(
            "dynamic-noise",
            "What does noise by tick gain (slow chain, age 2, leakage at most 0.5, eight ticks, the fifth counts "
            "ten times)?",
            f"weighted error {plan.mse:.4f} against {plan.constant_mse:.4f} at the best constant level: "
            f"{plan.gain:.1%} less",
            f"publishing nothing: {plan.no_data:.4f}; levels {format_list(plan.levels, '.2f')}",
        ),
    ]


def figure() -> Figure:
    """Leakage release by release, and a dynamic plan."""
    drawn, (a, b) = drawing.panels(2, width=5.0)
    for age, colour in zip(AGES, drawing.COLOURS, strict=False):
        a.plot(COUNTS, leakage_after(age), color=colour, marker="o", markersize=4, label=f"age {age}", **drawing.EXACT)
        a.axhline(leak(pair(0.75), age, 1.0, "printed-loose"), color=colour, **drawing.PRINTED)
    plan = dynamic()
    ticks = range(len(plan.levels))
    b.plot(ticks, plan.levels, color=drawing.COLOURS[0], marker="o", label="epsilon_c by tick", **drawing.EXACT)
    b.axhline(plan.constant_level, color=drawing.COLOURS[0], label="best constant epsilon_c", **drawing.PRINTED)
    b.plot(ticks, plan.leakage, color=drawing.COLOURS[1], marker="s", label="leakage then and later", **drawing.EXACT)
    b.axhline(plan.budget, label="ceiling", **drawing.NO_DATA)
    level = "Leakage of the present, epsilon"
    drawing.finish(
        a, title="Many releases (dashed: Theorem 1, one release)", x="Releases", y=f"{level} (log)", log=True
    )
    drawing.finish(b, title="Dynamic noise: tick 4 counts ten times", x="Tick", y="epsilon")
    return drawn


CHAPTER = Chapter("continual", "Continual release", no_entries, findings, figure)
