"""The pages of the demonstration on flights: every caption and sentence is computed from its records."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from csdp.aging import Progress
from csdp.bounds.result import as_text, chance, in_words, with_chance
from csdp.report import figures
from csdp.report.files import write_json
from csdp.report.flights import DAY, LATE_BUDGETS, WRITTEN, FlightsRelease, FlightsStudy, no_progress, run_flights
from csdp.report.page import (
    PageSection,
    definition_list,
    figure_block,
    guarantees_section,
    ledger_facts,
    number_table,
    paragraph,
    percent,
    save_report,
)
from csdp.report.records import LeakageRecord, day_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "How many destinations have late flights, published without revealing any single one of them"
WHAT = "share of destinations that are late"
#: Ticks that are drawn: twelve days.
DRAWN = 12 * DAY
#: What goes before a number under a model that the flights do not accept.
_DOUBT = (
    "The flights do not accept the model, as the notice above says, so the leakage of the present is an example of "
    "what an accepted model would give (model_unchecked):"
)
#: Hours of a tick.
HOURS = 3


def write_flights_pages(study: FlightsStudy, out: Path, *, version: str) -> list[str]:
    """Draw and write all figures, the pages and summary.json; returns the names of the files, the private page last."""
    drawings = draw_flights(study)
    shared = [
        _release_section(study, drawings["release"]),
        _belief_section(study, drawings["belief"]),
        _late_section(study, drawings["late"]),
        guarantees_section(study.now.certificate),
        _model_section(study),
        _record_section(study),
    ]
    private = [*shared]
    private[0], private[2] = (
        _release_section(study, drawings["private"]),
        _late_section(study, drawings["late-private"]),
    )
    write_json(out / "summary.json", study.summary)
    footer = f"csdp {version}, chain digest {study.chain.digest[:16]}"
    texts = {"title": TITLE, "lead": lead(study), "footer": footer}
    pages = save_report(out, drawings, shared, private, certificate=study.now.certificate, **texts)
    return ["summary.json", *pages]


def lead(study: FlightsStudy) -> str:
    """What the live number is worth and what it reveals: under any model, and under a model that the data accept."""
    now = study.now
    event = now.certificate["event"].epsilon
    present = (
        f"everything published, now and in the long run, reveals at most epsilon = {as_text(now.ceiling, 3)} about the "
        f"present of any one destination: {in_words(now.ceiling)}. This holds for each of "
        f"{len(now.plan.chain.members)} plausible models, given the environment (facts about it, such as a storm, are "
        "not protected)."
    )
    return (
        f"The published line removes {percent(now.usefulness)} of the squared error of guessing what is usual at that "
        f"hour, and its {percent(now.learned.level)} band contains {percent(now.coverage)} of the true shares. A "
        f"single reading has plain differential privacy with epsilon = {as_text(event, 3)}, under any model: "
        f"{in_words(event)}.\n\n"
        + (present[0].upper() + present[1:] if now.plan.verdict.reliable else f"{_DOUBT} {present}")
    )


def draw_flights(study: FlightsStudy) -> dict[str, Figure]:
    """All figures by name; those whose name ends in "private" show true values."""
    now, late = study.now, study.late
    ticks = study.rest.ticks[:DRAWN].tolist()
    last = ticks[-1]
    days = day_names(ticks, study.rest.times[:DRAWN].astype(str).tolist())

    def draw(release: FlightsRelease, *, private: bool) -> Figure:
        return figures.release_figure(
            [one for one in release.shown if one.tick <= last],
            what=WHAT,
            truth=[one for one in release.truth if one.tick <= last] if private else (),
            usual=[pair for pair in release.usual if pair[0] <= last],
            days=days,
        )

    drawn: list[LeakageRecord] = [one for one in now.leakage if one.tick <= last]
    return {
        "release": draw(now, private=False),
        "private": draw(now, private=True),
        "belief": figures.belief_figure(drawn, ceiling=now.ceiling, days=days),
        "late": draw(late, private=False),
        "late-private": draw(late, private=True),
    }


def _release_section(study: FlightsStudy, figure: Figure) -> PageSection:
    now = study.now
    caption = (
        f"Dots: what was published every {HOURS} hours, at once, with noise (epsilon_c {now.plan.epsilon_c:.2g}: about "
        f"one old reading {in_words(now.plan.epsilon_c)}). Line and band: the estimate published with it, from the "
        f"last {now.learned.estimator.memory} releases and what is usual at that hour "
        f"({study.past.times[0].astype(str)[:10]} to {study.past.times[-1].astype(str)[:10]}, public). "
        f"Dashed: what is usual, without any release. On {len(now.batch):,} ticks the error (root mean square) was "
        f"{now.error**0.5:.3f} with the releases and {now.no_data**0.5:.3f} without."
    )
    words = "Published share of late destinations and its estimate, against what is usual"
    return PageSection("Now, with noise", figure_block(figure, caption, name="release", description=words))


def _belief_section(study: FlightsStudy, figure: Figure) -> PageSection:
    now = study.now
    caption = (
        "How sure an attacker can become, at most, that one destination is late (or that it is on time). The attacker "
        "thought both equally likely before, knows the model, the environment and the present of all other "
        "destinations, and sees everything published. Without releases it stays at 50 %."
    )
    rows = [
        ("nothing is published", "50 %", "the attacker's guess stays what it was"),
        (
            "these releases, for ever",
            chance(now.ceiling),
            "certified, for each of the plausible models",
        ),
        ("the same numbers without noise", "100 %", "an attacker who knows all others subtracts them from the sum"),
    ]
    block = figure_block(figure, caption, name="belief", description="The attacker's belief by tick")
    table = number_table(("what is published", "belief at most", "reason"), rows)
    return PageSection("What an attacker can believe", block + table)


def _late_section(study: FlightsStudy, figure: Figure) -> PageSection:
    late = study.late
    delay = late.plan.max_age
    caption = (
        f"The same number published {delay} ticks ({delay * HOURS} hours of operation) later, drawn at the time it is "
        f"about, with little noise (epsilon_c {late.plan.epsilon_c:g}): its error was {late.error**0.5:.3f}, it "
        f"removes {percent(late.usefulness)} of the squared error of guessing the usual value, and tells at most "
        f"{with_chance(late.ceiling, 3)} about the present. It is published instead of the live "
        "number, not in addition to it: both together would tell more."
    )
    rows = [
        (
            f"{one.delay} tick{'s' * (one.delay > 1)}",
            as_text(one.family, 3),
            f"{in_words(one.family)}; for the fitted model alone {with_chance(one.point, 3)}",
        )
        for one in study.delays
    ]
    table = number_table(("held back", "epsilon, for ever", "what it means"), rows)
    delays = [(budget, study.least_delay(budget)) for budget in LATE_BUDGETS]
    answers = "; ".join(
        f"at {with_chance(budget)} "
        + ("longer than was tried" if ticks is None else f"{ticks} ticks ({ticks * HOURS} hours)")
        for budget, ticks in delays
    )
    words = "Published share of late destinations, held back, against what is usual"
    block = figure_block(figure, caption, name="late", description=words)
    title = "Or later, nearly without noise"
    question = "How long must these numbers be held back to keep the leakage of the present below a limit?"
    return PageSection(title, block + paragraph(f"{question} {answers[:1].upper()}{answers[1:]}.") + table)


def _model_section(study: FlightsStudy) -> PageSection:
    record = study.chain.fitted
    assert record is not None
    ((_, gain, error),) = record.gains
    pairs = [
        ("Sequences", f"{study.chain.sequences} destinations, on time or late (more than 34 % of departures late)"),
        ("A tick", f"{HOURS} hours between 06:00 and 21:00; the night counts as one step"),
        ("Environments", f"{record.environments}, hidden: in each of them every destination has a chain of its own"),
        ("Gain", f"{gain:.2f} nats a tick over independent chains on readings set aside (standard error {error:.2f})"),
        (
            "Family",
            f"the fit and {record.ensemble} others ({record.ensemble_method}); the largest leakage is certified",
        ),
        ("Checks", study.quality.verdict),
        *(("Beware", note) for note in record.warnings),
    ]
    return PageSection.detail("The model and its fit to the public past", definition_list(pairs))


def _record_section(study: FlightsStudy) -> PageSection:
    data = study.data
    pairs = [
        *ledger_facts(study.now.certificate),
        ("Readings", f"{data.provenance} Licence: {data.licence}"),
        ("How the data were prepared", data.handling),
    ]
    return PageSection.detail("The record", definition_list(pairs))


@dataclass(frozen=True)
class FlightsDemo:
    """The results of the demonstration on flights, and the files it wrote."""

    study: FlightsStudy
    files: tuple[Path, ...]


def run_flights_demo(folder: str | PathLike[str], *, version: str, progress: Progress | None = None) -> FlightsDemo:
    """Fit to the public past, plan, publish, and write figures, series, certificates, ledgers and two pages.

    Running it again in the same folder publishes the same values, which are in the ledgers.

    Args:
        folder: Folder to write to; created if it does not exist.
        version: Version of csdp for the footer.
        progress: Called with what is done, how much, and the total.
    """
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    study = run_flights(out, progress or no_progress)
    names = [*WRITTEN, *write_flights_pages(study, out, version=version)]
    return FlightsDemo(study, tuple(out / name for name in names))
