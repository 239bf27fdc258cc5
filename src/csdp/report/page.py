"""Pages: HTML files without scripts or network, for screen and paper, and the report of a dataset from its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from csdp.bounds.result import as_text, chance, in_words, with_chance
from csdp.errors import CsdpError, InputError
from csdp.estimate.moments import moments
from csdp.ledger import Ledger
from csdp.ledger.records import TickGrid
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Release, Standing
from csdp.report import figures, series
from csdp.report.certificate import UNPAID_WORDS, Certificate, certify
from csdp.report.series import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The notice at the top of a page that draws true values.
PRIVATE = (
    "Contains private data: the true values are drawn on this page. Do not pass it on; share.html is the same without "
    "them."
)
#: Number of the newest ticks that a figure shows.
DRAWN = 400

#: Words of a report, as the glossary of the documentation has them.
GLOSSARY = {
    "sequence": "a person or thing whose state changes over time, and whose present state is protected",
    "tick": "one step of time; all sequences share the ticks",
    "reading": "the state of one sequence at one tick",
    "release": "what is published at one tick: a number with noise, and an estimate with a band",
    "estimate": "the best guess of the true number that can be made from what was published; it costs no more privacy",
    "model": "how likely each next state is, given the present ones; it was fitted or declared",
    "adversary": "an attacker who tries to find out a present state, and what they are assumed to know",
    "epsilon": "how much is revealed at most: the odds between two possibilities change by at most a factor of "
    "e^epsilon. 0.1 is a change of 11 %, 1 a factor of 2.7",
    "the present": "what everything published so far reveals about the state that a sequence is in now",
    "any moment": "what everything published, before and after it, reveals about the state that a sequence was in at "
    "any one tick, past or present, if the model holds",
    "event": "what the releases reveal about one single reading, whatever the model",
    "window": "the same about any so many readings in a row of one sequence, a day for instance, if a window is named",
    "group": "what they reveal about all readings of sequences that depend on each other, together",
    "budget": "the most that may be revealed about the present at any time; a release that would exceed it is refused",
    "ledger": "the record in which every release is charged before any data is read",
}


def percent(share: float) -> str:
    """A share in words.

    >>> percent(0.884)
    '88 %'
    """
    return f"{100 * share:.0f} %"


def _inline_svg(figure: Figure, name: str, description: str) -> Markup:
    return Markup(figures.inline_svg(figure, name=name, description=description))  # drawn here: nothing to escape


def make_environment(package: str) -> Environment:
    """The templates of a package, which may extend those of reports; everything they insert is escaped."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("csdp.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["glossary"] = GLOSSARY
    environment.filters |= {
        "as_text": as_text,
        "chance": chance,
        "day": lambda time: str(time)[:10],
        "in_words": in_words,
        "joined": lambda text: text.replace(" %", "\u00a0%"),  # percent signs stay on the line of their numbers
        "percent": percent,
        "sentence": lambda text: text[:1].upper() + text[1:],
        "svg": _inline_svg,
        "with_chance": with_chance,
    }
    return environment


def write_pages(
    out: Path,
    template: Template,
    drawings: Mapping[str, Figure],
    certificate: Certificate,
    **content: Any,
) -> list[str]:
    """Write share.html, index.html if there are private figures, and the other figures; returns the names of the files.

    Args:
        out: Folder to write to.
        template: The page.
        drawings: Figures by name; those whose name ends in "private" are drawn on index.html only.
        certificate: If the data do not accept its model, both pages say so first.
        content: What else the template needs.
    """
    names = [f"{name}.{kind}" for name in drawings if not name.endswith("private") for kind in ("svg", "png")]
    for name in names:
        figures.save_figure(drawings[name.partition(".")[0]], out / name)
    notices = [_doubt(certificate)] if certificate.promises[0].name != "present" else []
    notices += [words for words in certificate.not_promised if words == UNPAID_WORDS]
    pages = {"share.html": False, **({"index.html": True} if "private" in drawings else {})}
    for name, private in pages.items():
        text = template.render(
            drawings=drawings,
            certificate=certificate,
            private=private,
            notices=[*notices, PRIVATE] if private else notices,
            **content,
        )
        (out / name).write_text(text + "\n", encoding="utf-8")
    return [*names, *pages]


