"""`csdp report`: figures and pages of what was published."""

from __future__ import annotations

from typing import Annotated

import typer

import csdp
from csdp.cli import options
from csdp.cli.terminal import print_lines, print_written, printable


def report(
    ledger: Annotated[str, options.LEDGER],
    dataset: Annotated[str, options.DATASET],
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

    panel = None
    timezone = None
    if data is not None:
        with Ledger.open(ledger, read_only=True) as book:
            model = Plan.from_json(book.dataset(dataset).terms.plan_json).model
        located = options.locate(data)
        timezone = located.timezone
        panel = options.read_states(located, model, None if plan is None else PlanFile.load(plan).discretiser)
    result = report_ledger(ledger, output, dataset=dataset, version=csdp.__version__, panel=panel, timezone=timezone)
    print_lines([f"To quote: {printable(result.certificate.sentence)}"])
    print_written(result.files)
