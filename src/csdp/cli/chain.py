"""`csdp chain`: make, show and simulate models."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.cli import inputs
from csdp.cli.group import Group
from csdp.cli.options import ChainFile, Form, Seed
from csdp.cli.output import console, show_json
from csdp.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from csdp.chain import Model

chain_app = typer.Typer(
    cls=Group,
    help="Make, show and simulate models of correlated sequences.\n\n\b\nExample:\n"
    "  csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 -o chain.json\n  csdp chain show chain.json",
    short_help="Make, show and simulate models of correlated sequences.",
    rich_markup_mode=None,
)


@chain_app.command("new")
def new(
    sequences: Annotated[
        int | None, typer.Option("--sequences", "-s", help="Number of sequences.", show_default="from --coupling, or 1")
    ] = None,
    states: Annotated[
        int | None, typer.Option(help="States of each sequence.", show_default="from --transitions, or 2")
    ] = None,
    self_coupling: Annotated[
        float | None,
        typer.Option(
            metavar="W", help="Weight with which a sequence follows itself; the others share the rest equally."
        ),
    ] = None,
    ring: Annotated[
        bool, typer.Option("--ring", help="Share the rest among the two nearest neighbours on a ring only.")
    ] = False,
    coupling: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help='Who follows whom: rows [[0.75,0.25],[0.25,0.75]], or {"edges": [[target,source,weight],...]}.',
        ),
    ] = None,
    p: Annotated[
        float | None,
        typer.Option("--p", help="Probability of a step 0 -> 1; with more than two states, of leaving a state."),
    ] = None,
    q: Annotated[
        float | None, typer.Option("--q", help="Probability of a step 1 -> 0 (two states).", show_default="p")
    ] = None,
    transitions: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="Transition matrix, rows from -> to, [[0.9,0.1],[0.4,0.6]]; or one per coupled pair.",
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="V0,V1,...",
            help="Numbers that the states carry; JSON rows, one per sequence.",
            show_default="0,1,...",
        ),
    ] = None,
    names: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Names of the sequences.", show_default="x1,x2,...")
    ] = None,
    initial: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="Law of the oldest snapshot read: joint, or one row per sequence.",
            show_default="the stationary law",
        ),
    ] = None,
    direction: Annotated[
        Literal["forward", "backward"],
        typer.Option(help="Whether the numbers lead from the present to the next snapshot, or to the previous one."),
    ] = "forward",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="CHAIN.json", help="Where to write the model; - prints it.")
    ] = "-",
) -> None:
    """Make a coupled chain and write it as JSON.

    \b
    Example:
      csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 --q 0.3 -o chain.json
      csdp chain new --sequences 20 --self-coupling 0.8 --ring --p 0.01 -o ring.json
      csdp chain new --coupling '[[0.6,0.4],[0.3,0.7]]' --transitions '[[0.9,0.1],[0.4,0.6]]'
    """
    from csdp.chain import CoupledChain
    from csdp.chain.files import save_model

    who = _coupling(sequences, self_coupling, ring, coupling)
    moves = _transitions(states, p, q, transitions)
    model = CoupledChain(
        who,
        moves,
        values=None if values is None else inputs.numbers_or_json("values", values),
        names=None if names is None else inputs.names_list(names),
        initial=None if initial is None else inputs.json_or_file("initial", initial),
        direction=direction,
    )
    for what, asked, found in (("sequences", sequences, model.sequences), ("states", states, model.states)):
        if asked is not None and asked != found:
            raise InputError(f"{what}: {asked} asked for, but the given matrices have {found}")
    if output == "-":
        typer.echo(model.to_json())
        return
    save_model(model, output)
    typer.echo(f"wrote {output}: {model!r}")


def _coupling(sequences: int | None, self_coupling: float | None, ring: bool, coupling: str | None) -> Any:
    from csdp.cli.making import given_coupling, shared_coupling

    if coupling is not None:
        if self_coupling is not None or ring:
            raise InputError("coupling: give --coupling, or --self-coupling (with or without --ring), not both")
        return given_coupling(inputs.json_or_file("coupling", coupling))
    count = 1 if sequences is None else sequences
    if self_coupling is None and count > 1:
        raise InputError("coupling: give --self-coupling W (1 for independent sequences), or --coupling")
    return shared_coupling(count, 1.0 if self_coupling is None else self_coupling, ring=ring)


def _transitions(states: int | None, p: float | None, q: float | None, transitions: str | None) -> Any:
    from csdp.cli.making import simple_transitions

    if transitions is not None:
        if p is not None or q is not None:
            raise InputError("transitions: give --transitions, or --p and --q, not both")
        return inputs.json_or_file("transitions", transitions)
    if p is None:
        raise InputError("transitions: give --p (and --q) for simple moves, or --transitions")
    return simple_transitions(2 if states is None else states, p, q)


@chain_app.command("show")
def show(
    chain: ChainFile,
    form: Form = "table",
) -> None:
    """Show what a model looks like: spectrum, mixing time, stationary laws, components.

    \b
    Example:
      csdp chain show chain.json
      csdp chain show chain.json --format json
    """
    model = inputs.read_chain(chain)
    summary = model.summary()
    if form == "table":
        console().print(summary)
        return
    facts = {
        "schema": model.schema,
        "digest": model.digest,
        "sequences": model.sequences,
        "states": model.states,
        "names": list(model.names),
        "values": model.values.tolist(),
    }
    show_json({**facts, **summary.to_dict()})


@chain_app.command("simulate")
def simulate(
    chain: ChainFile,
    steps: Annotated[int, typer.Option(help="Number of snapshots, one per row.")],
    seed: Seed = 0,
    content: Annotated[
        Literal["states", "values"], typer.Option("--as", help="State numbers 0,1,..., or the values that they carry.")
    ] = "states",
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="OUT.csv|.parquet|.npy", help="Where to write; - prints CSV."),
    ] = "-",
) -> None:
    """Draw snapshots from a model: a table with a column `time` and one per sequence, or a numpy array.

    \b
    Example:
      csdp chain simulate chain.json --steps 1000 --seed 1 -o states.csv
      csdp chain simulate chain.json --steps 1000 --as values -o values.npy
    """
    import numpy as np

    kind = "csv" if output == "-" else Path(output).suffix.lower().removeprefix(".")
    if kind not in {"csv", "parquet", "npy"}:
        raise InputError(f"output: {output!r} given; the name must end in .csv, .parquet or .npy")
    model = inputs.read_chain(chain)
    if kind != "npy" and "time" in {name.lower() for name in model.names}:
        raise InputError("chain: a sequence named 'time' takes the place of the times; rename it, or write .npy")
    rows: npt.NDArray[Any] = model.simulate(steps, seed=seed)
    if content == "values":
        rows = model.value_table[np.arange(model.sequences), rows]
    if output == "-":
        text = io.StringIO()
        _write_csv(text, model, rows)
        typer.echo(text.getvalue(), nl=False)
        return
    if kind == "npy":
        with open(output, "wb") as file:
            np.save(file, rows)
    elif kind == "parquet":
        _write_parquet(output, model, rows)
    else:
        with open(output, "w", encoding="utf-8", newline="") as text_file:
            _write_csv(text_file, model, rows)
    typer.echo(f"wrote {output}: {rows.shape[0]:,} snapshots of {rows.shape[1]:,} sequences, seed {seed}")


def _write_csv(file: Any, model: Model, rows: npt.NDArray[Any]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["time", *model.names])
    writer.writerows([time, *row.tolist()] for time, row in enumerate(rows))


def _write_parquet(path: str, model: Model, rows: npt.NDArray[Any]) -> None:
    import numpy as np
    import pyarrow
    import pyarrow.parquet

    names = ["time", *model.names]
    table = pyarrow.table([np.arange(rows.shape[0]), *(np.ascontiguousarray(c) for c in rows.T)], names=names)
    pyarrow.parquet.write_table(table, path)
