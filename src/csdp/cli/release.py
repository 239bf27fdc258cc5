"""`csdp release`: publish a query of a file of readings, through the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.cli import inputs
from csdp.cli.output import console, printable, progress_bar
from csdp.errors import BudgetExceeded, InputError

if TYPE_CHECKING:
    from csdp.ledger import Ledger
    from csdp.panel import Panel
    from csdp.plan import Plan
    from csdp.publisher import Publisher, Release, Skipped
    from csdp.report.certificate import Certificate
    from csdp.report.series import Series


def release(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA.csv|.parquet",
            help="Readings: a column `time` and one per sequence, or the columns time, sequence and value.",
        ),
    ],
    dataset: Annotated[str, typer.Option(help="Name of the dataset in the ledger; the same readings, the same name.")],
    ledger: Annotated[str, typer.Option(metavar="FILE|URL", help="The ledger: a SQLite file, or postgresql://...")],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.csv|.parquet|.json",
            help="Where to write the released series; the certificate goes to OUT.certificate.json.",
        ),
    ],
    chain: Annotated[
        str | None, typer.Option(metavar="CHAIN.json", help="The model, as `csdp chain new` writes it.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            help="mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,...", show_default="mean"
        ),
    ] = None,
    age: Annotated[
        int | None, typer.Option(help="How many steps old the published data is, for all sequences.")
    ] = None,
    ages: Annotated[str | None, typer.Option(metavar="A1,A2,...", help="One age per sequence.")] = None,
    epsilon_c: Annotated[
        float | None, typer.Option(help="Noise level of every release; smaller means more noise.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN.json",
            help="A plan as Plan.to_json writes it, in the place of --chain, --query, --age, --ages, --epsilon-c, "
            "--adversary and --stale-limit.",
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Ceiling for the leakage of the present, at every moment.")
    ] = None,
    event_limit: Annotated[
        float | None, typer.Option(help="Limit for the plain differential privacy of one reading.")
    ] = None,
    lifetime_limit: Annotated[
        float | None, typer.Option(help="Limit for what all releases together tell of one reading.")
    ] = None,
    adversary: Annotated[
        Literal["informed", "uninformed", "any"] | None,
        typer.Option(
            help="Who knows, beside the model: every other present value, none, or any part of them.",
            show_default="informed",
        ),
    ] = None,
    stale_limit: Annotated[
        int | None,
        typer.Option(help="Steps by which a missing reading may be replaced by an older one.", show_default="0"),
    ] = None,
    outside: Annotated[
        Literal["refuse", "clamp"],
        typer.Option(help="Readings that are no value of the model: refuse the file, or take the nearest value."),
    ] = "refuse",
    step: Annotated[
        int | None,
        typer.Option(help="Time between two ticks (seconds for timestamps).", show_default="found in the file"),
    ] = None,
    on_refusal: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="Where a limit would be passed: stop (exit code 3), or leave out the tick and go on."),
    ] = "raise",
) -> None:
    """Publish a noisy, aged statistic of a file of readings, never above the limits of its dataset.

    \b
    Example:
      csdp chain simulate chain.json --steps 200 --seed 1 -o readings.csv
      csdp release readings.csv --chain chain.json --query mean --age 2 --epsilon-c 1 --budget 0.5 \
--dataset ward-7 --ledger ledger.db -o released.csv

    Every release is charged in the ledger before data is touched. Running the same command again writes the same
    values and charges nothing. Exit codes: 0 done; 2 bad input, nothing released; 3 refused by a limit, and what was
    published before is written.
    """
    from csdp.ledger import Ledger
    from csdp.panel import read_panel
    from csdp.publisher import Publisher
    from csdp.report import files, series

    out = Path(output)
    series.check_kind(out)
    if out.resolve() == Path(data).resolve():
        raise InputError("output: this would overwrite the readings; give another name")
    certificate_path = out.with_name(out.name + ".certificate.json")
    chosen = _plan(plan, chain, query, age, ages, epsilon_c, adversary, stale_limit)
    model = chosen.model
    panel = read_panel(data, names=model.names, values=model.value_table, step=step, outside=outside)
    for path in (out, certificate_path):
        files.ensure_writable(path)
    with (
        Ledger.open(ledger) as book,
        Publisher(
            chosen,
            dataset=dataset,
            ledger=book,
            budget=budget,
            event_limit=event_limit,
            lifetime_limit=lifetime_limit,
            time_step=panel.step,
            on_refusal=on_refusal,
        ) as publisher,
    ):
        before = book.summary(dataset).reserved
        released, refusal = _publish(publisher, book, panel)
        series.write_series(released, out)
        certificate = _certified(publisher, book, released.skipped)
        files.write_json(certificate_path, certificate.to_dict())
        fresh = book.summary(dataset).reserved - before
    _show(released, certificate, out, certificate_path, fresh=fresh, total=len(panel))
    if refusal is not None:
        raise refusal


def _plan(
    plan: str | None,
    chain: str | None,
    query: str | None,
    age: int | None,
    ages: str | None,
    epsilon_c: float | None,
    adversary: Literal["informed", "uninformed", "any"] | None,
    stale_limit: int | None,
) -> Plan:
    """The plan of the file, or the one that the options describe."""
    from csdp.plan import Plan
    from csdp.queries import parse_query

    options = {
        "--chain": chain,
        "--query": query,
        "--age": age,
        "--ages": ages,
        "--epsilon-c": epsilon_c,
        "--adversary": adversary,
        "--stale-limit": stale_limit,
    }
    if plan is not None:
        both = [name for name, value in options.items() if value is not None]
        if both:
            raise InputError(f"plan: the file says it all; leave out {', '.join(both)}")
        return inputs.read_plan(plan)
    if chain is None:
        raise InputError("chain: give --chain with --age and --epsilon-c, or --plan")
    if (age is None) == (ages is None):
        raise InputError("age: give --age for all sequences, or --ages with one each")
    if epsilon_c is None:
        raise InputError("epsilon-c: give --epsilon-c, the noise level of every release")
    return Plan(
        inputs.read_chain(chain),
        parse_query(query or "mean"),
        age if ages is None else inputs.whole_numbers("ages", ages),
        epsilon_c,
        adversary=adversary or "informed",
        stale_limit=stale_limit or 0,
    )


def _publish(publisher: Publisher, book: Ledger, panel: Panel) -> tuple[Series, BudgetExceeded | None]:
    """Publish the panel; where a limit ends it, what the ledger has published of it so far."""
    from csdp.publisher import Release
    from csdp.report.series import Series

    refusal: BudgetExceeded | None = None
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...] = ()
    with progress_bar() as tell:
        progress = None if tell is None else lambda done, total: tell("releasing", done, total)
        try:
            batch = publisher.publish(panel, progress=progress)
            releases, skipped = batch.releases, batch.skipped
        except BudgetExceeded as error:
            refusal = error
            ticks, name = set(panel.ticks.tolist()), publisher.plan.query.name
            found = (p for p in book.published(publisher.dataset) if p.tick in ticks and p.query == name)
            releases = tuple(sorted(map(Release.of, found), key=lambda r: r.tick))
    return Series.of(publisher.plan, panel, releases, skipped), refusal


def _certified(publisher: Publisher, book: Ledger, skipped: tuple[Skipped, ...]) -> Certificate:
    from csdp.report.certificate import certify

    return certify(publisher, book, skipped=skipped)


def _show(released: Series, certificate: Certificate, out: Path, beside: Path, *, fresh: int, total: int) -> None:
    """For people: what was written, the guarantees side by side, and what is not promised."""
    screen = console()
    count = len(released.releases)
    screen.print(
        f"{out}: {count:,} of {total:,} ticks of {printable(certificate.dataset)} published, {fresh:,} of them charged "
        "now",
        soft_wrap=True,
    )
    for reason, ticks in certificate.counts["without_output"].items():
        screen.print(f"  {ticks:,} without output: {reason}", soft_wrap=True)
    screen.print(promises_table(certificate))
    screen.print("Not promised:")
    for words in certificate.not_promised:
        screen.print(f"  - {words}", soft_wrap=True)
    screen.print(f"To quote: {printable(certificate.sentence)}", soft_wrap=True)
    screen.print(f"{beside}: certificate, ledger head {certificate.ledger['head_hash'][:16]}", soft_wrap=True)


def promises_table(certificate: Certificate) -> object:
    """The guarantees side by side."""
    from rich.table import Table

    from csdp.leakage import shown

    table = Table(title="What is promised", title_justify="left")
    table.add_column("guarantee", no_wrap=True)
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("never above", justify="right", no_wrap=True)
    table.add_column("protects")
    for promise in certificate.promises:
        ceiling = "grows" if promise.ceiling is None else shown(promise.ceiling)
        table.add_row(promise.name, shown(promise.epsilon), ceiling, f"{promise.protects}; {promise.holds}")
    return table
