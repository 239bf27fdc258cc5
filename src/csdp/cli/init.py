"""`csdp init`: a first specification of a stream or of a dataset of the service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from csdp.cli import options
from csdp.cli.stream import check_spec
from csdp.cli.terminal import print_lines
from csdp.errors import InputError, NotUsefulError
from csdp.panel import InputSpec, read_readings
from csdp.panel.read import to_spec
from csdp.panel.times import format_step


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


def first_spec(
    data: str | Path | InputSpec,
    *,
    dataset: str | None = None,
    plan: str = "plan.json",
    folder: str | Path = ".",
) -> str:
    """The text of a first specification, to be written to a folder, for readings such as those in a file.

    Only names, step and kind of times are taken from the readings, and how they are read (`[input]`).
    """
    file, table = to_spec(data, InputSpec())
    table = table.override(file=str(file), duplicates=table.duplicates or "last")
    readings, data = read_readings(table), str(file)
    timestamps, step = readings.times.dtype.kind == "M", int(readings.step)
    length: Callable[[int], str] = (lambda seconds: _quote(format_step(seconds))) if timestamps else str
    name = Path(data).stem if dataset is None else dataset
    if not name.isprintable():
        raise InputError("dataset: a text of printable characters expected")
    return _TEXT.format(
        data=Path(data).name,
        dataset=_quote(name),
        topic=_quote("".join(c if c.isalnum() or c in "-_" else "-" for c in name)),
        plan=_quote(plan),
        names=json.dumps(readings.names, indent=4, ensure_ascii=False),
        step=length(step),
        lateness=length(max(1, step // 10)),
        unit='Seconds, or text such as "30s", "5min", "1h".' if timestamps else "In the unit of the times.",
        times=_TIMES[timestamps],
        input=table.override(step=length(step).strip('"') if timestamps else step).seen_from(folder).to_toml(),
    )


def _quote(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)


_TIMES = {
    True: """\
times = "wall"  # no tick is published before the wall clock has passed its end; "data": a replay
# ahead = "1s"  # refuse times further ahead of the wall clock; at most, and by default, the lateness
# advance = "wall"  # close ticks by the clock on the wall also while no reading comes\
""",
    False: """\
times = "data"  # ages are what the times say; "wall": they are seconds since 1970, held against the clock\
""",
}

_TEXT = """\
# A stream of csdp, written from {data}. Check it with: csdp stream --spec FILE --check
# Paths are relative to this file.

dataset = {dataset}  # its name in the ledger
ledger = "ledger.db"  # a file, or "postgresql://user@host/database"
plan = {plan}  # chain, query, ages, noise and estimator: `csdp plan` or `csdp suggest` writes it
# state_file = "stream.state"  # keep the newest readings on disk (mode 0600): after a restart no waiting for ages

# drift = true  # warn the operator when readings no longer follow the chain
# anyway = true  # publish even if less than 5 % of the error of guessing the usual value is removed

# The sequences by the names that messages use, in the order of lists of values.
sequences = {names}

# [limits]  # limits of the dataset, recorded in the ledger
# budget = 0.5  # what all outputs may reveal about anyone's present state, at every tick
# moment_limit = 5.0  # what all outputs may ever reveal about anyone's state at any one tick, past or present
# event_limit = 2.0  # for the plain differential privacy of one reading
# window = 24  # state the plain differential privacy of any so many consecutive readings of one sequence, in ticks
# window_limit = 20.0  # limit it

[clock]  # {unit}
step = {step}
lateness = {lateness}  # how long a tick waits for late readings before it closes
{times}

# Messages: {{"time": T, "sequence": NAME, "value": V}}, or {{"time": T, "values": {{NAME: V, ...}}}}.
[source]
kind = "stdin"
# kind = "input"  # replay the table of [input]
# kind = "file"  # follow a file of such lines
# path = "readings.ndjson"
# kind = "mqtt"  # readings on TOPIC/NAME, snapshots on TOPIC
# host = "127.0.0.1"
# topic = {topic}
# username = "csdp"
# password_file = "mqtt.password"
# tls = true
# ca_file = "ca.pem"

# The readings from which this file was written; `csdp fit`, `csdp release` and others take this file in their place.
{input}
[sink]
kind = "stdout"
# kind = "file"
# path = "published.ndjson"
# kind = "mqtt"
# topic = "published"
"""
