"""What the pipeline asks of an engine, and an engine as a source of aged answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

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

    What an engine says is held against the plan by the gate, as for every source (`csdp.publisher.sources`): ticks in
    order, staleness within the limit, answers that are possible. Whether an answer is the right one of those that are
    possible, nobody can see from outside: an engine is trusted code.
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
        for entry in self._engine.availability(plan):
            if self._ticks is None or entry[0] in self._ticks:
                yield entry

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        return self._engine.answers(plan, ticks)

    @property
    def trusted_noise(self) -> bool:
        """Whether the engine declares that it draws noise as it should; if not, the gate draws it."""
        return getattr(self._engine, "trusted_noise", False) is True

    def draws(self, plan: Plan) -> bool:
        """Whether noise is drawn where the rows are."""
        return plan.query.per_sequence

    def noised(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Noisy answers on the lattice, from one key per tick."""
        return self._engine.noised(plan, keys)


def checked_edges(edges: npt.ArrayLike, sequences: int) -> npt.NDArray[np.int64]:
    """Pairs (target, source) of sequence numbers."""
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError("edges: pairs (target, source) of sequence numbers expected")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= sequences):
        raise InputError(f"edges: sequence numbers lie between 0 and {sequences - 1}")
    return pairs.astype(np.int64)
