"""What every baseline offers: calibrate to its own guarantee, release, and say what it leaks in our sense."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary
from csdp.chain import Model
from csdp.computation import Computation, verify_query
from csdp.errors import InputError
from csdp.noise import Randomness
from csdp.queries import Query

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[Any]


@dataclass(frozen=True)
class Quantity:
    """A number with how it was found; `value` is None where it was not computed, and `how` says why. Never a guess.

    `at_most`: a proven upper bound of what was not computed, where there is one.
    """

    value: float | None
    how: str
    at_most: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data."""
        return {"value": self.value, "how": self.how, "at_most": self.at_most}


@dataclass(frozen=True)
class Errors:
    """Mean squared error against the present answer: of the raw release, and of the best linear estimate from it."""

    raw: float
    linear: float
    no_data: float
    how: str


@dataclass(frozen=True, eq=False)
class Trace:
    """A release with its inside, for study only: `noisy - exact` is noise of scale `scales`, `values` what goes out."""

    values: Floats  # (ticks, d)
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
        """What it promises, in words."""

    @property
    def chain(self) -> Model:
        """What it was calibrated for."""

    @property
    def query(self) -> Query:
        """What it answers."""

    @property
    def epsilon(self) -> float:
        """The epsilon of its own guarantee."""

    @property
    def scales(self) -> tuple[float, ...]:
        """Scales of its noise: one, or one per tick or per part."""

    def trace(self, states: npt.ArrayLike, randomness: Randomness) -> Trace:
        """Run it on snapshots (T, s), with its inside shown."""

    def release(self, states: npt.ArrayLike, randomness: Randomness) -> Floats:
        """Run it on snapshots (T, s): outputs (ticks, d)."""

    def leakage(self, adversary: Adversary = "informed") -> Quantity:
        """The exact CSDP leakage of the present of one release under the chain, or why it is not known.

        Where it is not, `at_most` bounds what all outputs up to now tell of the present.
        """

    def lifetime(self, releases: int) -> Quantity:
        """What this many releases, before and after it, tell of one record, or why it is not known."""

    def errors(self) -> Errors:
        """How far the outputs are from the present answer."""

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""


@runtime_checkable
class Baseline(Protocol):
    """Another method behind the one interface."""

    name: ClassVar[str]
    #: the kind of its guarantee, in a few words
    label: ClassVar[str]
    title: ClassVar[str]
    guarantee: ClassVar[str]
    #: whether it promises anything about what correlations give away
    inferential: ClassVar[bool]

    def calibrate(
        self, chain: Model, query: Query, *, epsilon: float | None = None, scale: float | None = None
    ) -> Mechanism:
        """The mechanism that has its own guarantee at `epsilon`, or the guarantee that noise of `scale` gives."""


def recorded(mechanism: Mechanism, settings: dict[str, Any]) -> dict[str, Any]:
    """A calibrated baseline as plain data, with the settings that are its own."""
    return {
        "baseline": mechanism.baseline,
        "guarantee": mechanism.guarantee,
        "epsilon": mechanism.epsilon,
        "scales": list(mechanism.scales),
        **settings,
        "query": mechanism.query.name,
        "chain_digest": mechanism.chain.digest,
    }


def stationary_chain(chain: Model) -> None:
    """Refuse what is no chain, and a chain with a law of its own for the start."""
    if not isinstance(chain, Model):
        raise InputError(
            f"chain: {type(chain).__name__} given; one CoupledChain or JointChain expected (of a Family, one member)"
        )
    if chain.initial is not None:
        raise InputError(
            "chain: it has an initial law; baselines are calibrated to the stationary law. Leave out initial="
        )


def checked(chain: Model, query: Query) -> Computation:
    """Refuse what no baseline can work with; the query comes back verified, a function rounded to a lattice."""
    stationary_chain(chain)
    found = verify_query(query, chain, on_lattice=True)
    if not found.undivided_sensitivity(1) > 0:
        raise InputError(f"query: {found.name} never changes with one record; there is nothing to protect")
    return found


def positive(name: str, value: Any) -> float:
    """A positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(f"{name}: {value!r} given; a positive number expected")
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name}: {value!r} given; it must be positive and finite")
    return float(value)


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}: {value!r} given; a whole number, {least} or more")
    return int(value)


def one_target(epsilon: float | None, scale: float | None) -> None:
    """Exactly one of the two."""
    if (epsilon is None) == (scale is None):
        which = "neither" if epsilon is None else "both"
        raise InputError(f"calibrate: {which} of epsilon and scale given; give exactly one")


def snapshots(states: npt.ArrayLike, model: Model) -> Ints:
    """Snapshots (T, s) of state numbers, none missing: baselines have no rule for gaps."""
    given = np.asarray(states)
    if given.ndim != 2 or given.shape[1] != model.sequences or not given.shape[0]:
        raise InputError(f"states: shape {given.shape} given; snapshots (ticks, {model.sequences}) expected")
    if not np.issubdtype(given.dtype, np.integer):
        raise InputError(f"states: {given.dtype} given; whole numbers 0..{model.states - 1}")
    if given.min() < 0 or given.max() >= model.states:
        raise InputError(f"states: unknown or missing state; allowed are whole numbers 0..{model.states - 1}, no gaps")
    return given.astype(np.intp)
