"""Who follows whom: the strength of every influence in a model, and a drawing of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from csdp.chain import CoupledChain, Model
from csdp.errors import InputError
from csdp.report.figures import BLUE, GRID, INK, QUIET, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Sequences up to which a drawing stays readable, and the arrows that it shows.
DRAWN_SEQUENCES, DRAWN_ARROWS = 40, 120


@dataclass(frozen=True)
class Influence:
    """How far the next state of `target` moves, in total variation, when the present of `source` alone changes."""

    target: int
    source: int
    strength: float


def influences(model: Model) -> list[Influence]:
    """Every influence of a model, in order of targets and sources.

    >>> influences(CoupledChain([[0.75, 0.25], [0, 1.0]], [[0.7, 0.3], [0.3, 0.7]]))[1]
    Influence(target=0, source=1, strength=0.1)
    """
    if not isinstance(model, CoupledChain):
        return _of_kernel(model)
    found = []
    matrices, places = model.transition_table
    for edge, (target, source) in enumerate(zip(model.edge_targets, model.edge_sources, strict=True)):
        rows = matrices[places[edge]]
        apart = 0.5 * np.abs(rows[:, None, :] - rows[None, :, :]).sum(axis=2).max()
        found.append(Influence(int(target), int(source), round(float(model.edge_weights[edge] * apart), 12)))
    return sorted(found, key=lambda each: (each.target, each.source))


def _of_kernel(model: Model) -> list[Influence]:
    s, m = model.sequences, model.states
    kernel = model.kernel().reshape(model.size, *(m,) * s)
    found = []
    for target in range(s):
        law = kernel.sum(axis=tuple(1 + i for i in range(s) if i != target)).reshape(*(m,) * s, m)
        for source in range(s):
            moved = np.moveaxis(law, source, 0)
            apart = 0.5 * np.abs(moved[:, None] - moved[None, :]).sum(axis=-1).max()
            found.append(Influence(target, source, round(float(apart), 12)))
    return found


def coupling_graph_figure(model: Model) -> Figure:
    """The sequences on a circle; an arrow from k to j, the thicker the more j's next state depends on k.

    The filling of a node is how much a sequence depends on itself.
    """
    if model.sequences > DRAWN_SEQUENCES:
        raise InputError(f"figure: {model.sequences:,} sequences; a graph of at most {DRAWN_SEQUENCES} can be read")
    found = influences(model)
    own = {each.target: each.strength for each in found if each.target == each.source}
    others = sorted((each for each in found if each.target != each.source), key=lambda each: -each.strength)
    figure = blank_figure(8.4, 6.4)
    axes = figure.add_subplot()
    order = [i for part in model.components() for i in part]
    angle = {i: math.pi / 2 - 2 * math.pi * n / len(order) for n, i in enumerate(order)}
    places = {i: (math.cos(a), math.sin(a)) for i, a in angle.items()}
    strongest = max((each.strength for each in others), default=0.0)
    for each in others[:DRAWN_ARROWS]:
        if each.strength < 0.005:
            continue
        axes.annotate(
            "",
            xy=places[each.target],
            xytext=places[each.source],
            arrowprops={
                "arrowstyle": "-|>",
                "color": BLUE,
                "alpha": 0.35 + 0.6 * each.strength / strongest,
                "linewidth": 0.6 + 4.0 * each.strength / max(strongest, 1e-9),
                "shrinkA": 15,
                "shrinkB": 15,
                "connectionstyle": "arc3,rad=0.13",
            },
        )
    for i, (x, y) in places.items():
        axes.plot([x], [y], "o", markersize=24, color=GRID, markeredgecolor=QUIET, zorder=3)
        axes.plot([x], [y], "o", markersize=max(0.5, 24 * math.sqrt(own.get(i, 0.0))), color=BLUE, alpha=0.55, zorder=4)
        side = "left" if x > 0.15 else "right" if x < -0.15 else "center"
        axes.annotate(
            model.names[i],
            xy=(x, y),
            xytext=(18 * x, 18 * y if side != "center" else 22 * y),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=9,
            color=INK,
        )
    axes.set_xlim(-1.75, 1.75)
    axes.set_ylim(-1.25, 1.25)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure
