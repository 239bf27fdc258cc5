"""`csdp release`: publish a query of a file of readings, through the ledger."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.cli import inputs, options
from csdp.cli.declaring import Described, declared_plan
from csdp.cli.output import console, printable, progress_bar, show_json
from csdp.errors import BudgetExceeded, InputError, TicksHeldError
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
    data: options.DataFile,
    dataset: options.Dataset,
    ledger: options.LedgerOption,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.csv|.parquet|.json",
            help="Where to write the released series; the certificate goes to OUT.certificate.json.",
        ),
    ],
    chain: options.ChainOption = None,
    query: options.MaybeQuery = None,
    age: options.Age = None,
    ages: options.Ages = None,
    epsilon_c: options.MaybeNoiseLevel = None,
    plan: options.PlanFile = None,
    budget: options.MaybeBudget = None,
    event_limit: options.MaybeEventLimit = None,
    lifetime_limit: Annotated[
        float | None, typer.Option(help="Limit for what all releases together tell of one reading.")
    ] = None,
    adversary: options.MaybeKnows = None,
    stale_limit: Annotated[
        int | None,
        typer.Option(help="Steps by which a missing reading may be replaced by an older one.", show_default="0"),
    ] = None,
    outside: Annotated[
        Literal["refuse", "clamp"],
        typer.Option(help="Readings that are no value of the model: refuse the file, or take the nearest value."),
    ] = "refuse",
    discretiser: options.DiscretiserFile = None,
    step: options.Step = None,
    simulated_times: Annotated[
        bool,
        typer.Option(
            "--simulated-times",
            help="Timestamps are not real: publish also what the wall clock has not reached. The certificate says so.",
        ),
    ] = False,
    on_refusal: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="Where a limit would be passed: stop (exit code 3), or leave out the tick and go on."),
    ] = "raise",
    wait: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="How long to wait for ticks that another process is publishing just now."
        ),
    ] = 30.0,
    engine: options.Engine = "memory",
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master, such as local[2] or spark://host:7077.")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What DuckDB may hold in memory, such as 4GB; the rest is spilled."),
    ] = None,
    form: options.Form = "table",
) -> None:
    """Publish a noisy, aged statistic of a file of readings, never above the limits of its dataset.

    \b
    Example:
      csdp chain simulate chain.json --steps 200 --seed 1 -o readings.csv
      csdp release readings.csv --chain chain.json --query mean --age 2 --epsilon-c 1 --budget 0.5 \
