"""Figures drawn from records.

matplotlib is imported when a figure is drawn; no window system and no global state is used.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from csdp.bounds.result import belief
from csdp.errors import InputError
from csdp.report.series import LeakageRecord, ReleaseRecord, TruthRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, GRID, QUIET = "#1b2733", "#d9dee3", "#6b7680"
# Okabe and Ito's colours, which people with any kind of colour vision can distinguish.
BLUE, SKY, GREEN, PURPLE, ORANGE, RED = "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#d55e00"
#: Colours of a figure, and the CSS variable of the page that replaces each in an inline figure.
THEME = {
    INK: "--ink",
    GRID: "--grid",
    QUIET: "--quiet",
    BLUE: "--blue",
    SKY: "--sky",
    GREEN: "--green",
    PURPLE: "--purple",
    ORANGE: "--orange",
    RED: "--red",
}


def release_figure(
    records: Sequence[ReleaseRecord],
    *,
    what: str,
    truth: Sequence[TruthRecord] = (),
    usual: Sequence[tuple[int, float]] = (),
    days: Sequence[tuple[int, str]] = (),
    axis: str = "",
) -> Figure:
    """Draw published values, and the estimate that was published with them, with its band.

    Args:
        records: What was published.
        what: Name of the published number, for the axis.
        truth: True answers; they make the figure private, and it says so.
        usual: (tick, value) of what would be expected without any release.
        days: (tick, name) of the ticks to label on the axis.
        axis: Name of the axis of time.
    """
    if not records:
        raise InputError("figure: nothing was published, so there is nothing to draw")
    figure = blank_figure(8.4, 4.6)
    axes = figure.add_subplot()
    scale = [*(r.value for r in truth), *(value for _, value in usual)]
    if truth:
        at_truth, values = [r.tick for r in truth], [r.value for r in truth]
        label = "true value (private)"
        axes.step(at_truth, values, where="mid", color=ORANGE, linewidth=1.5, zorder=2, label=label)
    if usual:
        label = "no data: mean" if len({value for _, value in usual}) == 1 else "no data: what is usual"
        dashed: dict[str, Any] = {"linestyle": (0, (3, 2)), "label": label}
        axes.plot(*zip(*usual, strict=True), color=INK, linewidth=1.0, zorder=2, **dashed)
    estimates = [(r.tick, r.estimate) for r in records if r.estimate is not None]
    bands = [(r.tick, r.low, r.high) for r in records if r.low is not None and r.high is not None]
    if bands:
        at, low, high = zip(*bands, strict=True)
        axes.fill_between(at, low, high, color=BLUE, alpha=0.15, linewidth=0, zorder=1)
        scale += [*low, *high]
    if estimates:
        label = "estimate and band" if bands else "estimate"
        axes.plot(*zip(*estimates, strict=True), color=BLUE, linewidth=2.2, zorder=4, label=label)
        scale += [middle for _, middle in estimates]
    _draw_published(axes, records, scale)
    label_ticks(axes, days, axis)
    axes.set_ylabel(what[:1].upper() + what[1:])
    style_axes(axes)
    legend_above(axes)
    return figure


def _draw_published(axes: Any, records: Sequence[ReleaseRecord], scale: Sequence[float]) -> None:
    """Draw published values as dots; those that noise carries far beyond all others as marks at the edge."""
    values = np.array([r.value for r in records])
    ticks = np.array([r.tick for r in records])
    spread = np.quantile(values, [0.05, 0.95])
    low, high = min([*scale, *spread]), max([*scale, *spread])
    room = 0.06 * (high - low) if high > low else max(0.5, 0.05 * abs(high))
    low, high = float(low - room), float(high + room)
    beyond = (values < low) | (values > high)
    note = f" ({int(beyond.sum()):,} beyond the scale, at its edges)" if beyond.any() else ""
    label = f"published{note}"
    axes.plot(ticks[~beyond], values[~beyond], ".", color=QUIET, markersize=5, zorder=3, label=label)
    for side, edge, mark in ((values > high, high, "^"), (values < low, low, "v")):
        axes.plot(ticks[side], np.full(int(side.sum()), edge), mark, color=QUIET, markersize=3, clip_on=False, zorder=3)
    axes.set_ylim(low, high)


def legend_above(axes: Any) -> None:
    """A legend above the axes, from the left: inside of the picture also if a narrow screen shows its left part."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=2,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        borderaxespad=0.2,
        columnspacing=1.2,
        handlelength=1.6,
    )


