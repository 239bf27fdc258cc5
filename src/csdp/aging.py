"""The law of the aged snapshot given the present, for one component, without storing anything N x N.

A release reads `z_i = x^(i)_{t - A_i}`. Walking from the oldest age to the present, the joint measure
`Pr(class of what was read so far, snapshot now)` is kept; two readings belong to one class if the query cannot
distinguish them. It is pushed forward in one of two forms:

- mass: all numbers non-negative, so every entry keeps its relative accuracy, however rare it is;
- deviation: the difference to independence, a measure of zero mass that is projected back each step, so that tiny
  leakages keep their digits; it carries a bound on its own rounding error.

What an adversary knows beside what is published decides which laws count (`Vantage`): the phase of a clock is public,
and the environment of every tick may be known, however long ago; the worst path counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from csdp import check
from csdp.chain import EnvironmentChain, Model
from csdp.chain.environment import ClockView, PathView, View
from csdp.chain.steps import Step
from csdp.errors import InputError, TooLargeError
from csdp.numbers import UNIT, Floats, Indices
from csdp.query_table import Fold

#: What an adversary knows: every other present value ("informed"), or nothing ("uninformed").
Adversary = Literal["informed", "uninformed"]
#: Called with a stage, what is done and what there is to do.
Progress = Callable[[str, int, int], None]

#: Ages above this are refused; no chain that forgets needs them.
MAX_AGE = 1_000_000
#: Bytes that the measures of one aged law may take.
MEMORY_LIMIT = 1_500_000_000
#: Joint states up to which the contraction of the backward kernel sharpens the rounding bound.
RATE_STATES = 256
#: Paths of environments over the ages of a release that are tried one by one.
MAX_PATHS = 256
_TINY_EXPONENT = -1200


@dataclass(frozen=True)
class Deviation:
    """`measure * 2**exponent` = Pr(class, x) - Pr(class) Pr(x), with a bound on its rounding error.

    `error[c] * 2**exponent` bounds the error of `measure[x, c] / law[x]` for every x.
    """

    measure: Floats  # (N, C)
    law: Floats  # (N,)
    base: Floats  # (C,)
    error: Floats  # (C,)
    exponent: int


@dataclass(frozen=True)
class Mass:
    """Pr(class, x); every entry, and the law, has a relative error of at most `relative`."""

    measure: Floats  # (N, C)
    law: Floats  # (N,)
    relative: float


class AgedLaw:
    """Law of what a release reads given the present snapshot of one component.

    Args:
        model: the model of the component, or its view from one tick.
        parts: (s, m, d) contributions of every sequence and state; readings with equal folds are one class.
        ages: one age for each sequence.
        oldest: the age at which the prior holds, if other components are read earlier than this one.
        fold: how contributions are combined.
        progress: called with a stage, what is done and what there is to do.
    """

    def __init__(
        self,
        model: View,
        parts: Floats,
        *,
        ages: Sequence[int],
        oldest: int | None = None,
        fold: Fold = "sum",
        progress: Progress | None = None,
    ) -> None:
        model.refuse_large()  # before anything of that size is made
        self.model = model
        self.ages = tuple(ages)
        self._progress = progress
        self._lead = oldest if oldest is not None and not model.is_stationary else max(self.ages)
        self._stops = _stops(parts, self.ages, self._lead, fold, model)
        self.classes: Floats = self._stops[-1].classes
        columns = self.classes.shape[0]
        needed = 8.0 * model.size * model.copies * columns * 3
        if needed > MEMORY_LIMIT:
            raise TooLargeError(
                f"{model.size:,} joint states times {columns:,} query values would take {needed / 2**30:.1f} GiB; "
                f"at most {MEMORY_LIMIT / 2**30:.1f} GiB are used. Ask for bound='auto', or a query with fewer values",
                needed=needed,
                limit=MEMORY_LIMIT,
            )

    @cached_property
    def mass(self) -> Mass:
        """The non-negative form."""
        law, law_error = self.model.law_at(self._lead)
        measure = np.ones((law.size, 1)) * law[:, None]
        depth = 0
        for stop in self._stops:
            measure = stop.collect(measure)
            for age in stop.ages:
                measure = self.model.step_to(age).push(measure)
            depth += len(stop.ages) * (self.model.step_depth + 2)
            if self._progress is not None:
                self._progress("aging", stop.number + 1, len(self._stops))
        relative = 2.0 * (depth + self.classes.shape[0] + 4) * UNIT + 2.0 * law_error
        return Mass(measure, measure.sum(axis=1), relative)

    @cached_property
    def deviation(self) -> Deviation:
        """The form that keeps the digits of tiny leakages."""
        law, law_error = self.model.law_at(self._lead)
        measure, base = np.zeros((law.size, 1)), np.ones(1)
        error, exponent = np.zeros(1), 0
        for stop in self._stops:
            whole = np.ldexp(measure, exponent) + law[:, None] * base
            # What the older readings already carry is added, whole, to every class they are split into.
            carried = float(np.ldexp(error.sum(), exponent))
            # Rounding may leave a reading of probability zero slightly negative.
            joint, exponent = np.maximum(stop.collect(whole), 0.0), 0
            if joint.shape[1] == 1:  # nothing was read yet: only the law moves
                law, base, measure = self._push_law(law, stop.ages), np.ones(1), np.zeros((law.size, 1))
                law_error += len(stop.ages) * (self.model.step_depth + 2) * UNIT
                continue
            base = joint.sum(axis=0)
            measure = joint - law[:, None] * base
            peaks = [_peak(joint, law) + _underflow(law)]
            for done, age in enumerate(stop.ages):
                measure, law = self._step(self.model.step_to(age), measure, law)
                peak = _peak(measure, law)
                largest = float(peak.max())
                if 0 < largest < 2.0**-400:
                    measure, peak, exponent = np.ldexp(measure, 600), np.ldexp(peak, 600), exponent - 600
                peaks.append(np.ldexp(peak + _underflow(law), exponent))
                if largest == 0 or exponent < _TINY_EXPONENT:
                    # Averaging never lets a deviation grow: what is left is below the smallest float.
                    law = self._push_law(law, stop.ages[done + 1 :])
                    break
            error = self._rounding_error(np.array(peaks), carried, exponent)
            if not np.isfinite(error).all():  # far above what is left of the deviation: as plain numbers they are some
                measure, exponent = np.ldexp(measure, exponent), 0
                error = self._rounding_error(np.array(peaks), carried, exponent)
            if self._progress is not None:
                self._progress("aging", stop.number + 1, len(self._stops))
        return Deviation(measure, law, base, error + 2.0 * law_error * _peak(measure, law), exponent)

    @staticmethod
    def _step(step: Step, measure: Floats, law: Floats) -> tuple[Floats, Floats]:
        """Deviations and law one step later; what rounding adds to the mass of a deviation is taken out again."""
        both = np.empty((law.size, measure.shape[1] + 1), order="F")
        both[:, :-1], both[:, -1] = measure, law
        pushed = step.push(both)
        law = pushed[:, -1] / pushed[:, -1].sum()
        measure = pushed[:, :-1]
        for c in range(measure.shape[1]):
            measure[:, c] -= law * measure[:, c].sum()
        return measure, law

    def _push_law(self, law: Floats, ages: range) -> Floats:
        """The law after the steps that lead to some ages; a stationary one stays."""
        for age in ages if not self.model.is_stationary else ():
            law = self.model.step_to(age).push(law[:, None])[:, 0]
            law = law / law.sum()
        return law

    def _rounding_error(self, peaks: Floats, carried: float, exponent: int) -> Floats:
        """Each step adds its rounding; later steps average it, and if the rate is known shrink it."""
        rounding = (2.0 * self.model.step_depth + 8.0) * UNIT
        later = np.arange(peaks.shape[0])[::-1]
        shrink = np.ones(peaks.shape[0])
        if self.model.size <= RATE_STATES and self.model.is_stationary and peaks.shape[0] > 2:
            for block, rate in enumerate(_block_contractions(self.model)):
                shrink = np.minimum(shrink, rate ** (later // 2**block))
        with np.errstate(over="ignore"):
            scaled = np.ldexp(rounding * peaks * shrink[:, None], -exponent)
            return np.asarray(scaled.sum(axis=0) + float(np.ldexp(carried * shrink[0], -exponent)))


@dataclass(frozen=True)
class _Stop:
    """At one age: which sequences are read there, and the steps before the next age."""

    number: int
    ages: range  # that the steps before the next reading lead to
    classes: Floats  # (C, d) after reading
    merge: Indices  # (C before, local values) -> class after
    place: Indices  # (N,) local value of every snapshot

    def collect(self, measure: Floats) -> Floats:
        """Split the classes by what is read now."""
        out = np.zeros((measure.shape[0], self.classes.shape[0]))
        if measure.shape[1] == 1:
            out[np.arange(measure.shape[0]), self.merge[0][self.place]] = measure[:, 0]
            return out
        for value in range(self.merge.shape[1]):
            rows = np.flatnonzero(self.place == value)
            chosen = np.zeros((measure.shape[1], self.classes.shape[0]))
            chosen[np.arange(measure.shape[1]), self.merge[:, value]] = 1.0
            out[rows] = measure[rows] @ chosen
        return out


def _stops(parts: Floats, ages: Sequence[int], oldest: int, fold: Fold, model: View) -> list[_Stop]:
    s, m = model.sequences, model.states
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[fold]
    neutral = {"sum": 0.0, "max": -np.inf, "min": np.inf}[fold]
    classes = np.full((1, parts.shape[2]), neutral)
    distinct = sorted({*ages, oldest}, reverse=True)
    stops = []
    for number, age in enumerate(distinct):
        read = [i for i in range(s) if ages[i] == age]
        local, values = np.zeros(1, dtype=np.intp), np.full((1, parts.shape[2]), neutral)
        for i in read:
            values, merge = _merge(combine(values[:, None, :], parts[i][None, :, :]))
            local = merge[local].ravel()
        classes, merge = _merge(combine(classes[:, None, :], values[None, :, :]))
        shape = [m if i in read else 1 for i in range(s)]
        place = np.tile(np.broadcast_to(local.reshape(shape), (m,) * s).ravel(), model.copies)
        following = distinct[number + 1] if number + 1 < len(distinct) else 0
        stops.append(_Stop(number, range(age - 1, following - 1, -1), classes, merge, place))
    return stops


def _merge(pairs: Floats) -> tuple[Floats, Indices]:
    """Distinct values among (P, Q, d) and the number of each pair's value."""
    flat = pairs.reshape(-1, pairs.shape[-1])
    values, inverse = np.unique(flat, axis=0, return_inverse=True)
    return values, inverse.reshape(pairs.shape[:2]).astype(np.intp)


