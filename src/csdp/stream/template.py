"""The text of a first specification of a stream, with comments, from readings like those that will arrive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from csdp.errors import InputError
from csdp.panel import InputSpec
from csdp.panel.times import format_step


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
    from csdp.panel.read import read_readings, to_spec

    file, table = to_spec(data, InputSpec())
    table = table.override(file=str(file), duplicates=table.duplicates or "last")
    readings, data = read_readings(table), str(file)
    timestamps, step = readings.times.dtype.kind == "M", int(readings.step)
    length: Callable[[int], str] = (lambda seconds: _quote(format_step(seconds))) if timestamps else str
    name = Path(data).stem if dataset is None else dataset
    if not name.isprintable():
        raise InputError("dataset: a text of printable characters expected")
    text = _TEXT.format(
        data=Path(data).name,
        dataset=_quote(name),
        topic=_quote("".join(c if c.isalnum() or c in "-_" else "-" for c in name)),
        plan=_quote(plan),
        names=_format_names(readings.names),
        step=length(step),
        lateness=length(max(1, step // 10)),
        unit='Seconds, or text such as "30s", "5min", "1h".' if timestamps else "In the unit of the times.",
        times=_TIMES[timestamps],
        input=table.override(step=length(step).strip('"') if timestamps else step).seen_from(folder).to_toml(),
    )
    return "\n".join(map(_align, text.split("\n")))


def _align(line: str) -> str:
    """Put the comment of a line into one column with the others, if the line is short enough."""
    setting, mark, remark = line.partition("   # ")
    return f"{setting.rstrip():<27} # {remark.strip()}" if mark and setting.strip() else line


def _quote(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)


def _format_names(names: tuple[str, ...]) -> str:
    text = ", ".join(map(_quote, names))
    if len(text) <= 100:
        return f"[{text}]"
    return "[\n" + "".join(f"    {_quote(name)},\n" for name in names) + "]"


_TIMES = {
    True: """\
times = "wall"              # no tick is published before the wall clock has passed its end; "data": a replay
# ahead = "1s"              # refuse times further ahead of the wall clock; at most, and by default, the lateness
# advance = "wall"          # close ticks by the clock on the wall also while no reading comes\
""",
    False: """\
times = "data"              # ages are what the times say; "wall": they are seconds since 1970, held against the clock\
""",
}

_TEXT = """\
# A stream of csdp, written from {data}. Check it with: csdp stream --spec FILE --check
# Paths are relative to this file.

dataset = {dataset}         # its name in the ledger
ledger = "ledger.db"        # a file, or "postgresql://user@host/database"
plan = {plan}               # chain, query, ages, noise and estimator: `csdp plan` or `csdp suggest` writes it
# state_file = "stream.state"        # keep the newest readings on disk (mode 0600): after a restart no waiting for ages

# drift = true              # warn the operator when readings no longer follow the chain
# anyway = true             # publish even if less than 5 % of the error of guessing the usual value is removed

# The sequences by the names that messages use, in the order of lists of values.
sequences = {names}

# [limits]                  # limits of the dataset, recorded in the ledger
# budget = 0.5              # what all outputs may reveal about anyone's present state, at every moment
# event_limit = 20.0        # for the plain differential privacy of one reading
# lifetime_limit = 5.0      # for what all outputs together reveal about one reading

[clock]                     # {unit}
step = {step}
lateness = {lateness}       # how long a tick waits for late readings before it closes
{times}

# Messages: {{"time": T, "sequence": NAME, "value": V}}, or {{"time": T, "values": {{NAME: V, ...}}}}.
[source]
kind = "stdin"
# kind = "input"            # replay the table of [input]
# kind = "file"             # follow a file of such lines
# path = "readings.ndjson"
# kind = "mqtt"             # readings on TOPIC/NAME, snapshots on TOPIC
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
