"""What stream rivals share: exact answers on a lattice, noise for any budget, and their error by simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.aging import Adversary
from csdp.chain import Model
from csdp.noise import Randomness, lattice_step, two_sided_geometric
from csdp.plan import Plan
from csdp.queries import Query
from csdp.rivals.protocol import Errors, Floats, Ints, Quantity, Trace, snapshots, whole
from csdp.utility import moments

#: Ticks of the simulation behind the error of a stream rival, and the ticks before them that are left out.
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


class StreamRelease:
    """Shared by the calibrated streams whose leakage is not known: release, errors by simulation, and the reason."""

    chain: Model
    query: Query
    not_computed: ClassVar[str]

    @cached_property
    def _stream(self) -> Stream:
        return Stream(self.chain, self.query)

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it on the noise that releases draw."""
        return self._run(np.asarray(states), randomness)

    def _run(self, states: Ints, source: Source) -> Trace:
        raise NotImplementedError  # each stream has its own

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Outputs (T, d), for study only."""
        return self.trace(states, randomness).values

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """Not known: see the reason."""
        return Quantity(None, self.not_computed)

    def lifetime(self, releases: int) -> Quantity:
        """Not known: see the reason."""
        whole("releases", releases)
        return Quantity(None, self.not_computed)

    def errors(self) -> Errors:
        """Simulated."""
        return simulated_errors(self._stream, self._run)