def _doubt(certificate: Certificate) -> str:
    """What a reader of a page must know first if the data do not accept the model, or if there is none."""
    if certificate.model["status"] == "none":
        return f"{certificate.model['words']} It holds under any model; nothing is promised about the present."
    event = certificate["event"].epsilon
    return (
        f"{certificate.model['words']} Rely on the event level alone, epsilon {as_text(event)} ({in_words(event)}): it "
        "holds under any model. Every other epsilon on this page is an example."
    )


# ---- the report of a ledger ----------------------------------------------------------------------------------------


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
    timezone: str | None = None,
) -> LedgerReport:
    """Write the report of a dataset from its ledger. Nothing is published or charged.

    Args:
        where: The ledger, a SQLite file or a URL.
        folder: Folder to write share.html, the figures and the certificate to.
        dataset: Name of the dataset; plan and limits are those in the ledger.
        version: Version of csdp for the footer.
        panel: States of readings; with them a private page index.html is written too.
        timezone: Zone of the times on the axes.
    """
    with Ledger.open(where, read_only=True) as ledger:
        terms, summary = ledger.dataset(dataset).terms, ledger.summary(dataset)
        plan, budget = Plan.from_json(terms.plan_json), terms.limits.budget
        standing = Standing(ledger, dataset, plan=plan)
        certificate = certify(standing, ledger)
        leakages = series.leakage_records(standing, ledger)[-DRAWN:]
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
    drawings = _draw_ledger(plan, releases, leakages, budget, panel, days)
    names = write_pages(
        out,
        make_environment("csdp.report").get_template("ledger.html"),
        drawings,
        certificate,
        plan=plan,
        budget=budget,
        has_model=plan.verdict.status != "none",
        drawn=DRAWN,
        version=version,
    )
    return LedgerReport(certificate, tuple(out / name for name in ("certificate.json", *names)))


def _draw_ledger(
    plan: Plan,
    releases: list[Release],
    leakages: list[series.LeakageRecord],
    budget: float | None,
    panel: Panel | None,
    days: tuple[list[tuple[int, str]], str],
) -> dict[str, Figure]:
    model = plan.model
    released = series.release_records(releases)
    what = plan.query.output_names(model.names, model.value_table)[0]
    usual = _long_run_mean(plan, released)
    labels, axis = days

    def draw_release(truth: Sequence[series.TruthRecord]) -> Figure:
        return figures.release_figure(released, what=what, truth=truth, usual=usual, days=labels, axis=axis)

    drawings = {"release": draw_release(())}
    if plan.verdict.status != "none":  # without a model nothing is said of the present
        drawings["history"] = figures.leakage_history_figure(leakages, budget=budget, days=labels, axis=axis)
    if panel is not None:
        first, last = released[0].tick, released[-1].tick
        truth = [record for record in series.truth_records(plan, panel) if first <= record.tick <= last]
        if not truth:
            raise InputError("data: none of its ticks was published; give the readings of this dataset")
        drawings["private"] = draw_release(truth)
    return drawings


def _label_axis(
    ticks: range, panel: Panel | None, timezone: str | None, grid: TickGrid
) -> tuple[list[tuple[int, str]], str]:
    """Times to write on the axis of ticks: as read, or those of the grid where it is that of the wall clock."""
    if panel is not None:
        place = [i for i, tick in enumerate(panel.ticks.tolist()) if tick in ticks]
        if place:
            return series.label_times(panel.ticks[place].tolist(), panel.times[place], timezone=timezone)
    if grid.step is None:
        return [], ""
    seconds = np.array(ticks, dtype=np.int64) * grid.step + grid.origin
    return series.label_times(list(ticks), seconds.astype("datetime64[s]"), timezone=timezone)


def _long_run_mean(plan: Plan, released: Sequence[series.ReleaseRecord]) -> list[tuple[int, float]]:
    """What the model expects without any release, from the first tick to the last; none if it cannot be computed."""
    try:
        usual = moments(plan.model, plan.query, ages=plan.ages).usual[1][:, 0].tolist()
    except CsdpError:
        return []
    ends = [released[0].tick, released[-1].tick]
    ticks = ends if len(usual) == 1 else range(ends[0], ends[1] + 1)
    return [(tick, usual[tick % len(usual)]) for tick in ticks]
