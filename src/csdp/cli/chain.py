"""`csdp chain`: make, show and simulate models of correlated sequences."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from csdp.chain import CoupledChain, Model
from csdp.chain.files import save_model
from csdp.chain.stationary import mixing_time
from csdp.cli import options
from csdp.cli.terminal import CommandGroup, print_json, print_lines, print_table
from csdp.errors import CsdpError, InputError

if TYPE_CHECKING:
    import numpy.typing as npt

#: Largest number of sequences: the file has one entry per pair.
ALL_TO_ALL = 2000

chain_app = typer.Typer(
    cls=CommandGroup,
    help="Make, show and simulate models of correlated sequences.\n\n\b\nExample:\n"
    "  csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 -o chain.json\n  csdp chain show chain.json",
    short_help="Make, show and simulate models of correlated sequences.",
    rich_markup_mode=None,
)


@chain_app.command("new")
def new(
    p: Annotated[float, typer.Option("--p", help="Probability of a step 0 -> 1; of more states, of leaving any.")],
    q: Annotated[
        float | None, typer.Option("--q", help="Probability of a step 1 -> 0 (two states only).", show_default="p")
    ] = None,
    sequences: Annotated[int, typer.Option("--sequences", "-s", help="Number of sequences.")] = 1,
    self_coupling: Annotated[
        float,
        typer.Option(
            metavar="W",
            help="Weight of a sequence's own state, in [0, 1]; the other sequences share the remaining weight equally.",
        ),
    ] = 1.0,
    states: Annotated[int, typer.Option(help="Number of states of each sequence.")] = 2,
    names: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Names of the sequences.", show_default="x1,x2,...")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="CHAIN.json", help="File to write the model to; - prints it.")
    ] = "-",
) -> None:
    """Make a coupled chain from a few numbers and write it as JSON.

    \b
    Example:
      csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 --q 0.3 -o chain.json

    Other chains are made in Python, or written by hand: {"coupling": [[0.6, 0.4], [0.3, 0.7]], "transitions":
    [[0.9, 0.1], [0.4, 0.6]]} is a model file.
    """
    model = CoupledChain(
        make_coupling(sequences, self_coupling),
        make_transitions(states, p, q),
        names=None if names is None else options.parse_names(names),
    )
    if output == "-":
        typer.echo(model.to_json())
        return
    save_model(model, output)
    typer.echo(f"wrote {output}: {model!r}")


def make_coupling(sequences: int, self_coupling: float) -> Any:
    """Make a coupling with one self-weight; all others share the remaining weight.

    >>> make_coupling(3, 0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    if not 1 <= sequences <= ALL_TO_ALL:
        raise InputError(f"sequences: {sequences:,} given; at least 1 and at most {ALL_TO_ALL:,}")
    if not 0 <= self_coupling <= 1:
        raise InputError(f"self-coupling: {self_coupling:g} given; a weight in [0, 1] expected")
    if sequences == 1 and self_coupling != 1:
        raise InputError("self-coupling: a single sequence has no others to share weight with; leave it out, or give 1")
    matrix = np.full((sequences, sequences), (1.0 - self_coupling) / max(sequences - 1, 1))
    np.fill_diagonal(matrix, self_coupling)
    return matrix


def make_transitions(states: int, p: float, q: float | None) -> Any:
    """Make a transition matrix. Two states: 0 -> 1 with p, 1 -> 0 with q. More: leave with p, to each other alike.

    >>> make_transitions(2, 0.25, 0.5).tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    >>> make_transitions(3, 0.5, None).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    if states < 2:
        raise InputError(f"states: {states} given; at least 2")
    if states > 2 and q is not None:
        raise InputError(f"q: only for two states, {states} given; give --p alone")
    for name, chance in (("p", p), ("q", q)):
        if chance is not None and not 0 <= chance <= 1:
            raise InputError(f"{name}: {chance:g} given; a probability in [0, 1] expected")
    if states == 2:
        back = p if q is None else q
        return np.array([[1 - p, p], [back, 1 - back]])
    matrix = np.full((states, states), p / (states - 1))
    np.fill_diagonal(matrix, 1 - p)
    return matrix


@chain_app.command("show")
def show(chain: options.ChainFile, form: options.FormatOption = "table") -> None:
    """Show the properties of a model: mixing time, stationary distributions, components.

    \b
    Example:
      csdp chain show chain.json
      csdp chain show chain.json --format json
    """
    model = options.read_chain(chain)
    rate, sizes = model.rate(), sorted((len(part) for part in model.components()), reverse=True)
    steps = mixing_time(rate)
    try:
        laws: list[list[float]] | None = model.marginals()[:1000].tolist()
    except CsdpError:
        laws = None
    if form == "table":
        rows = [
            ("differences shrink by", f"{rate:.6g} per step"),
            ("mixing time", f"{steps:g} steps to a quarter"),
            ("components", f"{len(sizes)} (sizes {', '.join(map(str, sizes[:8]))}{', ...' * (len(sizes) > 8)})"),
        ]
        if laws is None:
            rows.append(("stationary marginals", "several stationary laws"))
        else:
            rows += [
                (f"stationary law of sequence {i}", ", ".join(f"{p:.4g}" for p in law))
                for i, law in enumerate(laws[:8], 1)
            ]
            rows += [("", f"... and {model.sequences - 8} more")] * (model.sequences > 8)
        print_lines([repr(model)])
        print_table("", {}, rows)
        print_lines([model.verdict.words])
        return
    description = {
        "schema": model.schema,
        "digest": model.digest,
        "sequences": model.sequences,
        "states": model.states,
        "names": list(model.names),
        "values": model.values.tolist(),
        "model": model.verdict.to_dict(),
        "title": repr(model),
        "rate": rate,
        "mixing_time": None if math.isinf(steps) else steps,
        "marginals": laws,
        "components": sizes[:1000],
    }
    print_json(description)


@chain_app.command("simulate")
def simulate(
    chain: options.ChainFile,
    steps: Annotated[int, typer.Option(help="Number of snapshots to draw, one per row.")],
    seed: options.Seed = 0,
    content: Annotated[
        Literal["states", "values"],
        typer.Option("--as", help="Write state numbers 0,1,... (states) or the values of the states (values)."),
    ] = "states",
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="OUT.csv|.parquet", help="File to write the snapshots to; - prints CSV."
        ),
    ] = "-",
) -> None:
    """Draw snapshots from a model: a table with a column `time` and one per sequence.

    \b
    Example:
      csdp chain simulate chain.json --steps 1000 --seed 1 -o states.csv
      csdp chain simulate chain.json --steps 1000 --as values -o values.parquet
    """
    model = options.read_chain(chain)
    _check_output(output, model)
    rows: npt.NDArray[Any] = model.simulate(steps, seed=seed)
    if content == "values":
        rows = model.value_table[np.arange(model.sequences), rows]
    _write_snapshots(model, rows, output)
    if output != "-":
        typer.echo(f"wrote {output}: {steps:,} snapshots of {model.sequences:,} sequences, seed {seed}")


def _check_output(output: str, model: Model) -> None:
    """Refuse a file of another kind, and a sequence that is named like the column of times."""
    if output != "-" and Path(output).suffix.lower() not in {".csv", ".parquet"}:
        raise InputError(f"output: {output!r} given; the name must end in .csv or .parquet")
    if "time" in {name.lower() for name in model.names}:
        raise InputError("chain: a sequence is named 'time' like the column of times; rename it")


def _write_snapshots(model: Model, rows: npt.NDArray[Any], output: str) -> None:
    """Write snapshots as CSV or Parquet; - prints CSV."""
    if output.lower().endswith(".parquet"):
        import pyarrow
        import pyarrow.parquet

        columns = [np.arange(rows.shape[0]), *(np.ascontiguousarray(column) for column in rows.T)]
        pyarrow.parquet.write_table(pyarrow.table(columns, names=["time", *model.names]), output)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *model.names])
    writer.writerows([time, *row.tolist()] for time, row in enumerate(rows))
    if output == "-":
        typer.echo(text.getvalue(), nl=False)
    else:
        Path(output).write_text(text.getvalue(), encoding="utf-8", newline="")
