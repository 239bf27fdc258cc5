"""`csdp plan`: what is to be published, at which age and with how much noise, and what it is worth."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.bounds.result import as_text, in_words, with_chance
from csdp.chain import CoupledChain, EnvironmentChain, JointChain, Model, NoModel
from csdp.check import number
from csdp.cli import options
from csdp.cli.terminal import Format, print_json, print_lines, print_table, progress_bar, verdict_first
from csdp.errors import CsdpError, InputError
from csdp.estimate.result import about_words
from csdp.panel import Discretiser, Panel
from csdp.query import parse_query

if TYPE_CHECKING:
    from csdp.bounds.result import Leakage
    from csdp.estimate import LearnedEstimator
    from csdp.estimate.result import About, Error
    from csdp.plan import Plan
    from csdp.planning import FoundPlan


def plan(
    chain: Annotated[str, options.CHAIN],
    query: Annotated[str, options.QUERY] = "mean",
    age: Annotated[str | None, options.AGE] = None,
    epsilon_c: Annotated[float | None, options.NOISE_LEVEL] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Find the least error with at most this leakage in the long run."),
    ] = None,
    max_error: Annotated[
        float | None, typer.Option(min=0, help="Find the least leakage with at most this root mean squared error.")
    ] = None,
    moment_limit: Annotated[float | None, options.MOMENT_LIMIT] = None,
    about: Annotated[
        Literal["now", "then"],
        typer.Option(
            help="Publish numbers about the present (now), or about the time of the readings (then): with both "
            "--budget and --max-error, then finds how long they must be held back."
        ),
    ] = "now",
    max_age: Annotated[int, typer.Option(help="Largest age in steps that a search may use.")] = 50,
    event_limit: Annotated[float | None, options.EVENT_LIMIT] = None,
    stale_limit: Annotated[
        int,
        typer.Option(
            min=0, help="Replace a missing reading by one that is at most this many steps older; 0 never does."
        ),
    ] = 0,
    past: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Public readings: the model is tested and estimates are learned on them. They must be public.",
            show_default="estimates by the model",
        ),
    ] = None,
    until: Annotated[str | None, options.UNTIL] = None,
    discretiser: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Discretiser file written by `csdp fit`; it maps readings to states.",
            show_default="readings are values of the model",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PLAN.json", help="File to write the plan to.")
    ] = None,
    form: Annotated[Format, options.FORMAT] = "table",
) -> None:
    """Plan a release at every tick: with a given age and noise, or the best for an error, a budget, or both.

    \b
    Example:
      csdp plan chain.json --about then --budget 0.5 --max-error 0.1 -o plan.json
      csdp plan chain.json --query max --age 2 --epsilon-c 1
      csdp plan chain.json --about then --budget 0.5 --max-error 0.1 --past readings.csv --until 150 -o plan.json
      csdp plan chain.json --event-limit 1 --past readings.csv --until 150 -o plain.json

    The plan file holds all that `csdp release`, `csdp stream` and `csdp serve` need: query, ages, noise, discretiser,
    estimator, and the end of the public past, after which they publish. A search whose best plan removes less than 5 %
    of the squared error of guessing the usual value writes none: exit code 6, with what would help.

    --event-limit alone makes a plan without a model: readings are published at once, each under plain differential
    privacy with this epsilon. It takes only names and values from the model file. Beside other limits the default of
    --event-limit is 10.
    """
    from csdp.plan import Plan
    from csdp.planning import EVENT_LIMIT, check_useful, find_plan, plan_frontier
    from csdp.planning.plan_file import PlanFile
    from csdp.planning.protection import protection
    from csdp.publisher import learn_from_past, plan_estimator

    if until is not None and past is None:
        raise InputError("until: only with --past; give it, or leave out --until")
    model = options.read_chain(chain)
    states = None if discretiser is None else Discretiser.load(discretiser)
    statistic = parse_query(query)
    known, ends = (None, None) if past is None else _read_past(past, until, model, states)
    found: FoundPlan | None = None
    targets = {"--budget": budget, "--max-error": max_error, "--moment-limit": moment_limit}
    asked = [age, epsilon_c, *targets.values()]
    if event_limit is not None and all(each is None for each in asked):
        made = Plan(NoModel.of(model), statistic, 0, number("event_limit", event_limit, above=0))
    elif age is None and epsilon_c is None:
        if all(each is None for each in asked):
            raise InputError(
                "age: not given; give --age and --epsilon-c, or --budget, --max-error or --moment-limit for a search, "
                "or --event-limit alone for a plan without a model"
            )
        with progress_bar() as progress:
            found = find_plan(
                model,
                statistic,
                max_mse=None if max_error is None else max_error**2,
                budget=budget,
                moment_limit=moment_limit,
                max_age=max_age,
                releases="continual",
                about=about,
                event_limit=EVENT_LIMIT if event_limit is None else event_limit,
                progress=progress,
            )
        made = found.plan
    else:
        options.refuse_together(targets, "--age and --epsilon-c")
        if age is None or epsilon_c is None:
            raise InputError("age, epsilon-c: one of them given; give both --age and --epsilon-c, or neither to search")
        made = Plan(model, statistic, options.parse_ages(age), epsilon_c)
    made = _test_on_past(replace(made, stale_limit=stale_limit), known)
    learned = None if known is None else learn_from_past(made, known, about=about)
    estimator = plan_estimator(made, about=about) if learned is None else learned
    error = None if estimator is None else estimator.expected(made.noise_variance)
    has_model = made.verdict.status != "none"
    if error is not None and (found is not None or not has_model):
        check_useful(made, error)
    leaks = (_long_run(made) if found is None else found.leakage) if has_model else None
    moment = _any_moment(made) if has_model else None
    protects = protection(
        made, None if leaks is None else leaks.epsilon, moment, budget=budget, moment_limit=moment_limit
    )
    if output is not None:
        frontier = plan_frontier(made, about=about)
        PlanFile(made, about, learned, states, frontier, ends).save(output)
    if form == "json":
        content = _describe(made, leaks, moment, error, learned, found, about)
        print_json({**content, "protects": protects.to_dict()})
        return
    print_lines(verdict_first(made.verdict, _headline(made, leaks, error, about)))
    _print_plan(made, leaks, moment, error, found)
    advice = "--event-limit alone makes a plan without a model, whose promise holds under any model."
    print_lines([protects.words] if made.verdict.reliable else [protects.words, advice])
    print_lines([] if learned is None else [f"Estimate: {learned.in_words}."])
    print_lines([] if output is None else [f"wrote {output}"])


# ---- the public past -----------------------------------------------------------------------------------------------


def _read_past(
    past: str, until: str | None, model: Model, states: Discretiser | None
) -> tuple[Panel, str | int | None]:
    """The public past, and its end."""
    from csdp.planning.plan_file import end_of_past

    located = options.locate(past)
    known = options.read_states(located, model, states)
    ends = end_of_past(until, known.times, located.timezone)
    return (known if ends is None else options.split_panel(known, ends)[0]), ends


def _test_on_past(plan: Plan, past: Panel | None) -> Plan:
    """The plan with what a public past says about its model and its readings.

    A model that was tested before keeps its verdict, and a past that is too short tests nothing. A past whose readings
    reveal more than their states is refused for a query of readings.
    """
    if past is None:
        return plan
    from csdp.fitting.checks import check_model, check_readings, known_environments
    from csdp.readings import judge_evidence

    model = plan.chain
    if isinstance(model, CoupledChain | JointChain | EnvironmentChain) and not model.evidence:
        tested = plan.under(check_model(model, past))
        plan = plan if tested.verdict.status == "untested" else tested
    if plan.query.of_states:
        return plan
    past = past.arrange(plan.model.names)
    environments = known_environments(plan.model, past.ticks)
    check = check_readings(past, states=plan.model.states, environments=environments)
    return plan.with_readings_check(judge_evidence(check.verdict, None))


# ---- output --------------------------------------------------------------------------------------------------------


def _long_run(plan: Plan) -> Leakage | None:
    """The leakage of the present of a release at every tick; None if it cannot be computed."""
    from csdp.accountant import Accountant

    try:
        accountant = Accountant(plan)
        return replace(accountant.limit(), epsilon=accountant.ceiling(None))
    except CsdpError:
        return None


def _any_moment(plan: Plan) -> float | None:
    """What a release at every tick reveals of any one moment, in the end; None if it cannot be computed."""
    from csdp.accountant import Accountant

    try:
        return Accountant(plan).every_moment(stale=plan.stale_limit)
    except CsdpError:
        return None


def _describe(
    plan: Plan,
    leaks: Leakage | None,
    moment: float | None,
    error: Error | None,
    learned: LearnedEstimator | None,
    found: FoundPlan | None,
    about: About,
) -> dict[str, Any]:
    """The plan and what it achieves as plain data, for JSON."""
    names = ("kind", "about", "ticks", "mse", "no_data", "usefulness", "level", "coverage", "compared")
    return {
        "model": plan.verdict.to_dict(),
        "usefulness": None if error is None else error.known_usefulness,
        "about": about,
        "delay": plan.min_age,
        "ages": list(plan.ages),
        "epsilon_c": plan.epsilon_c,
        "leakage": None if leaks is None else leaks.to_dict(),
        "every_moment": moment,
        "mse": None if error is None else error.mse,
        "no_data": None if error is None else error.no_data,
        "note": "" if found is None else found.note,
        "plan_digest": plan.digest,
        **({} if learned is None else {"learned": {name: getattr(learned, name) for name in names}}),
    }


def _headline(plan: Plan, leaks: Leakage | None, error: Error | None, about: About) -> str:
    """What the plan is worth, in a sentence or two."""
    if error is None and plan.verdict.status == "none":
        return "What this plan is worth is not known without a model; a public past shows it (--past)."
    if error is None:
        return "The moments of the model are out of reach, so what this plan is worth is unknown."
    if about == "now" or leaks is None:
        return f"This plan {error.in_words} ({about_words(about, plan.max_age)})."
    ticks = "1 tick" if plan.min_age == 1 else f"{plan.min_age} ticks"
    return (
        f"Hold every number back by {ticks}: all releases together then reveal at most {with_chance(leaks.epsilon)} "
        f"about any present state, in the long run. About the time of the readings they have error "
        f"{math.sqrt(error.mse):.3g}: the estimate {error.in_words}."
    )


def _print_plan(
    plan: Plan, leaks: Leakage | None, moment: float | None, error: Error | None, found: FoundPlan | None
) -> None:
    from csdp.publisher.charge import GROWS

    ages = sorted(set(plan.ages))
    rows = [
        ("age", str(ages[0]) if len(ages) == 1 else ", ".join(map(str, plan.ages[:20]))),
        ("noise level epsilon_c", f"{plan.epsilon_c:.6g} (of one reading: {in_words(plan.epsilon_c)})"),
    ]
    if plan.verdict.status != "none":
        rows.append(("leakage of one release", f"{as_text(plan.certified.epsilon)} ({plan.certified.bound})"))
    if leaks is not None:
        rows.append(("the present, in the long run", f"{as_text(leaks.epsilon)} ({leaks.bound}): {leaks.in_words}"))
    if moment is not None:
        rows.append(("any moment", f"{as_text(moment)}: {in_words(moment)}" if math.isfinite(moment) else GROWS))
    if error is not None:
        root = f"the error is its root, {math.sqrt(error.mse):.3g}"
        rows.append(("mean squared error", f"{error.mse:.6g} ({error.estimate}; {root})"))
        rows.append(("publishing nothing", f"mean squared error {error.no_data:.6g}, leakage 0"))
    print_table("Plan", (), rows)
    print_lines([f"Note: {found.note}"] if found is not None and found.note else [])
