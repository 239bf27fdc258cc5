"""Arguments and options that several commands have: one name, one help text, one kind of value.

Where two aliases share an option, they differ in whether it must be given, or in what happens without it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from csdp.aging import Adversary
from csdp.cli.output import Format

_CHAIN = "The model, as `csdp chain new` or `csdp fit` writes it; - reads standard input."
_LEDGER = "The ledger: a SQLite file, or postgresql://..."
_QUERY = "mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,..."
_NOISE = typer.Option(help="Noise level of a release; smaller means more noise.")
_ADVERSARY = "Who knows, beside the model: every other present value, none, or any part of them."
_BUDGET = typer.Option(help="Ceiling for the leakage of the present, at every moment.")
_EVENT_LIMIT = typer.Option(help="Limit for the plain differential privacy of one reading, and so for epsilon_c.")
_DATASET = "Name of the dataset in the ledger; the same readings always have the same name."
_DISCRETISER = "What makes states of the readings, as `csdp fit` saves it."
_SEED = typer.Option(min=0, help="The same seed draws the same again; what protects a release is never seeded.")

# ---- what is read --------------------------------------------------------------------------------------------------

ChainFile = Annotated[str, typer.Argument(metavar="CHAIN.json", help=_CHAIN)]
MaybeChainFile = Annotated[str | None, typer.Argument(metavar="CHAIN.json", help=_CHAIN)]
ChainOption = Annotated[str | None, typer.Option(metavar="CHAIN.json", help=_CHAIN)]
DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA.csv|.parquet",
        help="Readings: a column `time` and one per sequence, or the columns time, sequence and value.",
    ),
]
LedgerPlace = Annotated[str, typer.Argument(metavar="FILE|URL", help=_LEDGER)]
LedgerOption = Annotated[str, typer.Option(metavar="FILE|URL", help=_LEDGER)]
PlanFile = Annotated[
    str | None,
    typer.Option(
        metavar="PLAN.json", help="A plan, as `csdp plan` writes it, in the place of the options that describe one."
    ),
]
DiscretiserFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help=_DISCRETISER, show_default="readings are values of the model"),
]
FitDiscretiserFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help=_DISCRETISER, show_default="made as --states, --strategy and --edges say"),
]
Public = Annotated[
    bool, typer.Option("--public", help="The readings are public: a model fitted to private ones is itself a leak.")
]
Step = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Time between two ticks, such as 300 (seconds for timestamps) or 5min.",
        show_default="found in the file",
    ),
]
Engine = Annotated[
    Literal["memory", "duckdb", "spark"],
    typer.Option(help="What reads the file: memory; duckdb, for more than fits; spark, for clusters."),
]

# ---- a release -----------------------------------------------------------------------------------------------------

Query = Annotated[str, typer.Option(metavar="QUERY", help=_QUERY)]
MaybeQuery = Annotated[str | None, typer.Option(metavar="QUERY", help=_QUERY, show_default="mean")]
Age = Annotated[int | None, typer.Option(help="How many steps old the published data is, for all sequences.")]
Ages = Annotated[str | None, typer.Option(metavar="A1,A2,...", help="One age per sequence, or one for all.")]
NoiseLevel = Annotated[float, _NOISE]
MaybeNoiseLevel = Annotated[float | None, _NOISE]
Knows = Annotated[Adversary, typer.Option(help=_ADVERSARY)]
MaybeKnows = Annotated[Adversary | None, typer.Option(help=_ADVERSARY, show_default="informed")]
MaxAge = Annotated[int, typer.Option(help="Oldest age that a plan may have.")]

# ---- limits and where they are kept --------------------------------------------------------------------------------

Budget = Annotated[float, _BUDGET]
MaybeBudget = Annotated[float | None, _BUDGET]
EventLimit = Annotated[float, _EVENT_LIMIT]
MaybeEventLimit = Annotated[float | None, _EVENT_LIMIT]
Dataset = Annotated[str, typer.Option(metavar="NAME", help=_DATASET)]
FileDataset = Annotated[str | None, typer.Option(metavar="NAME", help=_DATASET, show_default="the file's name")]
OneDataset = Annotated[
    str | None, typer.Option(metavar="NAME", help="One dataset of the ledger.", show_default="all of them")
]
Head = Annotated[
    str | None,
    typer.Option(
        metavar="HASH", help="A head hash of the dataset, noted earlier (certificates have it); needs --dataset."
    ),
]

# ---- what is drawn and shown ---------------------------------------------------------------------------------------

Seed = Annotated[int, _SEED]
MaybeSeed = Annotated[int | None, _SEED]
Form = Annotated[
    Format,
    typer.Option("--format", help='Words and tables for people, or JSON, where infinity is the string "inf".'),
]
Check = Annotated[
    bool, typer.Option("--check", help="Check all that a start needs, show it, and stop; nothing is published.")
]
FIGURE = "FIGURE.svg|.png|.pdf"
