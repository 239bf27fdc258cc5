"""Results in a notebook: a table, a picture and a short page. `csdp.display` loads this module when one is asked for.

Pages of panels and readings name sequences and times and show no reading: a notebook is passed on with what it shows.
"""

from __future__ import annotations

import io
from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from csdp.audit.attack import Attack
from csdp.audit.black_box import Audit
from csdp.bounds.result import Leakage, as_text, belief
from csdp.chain import CoupledChain, Model
from csdp.display import import_package
from csdp.errors import InputError
from csdp.panel import Panel, Readings
from csdp.plan import Plan
from csdp.planning import FoundPlan, Frontier
from csdp.publisher import Batch
from csdp.report import figures
from csdp.report.page import make_environment
from csdp.report.series import Series, dependences, release_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Columns = dict[str, list[Any]]

#: Columns with a leakage.
_LEAKAGES = {"epsilon", "epsilon_s", "leakage", "claim"}
#: Rows that a page shows of a table.
_ROWS = 8


# ---- tables ---------------------------------------------------------------------------------------------------------


def to_frame(result: Any, kind: Literal["pandas", "polars"]) -> Any:
    """A result as a table of pandas or polars.

    >>> to_frame(Panel.from_states([[0], [1]], names=["a"]), "polars").rows()
    [(0, 0), (1, 1)]
    """
    return import_package(kind, package=kind).DataFrame(_columns(result))


@singledispatch
def _columns(result: Any) -> Columns:
    raise InputError(f"table: {type(result).__name__} given; it has no table")


@_columns.register(Leakage)
def _(result: Leakage) -> Columns:
    names = ("epsilon", "bound", "sound", "adversary", "reason")
    named = {name: [getattr(result, name)] for name in names}
    return named | {"witness": [str(result.witness or "")], "model": [result.model.status]}


@_columns.register(Plan)
def _(result: Plan) -> Columns:
    row = {
        "query": result.query.text,
        "youngest": result.min_age,
        "oldest": result.max_age,
        "epsilon_c": result.epsilon_c,
        "epsilon": result.certified.epsilon,
        "bound": result.certified.bound,
        "model": result.verdict.status,
        "digest": result.digest,
    }
    return {name: [cell] for name, cell in row.items()}


@_columns.register(FoundPlan)
def _(result: FoundPlan) -> Columns:
    found: Columns = {
        "leakage": [result.leakage.epsilon],
        "mse": [result.error.mse],
        "usefulness": [result.error.known_usefulness],
        "note": [result.note],
    }
    return _columns(result.plan) | found


@_columns.register(Frontier)
def _(result: Frontier) -> Columns:
    return {name: [getattr(point, name) for point in result.points] for name in vars(result.points[0])}


@_columns.register(Batch)
def _(result: Batch) -> Columns:
    releases = tuple(sorted(result, key=lambda release: release.tick))
    names = tuple(map(str, range(len(releases[0].values) if releases else 1)))
    columns = Series(names, {release.tick: release.tick for release in releases}, releases).columns()
    del columns["time"]
    return columns


@_columns.register(Audit)
def _(result: Audit) -> Columns:
    samples, lower = zip(*result.growth, strict=True)
    return {"samples": list(samples), "lower": list(lower), "claim": [result.claim] * len(samples)}


@_columns.register(Attack)
def _(result: Attack) -> Columns:
    ticks, sequences, states = np.indices(result.posterior.shape).reshape(3, -1)
    columns: Columns = {
        "tick": ticks.tolist(),
        "sequence": [result.names[i] for i in sequences],
        "value": result.values[sequences, states].tolist(),
    }
    return columns | {name: getattr(result, name).ravel().tolist() for name in ("prior", "posterior", "hindsight")}


@_columns.register(Panel)
@_columns.register(Readings)
def _(result: Panel | Readings) -> Columns:
    cells = result.states if isinstance(result, Panel) else result.readings
    missing = cells < 0 if isinstance(result, Panel) else np.isnan(cells)
    rows = cells.astype(object)
    rows[missing] = None
    return {"time": result.times.tolist()} | {name: rows[:, i].tolist() for i, name in enumerate(result.names)}


@_columns.register(Model)
def _(result: Model) -> Columns:
    strengths = dependences(result.point)
    return {
        "sequence": [result.names[each.target] for each in strengths],
        "follows": [result.names[each.source] for each in strengths],
        "dependence": [each.strength for each in strengths],
    }


