"""Baselines for streams of answers: PeGaSus (Chen et al. 2017) and w-event privacy (Kellaris et al. 2014).

They share exact answers on a lattice, noise for any budget, and errors by simulation. What they publish depends on
hidden noise and on earlier outputs, so their leakage is not computed. But it is differentially private: when one
component's snapshots change in any `window` consecutive ticks, its log-probability changes by at most
`epsilon s_k / Delta_f`, which bounds the leakage (`study.baselines.temporal`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from csdp.bounds.result import as_text, round_up
from csdp.chain import Model
from csdp.errors import CsdpError, InputError
from csdp.estimate.moments import moments
from csdp.noise import Randomness, two_sided_geometric
from csdp.numbers import Floats
from csdp.plan import Plan
from csdp.query_table import Query
from study.baselines.protocol import (
    Adversary,
    Errors,
    Quantity,
    States,
    Trace,
    check_inputs,
    check_one_target,
    check_positive,
    check_whole,
    read_snapshots,
)
from study.baselines.temporal import group_sensitivity, newest_bound, tick_bound

#: Ticks of the simulation of the error of a stream baseline, after a warm-up that is not counted.
SIMULATED_TICKS = 4000
WARM_UP = 100
#: Noise source: Randomness for a release, a generator for the simulation of an error.
Source = Randomness | np.random.Generator


@dataclass(frozen=True, eq=False)
class AnswerStream:
    """The answers of a query as a stream, and noise on their lattice."""

    chain: Model
    query: Query

    @cached_property
    def plan(self) -> Plan:
        """A plan of the fresh answer, for its lattice."""
        return Plan(self.chain, self.query, 0, 1.0)

    @cached_property
    def outputs(self) -> int:
        """Output coordinates."""
        return len(self.query.output_names(self.chain.names, self.chain.value_table))

    @property
    def sensitivity(self) -> float:
        """Largest change of a tick's answer by one record of that tick, in l1."""
        return self.plan.lattice_sensitivity / self.plan.divisor

    def tied_cost(self, epsilon: float) -> float:
        """Cost of changing all records of a component, given epsilon for one record: epsilon s_k / Delta_f."""
        return epsilon * group_sensitivity(self.chain, self.query) / self.sensitivity

    def answers(self, states: States) -> Floats:
        """Exact answers (T, d) of snapshots (T, s)."""
        return self.plan.query.lattice_answers(read_snapshots(states, self.chain)) / self.plan.divisor

    def noise(self, factor: float, shape: tuple[int, ...], source: Source) -> Floats:
        """Noise of scale `factor` times the sensitivity, in whole steps of the lattice of the answers."""
        step = self.plan.step
        scale = Fraction(self.plan.lattice_sensitivity) * Fraction(factor) / Fraction(step)
        if isinstance(source, np.random.Generator):
            stop = -math.expm1(-1 / float(scale))  # the same law, for simulations
            drawn = source.geometric(stop, shape) - source.geometric(stop, shape)
        else:
            drawn = two_sided_geometric(scale, shape, source)
        return np.asarray(drawn * (step / self.plan.divisor), dtype=np.float64)


@lru_cache(maxsize=4)
def simulated_path(chain: Model) -> States:
    """Return one path of a chain, from a fixed seed: a warm-up, then the ticks that count."""
    return chain.simulate(SIMULATED_TICKS + WARM_UP, seed=0).astype(np.intp)


def bound_present(
    stream: AnswerStream, epsilon: float, why: str, *, adversary: Adversary = "informed", window: int = 1
) -> Quantity:
    """Return a leakage of the present that is not computed (`why`), with an upper bound of it by all outputs so far."""
    one = epsilon if adversary == "informed" else None
    return _bounded_quantity(why, lambda: newest_bound(stream.chain, stream.tied_cost(epsilon), window=window, one=one))


def bound_lifetime(stream: AnswerStream, epsilon: float, why: str, *, ticks: int, window: int = 1) -> Quantity:
    """Return a lifetime leakage that is not computed (`why`), with an upper bound for one record over `ticks`."""
    cost = stream.tied_cost(epsilon)
    # Changing the whole stream, window after window, costs at most this.
    everything = cost * math.ceil(ticks / window)
    return _bounded_quantity(why, lambda: min(tick_bound(stream.chain, cost, window=window), everything))


