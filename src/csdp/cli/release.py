"""`csdp release`: publish a statistic of a file of readings, charged in a ledger."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.bounds.result import as_text, chance
from csdp.cli import options
from csdp.cli.terminal import Format, print_json, print_lines, print_table, printable, progress_bar, verdict_first
from csdp.errors import BudgetExceeded, InputError, NotUsefulError
from csdp.estimate import LearnedEstimator
from csdp.estimate.result import about_words
from csdp.files import ensure_writable
from csdp.panel import Panel
from csdp.report.certificate import Certificate, certify

if TYPE_CHECKING:
    from csdp.estimate import Error, Estimator
    from csdp.ledger import Ledger
    from csdp.plan import Plan
    from csdp.planning.plan_file import PlanFile
    from csdp.publisher import Publisher, Release, Skipped

logging.getLogger("csdp.publisher").addHandler(logging.NullHandler())  # the command prints what it warns of


def release(
    data: Annotated[str, options.DATA],
    plan: Annotated[str, typer.Option(metavar="PLAN.json", help="Plan file written by `csdp plan` or `csdp suggest`.")],
    ledger: Annotated[str, typer.Option(metavar="FILE|URL", help="Ledger: a SQLite file or a postgresql:// URL.")],
    dataset: Annotated[str, options.DATASET],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.csv|.json",
            help="File to write the released series to; the certificate is written to OUT.certificate.json.",
        ),
    ],
    budget: Annotated[float | None, options.BUDGET] = None,
    moment_limit: Annotated[float | None, options.MOMENT_LIMIT] = None,
    event_limit: Annotated[float | None, options.EVENT_LIMIT] = None,
    window: Annotated[int | None, options.WINDOW] = None,
    window_limit: Annotated[float | None, options.WINDOW_LIMIT] = None,
    model_unchecked: Annotated[
        bool,
        typer.Option(
            "--model-unchecked",
            help="Publish although the data reject the model, or did not test it: every output says so and leads with "
            "the event level, which holds under any model.",
        ),
    ] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Go on although less than 5 % of the squared error of guessing the usual value is removed (exit code "
            "6).",
        ),
    ] = False,
    on_refusal: Annotated[
        Literal["raise", "skip"],
        typer.Option(
            help="If a release would exceed a limit: stop with exit code 3 (raise), or leave out the tick (skip)."
        ),
    ] = "raise",
    simulated_times: Annotated[
        bool,
        typer.Option(
            "--simulated-times",
            help="Treat timestamps as simulated: publish also ticks that lie in the future. The certificate says so.",
        ),
    ] = False,
    form: Annotated[Format, options.FORMAT] = "table",
) -> None:
    """Publish a file of readings by a plan: noisy, aged, and within the limits of its dataset.

    \b
    Example:
      csdp chain simulate chain.json --steps 200 --seed 1 -o readings.csv
      csdp plan chain.json --about then --budget 0.5 --max-error 0.1 -o plan.json
      csdp release readings.csv --plan plan.json --budget 0.5 --dataset ward-7 --ledger ledger.db -o released.csv

    Ticks of the plan's public past are not published. With timestamps, a tick is published once the wall clock has
    passed its end. Every release is charged in the ledger before it is computed. Running the same command again writes
    the same values and charges nothing. Exit codes: 0 done; 2 bad input, nothing released; 3 refused by a limit, what
    was published before is written; 6 hardly worth releasing, nothing charged (--anyway).
    """
    from csdp.ledger import Ledger
    from csdp.planning import check_useful
    from csdp.planning.plan_file import PlanFile
    from csdp.publisher import Publisher
    from csdp.report.series import Series, check_kind, write_json, write_series

    out = Path(output)
    certificate_path = out.with_name(out.name + ".certificate.json")
    check_kind(out)
    for path in (out, certificate_path):
        ensure_writable(path)
    for read in (data, plan, ledger):
        if out.resolve() == Path(read).resolve():
            raise InputError(f"output: this would overwrite {read}, which is read; give another name")
    stored = PlanFile.load(plan)
    chosen, estimating = stored.plan, stored.estimator
    expected = None if estimating is None else estimating.expected(chosen.noise_variance)
    if expected is not None and not anyway:
        try:
            check_useful(chosen, expected)
        except NotUsefulError as stop:
            stop.add_note("or --anyway")
            raise
    readings = _read_rest(data, stored)
    stamped = readings.times.dtype.kind == "M"  # the wall clock can check timestamps, but not plain numbers
    with Ledger.open(ledger) as book:
        book.hold(dataset)
        with Publisher(
            chosen,
            dataset=dataset,
            ledger=book,
            budget=budget,
            moment_limit=moment_limit,
            event_limit=event_limit,
            window=window,
            window_limit=window_limit,
            time_step=readings.step,
            times="wall" if stamped and not simulated_times else "data",
            on_refusal=on_refusal,
            model_unchecked=model_unchecked,
            estimator=estimating,
        ) as publisher:
            releases, skipped, refusal = _publish(publisher, book, readings)
            write_series(Series.of(chosen, readings, releases, skipped), out)
            certificate = certify(publisher, book, skipped=skipped)
            write_json(certificate_path, certificate.to_dict())
    counts = {
        "published": len(releases),
        "charged_now": publisher.charged,
        "recorded": publisher.recorded,
        "ticks": len(readings.ticks),
        "lost": sum(skip.why == "lost" for skip in skipped),
    }
    if form == "json":
        files_written = {"output": str(out), "certificate_file": str(certificate_path)}
        print_json({**files_written, **counts, "certificate": certificate.to_dict()})
    else:
        print_lines(verdict_first(chosen.verdict, *_describe_worth(chosen, estimating, expected)))
        _print_release(certificate, out, certificate_path, counts)
    if refusal is not None:
        raise refusal


def _describe_worth(plan: Plan, estimator: Estimator | None, expected: Error | None) -> list[str]:
    """What the estimates are worth."""
    if estimator is None or expected is None:
        return ["No estimate: the moments of the model are out of reach, so what a release is worth is unknown."]
    level = estimator.level
    bands = "no bands: plan with --past" if level is None else f"bands are to hold {100 * level:g} % of the truths"
    about = about_words(estimator.about, plan.max_age)
    worth = f"The estimate {expected.in_words} ({about}; {estimator.kind}, by {expected.how}); {bands}."
    return [worth, f"Estimate: {estimator.in_words}."] if isinstance(estimator, LearnedEstimator) else [worth]


def _read_rest(data: str, stored: PlanFile) -> Panel:
    """Read the readings that follow the plan's public past."""
    panel = options.read_states(options.locate(data), stored.plan.model, stored.discretiser)
    if stored.until is None:
        return panel
    _, rest = options.split_panel(panel, stored.until)
    if not len(rest):
        raise InputError(
            f"{data}: no ticks follow {stored.until}, the end of the plan's public past; there is nothing to publish"
        )
    return rest


