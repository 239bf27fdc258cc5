"""`csdp ledger`: show, verify and export ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from csdp.bounds.result import with_chance
from csdp.cli import options
from csdp.cli.terminal import (
    BAD_INPUT,
    CommandGroup,
    Format,
    print_json,
    print_lines,
    print_notice,
    print_table,
    printable,
)

if TYPE_CHECKING:
    from csdp.ledger import Ledger

#: The figures of a charge that are shown, and their names.
FIGURES = {"present": "present", "every_moment": "any moment", "event": "event", "window": "window"}

ledger_app = typer.Typer(
    cls=CommandGroup,
    help="Show, verify and export ledgers, the records of what was charged and published.\n\n\b\nExample:\n"
    "  csdp ledger show ledger.db\n  csdp ledger verify ledger.db",
    short_help="Show, verify and export ledgers.",
    rich_markup_mode=None,
)


@ledger_app.command("show")
def show(
    where: Annotated[str, options.LEDGER],
    dataset: Annotated[str | None, options.ONE_DATASET] = None,
    form: Annotated[Format, options.FORMAT] = "table",
) -> None:
    """Show the datasets of a ledger: limits, counts, and the leakage after the last charge.

    \b
    Example:
      csdp ledger show ledger.db
      csdp ledger show ledger.db --dataset ward-7 --format json
    """
    with _open_for_reading(where) as book:
        datasets = [_describe_dataset(book, name) for name in _dataset_names(book, dataset)]
    if form == "json":
        print_json({"datasets": datasets})
        return
    rows = []
    for facts in datasets:
        charge = facts["last_charge"] or {}
        charge = {"every_moment": charge.get("lifetime"), **charge}  # its name until 0.2
        figures = [f"{name} {with_chance(charge[key])}" for key, name in FIGURES.items() if charge.get(key) is not None]
        limits = ", ".join(f"{key} {value:g}" for key, value in facts["limits"].items() if value is not None)
        counts = ", ".join(f"{facts[key]:,} {key}" for key in ("published", "lost", "refused"))
        newest = "" if facts["newest_tick"] is None else f", newest {facts['newest_tick']}"
        said = "\n".join(figures) or "-"
        rows.append((printable(facts["dataset"]), facts["model"], counts + newest, said, limits or "none"))
    print_table("Datasets of the ledger", ("dataset", "model", "ticks", "epsilon", "limits"), rows)
    print_lines(
        [
            "model: whether its data accept it; present: leakage of the present right after the last charge; any "
            "moment: what everything published reveals about the state at any one tick; both if the model holds. "
            "event: epsilon of plain differential privacy of one reading; window: of several consecutive ones, if a "
            "window is named (in brackets: what a 50 % guess becomes at most); lost: charged but never published."
        ]
    )


@ledger_app.command("verify")
def verify(
    where: Annotated[str, options.LEDGER],
    dataset: Annotated[str | None, options.ONE_DATASET] = None,
    head: Annotated[str | None, options.HEAD] = None,
    form: Annotated[Format, options.FORMAT] = "table",
) -> None:
    """Check a ledger for edits, removals and damage. The ledger is only read.

    \b
    Example:
      csdp ledger verify ledger.db
      csdp ledger verify ledger.db --dataset ward-7 --format json

    Exit codes: 0 no problem found; 2 problems found, one line for each on stderr. Give --head to detect that a ledger
    was truncated, or replaced by an older copy of itself.
    """
    with _open_for_reading(where) as book:
        problems = book.verify(dataset, head=head)
        heads = {name: book.summary(name).head_hash for name in _dataset_names(book, dataset)} if not problems else {}
    if form == "json":
        print_json({"problems": [str(problem) for problem in problems], "heads": heads})
    elif not problems:
        for name, value in heads.items():
            typer.echo(f"{printable(name)}: no problem found, head {value}")
        if not heads:
            typer.echo("no problem found; the ledger has no datasets")
    for problem in problems:
        print_notice(str(problem))
    if problems:
        raise typer.Exit(BAD_INPUT)


@ledger_app.command("export")
def export(where: Annotated[str, options.LEDGER], dataset: Annotated[str | None, options.ONE_DATASET] = None) -> None:
    """Print the whole record as JSON lines, from which every hash can be recomputed.

    \b
    Example:
      csdp ledger export ledger.db --dataset ward-7
    """
    with _open_for_reading(where) as book:
        for name in _dataset_names(book, dataset):
            for line in book.export(name):
                typer.echo(line)


def _open_for_reading(where: str) -> Ledger:
    from csdp.ledger import Ledger

    return Ledger.open(where, create=False, read_only=True)


def _dataset_names(book: Ledger, dataset: str | None) -> list[str]:
    return [book.dataset(dataset).name] if dataset is not None else [each.name for each in book.datasets()]


def _describe_dataset(book: Ledger, name: str) -> dict[str, Any]:
    record, counts = book.dataset(name), book.summary(name)
    return {
        "dataset": name,
        "created": record.created,
        "plan": record.terms.plan_digest,
        "chain": record.terms.chain_digest,
        "model": record.terms.guarantee.get("model", {}).get("status", "not recorded"),
        "limits": record.terms.recorded_limits(),
        "guarantee": record.terms.guarantee,
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
    """The figures of the newest charge, which is most often near the end of the log."""
    for start in (max(head - 1000, 0), 0):
        charges = [entry for entry in book.entries(name, after=start) if entry.kind in {"reserve", "change"}]
        if charges:
            charge: dict[str, Any] = charges[-1].data()["charge"]
            return charge
    return None
