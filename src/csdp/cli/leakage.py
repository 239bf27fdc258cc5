"""`csdp leakage`, `csdp plan` and `csdp compare`: what a release leaks, the best ages and noise, and other methods."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.bounds.leakage import Setting
from csdp.bounds.leakage import leakage as one_bound
from csdp.bounds.overview import LeakageTable, leakage_summary
from csdp.bounds.overview import leakage_table as all_bounds
from csdp.bounds.result import Leakage, as_text
from csdp.chain import Model
from csdp.cli import options
from csdp.cli.terminal import (
    RIGHT,
    Format,
    console,
    print_json,
    print_lines,
    print_table,
    print_written,
    printable,
    progress_bar,
)
from csdp.errors import InputError
from csdp.fitting.fit import fit
from csdp.panel import read_panel
from csdp.queries import parse_query
from csdp.report.certificate import UNSOUND_WARNING, guarantee

if TYPE_CHECKING:
    from csdp.baselines.comparison import Comparison
    from csdp.estimate.error import Estimate
    from csdp.planning import DynamicPlan, FoundPlan


def leakage(
    chain: options.ChainFile,
    epsilon_c: options.NoiseLevel,
    query: options.Query = "mean",
    age: options.Age = None,
    ages: options.Ages = None,
    adversary: options.AdversaryOption = "informed",
    bound: Annotated[
        str | None,
        typer.Option(
            help="Bound to compute: auto (the sharpest proven one that applies), exact, profile, two-point, loose, "
            "contraction, freshness, lineage, slice, influence, spectral, group, or the unsound printed-loose and "
            "printed-tight.",
            show_default="all of them in a table",
        ),
    ] = None,
    per_sequence: Annotated[
        bool,
        typer.Option(
            "--per-sequence", help="Show how the leakage is distributed over the sequences, and which are worst."
        ),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes that share the independent components.")] = 1,
    form: options.FormatOption = "table",
) -> None:
    """Compute how much a noisy, aged release leaks about the present state of any sequence.

    \b
    Example:
      csdp leakage chain.json --query mean --age 2 --epsilon-c 1
      csdp leakage chain.json --query max --ages 1,3 --epsilon-c 0.5 --adversary any
      csdp leakage chain.json --age 5 --epsilon-c 1 --bound auto --format json
      csdp leakage chain.json --age 5 --epsilon-c 1 --per-sequence --workers 2

    Rows marked UNSOUND are formulas that can be below the true leakage; they are listed for comparison only.
    """
    steps = options.parse_ages(age, ages)
    model = options.read_chain(chain)
    with progress_bar() as progress:
        setting = Setting.make(
            model, parse_query(query), ages=steps, epsilon_c=epsilon_c, adversary=adversary, progress=progress
        )
        if per_sequence:
            return _print_sequences(setting, bound or "auto", workers, form)
        table = _compute(setting, bound, workers)
    if form == "json":
        print_json(_table_data(setting, table))
    else:
        _print_table(setting, table)
    return None


def _call_options(setting: Setting, workers: int) -> dict[str, Any]:
    """The keyword arguments that all functions of the leakage share."""
    return {
        "ages": setting.ages if len(set(setting.ages)) > 1 else setting.ages[0],
        "epsilon_c": setting.epsilon_c,
        "adversary": setting.adversary,
        "workers": workers,
        "progress": setting.progress,
    }


def _print_sequences(setting: Setting, bound: str, workers: int, form: Format) -> None:
    """Print quantiles of the leakage over the sequences, and the worst sequences."""
    summary = leakage_summary(setting.model, setting.query, bound=bound, **_call_options(setting, workers))
    words = guarantee(adversary=setting.adversary, epsilon_c=setting.epsilon_c)
    if form == "json":
        protects = words.protects if summary.sound else UNSOUND_WARNING
        release = {"chain": setting.model.digest, "query": setting.query.name, "ages": list(setting.ages)}
        return print_json({**release, **summary.to_dict(), "protects": protects, "does_not_protect": words.exposes})
    console().print(summary)
    return print_lines([words if summary.sound else UNSOUND_WARNING])


def _compute(setting: Setting, bound: str | None, workers: int) -> LeakageTable:
    _ = setting.sensitivity  # a query that does not fit the model is an error, not a row
    call_options = _call_options(setting, workers)
    if bound is None:
        return all_bounds(setting.model, setting.query, **call_options)
    row = one_bound(setting.model, setting.query, bound=bound, **call_options)
    ages = ",".join(map(str, setting.ages[:12])) if len(set(setting.ages)) > 1 else str(setting.ages[0])
    release = f"{setting.query.name}, age {ages}, epsilon_c {setting.epsilon_c:g}, {setting.adversary} adversary"
    return LeakageTable((row,), {}, f"Leakage of the present: {release}")


def _sharpest(table: LeakageTable) -> Leakage | None:
    """The smallest proven leakage of a table; None if no row is proven."""
    return min((row for row in table.rows if row.sound), key=lambda row: row.epsilon, default=None)


def _table_data(setting: Setting, table: LeakageTable) -> dict[str, Any]:
    """The result as plain data: every bound, and the worst case and components of the sharpest proven one."""
    best = _sharpest(table)
    row_data = (best or table.rows[0]).to_dict()
    words = guarantee(adversary=setting.adversary, epsilon_c=setting.epsilon_c)
    return {
        "chain": setting.model.digest,
        "query": setting.query.name,
        "ages": list(setting.ages),
        "epsilon_c": setting.epsilon_c,
        "adversary": setting.adversary,
        "bounds": {
            row.bound: {key: row.to_dict()[key] for key in ("epsilon", "sound", "assumptions", "reason")}
            for row in table.rows
        },
        "missing": table.missing,
        "sharpest": None if best is None else best.bound,
        "witness": row_data["witness"],
        "components": row_data["components"],
        "protects": UNSOUND_WARNING if best is None else words.protects,
        "does_not_protect": words.exposes,
    }


def _print_table(setting: Setting, table: LeakageTable) -> None:
    """Print the bounds, the worst case, and one line on what the number protects."""
    console().print(table)
    best = _sharpest(table)
    row = best or table.rows[0]
    if row.reason and (len(table.rows) == 1 or math.isinf(row.epsilon)):
        print_lines([f"Why: {printable(row.reason)}"])
    if row.witness is not None:
        print_lines([f"Worst case ({row.bound}): {printable(str(row.witness))}"])
    components = sum(part.copies for part in setting.components)
    if components > 1:
        members = ", ".join(row.components[0]["sequences"][:8])
        print_lines([f"Components: {components:,} independent groups; the worst has {printable(members)}"])
    words = guarantee(adversary=setting.adversary, epsilon_c=setting.epsilon_c)
    print_lines([UNSOUND_WARNING if best is None else words])


def plan(
    chain: options.ChainFile,
    query: options.Query = "mean",
    max_mse: Annotated[
        float | None, typer.Option(help="Find the least leakage with at most this mean squared error.")
    ] = None,
    max_error: Annotated[
        float | None, typer.Option(help="The same target as --max-mse, as a root mean squared error.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Find the least error with at most this leakage of the present.")
    ] = None,
    about: Annotated[
        Literal["now", "then"],
        typer.Option(
            help="Publish numbers about the present (now), or about the time that was read (then): with both --budget "
            "and --max-error, then finds how long they must be held back."
        ),
    ] = "now",
    max_age: options.MaxAge = 50,
    min_age: Annotated[int, typer.Option(help="Smallest age in steps that a plan may use.")] = 0,
    vector: Annotated[bool, typer.Option("--vector", help="Choose a separate age for each sequence.")] = False,
    continual: Annotated[
        bool, typer.Option("--continual", help="Plan for a release at every tick, without end.")
    ] = False,
    horizon: Annotated[
        int | None, typer.Option(help="With --budget: choose a separate noise level for each of this many ticks.")
    ] = None,
    start: Annotated[int, typer.Option(help="With --horizon: the first tick.")] = 0,
    estimate: Annotated[
        Literal["raw", "linear", "posterior"],
        typer.Option(
            help="Measure the error of the raw release, of its best linear estimate, or of its posterior mean (one "
            "output, few sequences)."
        ),
    ] = "raw",
    adversary: options.AdversaryOption = "informed",
    event_limit: options.EventLimit = 10.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PLAN.json", help="File to write the plan to.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar=options.FIGURE, help="Draw leakage against error, or against delay, to this file."),
    ] = None,
    form: options.FormatOption = "table",
) -> None:
    """Find ages and a noise level: the least leakage for an error, the least error for a budget, or the least delay.

    \b
    Example:
      csdp plan chain.json --query mean --budget 0.2 --estimate linear -o plan.json
      csdp plan chain.json --max-mse 0.3 --max-age 20 --figure frontier.svg
      csdp plan chain.json --budget 0.2 --min-age 1 --horizon 24 -o plan.json
      csdp plan chain.json --about then --budget 0.5 --max-error 0.02 --figure delay.svg

    Publish by a plan with: csdp release DATA --plan plan.json --dataset NAME --ledger FILE -o OUT
    """
    from csdp.planning import find_plan

    options.check_figure(figure)
    if about == "then" and horizon is not None:
        raise InputError("--horizon is for --about now; a delay is found for a release at every tick, without end")
    model, statistic = options.read_chain(chain), parse_query(query)
    with progress_bar() as progress:
        found = find_plan(
            model,
            statistic,
            max_mse=_squared_target(max_mse, max_error),
            budget=budget,
            max_age=max_age,
            min_age=min_age,
            ages="vector" if vector else "common",
            releases="continual" if continual or about == "then" else horizon or 1,
            estimate=estimate,
            adversary=adversary,
            about=about,
            event_limit=event_limit,
            progress=progress,
        )
    schedule = None if horizon is None else _schedule(found, budget, horizon, start, estimate, continual)
    if output is not None:
        made = found.plan if schedule is None else schedule.plan
        output.write_text(made.to_json(indent=1) + "\n", encoding="utf-8")
    if figure is not None:
        _draw_plan(found, figure, ages=range(min_age, max_age + 1), budget=budget)
    if form == "json":
        print_json(_plan_data(found) if schedule is None else {**schedule.summary(), "schedule": schedule.records()})
    else:
        _print_plan(found)
        if schedule is not None:
            _print_schedule(schedule)
        print_written(path for path in (output, figure) if path is not None)


def _squared_target(max_mse: float | None, max_error: float | None) -> float | None:
    """The error target as a mean squared error."""
    if max_mse is not None and max_error is not None:
        raise InputError("--max-mse and --max-error given; they are one target, the second as a root: give one of them")
    if max_error is not None and not 0 < max_error < math.inf:
        raise InputError(f"--max-error: {max_error!r} given; a positive number expected")
    return max_mse if max_error is None else max_error**2


def _draw_plan(found: FoundPlan, path: Path, *, ages: range, budget: float | None) -> None:
    """Draw what other ages and levels would achieve: leakage against error, or against delay."""
    from csdp.planning import frontier
    from csdp.report.figures import delay_figure, frontier_figure, save_figure

    plan, then = found.plan, found.error.about == "then"
    apart = max(1, -(-2 * found.delay // 8))
    delays = range(ages[0], min(ages[-1], 2 * found.delay + 2) + 1, apart)
    line = frontier(
        plan.chain,
        plan.query,
        ages=sorted({*delays, found.delay} if then else {0, 1, 2, 3, 5, 8, *plan.ages} & set(ages)),
        levels=[plan.epsilon_c * factor for factor in (0.25, 0.5, 1.0)] if then else None,
        releases="continual" if then else 1,
        estimate=found.error.estimate,
        adversary=plan.adversary,
        about=found.error.about,
    )
    drawn = delay_figure(line, chosen=found, budget=budget) if then else frontier_figure(line, chosen=found)
    save_figure(drawn, path)


def _schedule(
    found: FoundPlan,
    budget: float | None,
    horizon: int,
    start: int,
    estimate: Estimate,
    continual: bool,
) -> DynamicPlan:
    """A noise level for each tick, at the ages that one level for the whole horizon would use."""
    from csdp.planning import dynamic_plan

    if budget is None or continual:
        raise InputError("--horizon needs --budget, which no tick may exceed, and cannot be combined with --continual")
    return dynamic_plan(
        found.plan.chain,
        found.plan.query,
        ages=found.plan.ages,
        budget=budget,
        horizon=horizon,
        start=start,
        estimate=estimate,
        adversary=found.plan.adversary,
    )


def _plan_data(found: FoundPlan) -> dict[str, Any]:
    """The plan and what it achieves as plain data, for JSON."""
    return {
        "usefulness": found.error.usefulness,
        "about": found.error.about,
        "delay": found.delay,
        "ages": list(found.plan.ages),
        "epsilon_c": found.plan.epsilon_c,
        "leakage": found.leakage.to_dict(),
        "mse": found.error.mse,
        "no_data": found.error.no_data,
        "evaluations": found.evaluations,
        "saved": found.saved,
        "note": found.note,
        "plan_digest": found.plan.digest,
    }


def _headline(found: FoundPlan) -> str:
    """What the plan is worth, in a sentence or two."""
    error = found.error
    if error.about == "now":
        return f"This plan {error.in_words}."
    ticks = "1 tick" if found.delay == 1 else f"{found.delay} ticks"
    return (
        f"Hold every number back by {ticks}: all releases together, for ever, then tell at most "
        f"{as_text(found.leakage.epsilon)} about any present state. What they tell of the time that was read has error "
        f"{math.sqrt(error.mse):.3g} and {error.in_words}."
    )


def _print_plan(found: FoundPlan) -> None:
    print_lines([_headline(found)])
    ages = sorted(set(found.plan.ages))
    rows = [
        ("age", str(ages[0]) if len(ages) == 1 else ", ".join(map(str, found.plan.ages[:20]))),
        ("noise level epsilon_c", f"{found.plan.epsilon_c:.6g}"),
        ("leakage of the present", f"{as_text(found.leakage.epsilon)} ({found.leakage.bound})"),
        (
            "mean squared error",
            f"{found.error.mse:.6g} ({found.error.estimate}; root {math.sqrt(found.error.mse):.3g})",
        ),
        ("publishing nothing", f"error {found.error.no_data:.6g}, leakage 0"),
        ("evaluations", f"{found.evaluations} of leakage; {found.saved} ages ruled out without one"),
    ]
    print_table("Plan", {}, rows)
    print_lines([f"Note: {found.note}"] if found.note else [])


def _print_schedule(schedule: DynamicPlan) -> None:
    records = schedule.records()
    rows = [(str(one["tick"]), f"{one['epsilon_c']:.4g}", as_text(one["leakage"])) for one in records[:20]]
    print_table("Schedule", dict.fromkeys(("tick", "epsilon_c", "leakage of the present"), RIGHT), rows)
    print_lines([f"... and {len(records) - 20} more ticks"] if len(records) > 20 else [])
    print_lines(
        [
            f"Error {schedule.mse:.6g}; with one level for all ticks ({schedule.constant_level:.4g}): "
            f"{schedule.constant_mse:.6g}"
        ]
    )


# ---- csdp compare --------------------------------------------------------------------------------------------------


def compare(
    chain: Annotated[
        str,
        typer.Argument(
            metavar="CHAIN.json|DATA",
            help="Model file written by `csdp chain new` (- reads standard input), or a file of public readings (.csv "
            "or .parquet, cells are state numbers) to fit a model to.",
        ),
    ],
    query: options.Query = "mean",
    max_mse: Annotated[
        float | None, typer.Option(help="Compare leakages, each with at most this error of the linear estimate.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Compare errors, each with at most this exact leakage of the present.")
    ] = None,
    max_age: options.MaxAge = 50,
    length: Annotated[
        int, typer.Option(help="Number of releases in the lifetime leakage, and of ticks in a series.")
    ] = 100,
    event_limit: options.EventLimit = 10.0,
    public: options.Public = False,
    figure: Annotated[
        Path | None, typer.Option(metavar=options.FIGURE, help="Draw the comparison to this file.")
    ] = None,
    form: options.FormatOption = "table",
) -> None:
    """Compare our plan with every other method, for the same secret, adversary and age.

    \b
    Example:
      csdp compare chain.json --query mean --budget 0.2 --max-age 5

    Every row states its guarantee. Nothing is published.
    """
    from csdp.baselines.comparison import compare as compare_methods

    options.check_figure(figure)
    with progress_bar() as progress:
        comparison = compare_methods(
            _read_or_fit_model(chain, public),
            parse_query(query),
            max_mse=max_mse,
            budget=budget,
            max_age=max_age,
            length=length,
            event_limit=event_limit,
            progress=progress,
        )
    if figure is not None:
        from csdp.report.comparison_figures import comparison_figure
        from csdp.report.figures import save_figure

        save_figure(comparison_figure(comparison), figure)
    if form == "json":
        print_json(comparison.to_dict())
    else:
        _print_comparison(comparison)
        print_written([figure] if figure is not None else [])


def _read_or_fit_model(path: str, public: bool) -> Model:
    """Read a model from its file, or fit one to a file of public readings."""
    if not path.endswith((".csv", ".parquet")):
        return options.read_chain(path)
    if not public:
        raise InputError(
            f"{path}: readings given; a model fitted to private readings leaks them. Give --public if they are public, "
            "or fit with csdp.fit(..., epsilon=...) and give the chain"
        )
    return fit(read_panel(path), public=True, ensemble=0)


def _print_comparison(comparison: Comparison) -> None:
    console().print(comparison)
    print_lines([comparison.headline, comparison.lifetime_headline, "\nWhat each of them guarantees:"])
    for row in comparison.rows:
        print_lines([f"  {row.method}: {row.guarantee}.{f' Note: {row.note}.' if row.note else ''}"])
