"""`csdp chain`: make, show and simulate models of correlated sequences."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from csdp.chain import CoupledChain, Model
from csdp.chain.files import save_model
from csdp.cli import options
from csdp.cli.terminal import CommandGroup, console, print_json, print_lines
from csdp.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

#: Largest number of sequences for a coupling of every pair: the file has one entry per pair.
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
    sequences: Annotated[
        int | None, typer.Option("--sequences", "-s", help="Number of sequences.", show_default="from --coupling, or 1")
    ] = None,
    states: Annotated[
        int | None, typer.Option(help="Number of states of each sequence.", show_default="from --transitions, or 2")
    ] = None,
    self_coupling: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Weight of a sequence's own state, in [0, 1]; the other sequences share the remaining weight equally.",
        ),
    ] = None,
    ring: Annotated[
        bool, typer.Option("--ring", help="Give the remaining weight to the two neighbours on a ring only.")
    ] = False,
    coupling: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="Weights of all pairs: a matrix such as [[0.75,0.25],[0.25,0.75]], one row per dependent sequence, or "
            '{"edges": [[target,source,weight],...]}.',
        ),
    ] = None,
    p: Annotated[
        float | None,
        typer.Option("--p", help="Probability of a step 0 -> 1; with more than two states, of leaving any state."),
    ] = None,
    q: Annotated[
        float | None, typer.Option("--q", help="Probability of a step 1 -> 0 (two states only).", show_default="p")
    ] = None,
    transitions: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="Transition matrix, rows from -> to, such as [[0.9,0.1],[0.4,0.6]]; or one matrix per coupled pair.",
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="V0,V1,...",
            help="Numeric value of each state; JSON rows give each sequence its own values.",
            show_default="0,1,...",
        ),
    ] = None,
    names: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Names of the sequences.", show_default="x1,x2,...")
    ] = None,
    direction: Annotated[
        Literal["forward", "backward"],
        typer.Option(
            help="Whether transitions lead from a snapshot to the next one (forward) or to the previous one (backward)."
        ),
    ] = "forward",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="CHAIN.json", help="File to write the model to; - prints it.")
    ] = "-",
) -> None:
    """Make a coupled chain from a few numbers and write it as JSON.

    \b
    Example:
      csdp chain new --sequences 2 --self-coupling 0.75 --p 0.3 --q 0.3 -o chain.json
      csdp chain new --sequences 20 --self-coupling 0.8 --ring --p 0.01 -o ring.json
      csdp chain new --coupling '[[0.6,0.4],[0.3,0.7]]' --transitions '[[0.9,0.1],[0.4,0.6]]'
    """
    model = CoupledChain(
        _coupling(sequences, self_coupling, ring, coupling),
        _transitions(states, p, q, transitions),
        values=None if values is None else options.parse_numbers("values", values),
        names=None if names is None else options.parse_names(names),
        direction=direction,
    )
    for what, requested, actual in (("sequences", sequences, model.sequences), ("states", states, model.states)):
        if requested is not None and requested != actual:
            raise InputError(f"{what}: {requested} given, but the matrices have {actual}")
    if output == "-":
        typer.echo(model.to_json())
        return
    save_model(model, output)
    typer.echo(f"wrote {output}: {model!r}")


def _coupling(sequences: int | None, self_coupling: float | None, ring: bool, coupling: str | None) -> Any:
    """The coupling that the options describe, as CoupledChain takes it."""
    if coupling is not None:
        if self_coupling is not None or ring:
            raise InputError("coupling: give --coupling, or --self-coupling (with or without --ring), not both")
        return parse_coupling(options.parse_json_or_file("coupling", coupling))
    count = 1 if sequences is None else sequences
    if self_coupling is None and count > 1:
        raise InputError("coupling: give --self-coupling W (1 for independent sequences), or --coupling")
    return make_coupling(count, 1.0 if self_coupling is None else self_coupling, ring=ring)


def _transitions(states: int | None, p: float | None, q: float | None, transitions: str | None) -> Any:
    """The transitions that the options describe, as CoupledChain takes them."""
    if transitions is not None:
        if p is not None or q is not None:
            raise InputError("transitions: give --transitions, or --p and --q, not both")
        return options.parse_json_or_file("transitions", transitions)
    if p is None:
        raise InputError("transitions: give --p (and --q) for equal probabilities, or --transitions for a matrix")
    return make_transitions(2 if states is None else states, p, q)


def make_coupling(sequences: int, self_coupling: float, *, ring: bool) -> Any:
    """Make a coupling with one self-weight; all others, or both neighbours on a ring, share the remaining weight.

    >>> make_coupling(3, 0.5, ring=False).toarray().tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    >>> make_coupling(4, 0.5, ring=True).toarray()[0].tolist()
    [0.5, 0.25, 0.0, 0.25]
    """
    from scipy.sparse import coo_array

    if sequences < 1:
        raise InputError(f"sequences: {sequences} given; at least 1")
    if not 0 <= self_coupling <= 1:
        raise InputError(f"self-coupling: {self_coupling:g} given; a weight in [0, 1] expected")
    if sequences == 1 and self_coupling != 1:
        raise InputError("self-coupling: a single sequence has no others to share weight with; leave it out, or give 1")
    if not ring and sequences > ALL_TO_ALL:
        raise InputError(
            f"sequences: {sequences:,} given; at most {ALL_TO_ALL:,} if every pair is coupled. "
            "Use --ring, or --coupling with edges"
        )
    places = np.arange(sequences)
    offsets = [offset for offset in ([1, sequences - 1] if ring else range(1, sequences)) if offset % sequences]
    targets = np.tile(places, len(offsets) + 1)
    sources = np.concatenate([places, *((places + offset) % sequences for offset in offsets)])
    weights = np.full(targets.size, (1.0 - self_coupling) / max(len(offsets), 1))
    weights[:sequences] = self_coupling
    matrix = coo_array((weights, (targets, sources)), shape=(sequences, sequences)).tocsr()
    matrix.sum_duplicates()
    return matrix


def parse_coupling(content: Any) -> Any:
    """Parse a coupling from JSON: the matrix, or `{"edges": [[target, source, weight], ...]}` if most weights are 0.

    >>> parse_coupling({"edges": [[0, 0, 1.0]]})
    {(0, 0): 1.0}
    """
    if not isinstance(content, dict):
        return content
    try:
        return {(int(j), int(k)): float(weight) for j, k, weight in content["edges"]}
    except (KeyError, TypeError, ValueError):
        raise InputError('coupling: a matrix, or {"edges": [[target, source, weight], ...]} expected') from None


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
        raise InputError(f"q: only for two states, {states} given; give --p alone, or --transitions")
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
    """Show the properties of a model: spectrum, mixing time, stationary distributions, components.

    \b
    Example:
      csdp chain show chain.json
      csdp chain show chain.json --format json
    """
    model = options.read_chain(chain)
    summary = model.summary()
    if form == "table":
        console().print(summary)
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
    }
    print_json({**description, **summary.to_dict()})


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
