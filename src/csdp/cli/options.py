"""Arguments and options shared by several commands: one name, one help text, one type.

Where two aliases share an option, they differ in whether it is required, or in its default.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from csdp.aging import Adversary
from csdp.cli.terminal import Format

_CHAIN = "Model file written by `csdp chain new` or `csdp fit`; - reads it from standard input."
_LEDGER = "Ledger: a SQLite file or a postgresql:// URL."
_QUERY = "Statistic to publish: mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,..."
_NOISE = typer.Option(help="Noise level epsilon_c of one release, above 0; a smaller value adds more noise.")
_ADVERSARY = (
    "What the adversary knows besides the model: all other current values (informed), none (uninformed), or the worst "
    "subset (any)."
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
        metavar="DATA.csv|.parquet",
        help="Readings: a wide table (column `time` and one column per sequence) or a long one (columns time, "
        "sequence, value).",
    ),
]
LedgerArgument = Annotated[str, typer.Argument(metavar="FILE|URL", help=_LEDGER)]
LedgerOption = Annotated[str, typer.Option(metavar="FILE|URL", help=_LEDGER)]
PlanFile = Annotated[
    str | None,
    typer.Option(metavar="PLAN.json", help="Plan file written by `csdp plan`; replaces the options that make a plan."),
]
DiscretiserFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help=_DISCRETISER, show_default="readings are values of the model"),
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
Engine = Annotated[
    Literal["memory", "duckdb", "spark"],
    typer.Option(help="How to read the file: memory, duckdb (files larger than memory) or spark (clusters)."),
]

# ---- a release -----------------------------------------------------------------------------------------------------

Query = Annotated[str, typer.Option(metavar="QUERY", help=_QUERY)]
OptionalQuery = Annotated[str | None, typer.Option(metavar="QUERY", help=_QUERY, show_default="mean")]
Age = Annotated[int | None, typer.Option(help="Age of the published data in steps, the same for all sequences.")]
Ages = Annotated[
    str | None, typer.Option(metavar="A1,A2,...", help="Ages in steps, one per sequence (or one for all).")
]
NoiseLevel = Annotated[float, _NOISE]
OptionalNoiseLevel = Annotated[float | None, _NOISE]
AdversaryOption = Annotated[Adversary, typer.Option(help=_ADVERSARY)]
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
    bool,
    typer.Option("--check", help="Check everything that a start needs, print it, and stop; nothing is published."),
]
FIGURE = "FIGURE.svg|.png|.pdf"