--dataset ward-7 --ledger ledger.db -o released.csv

    A tick of a timestamp is published once the wall clock has passed its end. Every release is charged in the ledger
    before data is touched. Running the same command again writes the same values and charges nothing. Exit codes: 0
    done; 2 bad input, nothing released; 3 refused by a limit, and what was published before is written; 5 another
    process holds some of the ticks, or was stopped with them.
    """
    from csdp.ledger import Ledger
    from csdp.publisher import Publisher
    from csdp.report import files
    from csdp.report.certificate import certify

    out = Path(output)
    certificate_path = out.with_name(out.name + ".certificate.json")
    _check_output(out, beside=(data, chain, plan, ledger, discretiser))
    chosen = declared_plan(plan, Described(chain, query, age, ages, epsilon_c, adversary, stale_limit))
    with _reading(data, chosen, engine, step, outside, master, memory_limit, discretiser) as (readings, source):
        wide = engine != "memory" and chosen.query.per_sequence and chosen.model.sequences > WIDE
        if wide and out.suffix.lower() != ".parquet":
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
                times="wall" if _has_timestamps(readings) and not simulated_times else "data",
                on_refusal=on_refusal,
                wait=wait,
            ) as publisher,
        ):
            released, refusal = _publish(publisher, book, source, readings, wide=wide)
            count = _written(released, publisher, book, readings, out, wide=wide)
            certificate = certify(publisher, book, skipped=released.skipped)
            files.write_json(certificate_path, certificate.to_dict())
        told = {"published": count, "charged_now": publisher.charged, "ticks": len(readings.ticks)}
    absent: Counter[str] = Counter(skip.why for skip in released.skipped)
    told |= {"held": absent["held"], "lost": absent["lost"]}
    if form == "json":
        files_written = {"output": str(out), "certificate_file": str(certificate_path)}
        show_json({**files_written, **told, "certificate": certificate.to_dict()})
    else:
        _show(certificate, out, certificate_path, told)
    if refusal is not None:
        raise refusal
    if absent["held"] or (absent["lost"] and not count):
        raise _held(out, wait, count, absent)


def _held(out: Path, wait: float, count: int, absent: Counter[str]) -> TicksHeldError:
    """What became of ticks that other processes have charged, and what to do."""
    held, lost = absent["held"], absent["lost"]
    words = []
    if held:
        words.append(
            f"{held:,} ticks are held by another process that did not record them within {wait:g} s: it is still at "
            "work, or was stopped; run the command again, or give a longer --wait"
        )
    if lost:
        words.append(f"{lost:,} ticks are lost: a process was stopped after they were charged; nobody publishes them")
    rest = f"the {count:,} that are published are in {out}" if count else f"none is published, so {out} has no rows"
    return TicksHeldError("; ".join([*words, rest]), held=held, lost=lost)


def _has_timestamps(readings: Panel | Engine) -> bool:
    """Whether times are timestamps; numbers count whatever they count."""
    return readings.times.dtype.kind == "M"


def _check_output(out: Path, *, beside: Sequence[str | None]) -> None:
    """Refuse a kind of file that cannot be written, and the place of a file that is read."""
    from csdp.report.series import check_kind

    check_kind(out)
    for given in beside:
        if given is not None and out.resolve() == Path(given).resolve():
            raise InputError(f"output: this would overwrite {given}, which is read; give another name")


@contextmanager
def _reading(
    data: str,
    plan: Plan,
    engine: Literal["memory", "duckdb", "spark"],
    step: str | None,
    outside: Literal["refuse", "clamp"],
    master: str | None,
    memory_limit: str | None,
    discretiser: str | None,
) -> Iterator[tuple[Panel | Engine, Panel | EngineSource]]:
    """The readings as an engine has them, and as a source for the publisher."""
    if discretiser is not None and (engine != "memory" or outside != "refuse"):
        raise InputError("discretiser: for --engine memory, and in the place of --outside; leave one of them out")
    if engine == "memory" and master is None and memory_limit is None:
        width = inputs.time_step(step)
        panel = inputs.read_states(data, plan.model, discretiser=discretiser, step=width, outside=outside)
        yield panel, panel
        return
    from csdp.tables import EngineSource, open_table

    opened = open_table(
        data,
        names=plan.model.names,
        values=plan.model.values,
        engine=engine,
        step=inputs.engine_step(step, engine),
        outside=outside,
        master=master,
        memory_limit=memory_limit,
    )
    with opened as table:
        yield table, EngineSource(table, plan)


def _publish(
    publisher: Publisher, book: Ledger, source: Panel | EngineSource, readings: Panel | Engine, *, wide: bool
) -> tuple[Series, BudgetExceeded | None]:
    """Publish the readings; where a limit ends it, what the ledger has published of them so far.

    Wide outputs are not kept: they are in the ledger.
    """
    from csdp.report.series import Series

    refusal: BudgetExceeded | None = None
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...] = ()
    with progress_bar() as tell:
        progress = None if tell is None else lambda done, total: tell("releasing", done, total)
        each = (lambda _: None) if wide else None
        try:
            batch = publisher.publish(source, progress=progress, each=each, on_wait=_Waiting())
            releases, skipped = batch.releases, batch.skipped
        except BudgetExceeded as error:
            refusal = error
            releases = () if wide else tuple(sorted(_of_these(publisher, book, readings), key=lambda r: r.tick))
    return Series.of(publisher.plan, readings, releases, skipped), refusal


class _Waiting:
    """Says once that we wait for another process, where it takes longer than a moment."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told = False

    def __call__(self, held: int, seconds: float) -> None:
        """Told by the publisher before each pause."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._told and now > self._since + 1.0:
            self._told = True
            words = f"waiting up to {seconds:.0f} s for {held:,} ticks that another process is publishing (--wait)"
            typer.echo(f"csdp: {words}", err=True)


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


def _show(certificate: Certificate, out: Path, beside: Path, told: dict[str, int]) -> None:
    """For people: what was written, the guarantees side by side, and what is not promised."""
    screen = console()
    screen.print(
        f"wrote {out}: {told['published']:,} of {told['ticks']:,} ticks of {printable(certificate.dataset)} published, "
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
    screen.print(f"wrote {beside}: certificate, ledger head {certificate.ledger['head_hash'][:16]}", soft_wrap=True)


def promises_table(certificate: Certificate) -> object:
    """The guarantees side by side."""
    from rich.table import Table

    from csdp.bounds.result import as_text

    table = Table(title="What is promised", title_justify="left")
    table.add_column("guarantee", no_wrap=True)
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("never above", justify="right", no_wrap=True)
    table.add_column("protects")
    for promise in certificate.promises:
        ceiling = "grows" if promise.ceiling is None else as_text(promise.ceiling)
        table.add_row(promise.name, as_text(promise.epsilon), ceiling, f"{promise.protects}; {promise.holds}")
    return table
