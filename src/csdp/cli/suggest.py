"""`csdp suggest`: useful plans for a file of readings, ranked, with the commands that use the best."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.bounds.result import with_chance
from csdp.cli import options
from csdp.cli.terminal import (
    Format,
    print_json,
    print_lines,
    print_table,
    printable,
    progress_bar,
    verdict_first,
)
from csdp.errors import InputError
from csdp.estimate.result import about_words

if TYPE_CHECKING:
    from csdp.panel import InputSpec
    from csdp.planning.suggest import ProposedPlan, Suggestion


def suggest(
    data: Annotated[str, options.DATA],
    budget: Annotated[float | None, options.BUDGET] = None,
    moment_limit: Annotated[float | None, options.MOMENT_LIMIT] = None,
    event_limit: Annotated[float | None, options.EVENT_LIMIT] = None,
    query: Annotated[str | None, options.QUERY] = None,
    about: Annotated[
        Literal["now", "then"] | None,
        typer.Option(help="Numbers about the present, or about the time of the readings.", show_default="both"),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="After about this time the best plans so far are kept; Ctrl-C keeps them too."),
    ] = 20.0,
    public: Annotated[bool, options.PUBLIC] = False,
    until: Annotated[str | None, options.UNTIL] = None,
    model_unchecked: Annotated[
        bool,
        typer.Option("--model-unchecked", help="Propose plans under models, too, that the readings do not accept."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder to write the files of each proposal to, with the commands to run next.",
        ),
    ] = None,
    form: Annotated[Format, options.FORMAT] = "table",
) -> None:
    """Search for useful plans: step, states, chain, query, age and noise; ranked, with the commands that use the best.

    \b
    Example:
      csdp suggest readings.csv --public -o suggested

    The proposal is derived from the readings, so they must be public: --public, or with --until those before a time,
    and the commands release what follows. Longer steps are tried too, unless the [input] section resamples readings.
    Give --query 'mean of readings LOW..HIGH by STEP' if you know the range of the readings without them.

    The leakage of the present is at most 1 if no limit is given; --moment-limit alone limits any moment instead. Plans
    under a model that the readings accept come first, then one without a model: plain differential privacy of a
    reading. --event-limit is 10 by default, and 1 for this plan. Exit code 6: no plan is useful, with what would help.
    """
    from csdp.planning.suggest import suggest as make_suggestion

    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"output: {output} is a file; give the name of a folder")
    located = options.locate(data)
    with progress_bar() as progress:
        suggestion = make_suggestion(
            located,
            budget=budget,
            moment_limit=moment_limit,
            event_limit=event_limit,
            query=query,
            about=about,
            fixed_step=located.resample is not None,
            seconds=seconds,
            public=public,
            until=until,
            model_unchecked=model_unchecked,
            progress=progress,
        )
    commands = [] if output is None else _commands(suggestion.best, output / "1")
    files = [] if output is None else _save(suggestion, output, located, commands)
    plans = [plan.to_dict() for plan in suggestion.plans]
    if form == "json":
        content = {
            "tried": suggestion.tried,
            "interrupted": suggestion.interrupted,
            "note": suggestion.note,
            "plans": plans,
            "files": [str(path) for path in files],
            "next": commands,
        }
        print_json(content)
        return
    _print_suggestion(suggestion, plans)
    print_lines(f"wrote {path}" for path in files)
    if commands:
        print_lines(["Next:", *(f"  {line}" for line in commands)])
    else:
        print_lines(["To use a plan, repeat this with -o DIR, which writes plans and commands that publish by them."])


def _save(suggestion: Suggestion, folder: Path, located: InputSpec, commands: list[str]) -> list[Path]:
    """Write each plan to a folder of its own, 1 the best, with how its readings are read, and the commands."""
    paths = []
    for number, proposed in enumerate(suggestion.plans, 1):
        place = folder / str(number)
        paths += proposed.save(place)
        longer = proposed.longer_step
        spec = located if longer is None else located.override(step=longer, resample="mean")
        spec.save(place / "input.toml")
        paths.append(place / "input.toml")
    (folder / "next.txt").write_text("\n".join(commands) + "\n", encoding="utf-8")
    return [*paths, folder / "next.txt"]


def _commands(best: ProposedPlan, folder: Path) -> list[str]:
    """The commands that publish by the files of a folder, within the limits of its plan, and report on it."""
    data, plan = str(folder / "input.toml"), str(folder / "plan.json")
    place = ["--dataset", "NAME", "--ledger", "ledger.db"]
    release = ["csdp", "release", data, "--plan", plan, *place]
    for name, limit in best.limits.items():
        release += [f"--{name.replace('_', '-')}", f"{limit:g}"]
    release += ["--on-refusal", "skip"]
    release += [] if best.plan.verdict.reliable else ["--model-unchecked"]
    report = ["csdp", "report", "ledger.db", "--dataset", "NAME", "--data", data, "--plan", plan]
    return [shlex.join([*release, "-o", "released.csv"]), shlex.join([*report, "-o", "report"])]


def _print_suggestion(suggestion: Suggestion, plans: list[dict[str, Any]]) -> None:
    best = suggestion.best
    ended = "; the search was interrupted, there may be better ones" if suggestion.interrupted else ""
    worth = f"The best plan {best.error.in_words} ({about_words(best.about, best.plan.max_age)})"
    print_lines(verdict_first(best.plan.verdict, f"{worth}; {suggestion.tried} settings tried{ended}."))
    print_lines([f"{note[:1].upper()}{note[1:]}"] if (note := suggestion.note) else [])
    rows = [
        (
            str(n),
            "unknown" if plan["usefulness"] is None else f"{100 * plan['usefulness']:.0f} %",
            "no model" if plan["leakage"] is None else with_chance(plan["leakage"], 4),
            "no model" if plan["every_moment"] is None else _of_any_moment(plan["every_moment"]),
            f"{plan['event_level']:.3g}",
            f"{plan['about']}, {plan['age']}",
            printable(plan["query"]),
            f"{plan['states']}, {shown.step}",
            plan["kind"] if plan["direction"] is None else f"{plan['kind']} {plan['direction'][:4]}.",
            plan["model"]["status"],
        )
        for n, (plan, shown) in enumerate(zip(plans, suggestion.plans, strict=True), 1)
    ]
    limits = dict.fromkeys(plan.limits_in_words for plan in suggestion.plans)
    print_lines([f"Limits: {'; '.join(limits)}."])
    columns = ("", "useful", "present", "any moment", "event", "about, age", "query", "states, step", "chain", "model")
    print_table("Useful plans, the best first", columns, rows)
    reasons = [(what, printable(choice), printable(why)) for what, choice, why in suggestion.reasons]
    print_table("The first of them", ("what", "proposed", "why"), reasons)


def _of_any_moment(epsilon: float) -> str:
    """What is revealed of any moment, in the long run."""
    return with_chance(epsilon, 4) if math.isfinite(epsilon) else "grows"
