"""Beyond the paper: a different age for every sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import csdp
from study import drawing
from study.record import Chapter, Finding, format_list, no_entries
from study.setting import MEAN, pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECOND = (1, 2, 3, 4, 5, 6, 8)


def leak_at(first: int, second: int, bound: str = "exact") -> float:
    """Leakage of the mean at two ages, epsilon_c 1, weight 0.75."""
    return csdp.leakage(pair(0.75), MEAN, ages=(first, second), epsilon_c=1.0, bound=bound).epsilon


def findings() -> list[Finding]:
    """What unequal ages do, and when they pay."""
    slow = pair(0.75, 0.05, 0.05)
    plans = {
        kind: csdp.find_plan(slow, MEAN, budget=0.5, estimate="linear", max_age=12, min_age=1, ages=kind)
        for kind in ("common", "vector")
    }
    less = 1 - plans["vector"].error.mse / plans["common"].error.mse
    return [
        Finding(
            "unequal-ages",
            "Does aging one sequence further protect (first age 1, weight 0.75, epsilon_c 1)?",
            f"a little: {format_list([leak_at(1, second) for second in SECOND])} "
            f"for second ages {format_list(SECOND, 'd')}",
            "Theorem 1 does not see it "
            f"({format_list([leak_at(1, second, 'printed-loose') for second in (1, 3, 8)])}); "
            "at unequal ages the younger value decides",
        ),
        Finding(
            "vector-plan",
            "Do ages of their own make a better plan (slow chain, change 0.05, leakage at most 0.5)?",
            f"ages {plans['common'].plan.ages} have error {plans['common'].error.mse:.4f}, "
            f"ages {plans['vector'].plan.ages} {plans['vector'].error.mse:.4f}: {less:.1%} less",
            f"publishing nothing: {plans['common'].error.no_data:.4f}",
        ),
    ]


def figure() -> Figure:
    """Leakage against the second age."""
    drawn, (axes,) = drawing.panels(1, width=6.4)
    for first, colour in zip((1, 2, 3), drawing.COLOURS, strict=False):
        exact = [leak_at(first, second) for second in SECOND]
        printed = [leak_at(first, second, "printed-loose") for second in SECOND]
        axes.plot(SECOND, exact, color=colour, marker="o", label=f"first age {first}", **drawing.EXACT)
        axes.plot(SECOND, printed, color=colour, **drawing.PRINTED)
    title = "Two ages, weight 0.75, epsilon_c 1 (dashed: Theorem 1)"
    drawing.finish(axes, title=title, x="Age of the second sequence", y="Leakage (log)", log=True, legend="lower left")
    return drawn


CHAPTER = Chapter("ages", "Unequal ages", no_entries, findings, figure)
