"""`csdp init`: a first specification of a stream or of a dataset of the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from csdp.cli import options
from csdp.cli.stream import check_spec
from csdp.cli.terminal import print_lines
from csdp.errors import InputError, NotUsefulError


def init(
    data: Annotated[str, options.DATA],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="STREAM.toml", help="File to write the specification to.")
    ] = Path("stream.toml"),
    dataset: Annotated[str | None, options.DATASET] = None,
    plan: Annotated[
        str, typer.Option(metavar="PLAN.json", help="Plan file, relative to the folder of the specification.")
    ] = "plan.json",
) -> None:
    """Write a first specification of a stream, with comments, from a sample of the readings that will arrive.

    \b
    Example: csdp init rooms.csv --plan rooms.plan.json -o stream.toml

    If the plan file is there, it is checked. Exit code 6: it removes less than 5 % of the error of guessing the usual
    value, with what would help; `csdp stream` and `csdp serve` refuse it then.
    """
    from csdp.stream.template import first_spec

    if output.exists():
        raise InputError(f"{output}: exists already; give another --output, or remove it first")
    text = first_spec(options.locate(data), dataset=dataset, plan=plan, folder=output.parent)
    output.write_text(text, encoding="utf-8")
    there = (output.parent / plan).is_file()
    if there:
        try:
            check_spec(str(output))
        except NotUsefulError as stop:
            stop.add_note(f"{output} was written; `csdp stream` and `csdp serve` refuse it until it is changed")
            raise
    print_lines([f"wrote {output}; look through it, then: csdp stream --spec {output}"])
    if not there:
        print_lines([f"{plan}: not there yet. Make one with `csdp suggest` or `csdp plan`"])
