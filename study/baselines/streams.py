"""Baselines for streams of answers: PeGaSus (Chen et al. 2017) and w-event privacy (Kellaris et al. 2014).

What they publish depends on hidden noise and on earlier outputs, so their leakage is not computed. But it is
differentially private: if one component's snapshots change in any `window` consecutive ticks, its log-probability
changes by at most `epsilon s_k / Delta_f`, which bounds the leakage (`study.baselines.temporal`). Errors are simulated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp.bounds.result import as_text, round_up
from csdp.chain import Model
from csdp.numbers import Floats
from csdp.plan import Plan
from csdp.query_table import Query
from study.baselines.protocol import Quantity, check_inputs
from study.baselines.temporal import group_sensitivity, newest_bound

States = npt.NDArray[Any]
#: Ticks of the simulation of the error of a stream baseline, after a warm-up that is not counted.
SIMULATED_TICKS = 4000
WARM_UP = 100


@dataclass(frozen=True, eq=False)
class AnswerStream:
    """The answers of a query as a stream, and simulated noise on their lattice."""

    chain: Model
    query: Query

    @cached_property
    def plan(self) -> Plan:
        """A plan of the fresh answer, for its lattice."""
        return Plan(self.chain, self.query, 0, 1.0)

    @property
    def sensitivity(self) -> float:
        """Largest change of a tick's answer by one record of that tick, in l1."""
        return self.plan.lattice_sensitivity / self.plan.divisor

    @property
    def step(self) -> float:
        """Of the lattice of the answers."""
        return self.plan.step / self.plan.divisor

    def answers(self, states: States) -> Floats:
        """Exact answers (T, d) of snapshots (T, s)."""
        return self.plan.query.lattice_answers(states) / self.plan.divisor

    def noise(self, factor: float, shape: tuple[int, ...], source: np.random.Generator) -> Floats:
        """Noise of scale `factor` times the sensitivity, in whole steps of the lattice of the answers."""
        scale = Fraction(self.plan.lattice_sensitivity) * Fraction(factor) / Fraction(self.plan.step)
        stop = -math.expm1(-1 / float(scale))
        drawn = source.geometric(stop, shape) - source.geometric(stop, shape)  # the same law, for simulations
        return np.asarray(drawn * self.step, dtype=np.float64)


@lru_cache(maxsize=4)
def simulated_path(chain: Model) -> States:
    """Return one path of a chain, from a fixed seed: a warm-up, then the ticks that count."""
    return chain.simulate(SIMULATED_TICKS + WARM_UP, seed=0).astype(np.intp)


@dataclass(frozen=True, eq=False)
class StreamRelease(ABC):
    """Base of calibrated streams whose leakage is only bounded.

    `protected_ticks`: consecutive ticks whose records its epsilon protects together.
    """

    not_computed: ClassVar[str]

    stream: AnswerStream
    epsilon: float
    protected_ticks: int

    @abstractmethod
    def _run(self, answers: Floats, source: np.random.Generator) -> Floats:
        """Outputs (T, d) of exact answers (T, d)."""

    def simulate(self, states: States) -> Floats:
        """Outputs (T, d) with noise of a statistical generator, from a fixed seed: for errors, never for a release."""
        # Another seed than the path's, so that noise is independent of the data.
        return self._run(self.stream.answers(states), np.random.default_rng([0, 1]))

    def leakage(self) -> Quantity:
        """Not computed; an upper bound for the present, to an informed adversary, by all outputs so far."""
        chain = self.stream.chain
        tied = self.epsilon * group_sensitivity(chain, self.stream.query) / self.stream.sensitivity
        at_most = round_up(newest_bound(chain, tied, window=self.protected_ticks, one=self.epsilon))
        if math.isinf(at_most):
            why = f"{self.not_computed}; nor is it bounded: this chain does not forget fast enough for its epsilon"
            return Quantity(None, why)
        why = f"{self.not_computed}. It is at most {as_text(at_most)}, because what it publishes has epsilon-DP"
        return Quantity(None, why, at_most)


