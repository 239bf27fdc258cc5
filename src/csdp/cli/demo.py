"""`csdp demo`: real readings, from a public past to a private release and a report."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from csdp.cli.options import Form
from csdp.cli.output import console, progress_bar, show_json, show_written, written_files


def demo(
    data: Annotated[
        Literal["parking", "glucose", "stocks"],
        typer.Option(help="The data set: parking and glucose come with csdp, stocks with the package river."),
    ] = "parking",
    output: Annotated[
        str,
        typer.Option("--output", "-o", "--out", metavar="DIR", help="Folder for figures and pages; made if missing."),
    ] = "demo-out",
    form: Form = "table",
) -> None:
    """Fit a chain on a public past, plan for a budget, publish the rest through a ledger, and write a report.

    \b
    Example:
      csdp demo -o demo-out

    index.html shows the true values beside what was published and says so on its face; share.html is without them.
    """
    import csdp
    from csdp.bounds.result import as_text
    from csdp.cli.release import promises_table
    from csdp.report.demo import run_demo

    with progress_bar() as progress:
        found = run_demo(output, version=csdp.__version__, data=data, progress=progress)
    study = found.study
    if form == "json":
        told = {"data": study.prepared.data.title, "fit": study.quality.to_dict(), "ceiling": study.ceiling}
        files = {"files": written_files(found.files), "certificate": found.certificate.to_dict()}
        show_json({**told, **files})
        return
    screen = console()
    screen.print(str(study.prepared.data.title))
    screen.print(f"Fit: {study.quality.verdict}", soft_wrap=True)
    screen.print(
        f"Plan: {study.plan.query.name}, age {study.plan.ages[0]}, epsilon_c {study.plan.epsilon_c:.4g}; released for "
        f"ever it tells at most {as_text(study.ceiling)} of the present, over {len(study.chain.family or (0,))} chains",
        soft_wrap=True,
    )
    screen.print(promises_table(found.certificate))
    screen.print(f"To quote: {found.certificate.sentence}", soft_wrap=True)
    show_written(found.files)
