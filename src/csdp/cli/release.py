"""`csdp release`: publish a query of a file of readings, through the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.cli import inputs
from csdp.cli.output import Format, console, printable, progress_bar, show_json
from csdp.errors import BudgetExceeded, InputError
from csdp.panel import Panel

if TYPE_CHECKING:
    from csdp.ledger import Ledger
    from csdp.plan import Plan
    from csdp.publisher import Publisher, Release, Skipped
    from csdp.report.certificate import Certificate
    from csdp.report.series import Series
    from csdp.tables import Engine, EngineSource

#: Outputs above which an engine writes a long table, one row per tick and output.
WIDE = 1000


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
    discretiser: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Makes states of the readings; by default they are values of the model."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(help="Time between two ticks (seconds for timestamps).", show_default="found in the file"),
    ] = None,
    on_refusal: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="Where a limit would be passed: stop (exit code 3), or leave out the tick and go on."),
    ] = "raise",
    engine: Annotated[
        Literal["memory", "duckdb", "spark"],
        typer.Option(help="What reads the file: memory; duckdb, for more than fits; spark, for clusters."),
    ] = "memory",
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master, such as local[2] or spark://host:7077.")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What DuckDB may hold in memory, such as 4GB; the rest is spilled."),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Words for people, or JSON: what was written, and the certificate.")
    ] = "table",
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
    from csdp.publisher import Publisher
    from csdp.report import files, series

    out = Path(output)
    kind = series.check_kind(out)
    if out.resolve() == Path(data).resolve():
        raise InputError("output: this would overwrite the readings; give another name")
    certificate_path = out.with_name(out.name + ".certificate.json")
    chosen = _plan(plan, chain, query, age, ages, epsilon_c, adversary, stale_limit)
    with _reading(data, chosen, engine, step, outside, master, memory_limit, discretiser) as (readings, source):
        wide = engine != "memory" and chosen.query.name == "identity" and chosen.model.sequences > WIDE
        if wide and kind != ".parquet":
            raise InputError(
                f"output: {chosen.model.sequences:,} values at every tick; give a name that ends in .parquet"
            )
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
                time_step=readings.step,
                on_refusal=on_refusal,
            ) as publisher,
        ):
            before = book.summary(dataset).reserved
            released, refusal = _publish(publisher, book, source, readings, wide=wide)
            count = _written(released, publisher, book, readings, out, wide=wide)
            certificate = _certified(publisher, book, released.skipped)
            files.write_json(certificate_path, certificate.to_dict())
            fresh = book.summary(dataset).reserved - before
        told = {"published": count, "charged_now": fresh, "ticks": len(readings.ticks)}
        if form == "json":
            files_written = {"output": str(out), "certificate_file": str(certificate_path)}
            show_json({**files_written, **told, "certificate": certificate.to_dict()})
        else:
            _show(certificate, out, certificate_path, told)
    if refusal is not None:
        raise refusal


@contextmanager
def _reading(
    data: str,
    plan: Plan,
    engine: Literal["memory", "duckdb", "spark"],
    step: int | None,
    outside: Literal["refuse", "clamp"],
    master: str | None,
    memory_limit: str | None,
    discretiser: str | None,
) -> Iterator[tuple[Panel | Engine, Panel | EngineSource]]:
    """The readings as an engine has them, and as a source for the publisher."""
    model = plan.model
    if discretiser is not None and (engine != "memory" or outside != "refuse"):
        raise InputError("discretiser: for --engine memory, and in the place of --outside")
    if engine == "memory" and master is None and memory_limit is None:
        from csdp.panel import Discretiser, read_panel

        if discretiser is not None:
            found = read_panel(data, names=model.names, discretiser=Discretiser.load(discretiser), step=step)
            yield found, found
            return
        panel = read_panel(data, names=model.names, values=model.value_table, step=step, outside=outside)
        yield panel, panel
        return
    from csdp.tables import EngineSource, open_table

    opened = open_table(
        data,
        names=model.names,
        values=model.values,
        engine=engine,
        step=step,
        outside=outside,
        master=master,
        memory_limit=memory_limit,
    )
    with opened as table:
        yield table, EngineSource(table, plan)


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


def _publish(
    publisher: Publisher, book: Ledger, source: Panel | EngineSource, readings: Panel | Engine, *, wide: bool
) -> tuple[Series, BudgetExceeded | None]:
    """Publish the readings; where a limit ends it, what the ledger has published of them so far. Wide outputs are not
    kept: they are in the ledger.
    """
    from csdp.report.series import Series

    refusal: BudgetExceeded | None = None
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...] = ()
    with progress_bar() as tell:
        progress = None if tell is None else lambda done, total: tell("releasing", done, total)
        try:
            batch = publisher.publish(source, progress=progress, each=(lambda _: None) if wide else None)
            releases, skipped = batch.releases, batch.skipped
        except BudgetExceeded as error:
            refusal = error
            releases = () if wide else tuple(sorted(_of_these(publisher, book, readings), key=lambda r: r.tick))
    return Series.of(publisher.plan, readings, releases, skipped), refusal


def _of_these(publisher: Publisher, book: Ledger, readings: Panel | Engine) -> Iterator[Release]:
    """What the ledger has published of these ticks, in order."""
    from csdp.publisher import Release

    ticks, name = set(readings.ticks.tolist()), publisher.plan.query.name
    for published in book.published(publisher.dataset):
        if published.tick in ticks and published.query == name:
            yield Release.of(published)


def _written(
    released: Series, publisher: Publisher, book: Ledger, readings: Panel | Engine, out: Path, *, wide: bool
) -> int:
    """Write the series: tick by tick in long form where it is wide. The number of ticks that it has."""
    from csdp.report import series

    if not wide or isinstance(readings, Panel):
        series.write_series(released, out)
        return len(released.releases)
    count = 0

    def counted() -> Iterator[Release]:
        nonlocal count
        for release in _of_these(publisher, book, readings):
            count += 1
            yield release

    readings.write(counted(), out, names=released.names)
    return count


def _certified(publisher: Publisher, book: Ledger, skipped: tuple[Skipped, ...]) -> Certificate:
    from csdp.report.certificate import certify

    return certify(publisher, book, skipped=skipped)


def _show(certificate: Certificate, out: Path, beside: Path, told: dict[str, int]) -> None:
    """For people: what was written, the guarantees side by side, and what is not promised."""
    screen = console()
    screen.print(
        f"{out}: {told['published']:,} of {told['ticks']:,} ticks of {printable(certificate.dataset)} published, "
        f"{told['charged_now']:,} of them charged now",
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
