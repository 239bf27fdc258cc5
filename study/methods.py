"""Beyond the paper: our plan beside every baseline, at equal secret, adversary and exact leakage."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import csdp
from study import drawing
from study.baselines.comparison import compare
from study.record import Chapter, Finding, no_entries
from study.setting import MEAN, pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from study.baselines.comparison import Comparison

BUDGET = 0.5
NAMES = {
    "paper": "the paper's chain: weight 0.5, change 0.3",
    "slow": "a slow chain: weight 0.75, change 0.05",
    "skewed": "a skewed chain: weight 0.75, 0 to 1 with 0.01, back with 0.3",
}


def chain(name: str) -> csdp.CoupledChain:
    """The chain of that name."""
    return {"paper": pair(0.5), "slow": pair(0.75, 0.05, 0.05), "skewed": pair(0.75, 0.01, 0.3)}[name]


@lru_cache
def table(name: str) -> Comparison:
    """Every method at exact leakage 0.5 of the present."""
    return compare(chain(name), MEAN, budget=BUDGET, max_age=16, length=20)


def findings() -> list[Finding]:
    """One line per chain."""
    answers = []
    for name, what in NAMES.items():
        rows = table(name)
        ours = rows["ours"]
        other = [
            row
            for row in rows.rows
            if row.verdict in {"worse", "equal", "BETTER"} and row.mse is not None and row.name != "no-data"
        ]
        best = min(other, key=lambda row: row.mse or 0.0, default=None)
        assert ours.mse is not None
        next_best = "no other release differs"
        if best is not None and best.mse is not None:
            next_best = f"the next, {best.method}, {best.mse / rows.no_data:.1%}"
        same = sum(row.verdict == "same release" for row in rows.rows)
        answers.append(
            Finding(
                f"methods-{name}",
                f"Who has the least error at exact leakage {BUDGET:g}, {what}?",
                f"ours (age {ours.age}): {ours.mse / rows.no_data:.1%} of the variance; {next_best}; "
                f"{same} methods are the same release as ours",
                rows.headline,
            )
        )
    return answers


def figure() -> Figure:
    """Errors of the methods whose leakage is known, as shares of the variance."""
    drawn, axes = drawing.panels(len(NAMES), width=3.9, height=4.6)
    for panel, name in zip(axes, NAMES, strict=True):
        rows = table(name)
        known = [row for row in rows.rows if row.leakage.value is not None and row.mse is not None]
        known = [row for row in known if "@" not in row.name]
        labels = [row.name for row in known]
        shares = [100 * (row.mse or 0.0) / rows.no_data for row in known]
        colours = [drawing.COLOURS[0] if row.name == "ours" else drawing.COLOURS[6] for row in known]
        panel.scatter(shares[::-1], labels[::-1], c=colours[::-1], s=42, zorder=3)
        panel.axvline(100, **drawing.NO_DATA)
        title = NAMES[name].split(":")[0].capitalize()
        drawing.finish(panel, title=title, x="Error, % of publishing nothing", y="", legend=None)
    return drawn


CHAPTER = Chapter("methods", "Baselines", no_entries, findings, figure)
