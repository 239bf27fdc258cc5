"""Beyond the paper: the class that `csdp.fit` grows on six data sets, and what a plan under it is worth.

    python -m study.classes                          every data set
    python -m study.classes wind glucose             some
    python -m study.classes --docs docs/fitting.md   also put the table into the page

One rule for all, fixed before any data set was tried: two states, the first 70 % of the ticks as the public
past, backward chains with hidden environments whose number the fit chooses (none for a single sequence), no
neighbours. The plan shows the share of sequences in state 1 at every tick, at age 0, with the least noise that
keeps any moment within `MOMENT_LIMIT` in the long run. If the data reject the model, or no noise is enough, it
is a plan without a model, of event level `EVENT`. The rest of the readings only measures what it is worth.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

import csdp
from csdp import datasets
from csdp.bounds.result import as_text
from csdp.errors import InfeasibleError
from study import installed
from study.coverage import measure_release

Source = Literal["declared", "public"]
#: Share of the ticks that are the public past.
PAST = 0.7
QUERY = "share:1"
MOMENT_LIMIT, EVENT = 2.0, 1.0
#: Share of what is usual below which few people ride.
QUIET = 0.8
#: Sensor glucose above which clinicians call it high, mg/dl.
HIGH = 180.0
COLUMNS = (
    *("data", "public past", "accepted", "class", "influence at most", "slow levels add", "plan"),
    *("present", "any moment", "usefulness", "band holds", "seconds of the fit"),
)
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"
#: Lines of a page between which the table stands.
START, END = "<!-- classes: written by python -m study.classes -->\n", "<!-- end of classes -->\n"


@dataclass(frozen=True)
class Choice:
    """What is published of a data set: its states, and why.

    `period`: ticks after which the usual value repeats; by default a day of the grid.
    """

    load: Callable[[], csdp.Panel]
    words: str
    period: int | None = None


@dataclass(frozen=True)
class ClassRow:
    """One data set: the class, the plan, and what it is worth on the rest; no numbers if not installed."""

    data: str
    past: str = ""
    accepted: str = ""
    assumes: str = ""
    influence: float | None = None
    swing: float | None = None
    plan: str = ""
    present: float | None = None
    moment: float | None = None
    usefulness: float | None = None
    coverage: float | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        limits = [self.influence, self.swing, self.present, self.moment]
        influence, swing, present, moment = ("" if limit is None else as_text(limit, 3) for limit in limits)
        worth = (self.usefulness, self.coverage)
        shares = ["" if share is None else f"{share:.1%}" for share in worth]
        seconds = "" if self.seconds is None else f"{self.seconds:.0f}"
        fitted = [self.data, self.past, self.accepted, self.assumes, influence, swing]
        return f"| {' | '.join([*fitted, self.plan, present, moment, *shares, seconds])} |"


# ---- the data sets as states -----------------------------------------------------------------------------


def past_ticks(ticks: int) -> int:
    """How many ticks the public past has."""
    return round(PAST * ticks)


def usual_by(phases: Any, readings: Any) -> Any:
    """The median of each sequence at each phase of a calendar in the public past, for every tick (T, s)."""
    end = past_ticks(len(readings))
    past, known = readings[:end], phases[:end]
    rows = {phase: np.nanmedian(past[known == phase], axis=0) for phase in np.unique(phases)}
    return np.array([rows[phase] for phase in phases])


def cut(readings: csdp.Readings, numbers: Any, edge: float, source: Source) -> csdp.Panel:
    """Two states: numbers (T, s) below the edge, and from the edge on; `source` as in a panel."""
    states = np.where(np.isnan(numbers), -1, numbers >= edge).astype(np.int16)
    values = np.tile([0.0, 1.0], (len(readings.names), 1))
    grid = readings.ticks, readings.times
    return csdp.Panel(readings.names, *grid, states, readings.step, values, source=source)


def load_flights() -> csdp.Panel:
    """Late departures, as in the demonstration."""
    return datasets.load("flights").panel()


def load_parking() -> csdp.Panel:
    """Car parks that are fuller than usual, by the hour."""
    half_hours = datasets.load("parking").readings
    columns = dict(zip(half_hours.names, half_hours.readings.T, strict=True))
    hours = csdp.read_readings({"time": half_hours.times, **columns}, step="1h", resample="mean")
    usual = usual_by(np.zeros(len(hours)), hours.readings)
    return cut(hours, hours.readings - usual, 0.0, "public")


def load_wind() -> csdp.Panel:
    """Stations with more wind than is usual in that month."""
    days = installed.read_wind()
    months = days.times.astype("datetime64[M]").astype(np.int64) % 12
    return cut(days, days.readings - usual_by(months, days.readings), 0.0, "public")


def load_influenza() -> csdp.Panel:
    """Districts with a case."""
    weeks = installed.read_influenza()
    return cut(weeks, weeks.readings, 1.0, "declared")


def load_glucose() -> csdp.Panel:
    """High glucose."""
    half_hours = installed.read_glucose()
    return cut(half_hours, half_hours.readings, HIGH, "declared")


def load_ridership() -> csdp.Panel:
    """Stations where few people ride."""
    days = installed.read_ridership()
    weekdays = days.times.astype("datetime64[D]").astype(np.int64) % 7
    return cut(days, -days.readings / usual_by(weekdays, days.readings), -QUIET, "public")


CHOICES = {
    "flights": Choice(
        load_flights,
        "a third of the departures or more are late, every three hours of the day, as in the demonstration",
        period=5,
    ),
    "parking": Choice(
        load_parking,
        "a car park is fuller than its median, every hour; several are hardly ever 80 % full, and half an "
        "hour changes little",
    ),
    "wind": Choice(
        load_wind,
        "a station has more wind than its median for the month, every day, so that the season is left out",
    ),
    "influenza": Choice(
        load_influenza,
        "a district has a case, every week; most weeks have none",
        period=52,
    ),
    "glucose": Choice(
        load_glucose,
        "glucose is 180 mg/dl or more, the clinical limit, every half hour; five minutes change little",
    ),
    "ridership": Choice(
        load_ridership,
        "a station has at most 80 % of its median for the weekday, every day: holidays, storms, works",
        period=7,
    ),
}


# ---- rows ------------------------------------------------------------------------------------------------


def make_row(name: str, choice: Choice) -> ClassRow:
    """The row of a data set."""
    try:
        panel = choice.load()
    except installed.NotInstalledError as missing:
        return ClassRow(name, accepted=f"not installed: {missing}")
    ticks = past_ticks(len(panel))
    past, rest = panel.between(0, ticks), panel.between(ticks, len(panel))
    start = time.perf_counter()
    chain = fit_class(past)
    seconds = time.perf_counter() - start
    plan, remark = choose_plan(chain)
    accountant = csdp.Accountant(plan)
    held = measure_release(name, plan, "now", past, rest, choice.period)
    graph = chain.family
    return ClassRow(
        name,
        f"{len(past.names)} x {ticks:,}",
        remark,
        chain.fitted.assumes.partition("; no influence")[0],
        None if graph is None else influence_limit(graph),
        None if graph is None or graph.swing is None else float(graph.swing.max()),
        f"epsilon_c {plan.epsilon_c:.3g}" if plan.model.has_law else f"no model, event {EVENT:g}",
        accountant.ceiling(),
        accountant.every_moment(),
        held.usefulness,
        held.held,
        seconds,
    )


def fit_class(past: csdp.Panel) -> Any:
    """The chain with the class that its public past accepts or not, by the one rule for all data sets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        environment: Literal["hidden"] | None = "hidden" if len(past.names) > 1 else None
        return csdp.fit(past, public=True, environment=environment, direction="backward", neighbours=0)


