"""What a plan publishes, and its estimates, on the command line: of states or readings, a public past, the worth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from csdp.bounds.adversary import Adversary
from csdp.chain import CoupledChain, EnvironmentChain, JointChain, Model
from csdp.cli import options
from csdp.cli.options import read_text
from csdp.cli.reading import locate
from csdp.errors import InputError, NotUsefulError
from csdp.panel import Discretiser, InputSpec, Panel, Readings
from csdp.query import parse_query, with_readings
from csdp.query_table import Query
from csdp.readings import ReadingRange

if TYPE_CHECKING:
    from csdp.estimate import Error, Estimator, LearnedEstimator
    from csdp.plan import Plan
    from csdp.planning import Frontier

#: Levels between the ends of a range whose resolution is not given.
LEVELS = 1000

Of = Annotated[
    Literal["readings", "states"] | None,
    typer.Option(
        help="Publish a statistic of the readings themselves, clipped to a range, or of the values of their states.",
        show_default="readings where --low and --high, or the bounds of the discretiser, are known; else states",
    ),
]
Low = Annotated[float | None, typer.Option(help="With --of readings: readings below this count as this.")]
High = Annotated[float | None, typer.Option(help="With --of readings: readings above this count as this.")]
Resolution = Annotated[
    float | None,
    typer.Option(
        help="With --of readings: readings are rounded to steps of this, which must divide the range.",
        show_default="a thousandth of the range",
    ),
]
ModelUnchecked = Annotated[
    bool,
    typer.Option(
        "--model-unchecked",
        help="Publish although the data reject the model, or did not test it: every output says so and leads with the "
        "event level, which holds under any model.",
    ),
]
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
    typer.Option(
        metavar="TIME", help="With --past: use only its ticks that are over at this time.", show_default="all"
    ),
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
        "--anyway",
        help="Go on although less than 5 % of the squared error of guessing the usual value is removed (exit code 6).",
    ),
]


# ---- what is published ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadingOptions:
    """The options of a command that say what is published; None where they were not given."""

    of: Literal["readings", "states"] | None = None
    low: float | None = None
    high: float | None = None
    resolution: float | None = None

    @property
    def given(self) -> dict[str, object]:
        """The options by name, for messages."""
        return {"--of": self.of, "--low": self.low, "--high": self.high, "--resolution": self.resolution}

    def query(self, text: str, discretiser: str | None = None) -> Query:
        """The query of a text, of readings where that is asked for or where their range is known.

        >>> ReadingOptions(low=0.0, high=1.0).query("mean").text
        'mean of readings 0..1 by 0.001'
        """
        ranged = any(value is not None for value in (self.low, self.high, self.resolution))
        if " of readings " in text or (self.of == "states" and not ranged):
            if ranged or (self.of is not None and " of readings " in text):
                raise InputError("query: it says what it is of; leave out --of, --low, --high and --resolution")
            return parse_query(text)
        if self.of == "states":
            raise InputError("low, high, resolution: of readings; leave them out, or --of states")
        bounds = self._bounds(discretiser) if ranged or discretiser is not None else None
        if bounds is None:
            if self.of == "readings" or ranged:
                raise InputError(
                    "readings: their range is not known; give --low and --high, or a --discretiser with bounds"
                )
            return parse_query(text)
        low, high = bounds
        of = ReadingRange(low, high, (high - low) / LEVELS if self.resolution is None else self.resolution)
        if self.of == "readings" or ranged:
            return with_readings(text, of)
        try:
            return with_readings(text, of)
        except InputError:  # a query of states, such as max or count:1, whose range happens to be known
            return parse_query(text)

    def range(self) -> ReadingRange | None:
        """The declared range; None where none was given."""
        if self.low is None and self.high is None and self.resolution is None:
            return None
        if self.low is None or self.high is None:
            raise InputError("readings: their range is not known; give --low and --high")
        return ReadingRange(self.low, self.high, self.resolution or (self.high - self.low) / LEVELS)

    def _bounds(self, discretiser: str | None) -> tuple[float, float] | None:
        """The declared ends, or those of a discretiser that has the same for all sequences, not from private data."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        if discretiser is None:
            return None
        known = Discretiser.load(discretiser)
        if known.bounds is None or known.source == "private" or known.categories is not None:
            return None
        low, high = float(known.bounds[:, 0].min()), float(known.bounds[:, 1].max())
        return low if self.low is None else self.low, high if self.high is None else self.high


#: No option given.
STATES = ReadingOptions()


def read_plan(path: str) -> Plan:
    """Read a plan from a file written by `csdp plan` or `Plan.to_json`."""
    from csdp.plan import Plan

    text = read_text(path, path)
    try:
        return Plan.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, IndexError, ValueError) as error:
        raise InputError(f"{path}: not a plan as `csdp plan` writes it ({error})") from None


