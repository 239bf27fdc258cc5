"""Options shared by several commands (one name, one help text, one type), and the values that they stand for.

Where two aliases share an option, they differ in whether it is required, or in its default."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from csdp.bounds.adversary import Adversary
from csdp.chain import Model
from csdp.chain.files import load_model, read_model
from csdp.cli.terminal import Format
from csdp.errors import InputError
from csdp.json_text import parse_json
from csdp.panel import Discretiser, InputSpec, Panel
from csdp.panel.read import read_input, to_panel
from csdp.panel.readings import Outside
from csdp.report.files import ensure_writable

_CHAIN = "Model file written by `csdp chain new` or `csdp fit`; - reads it from standard input."
_LEDGER = "Ledger: a SQLite file or a postgresql:// URL."
_QUERY = (
    "Statistic to publish: mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,...; of readings: "
    "mean, sum, linear:W1,W2,..., count:FROM..BELOW or histogram:EDGE1,EDGE2,..."
)
_NOISE = typer.Option(help="Noise level epsilon_c of one release, above 0; a smaller value adds more noise.")
_ADVERSARY = (
    "What the adversary knows besides the model: all other current values (informed), none (uninformed), or the worst "
    "subset (any)."
)
_PROTECT = typer.Option(
    metavar="R",
    help="Protect only differences of present values up to this distance, instead of any two values.",
    show_default="any two values",
)
_BUDGET = "Largest leakage of the present that is allowed at any moment, above 0."
_EVENT_LIMIT = "Largest epsilon of plain differential privacy allowed for one reading; epsilon_c cannot exceed it."
_DATASET = "Name of the dataset in the ledger; use the same name for the same readings every time."
_DISCRETISER = "Discretiser file written by `csdp fit`; it maps readings to states."
_SEED = "Seed for reproducible sampling. The noise of published releases is never seeded."

# ---- input files ---------------------------------------------------------------------------------------------------

ChainFile = Annotated[str, typer.Argument(metavar="CHAIN.json", help=_CHAIN)]
OptionalChainFile = Annotated[str | None, typer.Argument(metavar="CHAIN.json", help=_CHAIN)]
ChainOption = Annotated[str | None, typer.Option(metavar="CHAIN.json", help=_CHAIN)]
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Readings: a table (.csv, .tsv, .jsonl, .parquet, .arrow, .xlsx, .sqlite, .duckdb, or a postgresql:// "
        "address), wide or long; or a .toml file with an [input] section, as `csdp open` writes it.",
    ),
]
LedgerArgument = Annotated[str, typer.Argument(metavar="FILE|URL", help=_LEDGER)]
LedgerOption = Annotated[str, typer.Option(metavar="FILE|URL", help=_LEDGER)]
PlanFile = Annotated[
    str | None,
    typer.Option(metavar="PLAN.json", help="Plan file written by `csdp plan`; replaces the options that make a plan."),
]
DiscretiserFile = Annotated[
    str | None, typer.Option(metavar="FILE", help=_DISCRETISER, show_default="readings are values of the model")
]
FitDiscretiserFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help=_DISCRETISER, show_default="made from --states, --strategy and --edges"),
]
Public = Annotated[
    bool,
    typer.Option(
        "--public", help="Declare that the readings are public; a model fitted to private readings leaks them."
    ),
]
Step = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Time between two ticks, such as 300 (seconds for timestamps) or 5min.",
        show_default="taken from the file",
    ),
]
OutsideOption = Annotated[
    Literal["refuse", "clamp"],
    typer.Option(
        help="For readings that are not values of the model: reject the file (refuse), or use the nearest value "
        "(clamp)."
    ),
]
Engine = Annotated[
    Literal["memory", "duckdb", "spark"],
    typer.Option(help="How to read the file: memory, duckdb (files larger than memory) or spark (clusters)."),
]

# ---- a release -----------------------------------------------------------------------------------------------------

Query = Annotated[str, typer.Option(metavar="QUERY", help=_QUERY)]
OptionalQuery = Annotated[str | None, typer.Option(metavar="QUERY", help=_QUERY, show_default="mean")]
BestQuery = Annotated[str | None, typer.Option(metavar="QUERY", help=_QUERY, show_default="the best of several")]
Age = Annotated[int | None, typer.Option(help="Age of the published data in steps, the same for all sequences.")]
Ages = Annotated[
    str | None, typer.Option(metavar="A1,A2,...", help="Ages in steps, one per sequence (or one for all).")
]
NoiseLevel = Annotated[float, _NOISE]
OptionalNoiseLevel = Annotated[float | None, _NOISE]
AdversaryOption = Annotated[Adversary, typer.Option(help=_ADVERSARY)]
Protect = Annotated[float | None, _PROTECT]
OptionalAdversary = Annotated[Adversary | None, typer.Option(help=_ADVERSARY, show_default="informed")]
MaxAge = Annotated[int, typer.Option(help="Largest age in steps that a plan may use.")]

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
FIGURE = "FIGURE.svg|.png|.pdf"


# ---- files ---------------------------------------------------------------------------------------------------------


def read_chain(path: str) -> Model:
    """Read a model from a file, or from standard input for `-`."""
    return read_model(sys.stdin.read()) if path == "-" else load_model(path)


def read_text(path: str, where: str) -> str:
    """Read the text of a JSON file; error messages begin with `where`."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{where}: a folder given; a JSON file expected") from None
    except ValueError:  # not UTF-8, or a path that no file can have
        raise InputError(f"{where}: not a text file; JSON in UTF-8 expected") from None


