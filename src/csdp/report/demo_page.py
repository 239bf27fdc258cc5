"""The report of a demonstration: figure files, a page with the true values, and one to share without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from csdp.bounds.overview import leakage_table
from csdp.bounds.result import as_text
from csdp.report import figures
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
    number_table,
    page,
    paragraph,
    save_figures,
    save_pages,
)
from csdp.report.records import TruthRecord, truth_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from csdp.report.demo import DemoStudy


def write_demo_pages(study: DemoStudy, out: Path, *, version: str) -> list[str]:
    """Draw and write all figures and pages; returns the names of the files, the private page last."""
    drawings = _draw_figures(study)
    names = save_figures({name: figure for name, figure in drawings.items() if name != "private"}, out)
    shared = [
        _release_section(study, drawings["release"], name="open"),
        leakage_history_section(drawings["history"], study.prepared.case.budget),
        guarantees_section(study.published.certificate),
        _model_section(study, drawings["coupling"]),
        _quality_section(study),
        _together_section(study),
        frontier_section(drawings["frontier"], _frontier_caption(study)),
        age_section(drawings["leakage"]),
        _record_section(study),
    ]
    private = [_release_section(study, drawings["private"], name="private"), _errors_section(study), *shared[1:]]
    private.insert(7, _bounds_section(study))
    title, lead = study.prepared.case.title, _lead(study)
    footer = f"csdp {version}, chain digest {study.chain.digest[:16]}"
    pages = {
        "share.html": page(title, lead=lead, sections=shared, footer=footer),
        "index.html": page(title, lead=lead, sections=private, footer=footer, notice=PRIVATE),
    }
    return names + save_pages(pages, out)


def _draw_figures(study: DemoStudy) -> dict[str, Figure]:
    published, case = study.published, study.prepared.case
    days = day_names(study.prepared.rest.ticks.tolist(), study.prepared.rest.times.astype(str).tolist())
    truth = truth_records(study.plan, study.prepared.rest)

    def draw_release(values: Sequence[TruthRecord]) -> Figure:
        return figures.release_figure(published.records, what=case.what, truth=values, usual=published.usual, days=days)

    return {
        "release": draw_release(()),
        "private": draw_release(truth),
        "history": figures.leakage_history_figure(published.leakage, budget=case.budget, days=days),
        "leakage": figures.leakage_by_age_figure(study.by_age),
        "frontier": figures.frontier_figure(study.frontier, chosen=(study.ceiling, study.model_mse)),
        "coupling": figures.coupling_graph_figure(study.chain),
    }


def _lead(study: DemoStudy) -> str:
    case, plan = study.prepared.case, study.plan
    return (
        f"{study.prepared.data.title}. A chain is fitted to a public past; then the {case.what}, {plan.ages[0]} ticks "
        f"old and with noise, is published through a ledger. All releases together leak at most epsilon = "
        f"{case.budget:g} about the present state of any one sequence, at every moment, under each of "
        f"{len(study.plan.chain.members)} chains that are plausible given the past."
    )


def _release_section(study: DemoStudy, figure: Figure, *, name: str) -> PageSection:
    svg = figures.inline_svg(
        figure, name=name, description=f"Published values and estimate: {study.prepared.case.what}"
    )
    estimate = study.estimate
    words = (
        "Dots: published values. Line and band: the estimate of the present from each dot, with two standard errors on "
        "either side. Dashed: the estimate without any release, the mean answer"
        f"{' at this time of day' if estimate.by_time else ''} in the public past. Expected error (root mean square): "
        f"{math.sqrt(estimate.mse):.3f} with the release, {math.sqrt(estimate.no_data):.3f} without. The estimate uses "
        "only published numbers and the public past, so it costs no privacy."
    )
    return PageSection("What was published", figure_block(svg, words))


def _errors_section(study: DemoStudy) -> PageSection:
    errors = study.published.errors
    rows = [
        ("published number", math.sqrt(errors.published), f"{study.plan.ages[0]} ticks old, with noise"),
        ("estimate from it", math.sqrt(errors.estimate), "the line above"),
        ("no data: mean answer", math.sqrt(errors.usual), "the dashed line: what the release has to beat"),
        ("no data: one constant", math.sqrt(errors.constant), "the mean of the public past"),
    ]
    better = errors.estimate < errors.usual
    verdict = (
        f"The release removes {1 - errors.estimate / errors.usual:.0%} of the squared error of the mean answer."
        if better
        else "On these readings the release is NOT better than the mean answer: at this budget its noise is too large."
    )
    table = number_table(
        ("estimate of the present", "error", "note"), [(name, f"{value:.3f}", note) for name, value, note in rows]
    )
    caveat = (
        "Read this as an example, not as a test: the question, the threshold and the days of this demonstration were "
        "chosen after looking at these readings, and the noise is different at every run."
    )
    return PageSection("How close it came", table + paragraph(f"{verdict} {caveat}"))


def _bounds_section(study: DemoStudy) -> PageSection:
    point, plan = study.chain.without_family(), study.plan
    table = leakage_table(point, plan.query, ages=plan.ages[0], epsilon_c=plan.epsilon_c)
    return PageSection("One release, by every bound (point estimate)", leakage_block(table))


def _model_section(study: DemoStudy, figure: Figure) -> PageSection:
    chain = study.chain
    record = chain.fitted
    assert record is not None
    pairs = [
        ("Sequences", f"{chain.sequences}, with {chain.states} states each: {study.prepared.case.states}"),
        ("A tick", study.prepared.case.tick),
        (
            "Fitted by",
            f"{record.method}, on {record.observations:,} transitions before {study.prepared.data.past_ends}",
        ),
        (
            "Family",
            f"the fit and {record.ensemble} others ({record.ensemble_method}); the largest leakage is certified",
        ),
    ]
    pairs += [("Beware", note) for note in record.warnings]
    return PageSection("The model, fitted to the public past", coupling_block(chain, figure) + definition_list(pairs))


def _quality_section(study: DemoStudy) -> PageSection:
    quality = study.quality
    table = number_table(
        ("model", "nats per transition", "held out"),
        [
            ("this chain", f"{quality.chain:.4f}", f"{quality.held_out_ticks:,} ticks that it did not see"),
            ("independent chains", f"{quality.independent:.4f}", "one for each sequence"),
            ("no past", f"{quality.stationary:.4f}", "frequencies alone"),
        ],
    )
    joint = (
        f"Under joint chains of the groups, whose sequences can change together within a step, one release leaks "
        f"{as_text(study.joint_leakage)}; under the coupled chain {as_text(study.coupled_leakage)}. "
        + (
            "The coupled chain does not model this difference; the certificate holds for the family of coupled "
            "chains, not for joint chains."
            if study.joint_leakage > study.coupled_leakage
            else "The coupled chain gives the larger leakage of the two."
        )
    )
    body = table + paragraph(quality.verdict) + paragraph(joint)
    return PageSection("Does the model explain the data?", body)


def _together_section(study: DemoStudy) -> PageSection:
    together, case = study.together, study.prepared.case
    (one, one_limits), (ever, ever_limits) = together.one_release, together.for_ever
    assert together.chain.fitted is not None
    words = (
        f"The budget of {case.budget:g} is certified for the groups above, taken as independent of each other. If "
        f"every sequence may depend on its two neighbours in the list instead, all {together.chain.sequences} are "
        f"tied. Read backwards, the same releases then leak at most {as_text(one)} (one release) and {as_text(ever)} "
        "(without end) under every process, also one that changes over time, whose influences are at most the fitted "
        f"ones. Under every process within limits that hold together with confidence "
        f"{together.chain.fitted.confidence:g} they leak at most {as_text(one_limits)} and {as_text(ever_limits)}: the "
        f"public past has only {len(study.prepared.past.ticks)} ticks, and limits from a longer one are narrower. "
        "This holds for each such process, not for someone who is unsure which of them is true."
    )
    return PageSection("All sequences together", paragraph(words))


def _frontier_caption(study: DemoStudy) -> str:
    return (
        "Releasing at every tick without end: leakage of the present against the error of the linear estimate, by age, "
        "under the fitted model (it ignores the time of day, so its errors differ from those of the first figure). "
        f"Lines: the point estimate. Star: this plan, certified for the family at {as_text(study.ceiling)}; the point "
        f"estimate alone would allow epsilon_c = {study.point_best.plan.epsilon_c:.3g} instead of "
        f"{study.plan.epsilon_c:.3g}."
    )


def _record_section(study: DemoStudy) -> PageSection:
    data, plan, certificate = study.prepared.data, study.plan, study.published.certificate
    point = as_text(study.point_best.leakage.epsilon)
    pairs = [
        ("Release", f"{plan.query.name}, age {plan.ages[0]}, epsilon_c {plan.epsilon_c:.6g}"),
        ("One release leaks", f"{as_text(plan.certified.epsilon)} ({plan.certified.bound})"),
        ("Without end", f"at most {as_text(study.ceiling)}; for the point estimate at its own noise level {point}"),
        *ledger_facts(certificate),
        ("Readings", f"{data.provenance} Licence: {data.licence}"),
        ("Preparation", data.handling),
        ("Noise", "from the random number generator of the operating system"),
        ("Chain digest", study.chain.digest),
        ("Plan digest", plan.digest),
    ]
    return PageSection("The record", definition_list(pairs))
