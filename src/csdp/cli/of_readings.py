"""Readings instead of states on the command line: their declared range, and the check on a public past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from csdp.chain import EnvironmentChain
from csdp.errors import InputError
from csdp.panel import Discretiser, Panel
from csdp.queries import Query, parse_query, with_readings
from csdp.reading_range import ReadingRange

if TYPE_CHECKING:
    from csdp.plan import Plan

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
Untested = Annotated[
    bool,
    typer.Option(
        "--untested-readings",
        help="Publish readings although the public past speaks against it: only plain and group privacy hold then, and "
        "the certificate says so.",
    ),
]


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
        bounds = self._bounds(discretiser)
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


def check_past(plan: Plan, past: Panel | None, *, untested: bool) -> Plan:
    """The plan with what a public past says of its readings; a past that speaks against them is refused.

    Nothing is asked where states are published or no past is given.
    """
    if plan.query.of_states:
        if untested:
            raise InputError("--untested-readings: the plan publishes states; leave it out")
        return plan
    if past is None:
        return plan.with_readings_check("failed") if untested else plan
    from csdp.computation.readings import judge_evidence
    from csdp.fitting.emissions import check_readings
    from csdp.fitting.environment_prediction import known_environments

    past = past.arrange(plan.model.names)
    model = plan.model
    clock = model if isinstance(model, EnvironmentChain) and model.kind == "clock" else None
    environments = None if clock is None else known_environments(clock, past.ticks, None)
    check = check_readings(past, states=model.states, environments=environments, memory=plan.query.memory)
    evidence = judge_evidence(check.verdict, "failed" if untested else None, finer=check.finer_states or 0)
    return plan.with_readings_check("states" if plan.query.memory and evidence == "passed" else evidence)
