"""`csdp plan`: the best ages and noise for a target, and what they are worth."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from csdp.bounds.result import as_text, in_words, with_chance
from csdp.cli import options, plan_options
from csdp.cli.terminal import RIGHT, print_json, print_lines, print_table, print_written, progress_bar, verdict_first
from csdp.errors import InputError
from csdp.estimate.result import about_words

if TYPE_CHECKING:
    from csdp.estimate import LearnedEstimator
    from csdp.estimate.result import Error, Estimate
    from csdp.planning import DynamicPlan, FoundPlan
    from csdp.planning.curves import Releases


def plan(
    chain: options.ChainFile,
    query: options.Query = "mean",
    of: plan_options.Of = None,
    low: plan_options.Low = None,
    high: plan_options.High = None,
    resolution: plan_options.Resolution = None,
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
            help="Publish numbers about the present (now), or about the time of the readings (then): with both "
            "--budget and --max-error, then finds how long they must be held back."
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
        Literal["history", "linear", "raw"],
        typer.Option(
            help="Measure the error of the estimate from the last releases (history, what is published), from the "
            "newest alone (linear), or of the raw number."
        ),
    ] = "history",
    past: plan_options.Past = None,
    until: plan_options.Until = None,
    period: plan_options.Period = None,
    discretiser: options.DiscretiserFile = None,
    anyway: plan_options.Anyway = False,
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
      csdp plan chain.json --about then --budget 0.5 --max-error 0.1 -o plan.json --figure delay.svg
      csdp plan chain.json --query mean --budget 1 --figure frontier.svg
      csdp plan chain.json --budget 1.5 --horizon 24
      csdp plan chain.json --about then --budget 0.5 --max-error 0.1 --past readings.csv --until 150

    Publish by a plan with: csdp release DATA --plan plan.json --dataset NAME --ledger FILE -o OUT. A plan that removes
    less than 5 % of the squared error of guessing the usual value is not written: exit code 6, with what would help.
    """
    from csdp.planning import find_plan, plan_frontier
    from csdp.publisher import learn_from_past

    options.check_figure(figure)
    if about == "then" and horizon is not None:
        raise InputError("--horizon is for --about now; a delay is found for a release at every tick, without end")
    model = options.read_chain(chain)
    statistic = plan_options.ReadingOptions(of, low, high, resolution).query(query, discretiser)
    known = plan_options.read_past(model, past, until=until, period=period, discretiser=discretiser)
    releases: Releases = "continual" if continual or about == "then" else horizon or 1
    with progress_bar() as progress:
        found = find_plan(
            model,
            statistic,
            max_mse=_squared_target(max_mse, max_error),
            budget=budget,
            max_age=max_age,
            min_age=min_age,
            ages="vector" if vector else "common",
            releases=releases,
            estimate=estimate,
            about=about,
            event_limit=event_limit,
            progress=progress,
        )
    tested = plan_options.test_on_past(found.plan, known)
    found = replace(found, plan=plan_options.check_past(tested, known))
    learned = None if known is None else learn_from_past(found.plan, known, period=period, about=about)
    error = found.error if learned is None else learned.expected(found.plan.noise_variance)
    plan_options.require_useful(found.plan, error, anyway=anyway)
    schedule = None if horizon is None else _schedule(found, budget, horizon, start, estimate, continual)
    if output is not None:
        made = found.plan if schedule is None else schedule.plan
        # Levels by tick change neither what is read nor what is estimated, and each release has its own noise.
        own = None if learned is None else replace(learned, plan_digest=made.digest)
        line = plan_frontier(found.plan, releases=releases, estimate=estimate, about=about)
        plan_options.write_plan(output, made, about=about, estimator=own, discretiser=discretiser, frontier=line)
    if figure is not None:
        _draw_plan(found, figure, ages=range(min_age, max_age + 1))
    if form == "json":
        data = _plan_data(found) if schedule is None else {**schedule.summary(), "schedule": schedule.records()}
        print_json(
            data | ({} if learned is None else {"usefulness": learned.usefulness, "learned": _learned_data(learned)})
        )
    else:
        print_lines(verdict_first(found.plan.verdict, _headline(found, error)))
        _print_plan(found)
        print_lines([] if learned is None else [f"Estimate: {learned.in_words}."])
        if schedule is not None:
            _print_schedule(schedule)
        print_written(path for path in (output, figure) if path is not None)