@_columns.register(CoupledChain)
def _(result: CoupledChain) -> Columns:
    return {
        "sequence": [result.names[i] for i in result.edge_targets],
        "follows": [result.names[i] for i in result.edge_sources],
        "weight": result.edge_weights.tolist(),
    }


# ---- pictures -------------------------------------------------------------------------------------------------------


def to_figure(result: Any) -> Figure:
    """A result as a figure of matplotlib that a notebook shows by itself, whatever its settings."""
    import_package("matplotlib.figure", package="matplotlib")
    figure = _draw(result)
    vars(figure)["_repr_png_"] = partial(_as_png, figure)
    return figure


def _as_png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


@singledispatch
def _draw(result: Any) -> Figure:
    raise InputError(f"figure: {type(result).__name__} given; it has no picture")


@_draw.register(Leakage)
def _(result: Leakage) -> Figure:
    """The most and the least that an observer may believe afterwards, by what was believed before."""
    before = np.linspace(0.001, 0.999, 200)
    most = np.array([belief(result.epsilon, float(prior)) for prior in before])
    figure = figures.blank_figure(7.0, 4.2)
    axes = figure.add_subplot()
    words = f"epsilon {as_text(result.epsilon, 3)}: {_words(result)}"
    axes.fill_between(before, 1 - most[::-1], most, color=figures.BLUE, alpha=0.2, linewidth=0, label=words)
    axes.plot(before, before, color=figures.INK, linewidth=1.0, linestyle=(0, (3, 2)), label="nothing published")
    axes.set_xlabel("Belief before the releases")
    axes.set_ylabel("Belief after them")
    figures.style_axes(axes)
    axes.legend(frameon=False, loc="upper left")
    return figure


@_draw.register(Plan)
def _(result: Plan) -> Figure:
    return _draw(result.certified)


@_draw.register(FoundPlan)
def _(result: FoundPlan) -> Figure:
    return _draw(result.leakage)


_draw.register(Frontier, figures.frontier_figure)
_draw.register(Attack, figures.attack_figure)


@_draw.register(Model)
def _(result: Model) -> Figure:
    return figures.coupling_graph_figure(result.point)


@_draw.register(Batch)
def _(result: Batch) -> Figure:
    return figures.release_figure(release_records(result), what="published", axis="Tick")


@_draw.register(Audit)
def _(result: Audit) -> Figure:
    return figures.audit_figure({"mechanism": result})


# ---- pages ----------------------------------------------------------------------------------------------------------


def to_html(result: Any) -> str:
    """A result in a notebook: what it is, what it means in words, and the first rows of its table.

    >>> to_html(Panel.from_states([[0], [1]], names=["ward"])).count("<td>")
    2
    """
    if isinstance(result, Panel | Readings):
        ends = f"{result.times[0]} to {result.times[-1]}" if len(result) else "no ticks"
        table: Columns = {"sequence": list(result.names), "times": [ends] * len(result.names)}
    else:
        table = _columns(result)
    shown = {name: cells for name, cells in table.items() if any(cell not in (None, "") for cell in cells)}
    rows = list(zip(*shown.values(), strict=True))
    return (
        make_environment("csdp.report")
        .get_template("notebook.html")
        .render(
            name=repr(result),
            words=_words(result),
            columns=list(shown),
            rows=[[_cell(name, cell) for name, cell in zip(shown, row, strict=True)] for row in rows[:_ROWS]],
            more=len(rows) - _ROWS,
        )
    )


def _words(result: Any) -> str:
    """What a result means, in words."""
    if isinstance(result, Leakage):
        return result.in_words if result.sound else "not proven: it can be below the truth, and certifies nothing"
    if isinstance(result, Plan):
        return f"{result.certified.in_words}. {result.verdict}"
    if isinstance(result, FoundPlan):
        return f"{result.error.in_words}; {result.leakage.in_words}. {result.plan.verdict}"
    return str(result.verdict) if isinstance(result, Audit | Model) else ""


def _cell(column: str, cell: Any) -> str:
    """A cell as text; a leakage is rounded up, what an audit proves is rounded down."""
    if cell is None:
        return ""
    if isinstance(cell, float) and column in _LEAKAGES:
        return as_text(cell)
    if column == "lower":
        return f"{np.floor(cell * 1e6) / 1e6:g}"
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
