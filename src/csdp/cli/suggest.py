"""`csdp suggest`: a first proposal for a file of readings, with a reason for each choice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from csdp.cli.output import console, printable, progress_bar


def suggest(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA.csv|.parquet",
            help="Readings: a column `time` and one per sequence, or the columns time, sequence and value.",
        ),
    ],
    budget: Annotated[float, typer.Option(help="Ceiling for the leakage of the present, at every moment.")] = 1.0,
    public: Annotated[bool, typer.Option("--public", help="The readings are public.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write discretiser, chain, plan and the next commands here."
        ),
    ] = None,
) -> None:
    """Propose states, chain, query, limits and plan for readings, explaining each choice in a line.

    \b
    Example:
      csdp suggest readings.csv --public -o suggested

    It looks at the readings, and what it proposes tells about them: meant for public readings.
    """
    from rich.table import Table

    from csdp.cli.fit import warnings_told
    from csdp.report.suggestion import suggest as propose

    with warnings_told(), progress_bar() as progress:
        found = propose(data, budget=budget, public=public, progress=progress)
    screen = console()
    table = Table("what", "proposed", "why", title="A start", title_justify="left")
    for what, choice, why in found.reasons:
        table.add_row(what, printable(choice), printable(why))
    screen.print(table)
    for path in found.save(Path(output), data=data) if output is not None else ():
        screen.print(f"wrote {path}", soft_wrap=True)
    screen.print("Next:")
    for line in found.commands(data, output or "DIR"):
        screen.print(f"  {line}", soft_wrap=True)
