"""How every result looks in a notebook: its table, its picture, its short page. `csdp.display` asks this module.

Pages of panels and readings name sequences and times and show no reading: a notebook is passed on with what it shows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, singledispatch
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from csdp.accountant.distances import DistanceTable
from csdp.auditing.attacker import Attack
from csdp.auditing.audit import Audit
from csdp.auditing.replay import Replay
from csdp.bounds.overview import LeakageSummary, LeakageTable
from csdp.bounds.result import Leakage, as_text, belief
from csdp.chain import CoupledChain, EnvironmentChain, Family, Model
from csdp.display import import_package
from csdp.errors import InputError
from csdp.panel import Panel, Readings
from csdp.plan import Plan
from csdp.planning import DynamicPlan, Frontier
from csdp.planning.found import FoundPlan
from csdp.publisher import Batch
from csdp.report.audit_figures import attack_figure, audit_figure
from csdp.report.figures import (
    BLUE,
    INK,
    ORANGE,
    QUIET,
    RED,
    blank_figure,
    coupling_graph_figure,
    frontier_figure,
    release_figure,
    style_axes,
)
from csdp.report.files import Series, arrow_table
from csdp.report.records import dependences, release_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Columns = dict[str, list[Any]]

#: Columns with a leakage.
_LEAKAGES = {"epsilon", "epsilon_s", "leakage", "leakage_at_most", "point", "claim", "recorded", "recomputed"}
#: Rows that a page shows of a table.
_ROWS = 8
#: Sequences that a picture of readings shows as lines.
_LINES = 6


# ---- tables ---------------------------------------------------------------------------------------------------------


def to_frame(result: Any, kind: Literal["pandas", "polars"]) -> Any:
    """A result as a table of pandas or polars.

    >>> to_frame(Panel.from_states([[0], [1]], names=["a"]), "polars").rows()
    [(0, 0), (1, 1)]
    """
    package = import_package(kind, package=kind)
    if isinstance(result, Batch):
        table = _releases_table(result)
        return table.to_pandas() if kind == "pandas" else package.from_arrow(table)
    return package.DataFrame(_columns(result))


def _releases_table(batch: Batch) -> Any:
    """An arrow table with a row for each release in order of ticks; several outputs are numbered."""
    releases = tuple(sorted(batch, key=lambda release: release.tick))
    names = tuple(map(str, range(len(releases[0].values) if releases else 1)))
    series = Series(names, {release.tick: release.tick for release in releases}, releases)
    return arrow_table(series).drop_columns(["time"])


@singledispatch
def _columns(result: Any) -> Columns:
    raise InputError(f"table: {type(result).__name__} given; it has no table")


def _by_column(rows: Iterable[Mapping[str, Any]]) -> Columns:
    listed = list(rows)
    return {name: [row[name] for row in listed] for name in (listed[0] if listed else ())}


@_columns.register(Leakage)
def _(result: Leakage) -> Columns:
    return _by_column([_leakage_row(result)])


def _leakage_row(result: Leakage) -> dict[str, Any]:
    names = ("epsilon", "bound", "sound", "adversary", "point", "environment", "phase", "reason")
    row = {name: getattr(result, name) for name in names}
    return row | {"witness": str(result.witness or ""), "model": result.model.status}


@_columns.register(LeakageTable)
def _(result: LeakageTable) -> Columns:
    return _by_column(map(_leakage_row, result.rows))


@_columns.register(LeakageSummary)
def _(result: LeakageSummary) -> Columns:
    return {"share": list(result.quantiles), "epsilon": list(result.quantiles.values())}


def _plan_row(plan: Plan) -> dict[str, Any]:
    return {
        "query": plan.query.text,
        "youngest": plan.min_age,
        "oldest": plan.max_age,
        "epsilon_c": plan.epsilon_c,
        "adversary": plan.adversary,
        "epsilon": plan.certified.epsilon,
        "bound": plan.certified.bound,
        "model": plan.verdict.status,
        "noise": plan.noise_variance**0.5,
        "digest": plan.digest,
    }


@_columns.register(Plan)
def _(result: Plan) -> Columns:
    return _by_column([_plan_row(result)])


@_columns.register(FoundPlan)
def _(result: FoundPlan) -> Columns:
    figures = {
        "leakage": result.leakage.epsilon,
        "mse": result.error.mse,
        "usefulness": result.error.known_usefulness,
    }
    return _by_column([_plan_row(result.plan) | figures | {"note": result.note}])


@_columns.register(DistanceTable)
@_columns.register(Frontier)
@_columns.register(DynamicPlan)
def _(result: DistanceTable | Frontier | DynamicPlan) -> Columns:
    return _by_column(result.records())


@_columns.register(Audit)
def _(result: Audit) -> Columns:
    return _by_column({"samples": count, "lower": bound, "claim": result.claim} for count, bound in result.growth)


@_columns.register(Attack)
def _(result: Attack) -> Columns:
    ticks, sequences, states = result.posterior.shape
    places = np.indices((ticks, sequences, states)).reshape(3, -1)
    columns: Columns = {
        "tick": places[0].tolist(),
        "sequence": [result.names[i] for i in places[1]],
        "value": result.values[places[1], places[2]].tolist(),
    }
    for name in ("prior", "posterior", "hindsight"):
        columns[name] = getattr(result, name).ravel().tolist()
    return columns


@_columns.register(Replay)
def _(result: Replay) -> Columns:
    return _by_column(
        {"dataset": name, "tick": charge.tick, "recorded": charge.recorded, "recomputed": charge.recomputed}
        for name, charges in result.charges.items()
        for charge in charges
    )


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


def _stack_models(label: str, parts: Iterable[Model]) -> Columns:
    whole: Columns = {label: []}
    for number, part in enumerate(parts):
        for name, cells in _columns(part).items():
            whole.setdefault(name, []).extend(cells)
        whole[label] += [number] * len(cells)
    return whole


@_columns.register(EnvironmentChain)
def _(result: EnvironmentChain) -> Columns:
    return _stack_models("environment", result.environments)


@_columns.register(Family)
def _(result: Family) -> Columns:
    return _stack_models("member", result.members)


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
    figure, axes = _axes("Belief before the releases", "Belief after them")
    words = f"epsilon {as_text(result.epsilon, 3)}: {_words(result)}"
    axes.fill_between(before, 1 - most[::-1], most, color=BLUE, alpha=0.2, linewidth=0, label=words)
    axes.plot(before, before, color=INK, linewidth=1.0, linestyle=(0, (3, 2)), label="nothing told")
    axes.legend(frameon=False, loc="upper left")
    return figure


@_draw.register(Plan)
@_draw.register(FoundPlan)
def _(result: Plan | FoundPlan) -> Figure:
    return _draw(result.certified if isinstance(result, Plan) else result.leakage)


@_draw.register(LeakageTable)
def _(result: LeakageTable) -> Figure:
    rows = [row for row in result.rows if row.epsilon < float("inf")]
    marks = [RED if not row.sound else INK if row.bound == "exact" else BLUE for row in rows]
    names = [row.bound + ("" if row.sound else " (not a bound)") for row in rows]
    return _bars(names, [row.epsilon for row in rows], "Leakage of the present, epsilon", colours=marks)


@_draw.register(LeakageSummary)
def _(result: LeakageSummary) -> Figure:
    figure, axes = _axes("Share of the sequences", "Leakage of the present, epsilon, at most")
    axes.step(list(result.quantiles), list(result.quantiles.values()), where="pre", color=BLUE, linewidth=2.0)
    return figure


@_draw.register(DistanceTable)
def _(result: DistanceTable) -> Figure:
    figure, axes = _axes("Two present values at most this far apart", "Leakage, epsilon")
    axes.step(*zip(*result.rows, strict=True), where="post", color=BLUE, linewidth=2.0, marker=".")
    return figure


@_draw.register(DynamicPlan)
def _(result: DynamicPlan) -> Figure:
    (name, at), *_ = _columns(result).items()
    figure, axes = _axes(name.capitalize(), "Epsilon")
    axes.step(at, result.levels, where="mid", color=BLUE, linewidth=2.0, label="noise level epsilon_c")
    axes.step(at, result.leakage, where="mid", color=ORANGE, linewidth=2.0, label="leakage of the present")
    axes.axhline(result.budget, color=RED, linewidth=1.2, linestyle=(0, (6, 2)), label="budget")
    axes.legend(frameon=False)
    return figure


_draw.register(Frontier, frontier_figure)
_draw.register(Attack, attack_figure)


@_draw.register(Model)
@_draw.register(Family)
def _(result: Model | Family) -> Figure:
    return coupling_graph_figure(result.point)


@_draw.register(Batch)
def _(result: Batch) -> Figure:
    return release_figure(release_records(result), what="published", axis="Tick")


@_draw.register(Audit)
def _(result: Audit) -> Figure:
    return audit_figure({"mechanism": result})


@_draw.register(Replay)
def _(result: Replay) -> Figure:
    figure, axes = _axes("Tick", "Leakage of the present, epsilon")
    for name, charges in result.charges.items():
        at = [charge.tick for charge in charges]
        axes.plot(at, [charge.recorded for charge in charges], color=BLUE, linewidth=2.0, label=f"{name}: recorded")
        axes.plot(at, [charge.recomputed for charge in charges], ".", color=INK, label=f"{name}: recomputed")
    axes.legend(frameon=False)
    return figure


@_draw.register(Panel)
@_draw.register(Readings)
def _(result: Panel | Readings) -> Figure:
    cells = result.states.astype(float) if isinstance(result, Panel) else result.readings
    cells = np.where(cells < 0, np.nan, cells) if isinstance(result, Panel) else cells
    figure, axes = _axes("Time", "State (private)" if isinstance(result, Panel) else "Reading (private)")
    for i, name in enumerate(result.names[:_LINES]):
        axes.step(result.times, cells[:, i], where="mid", linewidth=1.2, label=name)
    more = len(result.names) - _LINES
    axes.legend(frameon=False, title=f"and {more:,} more sequences" if more > 0 else None)
    return figure


def _axes(x: str, y: str, *, height: float = 4.2) -> tuple[Figure, Any]:
    figure = blank_figure(7.0, height)
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    style_axes(axes)
    return figure, axes


def _bars(names: Sequence[str], lengths: Sequence[float], what: str, *, colours: Sequence[str]) -> Figure:
    figure, axes = _axes(what, "", height=1.2 + 0.3 * len(names))
    places = range(len(names), 0, -1)
    axes.grid(False)
    axes.barh(places, lengths, color=colours)
    axes.set_yticks(list(places), names)
    for place, length in zip(places, lengths, strict=True):
        axes.annotate(as_text(length, 3), (length, place), (3, 0), textcoords="offset points", va="center", color=QUIET)
    return figure


# ---- pages ----------------------------------------------------------------------------------------------------------


def to_html(result: Any) -> str:
    """A result in a notebook: what it is, what it means in words, and the first rows of its table.

    >>> to_html(Panel.from_states([[0], [1]], names=["ward"])).count("<td>")
    2
    """
    words = _words(result)
    return "".join(
        (
            '<div class="csdp" style="overflow-x: auto" tabindex="0">',
            f"<p><strong>{escape(repr(result))}</strong></p>",
            f"<p>{escape(words)}</p>" if words else "",
            _html_table(_summary(result)),
            "</div>",
        )
    )


#: What results say of themselves in words, whichever they have.
_SENTENCES: tuple[Callable[[Any], str], ...] = (
    lambda result: str(result.in_words),
    lambda result: f"{result.certified.in_words}. {result.verdict}",
    lambda result: str(result.verdict),
    lambda result: str(result.headline),
    lambda result: f"{result.error.in_words}; {result.leakage.in_words}. {result.plan.verdict}",
)


def _words(result: Any) -> str:
    if not getattr(result, "sound", True):
        return "not proven: it can be below the truth, and certifies nothing"
    for sentence in _SENTENCES:
        try:
            return sentence(result)
        except AttributeError:
            continue
    return ""


def _summary(result: Any) -> Columns:
    """The table of a page: of readings only what they are of."""
    if isinstance(result, Panel | Readings):
        ends = f"{result.times[0]} to {result.times[-1]}" if len(result) else "no ticks"
        return {"sequence": list(result.names), "times": [ends] * len(result.names)}
    if isinstance(result, Batch):
        return dict(_releases_table(result).to_pydict())
    return _columns(result)


def _html_table(columns: Columns) -> str:
    shown = {name: cells for name, cells in columns.items() if any(cell not in (None, "") for cell in cells)}
    if not shown:
        return ""
    rows = list(zip(*shown.values(), strict=True))
    head = "".join(f"<th>{escape(name)}</th>" for name in shown)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(name, c))}</td>" for name, c in zip(shown, row, strict=True)) + "</tr>"
        for row in rows[:_ROWS]
    )
    more = f"<p>and {len(rows) - _ROWS:,} more rows</p>" if len(rows) > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(column: str, cell: Any) -> str:
    """A cell as text; a leakage is rounded up, what an audit proves is rounded down."""
    if cell is None:
        return ""
    if isinstance(cell, float) and column in _LEAKAGES:
        return as_text(cell)
    if column == "lower":
        return f"{np.floor(cell * 1e6) / 1e6:g}"
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
