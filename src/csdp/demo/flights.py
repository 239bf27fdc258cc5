"""The demonstration on flights: a live number with noise, and the same number held back with hardly any noise.

The share of 33 destinations that flights leave late for, every three hours. The model has hidden environments (storms
delay all), so every certificate is given the environment. Nothing here is chosen from the readings that are published:
the model, the estimates and the noise come from the public past.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from csdp import datasets
from csdp.accountant import Accountant
from csdp.aging import Progress
from csdp.bounds.result import belief
from csdp.chain import EnvironmentChain, InfluenceGraph, Model
from csdp.chain.files import save_model
from csdp.datasets import Dataset
from csdp.errors import CsdpWarning, InfeasibleError, LedgerConflictError
from csdp.estimate import LearnedEstimator
from csdp.estimate.result import About, removed_share
from csdp.fitting.checks import FitQuality, fit_quality
from csdp.fitting.fit import fit
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.planning.calibrate import largest_level
from csdp.publisher import Batch, Publisher, learn_from_past
from csdp.query import QueryTable, Share, tabulate
from csdp.report import series
from csdp.report.certificate import Certificate, certify
from csdp.report.series import write_json

#: Hidden environments.
ENVIRONMENTS = 4
#: Ticks of a day: nights without flights are left out.
DAY = 5
#: The state of a destination that is late. Its share of late departures would reveal more about the ticks around it
#: than the state does, so that no certificate of states would hold for it.
LATE = 1
#: The most that the live number may reveal about any moment, in the long run, and the limits that it is compared with.
MOMENT_LIMIT, MOMENT_LIMITS = 2.0, (1.0, 1.5, 2.0, 3.0)
#: Noise level of the number that is held back, how much more than slow levels its delay may leave of the leakage of the
#: present, and the delays that are tried.
LATE_LEVEL, LATE_MARGIN, DELAYS = 2.0, 0.1, tuple(range(1, 9))
#: Files that the study writes.
WRITTEN = (
    "chain.json",
    "discretiser.json",
    "released.csv",
    "released.csv.certificate.json",
    "released-late.csv",
    "released-late.csv.certificate.json",
    "ledger.db",
    "ledger-late.db",
)
#: Plain epsilon-DP of a record that a level may not pass.
EVENT_LIMIT = 10.0


@dataclass(frozen=True)
class DelayRecord:
    """Leakage of the present in the long run, by releases at every tick that are held back `delay` ticks."""

    delay: int
    leakage: float


@dataclass(frozen=True)
class MomentRecord:
    """The live number under a limit on any moment: noise level, leakage of the present, share of error removed.

    The share is what the public past leads one to expect. Without a level, slow levels alone pass the limit.
    """

    limit: float
    epsilon_c: float | None
    leakage: float | None
    usefulness: float | None


@dataclass(frozen=True)
class FlightsRelease:
    """One way to publish: its plan, its estimator, what came out, and how close it came. `truth` is PRIVATE."""

    plan: Plan
    ceiling: float  #: leakage of the present in the long run
    moment: float  #: the same of any moment
    learned: LearnedEstimator
    batch: Batch
    certificate: Certificate
    leakage: list[series.LeakageRecord]
    shown: list[series.ReleaseRecord]
    usual: list[tuple[int, float]]
    truth: list[series.TruthRecord]
    error: float  #: mean squared error of the estimate on the published ticks
    no_data: float  #: the same of guessing what is usual at that hour
    coverage: float  #: share of the truths inside the band

    @property
    def usefulness(self) -> float:
        """Which share of the squared error of guessing the usual value the estimate removes."""
        return removed_share(self.error, self.no_data)


@dataclass(frozen=True)
class FlightsStudy:
    """All results of the demonstration as records, before anything is drawn."""

    data: Dataset
    past: Panel
    rest: Panel
    chain: EnvironmentChain
    quality: FitQuality
    now: FlightsRelease
    late: FlightsRelease
    delays: list[DelayRecord]
    moments: list[MomentRecord]

    @property
    def slow_levels(self) -> float:
        """What slow levels may add to every number under the model, whatever the noise and the delay."""
        return slow_levels(self.chain)

    @property
    def summary(self) -> dict[str, object]:
        """The figures that captions, the README and tests are made of."""
        assert self.chain.fitted is not None
        ((_, gain, error),) = self.chain.fitted.gains
        return {
            "data": self.data.name,
            "gain": {"nats_per_tick": gain, "standard_error": error},
            "model": self.now.plan.verdict.to_dict(),
            "event_level": self.now.certificate["event"].epsilon,
            **{name: _summarise(release) for name, release in (("now", self.now), ("late", self.late))},
            "slow_levels": self.slow_levels,
            "assumes": self.chain.fitted.assumes,
            "delays": [vars(one) for one in self.delays],
            "moments": [vars(one) for one in self.moments],
        }


def _summarise(release: FlightsRelease) -> dict[str, object]:
    return {
        "age": release.plan.max_age,
        "epsilon_c": release.plan.epsilon_c,
        "present": release.ceiling,
        "every_moment": release.moment,
        "belief": {"present": belief(release.ceiling), "every_moment": belief(release.moment)},
        "usefulness": release.usefulness,
        "coverage": release.coverage,
        "mse": release.error,
        "no_data_mse": release.no_data,
        "ticks": len(release.batch),
    }


@dataclass(frozen=True)
class FlightsModel:
    """The public past of the flights and the chain that was fitted to it; `rest` is what is published, and PRIVATE."""

    data: Dataset
    past: Panel
    rest: Panel
    chain: EnvironmentChain
    query: QueryTable

    def plan_for(self, limit: float) -> Plan:
        """The least noise for the live number whose releases at every tick keep a limit on any moment."""
        level = largest_level(self._moment, limit, EVENT_LIMIT, start=limit / 4, tolerance=1e-3)
        if level is None:
            raise InfeasibleError(f"limit {limit:g} on any moment cannot be met", nearest=limit, no_data=0.0)
        return Plan(self.chain, self.query, 0, level)

    def _moment(self, level: float) -> float:
        return Accountant(Plan(self.chain, self.query, 0, level)).every_moment(None)


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


def fit_flights(progress: Progress) -> FlightsModel:
    """Fit the chain of the demonstration to the public past; takes some seconds."""
    data = datasets.load("flights")
    discretiser = data.discretiser()
    past, rest = (discretiser.apply(part) for part in data.readings.split(data.past_ends))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)  # the record of the fit has its warnings, and the page shows them
        chain = fit(
            past,
            public=True,
            environment="hidden",
            environments=ENVIRONMENTS,
            direction="backward",
            neighbours=0,
            progress=progress,
        )
    assert isinstance(chain, EnvironmentChain)
    return FlightsModel(data, past, rest, chain, tabulate(Share(LATE), chain))


def run_flights(out: Path, progress: Progress) -> FlightsStudy:
    """Fit, check, plan and publish; chain, ledgers, certificates and series are written to the folder."""
    model = fit_flights(progress)
    chain, query, past, rest = model.chain, model.query, model.past, model.rest
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CsdpWarning)
        quality = fit_quality(chain.without_family(), past, public=True, progress=progress)
    save_model(chain, out / "chain.json")
    model.data.discretiser().save(out / "discretiser.json")
    delays = _measure_delays(chain, query, progress)
    most = slow_levels(chain) + LATE_MARGIN
    delay = next((one.delay for one in delays if one.leakage <= most), DELAYS[-1])
    now = _release(model.plan_for(MOMENT_LIMIT), past, rest, "now", out, progress)
    late = _release(Plan(chain, query, delay, LATE_LEVEL), past, rest, "then", out, progress)
    moments = [_expect(model, limit) for limit in MOMENT_LIMITS]
    return FlightsStudy(model.data, past, rest, chain, quality, now, late, delays, moments)


def slow_levels(chain: Model) -> float:
    """The allowance of a fitted class for slow levels; 0 if it has none."""
    graph = chain.family
    return 0.0 if not isinstance(graph, InfluenceGraph) or graph.swing is None else float(graph.swing.max())


def _measure_delays(chain: Model, query: QueryTable, progress: Progress) -> list[DelayRecord]:
    """The leakage by delay, up to the first that no longer lowers it by a hundredth."""
    found: list[DelayRecord] = []
    for number, delay in enumerate(DELAYS):
        progress("delays", number, len(DELAYS))
        found.append(DelayRecord(delay, Accountant(Plan(chain, query, delay, LATE_LEVEL)).ceiling()))
        if number and found[-1].leakage > 0.99 * found[-2].leakage:
            break
    return found


def _expect(model: FlightsModel, limit: float) -> MomentRecord:
    """What the live number is worth under a limit on any moment, by the public past."""
    try:
        plan = model.plan_for(limit)
    except InfeasibleError:
        return MomentRecord(limit, None, None, None)
    error = learn_from_past(plan, model.past, period=DAY, about="now").expected(plan.noise_variance)
    return MomentRecord(limit, plan.epsilon_c, Accountant(plan).ceiling(), error.usefulness)


def _release(plan: Plan, past: Panel, rest: Panel, about: About, out: Path, progress: Progress) -> FlightsRelease:
    """Publish the readings after the public past under one plan, into a ledger of its own."""
    learned = learn_from_past(plan, past, period=DAY, about=about)
    name = "flights" if about == "now" else "flights-late"
    with (
        Ledger.open(out / ("ledger.db" if about == "now" else "ledger-late.db")) as ledger,
        _open_publisher(
            plan, ledger, name, step=rest.step, estimator=learned, limit=MOMENT_LIMIT if about == "now" else None
        ) as publisher,
    ):
        batch = publisher.publish(rest, progress=lambda done, total: progress(f"releasing ({about})", done, total))
        certificate = certify(publisher, ledger, skipped=batch.skipped)
        leakages = series.leakage_records(publisher, ledger)
    file = "released.csv" if about == "now" else "released-late.csv"
    series.write_series(series.Series.of(plan, rest, batch.releases, batch.skipped), out / file)
    write_json(out / f"{file}.certificate.json", certificate.to_dict())
    delay = plan.max_age if about == "then" else 0
    shown = [replace(one, tick=one.tick - delay) for one in series.release_records(batch)]  # at the tick it is about
    usual = [(tick, float(learned.estimator.usual_at(tick)[0])) for tick in rest.ticks.tolist()]
    truth = series.truth_records(plan, rest)
    return FlightsRelease(
        plan,
        Accountant(plan).ceiling(),
        Accountant(plan).every_moment(None),
        learned,
        batch,
        certificate,
        leakages,
        shown,
        usual,
        truth,
        *_measure(shown, dict(usual), {one.tick: one.value for one in truth}),
    )


def _open_publisher(
    plan: Plan, ledger: Ledger, name: str, *, step: int, estimator: LearnedEstimator, limit: float | None
) -> Publisher:
    """Open a dataset of the demonstration; under another name if it was published before by another plan."""

    def open_as(dataset: str) -> Publisher:
        return Publisher(
            plan,
            dataset=dataset,
            ledger=ledger,
            moment_limit=limit,
            time_step=step,
            on_refusal="skip",
            model_unchecked=not plan.verdict.reliable,  # then it is an example, and every page says so
            estimator=estimator,
        )

    try:
        return open_as(name)
    except LedgerConflictError:
        return open_as(f"{name}-{plan.digest[:8]}")


def _measure(
    shown: Sequence[series.ReleaseRecord], usual: dict[int, float], truth: dict[int, float]
) -> tuple[float, float, float]:
    """Mean squared error of the estimates and of guessing the usual value, and the share of truths inside the bands."""
    rows = np.array(
        [
            (one.estimate - truth[one.tick], usual[one.tick] - truth[one.tick], one.low <= truth[one.tick] <= one.high)
            for one in shown
            if one.estimate is not None and one.low is not None and one.high is not None and one.tick in truth
        ],
        dtype=np.float64,
    )
    error, no_data = (rows[:, :2] ** 2).mean(axis=0).tolist()
    return error, no_data, float(rows[:, 2].mean())
