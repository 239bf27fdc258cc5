"""What the public past makes of a release: the usual answer at this time of day, corrected by what was published.

Post-processing: it looks at published numbers and at readings that are public anyway, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.estimate.error import noise_variance
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.report.history import first_answers

Floats = npt.NDArray[np.float64]

#: Public readings that a time of day needs before it has a law of its own.
LEAST_READINGS = 12


@dataclass(frozen=True)
class Slot:
    """One time of day: the usual answer, its variance, and how an output corrects it.

    estimate = usual + gain (output - usual_aged); `error` is the standard error of that.
    """

    usual: float
    spread: float
    usual_aged: float
    gain: float
    error: float


@dataclass(frozen=True)
class PublicEstimate:
    """The best linear estimate of the present answer by time of day, from public readings and one output."""

    slots: dict[int, Slot]
    by_time: bool
    low: float = -np.inf  #: the least and the largest answer that there can be
    high: float = np.inf

    @property
    def no_data(self) -> float:
        """Mean squared error of the usual answer alone, without any release."""
        return float(np.mean([slot.spread for slot in self.slots.values()]))

    @property
    def mse(self) -> float:
        """Mean squared error with a release, as the public past has it."""
        return float(np.mean([slot.error**2 for slot in self.slots.values()]))

    def of(self, output: float, time: object) -> float:
        """The estimate from an output; never beyond what the answer can be, which only brings it closer."""
        slot = self.at(time)
        return float(np.clip(slot.usual + slot.gain * (output - slot.usual_aged), self.low, self.high))

    def at(self, time: object) -> Slot:
        """The law of a time of day."""
        return self.slots[_second(time) if self.by_time else 0]


def _second(time: object) -> int:
    """Second of the day of a timestamp."""
    return int((np.datetime64(str(time), "s") - np.datetime64(str(time)[:10], "s")).astype(np.int64))


def public_estimate(plan: Plan, past: Panel) -> PublicEstimate:
    """How a release of this plan is best corrected by what the public past shows.

    By least squares, for each time of day: `gain = Cov(f_t, f_{t-A}) / (Var f_{t-A} + noise variance)`. With few
    public readings all times of day are taken together.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.9, 0.1], [0.1, 0.9]])
    >>> past = Panel.from_states(chain.simulate(4000, seed=1))
    >>> found = public_estimate(Plan(chain, Mean(), 1, 1.0), past)
    >>> found.by_time, round(found.at(7).gain, 2), found.mse < found.no_data
    (False, 0.09, True)
    """
    if len(set(plan.ages)) > 1:
        raise InputError("estimate: the sequences have ages of their own; one common age is needed")
    age, noise = plan.ages[0], noise_variance(plan.model, plan.query, plan.epsilon_c)
    answers = first_answers(plan, past)
    stamped = past.times.dtype.kind == "M"
    seconds = [_second(time) if stamped else 0 for time in past.times]
    fewest = min(seconds.count(second) for second in set(seconds))
    by_time = stamped and len(set(seconds)) > 1 and fewest >= LEAST_READINGS
    keys = seconds if by_time else [0] * len(seconds)
    slots = {key: _slot(answers, keys, key, age, noise) for key in sorted(set(keys))}
    return PublicEstimate(slots, by_time, *_range(plan))


def _range(plan: Plan) -> tuple[float, float]:
    """The least and the largest first output, where it is a sum over sequences."""
    query, table = plan.query, plan.model.value_table
    if not isinstance(query, FoldComputation) or query.fold != "sum":
        return -np.inf, np.inf
    parts = query.parts(table)[:, :, 0] / query.divisor(table)
    return float(parts.min(axis=1).sum()), float(parts.max(axis=1).sum())


def _slot(answers: Floats, keys: Sequence[int], key: int, age: int, noise: float) -> Slot:
    at = np.array([t for t in range(age, answers.size) if keys[t] == key], dtype=np.intp)
    now, aged = answers[at], answers[at - age]
    known = np.isfinite(now) & np.isfinite(aged)
    if known.sum() < 3:
        raise InputError("estimate: fewer than three public readings at one time of day; give a longer public past")
    now, aged = now[known], aged[known]
    usual, usual_aged = float(now.mean()), float(aged.mean())
    shared = float(((now - usual) * (aged - usual_aged)).mean())
    gain = shared / (float(aged.var()) + noise)
    left = float(now.var()) - gain * shared
    return Slot(usual, float(now.var()), usual_aged, gain, float(np.sqrt(max(left, 0.0))))
