"""The pages of the demonstration on flights."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from csdp.aging import Progress
from csdp.bounds.result import as_text, in_words
from csdp.demo.flights import DAY, WRITTEN, FlightsRelease, FlightsStudy, MomentRecord, no_progress, run_flights
from csdp.report import figures
from csdp.report.page import make_environment, percent, write_pages
from csdp.report.series import label_times, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHAT = "share of destinations that are late"
#: Ticks that are drawn: twelve days.
DRAWN = 12 * DAY
#: What goes before a number under a model that the flights do not accept.
_DOUBT = (
    "The flights do not accept the model, as the notice above says, so what follows is an example of what an "
    "accepted model would give (model_unchecked):"
)
#: Hours of a tick.
HOURS = 3


def write_flights_pages(study: FlightsStudy, out: Path, *, version: str) -> list[str]:
    """Draw and write all figures, the pages and summary.json; returns the names of the files, the private page last."""
    write_json(out / "summary.json", study.summary)
    delay_rows = [
        (f"{one.delay} tick{'s' * (one.delay > 1)}", as_text(one.leakage, 3), in_words(one.leakage))
        for one in study.delays
    ]
    pages = write_pages(
        out,
        make_environment("csdp.demo").get_template("flights.html"),
        draw_flights(study),
        study.now.certificate,
        study=study,
        lead=lead(study),
        hours=HOURS,
        delay_rows=delay_rows,
        moment_rows=[_moment_row(one) for one in study.moments],
        version=version,
    )
    return ["summary.json", *pages]


def _moment_row(one: MomentRecord) -> tuple[str, str, str]:
    """A limit on any moment, what the live number is worth under it, and what it reveals of the present."""
    if one.epsilon_c is None or one.leakage is None or one.usefulness is None:
        return f"{one.limit:g}", "0 %", "slow levels alone may reveal more"
    note = f"the present: {as_text(one.leakage, 3)}; noise: epsilon_c {one.epsilon_c:.3g}"
    return f"{one.limit:g}", percent(one.usefulness), note


def lead(study: FlightsStudy) -> tuple[str, str]:
    """What the live number is worth and what it reveals: under any model, and under a model that the data accept."""
    now = study.now
    event = now.certificate["event"].epsilon
    promise = (
        f"everything published, now and in the long run, reveals at most epsilon = {as_text(now.moment, 3)} about any "
        f"one destination at any one moment, past or present ({in_words(now.moment)}), and "
        f"{as_text(now.ceiling, 3)} about its present ({in_words(now.ceiling)}), given the environment (facts about "
        f"it, such as a storm, are not protected). Of both numbers, {as_text(study.slow_levels, 2)} is for levels that "
        "change too slowly for the tests to see."
    )
    worth = (
        f"The published line removes {percent(now.usefulness)} of the squared error of guessing what is usual at that "
        f"hour, and its {percent(now.learned.level)} band contains {percent(now.coverage)} of the true shares. A "
        f"single reading has plain differential privacy with epsilon = {as_text(event, 3)}, under any model: "
        f"{in_words(event)}."
    )
    return worth, promise[0].upper() + promise[1:] if now.plan.verdict.reliable else f"{_DOUBT} {promise}"


def draw_flights(study: FlightsStudy) -> dict[str, Figure]:
    """All figures by name; those whose name ends in "private" show true values."""
    now, late = study.now, study.late
    ticks = study.rest.ticks[:DRAWN].tolist()
    last = ticks[-1]
    days, _ = label_times(ticks, study.rest.times[:DRAWN])

    def draw(release: FlightsRelease, *, private: bool) -> Figure:
        return figures.release_figure(
            [one for one in release.shown if one.tick <= last],
            what=WHAT,
            truth=[one for one in release.truth if one.tick <= last] if private else (),
            usual=[pair for pair in release.usual if pair[0] <= last],
            days=days,
        )

    drawn = [one for one in now.leakage if one.tick <= last]
    return {
        "release": draw(now, private=False),
        "private": draw(now, private=True),
        "belief": figures.belief_figure(drawn, ceiling=now.ceiling, days=days),
        "late": draw(late, private=False),
        "late-private": draw(late, private=True),
    }


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
