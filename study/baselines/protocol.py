"""The protocol of a baseline: calibrate to its own guarantee, release, and report its CSDP leakage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.chain import Model
from csdp.errors import InputError
from csdp.noise import Randomness
from csdp.numbers import Floats
from csdp.query import QueryTable, tabulate
from csdp.query_table import Query

States = npt.NDArray[Any]
#: Whose present an adversary knows: everyone else's, nobody's, or the worst subset's.
Adversary = Literal["informed", "uninformed", "any"]


def known_subsets(adversary: Adversary, sequences: int) -> list[tuple[int, ...]]:
    """Sets of sequences whose present an adversary conditions on, the secret one among them."""
    everyone = tuple(range(sequences))
    if adversary == "informed":
        return [everyone]
    if adversary == "uninformed":
        return [(i,) for i in everyone]
    return [tuple(i for i in everyone if bits >> i & 1) for bits in range(1, 2**sequences)]


@dataclass(frozen=True)
class Quantity:
    """A number and how it was computed; `value` is None where it was not, and `how` says why.

    `at_most`: a proven upper bound of a value that was not computed, where there is one.
    """

    value: float | None
    how: str
    at_most: float | None = None


@dataclass(frozen=True)
class Errors:
    """Mean squared error against the present answer: of the raw release, and of the best linear estimate from it.

    `posterior`: of the posterior mean given one release, where it is known (one output, small systems).
    """

    raw: float
    linear: float
    no_data: float
    how: str
    posterior: float | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """A release with its intermediate values, for study only: `noisy - exact` is noise of scale `scales`."""

    values: Floats  #: the outputs (ticks, d)
    noisy: Floats
    exact: Floats
    scales: Floats


@runtime_checkable
class Mechanism(Protocol):
    """A calibrated baseline. Its outputs are for study: nothing here reserves, charges or publishes."""

    @property
    def baseline(self) -> str:
        """Short name of the baseline."""

    @property
    def guarantee(self) -> str:
        """Its own guarantee, in words."""

    @property
    def chain(self) -> Model:
        """The model it was calibrated for."""

    @property
    def query(self) -> Query:
        """The query it answers."""

    @property
    def epsilon(self) -> float:
        """The epsilon of its own guarantee."""

    @property
    def scales(self) -> tuple[float, ...]:
        """Scales of its noise: one, or one for each tick or step of the mechanism."""

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it on snapshots (T, s), and return outputs with intermediate values."""

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Run it on snapshots (T, s), and return outputs (ticks, d)."""

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """The exact CSDP leakage of the present of one release under the chain, or why it is not known.

        Where it is not, `at_most` bounds the leakage of the present by all outputs up to now.
        """

    def lifetime(self, releases: int) -> Quantity:
        """Leakage of one record by this many releases, before and after it, or why it is not known."""

    def errors(self) -> Errors:
        """Mean squared errors of the outputs against the present answer."""


@runtime_checkable
class Baseline(Protocol):
    """A published method."""

    name: ClassVar[str]
    #: the kind of its guarantee, in a few words
    label: ClassVar[str]
    title: ClassVar[str]
    guarantee: ClassVar[str]
    #: whether its guarantee covers inference through correlations
    inferential: ClassVar[bool]

    def calibrate(
        self, chain: Model, query: Query | str, *, epsilon: float | None = None, scale: float | None = None
    ) -> Mechanism:
        """Return the mechanism with its guarantee at `epsilon`, or with noise of `scale` and the guarantee it gives."""


def check_stationary(chain: Model) -> None:
    """Raise InputError unless `chain` is a model with one kernel."""
    if not isinstance(chain, Model):
        raise InputError(
            f"chain: {type(chain).__name__} given; one CoupledChain or JointChain expected (of a Family, one member)"
        )
    chain.require_one_kernel()


def check_inputs(chain: Model, query: Query | str) -> QueryTable:
    """Return the query verified on a lattice; raise InputError for a chain or query that no baseline can work with."""
    check_stationary(chain)
    computation = tabulate(query, chain, on_lattice=True)
    if not computation.undivided_sensitivity(1) > 0:
        raise InputError(f"query: {computation.name} never changes with one record; there is nothing to protect")
    return computation


def check_positive(name: str, value: Any) -> float:
    """Return a positive, finite number; raise InputError for others."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(f"{name}: {value!r} given; a positive number expected")
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name}: {value!r} given; it must be positive and finite")
    return float(value)


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least `least`; raise InputError for others."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}: {value!r} given; a whole number, {least} or more")
    return int(value)


def check_one_target(epsilon: float | None, scale: float | None) -> None:
    """Raise InputError unless exactly one of the two is given."""
    if (epsilon is None) == (scale is None):
        which = "neither" if epsilon is None else "both"
        raise InputError(f"calibrate: {which} of epsilon and scale given; give exactly one")


def read_snapshots(states: npt.ArrayLike, model: Model) -> States:
    """Return snapshots (T, s) of state numbers; raise InputError for gaps, for which baselines have no rule."""
    rows = np.asarray(states)
    if rows.ndim != 2 or rows.shape[1] != model.sequences or not rows.shape[0]:
        raise InputError(f"states: shape {rows.shape} given; snapshots (ticks, {model.sequences}) expected")
    if not np.issubdtype(rows.dtype, np.integer):
        raise InputError(f"states: {rows.dtype} given; whole numbers 0..{model.states - 1}")
    if rows.min() < 0 or rows.max() >= model.states:
        raise InputError(f"states: unknown or missing state; allowed are whole numbers 0..{model.states - 1}, no gaps")
    return rows.astype(np.intp)
