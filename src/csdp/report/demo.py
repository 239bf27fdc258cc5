"""The demonstration: fit a chain to the public past of real readings, plan, publish the rest, and report."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from csdp import datasets
from csdp.accountant import Accountant
from csdp.aging import Progress
from csdp.bounds.leakage import leakage
from csdp.chain import CoupledChain, Family, InfluenceFamily, Model
from csdp.chain.family import certified_model
from csdp.chain.files import save_model
from csdp.datasets import Dataset
from csdp.errors import CsdpWarning, InputError, LedgerConflictError
from csdp.estimate import LearnedEstimator, mse
from csdp.fitting.fit import fit
from csdp.fitting.quality import FitQuality, fit_quality
from csdp.ledger import Ledger
from csdp.panel import Discretiser, Panel, Readings
from csdp.plan import Plan
from csdp.planning import FoundPlan, Frontier, find_plan, frontier
from csdp.publisher import Batch, Publisher, learn_from_past
from csdp.queries import Count, Mean, Query
from csdp.report import records
from csdp.report.certificate import Certificate, certify
from csdp.report.files import Series, write_json, write_series

#: Number of plausible chains besides the point estimate; each takes as long to plan for as the point estimate.
ENSEMBLE = 4
#: Ages and noise levels of the frontier, and ages of the comparison of bounds.
FRONTIER_AGES, FRONTIER_LEVELS, AGES = (1, 2, 4), (0.1, 0.4, 1.0, 2.0), (1, 2, 3, 4, 6, 8)


# ---- data sets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoCase:
    """A data set and the settings of its demonstration."""

    data: str
    title: str
    what: str  #: name of the published number, for the axis
    every: int  #: a tick is every n-th reading, where n is this number
    period: int  #: ticks of a day, or of a week
    joined: bool  #: whether a gap without any reading counts as one step
    edges: tuple[tuple[float], ...] | None  #: one edge per sequence; None: its median in the public past
    groups: tuple[tuple[str, ...], ...]  #: sequences that may depend on each other
    query: Query
    ages: tuple[int, ...]
    budget: float
    rest_from: str  #: time at which publishing begins
    publish: int  #: number of ticks to publish
    tick: str  #: what a tick is, in words
    states: str  #: what the states are, in words


CASES = {
    "parking": DemoCase(
        data="parking",
        title="How busy ten car parks are, without revealing how full each one is now",
        what="share of car parks busier than usual",
        every=2,
        period=9,
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
    "glucose": DemoCase(
        data="glucose",
        title="Glucose monitoring of one person: what two sequences can hide",
        what="signals above their limit",
        every=12,
        period=24,
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
    "stocks": DemoCase(
        data="stocks",
        title="How many of ten stocks rose, one day late",
        what="share of stocks that rose",
        every=1,
        period=5,
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
class DemoData:
    """A public past, and later readings that are published as if they were private."""

    case: DemoCase
    data: Dataset
    discretiser: Discretiser
    past: Panel
    rest: Panel

    @property
    def pairs(self) -> npt.NDArray[np.intp]:
        """Pairs (target, source) that may depend on each other, known without looking at the data."""
        place = {name: i for i, name in enumerate(self.past.names)}
        groups = [[place[name] for name in group] for group in self.case.groups]
        return np.array([(i, k) for group in groups for i in group for k in group if i != k], dtype=np.intp)


def prepare(name: str) -> DemoData:
    """Read a data set and prepare it for the demonstration.

    >>> prepare("parking").rest
    Panel(10 sequences, 63 ticks, step 1)
    """
    if name not in CASES:
        raise InputError(f"data: {name!r} given; the demonstration has {', '.join(CASES)}")
    case, data = CASES[name], datasets.load(name)
    readings = data.readings
    rows = np.flatnonzero(
        readings.ticks % case.every == 0
    )  # by the clock, so that a missing reading does not shift later ones
    thinned = Readings(readings.names, np.arange(rows.size), readings.times[rows], readings.readings[rows])
    if case.joined:
        thinned = thinned.without_gaps()
    past, rest = thinned.split(data.past_ends)[0], thinned.split(case.rest_from)[1]
    discretiser = _make_discretiser(case, data, past)
    return DemoData(case, data, discretiser, discretiser.apply(past), discretiser.apply(rest).between(0, case.publish))


def _make_discretiser(case: DemoCase, data: Dataset, past: Readings) -> Discretiser:
    if case.edges is not None:
        return Discretiser.declared(past.names, edges=case.edges, bounds=data.bounds, values=[0.0, 1.0])
    return Discretiser.fit(past, states=2, strategy="quantile", public=True, values=[0.0, 1.0])


# ---- the demonstration ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoErrors:
    """Mean squared errors of estimates of the true answers. PRIVATE: they are computed from the true answers."""

    published: float
    estimate: float
    usual: float
    constant: float


@dataclass(frozen=True)
class DemoReleases:
    """What was published, its certificate, and its estimates from the public past."""

    batch: Batch
    certificate: Certificate
    leakage: list[records.LeakageRecord]
    records: list[records.ReleaseRecord]
    usual: list[tuple[int, float]]
    errors: DemoErrors


@dataclass(frozen=True)
class DemoTogether:
    """The same releases where all sequences may depend on each other: one backward chain, certified as a family.

    Each pair: for every process whose influences are at most the fitted ones, and for every process within limits that
    hold together with a confidence.
    """

    chain: CoupledChain
    one_release: tuple[float, float]
    for_ever: tuple[float, float]


@dataclass(frozen=True)
class DemoStudy:
    """All results of a demonstration as records, before anything is drawn."""

    prepared: DemoData
    chain: CoupledChain
    quality: FitQuality
    joint_leakage: float
    coupled_leakage: float
    together: DemoTogether
    best: FoundPlan
    point_best: FoundPlan
    estimate: LearnedEstimator
    published: DemoReleases
    by_age: list[records.AgeRecord]
    frontier: Frontier
    model_mse: float

    @property
    def plan(self) -> Plan:
        """The plan that is carried out."""
        return self.best.plan

    @property
    def ceiling(self) -> float:
        """Largest leakage of the present for a release at every tick without end, under every chain of the family."""
        return self.best.leakage.epsilon


@dataclass(frozen=True)
class Demo:
    """The results of a demonstration, and the files it wrote."""

    study: DemoStudy
    files: tuple[Path, ...]

    @property
    def certificate(self) -> Certificate:
        """The certificate of the release."""
        return self.study.published.certificate


def run_demo(
    folder: str | PathLike[str], *, version: str, data: str = "parking", progress: Progress | None = None
) -> Demo:
    """Fit to the public past, plan, publish, and write figures, series, certificate, ledger and two pages.

    Running it again in the same folder publishes the same values, which are in the ledger.

    Args:
        folder: Folder to write to; created if it does not exist.
        version: Version of csdp for the footer.
        data: Name of the data set, one of CASES.
        progress: Called with what is done, how much, and the total.
    """
    from csdp.report.reports import write_demo_pages

    prepared = prepare(data)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    study = run_study(prepared, out, progress)
    save_model(study.chain, out / "chain.json")
    prepared.discretiser.save(out / "discretiser.json")
    written = ["chain.json", "discretiser.json", "released.csv", "released.csv.certificate.json", "ledger.db"]
    drawn = write_demo_pages(study, out, version=version)
    return Demo(study, tuple(out / name for name in (*written, *drawn)))


def run_study(prepared: DemoData, out: Path, progress: Progress | None = None) -> DemoStudy:
    """Fit, check, plan and publish; ledger, certificate and series are written to the folder."""
    progress = progress or no_progress
    case, past = prepared.case, prepared.past
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", CsdpWarning
        )  # the record of the fit has its warnings, and the report shows them
        chain = fit(past, neighbours=prepared.pairs, public=True, ensemble=ENSEMBLE, progress=progress)
        assert isinstance(chain, CoupledChain)
        quality = fit_quality(chain.without_family(), past, public=True, progress=progress)
    point, family = chain.without_family(), certified_model(chain)
    point_best = _find_point_plan(prepared, point, progress)
    age = point_best.plan.ages[0]
    best = _find_continual_plan(prepared, family, age, progress)
    plan = best.plan
    estimate = learn_from_past(plan, past, period=case.period)
    published = _publish(prepared, plan, estimate, out, progress)
    joint, coupled = _joint_leakage(prepared, point, plan)
    return DemoStudy(
        prepared,
        chain,
        quality,
        joint,
        coupled,
        _certify_together(prepared, plan, progress),
        best,
        point_best,
        estimate,
        published,
        records.leakage_by_age(point, case.query, ages=AGES, epsilon_c=plan.epsilon_c, progress=progress),
        frontier(point, case.query, ages=FRONTIER_AGES, levels=FRONTIER_LEVELS, releases="continual"),
        mse(point, case.query, ages=age, epsilon_c=plan.epsilon_c, estimate="linear").mse,
    )


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


def _find_point_plan(prepared: DemoData, point: Model, progress: Progress) -> FoundPlan:
    """The plan for the point estimate whose age gives the least error on held-out ticks of the public past."""
    past, period = prepared.past, prepared.case.period
    plans = [_find_continual_plan(prepared, point, age, progress) for age in prepared.case.ages]
    return min(plans, key=lambda one: learn_from_past(one.plan, past, period=period).mse)


def _find_continual_plan(prepared: DemoData, chain: Model | Family, age: int, progress: Progress) -> FoundPlan:
    """Plan the highest noise level epsilon_c that the budget allows for a release at every tick, at one age."""
    case = prepared.case
    return find_plan(
        chain, case.query, budget=case.budget, min_age=age, max_age=age, releases="continual", progress=progress
    )


def _joint_leakage(prepared: DemoData, point: CoupledChain, plan: Plan) -> tuple[float, float]:
    """Largest leakage of one release over the groups: under joint chains, and under the coupled chain.

    The sequences of a joint chain can change together within one step, those of a coupled chain cannot.
    """
    worst_joint = worst_coupled = 0.0
    place = {name: i for i, name in enumerate(prepared.past.names)}
    for group in prepared.case.groups:
        members = [place[name] for name in group]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CsdpWarning)
            joint = fit(
                _subpanel(prepared.past, members), method="joint", public=True, ensemble=0, progress=no_progress
            )
        for_joint, for_coupled = (
            leakage(model, plan.query, ages=plan.ages[0], epsilon_c=plan.epsilon_c).epsilon
            for model in (joint, point.subchain(members))
        )
        worst_joint, worst_coupled = max(worst_joint, for_joint), max(worst_coupled, for_coupled)
    return worst_joint, worst_coupled


def _certify_together(prepared: DemoData, plan: Plan, progress: Progress) -> DemoTogether:
    """Certify the plan's releases for all sequences in one component, each tied to its neighbours in the list."""
    size = len(prepared.past.names)
    pairs = sorted({(i, (i + step) % size) for i in range(size) for step in (1, size - 1)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)
        chain = fit(
            prepared.past,
            neighbours=np.array(pairs),
            public=True,
            direction="backward",
            ensemble_method="limits",
            progress=progress,
        )
    assert isinstance(chain, CoupledChain)
    fitted, limits = (
        Accountant(Plan(family, plan.query, plan.ages, plan.epsilon_c))
        for family in (InfluenceFamily.around(chain.without_family(), 0), chain)
    )
    return DemoTogether(
        chain,
        (fitted.after(1).epsilon, limits.after(1).epsilon),
        (fitted.limit().epsilon, limits.limit().epsilon),
    )


def _subpanel(panel: Panel, members: list[int]) -> Panel:
    values = None if panel.values is None else panel.values[members]
    names = tuple(panel.names[i] for i in members)
    return replace(panel, names=names, states=panel.states[:, members], values=values, readings=None)


def _publish(prepared: DemoData, plan: Plan, estimate: LearnedEstimator, out: Path, progress: Progress) -> DemoReleases:
    """Publish the readings after the public past; ledger, certificate and series are written."""
    panel = prepared.rest
    with (
        Ledger.open(out / "ledger.db") as ledger,
        open_publisher(
            plan, ledger, prepared.case.data, step=prepared.rest.step, estimator=estimate, budget=prepared.case.budget
        ) as publisher,
    ):
        batch = publisher.publish(panel, progress=lambda done, total: progress("releasing", done, total))
        certificate = certify(publisher, ledger, skipped=batch.skipped)
        leakages = records.leakage_records(publisher, ledger, until=int(panel.ticks[-1]))
    write_series(Series.of(plan, panel, batch.releases, batch.skipped), out / "released.csv")
    write_json(out / "released.csv.certificate.json", certificate.to_dict())
    estimates = records.release_records(batch)
    usual = [(tick, float(estimate.estimator.usual_at(tick)[0])) for tick in panel.ticks.tolist()]
    errors = _measure_errors(plan, prepared, estimates, usual)
    return DemoReleases(batch, certificate, leakages, estimates, usual, errors)


def open_publisher(
    plan: Plan, ledger: Ledger, name: str, *, step: int, estimator: LearnedEstimator, budget: float | None
) -> Publisher:
    """Open a dataset of a demonstration; under another name if it was published before by another plan."""

    def open_as(dataset: str) -> Publisher:
        return Publisher(
            plan,
            dataset=dataset,
            ledger=ledger,
            budget=budget,
            time_step=step,
            on_refusal="skip",
            model_unchecked=True,  # an example, and every page says so
            estimator=estimator,
        )

    try:
        return open_as(name)
    except LedgerConflictError:
        return open_as(f"{name}-{plan.digest[:8]}")


def _measure_errors(
    plan: Plan, prepared: DemoData, estimates: list[records.ReleaseRecord], usual: list[tuple[int, float]]
) -> DemoErrors:
    answers = records.first_answers(plan, prepared.rest)
    truth = dict(zip(prepared.rest.ticks.tolist(), answers.tolist(), strict=True))
    expected = dict(usual)
    constant = float(np.nanmean(records.first_answers(plan, prepared.past)))
    differences = [
        (
            r.value - truth[r.tick],
            (r.estimate or 0.0) - truth[r.tick],
            expected[r.tick] - truth[r.tick],
            constant - truth[r.tick],
        )
        for r in estimates
        if np.isfinite(truth[r.tick])
    ]
    return DemoErrors(*np.square(np.array(differences)).mean(axis=0).tolist())
