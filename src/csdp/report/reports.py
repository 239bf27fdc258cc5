"""The report of a dataset from its ledger: figures, a page to share, and a private page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from csdp.accountant.distances import leakage_by_distance
from csdp.aging import Progress
from csdp.bounds.overview import leakage_table
from csdp.bounds.result import as_text, with_chance
from csdp.chain.views import has_long_run
from csdp.errors import CsdpError, InputError
from csdp.estimate import mse
from csdp.estimate.second_order import moments
from csdp.ledger import Ledger
from csdp.ledger.records import TickGrid
from csdp.panel import Panel, Readings
from csdp.plan import Plan
from csdp.planning import frontier
from csdp.publisher import Release, Standing
from csdp.report import figures, records
from csdp.report.certificate import Certificate, certify
from csdp.report.files import write_json
from csdp.report.page import (
    PageSection,
    age_section,
    coupling_block,
    definition_list,
    figure_block,
    frontier_section,
    guarantees_section,
    leakage_block,
    leakage_history_section,
    ledger_facts,
    number_table,
    paragraph,
    save_report,
)
from csdp.report.records import TruthRecord, label_times, truth_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Largest number of joint states of a component for which sweeps over ages and noise levels are fast enough.
SWEEP_STATES = 1024
AGES, LEVELS = (1, 2, 3, 4, 6, 8), (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
#: Number of the newest ticks that a figure shows.
DRAWN = 400


@dataclass(frozen=True)
class LedgerReport:
    """The certificate of a dataset as its ledger stands, and the files that were written."""

    certificate: Certificate
    files: tuple[Path, ...]


def report_ledger(
    where: str | Path,
    folder: str | PathLike[str],
    *,
    dataset: str,
    version: str,
    panel: Panel | None = None,
    readings: Readings | None = None,
    unit: str = "",
    timezone: str | None = None,
    progress: Progress | None = None,
) -> LedgerReport:
    """Write the report of a dataset from its ledger. Nothing is published or charged.

    Args:
        where: The ledger, a SQLite file or a URL.
        folder: Folder to write share.html, the figures and the certificate to.
        dataset: Name of the dataset; plan and limits are those in the ledger.
        version: Version of csdp for the footer.
        panel: States of readings; with them a private page index.html is written too.
        readings: The readings as they were read, which the private page then shows instead of the states.
        unit: What the numbers are, for the axis.
        timezone: Zone of the times on the axes.
        progress: Called with what is done, how much, and the total.
    """
    with Ledger.open(where, read_only=True) as ledger:
        terms, summary = ledger.dataset(dataset).terms, ledger.summary(dataset)
        plan, budget = Plan.from_json(terms.plan_json), terms.limits.budget
        standing = Standing(ledger, dataset, plan=plan)
        certificate = certify(standing, ledger)
        leakages = records.leakage_records(standing, ledger)[-DRAWN:]
        published = [Release.of(p) for p in ledger.published(dataset) if p.query == plan.query.name]
    releases = sorted(published, key=lambda release: release.tick)[-DRAWN:]
    if not releases:
        raise InputError(f"dataset {dataset!r}: nothing has been published yet, so there is nothing to report")
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "certificate.json", certificate.to_dict())
    by_clock = summary.state is not None and summary.state.times == ("wall",)
    span = range(min(releases[0].tick, leakages[0].tick), releases[-1].tick + 1)
    days = _label_axis(span, panel, timezone, terms.grid if by_clock else TickGrid())
    drawings = _draw_ledger(plan, releases, leakages, budget, panel, readings, unit, days, progress)
    names = _write_ledger_pages(plan, certificate, drawings, out, budget=budget, version=version)
    return LedgerReport(certificate, tuple(out / name for name in ("certificate.json", *names)))


def _draw_ledger(
    plan: Plan,
    releases: list[Release],
    leakages: list[records.LeakageRecord],
    budget: float | None,
    panel: Panel | None,
    readings: Readings | None,
    unit: str,
    days: tuple[list[tuple[int, str]], str],
    progress: Progress | None,
) -> dict[str, Figure]:
    model = plan.model
    released = records.release_records(releases)
    what = plan.query.output_names(model.names, model.value_table)[0] + (f" of {unit}" if unit else "")
    usual = _long_run_mean(plan, released)
    labels, axis = days

    def draw_release(truth: Sequence[TruthRecord]) -> Figure:
        return figures.release_figure(released, what=what, truth=truth, usual=usual, days=labels, axis=axis)

    drawings = {
        "release": draw_release(()),
        "history": figures.leakage_history_figure(leakages, budget=budget, days=labels, axis=axis),
    }
    if panel is not None:
        first, last = released[0].tick, released[-1].tick
        truth = [record for record in truth_records(plan, panel, readings) if first <= record.tick <= last]
        if not truth:
            raise InputError("data: none of its ticks was published; give the readings of this dataset")
        drawings["private"] = draw_release(truth)
    if model.sequences <= figures.DRAWN_SEQUENCES:
        drawings["coupling"] = figures.coupling_graph_figure(model)
    largest = max(model.states ** len(component) for component in model.components())
    swept = largest <= SWEEP_STATES and len(set(plan.ages)) == 1
    if swept and has_long_run(model):
        options: dict[str, Any] = {"epsilon_c": plan.epsilon_c, "protect": plan.protect, "progress": progress}
        by_age = records.leakage_by_age(model, plan.query, ages=AGES, **options)
        drawings["leakage"] = figures.leakage_by_age_figure(by_age)
        secret: dict[str, Any] = {"adversary": plan.adversary, "protect": plan.protect}
        line = frontier(model, plan.query, ages=(1, 2, 4), levels=LEVELS, **secret)
        error = mse(model, plan.query, ages=plan.ages, epsilon_c=plan.mean_level, estimate="linear").mse
        drawings["frontier"] = figures.frontier_figure(line, chosen=(plan.certified.epsilon, error))
    return drawings


def _label_axis(
    ticks: range, panel: Panel | None, timezone: str | None, grid: TickGrid
) -> tuple[list[tuple[int, str]], str]:
    """Times to write on the axis of ticks: as read, or those of the grid where it is that of the wall clock."""
    if panel is not None:
        place = [i for i, tick in enumerate(panel.ticks.tolist()) if tick in ticks]
        if place:
            return label_times(panel.ticks[place].tolist(), panel.times[place], timezone=timezone)
    if grid.step is None:
        return [], ""
    seconds = np.array(ticks, dtype=np.int64) * grid.step + grid.origin
    return label_times(list(ticks), seconds.astype("datetime64[s]"), timezone=timezone)


def _long_run_mean(plan: Plan, released: Sequence[records.ReleaseRecord]) -> list[tuple[int, float]]:
    """What the model expects without any release, from the first tick to the last; none where it cannot be computed."""
    try:
        usual = moments(plan.model, plan.query, ages=plan.ages).usual[1][:, 0].tolist()
    except CsdpError:
        return []
    ends = [released[0].tick, released[-1].tick]
    ticks = ends if len(usual) == 1 else range(ends[0], ends[1] + 1)
    return [(tick, usual[tick % len(usual)]) for tick in ticks]


def _write_ledger_pages(
    plan: Plan, certificate: Certificate, drawings: dict[str, Figure], out: Path, *, budget: float | None, version: str
) -> list[str]:
    common = [
        leakage_history_section(drawings["history"], budget),
        guarantees_section(certificate),
        PageSection.detail("The model", coupling_block(plan.model, drawings.get("coupling"))),
    ]
    if "frontier" in drawings:
        caption = "One release: leakage of the present against the error of the estimate from it. Star: this plan."
        common += [frontier_section(drawings["frontier"], caption), age_section(drawings["leakage"])]
    ages = str(plan.ages[0]) if len(set(plan.ages)) == 1 else f"{min(plan.ages)} to {max(plan.ages)}"
    record = [*_release_facts(plan, ages), *ledger_facts(certificate), ("Plan digest", plan.digest)]
    common += [_bounds_section(plan), *_distance_sections(plan)]
    common += [PageSection.detail("The record", definition_list(record))]
    caption = (
        f"Dots: published values (at most the newest {DRAWN:,} ticks). Line and band: the estimate that was published "
        "with them, from each dot and those before it. Dashed: what the model expects without any release."
    )
    with_truth = f"{caption} True values are those of the readings as read."
    words = "Published values and the estimate from them"
    return save_report(
        out,
        drawings,
        [_release_section(drawings["release"], "open", caption, words), *common],
        [_release_section(drawings["private"], "private", with_truth, words), *common] if "private" in drawings else [],
        certificate=certificate,
        title=f"What was published of {certificate.dataset}",
        lead=f"{worth_words(certificate)} {certificate.sentence}",
        footer=f"csdp {version}, plan digest {plan.digest[:16]}",
    )


def worth_words(certificate: Certificate) -> str:
    """What the releases of a dataset are worth: the first sentence of a report."""
    return "Nothing is estimated here." if certificate.worth is None else str(certificate.worth["words"])


def _release_section(figure: Figure, name: str, caption: str, description: str) -> PageSection:
    return PageSection("What was published", figure_block(figure, caption, name=name, description=description))


def _release_facts(plan: Plan, ages: str) -> list[tuple[str, str]]:
    return [
        ("Release", f"{plan.query.name}, age {ages}, epsilon_c {plan.epsilon_c:g}"),
        ("One release leaks", f"{as_text(plan.certified.epsilon)} ({plan.certified.bound}): {plan.certified.in_words}"),
        *([] if plan.protect is None else [("Protected", f"present values at most {plan.protect:g} apart")]),
    ]


def _bounds_section(plan: Plan) -> PageSection:
    secret: dict[str, Any] = {"adversary": plan.adversary, "protect": plan.protect, "at_any_tick": True}
    try:
        body = leakage_block(leakage_table(plan.model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, **secret))
    except CsdpError as error:
        body = paragraph(str(error))
    return PageSection.detail("One release, by every bound", body)


def _distance_sections(plan: Plan) -> list[PageSection]:
    """Leakage against the distance of two present values, where values have several distances."""
    if plan.model.states < 3:
        return []
    table = leakage_by_distance(plan)
    charged = None if plan.protect is None else table.at(plan.protect)
    secret = "the secret of this plan: what is charged at most"
    rows = [(f"at most {far:g}", with_chance(eps), secret if eps == charged else "") for far, eps in table.rows]
    words = paragraph(
        "Releases at every tick, for ever: how much they tell apart two present values of one sequence, by how far the "
        "values (of its states) lie apart."
    )
    body = words + number_table(("present values apart by", "epsilon", ""), rows)
    return [PageSection.detail("By the distance of values", body)]
