"""`csdp demo`: a first look, with figures and a page."""

from __future__ import annotations

from typing import Annotated

import typer

from csdp.cli.output import console, progress_bar


def demo(
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder for the figures and the page; made if missing.")] = (
        "demo-out"
    ),
) -> None:
    """Two coupled sequences: what a release tells, a private release with ledger and certificate, and pages to open.

    \b
    Example:
      csdp demo --out demo-out
    """
    import csdp
    from csdp.cli.release import promises_table
    from csdp.report.demo import run_demo

    with progress_bar() as progress:
        found = run_demo(out, version=csdp.__version__, progress=progress)
    screen = console()
    screen.print(found.table)
    screen.print(str(found.words), soft_wrap=True)
    screen.print(promises_table(found.certificate))
    screen.print(f"To quote: {found.certificate.sentence}", soft_wrap=True)
    for path in found.files:
        note = " (contains private data)" if path.name == "index.html" else ""
        screen.print(f"wrote {path}{note}", soft_wrap=True)
