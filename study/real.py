"""Beyond the paper: readings of real people and places, with a chain fitted on a public past."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import csdp
from study import drawing, sets
from study.record import Chapter, Finding, format_list, no_entries
from study.setting import MEAN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Two sequences of each; what a step is.
SETS = {"parking": ("two car parks", "half an hour"), "glucose": ("two sensors of one person", "five minutes")}
AGES = (0, 1, 2, 4, 8, 16, 32)
BUDGET = 0.5


@lru_cache
def fit_public_past(name: str) -> csdp.CoupledChain:
    """A chain of the first two sequences, fitted on the past that is taken as public, by EM."""
    dataset = sets.load(name)
    names = dataset.readings.names[:2]
    past, _ = dataset.readings.split(dataset.past_ends)
    panel = dataset.discretiser().apply(past)
    assert panel.values is not None
    two = csdp.Panel.from_states(panel.states[:, :2], names=names, values=panel.values[:2])
    chain = csdp.fit(two, public=True, ensemble=5, seed=0, progress=False)
    assert isinstance(chain, csdp.CoupledChain)
    return chain


def by_age(name: str, bound: str = "exact", *, family: bool = False) -> list[float]:
    """Leakage of the mean of two at epsilon_c 1: of the fitted chain, or the largest over what the fit leaves open."""
    chain = fit_public_past(name)
    model = chain.family if family and chain.family is not None else chain.without_family()
    return [csdp.leakage(model, MEAN, ages=age, epsilon_c=1.0, bound=bound).epsilon for age in AGES]


@lru_cache
def plans(name: str) -> tuple[float, float, int, float]:
    """(our error, that of fresh Laplace noise, our age, that of publishing nothing), as shares of the variance."""
    chain = fit_public_past(name).without_family()
    ours = csdp.find_plan(chain, MEAN, budget=BUDGET, estimate="linear", max_age=16)
    fresh = csdp.find_plan(chain, MEAN, budget=BUDGET, estimate="linear", max_age=0)
    nothing_read = ours.error.no_data
    return ours.error.mse / nothing_read, fresh.error.mse / nothing_read, ours.plan.ages[0], nothing_read


def findings() -> list[Finding]:
    """What holds on real data."""
    answers = []
    for name, (what, step) in SETS.items():
        exact, worst, printed = by_age(name), by_age(name, family=True), by_age(name, "printed-loose")
        ours, fresh, age, _ = plans(name)
        answers += [
            Finding(
                f"{name}-leakage",
                f"{name} ({what}, a step: {step}): leakage of a mean by age {format_list(AGES, 'd')}, epsilon_c 1?",
                f"{format_list(exact)}; the largest over chains that the data leaves possible: {format_list(worst)}",
                f"Theorem 1 on the fitted chain: {format_list(printed)}",
            ),
            Finding(
                f"{name}-plan",
                f"{name}: what does our plan gain at leakage {BUDGET:g}, against fresh Laplace noise?",
                f"age {age}: error {ours:.1%} of the variance against {fresh:.1%}",
                "100 % is the squared error of publishing nothing",
            ),
        ]
    return answers


def figure() -> Figure:
    """Leakage by age on real data."""
    drawn, axes = drawing.panels(2, width=5.0)
    for panel, (name, (what, step)) in zip(axes, SETS.items(), strict=True):
        positions = [max(age, 0.5) for age in AGES]
        panel.plot(positions, by_age(name), color=drawing.INK, marker="o", label="fitted chain, exact", **drawing.EXACT)
        panel.plot(
            positions,
            by_age(name, family=True),
            color=drawing.COLOURS[0],
            marker="s",
            label="largest over plausible chains",
            **drawing.EXACT,
        )
        panel.plot(
            positions, by_age(name, "printed-loose"), color=drawing.COLOURS[1], label="Theorem 1", **drawing.PRINTED
        )
        panel.axhline(1.0, label="epsilon_c", **drawing.NO_DATA)
        panel.set_xscale("log", base=2)
        panel.set_xticks(positions, [str(age) for age in AGES])
        panel.set_ylim(0, 2.2)
        drawing.finish(panel, title=f"{name.capitalize()}: {what}", x=f"Age (one step: {step})", y="Leakage, epsilon")
    return drawn


CHAPTER = Chapter("real", "Real data", no_entries, findings, figure)
