"""The report of a demonstration: figures as files, a page with the true values, and one to share without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from csdp.bounds.overview import leakage_table
from csdp.bounds.result import as_text
from csdp.report import figures, history
from csdp.report.certificate import Certificate
from csdp.report.graph import DRAWN_SEQUENCES, coupling_graph_figure
from csdp.report.page import (
    Section,
    facts,
    figure_block,
    leakage_block,
    numbers_block,
    page,
    paragraph,
    promises_block,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from csdp.chain import Model
    from csdp.fitting.quality import FitQuality
    from csdp.report.demo import Study

PRIVATE = (
    "Contains private data: the true values are drawn on this page. Do not pass it on; share.html is the same without "
    "them."
)


def write_story(found: Study, out: Path, *, version: str) -> list[str]:
    """Draw and write everything; the names of the files, the private page last."""
    drawings = _drawings(found)
    names = [*save_all({name: figure for name, figure in drawings.items() if name != "private"}, out)]
    promised = Section("What is promised, and what is not", promises_block(found.published.certificate))
    shared = [
        _released(found, drawings["release"], name="open"),
        spent(drawings["history"], found.prepared.case.budget),
        promised,
        _model(found, drawings["coupling"]),
        _explains(found),
        _trade(found, drawings["frontier"]),
        aging(drawings["leakage"]),
        _record(found),
    ]
    private = [_released(found, drawings["private"], name="private"), _errors(found), *shared[1:]]
    private.insert(6, bounds(found.chain.without_family(), found))
    case = found.prepared.case
    footer = f"csdp {version}, chain digest {found.chain.digest[:16]}"
    pages = {
        "share.html": page(case.title, lead=_lead(found), sections=shared, footer=footer),
        "index.html": page(case.title, lead=_lead(found), sections=private, footer=footer, notice=PRIVATE),
    }
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
    return [*names, *pages]


def save_all(drawings: dict[str, Figure], out: Path) -> list[str]:
    """Every figure as SVG and as PNG."""
    names = [f"{name}.{kind}" for name in drawings for kind in ("svg", "png")]
    for name in names:
        figures.save_figure(drawings[name.partition(".")[0]], out / name)
    return names


def _drawings(found: Study) -> dict[str, Figure]:
    published, case = found.published, found.prepared.case
    days = day_names(found.prepared.rest.ticks.tolist(), found.prepared.rest.times.astype(str).tolist())
    truth = history.truth_records(found.plan, found.prepared.rest)

    def released(values: Sequence[history.TruthRecord]) -> Figure:
        return figures.release_figure(published.records, what=case.what, truth=values, usual=published.usual, days=days)

    return {
        "release": released(()),
        "private": released(truth),
        "history": figures.leakage_history_figure(published.leakage, budget=case.budget, days=days),
        "leakage": figures.leakage_by_age_figure(found.by_age),
        "frontier": figures.frontier_figure(found.frontier, chosen=(found.ceiling, found.model_mse)),
        "coupling": coupling_graph_figure(found.chain),
    }


def day_names(ticks: Sequence[int], times: Sequence[str]) -> list[tuple[int, str]]:
    """The first tick of every day with a short name for it; of very many days only some.

    >>> day_names([5, 6, 7], ["2016-11-20T15:00:00", "2016-11-20T16:00:00", "2016-11-21T08:00:00"])
    [(5, '20 Nov'), (7, '21 Nov')]
    """
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    if not times or len(times[0]) < 10 or times[0][4] != "-":
        return []
    found, seen = [], ""
    for tick, time in zip(ticks, times, strict=True):
        if time[:10] != seen:
            seen = time[:10]
            found.append((tick, f"{int(seen[8:10])} {months[int(seen[5:7]) - 1]}"))
    return found[:: max(1, math.ceil(len(found) / 8))]


def _lead(found: Study) -> str:
    case, plan = found.prepared.case, found.plan
    return (
        f"{found.prepared.data.title}. A chain is fitted on a public past; then the {case.what}, {plan.ages[0]} ticks "
        f"old and with noise, is published through a ledger. All of it together changes what anyone can know of the "
        f"present state of any one sequence by at most epsilon = {case.budget:g}, at every moment, for every one of "
        f"{len(found.chain.family or (0,))} chains that the past leaves possible."
    )


def _released(found: Study, figure: Figure, *, name: str) -> Section:
    svg = figures.inline_svg(
        figure, name=name, description=f"Published values and estimate: {found.prepared.case.what}"
    )
    estimate = found.estimate
    words = (
        "Dots: what was published. Line and band: the estimate of the present from each dot, two standard errors on "
        "either side. Dashed: what anyone would say without any release, the usual answer"
        f"{' at this time of day' if estimate.by_time else ''} in the public past. Expected error (root mean square): "
        f"{math.sqrt(estimate.mse):.3f} with the release, {math.sqrt(estimate.no_data):.3f} without. The estimate is "
        "made of published numbers and the public past alone, so it costs no privacy."
    )
    return Section("What was published", figure_block(svg, words))


def _errors(found: Study) -> Section:
    errors = found.published.errors
    rows = [
        ("published number as it is", math.sqrt(errors.published), f"{found.plan.ages[0]} ticks old, with noise"),
        ("estimate from it", math.sqrt(errors.estimate), "the line above"),
        ("no data: as usual", math.sqrt(errors.usual), "the dashed line: what the release has to beat"),
        ("no data: one constant", math.sqrt(errors.constant), "the mean of the public past"),
    ]
    better = errors.estimate < errors.usual
    verdict = (
        f"The release takes away {1 - errors.estimate / errors.usual:.0%} of the squared error that is left without it."
        if better
        else "On these readings the release does NOT beat saying the usual: at this budget its noise hides it."
    )
    table = numbers_block(
        ("what is said of the present", "error", "note"), [(name, f"{value:.3f}", note) for name, value, note in rows]
    )
    frank = (
        "Read this as an example, not as a test: the question, the threshold and the days of this demonstration were "
        "chosen with these readings in view, and the noise is drawn anew at every run."
    )
    return Section("How close it came", table + paragraph(f"{verdict} {frank}"))


def spent(figure: Figure, budget: float | None) -> Section:
    """The leakage tick by tick."""
    svg = figures.inline_svg(figure, name="history", description="Leakage of the present by tick, under the budget")
    limit = "" if budget is None else f" A release that would pass {budget:g} is refused before any data is touched;"
    caption = (
        f"What everything published so far tells about the present, tick by tick.{limit} while nothing is published "
        "the leakage falls."
    ).replace(". while", ". While")
    return Section("The leakage stays under its budget", figure_block(svg, caption))


def aging(figure: Figure) -> Section:
    """Leakage against age by every bound."""
    svg = figures.inline_svg(figure, name="age", description="Leakage of one release against age, one line per bound")
    caption = (
        "One release at other ages, by every bound that applies. The thick line is exact. Dashed lines are formulas as "
        "printed in the literature (unsound): they can fall below the truth, and never certify."
    )
    return Section("Older data tells less about now", figure_block(svg, caption))


def bounds(point: Model, found: Study) -> Section:
    """One release by every bound, as a table."""
    table = leakage_table(point, found.plan.query, ages=found.plan.ages[0], epsilon_c=found.plan.epsilon_c)
    return Section("One release, by every bound (point estimate)", leakage_block(table))


def coupling_section(model: Model, figure: Figure | None) -> str:
    """The drawing of who follows whom, or that it would be too large to read."""
    if figure is None:
        return paragraph(f"{model.sequences:,} sequences: a drawing of at most {DRAWN_SEQUENCES} can be read.")
    svg = figures.inline_svg(figure, name="coupling", description="Who follows whom in the model")
    return figure_block(
        svg,
        "An arrow: how far the next state of one sequence depends on the present of another; the filling of a node: "
        "how far it depends on itself. Sequences without a path between them are independent in the model.",
    )


def _model(found: Study, figure: Figure) -> Section:
    chain = found.chain
    record = chain.fitted
    assert record is not None
    pairs = [
        ("Sequences", f"{chain.sequences}, with {chain.states} states each: {found.prepared.case.states}"),
        ("A tick", found.prepared.case.tick),
        (
            "Fitted by",
            f"{record.method}, on {record.observations:,} transitions before {found.prepared.data.past_ends}",
        ),
        ("Family", f"the fit and {record.ensemble} others ({record.ensemble_method}); the largest leakage counts"),
    ]
    pairs += [("Beware", note) for note in record.warnings]
    return Section("The model, fitted on the public past", coupling_section(chain, figure) + facts(pairs))


def quality_block(quality: FitQuality) -> str:
    """Held-out log-likelihoods side by side, and the verdict."""
    table = numbers_block(
        ("model", "nats per transition", "held out"),
        [
            ("this chain", f"{quality.chain:.4f}", f"{quality.held_out_ticks:,} ticks that it did not see"),
            ("independent chains", f"{quality.independent:.4f}", "one for each sequence"),
            ("no past", f"{quality.stationary:.4f}", "frequencies alone"),
        ],
    )
    return table + paragraph(quality.verdict)


def _explains(found: Study) -> Section:
    joint = (
        f"Groups as joint chains, which can move together within a step, would leak {as_text(found.joint_leakage)} in "
        f"one release; under the coupled chain it is {as_text(found.coupled_leakage)}. "
        + (
            "The difference is what the coupled chain does not know; the certificate holds for the family of coupled "
            "chains, not for these."
            if found.joint_leakage > found.coupled_leakage
            else "The coupled chain is the more careful of the two."
        )
    )
    return Section("Does the model explain the data?", quality_block(found.quality) + paragraph(joint))


def _trade(found: Study, figure: Figure) -> Section:
    svg = figures.inline_svg(figure, name="frontier", description="Leakage against error by age, with the no-data line")
    caption = (
        "Releasing at every tick for ever: leakage of the present against the error of the linear estimate, by age, "
        "under the fitted model (which knows no time of day, so its errors are not those of the first figure). Lines: "
        f"the point estimate. Star: this plan, certified for the family at {as_text(found.ceiling)}; the point estimate"
        f" alone would allow epsilon_c = {found.point_plan.epsilon_c:.3g} in place of {found.plan.epsilon_c:.3g}."
    )
    return Section("What more or less privacy would buy", figure_block(svg, caption))


def _record(found: Study) -> Section:
    data, plan, certificate = found.prepared.data, found.plan, found.published.certificate
    alone = as_text(found.point_plan.leakage.epsilon)
    pairs = [
        ("Release", f"{plan.query.name}, age {plan.ages[0]}, epsilon_c {plan.epsilon_c:.6g}"),
        ("One release tells", f"{as_text(plan.certified.epsilon)} ({plan.certified.bound})"),
        ("Without end", f"at most {as_text(found.ceiling)}; point estimate alone, its own level: {alone}"),
        *ledger_facts(certificate),
        ("Readings", f"{data.provenance} Licence: {data.licence}"),
        ("Their grid", data.handling),
        ("Noise", "from the operating system's randomness"),
        ("Chain digest", found.chain.digest),
        ("Plan digest", plan.digest),
    ]
    return Section("The record", facts(pairs))


def ledger_facts(certificate: Certificate) -> list[tuple[str, str]]:
    """What the ledger holds, as names and values."""
    counts = certificate.counts
    without = "; ".join(f"{ticks:,}: {reason}" for reason, ticks in counts["without_output"].items())
    return [
        ("Published", f"{counts['published']:,} ticks; {counts['refused']:,} refused, {counts['lost']:,} lost"),
        *([("Without output", without)] if without else []),
        ("Ledger", f"dataset {certificate.dataset}, head {certificate.ledger['head_hash']}"),
    ]