def _learned_data(learned: LearnedEstimator) -> dict[str, Any]:
    """What was measured of a learned estimator, for JSON."""
    names = ("kind", "about", "ticks", "mse", "no_data", "usefulness", "level", "coverage", "compared")
    return {name: getattr(learned, name) for name in names}


def _squared_target(max_mse: float | None, max_error: float | None) -> float | None:
    """The error target as a mean squared error."""
    if max_mse is not None and max_error is not None:
        raise InputError("--max-mse and --max-error given; they are one target, the second as a root: give one of them")
    if max_error is not None and not 0 < max_error < math.inf:
        raise InputError(f"--max-error: {max_error!r} given; a positive number expected")
    return max_mse if max_error is None else max_error**2


def _draw_plan(found: FoundPlan, path: Path, *, ages: range) -> None:
    """Draw leakage against error at other ages and levels."""
    from csdp.planning import frontier
    from csdp.report.figures import frontier_figure, save_figure

    plan, then = found.plan, found.error.about == "then"
    apart = max(1, -(-2 * found.delay // 8))
    delays = range(ages[0], min(ages[-1], 2 * found.delay + 2) + 1, apart)
    line = frontier(
        plan.chain,
        plan.query,
        ages=sorted({*delays, found.delay} if then else {0, 1, 2, 3, 5, 8, *plan.ages} & set(ages)),
        levels=[plan.epsilon_c * factor for factor in (0.25, 0.5, 1.0)] if then else None,
        releases="continual" if then else 1,
        estimate=cast("Estimate", found.error.estimate),
        about=found.error.about,
    )
    save_figure(frontier_figure(line, chosen=found), path)


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
        estimate="linear" if estimate == "history" else estimate,  # a schedule weighs ticks one by one
    )


def _plan_data(found: FoundPlan) -> dict[str, Any]:
    """The plan and what it achieves as plain data, for JSON."""
    return {
        "model": found.plan.verdict.to_dict(),
        "usefulness": found.error.known_usefulness,
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


def _headline(found: FoundPlan, error: Error) -> str:
    """What the plan is worth, in a sentence or two."""
    if error.about == "now":
        return f"This plan {error.in_words} ({about_words('now')})."
    ticks = "1 tick" if found.delay == 1 else f"{found.delay} ticks"
    return (
        f"Hold every number back by {ticks}: all releases together, for ever, then tell at most "
        f"{with_chance(found.leakage.epsilon)} about any present state. What they tell of the time of the readings has "
        f"error {math.sqrt(error.mse):.3g} and {error.in_words}."
    )


def _print_plan(found: FoundPlan) -> None:
    ages, leaks = sorted(set(found.plan.ages)), found.leakage
    rows = [
        ("age", str(ages[0]) if len(ages) == 1 else ", ".join(map(str, found.plan.ages[:20]))),
        ("noise level epsilon_c", f"{found.plan.epsilon_c:.6g} (of one old reading: {in_words(found.plan.epsilon_c)})"),
        ("leakage of the present", f"{as_text(leaks.epsilon)} ({leaks.bound}): {leaks.in_words}"),
        (
            "mean squared error",
            f"{found.error.mse:.6g} ({found.error.estimate}; the error is its root, {math.sqrt(found.error.mse):.3g})",
        ),
        ("publishing nothing", f"mean squared error {found.error.no_data:.6g}, leakage 0"),
        ("evaluations", f"{found.evaluations} of leakage; {found.saved} ages ruled out without one"),
    ]
    print_table("Plan", {}, rows)
    print_lines([f"Note: {found.note}"] if found.note else [])


def _print_schedule(schedule: DynamicPlan) -> None:
    records = schedule.records()
    rows = [(str(one["tick"]), f"{one['epsilon_c']:.4g}", with_chance(one["leakage"])) for one in records[:20]]
    print_table("Schedule", dict.fromkeys(("tick", "epsilon_c", "leakage of the present"), RIGHT), rows)
    print_lines([f"... and {len(records) - 20} more ticks"] if len(records) > 20 else [])
    print_lines(
        [
            f"Mean squared error {schedule.mse:.6g}; with one level for all ticks ({schedule.constant_level:.4g}): "
            f"{schedule.constant_mse:.6g}"
        ]
    )
