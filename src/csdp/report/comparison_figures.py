"""Figures that compare: methods with each other, audits with claims, an attacker's belief with the truth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from csdp.bounds.result import belief
from csdp.errors import InputError
from csdp.report.figures import (
    BLUE,
    GREEN,
    GRID,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    RED,
    SKY,
    blank_figure,
    label_ends,
    label_ticks,
    legend_above,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from csdp.auditing.attacker import Attack
    from csdp.auditing.audit import Audit
    from csdp.baselines.comparison import Comparison, Row
    from csdp.report.records import LeakageRecord

_COLOURS = {"ours": BLUE, "same release": SKY, "BETTER": RED, "not comparable": QUIET}
_NAMES = {"ours": BLUE, "BETTER": RED, "not comparable": QUIET}


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw a comparison of methods at one target.

    Left: the error at the leakage target, or the leakage at the error target, with a line for publishing nothing.
    Right: the epsilon of each method's own guarantee and its exact leakage.
    """
    rows = [row for row in comparison.rows if row.mse is not None and row.name != "no-data"]
    if not rows:
        raise InputError("figure: no method could be run, so there is nothing to draw")
    figure = blank_figure(12.5, 1.6 + 0.34 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    places = range(len(rows), 0, -1)
    for place, row in zip(places, rows, strict=True):
        _draw_result(left, place, row, comparison)
        _draw_guarantee(right, place, row)
    left.set_yticks(list(places), [row.method for row in rows], fontsize=9)
    for text, row in zip(left.get_yticklabels(), rows, strict=True):
        text.set_color(_NAMES.get(row.verdict, INK))
        text.set_weight("bold" if row.verdict in {"ours", "BETTER"} else "normal")
    _label_axes(left, right, comparison)
    return figure


def _draw_result(axes: Any, place: int, row: Row, comparison: Comparison) -> None:
    colour = _COLOURS.get(row.verdict, INK)
    known = row.verdict != "not comparable"
    value = row.mse if comparison.target == "budget" else row.leakage.value
    if value is None:
        axes.annotate(
            "leakage not computed",
            (0.02, place),
            xycoords=("axes fraction", "data"),
            color=QUIET,
            fontsize=8.5,
            va="center",
        )
        return
    style = {"marker": "D" if row.verdict == "ours" else "o", "markersize": 8 if row.verdict == "ours" else 6}
    axes.plot([value], [place], color=colour, markerfacecolor=colour if known else "none", linestyle="none", **style)


def _draw_guarantee(axes: Any, place: int, row: Row) -> None:
    axes.annotate(
        row.label,
        (1.02, place),
        xycoords=("axes fraction", "data"),
        color=QUIET,
        fontsize=8.5,
        va="center",
        annotation_clip=False,
    )
    points = [v for v in (row.nominal, row.leakage.value) if v is not None and 0 < v < float("inf")]
    if len(points) == 2:
        axes.plot(points, [place, place], color=GRID, linewidth=2.5, zorder=1)
    if row.nominal is not None and 0 < row.nominal < float("inf"):
        axes.plot([row.nominal], [place], color=ORANGE, marker="s", markersize=6, linestyle="none", zorder=2)
    if row.leakage.value is not None and 0 < row.leakage.value < float("inf"):
        axes.plot([row.leakage.value], [place], color=BLUE, marker="o", markersize=5, linestyle="none", zorder=3)


def _label_axes(left: Any, right: Any, comparison: Comparison) -> None:
    if comparison.target == "budget":
        left.axvline(comparison.no_data, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        left.set_xlabel(
            "Mean squared error of the linear estimate (left is better)\n"
            "Dashed: publish nothing. Hollow: not comparable. Light blue: same release as ours"
        )
        title = f"Error at leakage {comparison.value:g} of the present"
    else:
        known = [r.leakage.value for r in comparison.rows if r.mse is not None and r.leakage.value]
        if known and max(known) > 10 * min(known):
            left.set_xscale("log")
        left.set_xlabel(
            "Exact leakage of the present, epsilon (left is better)\n"
            "Publishing nothing leaks 0. Light blue: same release as ours"
        )
        title = f"Leakage at squared error {comparison.value:g}"
        if comparison.no_data <= comparison.value:
            title += f"\n(publishing nothing has squared error {comparison.no_data:.3g} and leaks 0)"
    left.set_title(title, loc="left", color=INK, fontsize=10.5)
    right.set_title("Stated epsilon, exact leakage, and kind of guarantee", loc="left", color=INK, fontsize=10.5)
    right.set_xscale("log")
    right.set_xlabel("Epsilon (log scale)")
    handles = [
        right.plot([], [], color=ORANGE, marker="s", linestyle="none", label="epsilon of its own guarantee")[0],
        right.plot([], [], color=BLUE, marker="o", linestyle="none", label="exact leakage of the present")[0],
    ]
    right.figure.legend(handles=handles, loc="outside lower right", frameon=False, fontsize=9, ncols=2, labelcolor=INK)
    for axes in (left, right):
        style_axes(axes, grid="x")
        axes.set_axisbelow(True)


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


def belief_figure(records: Sequence[LeakageRecord], *, ceiling: float, days: Sequence[tuple[int, str]] = ()) -> Figure:
    """Draw the most that an attacker can believe by tick, who found two present values equally likely before."""
    if not records:
        raise InputError("figure: nothing was published, so there is nothing to draw")
    figure = blank_figure(8.4, 3.6)
    axes = figure.add_subplot()
    first, last = records[0].tick, records[-1].tick
    lines: tuple[tuple[float, dict[str, Any]], ...] = (
        (1.0, {"color": ORANGE, "linewidth": 1.6, "label": "without noise"}),
        (belief(ceiling), {"color": RED, "linewidth": 1.4, "linestyle": (0, (6, 2)), "label": "never above"}),
        (0.5, {"color": INK, "linewidth": 1.0, "linestyle": (0, (3, 2)), "label": "nothing published"}),
    )
    for height, style in lines:
        axes.plot([first, last], [height, height], zorder=2, **style)
    believed = [belief(r.epsilon) for r in records]
    axes.step([r.tick for r in records], believed, color=BLUE, linewidth=2.2, zorder=3, label="with these releases")
    axes.set_ylim(0.45, 1.05)
    label_ticks(axes, days, "")
    axes.set_ylabel("Belief at most")
    style_axes(axes)
    legend_above(axes)
    return figure