def _publish(
    publisher: Publisher, book: Ledger, readings: Panel
) -> tuple[tuple[Release, ...], tuple[Skipped, ...], BudgetExceeded | None]:
    """Publish the readings; if a limit stops it, return what was published of them so far, and the refusal."""
    from csdp.publisher import Release

    with progress_bar() as update:
        progress = None if update is None else lambda done, total: update("releasing", done, total)
        try:
            batch = publisher.publish(readings, progress=progress)
            return batch.releases, batch.skipped, None
        except BudgetExceeded as error:
            ticks, query = set(readings.ticks.tolist()), publisher.plan.query.name
            recorded = book.published(publisher.dataset)
            published = [Release.of(one) for one in recorded if one.tick in ticks and one.query == query]
            return tuple(sorted(published, key=lambda release: release.tick)), (), error


def _print_release(certificate: Certificate, out: Path, certificate_path: Path, counts: dict[str, int]) -> None:
    """Print what was written, the guarantees, and what is not promised."""
    lines = [
        f"wrote {out}: {counts['published']:,} of {counts['ticks']:,} ticks of {printable(certificate.dataset)} "
        f"published, {counts['charged_now']:,} of them charged now"
    ]
    if counts["recorded"]:
        lines.append(
            f"  {counts['recorded']:,} were recorded before: their numbers stay, whatever the readings are now"
        )
    without_output = certificate.counts["without_output"].items()
    print_lines([*lines, *(f"  {ticks:,} without output: {reason}" for reason, ticks in without_output)])
    print_guarantees(certificate)
    print_lines(
        [
            certificate.protects["words"],
            "Not promised:",
            *(f"  - {words}" for words in certificate.not_promised),
            f"To quote: {printable(certificate.sentence)}",
            f"wrote {certificate_path}: certificate, ledger head {certificate.ledger['head_hash'][:16]}",
        ]
    )


def print_guarantees(certificate: Certificate) -> None:
    """Print the guarantees of a certificate, one per row."""
    rows = [
        (
            promise.title,
            as_text(promise.epsilon),
            chance(promise.epsilon),
            "grows" if promise.grows or promise.ceiling is None else as_text(promise.ceiling),
            f"{promise.protects}; {promise.holds}",
        )
        for promise in certificate.promises
    ]
    columns = ("guarantee", "epsilon", "50 % guess", "never above", "protects")
    print_table("What is promised, and what a 50 % guess about it becomes at most", columns, rows)
