"""What a query is: the protocols that the rest of the package asks, and the checks that every query shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.errors import InputError
from csdp.reading_range import ReadingRange

Fold = Literal["sum", "max", "min"]

#: Distinct rows of parts that are compared with one another.
_COMPARED = 2048
#: Snapshots up to which a custom query's sensitivity is found by enumeration.
ENUMERATION_STATES = 4096


@runtime_checkable
class Query(Protocol):
    """A function of a snapshot with a known sensitivity.

    `values` is always the table of numbers that the states carry, (s, m), as in `Model.value_table`.
    """

    @property
    def name(self) -> str:
        """Short name, as on the command line."""

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the largest l1 change of the answer when k records (of `members`) change."""

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """Names of the output coordinates."""


@runtime_checkable
class FoldQuery(Query, Protocol):
    """A query made of one part per sequence; `csdp.computation` checks that its other methods agree with the parts."""

    @property
    def fold(self) -> Fold:
        """How the parts are combined: their sum, the largest or the smallest."""

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """Contribution (members, m, d) of every state, before `divisor`; default: of every sequence.

        Output coordinates that no member can move may be left out.
        """

    def divisor(self, values: Floats) -> float:
        """What the folded parts are divided by in the end."""


@runtime_checkable
class BlockQuery(FoldQuery, Protocol):
    """A fold query with so many outputs that a table of its parts would be mostly zeros."""

    def blocks(self, values: Floats) -> tuple[Floats, Indices]:
        """Parts (s, m, w) of every sequence in the block of w outputs that it moves, and the number of that block."""


@runtime_checkable
class ReadingsQuery(Query, Protocol):
    """A query of the readings themselves, clipped to a declared range: a sum of what the level of each reading adds.

    The answer of a snapshot is `sum over the sequences read of share * part(level)`, a whole multiple of a lattice step
    wherever parts are whole numbers. Sequences that were not read are left out. What it costs between states is known
    from its parts alone: `csdp.computation` verifies them.
    """

    @property
    def of(self) -> ReadingRange | None:
        """The range of the readings; None where the query is one of states."""

    @property
    def is_mean(self) -> bool:
        """Whether the sum is divided by the number of sequences that were read."""

    def level_parts(self) -> npt.ArrayLike:
        """Whole numbers (levels, d): what a reading at each level adds to every output."""

    def level_value(self) -> tuple[float, float]:
        """(base, step): a sum of parts stands for base * (sequences read) + step * (the sum)."""

    def shares(self, sequences: int) -> npt.ArrayLike | None:
        """The weight (sequences,) of each sequence; None where all weigh 1. Unequal ones need every sequence read."""


def reading_range(query: object) -> ReadingRange | None:
    """The range of the readings that a query is of; None for a query of states.

    >>> from csdp import Mean
    >>> reading_range(Mean()), reading_range(Mean(of=ReadingRange(0, 1, 0.1)))
    (None, ReadingRange(low=0.0, high=1.0, resolution=0.1))
    """
    of = getattr(query, "of", None)
    return of if isinstance(of, ReadingRange) else None


def d(query: Query, k: int, values: Floats) -> float:
    """d(k) = s_k / s_1, the paper's k-sensitivity (its Definition 4).

    >>> from csdp import Max, Mean
    >>> d(Mean(), 2, np.array([[0.0, 1.0]] * 3)), d(Max(), 2, np.array([[0.0, 1.0]] * 3))
    (2.0, 1.0)
    """
    return query.sensitivity(k, values) / query.sensitivity(1, values)


def check_snapshots(snapshots: npt.ArrayLike, values: Floats) -> Indices:
    """Snapshots (..., s) of state numbers, ready to be used as indices; anything else is refused."""
    states = np.asarray(snapshots)
    s, m = values.shape
    if states.ndim < 1 or states.shape[-1] != s:
        raise InputError(f"snapshot: shape {states.shape} given; the last axis must have one state per sequence ({s})")
    if not np.issubdtype(states.dtype, np.integer):
        raise InputError(f"snapshot: {states.dtype} given; states are whole numbers 0..{m - 1}")
    if states.size and (states.min() < 0 or states.max() >= m):
        raise InputError(f"snapshot: unknown state; states are whole numbers 0..{m - 1}")
    return states.astype(np.intp)


def rows_of(table: Floats, members: Sequence[int] | None) -> Floats:
    """The rows of some members; of all by default."""
    return table if members is None else table[np.asarray(members, dtype=np.intp)]


def check_k(k: int, available: int) -> int:
    """The number of records that change, at most all of them; below 1 it is refused."""
    if k < 1:
        raise InputError(f"sensitivity: k={k} given; at least one record changes")
    return min(k, available)


def level_spread(parts: npt.ArrayLike) -> float:
    """The largest l1 distance between what two levels add; an upper bound of it where levels are very many.

    >>> level_spread([[1, 0], [0, 1], [0, 1]])
    2.0
    """
    table = np.asarray(parts, dtype=np.float64)
    if table.shape[1] == 1:
        return float(np.ptp(table))
    distinct = np.unique(table, axis=0)
    if distinct.shape[0] > _COMPARED:
        return float(np.ptp(distinct, axis=0).sum())
    return float(max(np.abs(distinct - row).sum(axis=1).max() for row in distinct))
