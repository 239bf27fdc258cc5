"""Panels in the look of csdp's own figures: what is exact is solid, what is printed in the paper dashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from csdp.report.figures import BLUE, GREEN, GRID, INK, ORANGE, PURPLE, QUIET, RED, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "EXACT", "INK", "NO_DATA", "PRINTED", "finish", "panels"]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, QUIET)
EXACT: dict[str, Any] = {"linestyle": "-", "linewidth": 2.2}
PRINTED: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 1.4}
NO_DATA: dict[str, Any] = {"color": INK, "linestyle": (0, (1, 2)), "linewidth": 1.6}


def panels(count: int, *, width: float = 4.2, height: float = 4.0) -> tuple[Figure, Sequence[Any]]:
    """A figure with panels side by side."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({"font.size": 10}):
        figure = Figure(figsize=(width * count, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, list(axes)


def finish(axes: Any, *, title: str, x: str, y: str, log: bool = False, legend: str | None = "best") -> None:
    """Title, labels, grid and legend of a panel."""
    axes.set_title(title, loc="left", color=INK, fontsize=10.5)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    if log:
        axes.set_yscale("log")
    axes.grid(True, axis="y", color=GRID, linewidth=0.7)
    axes.tick_params(colors=INK, which="both")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(QUIET)
    if legend is not None:
        axes.legend(loc=legend, frameon=False, fontsize=8.5, labelcolor=INK)
