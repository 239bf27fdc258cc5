"""`csdp leakage`: how much a release tells about the present."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from csdp.cli import inputs, options
from csdp.cli.declaring import given_ages
from csdp.cli.output import Format, console, printable, progress_bar, show_json

if TYPE_CHECKING:
    from csdp.bounds.leakage import Setting
    from csdp.bounds.overview import LeakageTable
    from csdp.bounds.result import Leakage


def leakage(
    chain: options.ChainFile,
    epsilon_c: options.NoiseLevel,
    query: options.Query = "mean",
    age: options.Age = None,
    ages: options.Ages = None,
    adversary: options.Knows = "informed",
    bound: Annotated[
        str | None,
        typer.Option(
            help="auto (the sharpest proven bound that fits), exact, profile, two-point, loose, contraction, "
            "freshness, lineage, slice, influence, spectral, group, or the unsound printed-loose and printed-tight.",
            show_default="all of them, side by side",
        ),
    ] = None,
    per_sequence: Annotated[
        bool,
        typer.Option("--per-sequence", help="How the leakage is distributed over the sequences, and the worst ones."),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes over which independent components are spread.")] = 1,
    form: options.Form = "table",
) -> None:
    """How much a noisy, aged release tells about the present state of any sequence.

    \b
    Example:
      csdp leakage chain.json --query mean --age 2 --epsilon-c 1
      csdp leakage chain.json --query max --ages 1,3 --epsilon-c 0.5 --adversary any
      csdp leakage chain.json --age 5 --epsilon-c 1 --bound auto --format json
      csdp leakage chain.json --age 5 --epsilon-c 1 --per-sequence --workers 2

    Rows marked UNSOUND are formulas that can be below the truth; they are shown for comparison only.
    """
    from csdp.bounds.leakage import Setting
    from csdp.queries import parse_query

    old = given_ages(age, ages)
    model = inputs.read_chain(chain)
    with progress_bar() as progress:
        setting = Setting.make(
            model,
            parse_query(query),
            ages=old,
            epsilon_c=epsilon_c,
            adversary=adversary,
            progress=progress,
        )
        if per_sequence:
            return _show_sequences(setting, bound or "auto", workers, form)
        table = _compute(setting, bound, workers)
    if form == "json":
        show_json(as_json(setting, table))
    else:
        show_table(setting, table)
    return None


def _options(setting: Setting, workers: int) -> dict[str, Any]:
    return {
        "ages": setting.ages if len(set(setting.ages)) > 1 else setting.ages[0],
        "epsilon_c": setting.epsilon_c,
        "adversary": setting.adversary,
        "workers": workers,
        "progress": setting.progress,
    }


def _show_sequences(setting: Setting, bound: str, workers: int, form: Format) -> None:
    """The leakage of each sequence: quantiles and the worst ones."""
    from csdp.bounds.overview import leakage_summary
    from csdp.report.words import UNSOUND_WARNING, guarantee

    found = leakage_summary(setting.model, setting.query, bound=bound, **_options(setting, workers))
    words = guarantee(adversary=setting.adversary, epsilon_c=setting.epsilon_c)
    if form == "json":
        protects = words.protects if found.sound else UNSOUND_WARNING
        asked = {"chain": setting.model.digest, "query": setting.query.name, "ages": list(setting.ages)}
        return show_json({**asked, **found.to_dict(), "protects": protects, "does_not_protect": words.exposes})
    console().print(found)
    return console().print(str(words) if found.sound else UNSOUND_WARNING, soft_wrap=True)


def _compute(setting: Setting, bound: str | None, workers: int) -> LeakageTable:
    from csdp.bounds.leakage import leakage as one_bound
    from csdp.bounds.overview import LeakageTable
    from csdp.bounds.overview import leakage_table as all_bounds

    _ = setting.sensitivity  # a query that does not fit the model is an error, not a row
    options = _options(setting, workers)
    if bound is None:
        return all_bounds(setting.model, setting.query, **options)
    answer = one_bound(setting.model, setting.query, bound=bound, **options)
    shown = ",".join(map(str, setting.ages[:12])) if len(set(setting.ages)) > 1 else str(setting.ages[0])
    asked = f"{setting.query.name}, age {shown}, epsilon_c {setting.epsilon_c:g}, {setting.adversary} adversary"
    return LeakageTable((answer,), {}, f"Leakage of the present: {asked}")


def sharpest(table: LeakageTable) -> Leakage | None:
    """The smallest proven leakage of a table, the one that counts; None where nothing is proven."""
    return min((row for row in table.rows if row.sound), key=lambda row: row.epsilon, default=None)


def as_json(setting: Setting, table: LeakageTable) -> dict[str, Any]:
    """The answer as data: every bound, the worst case and the components of the sharpest proven one."""
    from csdp.report.words import UNSOUND_WARNING, guarantee

    best = sharpest(table)
    shown = (best or table.rows[0]).to_dict()
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
        "witness": shown["witness"],
        "components": shown["components"],
        "protects": UNSOUND_WARNING if best is None else words.protects,
        "does_not_protect": words.exposes,
    }


def show_table(setting: Setting, table: LeakageTable) -> None:
    """The answer for people: the bounds, the worst case, and one line on what the number protects."""
    from csdp.report.words import UNSOUND_WARNING, guarantee

    out = console()
    out.print(table)
    best = sharpest(table)
    words = guarantee(adversary=setting.adversary, epsilon_c=setting.epsilon_c)
    shown = best or table.rows[0]
    if shown.reason and (len(table.rows) == 1 or math.isinf(shown.epsilon)):
        out.print(f"Why: {printable(shown.reason)}", soft_wrap=True)
    if shown.witness is not None:
        out.print(f"Worst case ({shown.bound}): {printable(str(shown.witness))}", soft_wrap=True)
    parts = sum(part.copies for part in setting.components)
    if parts > 1:
        members = ", ".join(shown.components[0]["sequences"][:8])
        out.print(f"Components: {parts:,} independent groups; the worst has {printable(members)}", soft_wrap=True)
    out.print(UNSOUND_WARNING if best is None else str(words), soft_wrap=True)
