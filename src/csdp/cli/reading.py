"""Options of every command that takes readings, and `csdp open`, which finds them."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from csdp.cli import options
from csdp.cli.terminal import print_json, print_lines, print_notice, print_table, printable
from csdp.errors import InputError
from csdp.panel import InputSpec, find_input
from csdp.panel.input import is_address
from csdp.panel.read import to_spec
from csdp.report.files import ensure_writable


def _text(metavar: str, help_: str) -> Any:
    return Annotated[str | None, typer.Option(metavar=metavar, help=help_, show_default="found in the file")]


#: The options by the names of their Python arguments; each has the default None: find it, or see an [input] section.
READING_OPTIONS: dict[str, Any] = {
    "time": _text("COLUMN", "Column of the times."),
    "sequence": _text("COLUMN", "Column of a long table that names the sequence of each reading."),
    "value": _text("COLUMN", "Column of a long table that holds the readings."),
    "names": _text("A,B,...", "Sequences to read: columns of a wide table, or names in a long one."),
    "timezone": Annotated[
        str | None,
        typer.Option(
            metavar="ZONE",
            help="Time zone of times without an offset, such as Europe/Berlin; they become UTC.",
            show_default="times are used as they are",
        ),
    ],
    "time_format": _text("FORMAT", "How times are written if not as ISO, as in strptime: %d/%m/%Y %H:%M."),
    "step": options.Step,
    "resample": Annotated[
        Literal["first", "last", "mean"] | None,
        typer.Option(help="Reading that counts within each step, where times lie on no grid.", show_default="refuse"),
    ],
    "duplicates": Annotated[
        Literal["refuse", "first", "last", "mean"] | None,
        typer.Option(help="Reading that counts where a sequence has several of one time.", show_default="refuse"),
    ],
    "sort": Annotated[bool, typer.Option("--sort", help="Put rows in the order of their times.")],
    "categories": _text("A,B,...", "Words in the cells, in order; a reading is the place of its word."),
    "delimiter": _text("CHARACTER", "Character between cells; tab for a tab."),
    "decimal": Annotated[
        Literal[".", ","] | None, typer.Option(help="Decimal mark of numbers.", show_default="found in the file")
    ],
    "encoding": _text("NAME", "Encoding of text, such as utf-8, utf-16, latin-1 or cp1252."),
    "no_header": Annotated[bool, typer.Option("--no-header", help="The first line holds readings, not names.")],
    "skip": Annotated[
        int | None, typer.Option(min=0, help="Lines before the header.", show_default="found in the file")
    ],
    "table": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Table of a database, or sheet of a workbook.", show_default="the only one"),
    ],
    "sql": Annotated[str | None, typer.Option(metavar="SELECT", help="Query of a database, instead of a table.")],
}
_FLAGS = ("sort", "no_header")


def takes_readings(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of readings to a command, which gets them as one `InputSpec`, `reading`."""
    own = {name: hint for name, hint in get_type_hints(command, include_extras=True).items() if name != "reading"}
    parameters = [p for p in inspect.signature(command).parameters.values() if p.name != "reading"]
    shown = [
        *(p.replace(annotation=own[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=False if name in _FLAGS else None
            )
            for name, hint in READING_OPTIONS.items()
        ),
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        reading = _make_spec(**{name: given.pop(name) for name in READING_OPTIONS})
        command(**given, reading=reading)

    run.__signature__ = inspect.Signature(shown, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {**own, **READING_OPTIONS, "return": None}
    return run


def _make_spec(
    *,
    step: str | None,
    names: str | None,
    categories: str | None,
    delimiter: str | None,
    sort: bool,
    no_header: bool,
    **given: Any,
) -> InputSpec:
    return InputSpec(
        step=None if step is None else options.parse_step_option(step),
        names=None if names is None else tuple(options.parse_names(names)),
        categories=None if categories is None else tuple(options.parse_names(categories)),
        delimiter={"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter),
        sort=sort or None,
        header=False if no_header else None,
        **given,
    )


def locate(data: str, reading: InputSpec) -> InputSpec:
    """The settings of readings: the options that are given, over those of an `[input]` section."""
    file, spec = to_spec(data, reading)
    return replace(spec, file=str(file))


def option_words(reading: InputSpec) -> list[str]:
    """The options that give these settings, as words of a command.

    >>> option_words(InputSpec(step="1h", resample="mean", names=("a", "b, c"), sort=True, delimiter="\\t"))
    ['--delimiter', 'tab', '--names', '["a", "b, c"]', '--step', '1h', '--resample', 'mean', '--sort']
    """
    words = []
    for name, value in reading.to_dict().items():
        if name in {"sort", "header"}:
            words.append("--sort" if name == "sort" else "--no-header")
            continue
        words += [f"--{name.replace('_', '-')}", _option_value(value)]
    return words


def _option_value(value: Any) -> str:
    if not isinstance(value, tuple):
        return "tab" if value == "\t" else str(value)
    plain = not any("," in word or word.startswith("[") for word in value)
    return ",".join(value) if plain else json.dumps(list(value), ensure_ascii=False)


# ---- csdp open -----------------------------------------------------------------------------------------------------


@takes_readings
def open_input(
    data: options.DataFile,
    reading: InputSpec,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="INPUT.toml",
            help="File to write what was found to, as an [input] section; every command takes it in the place of DATA.",
        ),
    ] = None,
    form: options.FormatOption = "table",
) -> None:
    """Find out how a file of readings is to be read, show it with the first rows, and write it as an [input] section.

    \b
    Example:
      csdp open readings.csv -o input.toml

    The first rows are readings: keep what this command prints as private as the file. Options override what is found.
    """
    if output is not None:
        if output.suffix.lower() != ".toml":
            raise InputError(f"output: {output.name!r} given; a name that ends in .toml expected")
        if not is_address(data) and output.resolve() == Path(data).resolve():
            raise InputError(f"output: this would overwrite {data}, which is read; give another name")
        ensure_writable(output)
    found = find_input(locate(data, reading))
    section = found.spec.to_toml()
    if output is not None:
        found.spec.save(output)
    if form == "json":
        names, cells = found.first_rows
        facts = [{"what": what, "found": words, "options": change.split()} for what, words, change in found.facts]
        content = {"input": found.spec.to_dict(), "facts": facts, "first_rows": {"columns": names, "rows": cells}}
        print_json({**content, "file": None if output is None else str(output)})
        return
    rows = [(what, printable(words), change) for what, words, change in found.facts]
    print_table("What was found", {"what": {"no_wrap": True}, "found": {}, "to change it": {}}, rows)
    names, cells = found.first_rows
    shown = [[printable(cell) for cell in row] for row in cells]
    print_table("The first rows: PRIVATE, these are readings", {printable(name): {} for name in names}, shown)
    if output is None:
        print_lines([section, "Write this to a file with -o input.toml; every command takes it in the place of DATA"])
    else:
        print_lines([f"wrote {output}; next: csdp suggest {output} -o suggested (with --public if they are public)"])
    if found.spec.timezone is None and found.readings.times.dtype.kind == "M" and "without a zone" in str(found.facts):
        print_notice("note: times have no offset from UTC; if clocks are set back and forth there, give --timezone")
