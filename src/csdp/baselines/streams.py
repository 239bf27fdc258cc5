"""What stream baselines share: exact answers on a lattice, noise for any budget, error by simulation, and a bound.

How they decide what to publish depends on hidden noise and on earlier outputs, so their leakage is not computed. But
what they publish is differentially private: when one component's snapshots change in any `window` consecutive ticks,
its log-probability moves by at most `epsilon s_k / Delta_f`. That alone bounds the leakage (`csdp.baselines.temporal`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.aging import Adversary
from csdp.baselines.protocol import Errors, Floats, Ints, Quantity, Trace, recorded, snapshots, whole
from csdp.baselines.temporal import group_sensitivity, newest_bound, tick_bound
from csdp.bounds.result import as_text, round_up
from csdp.chain import Model
from csdp.errors import CsdpError
from csdp.estimate import moments
from csdp.noise import Randomness, lattice_step, two_sided_geometric
from csdp.plan import Plan
from csdp.queries import Query

#: Ticks of the simulation behind the error of a stream baseline, and the ticks before them that are left out.
SIMULATED_TICKS = 4000
WARM_UP = 100
#: What noise is drawn from: a source for releases, or a generator for the simulation of an error, which is none.
Source = Randomness | np.random.Generator


@dataclass(frozen=True, eq=False)
class Stream:
    """The answers of a query as a stream, and noise of scale `width / budget` that stays on their lattice."""

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
        """How far one record of one tick moves the answer of that tick, in l1."""
        return self.plan.lattice_sensitivity / self.plan.divisor

    def tied_cost(self, epsilon: float) -> float:
        """What epsilon of one record becomes for all records of a component together: epsilon s_k / Delta_f."""
        return epsilon * group_sensitivity(self.chain, self.query) / self.sensitivity

    def answers(self, states: Ints) -> Floats:
        """Exact answers (T, d) of snapshots (T, s)."""
        return fran.lattice_answer(self.plan, snapshots(states, self.chain)) / self.plan.divisor

    def noise(self, factor: float, shape: tuple[int, ...], source: Source) -> Floats:
        """Noise of scale `factor` times the sensitivity, in whole steps of a lattice that holds the answers."""
        if isinstance(source, np.random.Generator):
            return source.laplace(0.0, self.sensitivity * factor, shape)
        scale = Fraction(self.plan.lattice_sensitivity) * Fraction(factor)
        step = lattice_step(self.plan.unit, float(scale))
        drawn = two_sided_geometric(scale / Fraction(step), shape, source)
        return np.asarray(drawn * (step / self.plan.divisor), dtype=np.float64)


def simulated_errors(stream: Stream, run: Callable[[Ints, Source], Trace]) -> Errors:
    """Errors of a stream mechanism on one simulated path of the chain, always the same one.

    Linear: the best line from the output of a tick to the present answer, never worse than publishing the mean.
    """
    states = _path(stream.chain)
    truth = stream.answers(states)[WARM_UP:]
    # another seed than the path's: noise must not know the data
    out = run(states, np.random.default_rng([0, 1])).values[WARM_UP:]
    known = moments(stream.chain, stream.query, ages=[0] * stream.chain.sequences)
    no_data = float(np.trace(known.cov_now))
    raw = float(((out - truth) ** 2).sum(axis=1).mean())
    design = np.column_stack([np.ones(len(out)), out])
    fitted = design @ np.linalg.lstsq(design, truth, rcond=None)[0]
    linear = float(((fitted - truth) ** 2).sum(axis=1).mean())
    # The path's own variance differs a little from the true one; the share that is explained is what carries over.
    own = float(((truth - truth.mean(axis=0)) ** 2).sum(axis=1).mean())
    share = min(1.0, linear / own) if own > 0 else 1.0
    return Errors(raw, share * no_data, no_data, f"simulated, {SIMULATED_TICKS:,} ticks")


@lru_cache(maxsize=4)
def _path(chain: Model) -> Ints:
    return chain.simulate(SIMULATED_TICKS + WARM_UP, seed=0).astype(np.intp)


def present_at_most(
    stream: Stream, epsilon: float, why: str, *, adversary: Adversary = "informed", window: int = 1
) -> Quantity:
    """A leakage of the present that is not computed, with what all outputs up to now tell of it at most."""
    one = epsilon if adversary == "informed" else None
    return _bounded(why, lambda: newest_bound(stream.chain, stream.tied_cost(epsilon), window=window, one=one))


def lifetime_at_most(stream: Stream, epsilon: float, why: str, *, ticks: int, window: int = 1) -> Quantity:
    """A lifetime leakage that is not computed, with what so many ticks tell of one record at most."""
    cost = stream.tied_cost(epsilon)
    # The whole stream is so many windows: to change all of it, one after the other, costs no more than this.
    everything = cost * math.ceil(ticks / window)
    return _bounded(why, lambda: min(tick_bound(stream.chain, cost, window=window), everything))


def _bounded(why: str, bound: Callable[[], float]) -> Quantity:
    try:
        found = round_up(bound())
    except CsdpError as error:
        return Quantity(None, f"{why}; nor is it bounded: {error}")
    if math.isinf(found):
        return Quantity(None, f"{why}; nor is it bounded: this chain does not forget fast enough for its epsilon")
    return Quantity(None, f"{why}. It is at most {as_text(found)}, because what it publishes has epsilon-DP", found)


@dataclass(frozen=True, eq=False)
class StreamRelease(ABC):
    """Shared by the calibrated streams whose leakage is only bounded: release, errors by simulation, the record."""

    not_computed: ClassVar[str]

    baseline: str
    guarantee: str
    chain: Model
    query: Query
    epsilon: float
    scales: tuple[float, ...]

    @abstractmethod
    def _run(self, states: Ints, source: Source) -> Trace:
        """The stream, on the noise of a source."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What else it was calibrated with, as plain data."""

    @property
    def protected_ticks(self) -> int:
        """Consecutive ticks whose records its epsilon protects together."""
        return 1

    @cached_property
    def _stream(self) -> Stream:
        return Stream(self.chain, self.query)

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it on the noise that releases draw."""
        return self._run(np.asarray(states), randomness)

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Outputs (T, d), for study only."""
        return self.trace(states, randomness).values

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """Not computed; what all outputs up to now tell of the present at most."""
        return present_at_most(
            self._stream, self.epsilon, self.not_computed, adversary=adversary, window=self.protected_ticks
        )

    def lifetime(self, releases: int) -> Quantity:
        """Not computed; what so many ticks tell of one record at most."""
        ticks = whole("releases", releases)
        return lifetime_at_most(self._stream, self.epsilon, self.not_computed, ticks=ticks, window=self.protected_ticks)

    def errors(self) -> Errors:
        """Simulated."""
        return simulated_errors(self._stream, self._run)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return recorded(self, self.settings())