def read_states(
    data: InputSpec, model: Model, *, discretiser: str | Discretiser | None, outside: Outside = "refuse"
) -> Panel:
    """Read readings as states of a model.

    Args:
        data: Readings, and how to read them.
        model: The model whose sequences and values the file has.
        discretiser: Maps readings to states, or its file; None if readings are values of the model.
        outside: What to do with readings that are not values of the model.
    """
    if discretiser is None:
        readings = read_input(data.file, replace(data, names=model.names))
        return to_panel(readings, values=model.value_table, outside=outside)
    known = discretiser if isinstance(discretiser, Discretiser) else Discretiser.load(discretiser)
    readings = read_input(data.file, replace(data, names=model.names, categories=known.categories or data.categories))
    return known.apply(readings)


def check_figure(path: Path | None) -> None:
    """Refuse a figure file that cannot be written, before its content is computed."""
    if path is None:
        return
    if path.suffix.lower() not in {".svg", ".png", ".pdf"}:
        raise InputError(f"figure: {path.name!r} given; a name that ends in .svg, .png or .pdf expected")
    ensure_writable(path)


# ---- numbers, names and JSON ---------------------------------------------------------------------------------------


def parse_step_option(text: str) -> int | str:
    """Parse a time step: a whole number, or text such as 5min, which readers of panels understand.

    >>> parse_step_option("300"), parse_step_option("5min")
    (300, '5min')
    """
    try:
        return int(text)
    except ValueError:
        return text


def parse_ages(age: int | None, ages: str | None) -> int | list[int]:
    """Parse --age (one age for all sequences) or --ages (one per sequence).

    >>> parse_ages(2, None), parse_ages(None, "1,3"), parse_ages(None, "2")
    (2, [1, 3], 2)
    """
    if ages is None:
        if age is None:
            raise InputError("age: not given; give --age for all sequences, or --ages with one age per sequence")
        return age
    if age is not None:
        raise InputError("age: both --age and --ages given; give --age for all sequences, or --ages with one each")
    try:
        numbers = [int(number) for number in ages.split(",")]
    except ValueError:
        raise InputError(f"ages: {ages!r} given; whole numbers separated by commas expected") from None
    return numbers[0] if len(numbers) == 1 else numbers


def parse_json_or_file(what: str, text: str) -> Any:
    """Parse inline JSON (it begins with a bracket), or the JSON in the file that the text names.

    >>> parse_json_or_file("coupling", "[[0.75, 0.25], [0.25, 0.75]]")
    [[0.75, 0.25], [0.25, 0.75]]
    """
    inline = text.lstrip().startswith(("[", "{"))
    where = what if inline else f"{what}: {text}"
    if not inline:
        if not Path(text).exists():
            raise InputError(f"{where}: no such file, and not JSON, which begins with a bracket")
        text = read_text(text, where)
    return parse_json(where, text)


def parse_numbers(what: str, text: str) -> Any:
    """Parse numbers separated by commas, or JSON inline or in a file.

    >>> parse_numbers("values", "0,1.5")
    [0.0, 1.5]
    """
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        return parse_json_or_file(what, text)


def parse_names(text: str) -> list[str]:
    """Parse names separated by commas, or a JSON list of strings.

    >>> parse_names("kitchen, hall")
    ['kitchen', 'hall']
    """
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(",")]
    names = parse_json_or_file("names", text)
    if not all(isinstance(name, str) for name in names):
        raise InputError("names: a JSON list of strings expected")
    return list(names)


def refuse_together(options: Mapping[str, Any], source: str) -> None:
    """Refuse options that repeat or contradict what a file says.

    >>> refuse_together({"--query": None, "--age": 2}, "--plan")
    Traceback (most recent call last):
      ...
    csdp.errors.InputError: --age: cannot be combined with --plan, which already sets it; leave out --age
    """
    names = ", ".join(name for name, value in options.items() if value is not None)
    if names:
        raise InputError(f"{names}: cannot be combined with {source}, which already sets it; leave out {names}")
