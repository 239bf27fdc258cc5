"""What the demonstration publishes of each data set: grid, states, who may follow whom, query, ages and budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from csdp import datasets
from csdp.datasets import Dataset
from csdp.errors import InputError
from csdp.panel import Discretiser, Panel, Readings
from csdp.queries import Count, Mean, Query


@dataclass(frozen=True)
class Case:
    """A data set and what is done with it. `words` say what a choice means to a reader of the report."""

    data: str
    title: str
    what: str  #: the published number, as an axis names it
    every: int  #: each so many readings make a tick
    joined: bool  #: whether steps across gaps in which nothing was read at all count as steps
    edges: (
        tuple[tuple[float], ...] | None
    )  #: one edge for each sequence; None: the median of the public past, for each sequence its own
    groups: tuple[tuple[str, ...], ...]  #: sequences that may follow each other
    query: Query
    ages: tuple[int, ...]
    budget: float
    rest_from: str  #: where publishing begins
    publish: int  #: how many ticks are published
    tick: str
    states: str


CASES = {
    "parking": Case(
        data="parking",
        title="How busy ten car parks are, without telling how full any one is now",
        what="share of car parks busier than usual",
        every=2,
        joined=True,
        edges=None,
        groups=(
            ("BHMBCCMKT01", "BHMBCCPST01"),
            ("BHMBCCSNH01", "BHMBCCTHL01"),
            ("BHMEURBRD01", "BHMEURBRD02"),
            ("BHMMBMMBX01", "BHMNCPLDH01"),
            ("BHMNCPHST01", "BHMNCPNST01"),
        ),
        query=Mean(),
        ages=(1, 2),
        budget=1.0,
        rest_from="2016-11-20",
        publish=63,
        tick="an hour between 08:00 and 16:00; the step from 16:00 to 08:00 the next day counts as one too",
        states="below or above the median of the public past, for each car park its own",
    ),
    "glucose": Case(
        data="glucose",
        title="Glucose monitoring of one person: what two sequences can hide",
        what="signals above their limit",
        every=12,
        joined=False,
        edges=((25.0,), (180.0,)),
        groups=(("isig", "glucose"),),
        query=Count(1),
        ages=(2, 4),
        budget=1.0,
        rest_from="2010-06-16",
        publish=96,
        tick="an hour",
        states="below or above a clinical limit (180 mg/dl), declared beforehand",
    ),
    "stocks": Case(
        data="stocks",
        title="How many of ten stocks rose, one day late",
        what="share of stocks that rose",
        every=1,
        joined=True,
        edges=((0.0,),) * 10,
        groups=(("AAPL", "MSFT"), ("IBM", "INTC"), ("AMZN", "WMT"), ("JNJ", "KO"), ("JPM", "XOM")),
        query=Mean(),
        ages=(1, 2),
        budget=1.0,
        rest_from="2017-01-01",
        publish=80,
        tick="a trading day",
        states="fell or rose that day",
    ),
}


@dataclass(frozen=True)
class Prepared:
    """A public past, and a rest whose first ticks are published as if they were private."""

    case: Case
    data: Dataset
    discretiser: Discretiser
    past: Panel
    rest: Panel

    @property
    def pairs(self) -> npt.NDArray[np.intp]:
        """Who may follow whom, as (target, source): known beforehand, not found in the data."""
        place = {name: i for i, name in enumerate(self.past.names)}
        groups = [[place[name] for name in group] for group in self.case.groups]
        return np.array([(i, k) for group in groups for i in group for k in group if i != k], dtype=np.intp)


def prepare(name: str) -> Prepared:
    """The readings of a data set as the demonstration uses them.

    >>> prepare("parking").rest
    Panel(10 sequences, 63 ticks, step 1)
    """
    if name not in CASES:
        raise InputError(f"data: {name!r} given; the demonstration has {', '.join(CASES)}")
    case, data = CASES[name], datasets.load(name)
    readings = data.readings
    rows = np.flatnonzero(readings.ticks % case.every == 0)  # by the clock, so that a lost reading moves no other
    thinned = Readings(readings.names, np.arange(rows.size), readings.times[rows], readings.readings[rows])
    if case.joined:
        thinned = thinned.without_gaps()
    past, rest = thinned.split(data.past_ends)[0], thinned.split(case.rest_from)[1]
    discretiser = _states(case, data, past)
    return Prepared(case, data, discretiser, discretiser.apply(past), _first(discretiser.apply(rest), case.publish))


def _states(case: Case, data: Dataset, past: Readings) -> Discretiser:
    if case.edges is not None:
        return Discretiser.declared(past.names, edges=case.edges, bounds=data.bounds, values=[0.0, 1.0])
    return Discretiser.fit(past, states=2, strategy="quantile", public=True, values=[0.0, 1.0])


def _first(panel: Panel, ticks: int) -> Panel:
    return Panel(panel.names, panel.ticks[:ticks], panel.times[:ticks], panel.states[:ticks], panel.step, panel.values)