def choose_plan(chain: Any) -> tuple[csdp.Plan, str]:
    """The plan of the rule, and whether the data accept its model, with the reason if not."""
    without = csdp.Plan(csdp.NoModel(chain.names), QUERY, 0, EVENT)
    limits: dict[str, Any] = {"moment_limit": MOMENT_LIMIT, "max_age": 0, "releases": "continual"}
    if chain.verdict.status != "accepted":
        return without, f"no: {chain.verdict.reason.partition('. ')[0]}"
    try:
        plan = csdp.find_plan(chain, QUERY, **limits).plan
    except InfeasibleError as error:
        return without, f"yes, but any moment is {as_text(error.nearest, 3)} at any noise"
    if not plan.verdict.reliable:  # at the plan's own age
        return without, f"no: {plan.verdict.reason.partition('. ')[0]}"
    return plan, "yes"


def influence_limit(graph: Any) -> float:
    """How much a state changes the probability of another one, at most: the largest limit of the class."""
    odds = max(float(edges.odds.max(initial=0.0)) for windows in graph.worlds for edges in windows[-1:])
    return float(np.tanh(odds / 4.0))


# ---- output ----------------------------------------------------------------------------------------------


def insert_table(page: str, table: str) -> str:
    """The page with the table between its marks.

    >>> insert_table(f"{START}old{END}after", "new").removeprefix(START).split(END)
    ['new', 'after']
    """
    if START not in page or END not in page:
        raise ValueError(f"the page has no lines {START.strip()} and {END.strip()} to put the table between")
    before, _, rest = page.partition(START)
    return f"{before}{START}{table}{END}{rest.partition(END)[2]}"


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and the choices."""
    about = "The class that csdp.fit grows on six data sets, and what a plan under it is worth."
    parser = argparse.ArgumentParser(prog="python -m study.classes", description=about)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CHOICES)}; default all")
    parser.add_argument("--docs", type=Path, help="put the table into this page")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in CHOICES]
    if unknown:
        parser.error(f"{unknown[0]!r} given; use some of {', '.join(CHOICES)}")
    chosen = {name: CHOICES[name] for name in options.names or CHOICES}
    table = HEADER
    sys.stdout.write(HEADER)
    for name, choice in chosen.items():
        line = f"{make_row(name, choice)}\n"
        sys.stdout.write(line)
        sys.stdout.flush()
        table += line
    words = "\n" + "".join(f"- **{name}**: {choice.words}.\n" for name, choice in chosen.items())
    sys.stdout.write(words)
    if options.docs is not None:
        page = options.docs.read_text(encoding="utf-8")
        options.docs.write_text(insert_table(page, table + words), encoding="utf-8")


if __name__ == "__main__":
    main()
