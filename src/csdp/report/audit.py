"""Figures of audits: the proven lower bound against what was claimed, and an attacker's belief against the truth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from csdp.auditing.audit import Audit
from csdp.errors import InputError
from csdp.report.figures import BLUE, GREEN, GRID, INK, ORANGE, PURPLE, QUIET, RED, SKY, blank_figure, label_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from csdp.auditing.attacker import Attack


def audit_figure(audits: Mapping[str, Audit], *, exact: float | None = None) -> Figure:
    """What audits prove as their samples grow, under the lines of what is claimed and of what is exactly true.

    Each point holds with the audit's confidence on its own. A bound above its claim is a violation; none, if the
    auditor is right, stays above the exact leakage of its mechanism.
    """
    if not audits:
        raise InputError("figure: no audit to draw")
    figure = blank_figure(8.4, 4.8)
    axes = figure.add_subplot()
    ends = []
    colours = itertools.cycle((BLUE, GREEN, PURPLE, SKY, QUIET))
    most = max(found.growth[-1][0] for found in audits.values())
    for name, found in audits.items():
        sizes, bounds = zip(*found.growth, strict=True)
        colour = RED if found.violated else next(colours)
        axes.plot(sizes, bounds, color=colour, linewidth=2.0, marker=".", zorder=3)
        words = f"{name}:\n{'violated' if found.violated else 'no violation'}"
        ends.append((sizes[-1], bounds[-1], words, colour, found.violated))
    claims = {found.claim for found in audits.values() if found.claim is not None and found.claim < float("inf")}
    for claim in sorted(claims):
        axes.axhline(claim, color=INK, linewidth=1.4, linestyle=(0, (6, 2)), zorder=2)
        ends.append((most, claim, f"claimed {claim:.4g}", INK, False))
    if exact is not None and not any(abs(exact - claim) < 1e-9 for claim in claims):
        axes.axhline(exact, color=ORANGE, linewidth=1.4, zorder=2)
        ends.append((most, exact, f"exact {exact:.4g}", ORANGE, False))
    axes.set_xscale("log")
    highest = max([*claims, exact or 0.0, *(found.lower for found in audits.values())])
    axes.set_ylim(0.0, 1.1 * highest if highest > 0 else 1.0)
    axes.set_xlabel("Samples that report, of each of the two presents")
    axes.set_ylabel("Leakage of the present, epsilon:\nproven lower bound")
    axes.grid(True, axis="y", color=GRID, linewidth=0.7)
    label_ends(axes, ends, gap=0.11)
    return figure


def attack_figure(found: Attack, *, sequence: int = 0, bound: Sequence[float] | float | None = None) -> Figure:
    """An attacker's belief about one sequence, tick by tick, against the truth; below, how far its odds moved.

    The belief is shown as the expected value of the state. PRIVATE where the truth is drawn: not to be passed on.
    `bound`: the leakage of the present, which the change of log odds never passes.
    """
    ticks, sequences, _ = found.posterior.shape
    if not 0 <= sequence < sequences:
        raise InputError(f"figure: sequence {sequence} given; 0 to {sequences - 1}")
    figure = blank_figure(8.4, 6.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    values, at = found.values[sequence], range(ticks)
    ends = []
    if found.truth is not None:
        true = values[found.truth[:, sequence]]
        above.step(at, true, where="mid", color=ORANGE, linewidth=1.6, zorder=2)
        ends.append((ticks - 1, float(true[-1]), "true value\n(private)", ORANGE, False))
    for law, words, colour, strong in (
        (found.prior, "no outputs", QUIET, False),
        (found.hindsight, "with all\noutputs", SKY, False),
        (found.posterior, "with outputs\nso far", BLUE, True),
    ):
        line = law[:, sequence] @ values
        above.plot(at, line, color=colour, linewidth=2.2 if strong else 1.2, zorder=4 if strong else 3)
        ends.append((ticks - 1, float(line[-1]), words, colour, strong))
    above.set_ylabel(f"Belief about {found.names[sequence]}:\nexpected value")
    above.grid(True, axis="y", color=GRID, linewidth=0.7)
    label_ends(above, ends, gap=0.14)
    below.plot(at, found.swing, color=BLUE, linewidth=1.6, zorder=3)
    marks = [(ticks - 1, float(found.swing[-1]), "this attacker", BLUE, True)]
    if bound is not None:
        allowed = [float(bound)] * ticks if isinstance(bound, int | float) else [float(b) for b in bound]
        if len(allowed) != ticks:
            raise InputError(f"figure: {len(allowed)} bounds given for {ticks} ticks")
        below.plot(at, allowed, color=RED, linewidth=1.6, linestyle=(0, (6, 2)), zorder=2)
        marks.append((ticks - 1, allowed[-1], "leakage of\nthe present", RED, False))
    below.set_ylim(bottom=0.0)
    below.set_xlabel("Tick")
    below.set_ylabel("Largest change\nof log odds")
    below.grid(True, axis="y", color=GRID, linewidth=0.7)
    label_ends(below, marks, gap=0.2)
    return figure
