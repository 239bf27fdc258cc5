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
    """Two coupled sequences: a table of what a release tells, figures, and a page to open.

    \b
    Example:
      csdp demo --out demo-out
    """
    import csdp
    from csdp.report.demo import run_demo

    with progress_bar() as progress:
        found = run_demo(out, version=csdp.__version__, progress=progress)
    screen = console()
    screen.print(found.table)
    screen.print(str(found.words), soft_wrap=True)
    for path in found.files:
        screen.print(f"wrote {path}", soft_wrap=True)
