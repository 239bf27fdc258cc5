"""`csdp report`: a page from a ledger, to share, and one with the true values where readings are given."""

from __future__ import annotations

from typing import Annotated

import typer

from csdp.cli import inputs
from csdp.cli.options import Dataset, DiscretiserFile, Form, LedgerPlace, Step
from csdp.cli.output import console, printable, progress_bar, show_json, show_written, written_files


def report(
    ledger: LedgerPlace,
    dataset: Dataset,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder for figures and pages; made if missing.")
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA.csv|.parquet", help="The readings: a private page with the true values besides."),
    ] = None,
    discretiser: DiscretiserFile = None,
    step: Step = None,
    form: Form = "table",
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
    from csdp.panel import Panel
    from csdp.plan import Plan
    from csdp.report.ledger_page import report_ledger

    panel: Panel | None = None
    if data is not None:
        with Ledger.open(ledger, read_only=True) as book:
            model = Plan.from_json(book.dataset(dataset).terms.plan_json).model
        panel = inputs.read_states(data, model, discretiser=discretiser, step=inputs.time_step(step))
    with progress_bar() as progress:
        found = report_ledger(ledger, output, dataset=dataset, version=csdp.__version__, panel=panel, progress=progress)
    if form == "json":
        show_json({"files": written_files(found.files), "certificate": found.certificate.to_dict()})
        return
    console().print(f"To quote: {printable(found.certificate.sentence)}", soft_wrap=True)
    show_written(found.files)
