"""Estimates on the command line: what they are about, a public past to learn on, and whether they are worth it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.chain import Model
from csdp.cli import options
from csdp.cli.reading import locate
from csdp.errors import InputError, NotUsefulError
from csdp.panel import InputSpec, Panel, Readings

if TYPE_CHECKING:
    from csdp.estimate import Error, Estimator, LearnedEstimator
    from csdp.plan import Plan
    from csdp.publisher.estimates import StoredEstimate

About = Literal["now", "then"]

_ABOUT = (
    "What the published numbers are about: the present (now), or the time of the readings (then), which costs delay "
    "but no accuracy."
)
Past = Annotated[
    str | None,
    typer.Option(
        metavar="DATA.csv|.parquet",
        help="Public readings: estimates are learned on them and checked on the last of them. They must be public.",
        show_default="estimates by the model",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="With --past: use only its readings before this time.", show_default="all"),
]
Period = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --past: ticks after which what is usual repeats.", show_default="a day, with timestamps"
    ),
]
OptionalAbout = Annotated[About | None, typer.Option(help=_ABOUT, show_default="that of the plan, or now")]
EstimatorFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Estimator file: read, or written where --past is given.",
        show_default="the one in the plan, if any",
    ),
]
Anyway = Annotated[
    bool,
    typer.Option(
        "--anyway", help="Go on although less than 5 % of the error of saying nothing is removed (exit code 6)."
    ),
]


def read_past(
    model: Model,
    past: str | None,
    until: str | None,
    *,
    discretiser: str | None = None,
    reading: InputSpec | None = None,
) -> Panel | None:
    """Read the public past of a model's sequences; None without one."""
    if past is None:
        if until is not None:
            raise InputError("until: only with --past; give it, or leave out --until")
        return None
    located = locate(past, InputSpec() if reading is None else reading)
    panel = options.read_states(located, model, discretiser=discretiser, outside="clamp")
    return panel if until is None else _before(panel, until)


def learn(plan: Plan, past: Panel | None, *, period: int | None, about: About) -> LearnedEstimator | None:
    """Learn the estimator of a plan on a public past; None without one."""
    if past is None:
        if period is not None:
            raise InputError("period: only with --past; give it, or leave out --period")
        return None
    from csdp.publisher import learn_from_past

    return learn_from_past(plan, past, period=period, about=about)


def _before(panel: Panel, until: str) -> Panel:
    """The ticks of a panel before a time."""
    cells = panel.states.astype(float)
    cut = len(Readings(panel.names, panel.ticks, panel.times, cells, panel.step).split(until)[0])
    return panel.between(0, cut)


def write_plan(path: Path, plan: Plan, *, about: About, estimator: LearnedEstimator | None) -> None:
    """Write a plan, with what its estimates are about and their learned estimator: no part of its digest."""
    from csdp.publisher.estimates import StoredEstimate

    further = StoredEstimate(about, estimator).to_dict()
    path.write_text(json.dumps({**plan.to_dict(), **further}, indent=1) + "\n", encoding="utf-8")


def read_stored(plan_file: str | None) -> StoredEstimate:
    """What a plan file holds beside the plan, which was read before."""
    from csdp.publisher.estimates import StoredEstimate

    return StoredEstimate() if plan_file is None else StoredEstimate.read(Path(plan_file).read_text(encoding="utf-8"))


def choose_estimator(
    plan: Plan,
    stored: StoredEstimate,
    *,
    about: About | None,
    learned: LearnedEstimator | None,
    estimator_file: str | None,
) -> Estimator | None:
    """The estimator of a release: just learned, in its file, in the plan file, or by the model."""
    from csdp.estimate import LearnedEstimator

    if learned is not None:
        if estimator_file is not None:
            learned.save(estimator_file)
        return learned
    if estimator_file is None:
        return stored.estimator(plan, about)
    chosen = LearnedEstimator.load(estimator_file)
    if about is not None and chosen.about != about:
        raise InputError(f"about: {about!r} given, but the estimator is about {chosen.about!r}; leave out one of them")
    return chosen


def require_useful(plan: Plan, error: Error | None, *, anyway: bool) -> None:
    """Stop where a release would hardly tell more than saying nothing; unknown errors pass."""
    if error is None or anyway:
        return
    from csdp.planning import check_useful

    try:
        check_useful(plan, error)
    except NotUsefulError as stop:
        raise NotUsefulError(f"{stop}; or --anyway", usefulness=stop.usefulness, helps=stop.helps) from None
