"""`csdp report`: a page from a ledger, to share, and one with the true values where readings are given."""

from __future__ import annotations

from typing import Annotated

import typer

from csdp.cli.output import console, printable, progress_bar


def report(
    ledger: Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger: a SQLite file, or postgresql://...")],
    dataset: Annotated[str, typer.Option(help="Name of the dataset in the ledger.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder for figures and pages; made if missing.")
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA.csv|.parquet", help="The readings: a private page with the true values besides."),
    ] = None,
    discretiser: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What made states of the readings; by default they carry the chain's values."
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(help="Time between two ticks (seconds for timestamps).", show_default="found in the file"),
    ] = None,
) -> None:
    """Write the report of a dataset from its ledger. Nothing is published or charged.

    \b
    Example:
      csdp report ledger.db --dataset ward-7 --data readings.csv -o report-out

    share.html holds nothing that was not published. index.html, written with --data, shows the true values and says so
    on its face.
    """
    import csdp
    from csdp.ledger import Ledger
    from csdp.panel import Discretiser, Panel, read_panel
    from csdp.plan import Plan
    from csdp.report.recorded import report_ledger

    panel: Panel | None = None
    if data is not None:
        with Ledger.open(ledger, create=False) as book:
            model = Plan.from_json(book.dataset(dataset).terms.plan_json).model
        if discretiser is not None:
            panel = read_panel(data, names=model.names, discretiser=Discretiser.load(discretiser), step=step)
        else:
            panel = read_panel(data, names=model.names, values=model.value_table, step=step)
    with progress_bar() as progress:
        found = report_ledger(ledger, output, dataset=dataset, version=csdp.__version__, panel=panel, progress=progress)
    screen = console()
    screen.print(f"To quote: {printable(found.certificate.sentence)}", soft_wrap=True)
    for path in found.files:
        note = " (contains private data)" if path.name == "index.html" else ""
        screen.print(f"wrote {path}{note}", soft_wrap=True)
