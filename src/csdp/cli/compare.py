"""`csdp compare`: our plan beside every other method, at equal terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from csdp.cli import inputs, options
from csdp.cli.output import console, progress_bar, show_json, show_written
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.baselines.comparison import Comparison
    from csdp.chain import Model


def compare(
    chain: Annotated[
        str,
        typer.Argument(
            metavar="CHAIN.json|DATA",
            help="The model, as `csdp chain new` writes it (- reads standard input), or public readings (.csv or "
            ".parquet, cells are state numbers) to fit one to.",
        ),
    ],
    query: options.Query = "mean",
    max_mse: Annotated[
        float | None, typer.Option(help="Compare leakages, all with at most this error of the linear estimate.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Compare errors, all with at most this exact leakage of the present.")
    ] = None,
    max_age: options.MaxAge = 50,
    length: Annotated[int, typer.Option(help="Releases behind the lifetime leakage, and ticks of a series.")] = 100,
    event_limit: options.EventLimit = 10.0,
    public: options.Public = False,
    figure: Annotated[Path | None, typer.Option(metavar=options.FIGURE, help="Draw the comparison.")] = None,
    form: options.Form = "table",
) -> None:
    """Compare our plan with every other method, at equal secret, adversary and age.

    \b
    Example:
      csdp compare chain.json --query mean --budget 0.2 --max-age 5

    Every row says which guarantee it has. Nothing is published.
    """
    from csdp.baselines.comparison import compare as compared
    from csdp.queries import parse_query

    inputs.check_figure(figure)
    with progress_bar() as progress:
        found = compared(
            _model(chain, public),
            parse_query(query),
            max_mse=max_mse,
            budget=budget,
            max_age=max_age,
            length=length,
            event_limit=event_limit,
            progress=progress,
        )
    if figure is not None:
        from csdp.report.compare import comparison_figure
        from csdp.report.figures import save_figure

        save_figure(comparison_figure(found), figure)
    if form == "json":
        show_json(found.to_dict())
    else:
        _show(found)
        show_written([figure] if figure is not None else [])


def _model(path: str, public: bool) -> Model:
    """The model in a file, or one fitted to a file of public readings."""
    if not path.endswith((".csv", ".parquet")):
        return inputs.read_chain(path)
    if not public:
        raise InputError(
            f"{path}: readings given; a model fitted to private data is itself a leak. Say --public if they are "
            "public, or fit with csdp.fit(..., epsilon=...) and give the chain"
        )
    from csdp.fitting.fit import fit
    from csdp.panel import read_panel

    return fit(read_panel(path), public=True, ensemble=0)


def _show(found: Comparison) -> None:
    out = console()
    out.print(found)
    out.print(found.headline, soft_wrap=True)
    out.print(found.lifetime_headline, soft_wrap=True)
    out.print("\nWhat each of them guarantees:")
    for row in found.rows:
        out.print(f"  {row.method}: {row.guarantee}.{f' Note: {row.note}.' if row.note else ''}", soft_wrap=True)
