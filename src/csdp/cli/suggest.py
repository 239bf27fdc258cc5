"""`csdp suggest`: useful plans for a file of readings, ranked, with the commands that use the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.bounds.result import with_chance
from csdp.cli import options, plan_options
from csdp.cli.reading import locate, option_words, takes_readings
from csdp.cli.terminal import (
    print_json,
    print_lines,
    print_table,
    print_warnings,
    printable,
    progress_line,
    verdict_first,
)
from csdp.errors import InputError
from csdp.estimate.result import about_words
from csdp.panel import InputSpec

if TYPE_CHECKING:
    from csdp.planning.suggest import Suggestion


@takes_readings
def suggest(
    data: options.DataFile,
    reading: InputSpec,
    budget: options.Budget = 1.0,
    event_limit: options.EventLimit = 10.0,
    query: options.BestQuery = None,
    about: Annotated[
        Literal["now", "then"] | None,
        typer.Option(help="Numbers about the present, or about the time of the readings.", show_default="both"),
    ] = None,
    low: plan_options.Low = None,
    high: plan_options.High = None,
    resolution: plan_options.Resolution = None,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="After about this time the best plans so far are kept; Ctrl-C keeps them too."),
    ] = 20.0,
    public: options.Public = False,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Use only ticks that are over at this time, the public past; the rest is released."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder to write discretiser, chain and plan of each proposal to, with the commands to run next.",
        ),
    ] = None,
    form: options.FormatOption = "table",
) -> None:
    """Search for useful plans: step, states, chain, query, age and noise; ranked, with the commands that use the best.

    \b
    Example:
      csdp suggest readings.csv --public -o suggested

    The proposal is derived from the readings, so they must be public: --public, or with --until those before a time,
    and the commands release what follows. With --step the step is kept; else longer ones are tried too. Exit code 6: no
    plan is useful, with what would help.
    """
    from csdp.planning.suggest import suggest as make_suggestion

    if output is not None and Path(output).exists() and not Path(output).is_dir():
        raise InputError(f"output: {output} is a file; give the name of a folder")
    ranged = plan_options.ReadingOptions(None, low, high, resolution).range()
    located = locate(data, reading)
    with print_warnings(), progress_line() as progress:
        suggestion = make_suggestion(
            located,
            budget=budget,
            event_limit=event_limit,
            query=query,
            about=about,
            of=ranged,
            fixed_step=reading.step is not None or located.resample is not None,
            seconds=seconds,
            public=public,
            until=until,
            options=option_words(reading),
            progress=progress,
        )
    files = suggestion.save(Path(output), data=data) if output is not None else []
    plans = [plan.to_dict() for plan in suggestion.plans]
    commands = [] if output is None else list(suggestion.best.commands(data, f"{output}/1"))
    if form == "json":
        reasons = [{"what": what, "proposed": choice, "why": why} for what, choice, why in suggestion.reasons]
        best = suggestion.best
        worth = {"model": best.plan.verdict.to_dict(), "usefulness": best.error.known_usefulness, "about": best.about}
        search = {"tried": suggestion.tried, "interrupted": suggestion.interrupted}
        print_json(
            {
                **worth,
                **search,
                "plans": plans,
                "reasons": reasons,
                "files": [str(path) for path in files],
                "next": commands,
            }
        )
        return
    _print_suggestion(suggestion, plans)
    print_lines(f"wrote {path}" for path in files)
    if commands:
        print_lines(["Next:", *(f"  {line}" for line in commands)])
    else:
        print_lines(["To use a plan, repeat this with -o DIR, which writes plans and commands that publish by them."])


def _print_suggestion(suggestion: Suggestion, plans: list[dict[str, Any]]) -> None:
    best = suggestion.best
    ended = "; the search was interrupted, there may be better ones" if suggestion.interrupted else ""
    worth = f"The best plan {best.error.in_words} ({about_words(best.about, best.plan.max_age)})"
    print_lines(verdict_first(best.plan.verdict, f"{worth}; {suggestion.tried} settings tried{ended}."))
    rows = [
        (
            str(n),
            "unknown" if plan["usefulness"] is None else f"{100 * plan['usefulness']:.0f} %",
            with_chance(plan["leakage"], 4),
            f"{plan['event_level']:.3g}",
            f"{plan['about']}, {plan['age']}",
            printable(plan["query"]),
            f"{plan['states']}, {shown.step}",
            f"{plan['kind']} {plan['direction'][:4]}.",
            plan["model"]["status"],
        )
        for n, (plan, shown) in enumerate(zip(plans, suggestion.plans, strict=True), 1)
    ]
    columns = ("", "useful", "leakage", "event", "about, age", "query", "states, step", "chain", "model")
    print_table("Useful plans, the best first", {name: {} for name in columns}, rows)
    reasons = [(what, printable(choice), printable(why)) for what, choice, why in suggestion.reasons]
    print_table("The first of them", {"what": {}, "proposed": {}, "why": {}}, reasons)
