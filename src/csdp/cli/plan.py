"""`csdp plan`: from an error target or a budget to ages and noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.cli import inputs, options
from csdp.cli.output import console, progress_bar, show_json, show_written

if TYPE_CHECKING:
    from csdp.planning import DynamicPlan, Found


def plan(
    chain: options.ChainFile,
    query: options.Query = "mean",
    max_mse: Annotated[float | None, typer.Option(help="Least leakage with at most this mean squared error.")] = None,
    budget: Annotated[float | None, typer.Option(help="Least error with at most this leakage of the present.")] = None,
    max_age: options.MaxAge = 50,
    min_age: Annotated[int, typer.Option(help="Youngest age that a plan may have.")] = 0,
    vector: Annotated[bool, typer.Option("--vector", help="Give every sequence an age of its own.")] = False,
    continual: Annotated[bool, typer.Option("--continual", help="Plan for a release at every tick, for ever.")] = False,
    horizon: Annotated[
        int | None, typer.Option(help="With --budget: a noise level of its own for each of this many ticks.")
    ] = None,
    start: Annotated[int, typer.Option(help="With --horizon: the first tick.")] = 0,
    estimate: Annotated[
        Literal["raw", "linear"], typer.Option(help="Error of the raw release, or of the best linear estimate from it.")
    ] = "raw",
    adversary: options.Knows = "informed",
    event_limit: options.EventLimit = 10.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PLAN.json", help="Where to write the plan.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar=options.FIGURE, help="Draw the trade-off of leakage against error.")
    ] = None,
    form: options.Form = "table",
) -> None:
    """Find ages and noise: least leakage for an error target, or least error for a budget.

    \b
    Example:
      csdp plan chain.json --query mean --budget 0.2 --estimate linear -o plan.json
      csdp plan chain.json --max-mse 0.3 --max-age 20 --figure frontier.svg
      csdp plan chain.json --budget 0.2 --min-age 1 --horizon 24 -o plan.json

    Carry a plan out with: csdp release DATA --plan plan.json --dataset NAME --ledger FILE -o OUT
    """
    from csdp.planning import find_plan
    from csdp.queries import parse_query

    inputs.check_figure(figure)
    model, asked = inputs.read_chain(chain), parse_query(query)
    with progress_bar() as progress:
        found = find_plan(
            model,
            asked,
            max_mse=max_mse,
            budget=budget,
            max_age=max_age,
            min_age=min_age,
            ages="vector" if vector else "common",
            releases="continual" if continual else horizon or 1,
            estimate=estimate,
            adversary=adversary,
            event_limit=event_limit,
            progress=progress,
        )
    changing = None if horizon is None else _changing(found, budget, horizon, start, estimate, continual)
    if output is not None:
        made = found if changing is None else changing.plan
        output.write_text(made.to_json(indent=1) + "\n", encoding="utf-8")
    if figure is not None:
        from csdp.planning import frontier
        from csdp.report.figures import frontier_figure, save_figure

        shown = sorted({0, 1, 2, 3, 5, 8, *found.ages} & set(range(min_age, max_age + 1)))
        line = frontier(model, asked, ages=shown, estimate=estimate, adversary=adversary)
        save_figure(frontier_figure(line, chosen=found), figure)
    if form == "json":
        show_json(as_json(found) if changing is None else {**changing.summary(), "schedule": changing.records()})
    else:
        _show(found)
        if changing is not None:
            _show_schedule(changing)
        show_written(path for path in (output, figure) if path is not None)


def _changing(
    found: Found, budget: float | None, horizon: int, start: int, estimate: Literal["raw", "linear"], continual: bool
) -> DynamicPlan:
    """The schedule at the ages that one level for the whole horizon would have."""
    from csdp.errors import InputError
    from csdp.planning import dynamic_plan

    if budget is None or continual:
        raise InputError("--horizon needs --budget, the ceiling that every tick has to keep, and no --continual")
    return dynamic_plan(
        found.chain,
        found.query,
        ages=found.ages,
        budget=budget,
        horizon=horizon,
        start=start,
        estimate=estimate,
        adversary=found.adversary,
    )


def as_json(found: Found) -> dict[str, Any]:
    """The plan and what it achieves, as plain data."""
    return {
        "ages": list(found.ages),
        "epsilon_c": found.epsilon_c,
        "leakage": found.leakage.to_dict(),
        "mse": found.error.mse,
        "no_data": found.error.no_data,
        "evaluations": found.evaluations,
        "saved": found.saved,
        "note": found.note,
        "plan_digest": found.digest,
    }


def _show(found: Found) -> None:
    from rich.table import Table

    from csdp.bounds.result import as_text

    ages = sorted(set(found.ages))
    table = Table(title="Plan", title_justify="left", show_header=False)
    table.add_row("age", str(ages[0]) if len(ages) == 1 else ", ".join(map(str, found.ages[:20])))
    table.add_row("noise level epsilon_c", f"{found.epsilon_c:.6g}")
    table.add_row("leakage of the present", f"{as_text(found.leakage.epsilon)} ({found.leakage.bound})")
    table.add_row("mean squared error", f"{found.error.mse:.6g} ({found.error.estimate})")
    table.add_row("publishing nothing", f"error {found.error.no_data:.6g}, leakage 0")
    table.add_row("evaluations", f"{found.evaluations} of leakage; {found.saved} ages needed none")
    out = console()
    out.print(table)
    if found.note:
        out.print(f"Note: {found.note}", soft_wrap=True)


def _show_schedule(found: DynamicPlan) -> None:
    from rich.table import Table

    from csdp.bounds.result import as_text

    table = Table(title="Schedule", title_justify="left")
    for name in ("tick", "epsilon_c", "leakage of the present"):
        table.add_column(name, justify="right")
    records = found.records()
    for record in records[:20]:
        table.add_row(str(record["tick"]), f"{record['epsilon_c']:.4g}", as_text(record["leakage"]))
    out = console()
    out.print(table)
    if len(records) > 20:
        out.print(f"... and {len(records) - 20} more ticks", soft_wrap=True)
    out.print(
        f"Error {found.mse:.6g}; with one level for all ticks ({found.constant_level:.4g}): {found.constant_mse:.6g}",
        soft_wrap=True,
    )