def _bounded_quantity(why: str, bound: Callable[[], float]) -> Quantity:
    try:
        at_most = round_up(bound())
    except CsdpError as error:
        return Quantity(None, f"{why}; nor is it bounded: {error}")
    if math.isinf(at_most):
        return Quantity(None, f"{why}; nor is it bounded: this chain does not forget fast enough for its epsilon")
    return Quantity(None, f"{why}. It is at most {as_text(at_most)}, because what it publishes has epsilon-DP", at_most)


@dataclass(frozen=True, eq=False)
class StreamRelease(ABC):
    """Base of calibrated streams whose leakage is only bounded: release, errors by simulation, the record."""

    not_computed: ClassVar[str]

    baseline: str
    guarantee: str
    chain: Model
    query: Query
    epsilon: float
    scales: tuple[float, ...]

    @abstractmethod
    def _run(self, states: States, source: Source) -> Trace:
        """Run the stream with noise of a source."""

    @property
    def protected_ticks(self) -> int:
        """Consecutive ticks whose records its epsilon protects together."""
        return 1

    @cached_property
    def _stream(self) -> AnswerStream:
        return AnswerStream(self.chain, self.query)

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it with the noise of releases."""
        return self._run(np.asarray(states), randomness)

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Outputs (T, d), for study only."""
        return self.trace(states, randomness).values

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """Not computed; an upper bound for the present by all outputs so far."""
        return bound_present(
            self._stream, self.epsilon, self.not_computed, adversary=adversary, window=self.protected_ticks
        )

    def lifetime(self, releases: int) -> Quantity:
        """Not computed; an upper bound for one record over this many ticks."""
        ticks = check_whole("releases", releases)
        return bound_lifetime(self._stream, self.epsilon, self.not_computed, ticks=ticks, window=self.protected_ticks)

    def simulate(self, states: States) -> Floats:
        """Outputs (T, d) with noise of a statistical generator, from a fixed seed: for errors, never for a release."""
        # Another seed than the path's, so that noise is independent of the data.
        return self._run(states, np.random.default_rng([0, 1])).values

    def errors(self) -> Errors:
        """Errors on one simulated path of the chain, from a fixed seed.

        Linear: the best linear function from the output of a tick to the present answer, at most the error of the mean.
        """
        states = simulated_path(self.chain)
        truth, out = self._stream.answers(states)[WARM_UP:], self.simulate(states)[WARM_UP:]
        known = moments(self.chain, self.query, ages=[0] * self.chain.sequences)
        no_data = float(np.trace(known.cov_now))
        raw = float(((out - truth) ** 2).sum(axis=1).mean())
        design = np.column_stack([np.ones(len(out)), out])
        fitted = design @ np.linalg.lstsq(design, truth, rcond=None)[0]
        linear = float(((fitted - truth) ** 2).sum(axis=1).mean())
        # The variance on the path differs a little from the true one: scale the unexplained share to the true variance.
        own = float(((truth - truth.mean(axis=0)) ** 2).sum(axis=1).mean())
        share = min(1.0, linear / own) if own > 0 else 1.0
        return Errors(raw, share * no_data, no_data, f"simulated, {SIMULATED_TICKS:,} ticks")


@dataclass(frozen=True, eq=False)
class PegasusRelease(StreamRelease):
    """A calibrated PeGaSus: noise on every answer, groups of ticks that deviate little, the median of a group.

    In its trace, `exact` and `noisy` are the input and output of the perturber. Its `scales` are those of the
    perturber, of the grouper's threshold, and of its deviations.
    """

    not_computed: ClassVar[str] = (
        "not computed: groups depend on hidden noise and on the whole past, and its guarantee does not cover "
        "inference through correlations"
    )

    share: float

    def _run(self, states: States, source: Source) -> Trace:
        stream = self._stream
        answers = stream.answers(states)
        ticks = len(answers)
        perturb, group = self.epsilon * self.share, self.epsilon * (1.0 - self.share)
        noisy = answers + stream.noise(1.0 / perturb, answers.shape, source)
        thresholds = 5.0 * self.scales[0] + stream.noise(4.0 / group, (ticks,), source)
        wobble = stream.noise(8.0 / group, (ticks,), source)
        values = np.empty_like(answers)
        start, closed, threshold = 0, True, 0.0
        for t in range(ticks):
            if closed:
                start, closed, threshold = t, False, thresholds[t]
            elif deviation(answers[start : t + 1]) + wobble[t] >= threshold:
                start, closed = t, True  # the group ends before this tick, which is a closed group of its own
            values[t] = np.median(noisy[start : t + 1], axis=0)
        return Trace(values, noisy, answers, np.full(noisy.shape, self.scales[0]))


