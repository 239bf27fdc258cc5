"""The report of a dataset from its ledger: a page to share, and with readings also one with the true values."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from csdp.aging import Progress
from csdp.bounds.overview import leakage_table
from csdp.bounds.result import as_text
from csdp.errors import CsdpError, InputError
from csdp.estimate import mse
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.planning import frontier
from csdp.publisher import Release, Standing
from csdp.report import figures, records
from csdp.report.certificate import Certificate, certify
from csdp.report.files import write_json
from csdp.report.page import (
    PRIVATE,
    PageSection,
    age_section,
    coupling_block,
    day_names,
    definition_list,
    figure_block,
    frontier_section,
    guarantees_section,
    leakage_block,
    leakage_history_section,
    ledger_facts,
    page,
    paragraph,
    save_figures,
    save_pages,
)

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
    progress: Progress | None = None,
) -> LedgerReport:
    """Write the report of a dataset from its ledger. Nothing is published or charged.

    Args:
        where: The ledger, a SQLite file or a URL.
        folder: Folder to write share.html, the figures and the certificate to.
        dataset: Name of the dataset; plan and limits are those in the ledger.
        version: Version of csdp for the footer.
        panel: Readings; with them a private page index.html is written too.
        progress: Called with what is done, how much, and the total.
    """
    with Ledger.open(where, read_only=True) as ledger:
        terms = ledger.dataset(dataset).terms
        plan, budget = _parse_plan(terms.plan_json), terms.limits.budget
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
    drawings = _draw_figures(plan, releases, leakages, budget, panel, progress)
    names = save_figures({name: figure for name, figure in drawings.items() if name != "private"}, out)
    names += _write_pages(plan, certificate, drawings, out, budget=budget, version=version)
    return LedgerReport(certificate, tuple(out / name for name in ("certificate.json", *names)))


def _parse_plan(text: str) -> Plan:
    try:
        return Plan.from_json(text)
    except InputError as error:
        raise InputError(f"{error}; a custom query is a Python function, which a ledger cannot store") from None


def _draw_figures(
    plan: Plan,
    releases: list[Release],
    leakages: list[records.LeakageRecord],
    budget: float | None,
    panel: Panel | None,
    progress: Progress | None,
) -> dict[str, Figure]:
    model = plan.model
    released = records.release_records(releases)
    what = plan.query.output_names(model.names, model.value_table)[0]
    drawings = {
        "release": figures.release_figure(released, what=what),
        "history": figures.leakage_history_figure(leakages, budget=budget),
    }
    if panel is not None:
        first, last = released[0].tick, released[-1].tick
        truth = [record for record in records.truth_records(plan, panel) if first <= record.tick <= last]
        if not truth:
            raise InputError("data: none of its ticks was published; give the readings of this dataset")
        stamps = panel.times.astype(str).tolist() if panel.times.dtype.kind == "M" else []
        days = [(t, day) for t, day in day_names(panel.ticks.tolist(), stamps) if first <= t <= last] if stamps else []
        drawings["private"] = figures.release_figure(released, what=what, truth=truth, days=days)
    if model.sequences <= figures.DRAWN_SEQUENCES:
        drawings["coupling"] = figures.coupling_graph_figure(model)
    largest = max(model.states ** len(component) for component in model.components())
    if largest <= SWEEP_STATES and len(set(plan.ages)) == 1:
        by_age = records.leakage_by_age(model, plan.query, ages=AGES, epsilon_c=plan.epsilon_c, progress=progress)
        drawings["leakage"] = figures.leakage_by_age_figure(by_age)
        line = frontier(model, plan.query, ages=(1, 2, 4), levels=LEVELS, adversary=plan.adversary)
        error = mse(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, estimate="linear").mse
        drawings["frontier"] = figures.frontier_figure(line, chosen=(plan.certified.epsilon, error))
    return drawings


def _write_pages(
    plan: Plan,
    certificate: Certificate,
    drawings: dict[str, Figure],
    out: Path,
    *,
    budget: float | None,
    version: str,
) -> list[str]:
    common = [
        leakage_history_section(drawings["history"], budget),
        guarantees_section(certificate),
        PageSection("The model", coupling_block(plan.model, drawings.get("coupling"))),
    ]
    if "frontier" in drawings:
        caption = "One release: leakage of the present against the error of the linear estimate. Star: this plan."
        common += [frontier_section(drawings["frontier"], caption), age_section(drawings["leakage"])]
    common += [_bounds_section(plan), _record_section(plan, certificate)]
    lead = certificate.sentence
    footer = f"csdp {version}, plan digest {plan.digest[:16]}"
    title = f"What was published of {certificate.dataset}"
    sections = [_release_section(drawings["release"], "open"), *common]
    pages = {"share.html": page(title, lead=lead, sections=sections, footer=footer)}
    if "private" in drawings:
        sections = [_release_section(drawings["private"], "private"), *common]
        pages["index.html"] = page(title, lead=lead, sections=sections, footer=footer, notice=PRIVATE)
    return save_pages(pages, out)


def _release_section(figure: Figure, name: str) -> PageSection:
    svg = figures.inline_svg(figure, name=name, description="Published values and the estimate of the present answer")
    words = (
        f"Dots: published values (at most the newest {DRAWN:,} ticks). Line and band: the best linear estimate of "
        "the present answer from each dot under the model, with two standard errors on either side."
    )
    return PageSection("What was published", figure_block(svg, words))


def _bounds_section(plan: Plan) -> PageSection:
    title = "One release, by every bound"
    try:
        table = leakage_table(
            plan.model,
            plan.query,
            ages=plan.ages,
            epsilon_c=plan.epsilon_c,
            adversary=plan.adversary,
            at_any_tick=True,
        )
    except CsdpError as error:
        return PageSection(title, paragraph(str(error)))
    return PageSection(title, leakage_block(table))


def _record_section(plan: Plan, certificate: Certificate) -> PageSection:
    ages = str(plan.ages[0]) if len(set(plan.ages)) == 1 else f"{min(plan.ages)} to {max(plan.ages)}"
    pairs = [
        ("Release", f"{plan.query.name}, age {ages}, epsilon_c {plan.epsilon_c:.6g}"),
        ("One release leaks", f"{as_text(plan.certified.epsilon)} ({plan.certified.bound})"),
        *ledger_facts(certificate),
        ("Plan digest", plan.digest),
    ]
    return PageSection("The record", definition_list(pairs))