@dataclass(frozen=True, eq=False)
class PegasusRelease(StreamRelease):
    """A calibrated PeGaSus: noise on every answer, groups of ticks that deviate little, the median of a group."""

    not_computed: ClassVar[str] = (
        "not computed: groups depend on hidden noise and on the whole past, and its guarantee does not cover "
        "inference through correlations"
    )

    share: float

    @property
    def scales(self) -> tuple[float, float, float]:
        """Of the noise of the perturber, of the grouper's threshold, and of its deviations."""
        sensitivity = self.stream.sensitivity
        group = self.epsilon * (1.0 - self.share)
        return sensitivity / (self.epsilon * self.share), 4.0 * sensitivity / group, 8.0 * sensitivity / group

    def _run(self, answers: Floats, source: np.random.Generator) -> Floats:
        ticks, stream = len(answers), self.stream
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
        return values


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
    title: ClassVar[str] = "PeGaSus (Chen et al. 2017)"
    guarantee: ClassVar[str] = "epsilon-DP of one record of one tick (event level); no inferential guarantee"

    def calibrate(self, chain: Model, query: Query | str, *, epsilon: float) -> PegasusRelease:
        """Return the stream mechanism for an epsilon."""
        return PegasusRelease(AnswerStream(chain, check_inputs(chain, query)), epsilon, 1, self.share)


@dataclass(frozen=True, eq=False)
class WindowRelease(StreamRelease):
    """A calibrated w-event stream: publish a new output if the answer has changed enough, else repeat the last."""

    not_computed: ClassVar[str] = (
        "not computed: whether a tick is published depends on hidden noise and on earlier outputs, and its guarantee "
        "does not cover inference through correlations"
    )

    budget: type[Distribution | Absorption]

    def _run(self, answers: Floats, source: np.random.Generator) -> Floats:
        ticks, d = answers.shape
        # Mean absolute change per output: one record moves it by Delta_f / d; epsilon / 2w a tick.
        unlike = self.stream.noise(2.0 * self.protected_ticks / self.epsilon, (ticks,), source) / d
        last, values = np.zeros(d), np.empty_like(answers)
        budget = self.budget(self.epsilon, self.protected_ticks)
        for t, answer in enumerate(answers):
            level = budget.available(t)
            if level > 0 and np.abs(answer - last).mean() + unlike[t] > self.stream.sensitivity / level:
                last = answer + self.stream.noise(1.0 / level, (d,), source)
                budget.spend(t, level)
            values[t] = last
        return values


class Distribution:
    """BD: a publication may spend half of what the last w - 1 ticks have left of epsilon / 2.

    >>> budget, spent = Distribution(epsilon=2.0, window=3), []
    >>> for tick in range(4):
    ...     spent.append(budget.available(tick))
    ...     budget.spend(tick, spent[-1])
    >>> spent
    [0.5, 0.25, 0.125, 0.3125]
    """

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


class Absorption:
    """BA: epsilon / 2w a tick; a publication also spends the budget of skipped ticks; as many later ones get none.

    >>> budget = Absorption(epsilon=6.0, window=3)
    >>> budget.available(2)
    3.0
    >>> budget.spend(2, 3.0)
    >>> [budget.available(tick) for tick in (3, 4, 5)]
    [0.0, 0.0, 1.0]
    """

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


@dataclass(frozen=True)
class WindowBaseline:
    """Base of both schemes: w-event privacy, calibrated to an epsilon for every window."""

    window: int = 10

    name: ClassVar[str]
    title: ClassVar[str]
    guarantee: ClassVar[str] = (
        "epsilon-DP of one record in each of any w consecutive ticks (w-event); no inferential guarantee"
    )
    budget: ClassVar[type[Distribution | Absorption]]

    def calibrate(self, chain: Model, query: Query | str, *, epsilon: float) -> WindowRelease:
        """Return the stream mechanism for an epsilon per window."""
        return WindowRelease(AnswerStream(chain, check_inputs(chain, query)), epsilon, self.window, self.budget)


@dataclass(frozen=True)
class WindowDistribution(WindowBaseline):
    """w-event privacy by budget distribution."""

    name: ClassVar[str] = "w-event-bd"
    title: ClassVar[str] = "w-event, budget distribution (Kellaris et al. 2014)"
    budget = Distribution


@dataclass(frozen=True)
class WindowAbsorption(WindowBaseline):
    """w-event privacy by budget absorption."""

    name: ClassVar[str] = "w-event-ba"
    title: ClassVar[str] = "w-event, budget absorption (Kellaris et al. 2014)"
    budget = Absorption
