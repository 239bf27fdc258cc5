"""`csdp leakage`: how much a release leaks."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from csdp.accountant.distances import leakage_by_distance
from csdp.bounds.leakage import Setting
from csdp.bounds.leakage import leakage as one_bound
from csdp.bounds.overview import LeakageTable, leakage_summary
from csdp.bounds.overview import leakage_table as all_bounds
from csdp.bounds.result import Leakage
from csdp.cli import options
from csdp.cli.terminal import (
    Format,
    console,
    print_json,
    print_lines,
    printable,
    progress_bar,
)
from csdp.plan import Plan
from csdp.query import parse_query
from csdp.report.certificate import UNSOUND_WARNING, Guarantee, guarantee


def leakage(
    chain: options.ChainFile,
    epsilon_c: options.NoiseLevel,
    query: options.Query = "mean",
    age: options.Age = None,
    ages: options.Ages = None,
    adversary: options.AdversaryOption = "informed",
    protect: options.Protect = None,
    bound: Annotated[
        str | None,
        typer.Option(
            help="Bound to compute: auto (the sharpest proven one that applies), exact, profile, loose, freshness, "
            "metric, lineage, slice, influence, swing, group, or (unsound) printed-loose, printed-tight.",
            show_default="all of them in a table",
        ),
    ] = None,
    per_sequence: Annotated[
        bool,
        typer.Option(
            "--per-sequence", help="Show how the leakage is distributed over the sequences, and which are worst."
        ),
    ] = False,
    by_distance: Annotated[
        bool,
        typer.Option("--by-distance", help="Show the leakage between present values by how far they are apart."),
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
      csdp leakage chain.json --age 1 --epsilon-c 1 --by-distance

    Rows marked UNSOUND are formulas that can be below the true leakage; they are listed for comparison only.
    """
    steps = options.parse_ages(age, ages)
    model = options.read_chain(chain)
    if by_distance:
        options.refuse_together({"--protect": protect, "--bound": bound}, "--by-distance")
        return _print_distances(Plan(model, parse_query(query), steps, epsilon_c, adversary=adversary), form)
    with progress_bar() as progress:
        setting = Setting.make(
            model,
            parse_query(query),
            ages=steps,
            epsilon_c=epsilon_c,
            adversary=adversary,
            protect=protect,
            progress=progress,
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
        "protect": setting.protect,
        "workers": workers,
        "progress": setting.progress,
    }


def _print_distances(plan: Plan, form: Format) -> None:
    """Print the leakage of one release by the distance of present values."""
    table = leakage_by_distance(plan, releases=1)
    words = guarantee(verdict=plan.verdict, adversary=plan.adversary, epsilon_c=plan.epsilon_c)
    if form == "json":
        release = {"chain": plan.chain.digest, "query": plan.query.name, "ages": list(plan.ages)}
        return print_json({**release, "by_distance": table.records(), "protects": words.protects})
    console().print(table)
    return print_lines([words])


def _words(setting: Setting) -> Guarantee:
    secret: dict[str, Any] = {"adversary": setting.adversary, "protect": setting.protect}
    return guarantee(verdict=setting.model.verdict, epsilon_c=setting.epsilon_c, **secret)


def _print_sequences(setting: Setting, bound: str, workers: int, form: Format) -> None:
    """Print quantiles of the leakage over the sequences, and the worst sequences."""
    summary = leakage_summary(setting.model, setting.query, bound=bound, **_call_options(setting, workers))
    words = _words(setting)
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
    release += "" if setting.protect is None else f", values at most {setting.protect:g} apart"
    return LeakageTable((row,), {}, f"Leakage of the present: {release}")


def _sharpest(table: LeakageTable) -> Leakage | None:
    """The smallest proven leakage of a table; None if no row is proven."""
    return min((row for row in table.rows if row.sound), key=lambda row: row.epsilon, default=None)


def _table_data(setting: Setting, table: LeakageTable) -> dict[str, Any]:
    """The result as plain data: every bound, and the worst case and components of the sharpest proven one."""
    best = _sharpest(table)
    row_data = (best or table.rows[0]).to_dict()
    words = _words(setting)
    return {
        "chain": setting.model.digest,
        "query": setting.query.name,
        "ages": list(setting.ages),
        "epsilon_c": setting.epsilon_c,
        "adversary": setting.adversary,
        **({} if setting.protect is None else {"protect": setting.protect}),
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
    words = _words(setting)
    print_lines([UNSOUND_WARNING if best is None else words])