def _peak(measure: Floats, law: Floats) -> Floats:
    """Largest |measure / law| of every column over snapshots that can occur."""
    seen = law > 0
    with np.errstate(over="ignore"):  # a snapshot that is next to impossible: no error bound
        ratio = measure / law[:, None] if seen.all() else measure[seen] / law[seen, None]
    return np.asarray(np.maximum(ratio.max(axis=0), -ratio.min(axis=0)))


def _underflow(law: Floats) -> float:
    """What numbers too small for a float add to `measure / law` in a step, as the peak whose rounding is as large."""
    return 2.0**-1074 / UNIT / float(law[law > 0].min())


@lru_cache(maxsize=64)
def _block_contractions(model: View) -> list[float]:
    """Largest total variation between rows of R, R^2, R^4, ... R^64, with R the backward kernel."""
    law = model.law_at(0)[0]
    seen = np.flatnonzero(law > 0)
    kernel = model.step_to(0).pull(np.eye(model.size))[np.ix_(seen, seen)]
    backward = (kernel * law[seen, None]).T
    backward /= backward.sum(axis=1, keepdims=True)
    rates = []
    for _ in range(7):
        gaps = [0.5 * np.abs(backward - row).sum(axis=1).max() for row in backward]
        rates.append(min(1.0, float(max(gaps)) + 1e-14))
        backward = backward @ backward
    return rates


