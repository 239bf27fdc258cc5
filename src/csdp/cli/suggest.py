"""`csdp suggest`: a first proposal for a file of readings, with a reason for each choice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from csdp.cli.options import Budget, DataFile, Form, Public
from csdp.cli.output import console, printable, progress_bar, show_json, warnings_told


def suggest(
    data: DataFile,
    budget: Budget = 1.0,
    public: Public = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write discretiser, chain, plan and the next commands here."
        ),
    ] = None,
    form: Form = "table",
) -> None:
    """Propose states, chain, query, limits and plan for readings, explaining each choice in a line.

    \b
    Example:
      csdp suggest readings.csv --public -o suggested

    It looks at the readings, and what it proposes tells about them: meant for public readings.
    """
    from rich.table import Table

    from csdp.report.suggestion import suggest as propose

    with warnings_told(), progress_bar() as progress:
        found = propose(data, budget=budget, public=public, progress=progress)
    files = found.save(Path(output), data=data) if output is not None else []
    commands = found.commands(data, output or "DIR")
    if form == "json":
        reasons = [{"what": what, "proposed": choice, "why": why} for what, choice, why in found.reasons]
        show_json({"reasons": reasons, "files": [str(path) for path in files], "next": commands})
        return
    screen = console()
    table = Table("what", "proposed", "why", title="A start", title_justify="left")
    for what, choice, why in found.reasons:
        table.add_row(what, printable(choice), printable(why))
    screen.print(table)
    for path in files:
        screen.print(f"wrote {path}", soft_wrap=True)
    screen.print("Next:")
    for line in commands:
        screen.print(f"  {line}", soft_wrap=True)
