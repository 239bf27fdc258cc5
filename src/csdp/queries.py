"""Queries: what is asked of a snapshot, and how far one record (or k of them) can move the answer.

Built-in queries are folds: every sequence contributes a part that depends on its own state, and the parts are summed,
or their largest or smallest is taken. Parts are multiples of a power of two, so that sums are exact and the noise
can live on a lattice; a mean is the sum, divided by s when all is done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.errors import InputError
from csdp.lattice import on_lattice

Fold = Literal["sum", "max", "min"]

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


def d(query: Query, k: int, values: Floats) -> float:
    """d(k) = s_k / s_1, the paper's k-sensitivity (its Definition 4).

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


def _rows(table: Floats, members: Sequence[int] | None) -> Floats:
    return table if members is None else table[np.asarray(members, dtype=np.intp)]


def _check_k(k: int, available: int) -> int:
    if k < 1:
        raise InputError(f"sensitivity: k={k} given; at least one record changes")
    return min(k, available)


class _PartsQuery:
    """The methods that built-in fold queries share; a part is the value itself unless a query overrides `parts`."""

    fold: ClassVar[Fold] = "sum"

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """The value itself."""
        return _rows(values, members)[:, :, None]

    def divisor(self, values: Floats) -> float:
        """Nothing is divided."""
        return 1.0

    def evaluate(self: Any, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers."""
        chosen = self.parts(values)[np.arange(values.shape[0]), check_snapshots(snapshots, values)]
        fold: Any = {"sum": np.sum, "max": np.max, "min": np.min}[self.fold]
        return np.asarray(fold(chosen, axis=-2) / self.divisor(values))

    def sensitivity(self: Any, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the sum of the k largest changes of one part, which add up without cancelling; or, of a largest part,
        what one record changes: from its best to what is left when all others are lowest.
        """
        if self.fold != "sum":
            table = self.parts(values)[:, :, 0] * (1.0 if self.fold == "max" else -1.0)
            inside = _rows(table, members)
            _check_k(k, inside.shape[0])
            return float(max(inside.max() - table.min(axis=1).max(), 0.0) / self.divisor(values))
        parts = self.parts(values, members)
        count, m = parts.shape[:2]
        k = _check_k(k, count)
        if parts.strides[0] == 0:
            parts = parts[:1]  # rows that are views of one another move alike
        change = np.zeros(parts.shape[0])
        for a in range(m):
            for b in range(a):
                np.maximum(change, np.abs(parts[:, a] - parts[:, b]).sum(axis=-1), out=change)
        change = np.broadcast_to(change, count)
        largest = np.sort(change)[-k:] if k < change.size else change
        return float(largest.sum() / self.divisor(values))

    def output_names(self: Any, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """Names of the output coordinates."""
        return (self.name,)


@dataclass(frozen=True)
class Sum(_PartsQuery):
    """Sum of the values; s_k = k (largest - smallest value).

    >>> Sum().evaluate([0, 1, 1], np.array([[0.0, 2.0]] * 3)).tolist()
    [4.0]
    """

    name: ClassVar[str] = "sum"


@dataclass(frozen=True)
class Mean(_PartsQuery):
    """Mean of the values; s_k = k (largest - smallest value) / s.

    >>> Mean().evaluate([[0, 1], [1, 1]], np.array([[0.0, 1.0]] * 2)).tolist()
    [[0.5], [1.0]]
    """

    name: ClassVar[str] = "mean"

    def divisor(self, values: Floats) -> float:
        """The number of sequences."""
        return float(values.shape[0])


@dataclass(frozen=True)
class Count(_PartsQuery):
    """How many sequences are in one state; s_k = k.

    >>> Count(1).evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [2.0]
    """

    state: int

    @property
    def name(self) -> str:
        """Short name, with the state."""
        return f"count:{self.state}"

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """1 in the state that is counted."""
        rows, m = _rows(values, members).shape
        if not 0 <= self.state < m:
            raise InputError(f"count: unknown state {self.state}; states are 0..{m - 1}")
        return np.broadcast_to((np.arange(m) == self.state).astype(np.float64)[None, :, None], (rows, m, 1))


@dataclass(frozen=True)
class Histogram(_PartsQuery):
    """How many sequences are in each state; s_1 = 2, s_k = 2 k.

    >>> Histogram().evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [1.0, 2.0]
    """

    name: ClassVar[str] = "histogram"

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """A one-hot vector."""
        rows, m = _rows(values, members).shape
        return np.broadcast_to(np.eye(m), (rows, m, m))

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """One name per state."""
        return tuple(f"state {a}" for a in range(values.shape[1]))


@dataclass(frozen=True)
class Identity(_PartsQuery):
    """The whole snapshot, one output per sequence; s_k = k (largest - smallest value).

    >>> Identity().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [0.0, 1.0]
    """

    name: ClassVar[str] = "identity"

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """The value, in the sequence's own coordinate."""
        chosen = _rows(values, members)
        s, m = chosen.shape
        out = np.zeros((s, m, s))
        out[np.arange(s), :, np.arange(s)] = chosen
        return out

    def blocks(self, values: Floats) -> tuple[Floats, Indices]:
        """The value, in a block of the sequence's own."""
        return values[:, :, None], np.arange(values.shape[0])

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """The values of the snapshot; without the s x m x s table of parts."""
        states = check_snapshots(snapshots, values)
        return np.asarray(values[np.arange(values.shape[0]), states])

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the k widest ranges."""
        return Sum().sensitivity(k, values, members=members)

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """The names of the sequences."""
        return tuple(names)


@dataclass(frozen=True)
class Linear(_PartsQuery):
    """Weighted sum of the values; s_k = sum of the k largest |weight| (largest - smallest value).

    Weights are put on a lattice of 2^-20 of the largest, so that sums are exact.

    >>> Linear([2, -1]).evaluate([1, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [1.0]
    """

    weights: tuple[float, ...]

    def __init__(self, weights: Sequence[float]) -> None:
        try:
            numbers = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.empty(0)
        if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all() or not numbers.any():
            raise InputError("linear: give one finite weight per sequence, not all of them zero")
        object.__setattr__(self, "weights", tuple(on_lattice(numbers).tolist()))

    @property
    def name(self) -> str:
        """Short name, with the weights where they are few."""
        first = ",".join(f"{w:g}" for w in self.weights[:8])
        return f"linear:{first}{',...' if len(self.weights) > 8 else ''}"

    @property
    def text(self) -> str:
        """The query as `parse_query` reads it, with every weight and all its digits."""
        return f"linear:{','.join(map(repr, self.weights))}"

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """Weight times value."""
        if len(self.weights) != values.shape[0]:
            raise InputError(
                f"linear: {len(self.weights)} weights given for {values.shape[0]} sequences; give one each"
            )
        return _rows(np.asarray(self.weights)[:, None] * values, members)[:, :, None]


@dataclass(frozen=True)
class Max(_PartsQuery):
    """Largest value; s_k = largest - smallest value, whatever k.

    >>> Max().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [1.0]
    """

    name: ClassVar[str] = "max"
    fold: ClassVar[Fold] = "max"


@dataclass(frozen=True)
class Min(_PartsQuery):
    """Smallest value; s_k = largest - smallest value, whatever k.

    >>> Min().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [0.0]
    """

    name: ClassVar[str] = "min"
    fold: ClassVar[Fold] = "min"


@dataclass(frozen=True)
class Custom:
    """Your own function of the snapshot's values (a number, or d numbers).

    `sensitivity`: s_1, or a function k -> s_k; where only s_1 is given, s_k = k s_1 is used, which is never too small.
    Where nothing is given, snapshots are enumerated (up to 4,096 of them).

    >>> spread = Custom(lambda v: v.max() - v.min(), name="spread")
    >>> spread.sensitivity(1, np.array([[0.0, 1.0]] * 3))
    1.0
    """

    function: Callable[[Floats], Any]
    declared: float | Callable[[int], float] | None = field(default=None)
    label: str = "custom"

    def __init__(
        self,
        function: Callable[[Floats], Any],
        sensitivity: float | Callable[[int], float] | None = None,
        *,
        name: str = "custom",
    ) -> None:
        if not callable(function):
            raise InputError(f"custom: {type(function).__name__} given; a function of a snapshot's values expected")
        if isinstance(sensitivity, int | float) and not (math.isfinite(sensitivity) and sensitivity > 0):
            raise InputError(f"custom: sensitivity {sensitivity} given; it must be positive and finite")
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "declared", sensitivity)
        object.__setattr__(self, "label", name)

    @property
    def name(self) -> str:
        """The name given."""
        return self.label

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d), one call of the function per snapshot."""
        states = check_snapshots(snapshots, values)
        rows = values[np.arange(values.shape[0]), states].reshape(-1, values.shape[0])
        returned = [self.function(row) for row in rows]
        try:
            answers = np.array([np.atleast_1d(np.asarray(answer, dtype=np.float64)) for answer in returned])
        except (TypeError, ValueError):
            answers = np.empty(0)
        if answers.ndim != 2 or not np.isfinite(answers).all():
            raise InputError("custom: the function must return a finite number, or always the same count of them")
        return answers.reshape(*states.shape[:-1], answers.shape[-1])

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k as declared, or by enumeration."""
        k = _check_k(k, values.shape[0] if members is None else len(members))
        if callable(self.declared):
            return float(self.declared(k))
        if self.declared is not None:
            return k * float(self.declared)
        s, m = values.shape
        if not is_enumerable(s, m):
            raise InputError(
                f"custom: {m}**{s} snapshots are too many to enumerate; declare sensitivity= (s_1, or k -> s_k)"
            )
        largest = largest_change(self.evaluate(all_snapshots(s, m), values), k, values, members)
        if largest == 0 and members is None:
            raise InputError("custom: the function is constant; there is nothing to protect or to publish")
        return largest

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """The name, numbered where there are several outputs."""
        count = self.evaluate(np.zeros(values.shape[0], dtype=np.intp), values).shape[-1]
        return (self.name,) if count == 1 else tuple(f"{self.name} {i}" for i in range(count))


def is_enumerable(s: int, m: int) -> bool:
    """Whether s sequences with m states have few enough snapshots to enumerate them all."""
    return s * math.log(m) <= math.log(ENUMERATION_STATES) + 1e-9


def all_snapshots(s: int, m: int) -> Indices:
    """Every snapshot (m^s, s) of state numbers, the last sequence changing fastest."""
    return np.array(np.unravel_index(np.arange(m**s), (m,) * s)).T


def largest_change(answers: Floats, k: int, values: Floats, members: Sequence[int] | None) -> float:
    """s_k of the answers (m^s, d) of all snapshots: the largest change when k records (of `members`) change."""
    s, m = values.shape
    grid = answers.reshape((m,) * s + (-1,))
    largest = 0.0
    for chosen in itertools.combinations(range(s) if members is None else members, k):
        moved = np.moveaxis(grid, chosen, range(k)).reshape(m**k, -1, grid.shape[-1])
        for a in range(m**k):
            largest = max(largest, float(np.abs(moved - moved[a]).sum(axis=-1).max()))
    return largest


def parse_query(text: str) -> Query:
    """The query named on a command line: mean, sum, max, min, count:STATE, histogram, identity, linear:W1,W2,...

    >>> parse_query("count:1")
    Count(state=1)
    """
    plain: dict[str, Query] = {q.name: q for q in (Mean(), Sum(), Max(), Min(), Histogram(), Identity())}
    head, _, tail = text.strip().lower().partition(":")
    if head in plain and not tail:
        return plain[head]
    try:
        if head == "count":
            return Count(int(tail))
        if head == "linear":
            return Linear([float(w) for w in tail.split(",")])
    except ValueError:
        pass
    raise InputError(
        f"query: {text!r} given; use mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,..."
    )
