"""Options that several commands share, each declared once, and the values that they stand for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import typer

from csdp.chain import Model
from csdp.chain.files import load_model, read_model
from csdp.errors import InputError
from csdp.panel import Discretiser, InputSpec, Panel, Readings
from csdp.panel.read import read_input, to_panel, to_spec

# ---- input files ---------------------------------------------------------------------------------------------------

CHAIN = typer.Argument(
    metavar="CHAIN.json",
    help="Model file written by `csdp chain new` or `csdp fit`; - reads it from standard input.",
)
DATA = typer.Argument(
    metavar="DATA",
    help="Readings: a table (.csv, .tsv, .jsonl, .parquet, .xlsx), wide or long; or a .toml file with an "
    "[input] section, as `csdp open` writes it.",
)
LEDGER = typer.Argument(metavar="FILE|URL", help="Ledger: a SQLite file or a postgresql:// URL.")
PUBLIC = typer.Option(
    "--public", help="Declare that the readings are public; a model fitted to private readings leaks them."
)
UNTIL = typer.Option(
    metavar="TIME",
    help="End of the public past: use only ticks that are over at this time. What follows is released.",
    show_default="none",
)

# ---- plans, limits and datasets ------------------------------------------------------------------------------------

QUERY = typer.Option(
    metavar="QUERY",
    help="Statistic: mean, sum, max, min, histogram, identity, count:STATE, share:STATE or linear:W1,W2,...; "
    "of readings in a range: 'mean of readings LOW..HIGH by STEP', also sum, linear:W1,W2,..., count:FROM..BELOW or "
    "histogram:EDGE1,EDGE2,...",
)
AGE = typer.Option(
    metavar="A[,A2,...]", help="Age of the published data in steps: one for all sequences, or one per sequence."
)
NOISE_LEVEL = typer.Option(help="Noise level epsilon_c of one release, above 0; a smaller value adds more noise.")
BUDGET = typer.Option(help="Largest leakage of the present that is allowed at any moment, above 0.")
MOMENT_LIMIT = typer.Option(
    help="Largest leakage about the state at any one tick, past or present, allowed for everything ever published, "
    "above 0."
)
WINDOW = typer.Option(
    min=1, metavar="TICKS", help="State plain differential privacy of any so many consecutive readings of one sequence."
)
WINDOW_LIMIT = typer.Option(help="Largest epsilon allowed for the readings of a --window, above 0.")
EVENT_LIMIT = typer.Option(
    help="Largest epsilon of plain differential privacy allowed for one reading; epsilon_c cannot exceed it."
)
DATASET = typer.Option(
    metavar="NAME", help="Name of the dataset in the ledger; use the same name for the same readings every time."
)
ONE_DATASET = typer.Option(metavar="NAME", help="Use only this dataset of the ledger.", show_default="all of them")
HEAD = typer.Option(
    metavar="HASH",
    help="Head hash of the dataset that you noted earlier (certificates contain it); requires --dataset.",
)

# ---- running and output --------------------------------------------------------------------------------------------

SEED = typer.Option(min=0, help="Seed for reproducible sampling. The noise of published releases is never seeded.")
FORMAT = typer.Option("--format", help='Print text and tables (table), or JSON (json; infinity is the string "inf").')
CHECK = typer.Option("--check", help="Check everything that a start needs, print it, and stop; nothing is published.")


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


# ---- numbers and names ---------------------------------------------------------------------------------------------


def parse_ages(text: str) -> int | list[int]:
    """Parse one age for all sequences, or one for each.

    >>> parse_ages("2"), parse_ages("1,3")
    (2, [1, 3])
    """
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"age: {text!r} given; whole numbers separated by commas expected") from None
    return numbers[0] if len(numbers) == 1 else numbers


def parse_names(text: str | None) -> list[str] | None:
    """Parse names separated by commas.

    >>> parse_names("kitchen, hall")
    ['kitchen', 'hall']
    """
    return None if text is None else [name.strip() for name in text.split(",")]


def refuse_together(options: Mapping[str, object], source: str) -> None:
    """Refuse options that repeat or contradict others.

    >>> refuse_together({"--claim": None, "--seed": 2}, "--ledger")
    Traceback (most recent call last):
      ...
    csdp.errors.InputError: --seed: cannot be combined with --ledger; leave out --seed
    """
    names = ", ".join(name for name, value in options.items() if value is not None)
    if names:
        raise InputError(f"{names}: cannot be combined with {source}; leave out {names}")