def deviation(answers: Floats) -> float:
    """Return the sum of absolute deviations from the mean; one record changes it by at most 2 Delta_f.

    >>> deviation(np.array([[1.0], [2.0], [6.0]]))
    6.0
    """
    return float(np.abs(answers - answers.mean(axis=0)).sum())


@dataclass(frozen=True)
class Pegasus:
    """PeGaSus with a deviation-based grouper and the median smoother; `share` of epsilon goes to the perturber."""

    share: float = 0.8

    name: ClassVar[str] = "pegasus"
    label: ClassVar[str] = "DP of one record"
    title: ClassVar[str] = "PeGaSus (Chen et al. 2017)"
    guarantee: ClassVar[str] = "epsilon-DP of one record of one tick (event level); no inferential guarantee"
    inferential: ClassVar[bool] = False

    def calibrate(
        self, chain: Model, query: Query | str, *, epsilon: float | None = None, scale: float | None = None
    ) -> PegasusRelease:
        """Return the stream mechanism for an epsilon, or with the perturber's noise at a scale."""
        check_one_target(epsilon, scale)
        query = check_inputs(chain, query)
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share < 1:
            raise InputError(f"share: {self.share!r} given; the perturber's share of epsilon, between 0 and 1")
        sensitivity = AnswerStream(chain, query).sensitivity
        if scale is None:
            level = check_positive("epsilon", epsilon)
        else:
            level = sensitivity / (self.share * check_positive("scale", scale))
        group = level * (1.0 - self.share)
        scales = (sensitivity / (level * self.share), 4.0 * sensitivity / group, 8.0 * sensitivity / group)
        return PegasusRelease(self.name, self.guarantee, chain, query, level, scales, self.share)


Scheme = Literal["distribution", "absorption"]


@dataclass(frozen=True, eq=False)
class WindowRelease(StreamRelease):
    """A calibrated w-event stream: publish a new output where the answer has changed enough, else repeat the last.

    In its trace, `noisy`, `exact` and `scales` are of the ticks with a new output. Its own `scales` are those of the
    dissimilarity, and of a publication with the whole window's budget.
    """

    not_computed: ClassVar[str] = (
        "not computed: whether a tick is published depends on hidden noise and on earlier outputs, and its guarantee "
        "does not cover inference through correlations"
    )

    window: int
    scheme: Scheme

    def _run(self, states: States, source: Source) -> Trace:
        answers = self._stream.answers(states)
        ticks, d = answers.shape
        # Mean absolute change per output: one record moves it by Delta_f / d; epsilon / 2w a tick.
        unlike = self._stream.noise(2.0 * self.window / self.epsilon, (ticks,), source) / d
        last = np.zeros(d)
        values, published = np.empty_like(answers), []
        budget = _BUDGETS[self.scheme](self.epsilon, self.window)
        for t, answer in enumerate(answers):
            level = budget.available(t)
            if level > 0:
                scale = self._stream.sensitivity / level
                if np.abs(answer - last).mean() + unlike[t] > scale:
                    last = answer + self._stream.noise(1.0 / level, (d,), source)
                    published.append((last, answer, np.full(d, scale)))
                    budget.spend(t, level)
            values[t] = last
        noisy, exact, scales = (np.array([p[k] for p in published]).reshape(-1, d) for k in range(3))
        return Trace(values, noisy, exact, scales)

    @property
    def protected_ticks(self) -> int:
        """The window."""
        return self.window


