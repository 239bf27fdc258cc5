"""`csdp chain`: make, show and simulate models of correlated sequences."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from csdp.chain import CoupledChain, Model
from csdp.chain.files import save_model
from csdp.chain.stationary import mixing_time
from csdp.cli import options
from csdp.cli.terminal import CommandGroup, print_lines, print_table
from csdp.errors import CsdpError, InputError

chain_app = typer.Typer(
    cls=CommandGroup,
    help="Make, show and simulate models of correlated sequences.\n\n\b\nExample:\n"
    "  csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 -o chain.json\n  csdp chain show chain.json",
    short_help="Make, show and simulate models of correlated sequences.",
    rich_markup_mode=None,
)


@chain_app.command("new")
def new(
    p: Annotated[float, typer.Option("--p", min=0, max=1, help="Probability of a step 0 -> 1.")],
    q: Annotated[
        float | None, typer.Option("--q", min=0, max=1, help="Probability of a step 1 -> 0.", show_default="p")
    ] = None,
    sequences: Annotated[int, typer.Option("--sequences", "-s", min=1, max=2000, help="Number of sequences.")] = 1,
    self_coupling: Annotated[
        float,
        typer.Option(
            metavar="W",
            min=0,
            max=1,
            help="Weight of a sequence's own state, in [0, 1]; the other sequences share the remaining weight equally.",
        ),
    ] = 1.0,
    names: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Names of the sequences.", show_default="x1,x2,...")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="CHAIN.json", help="File to write the model to; - prints it.")
    ] = "-",
) -> None:
    """Make a coupled chain of two states from a few numbers and write it as JSON.

    \b
    Example:
      csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 --q 0.3 -o chain.json

    Other chains are made in Python, or written by hand: {"coupling": [[0.6, 0.4], [0.3, 0.7]], "transitions":
    [[0.9, 0.1], [0.4, 0.6]]} is a model file.
    """
    coupling = np.full((sequences, sequences), (1.0 - self_coupling) / max(sequences - 1, 1))
    np.fill_diagonal(coupling, self_coupling)
    back = p if q is None else q
    model = CoupledChain(coupling, [[1 - p, p], [back, 1 - back]], names=options.parse_names(names))
    if output == "-":
        typer.echo(model.to_json())
        return
    save_model(model, output)
    typer.echo(f"wrote {output}: {model!r}")


@chain_app.command("show")
def show(chain: Annotated[str, options.CHAIN]) -> None:
    """Show the properties of a model: mixing time, stationary distributions, components.

    \b
    Example:
      csdp chain show chain.json
    """
    model = options.read_chain(chain)
    sizes = sorted((len(part) for part in model.components()), reverse=True)
    parts = f"{len(sizes)} (sizes {', '.join(map(str, sizes[:8]))}{', ...' * (len(sizes) > 8)})"
    rows = [*_law_rows(model), ("components", parts)] if model.has_law else [("components", parts)]
    print_lines([repr(model)])
    print_table("", (), rows)
    print_lines([model.verdict.words])


def _law_rows(model: Model) -> list[tuple[str, str]]:
    """How fast a model forgets, and what its sequences do in the long run."""
    rate = model.rate()
    rows = [
        ("differences shrink by", f"{rate:.6g} per step"),
        ("mixing time", f"{mixing_time(rate):g} steps to a quarter"),
    ]
    try:
        laws = model.marginals()[:8]
    except CsdpError:
        return [*rows, ("stationary marginals", "several stationary laws")]
    shown = [(f"stationary law of sequence {i}", ", ".join(f"{p:.4g}" for p in law)) for i, law in enumerate(laws, 1)]
    return [*rows, *shown, *[("", f"... and {model.sequences - 8} more")] * (model.sequences > 8)]


@chain_app.command("simulate")
def simulate(
    chain: Annotated[str, options.CHAIN],
    steps: Annotated[int, typer.Option(help="Number of snapshots to draw, one per row.")],
    seed: Annotated[int, options.SEED] = 0,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="OUT.csv", help="File to write the snapshots to; - prints them."),
    ] = "-",
) -> None:
    """Draw snapshots from a model: a table with a column `time` and one per sequence, with the values of the states.

    \b
    Example:
      csdp chain simulate chain.json --steps 1000 --seed 1 -o simulated.csv
    """
    model = options.read_chain(chain)
    if output != "-" and Path(output).suffix.lower() != ".csv":
        raise InputError(f"output: {output!r} given; the name must end in .csv")
    if "time" in {name.lower() for name in model.names}:
        raise InputError("chain: a sequence is named 'time' like the column of times; rename it")
    states = model.simulate(steps, seed=seed)
    values = model.value_table[np.arange(model.sequences), states].tolist()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *model.names])
    writer.writerows([time, *(int(x) if x.is_integer() else x for x in row)] for time, row in enumerate(values))
    if output == "-":
        typer.echo(text.getvalue(), nl=False)
        return
    Path(output).write_text(text.getvalue(), encoding="utf-8", newline="")
    typer.echo(f"wrote {output}: {steps:,} snapshots of {model.sequences:,} sequences, seed {seed}")