def load_plan(
    file: str | None,
    *,
    chain: str | None,
    query: str | None,
    age: int | None,
    ages: str | None,
    epsilon_c: float | None,
    adversary: Adversary | None,
    protect: float | None = None,
    stale_limit: int | None = None,
    readings: ReadingOptions = STATES,
    discretiser: str | None = None,
) -> Plan:
    """Read the plan from a file, which no option may contradict; without a file, make it from the options.

    Every option is None if it was not given.
    """
    from csdp.plan import Plan

    if file is not None:
        own: dict[str, Any] = {
            "the model": chain,
            "--query": query,
            "--age": age,
            "--ages": ages,
            "--epsilon-c": epsilon_c,
        }
        own |= {"--adversary": adversary, "--protect": protect, "--stale-limit": stale_limit, **readings.given}
        options.refuse_together(own, "--plan")
        return read_plan(file)
    if chain is None:
        raise InputError("chain: not given; give a model with --age and --epsilon-c, or --plan")
    steps = options.parse_ages(age, ages)
    if epsilon_c is None:
        raise InputError("epsilon-c: not given; give --epsilon-c, the noise level of a release")
    return Plan(
        options.read_chain(chain),
        readings.query(query or "mean", discretiser),
        steps,
        epsilon_c,
        adversary=adversary or "informed",
        protect=protect,
        stale_limit=stale_limit or 0,
    )


# ---- a public past, and estimates ----------------------------------------------------------------------------------


def read_past(
    model: Model,
    past: str | None,
    *,
    until: str | None,
    period: int | None,
    discretiser: str | None,
    reading: InputSpec | None = None,
) -> Panel | None:
    """Read the public past of a model's sequences; None without one, where nothing may be said of it."""
    if past is None:
        for name, given in (("until", until), ("period", period)):
            if given is not None:
                raise InputError(f"{name}: only with --past; give it, or leave out --{name}")
        return None
    located = locate(past, InputSpec() if reading is None else reading)
    panel = options.read_states(located, model, discretiser=discretiser, outside="clamp")
    return panel if until is None else split_panel(panel, until, located.timezone)[0]


def split_panel(panel: Panel, until: str, timezone: str | None) -> tuple[Panel, Panel]:
    """The ticks of a panel that are over at a time, and the others."""
    cells = panel.states.astype(float)
    readings = Readings(panel.names, panel.ticks, panel.times, cells, panel.step)
    cut = len(readings.split(until, timezone=timezone)[0])
    return panel.between(0, cut), panel.between(cut, len(panel))


def test_on_past(plan: Plan, past: Panel | None) -> Plan:
    """The plan under its model tested on a public past; as it is if the past says nothing about the model.

    A model that was tested before keeps its verdict, and a past that is too short tests nothing.
    """
    from csdp.fitting.checks import check_model

    model = plan.chain
    if past is None or not isinstance(model, CoupledChain | JointChain | EnvironmentChain) or model.evidence:
        return plan
    tested = plan.under(check_model(model, past))
    return plan if tested.verdict.status == "untested" else tested


def check_past(plan: Plan, past: Panel | None) -> Plan:
    """The plan with what a public past says of its readings; a past that speaks against them is refused.

    The plan stays as it is if it publishes states, or if no past is given.
    """
    if plan.query.of_states or past is None:
        return plan
    from csdp.fitting.emissions import check_readings
    from csdp.fitting.prediction import known_environments
    from csdp.readings import judge_evidence

    past = past.arrange(plan.model.names)
    model = plan.model
    clock = model if isinstance(model, EnvironmentChain) and model.kind == "clock" else None
    environments = None if clock is None else known_environments(clock, past.ticks)
    check = check_readings(past, states=model.states, environments=environments)
    evidence = judge_evidence(check.verdict, None, finer=check.finer_states or 0)
    return plan.with_readings_check(evidence)


def write_plan(
    path: Path,
    plan: Plan,
    *,
    about: About,
    estimator: LearnedEstimator | None,
    discretiser: str | None,
    frontier: Frontier | None,
) -> None:
    """Write a plan file, with the estimator, the discretiser and the frontier: no part of the plan's digest."""
    from csdp.planning.plan_file import PlanFile

    states = None if discretiser is None else Discretiser.load(discretiser)
    PlanFile(plan, about, estimator, states, frontier).save(path)


def choose_estimator(
    plan: Plan,
    plan_file: str | None,
    *,
    about: About | None,
    past: Panel | None,
    period: int | None,
    estimator_file: str | None,
) -> Estimator | None:
    """The estimator of a release: learned on a public past, in its file, in the plan file, or by the model."""
    from csdp.estimate import LearnedEstimator
    from csdp.planning.plan_file import PlanFile
    from csdp.publisher.estimates import learn_from_past, plan_estimator

    stored = PlanFile(plan) if plan_file is None else PlanFile.load(plan_file)
    if past is not None:
        learned = learn_from_past(plan, past, period=period, about=about or stored.about)
        if estimator_file is not None:
            learned.save(estimator_file)
        return learned
    if estimator_file is None:
        kept = about in {None, stored.about if stored.learned is None else stored.learned.about}
        return stored.estimator if kept else plan_estimator(plan, about=about or "now")
    chosen = LearnedEstimator.load(estimator_file)
    if about is not None and chosen.about != about:
        raise InputError(f"about: {about!r} given, but the estimator is about {chosen.about!r}; leave out one of them")
    return chosen


def require_useful(plan: Plan, error: Error | None, *, anyway: bool) -> None:
    """Stop where a release would hardly tell more than guessing the usual value; unknown errors pass."""
    if error is None or error.useful or anyway:
        return
    from csdp.planning import check_useful

    try:
        check_useful(plan, error)
    except NotUsefulError as stop:
        raise NotUsefulError(f"{stop}; or --anyway", usefulness=stop.usefulness, helps=stop.helps) from None