class _Distribution:
    """BD: a publication may spend half of what the last w - 1 ticks have left of epsilon / 2."""

    def __init__(self, epsilon: float, window: int) -> None:
        self._half, self._window = epsilon / 2.0, window
        self._spent: dict[int, float] = {}

    def available(self, tick: int) -> float:
        """What a publication at this tick may spend."""
        self._spent = {t: e for t, e in self._spent.items() if t > tick - self._window}
        return max(0.0, (self._half - sum(self._spent.values())) / 2.0)

    def spend(self, tick: int, level: float) -> None:
        """Spend budget at a tick."""
        self._spent[tick] = level


class _Absorption:
    """BA: epsilon / 2w a tick; a publication also spends the budget of skipped ticks; as many later ones get none."""

    def __init__(self, epsilon: float, window: int) -> None:
        self._share, self._window = epsilon / (2.0 * window), window
        self._last, self._silent = -1, 0

    def available(self, tick: int) -> float:
        """What a publication at this tick may spend; 0 where its budget was spent in advance."""
        if tick - self._last <= self._silent and self._last >= 0:
            return 0.0
        absorbed = min(tick - (self._last + self._silent), self._window)
        return self._share * absorbed

    def spend(self, tick: int, level: float) -> None:
        """Spend it, and skip as many further ticks as were absorbed."""
        self._last, self._silent = tick, round(level / self._share) - 1


_BUDGETS: dict[Scheme, type[_Distribution | _Absorption]] = {"distribution": _Distribution, "absorption": _Absorption}


def budgets_spent(scheme: Scheme, *, epsilon: float, window: int, ticks: int, publish: Callable[[int], bool]) -> Floats:
    """Return the budget that every tick spends on publication, if `publish(tick)` says where the answer changed.

    >>> budgets_spent("distribution", epsilon=2.0, window=3, ticks=4, publish=lambda t: True).tolist()
    [0.5, 0.25, 0.125, 0.3125]
    >>> budgets_spent("absorption", epsilon=6.0, window=3, ticks=6, publish=lambda t: t >= 2).tolist()
    [0.0, 0.0, 3.0, 0.0, 0.0, 1.0]
    """
    budget = _BUDGETS[scheme](epsilon, window)
    out = np.zeros(ticks)
    for t in range(ticks):
        level = budget.available(t)
        if level > 0 and publish(t):
            budget.spend(t, level)
            out[t] = level
    return out


@dataclass(frozen=True)
class WindowBaseline:
    """Base of both schemes: w-event privacy, calibrated to an epsilon for every window."""

    window: int = 10

    name: ClassVar[str]
    label: ClassVar[str] = "w-event DP"
    title: ClassVar[str]
    guarantee: ClassVar[str] = (
        "epsilon-DP of one record in each of any w consecutive ticks (w-event); no inferential guarantee"
    )
    inferential: ClassVar[bool] = False
    scheme: ClassVar[Scheme]

    def calibrate(
        self, chain: Model, query: Query | str, *, epsilon: float | None = None, scale: float | None = None
    ) -> WindowRelease:
        """Return the stream mechanism for an epsilon per window."""
        check_one_target(epsilon, scale)
        if epsilon is None:
            raise InputError(f"{self.name}: its noise changes from tick to tick, so it takes no scale; give epsilon=")
        query = check_inputs(chain, query)
        level, window = check_positive("epsilon", epsilon), check_whole("window", self.window)
        stream = AnswerStream(chain, query)
        scales = (2.0 * window * stream.sensitivity / (level * stream.outputs), 2.0 * stream.sensitivity / level)
        if not all(map(math.isfinite, scales)):
            raise InputError(f"epsilon: {level:g} given; the noise would be infinite. Give a larger one")
        return WindowRelease(self.name, self.guarantee, chain, query, level, scales, window, self.scheme)


@dataclass(frozen=True)
class WindowDistribution(WindowBaseline):
    """w-event privacy by budget distribution."""

    name: ClassVar[str] = "w-event-bd"
    title: ClassVar[str] = "w-event, budget distribution (Kellaris et al. 2014)"
    scheme: ClassVar[Scheme] = "distribution"


@dataclass(frozen=True)
class WindowAbsorption(WindowBaseline):
    """w-event privacy by budget absorption."""

    name: ClassVar[str] = "w-event-ba"
    title: ClassVar[str] = "w-event, budget absorption (Kellaris et al. 2014)"
    scheme: ClassVar[Scheme] = "absorption"
