"""The figure of a comparison of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from csdp.errors import InputError
from csdp.report.figures import BLUE, GRID, INK, ORANGE, QUIET, RED, SKY, blank_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from study.baselines.comparison_table import Comparison, Row

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
