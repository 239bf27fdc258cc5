"""Options shared by several commands (one name, one help text, one type), and the values that they stand for.

Where two aliases share an option, they differ in whether it is required, or in its default."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from csdp.chain import Model
from csdp.chain.files import load_model, read_model
from csdp.cli.terminal import Format
from csdp.errors import InputError
from csdp.panel import Discretiser, InputSpec, Panel, Readings
from csdp.panel.read import read_input, to_panel, to_spec

_CHAIN = "Model file written by `csdp chain new` or `csdp fit`; - reads it from standard input."
_LEDGER = "Ledger: a SQLite file or a postgresql:// URL."
_PLAN = "Plan file written by `csdp plan` or `csdp suggest`."
_QUERY = (
    "Statistic to publish: mean, sum, max, min, histogram, identity, count:STATE, share:STATE or linear:W1,W2,...; of "
    "readings in a range: 'mean of readings LOW..HIGH by STEP', also sum, linear:W1,W2,..., count:FROM..BELOW or "
    "histogram:EDGE1,EDGE2,..."
)
_AGE = "Age of the published data in steps: one for all sequences, or one per sequence."
_NOISE = typer.Option(help="Noise level epsilon_c of one release, above 0; a smaller value adds more noise.")
_BUDGET = "Largest leakage of the present that is allowed at any moment, above 0."
_EVENT_LIMIT = "Largest epsilon of plain differential privacy allowed for one reading; epsilon_c cannot exceed it."
_DATASET = "Name of the dataset in the ledger; use the same name for the same readings every time."
_SEED = "Seed for reproducible sampling. The noise of published releases is never seeded."

# ---- input files ---------------------------------------------------------------------------------------------------

ChainFile = Annotated[str, typer.Argument(metavar="CHAIN.json", help=_CHAIN)]
OptionalChainFile = Annotated[str | None, typer.Argument(metavar="CHAIN.json", help=_CHAIN)]
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Readings: a table (.csv, .tsv, .jsonl, .parquet, .xlsx), wide or long; or a .toml file "
        "with an [input] section, as `csdp open` writes it.",
    ),
]
LedgerArgument = Annotated[str, typer.Argument(metavar="FILE|URL", help=_LEDGER)]
LedgerOption = Annotated[str, typer.Option(metavar="FILE|URL", help=_LEDGER)]
Plan = Annotated[str, typer.Option(metavar="PLAN.json", help=_PLAN)]
OptionalPlan = Annotated[str | None, typer.Option(metavar="PLAN.json", help=_PLAN)]
DiscretiserFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Discretiser file written by `csdp fit`; it maps readings to states.",
        show_default="readings are values of the model; for fit: made from --states, --strategy and --edges",
    ),
]
Public = Annotated[
    bool,
    typer.Option(
        "--public", help="Declare that the readings are public; a model fitted to private readings leaks them."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="End of the public past: use only ticks that are over at this time. What follows is released.",
        show_default="none",
    ),
]

# ---- a plan --------------------------------------------------------------------------------------------------------

Query = Annotated[str, typer.Option(metavar="QUERY", help=_QUERY)]
OptionalQuery = Annotated[str | None, typer.Option(metavar="QUERY", help=_QUERY, show_default="the best of several")]
Age = Annotated[str | None, typer.Option(metavar="A[,A2,...]", help=_AGE)]
NoiseLevel = Annotated[float | None, _NOISE]
Low = Annotated[float | None, typer.Option(help="Publish the readings themselves; those below this count as this.")]
High = Annotated[float | None, typer.Option(help="With --low: readings above this count as this.")]
Resolution = Annotated[
    float | None,
    typer.Option(
        help="With --low and --high: readings are rounded to steps of this, which must divide the range.",
        show_default="a thousandth of the range",
    ),
]

# ---- limits and datasets -------------------------------------------------------------------------------------------

Budget = Annotated[float, typer.Option(help=_BUDGET)]
OptionalBudget = Annotated[float | None, typer.Option(help=_BUDGET, show_default="no limit")]
EventLimit = Annotated[float, typer.Option(help=_EVENT_LIMIT)]
OptionalEventLimit = Annotated[float | None, typer.Option(help=_EVENT_LIMIT, show_default="no limit")]
Dataset = Annotated[str, typer.Option(metavar="NAME", help=_DATASET)]
FileDataset = Annotated[str | None, typer.Option(metavar="NAME", help=_DATASET, show_default="the file's name")]
OneDataset = Annotated[
    str | None, typer.Option(metavar="NAME", help="Use only this dataset of the ledger.", show_default="all of them")
]
Head = Annotated[
    str | None,
    typer.Option(
        metavar="HASH",
        help="Head hash of the dataset that you noted earlier (certificates contain it); requires --dataset.",
    ),
]

# ---- output --------------------------------------------------------------------------------------------------------

Seed = Annotated[int, typer.Option(min=0, help=_SEED)]
OptionalSeed = Annotated[int | None, typer.Option(min=0, help=_SEED, show_default="random")]
FormatOption = Annotated[
    Format,
    typer.Option("--format", help='Print text and tables (table), or JSON (json; infinity is the string "inf").'),
]
Check = Annotated[
    bool, typer.Option("--check", help="Check everything that a start needs, print it, and stop; nothing is published.")
]


# ---- files ---------------------------------------------------------------------------------------------------------


def read_chain(path: str) -> Model:
    """Read a model from a file, or from standard input for `-`."""
    return read_model(sys.stdin.read()) if path == "-" else load_model(path)


def locate(data: str) -> InputSpec:
    """Where readings are and how they are read: a file as it is, or what an `[input]` section says."""
    file, spec = to_spec(data, InputSpec())
    return replace(spec, file=str(file))


def read_states(data: InputSpec, model: Model, discretiser: Discretiser | None) -> Panel:
    """Read readings as states of a model: by a discretiser, or as values that the model declares."""
    if discretiser is None:
        return to_panel(read_input(data.file, replace(data, names=model.names)), values=model.value_table)
    categories = discretiser.categories or data.categories
    return discretiser.apply(read_input(data.file, replace(data, names=model.names, categories=categories)))


def split_panel(panel: Panel, until: str | int) -> tuple[Panel, Panel]:
    """The ticks of a panel that are over at a time, and the others."""
    cells = panel.states.astype(float)
    readings = Readings(panel.names, panel.ticks, panel.times, cells, panel.step)
    cut = len(readings.split(until)[0])
    return panel.between(0, cut), panel.between(cut, len(panel))


# ---- numbers and names ---------------------------------------------------------------------------------------


def parse_ages(text: str | None) -> int | list[int]:
    """Parse one age for all sequences, or one for each.

    >>> parse_ages("2"), parse_ages("1,3")
    (2, [1, 3])
    """
    if text is None:
        raise InputError("age: not given; give --age, one for all sequences or one for each, such as --age 1,3")
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"age: {text!r} given; whole numbers separated by commas expected") from None
    return numbers[0] if len(numbers) == 1 else numbers


def parse_numbers(what: str, text: str) -> list[float]:
    """Parse numbers separated by commas.

    >>> parse_numbers("edges", "0,1.5")
    [0.0, 1.5]
    """
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"{what}: {text!r} given; numbers separated by commas expected") from None


def parse_names(text: str) -> list[str]:
    """Parse names separated by commas.

    >>> parse_names("kitchen, hall")
    ['kitchen', 'hall']
    """
    return [name.strip() for name in text.split(",")]


def refuse_together(options: Mapping[str, object], source: str) -> None:
    """Refuse options that repeat or contradict what a file says.

    >>> refuse_together({"--query": None, "--age": 2}, "--plan")
    Traceback (most recent call last):
      ...
    csdp.errors.InputError: --age: cannot be combined with --plan, which already sets it; leave out --age
    """
    names = ", ".join(name for name, value in options.items() if value is not None)
    if names:
        raise InputError(f"{names}: cannot be combined with {source}, which already sets it; leave out {names}")
