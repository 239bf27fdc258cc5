"""`csdp compare`: our plan beside every other method, at equal terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from csdp.cli import inputs
from csdp.cli.output import Format, console, progress_bar, show_json
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.chain import Model
    from csdp.rivals.comparison import Comparison


def compare(
    chain: Annotated[
        str,
        typer.Argument(
            metavar="CHAIN.json|DATA",
            help="The model, as `csdp chain new` writes it (- reads standard input), or public readings (.csv or "
            ".parquet, cells are state numbers) to fit one to.",
        ),
    ],
    query: Annotated[
        str,
        typer.Option(help="mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,..."),
    ] = "mean",
    max_mse: Annotated[
        float | None, typer.Option(help="Compare leakages, all with at most this error of the linear estimate.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Compare errors, all with at most this exact leakage of the present.")
    ] = None,
    max_age: Annotated[int, typer.Option(help="Oldest age that our plan may use.")] = 50,
    length: Annotated[int, typer.Option(help="Releases behind the lifetime leakage, and ticks of a series.")] = 100,
    event_limit: Annotated[float, typer.Option(help="Largest noise level epsilon_c, for everybody.")] = 10.0,
    public: Annotated[
        bool, typer.Option("--public", help="DATA is public: a model fitted to private data is itself a leak.")
    ] = False,
    figure: Annotated[Path | None, typer.Option(help="Draw the comparison (.svg, .png or .pdf).")] = None,
    form: Annotated[Format, typer.Option("--format", help="A table for people, or JSON.")] = "table",
) -> None:
    """Compare our plan with every other method, at equal secret, adversary and age.

    \b
    Example:
      csdp compare chain.json --query mean --budget 0.2 --max-age 5

    Every row says which guarantee it has. Nothing is published.
    """
    from csdp.queries import parse_query
    from csdp.rivals.comparison import compare as compared

    if figure is not None and not str(figure).endswith((".svg", ".png", ".pdf")):
        raise InputError(f"figure: {figure.name!r} given; a name that ends in .svg, .png or .pdf expected")
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
        _show(found, figure)


def _model(path: str, public: bool) -> Model:
    """The model in a file, or one fitted to a file of public readings."""
    if not path.endswith((".csv", ".parquet")):
        return inputs.read_chain(path)
    if not public:
        raise InputError(
            f"{path}: readings given; a model fitted to private data is itself a leak. Say --public if they are "
            "public, or fit with csdp.fit(..., epsilon=...) and give the chain"
        )
    from csdp.fit import fit
    from csdp.panel import read_panel

    return fit(read_panel(path), public=True, ensemble=0)


def _show(found: Comparison, figure: Path | None) -> None:
    out = console()
    out.print(found)
    out.print(found.headline, soft_wrap=True)
    out.print(found.lifetime_headline, soft_wrap=True)
    out.print("\nWhat each of them guarantees:")
    for row in found.rows:
        out.print(f"  {row.method}: {row.guarantee}.{f' Note: {row.note}.' if row.note else ''}", soft_wrap=True)
    if figure is not None:
        out.print(f"\nDrawn in {figure}", soft_wrap=True)
