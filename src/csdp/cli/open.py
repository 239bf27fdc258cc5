"""`csdp open`: find out how a file of readings is to be read, and write it down for all other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from csdp.cli import options
from csdp.cli.terminal import print_lines, print_notice, print_table, printable
from csdp.errors import InputError
from csdp.files import ensure_writable
from csdp.panel import find_input


def _text(metavar: str, help_: str) -> Any:
    return typer.Option(metavar=metavar, help=help_, show_default="found in the file")


def open_input(
    data: Annotated[str, options.DATA],
    time: Annotated[str | None, _text("COLUMN", "Column of the times.")] = None,
    sequence: Annotated[
        str | None, _text("COLUMN", "Column of a long table that names the sequence of each reading.")
    ] = None,
    value: Annotated[str | None, _text("COLUMN", "Column of a long table that holds the readings.")] = None,
    names: Annotated[
        str | None, _text("A,B,...", "Sequences to read: columns of a wide table, or names in a long one.")
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="Time zone of times without an offset, such as Europe/Berlin; they become UTC.",
            show_default="times are used as they are",
        ),
    ] = None,
    time_format: Annotated[
        str | None, _text("FORMAT", "How times are written if not as ISO, as in strptime: %d/%m/%Y %H:%M.")
    ] = None,
    step: Annotated[
        str | None, _text("TIME", "Time between two ticks, such as 300 (seconds for timestamps) or 5min.")
    ] = None,
    resample: Annotated[
        Literal["first", "last", "mean"] | None,
        typer.Option(
            help="Reading that counts within each step if times lie on no grid.", show_default="last, if needed"
        ),
    ] = None,
    duplicates: Annotated[
        Literal["refuse", "first", "last", "mean"] | None,
        typer.Option(
            help="Reading that counts if a sequence has several of one time.", show_default="last, if they differ"
        ),
    ] = None,
    categories: Annotated[
        str | None, _text("A,B,...", "Words in the cells, in order; a reading is the place of its word.")
    ] = None,
    delimiter: Annotated[str | None, _text("CHARACTER", "Character between cells; tab for a tab.")] = None,
    decimal: Annotated[
        Literal[".", ","] | None, typer.Option(help="Decimal mark of numbers.", show_default="found in the file")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Sheet of a workbook.", show_default="the first one"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="INPUT.toml",
            help="File to write what was found to, as an [input] section; every command takes it in the place of DATA.",
        ),
    ] = None,
) -> None:
    """Find out how a file of readings is to be read, show it with the first rows, and write it as an [input] section.

    \b
    Example:
      csdp open readings.csv -o input.toml

    The first rows are readings: keep what this command prints as private as the file. Options override what is found;
    the section can also be edited, and may set `encoding`, `header` and `skip`.
    """
    if output is not None:
        if output.suffix.lower() != ".toml":
            raise InputError(f"output: {output.name!r} given; a name that ends in .toml expected")
        if output.resolve() == Path(data).resolve():
            raise InputError(f"output: this would overwrite {data}, which is read; give another name")
        ensure_writable(output)
    found = find_input(
        options.locate(data).override(
            time=time,
            sequence=sequence,
            value=value,
            names=options.parse_names(names),
            timezone=timezone,
            time_format=time_format,
            step=int(step) if step is not None and step.isdecimal() else step,
            resample=resample,
            duplicates=duplicates,
            categories=options.parse_names(categories),
            delimiter={"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
            decimal=decimal,
            table=table,
        )
    )
    if output is not None:
        found.spec.save(output)
    columns, cells = found.first_rows
    rows = [(what, printable(words), change) for what, words, change in found.facts]
    print_table("What was found", ("what", "found", "to change it"), rows)
    shown = [[printable(cell) for cell in row] for row in cells]
    print_table("The first rows: PRIVATE, these are readings", [printable(name) for name in columns], shown)
    if output is None:
        section = found.spec.to_toml()
        print_lines([section, "Write this to a file with -o input.toml; every command takes it in the place of DATA"])
    else:
        print_lines([f"wrote {output}; next: csdp suggest {output} -o suggested (with --public if they are public)"])
    if found.spec.timezone is None and found.readings.times.dtype.kind == "M" and "without a zone" in str(found.facts):
        print_notice("note: times have no offset from UTC; if clocks are set back and forth there, give --timezone")
