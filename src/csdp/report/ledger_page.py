"""A report of what a ledger holds: one page to share, and one with the true values where readings are given."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from csdp.aging import Progress
from csdp.bounds.rounding import shown
from csdp.bounds.table import leakage_table
from csdp.errors import CsdpError, InputError
from csdp.estimate import mse
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.planning import frontier
from csdp.publisher import Release, Standing
from csdp.report import figures, history, sweeps
from csdp.report.certificate import Certificate, certify
from csdp.report.demo_page import PRIVATE, aging, coupling_section, day_names, ledger_facts, save_all, spent
from csdp.report.files import write_json
from csdp.report.graph import DRAWN_SEQUENCES, coupling_graph_figure
from csdp.report.page import Section, facts, figure_block, leakage_block, page, paragraph, promises_block

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Joint states of a component up to which sweeps over ages and noise levels are quick enough for a report.
SWEEP_STATES = 1024
AGES, LEVELS = (1, 2, 3, 4, 6, 8), (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
#: Ticks that a figure shows; the newest.
DRAWN = 400


@dataclass(frozen=True)
class Recorded:
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
) -> Recorded:
    """Write the report of a dataset from its ledger: share.html, and with readings index.html, which is private.

    Nothing is published or charged. The plan and the limits are those that the ledger holds.
    """
    with Ledger.open(where, read_only=True) as ledger:
        terms = ledger.dataset(dataset).terms
        plan, budget = _plan(terms.plan_json), terms.limits.budget
        standing = Standing(ledger, dataset, plan=plan)
        certificate = certify(standing, ledger)
        told = history.leakage_records(standing, ledger)[-DRAWN:]
        found = [Release.of(p) for p in ledger.published(dataset) if p.query == plan.query.name]
    releases = sorted(found, key=lambda release: release.tick)[-DRAWN:]
    if not releases:
        raise InputError(f"dataset {dataset!r}: nothing has been published yet, so there is nothing to report")
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "certificate.json", certificate.to_dict())
    drawings = _drawings(plan, releases, told, budget, panel, progress)
    names = save_all({name: figure for name, figure in drawings.items() if name != "private"}, out)
    names += _pages(plan, certificate, drawings, out, budget=budget, version=version)
    return Recorded(certificate, tuple(out / name for name in ("certificate.json", *names)))


def _plan(text: str) -> Plan:
    try:
        return Plan.from_json(text)
    except InputError as error:
        raise InputError(f"{error}; a custom query is a Python function, which a ledger cannot hold") from None


def _drawings(
    plan: Plan,
    releases: list[Release],
    told: list[history.LeakageRecord],
    budget: float | None,
    panel: Panel | None,
    progress: Progress | None,
) -> dict[str, Figure]:
    model = plan.model
    records = history.release_records(releases)
    what = plan.query.output_names(model.names, model.value_table)[0]
    drawings = {
        "release": figures.release_figure(records, what=what),
        "history": figures.leakage_history_figure(told, budget=budget),
    }
    if panel is not None:
        first, last = records[0].tick, records[-1].tick
        truth = [record for record in history.truth_records(plan, panel) if first <= record.tick <= last]
        if not truth:
            raise InputError("data: none of its ticks was published; give the readings of this dataset")
        stamps = panel.times.astype(str).tolist() if panel.times.dtype.kind == "M" else []
        shown_days = (
            [(t, day) for t, day in day_names(panel.ticks.tolist(), stamps) if first <= t <= last] if stamps else []
        )
        drawings["private"] = figures.release_figure(records, what=what, truth=truth, days=shown_days)
    if model.sequences <= DRAWN_SEQUENCES:
        drawings["coupling"] = coupling_graph_figure(model)
    if max(model.states ** len(part) for part in model.components()) <= SWEEP_STATES and len(set(plan.ages)) == 1:
        by_age = sweeps.leakage_by_age(model, plan.query, ages=AGES, epsilon_c=plan.epsilon_c, progress=progress)
        drawings["leakage"] = figures.leakage_by_age_figure(by_age)
        line = frontier(model, plan.query, ages=(1, 2, 4), levels=LEVELS, adversary=plan.adversary)
        error = mse(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, estimate="linear").mse
        drawings["frontier"] = figures.frontier_figure(line, chosen=(plan.certified.epsilon, error))
    return drawings


def _pages(
    plan: Plan,
    certificate: Certificate,
    drawings: dict[str, Figure],
    out: Path,
    *,
    budget: float | None,
    version: str,
) -> list[str]:
    common = [
        spent(drawings["history"], budget),
        Section("What is promised, and what is not", promises_block(certificate)),
        Section("The model", coupling_section(plan.model, drawings.get("coupling"))),
    ]
    if "frontier" in drawings:
        svg = figures.inline_svg(
            drawings["frontier"], name="frontier", description="Leakage against error by age, with the no-data line"
        )
        words = "One release: leakage of the present against the error of the linear estimate. Star: this plan."
        common.append(Section("What more or less privacy would buy", figure_block(svg, words)))
        common.append(aging(drawings["leakage"]))
    common += [_bounds(plan), _record(plan, certificate)]
    lead = certificate.sentence
    footer = f"csdp {version}, plan digest {plan.digest[:16]}"
    title = f"What was published of {certificate.dataset}"
    pages = {
        "share.html": page(title, lead=lead, sections=[_released(drawings["release"], "open"), *common], footer=footer)
    }
    if "private" in drawings:
        sections = [_released(drawings["private"], "private"), *common]
        pages["index.html"] = page(title, lead=lead, sections=sections, footer=footer, notice=PRIVATE)
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
    return list(pages)


def _released(figure: Figure, name: str) -> Section:
    svg = figures.inline_svg(figure, name=name, description="Published values and the estimate of the present answer")
    words = (
        f"Dots: what was published (the newest {DRAWN:,} ticks at most). Line and band: the best linear estimate of "
        "the present answer from each dot under the model, and two standard errors on either side."
    )
    return Section("What was published", figure_block(svg, words))


def _bounds(plan: Plan) -> Section:
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
        return Section(title, paragraph(str(error)))
    return Section(title, leakage_block(table))


def _record(plan: Plan, certificate: Certificate) -> Section:
    ages = str(plan.ages[0]) if len(set(plan.ages)) == 1 else f"{min(plan.ages)} to {max(plan.ages)}"
    pairs = [
        ("Release", f"{plan.query.name}, age {ages}, epsilon_c {plan.epsilon_c:.6g}"),
        ("One release tells", f"{shown(plan.certified.epsilon)} ({plan.certified.bound})"),
        *ledger_facts(certificate),
        ("Plan digest", plan.digest),
    ]
    return Section("The record", facts(pairs))