def index_parts(sequences: int, states: int) -> Floats:
    """Parts whose sum is the number of the snapshot: the class of a reading is then the reading itself."""
    place = states ** np.arange(sequences - 1, -1, -1)
    return (place[:, None] * np.arange(states)[None, :]).astype(np.float64)[:, :, None]


# ---- what an adversary knows ---------------------------------------------------------------------------------------


def known_subsets(adversary: Adversary, sequences: int) -> list[tuple[int, ...]]:
    """Sets of sequences whose present an adversary conditions on, the secret one among them."""
    everyone = tuple(range(sequences))
    return [everyone] if adversary == "informed" else [(i,) for i in everyone]


def marginal(measure: Floats, known: Sequence[int], sequences: int, states: int) -> Floats:
    """Sum a measure on snapshots (N, ...) over the sequences that are not known."""
    tensor = measure.reshape((states,) * sequences + measure.shape[1:])
    away = tuple(i for i in range(sequences) if i not in known)
    return np.asarray(tensor.sum(axis=away)).reshape((states ** len(known), *measure.shape[1:]))


@dataclass(frozen=True)
class Vantage:
    """What an adversary knows beside the present: the environment of every tick, and the phase of a public clock."""

    given: bool = False
    phase: int | None = None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is assumed of the environment, and what of it is not protected, in words."""
        clock = () if self.phase is None else (f"given the clock: the present lies at phase {self.phase}",)
        given = (
            "given the environment: the adversary may know the environment of every tick; facts about the environment "
            "itself are not protected"
        )
        return (*clock, given) if self.given else clock

    def require_known_present(self, model: Model, adversary: Adversary) -> None:
        """Refuse adversaries who must weigh presents whose law given a path of environments is not known."""
        if self.given and model.direction == "backward" and adversary != "informed":
            raise InputError(
                f"adversary: {adversary!r} given; for backward members whose environment is given the answer holds for "
                "'informed'. Use bound='group', or forward members"
            )


#: Of models without environments.
PLAIN = Vantage()


def find_vantages(model: Model) -> list[tuple[Model, Vantage]]:
    """What an adversary may know of a model's environment, each with the model to ask; the largest answer counts."""
    if not isinstance(model, EnvironmentChain):
        return [(model, PLAIN)]
    if model.kind == "clock":
        return [(model, Vantage(phase=phase)) for phase in range(model.period)]
    return [(model.given_path(), Vantage(given=True))]


