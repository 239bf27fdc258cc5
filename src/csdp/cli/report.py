"""`csdp report`: figures and pages of what was published."""

from __future__ import annotations

from typing import Annotated

import typer

import csdp
from csdp.cli import options
from csdp.cli.terminal import print_json, print_lines, print_written, printable, written_files
from csdp.panel import Panel, Readings


def report(
    ledger: options.LedgerArgument,
    dataset: options.Dataset,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder to write figures and pages to; created if it does not exist."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Readings; adds a private page that shows the true values, index.html."),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN.json",
            help="With --data: the plan file whose discretiser maps readings to states.",
            show_default="readings are values of the model",
        ),
    ] = None,
    form: options.FormatOption = "table",
) -> None:
    """Write a report of a dataset from its ledger. Nothing is published or charged.

    \b
    Example:
      csdp report ledger.db --dataset ward-7 --data readings.csv -o report-out

    share.html contains only what was published. index.html, written with --data, also shows the true values; a notice
    at its top says so.
    """
    from csdp.ledger import Ledger
    from csdp.plan import Plan
    from csdp.planning.plan_file import PlanFile
    from csdp.report.page import report_ledger

    panel: Panel | None = None
    readings: Readings | None = None
    unit, timezone = "", None
    if data is not None:
        with Ledger.open(ledger, read_only=True) as book:
            model = Plan.from_json(book.dataset(dataset).terms.plan_json).model
        located = options.locate(data)
        timezone = located.timezone
        panel = options.read_states(located, model, None if plan is None else PlanFile.load(plan).discretiser)
        if panel.readings is not None and located.categories is None:
            readings = Readings(panel.names, panel.ticks, panel.times, panel.readings, panel.step)
        unit = located.value or ", ".join(model.names if readings is not None and len(model.names) <= 3 else ())
    result = report_ledger(
        ledger,
        output,
        dataset=dataset,
        version=csdp.__version__,
        panel=panel,
        readings=readings,
        unit=unit,
        timezone=timezone,
    )
    if form == "json":
        print_json({"files": written_files(result.files), "certificate": result.certificate.to_dict()})
        return
    print_lines([f"To quote: {printable(result.certificate.sentence)}"])
    print_written(result.files)