def label_ticks(axes: Any, days: Sequence[tuple[int, str]], axis: str) -> None:
    """Label the axis of ticks with times, or with numbers if there are none."""
    axes.set_xlabel(axis or ("" if days else "Tick"))
    if days:
        at, names = zip(*days, strict=True)
        axes.set_xticks(at, names)


def leakage_history_figure(
    records: Sequence[LeakageRecord],
    *,
    budget: float | None = None,
    days: Sequence[tuple[int, str]] = (),
    axis: str = "",
) -> Figure:
    """Draw the leakage of the present by tick, with marks at the releases and a line at the budget."""
    finite = [record for record in records if record.epsilon < float("inf")]
    if not finite:
        raise InputError("figure: no finite leakage to draw")
    figure = blank_figure(8.4, 3.8)
    axes = figure.add_subplot()
    line: dict[str, Any] = {"color": BLUE, "linewidth": 1.4, "zorder": 2, "label": "leakage; dots: releases"}
    axes.plot([r.tick for r in finite], [r.epsilon for r in finite], **line)
    marked = [r for r in finite if r.published]
    axes.plot([r.tick for r in marked], [r.epsilon for r in marked], "o", color=BLUE, markersize=4, zorder=3)
    if budget is not None:
        first, last = finite[0].tick, finite[-1].tick
        limit: dict[str, Any] = {
            "color": RED,
            "linewidth": 1.6,
            "linestyle": (0, (6, 2)),
            "label": f"budget {budget:g}",
        }
        axes.plot([first, last], [budget, budget], zorder=2, **limit)
    axes.set_ylim(bottom=0, top=1.12 * max([budget or 0.0, *(r.epsilon for r in finite)]))
    label_ticks(axes, days, axis)
    axes.set_ylabel("Leakage of the present, epsilon")
    style_axes(axes)
    legend_above(axes)
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


# ---- drawing --------------------------------------------------------------------------------------------------------


def blank_figure(width: float, height: float) -> Figure:
    """Make an empty figure that no window and no global style affects."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({"font.size": 10}):
        figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Any, *, grid: Literal["x", "y", "both"] = "y") -> None:
    """Draw only the left and bottom axis, in the colours of the page, and a grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(QUIET)
    axes.tick_params(colors=INK, which="both")
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_color(INK)
    axes.grid(True, axis=grid, color=GRID, linewidth=0.7)


def save_figure(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a figure in the format of the name's ending (.svg, .png, .pdf). The same figure gives the same bytes."""
    metadata = {"Date": None} if str(path).endswith((".svg", ".svgz")) else None
    _write(figure, path, dpi=150, facecolor="white", metadata=metadata)


def _write(figure: Figure, target: Any, **options: Any) -> None:
    """Write a figure. Its layout is computed once for all formats: matplotlib would do so twice for each of them."""
    from matplotlib import rc_context

    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "csdp"}):
        figure.savefig(target, **options)


def inline_svg(figure: Figure, *, name: str, description: str) -> str:
    """Make an `<svg>` element for a page: its colours follow the page, its ids are prefixed with `name`."""
    from html import escape

    text = io.StringIO()
    _write(figure, text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    for colour, variable in THEME.items():
        svg = svg.replace(f": {colour}", f": var({variable}, {colour})")
    width_height = re.compile(r'(<svg[^>]*?) (?:width|height)="[\d.]+pt"')
    svg = width_height.sub(r"\1", width_height.sub(r"\1", svg, count=1), count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description, quote=True)}"', 1).strip()