def has_law_of_past(model: Model) -> bool:
    """Whether the law of an old reading is known; it is not if environments before it count."""
    by_clock = model.phases > 1 and len(model.step_chains) == 1
    in_long_run = model.has_one_kernel or by_clock or model.direction == "backward"
    return model.has_law and in_long_run


def longest_paths(model: Model) -> int:
    """Steps of which all paths of environments are tried, half of what is possible in all; 1 at least."""
    chains = len(model.step_chains)
    return 2**62 if chains < 2 else max(1, int(math.log(MAX_PATHS) / math.log(chains) / 2))


def list_paths(chain: EnvironmentChain, steps: int) -> list[tuple[int, ...]]:
    """All paths of environments over some steps, the present first."""
    count = len(chain.environments)
    if steps * math.log(count) > math.log(MAX_PATHS) + 1e-9:
        raise TooLargeError(
            f"{count} environments over {steps} steps have {count}**{steps} paths; at most {MAX_PATHS:,} are tried. "
            "Use auto, influence or slice, which take the worst environment at every step",
            needed=float(count) ** min(steps, 500),
            limit=MAX_PATHS,
        )
    return list(itertools.product(range(count), repeat=steps))


def list_aged_laws(
    model: Model,
    vantage: Vantage,
    parts: Floats,
    *,
    ages: Sequence[int],
    oldest: int | None = None,
    fold: Fold = "sum",
    progress: Progress | None = None,
) -> list[AgedLaw]:
    """The laws of what a release reads that an adversary may face; arguments as for `AgedLaw`."""
    lead = max(ages) if oldest is None else oldest
    views: list[View] = [model]
    if isinstance(model, EnvironmentChain) and vantage.given:
        views = [PathView(model, path) for path in list_paths(model, lead)]
    elif isinstance(model, EnvironmentChain) and vantage.phase is not None:
        views = [ClockView(model, vantage.phase)]
    return [AgedLaw(view, parts, ages=ages, oldest=lead, fold=fold, progress=progress) for view in views]


# ---- arguments -------------------------------------------------------------------------------------------------------


def check_ages(ages: Any, sequences: int) -> tuple[int, ...]:
    """One whole age >= 0 for all sequences, or one each."""
    try:
        array = np.asarray(ages)
    except ValueError:
        raise InputError(f"ages: {ages!r} given; whole numbers of steps expected") from None
    if array.dtype == object or not np.issubdtype(array.dtype, np.number):
        raise InputError(f"ages: {ages!r} given; whole numbers of steps expected")
    if not np.isfinite(array).all() or (array != np.floor(array)).any() or (array < 0).any():
        raise InputError(f"ages: {ages!r} given; an age is a whole number of steps, 0 or more")
    if array.ndim not in {0, 1} or (array.ndim == 1 and array.size != sequences):
        raise InputError(f"ages: {array.size} given for {sequences} sequences; give one for all, or one each")
    if array.max(initial=0) > MAX_AGE:
        raise InputError(f"ages: {int(array.max())} given; at most {MAX_AGE:,} steps")
    return tuple(int(a) for a in np.broadcast_to(array, sequences))


def check_epsilon(epsilon_c: Any) -> float:
    """A positive, finite noise level."""
    return check.number("epsilon_c", epsilon_c, above=0, hint="smaller means more noise")
