"""Records that figures and pages are drawn from: releases, true answers, leakages, estimates, dependences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from csdp.aging import Progress
from csdp.arrays import Floats
from csdp.bounds.overview import leakage_table
from csdp.chain import CoupledChain, Model
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.estimate.error import noise_variance
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Publisher, Release, Standing
from csdp.queries import Query

#: Public readings that a time of day needs before it is estimated separately.
LEAST_READINGS = 12


@dataclass(frozen=True)
class ReleaseRecord:
    """One published number, and the estimate of the present answer if there is one. Public."""

    tick: int
    value: float
    estimate: float | None
    standard_error: float | None


@dataclass(frozen=True)
class TruthRecord:
    """The answer before aging and noise. PRIVATE: a figure that draws it must not be passed on."""

    tick: int
    value: float


@dataclass(frozen=True)
class LeakageRecord:
    """The leakage of everything published up to a tick about the present at that tick."""

    tick: int
    epsilon: float
    published: bool


def release_records(releases: Iterable[Release]) -> list[ReleaseRecord]:
    """Make the records of releases, from the first output of each.

    >>> release_records([Release(7, (0.5,), (0.4,), (0.1,), 2, 0, 0.2)])
    [ReleaseRecord(tick=7, value=0.5, estimate=0.4, standard_error=0.1)]
    """
    return [
        ReleaseRecord(
            r.tick,
            r.values[0],
            r.estimate[0] if r.estimate else None,
            r.standard_error[0] if r.standard_error else None,
        )
        for r in releases
    ]


def first_answers(plan: Plan, panel: Panel) -> Floats:
    """Compute the first output of the query at every tick, before aging and noise: as private as the readings.

    NaN if a reading is missing.
    """
    panel = panel.arrange(plan.model.names)
    complete = (panel.states >= 0).all(axis=1)
    answers = np.full(len(panel), np.nan)
    answers[complete] = plan.query.evaluate(panel.states[complete].astype(np.intp), plan.model.value_table)[:, 0]
    return answers


def truth_records(plan: Plan, panel: Panel) -> list[TruthRecord]:
    """Compute the true answer at every tick without a missing reading. PRIVATE."""
    answers = zip(panel.ticks.tolist(), first_answers(plan, panel).tolist(), strict=True)
    return [TruthRecord(tick, value) for tick, value in answers if not math.isnan(value)]


def leakage_records(
    publisher: Publisher | Standing, ledger: Ledger, *, until: int | None = None
) -> list[LeakageRecord]:
    """Compute the leakage of the present at every tick since the first charge, also ticks without a release.

    The charges of the current plan are replayed from the ledger. Published values are not needed: the leakage depends
    on the plan, the ticks, and which readings were missing.
    """
    accountant = publisher.accountant
    live = [entry for entry in ledger.entries(publisher.dataset, kind="reserve") if entry.plan == publisher.plan.digest]
    records: list[LeakageRecord] = []
    for number, entry in enumerate(live):
        assert entry.tick is not None
        following = live[number + 1].tick if number + 1 < len(live) else (entry.tick if until is None else until) + 1
        assert following is not None
        recorded = entry.state()
        state = accountant.restore(recorded.accountant, cost=recorded.cost)
        for tick in range(entry.tick, following):
            records.append(LeakageRecord(tick, accountant.leakage(state, tick).epsilon, tick == entry.tick))
    return records


# ---- leakage by age -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AgeRecord:
    """The leakage of a release at one common age, by one bound."""

    bound: str
    age: int
    epsilon: float
    sound: bool


def leakage_by_age(
    model: Model, query: Query, *, ages: Sequence[int], epsilon_c: float, progress: Progress | None = None
) -> list[AgeRecord]:
    """Compute every bound that applies at every age, for the informed adversary.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> records = leakage_by_age(chain, Mean(), ages=[2], epsilon_c=1.0)
    >>> records[0].bound, round(records[0].epsilon, 6)
    ('exact', 0.153046)
    """
    records = []
    for done, age in enumerate(ages, start=1):
        table = leakage_table(model, query, ages=age, epsilon_c=epsilon_c)
        records += [AgeRecord(row.bound, age, row.epsilon, row.sound) for row in table.rows]
        if progress is not None:
            progress("leakage by age", done, len(ages))
    return records


# ---- estimates from the public past ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeOfDay:
    """The mean answer at one time of day, its variance, and how an output corrects it.

    estimate = usual + gain (output - usual_aged); `error` is the standard error of the estimate.
    """

    usual: float
    spread: float
    usual_aged: float
    gain: float
    error: float


@dataclass(frozen=True)
class PublicEstimate:
    """The best linear estimate of the present answer by time of day, from public readings and one output.

    It uses only published numbers and public readings, so it costs no privacy.
    """

    slots: dict[int, TimeOfDay]
    by_time: bool
    low: float = -np.inf  #: the least and the largest possible answer
    high: float = np.inf

    @property
    def no_data(self) -> float:
        """Mean squared error of the mean answer alone, without any release."""
        return float(np.mean([slot.spread for slot in self.slots.values()]))

    @property
    def mse(self) -> float:
        """Mean squared error with a release, as measured on the public past."""
        return float(np.mean([slot.error**2 for slot in self.slots.values()]))

    def of(self, output: float, time: object) -> float:
        """The estimate from an output, clipped to the range of possible answers, which never increases its error."""
        slot = self.at(time)
        return float(np.clip(slot.usual + slot.gain * (output - slot.usual_aged), self.low, self.high))

    def at(self, time: object) -> TimeOfDay:
        """What is known about the time of day of a timestamp."""
        return self.slots[_second_of_day(time) if self.by_time else 0]


def _second_of_day(time: object) -> int:
    return int((np.datetime64(str(time), "s") - np.datetime64(str(time)[:10], "s")).astype(np.int64))


def public_estimate(plan: Plan, past: Panel) -> PublicEstimate:
    """Fit the best linear estimate of the present answer to the public past.

    Least squares for each time of day: `gain = Cov(f_t, f_{t-A}) / (Var f_{t-A} + noise variance)`. With few public
    readings all times of day are fitted together.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> past = Panel.from_states(chain.simulate(4000, seed=1))
    >>> estimate = public_estimate(Plan(chain, Mean(), 1, 1.0), past)
    >>> estimate.by_time, round(estimate.at(7).gain, 2), estimate.mse < estimate.no_data
    (False, 0.09, True)
    """
    if len(set(plan.ages)) > 1:
        raise InputError("estimate: the plan has several ages; one common age is needed")
    if plan.mechanism is not None:
        raise InputError("estimate: the plan draws from a table; its releases carry their posterior mean already")
    age, noise = plan.ages[0], noise_variance(plan.model, plan.query, plan.epsilon_c)
    answers = first_answers(plan, past)
    stamped = past.times.dtype.kind == "M"
    seconds = [_second_of_day(time) if stamped else 0 for time in past.times]
    fewest = min(seconds.count(second) for second in set(seconds))
    by_time = stamped and len(set(seconds)) > 1 and fewest >= LEAST_READINGS
    keys = seconds if by_time else [0] * len(seconds)
    slots = {key: _fit_slot(answers, keys, key, age, noise) for key in sorted(set(keys))}
    return PublicEstimate(slots, by_time, *_answer_range(plan))


def _answer_range(plan: Plan) -> tuple[float, float]:
    """The least and the largest possible first output of a sum over sequences; unbounded for other queries."""
    query, table = plan.query, plan.model.value_table
    if not isinstance(query, FoldComputation) or query.fold != "sum":
        return -np.inf, np.inf
    parts = query.parts(table)[:, :, 0] / query.divisor(table)
    return float(parts.min(axis=1).sum()), float(parts.max(axis=1).sum())


def _fit_slot(answers: Floats, keys: Sequence[int], key: int, age: int, noise: float) -> TimeOfDay:
    at = np.array([t for t in range(age, answers.size) if keys[t] == key], dtype=np.intp)
    now, aged = answers[at], answers[at - age]
    known = np.isfinite(now) & np.isfinite(aged)
    if known.sum() < 3:
        raise InputError("estimate: fewer than three public readings at one time of day; give a longer public past")
    now, aged = now[known], aged[known]
    usual, usual_aged = float(now.mean()), float(aged.mean())
    covariance = float(((now - usual) * (aged - usual_aged)).mean())
    gain = covariance / (float(aged.var()) + noise)
    residual = float(now.var()) - gain * covariance
    return TimeOfDay(usual, float(now.var()), usual_aged, gain, float(np.sqrt(max(residual, 0.0))))


# ---- dependences between sequences ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dependence:
    """How much the next state of `target` changes, in total variation, if only the present of `source` changes."""

    target: int
    source: int
    strength: float


def dependences(model: Model) -> list[Dependence]:
    """Compute the dependences of a model, in order of targets and sources.

    >>> dependences(CoupledChain([[0.75, 0.25], [0, 1.0]], [[0.7, 0.3], [0.3, 0.7]]))[1]
    Dependence(target=0, source=1, strength=0.1)
    """
    if not isinstance(model, CoupledChain):
        return _kernel_dependences(model)
    result = []
    matrices, places = model.transition_table
    for edge, (target, source) in enumerate(zip(model.edge_targets, model.edge_sources, strict=True)):
        rows = matrices[places[edge]]
        apart = 0.5 * np.abs(rows[:, None, :] - rows[None, :, :]).sum(axis=2).max()
        result.append(Dependence(int(target), int(source), round(float(model.edge_weights[edge] * apart), 12)))
    return sorted(result, key=lambda each: (each.target, each.source))


def _kernel_dependences(model: Model) -> list[Dependence]:
    s, m = model.sequences, model.states
    kernel = model.kernel().reshape(model.size, *(m,) * s)
    result = []
    for target in range(s):
        law = kernel.sum(axis=tuple(1 + i for i in range(s) if i != target)).reshape(*(m,) * s, m)
        for source in range(s):
            moved = np.moveaxis(law, source, 0)
            apart = 0.5 * np.abs(moved[:, None] - moved[None, :]).sum(axis=-1).max()
            result.append(Dependence(target, source, round(float(apart), 12)))
    return result
