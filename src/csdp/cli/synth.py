"""`csdp synth`: synthetic sequences of a privately fitted chain, with what they promise."""

from __future__ import annotations

from typing import Annotated

import typer

from csdp.bounds.result import as_text, in_words
from csdp.chain import private_fits
from csdp.cli import options
from csdp.cli.chain import Content, SnapshotFile, Steps, check_output, draw_snapshots, write_snapshots
from csdp.errors import InputError


def synth(
    chain: options.ChainFile,
    steps: Steps = 1000,
    seed: options.Seed = 0,
    content: Content = "values",
    output: SnapshotFile = "-",
    public: Annotated[
        bool, typer.Option("--public", help="Declare that the chain was not made from private readings.")
    ] = False,
) -> None:
    """Write synthetic sequences that follow a privately fitted chain, and say what they promise.

    They are computed from the chain alone, so they tell no more about a real reading than the fit has paid for, however
    many are drawn.

    \b
    Example:
      csdp fit readings.csv --epsilon 5 --edges 0.5 --bounds 0,1 -o private.json
      csdp synth private.json --steps 1000 --seed 1 -o synthetic.csv
    """
    model = options.read_chain(chain)
    fits = private_fits(model)
    if not fits and not public:
        raise InputError(
            f"chain: {chain} does not say that it was fitted privately, so what is drawn from it would reveal its "
            "readings without a limit; fit it with --epsilon, or declare --public if no private readings were used"
        )
    kind = check_output(output, model)
    write_snapshots(model, draw_snapshots(model, steps, seed, content), output, kind)
    typer.echo(promise(sum(fits.values())), err=True)


def promise(epsilon: float) -> str:
    """What synthetic sequences of a chain promise, whose private fits cost `epsilon` a reading; 0 where it is public.

    >>> promise(1.0).split(":")[0]
    'Promised'
    """
    if not epsilon:
        return "Promised: nothing was protected; the chain was declared public."
    return (
        f"Promised: plain differential privacy with epsilon {as_text(epsilon)} ({in_words(epsilon)}) for every single "
        "reading of the fit, under any model, however many rows are drawn. Not promised: a limit on what they tell "
        "about the present of a sequence through others, or that they keep more than the chain describes."
    )
