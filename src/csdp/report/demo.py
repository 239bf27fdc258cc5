"""The demonstration: real readings, from a public past to a private release with certificate, ledger and report."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from csdp.aging import Progress
from csdp.bounds.leakage import leakage
from csdp.chain import CoupledChain, Family, JointChain, Model
from csdp.chain.family import certified_model
from csdp.chain.files import save_model
from csdp.errors import CsdpWarning, LedgerConflictError
from csdp.estimate import mse
from csdp.fitting.fit import fit
from csdp.fitting.quality import FitQuality, fit_quality
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.planning import FoundPlan, Frontier, find_plan, frontier
from csdp.publisher import Batch, Publisher
from csdp.report import history, sweeps
from csdp.report.certificate import Certificate, certify
from csdp.report.demo_settings import Prepared, prepare
from csdp.report.estimates import PublicEstimate, public_estimate
from csdp.report.files import write_json
from csdp.report.series import Series, write_series

#: Chains beside the point estimate that the data leaves possible; each costs as much as the point estimate.
ENSEMBLE = 4
#: Ages and noise levels of the trade-off, and ages of the comparison of bounds.
FRONTIER_AGES, FRONTIER_LEVELS, AGES = (1, 2, 4), (0.1, 0.4, 1.0, 2.0), (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Errors:
    """Mean squared errors against the true answers. PRIVATE: they are computed from them."""

    published: float
    estimate: float
    usual: float
    constant: float


@dataclass(frozen=True)
class Published:
    """What was released, what it promises, and what the public past makes of it."""

    batch: Batch
    certificate: Certificate
    leakage: list[history.LeakageRecord]
    records: list[history.ReleaseRecord]
    usual: list[tuple[int, float]]
    errors: Errors


@dataclass(frozen=True)
class Study:
    """Everything that a demonstration found: records, before anything is drawn."""

    prepared: Prepared
    chain: CoupledChain
    quality: FitQuality
    joint_leakage: float
    coupled_leakage: float
    best: FoundPlan
    point_best: FoundPlan
    estimate: PublicEstimate
    published: Published
    by_age: list[sweeps.AgeRecord]
    frontier: Frontier
    model_mse: float

    @property
    def plan(self) -> Plan:
        """The plan that is carried out."""
        return self.best.plan

    @property
    def ceiling(self) -> float:
        """What the releases tell of the present at most, for ever, under every chain of the family."""
        return self.best.leakage.epsilon


@dataclass(frozen=True)
class Demo:
    """What the demonstration found, and the files it wrote."""

    study: Study
    files: tuple[Path, ...]

    @property
    def certificate(self) -> Certificate:
        """The certificate of the release."""
        return self.study.published.certificate


def run_demo(
    folder: str | PathLike[str], *, version: str, data: str = "parking", progress: Progress | None = None
) -> Demo:
    """Fit on the public past, plan, publish, and write figures, series, certificate, ledger and two pages.

    Running it again in the same folder publishes the same values: they are in the ledger.
    """
    from csdp.report.demo_page import write_story

    prepared = prepare(data)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    found = study(prepared, out, progress)
    save_model(found.chain, out / "chain.json")
    prepared.discretiser.save(out / "discretiser.json")
    written = ["chain.json", "discretiser.json", "released.csv", "released.csv.certificate.json", "ledger.db"]
    drawn = write_story(found, out, version=version)
    return Demo(found, tuple(out / name for name in (*written, *drawn)))


def study(prepared: Prepared, out: Path, progress: Progress | None = None) -> Study:
    """Fit, check, plan and publish; ledger, certificate and series are written to the folder."""
    tell: Callable[[str, int, int], None] = progress or _quiet
    case, past = prepared.case, prepared.past
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)  # what a fit warns of is in its record, and in the report
        chain = fit(past, neighbours=prepared.pairs, public=True, ensemble=ENSEMBLE, progress=tell)
        assert isinstance(chain, CoupledChain)
        quality = fit_quality(chain.without_family(), past, public=True, progress=tell)
    point, family = chain.without_family(), certified_model(chain)
    point_best = _best_age(prepared, point, tell)
    age = point_best.plan.ages[0]
    best = _for_ever(prepared, family, age, tell)
    plan = best.plan
    estimate = public_estimate(plan, past)
    published = _publish(prepared, plan, estimate, out, tell)
    joint, coupled = _joint_leakage(prepared, point, plan)
    return Study(
        prepared,
        chain,
        quality,
        joint,
        coupled,
        best,
        point_best,
        estimate,
        published,
        sweeps.leakage_by_age(point, case.query, ages=AGES, epsilon_c=plan.epsilon_c, progress=tell),
        frontier(point, case.query, ages=FRONTIER_AGES, levels=FRONTIER_LEVELS, releases="continual"),
        mse(point, case.query, ages=age, epsilon_c=plan.epsilon_c, estimate="linear").mse,
    )


def _quiet(what: str, done: int, total: int) -> None:
    """For those who do not wait."""


def _best_age(prepared: Prepared, point: Model, tell: Progress) -> FoundPlan:
    """The plan of the point estimate at the age at which the public past is estimated best."""
    tried = [_for_ever(prepared, point, age, tell) for age in prepared.case.ages]
    return min(tried, key=lambda best: public_estimate(best.plan, prepared.past).mse)


def _for_ever(prepared: Prepared, chain: Model | Family, age: int, tell: Progress) -> FoundPlan:
    """The most that the budget allows for a release at every tick, at one age."""
    case = prepared.case
    return find_plan(
        chain, case.query, budget=case.budget, min_age=age, max_age=age, releases="continual", progress=tell
    )


def _joint_leakage(prepared: Prepared, point: CoupledChain, plan: Plan) -> tuple[float, float]:
    """One release, by group: under joint chains, which can move together within a step, and under the coupled chain."""
    worst_joint = worst_coupled = 0.0
    place = {name: i for i, name in enumerate(prepared.past.names)}
    for group in prepared.case.groups:
        members = [place[name] for name in group]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CsdpWarning)
            joint = fit(_part(prepared.past, members), method="joint", public=True, ensemble=0, progress=_quiet)
        for model in (joint, point.subchain(members)):
            told = leakage(model, plan.query, ages=plan.ages[0], epsilon_c=plan.epsilon_c).epsilon
            if isinstance(model, JointChain):
                worst_joint = max(worst_joint, told)
            else:
                worst_coupled = max(worst_coupled, told)
    return worst_joint, worst_coupled


def _part(panel: Panel, members: list[int]) -> Panel:
    values = None if panel.values is None else panel.values[members]
    names = tuple(panel.names[i] for i in members)
    return Panel(names, panel.ticks, panel.times, panel.states[:, members], panel.step, values)


def _publish(prepared: Prepared, plan: Plan, estimate: PublicEstimate, out: Path, tell: Progress) -> Published:
    """Release the rest through the gate; ledger, certificate and series are written."""
    panel = prepared.rest
    with (
        Ledger.open(out / "ledger.db") as ledger,
        _publisher(plan, ledger, prepared.case.data, prepared.case.budget) as publisher,
    ):
        batch = publisher.publish(panel, progress=lambda done, total: tell("releasing", done, total))
        certificate = certify(publisher, ledger, skipped=batch.skipped)
        told = history.leakage_records(publisher, ledger, until=int(panel.ticks[-1]))
    write_series(Series.of(plan, panel, batch.releases, batch.skipped), out / "released.csv")
    write_json(out / "released.csv.certificate.json", certificate.to_dict())
    times = dict(zip(panel.ticks.tolist(), panel.times, strict=True))
    records = estimated(batch, estimate, times)
    usual = [(tick, estimate.at(time).usual) for tick, time in times.items()]
    return Published(batch, certificate, told, records, usual, _errors(plan, prepared, records, usual))


def _publisher(plan: Plan, ledger: Ledger, name: str, budget: float) -> Publisher:
    """The demo's dataset; under a name of its own where it was published before under another plan."""
    try:
        return Publisher(plan, dataset=name, ledger=ledger, budget=budget, on_refusal="skip")
    except LedgerConflictError:
        other = f"{name}-{plan.digest[:8]}"
        return Publisher(plan, dataset=other, ledger=ledger, budget=budget, on_refusal="skip")


def estimated(batch: Batch, estimate: PublicEstimate, times: dict[int, object]) -> list[history.ReleaseRecord]:
    """Releases with the estimate that the public past makes of each."""
    found = []
    for release in batch:
        when, value = times[release.tick], release.values[0]
        found.append(history.ReleaseRecord(release.tick, value, estimate.of(value, when), estimate.at(when).error))
    return found


def _errors(
    plan: Plan, prepared: Prepared, records: list[history.ReleaseRecord], usual: list[tuple[int, float]]
) -> Errors:
    answers = history.first_answers(plan, prepared.rest)
    truth = dict(zip(prepared.rest.ticks.tolist(), answers.tolist(), strict=True))
    expected = dict(usual)
    constant = float(np.nanmean(history.first_answers(plan, prepared.past)))
    kept = [r for r in records if np.isfinite(truth[r.tick])]
    parts = [
        (
            r.value - truth[r.tick],
            (r.estimate or 0.0) - truth[r.tick],
            expected[r.tick] - truth[r.tick],
            constant - truth[r.tick],
        )
        for r in kept
    ]
    return Errors(*np.square(np.array(parts)).mean(axis=0).tolist())
