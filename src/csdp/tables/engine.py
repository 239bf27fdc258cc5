"""What the pipeline asks of an engine, and an engine as a source of aged answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.publisher import Release

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Answering(Protocol):
    """The part of an engine that a publisher needs."""

    def check(self, plan: Plan) -> None:
        """Refuse a table that is not one of the plan's chain."""

    def availability(self, plan: Plan) -> Iterable[tuple[int, int, str]]:
        """(tick, staleness, reason why not, or empty) in order of ticks, from which readings are missing alone."""

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks (ticks, d), exact, on the plan's lattice."""

    def noised(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of an identity query with noise drawn where the rows are, from the key of each tick (ticks, s).

        Called only where the engine declares `trusted_noise = True`: it cannot be verified.
        """


class Engine(Answering, Protocol):
    """One table of readings, and what the pipeline needs of it; answers of all engines are equal to the last bit.

    A table holds a chain's readings: known sequences, declared values, one reading each at a time on a regular grid.
    What is not so is refused by `check`, before anything is charged. No message quotes a reading.
    """

    @property
    def ticks(self) -> npt.NDArray[np.int64]:
        """Consecutive ticks, from the first to the last that has a reading."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, as they were read."""

    @property
    def step(self) -> int:
        """Time from one tick to the next."""

    def pair_counts(self, edges: npt.ArrayLike) -> Counts:
        """Counts (edges, m, m) for pairs (target, source): ticks with the source in a and the target next in b."""

    def write(self, releases: Iterable[Release], path: str | Path, *, names: Sequence[str]) -> None:
        """Write releases as a long Parquet table, one row per tick and output."""

    def close(self) -> None:
        """Give back what the engine holds."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class EngineSource:
    """An engine as a source of aged answers (`csdp.publisher.AgedSource`).

    Whether the table is one of the plan's chain is checked here, before anything is charged. Aggregates are small and
    get their noise at the gate. For an identity query the gate hands over a key for each granted tick, and noise is
    drawn where the rows are.

    What an engine says is checked as far as it can be without its readings: ticks in order, staleness within the plan's
    limit, answers of the right shape, on the lattice, and no farther from each other than the query allows. An engine
    that breaks this publishes nothing; ticks that were charged when it did are lost. Whether an answer is the right one
    of all possible ones, and whether noise was drawn with the key, nobody can see from outside: an engine is trusted
    code.
    """

    def __init__(self, engine: Answering, plan: Plan, *, ticks: range | None = None) -> None:
        plan.check_exact()
        engine.check(plan)
        self._engine = engine
        self._ticks = ticks  # only these are offered; the others are there for the ages

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, where the engine knows them: the gate holds timestamps against the wall clock."""
        return np.asarray(getattr(self._engine, "times", ()))

    @property
    def step(self) -> int:
        """Time from one tick to the next."""
        return int(getattr(self._engine, "step", 1))

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """Which ticks could be released, from which readings are missing alone."""
        last: int | None = None
        for given in self._engine.availability(plan):
            tick, stale, reason = _checked_tick(given, last, plan)
            last = tick
            if self._ticks is None or tick in self._ticks:
                yield tick, stale, reason

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        found = _checked_array(self._engine.answers(plan, ticks), plan, len(ticks))
        if (found != np.round(found / plan.unit) * plan.unit).any():
            raise _broken(f"answers are no multiples of {plan.unit:g}, the plan's lattice")
        middle, width = _reach(plan)
        if (np.abs(found - middle).sum(axis=1) > width).any():
            raise _broken(f"answers lie farther apart than the query {plan.query.name!r} allows for any readings")
        return found

    @property
    def trusted_noise(self) -> bool:
        """Whether the engine declares that it draws noise as it should; if not, the gate draws it."""
        return getattr(self._engine, "trusted_noise", False) is True

    def draws(self, plan: Plan) -> bool:
        """Whether noise is drawn where the rows are."""
        return plan.query.per_sequence

    def noised(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Noisy answers on the lattice, from one key per tick."""
        found = _checked_array(self._engine.noised(plan, keys), plan, len(keys))
        for row, tick in zip(found, keys, strict=True):
            step = plan.at(plan.level(tick)).step
            if (row != np.round(row / step) * step).any():
                raise _broken(f"noisy answers are no multiples of {step:g}, the lattice of the noise")
        return found


def _broken(what: str) -> InputError:
    return InputError(f"engine: {what}; nothing of it is published. See `csdp.tables.Engine` for what an engine owes")


def _checked_tick(given: object, last: int | None, plan: Plan) -> tuple[int, int, str]:
    """One row of `availability`, as plain numbers."""
    if not isinstance(given, Sequence) or len(given) != 3 or not isinstance(given[2], str):
        raise _broken("availability gives something else than (tick, staleness, reason)")
    if any(isinstance(one, bool) or not isinstance(one, Integral) for one in given[:2]):
        raise _broken("availability gives a tick or a staleness that is no whole number")
    tick, stale = int(given[0]), int(given[1])
    if last is not None and tick <= last:
        raise _broken(f"tick {tick} comes after tick {last}; ticks are given in order, each once")
    if stale < 0 or (not given[2] and stale > plan.stale_limit):
        raise _broken(f"tick {tick} is offered {stale} steps stale; the plan allows 0 to {plan.stale_limit}")
    return tick, stale, given[2]


def _checked_array(given: object, plan: Plan, rows: int) -> Floats:
    outputs = len(plan.query.output_names(plan.model.names, plan.model.value_table))
    if not isinstance(given, np.ndarray) or given.dtype != np.float64 or given.shape != (rows, outputs):
        shape = getattr(given, "shape", type(given).__name__)
        raise _broken(f"{shape} given; an array of 64-bit floats ({rows} ticks, {outputs} outputs) expected")
    if not np.isfinite(given).all():
        raise _broken("answers that are no finite numbers")
    return given


@lru_cache(maxsize=16)
def _reach(plan: Plan) -> tuple[Floats, float]:
    """An answer, and how far (l1) any other can be from it: s_k of all sequences. A little more, for rounding."""
    sequences = plan.model.sequences
    middle = fran.lattice_answer(plan, np.zeros((1, sequences), dtype=np.intp))[0]
    width = plan.query.sensitivity(sequences, plan.model.value_table) * plan.divisor
    return middle, width * (1 + 1e-9) + plan.unit


def checked_edges(edges: npt.ArrayLike, sequences: int) -> npt.NDArray[np.int64]:
    """Pairs (target, source) of sequence numbers."""
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError("edges: pairs (target, source) of sequence numbers expected")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= sequences):
        raise InputError(f"edges: sequence numbers lie between 0 and {sequences - 1}")
    return pairs.astype(np.int64)
