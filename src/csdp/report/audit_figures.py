"""Figures of audits beside claims, and of an attacker's belief beside the truth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from csdp.errors import InputError
from csdp.report.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    RED,
    SKY,
    blank_figure,
    label_ends,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from csdp.auditing.attacker import Attack
    from csdp.auditing.audit import Audit


def audit_figure(audits: Mapping[str, Audit], *, exact: float | None = None) -> Figure:
    """Draw the lower bounds that audits prove as their samples grow, with lines at the claims and the exact leakage.

    Each point holds separately with the confidence of its audit. A bound above its claim is a violation; a correct
    auditor's bound stays below the exact leakage of its mechanism.
    """
    if not audits:
        raise InputError("figure: no audit to draw")
    figure = blank_figure(8.4, 4.8)
    axes = figure.add_subplot()
    ends = []
    colours = itertools.cycle((BLUE, GREEN, PURPLE, SKY, QUIET))
    most = max(audit.growth[-1][0] for audit in audits.values())
    for name, audit in audits.items():
        sizes, bounds = zip(*audit.growth, strict=True)
        colour = RED if audit.violated else next(colours)
        axes.plot(sizes, bounds, color=colour, linewidth=2.0, marker=".", zorder=3)
        words = f"{name}:\n{'violated' if audit.violated else 'no violation'}"
        ends.append((sizes[-1], bounds[-1], words, colour, audit.violated))
    claims = {audit.claim for audit in audits.values() if audit.claim is not None and audit.claim < float("inf")}
    for claim in sorted(claims):
        axes.axhline(claim, color=INK, linewidth=1.4, linestyle=(0, (6, 2)), zorder=2)
        ends.append((most, claim, f"claimed {claim:.4g}", INK, False))
    if exact is not None and not any(abs(exact - claim) < 1e-9 for claim in claims):
        axes.axhline(exact, color=ORANGE, linewidth=1.4, zorder=2)
        ends.append((most, exact, f"exact {exact:.4g}", ORANGE, False))
    axes.set_xscale("log")
    highest = max([*claims, exact or 0.0, *(audit.lower for audit in audits.values())])
    axes.set_ylim(0.0, 1.1 * highest if highest > 0 else 1.0)
    axes.set_xlabel("Samples in the bound, for each of the two present states")
    axes.set_ylabel("Leakage of the present, epsilon:\nproven lower bound")
    style_axes(axes)
    label_ends(axes, ends, gap=0.11)
    return figure


def attack_figure(attack: Attack, *, sequence: int = 0, bound: Sequence[float] | float | None = None) -> Figure:
    """Draw an attacker's belief about one sequence by tick and the truth; below, how much its log odds changed.

    The belief is the expected value of the state. PRIVATE if the truth is drawn: do not pass it on.

    Args:
        attack: The attack, with the truth or without.
        sequence: Number of the sequence to draw.
        bound: Leakage of the present, for all ticks or for each, which the change of log odds never exceeds.
    """
    ticks, sequences, _ = attack.posterior.shape
    if not 0 <= sequence < sequences:
        raise InputError(f"figure: sequence {sequence} given; 0 to {sequences - 1}")
    figure = blank_figure(8.4, 6.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    values, at = attack.values[sequence], range(ticks)
    ends = []
    if attack.truth is not None:
        true = values[attack.truth[:, sequence]]
        above.step(at, true, where="mid", color=ORANGE, linewidth=1.6, zorder=2)
        ends.append((ticks - 1, float(true[-1]), "true value\n(private)", ORANGE, False))
    for law, words, colour, strong in (
        (attack.prior, "no outputs", QUIET, False),
        (attack.hindsight, "with all\noutputs", SKY, False),
        (attack.posterior, "with outputs\nso far", BLUE, True),
    ):
        line = law[:, sequence] @ values
        above.plot(at, line, color=colour, linewidth=2.2 if strong else 1.2, zorder=4 if strong else 3)
        ends.append((ticks - 1, float(line[-1]), words, colour, strong))
    above.set_ylabel(f"Belief about {attack.names[sequence]}:\nexpected value")
    style_axes(above)
    label_ends(above, ends, gap=0.14)
    below.plot(at, attack.swing, color=BLUE, linewidth=1.6, zorder=3)
    marks = [(ticks - 1, float(attack.swing[-1]), "this attacker", BLUE, True)]
    if bound is not None:
        allowed = [float(bound)] * ticks if isinstance(bound, int | float) else [float(b) for b in bound]
        if len(allowed) != ticks:
            raise InputError(f"figure: {len(allowed)} bounds given for {ticks} ticks")
        below.plot(at, allowed, color=RED, linewidth=1.6, linestyle=(0, (6, 2)), zorder=2)
        marks.append((ticks - 1, allowed[-1], "leakage of\nthe present", RED, False))
    below.set_ylim(bottom=0.0)
    below.set_xlabel("Tick")
    below.set_ylabel("Largest change\nof log odds")
    style_axes(below)
    label_ends(below, marks, gap=0.2)
    return figure
