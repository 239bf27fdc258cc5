"""`csdp ledger`: look at a ledger, check it, and take its record out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from csdp.cli.group import Group
from csdp.cli.options import Form, Head, LedgerPlace, OneDataset
from csdp.cli.output import console, printable, show_json

if TYPE_CHECKING:
    from csdp.ledger import Ledger

PROBLEMS = 2

ledger_app = typer.Typer(
    cls=Group,
    help="Show, verify, export and migrate ledgers: what was charged and published.\n\n\b\nExample:\n"
    "  csdp ledger show ledger.db\n  csdp ledger verify ledger.db",
    short_help="Show, verify, export and migrate ledgers.",
    rich_markup_mode=None,
)


@ledger_app.command("show")
def show(where: LedgerPlace, dataset: OneDataset = None, form: Form = "table") -> None:
    """Show the datasets of a ledger: limits, counts, and the leakage after the last charge.

    \b
    Example:
      csdp ledger show ledger.db
      csdp ledger show ledger.db --dataset ward-7 --format json
    """
    with _opened(where) as book:
        found = [_facts(book, name) for name in _names(book, dataset)]
    if form == "json":
        show_json({"datasets": found})
        return
    from rich.table import Table

    from csdp.bounds.rounding import shown

    table = Table(title="Datasets of the ledger", title_justify="left")
    for column in ("dataset", "ticks", "present", "event", "limits"):
        table.add_column(column, justify="right" if column in {"present", "event"} else "left")
    for facts in found:
        charge = facts["last_charge"] or {}
        figures = [shown(charge[key]) if key in charge else "-" for key in ("present", "event")]
        limits = ", ".join(f"{key} {value:g}" for key, value in facts["limits"].items() if value is not None)
        counts = ", ".join(f"{facts[key]:,} {key}" for key in ("published", "lost", "refused"))
        newest = "" if facts["newest_tick"] is None else f", newest {facts['newest_tick']}"
        table.add_row(printable(facts["dataset"]), counts + newest, *figures, limits or "none")
    console().print(table)
    console().print(
        "present: leakage of the present right after the last charge; event: plain epsilon of one reading. lost: "
        "charged, never published.",
        soft_wrap=True,
    )


@ledger_app.command("verify")
def verify(
    where: LedgerPlace,
    dataset: OneDataset = None,
    head: Head = None,
    form: Form = "table",
) -> None:
    """Look for edits, removals and damage. Changes nothing.

    \b
    Example:
      csdp ledger verify ledger.db
      csdp ledger verify ledger.db --dataset ward-7 --format json

    Exit codes: 0 nothing found; 2 something is wrong, one line for each problem on stderr. Give --head to find a ledger
    that was cut, or replaced by an older copy of itself.
    """
    with _opened(where) as book:
        problems = book.verify(dataset, head=head)
        heads = {name: book.summary(name).head_hash for name in _names(book, dataset)} if not problems else {}
    if form == "json":
        show_json({"problems": [str(problem) for problem in problems], "heads": heads})
    elif not problems:
        for name, value in heads.items():
            typer.echo(f"{printable(name)}: no problem found, head {value}")
        if not heads:
            typer.echo("no problem found; the ledger has no datasets")
    for problem in problems:
        typer.echo(f"csdp: {printable(str(problem))}", err=True)
    if problems:
        raise typer.Exit(PROBLEMS)


@ledger_app.command("export")
def export(
    where: LedgerPlace,
    dataset: OneDataset = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT.jsonl", help="Where to write; - prints JSON lines.")
    ] = "-",
) -> None:
    """Write the whole record as JSON lines, from which every hash can be recomputed.

    \b
    Example:
      csdp ledger export ledger.db --dataset ward-7 -o ledger.jsonl
    """
    with _opened(where) as book:
        lines = (line for name in _names(book, dataset) for line in book.export(name))
        if output == "-":
            for line in lines:
                typer.echo(line)
            return
        from csdp.report.files import ensure_writable, written_whole

        ensure_writable(Path(output))
        count = 0
        with written_whole(Path(output)) as file:
            for count, line in enumerate(lines, start=1):  # noqa: B007 - the last number is used
                file.write(f"{line}\n".encode())
    typer.echo(f"wrote {output}: {count:,} lines")


@ledger_app.command("migrate")
def migrate(where: LedgerPlace, form: Form = "table") -> None:
    """Bring a ledger to the newest format, and say what was done.

    \b
    Example:
      csdp ledger migrate ledger.db
    """
    from csdp.ledger import Ledger

    with Ledger.open(where, create=False) as book:
        done = book.migrate()
    if form == "json":
        return show_json({"done": done})
    for line in done or ["already in the newest format; nothing was changed"]:
        typer.echo(line)
    return None


def _opened(where: str) -> Ledger:
    from csdp.ledger import Ledger

    return Ledger.open(where, create=False, read_only=True)


def _names(book: Ledger, dataset: str | None) -> list[str]:
    return [book.dataset(dataset).name] if dataset is not None else [found.name for found in book.datasets()]


def _facts(book: Ledger, name: str) -> dict[str, Any]:
    found, counts = book.dataset(name), book.summary(name)
    return {
        "dataset": name,
        "created": found.created,
        "plan": found.terms.plan_digest,
        "chain": found.terms.chain_digest,
        "limits": found.terms.recorded_limits(),
        "guarantee": found.terms.guarantee,
        "published": counts.committed,
        "lost": counts.lost,
        "refused": counts.refused,
        "changes": counts.changes,
        "newest_tick": counts.newest_tick,
        "last_charge": _last_charge(book, name, counts.head_seq),
        "head_seq": counts.head_seq,
        "head_hash": counts.head_hash,
    }


def _last_charge(book: Ledger, name: str, head: int) -> dict[str, Any] | None:
    """The figures of the newest charge, looked for from the end of the log."""
    for start in _backwards(head):
        last = None
        for entry in book.entries(name, after=start):
            if entry.kind in {"reserve", "change"}:
                last = entry
        if last is not None:
            charge: dict[str, Any] = last.data()["charge"]
            return charge
    return None


def _backwards(head: int) -> Iterator[int]:
    """Where to start reading: near the end, then ever further back.

    >>> list(_backwards(3000))
    [2000, 0]
    """
    width = 1000
    while width < head:
        yield head - width
        width *= 10
    yield 0
