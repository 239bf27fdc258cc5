"""The built-in queries that are sums, largest or smallest of one part per sequence.

A part depends on the sequence's own state, or, with `of=ReadingRange(...)`, on its own reading, clipped to that range.
Parts of states are multiples of a power of two and parts of readings whole numbers, so that sums are exact and the
noise can live on a lattice; a mean is the sum, divided when all is done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices, Ints
from csdp.errors import InputError
from csdp.lattice import on_lattice
from csdp.queries.protocol import Fold, check_k, check_snapshots, level_spread, rows_of
from csdp.reading_range import ReadingRange


def level_from(of: ReadingRange, bound: float) -> int:
    """The first level whose reading is at least a bound; a bound that is a level but for its rounding is that level.

    >>> level_from(ReadingRange(0, 1, 0.1), 0.3), level_from(ReadingRange(0, 1, 0.1), 0.31)
    (3, 4)
    """
    place = (bound - of.low) / of.resolution
    return round(place) if abs(place - round(place)) < 1e-9 * max(1.0, abs(place)) else math.ceil(place)


class _PartsQuery:
    """The methods that built-in fold queries share; a part is the value itself unless a query overrides `parts`.

    Some may be of readings: with `of`, a part depends on the level of a reading instead of on a state.
    """

    fold: ClassVar[Fold] = "sum"
    is_mean: ClassVar[bool] = False
    of: ReadingRange | None = None

    @property
    def _plain(self) -> str:
        """The query without what it is of, as text."""
        raise NotImplementedError

    def __repr__(self: Any) -> str:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value not in (None, ()))
        return f"{type(self).__name__}({shown})"

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """The value itself."""
        return rows_of(values, members)[:, :, None]

    def divisor(self, values: Floats) -> float:
        """Nothing is divided."""
        return 1.0

    def evaluate(self, snapshots: npt.ArrayLike, values: Floats) -> Floats:
        """Answers (..., d) for snapshots (..., s) of state numbers; a query of readings has none."""
        if self.of is not None:
            raise InputError(
                f"query {self.name}: states do not determine it; leave of= out for the answer on the values of states"
            )
        chosen = self.parts(values)[np.arange(values.shape[0]), check_snapshots(snapshots, values)]
        fold: Any = {"sum": np.sum, "max": np.max, "min": np.min}[self.fold]
        return np.asarray(fold(chosen, axis=-2) / self.divisor(values))

    def sensitivity(self, k: int, values: Floats, *, members: Sequence[int] | None = None) -> float:
        """s_k: the sum of the k largest changes of one part, which add up without cancelling; or, of a largest part,
        what one record changes: from its best to what is left when all others are lowest.
        """
        if self.of is not None:
            return self._sensitivity_of_readings(k, values, members)
        if self.fold != "sum":
            table = self.parts(values)[:, :, 0] * (1.0 if self.fold == "max" else -1.0)
            inside = rows_of(table, members)
            check_k(k, inside.shape[0])
            return float(max(inside.max() - table.min(axis=1).max(), 0.0) / self.divisor(values))
        parts = self.parts(values, members)
        count, m = parts.shape[:2]
        k = check_k(k, count)
        if parts.strides[0] == 0:
            parts = parts[:1]  # rows that are views of one another move alike
        change = np.zeros(parts.shape[0])
        for a in range(m):
            for b in range(a):
                np.maximum(change, np.abs(parts[:, a] - parts[:, b]).sum(axis=-1), out=change)
        change = np.broadcast_to(change, count)
        largest = np.sort(change)[-k:] if k < change.size else change
        return float(largest.sum() / self.divisor(values))

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """Names of the output coordinates."""
        return (self.name,)

    @property
    def name(self) -> str:
        """Short name."""
        return self._plain if self.of is None else f"{self._plain} of readings"

    @property
    def text(self) -> str:
        """The query as `parse_query` reads it, with all digits."""
        return self._plain if self.of is None else f"{self._plain} of readings {self.of.text}"

    def _levels(self) -> Ints:
        """The numbers 0, 1, ... of the levels."""
        assert self.of is not None
        return np.arange(self.of.steps + 1)

    def level_parts(self) -> npt.ArrayLike:
        """The level itself."""
        return self._levels()[:, None]

    def level_value(self) -> tuple[float, float]:
        """A level stands for low + level * resolution."""
        assert self.of is not None
        return self.of.low, self.of.resolution

    def shares(self, sequences: int) -> npt.ArrayLike | None:
        """All sequences weigh 1."""
        return None

    def _sensitivity_of_readings(self, k: int, values: Floats, members: Sequence[int] | None) -> float:
        """The k largest weights times the range."""
        shares = self.shares(values.shape[0])
        weights = np.abs(np.ones(values.shape[0]) if shares is None else np.asarray(shares))
        weights = rows_of(weights, members)
        moved = float(np.sort(weights)[-check_k(k, weights.size) :].sum()) * level_spread(self.level_parts())
        return moved * self.level_value()[1] / (values.shape[0] if self.is_mean else 1)


@dataclass(frozen=True, repr=False)
class Sum(_PartsQuery):
    """Sum of the values; s_k = k (largest - smallest value).

    `of`: of the readings themselves, clipped to a range; s_k = k (high - low).

    >>> Sum().evaluate([0, 1, 1], np.array([[0.0, 2.0]] * 3)).tolist()
    [4.0]
    """

    of: ReadingRange | None = None
    _plain: ClassVar[str] = "sum"


@dataclass(frozen=True, repr=False)
class Mean(_PartsQuery):
    """Mean of the values; s_k = k (largest - smallest value) / s.

    `of`: of the readings themselves, clipped to a range; s_k = k (high - low) / n, n the sequences that were read.

    >>> Mean().evaluate([[0, 1], [1, 1]], np.array([[0.0, 1.0]] * 2)).tolist()
    [[0.5], [1.0]]
    >>> Mean(of=ReadingRange(10, 30, 0.5)).sensitivity(1, np.zeros((4, 2)))
    5.0
    """

    of: ReadingRange | None = None
    _plain: ClassVar[str] = "mean"
    is_mean: ClassVar[bool] = True

    def divisor(self, values: Floats) -> float:
        """The number of sequences."""
        return float(values.shape[0])


@dataclass(frozen=True, repr=False)
class Count(_PartsQuery):
    """How many sequences are in one state; s_k = k.

    Args:
        state: the state that is counted.
        at_least: with `of`: count readings of at least this, instead of states.
        below: with `of`: count readings below this.
        of: the range of the readings; without it states are counted.

    >>> Count(1).evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [2.0]
    >>> Count(at_least=0.5, of=ReadingRange(0, 1, 0.25)).level_parts().ravel().tolist()
    [0, 0, 1, 1, 1]
    """

    state: int | None = None
    at_least: float | None = None
    below: float | None = None
    of: ReadingRange | None = None

    def __post_init__(self) -> None:
        if self.of is None:
            if self.state is None or (self.at_least, self.below) != (None, None):
                raise InputError("count: give one state, or of=ReadingRange(...) with at_least= or below=")
            return
        bounds = [float(bound) for bound in (self.at_least, self.below) if bound is not None]
        if self.state is not None or not bounds or not all(map(math.isfinite, bounds)) or sorted(set(bounds)) != bounds:
            raise InputError("count: of readings, give at_least= or below=, or both, at_least < below, and no state")

    @property
    def _plain(self) -> str:
        if self.of is None:
            return f"count:{self.state}"
        ends = ("" if bound is None else repr(float(bound)) for bound in (self.at_least, self.below))
        return "count:" + "..".join(ends)

    def level_parts(self) -> npt.ArrayLike:
        """1 at the levels from `at_least` on and below `below`."""
        assert self.of is not None
        first = 0 if self.at_least is None else level_from(self.of, self.at_least)
        last = self.of.steps + 1 if self.below is None else level_from(self.of, self.below)
        levels = self._levels()
        return ((levels >= first) & (levels < last)).astype(np.int64)[:, None]

    def level_value(self) -> tuple[float, float]:
        """A count stands for itself."""
        return 0.0, 1.0

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """1 in the state that is counted."""
        rows, m = rows_of(values, members).shape
        if self.state is None or not 0 <= self.state < m:
            raise InputError(f"count: unknown state {self.state}; states are 0..{m - 1}")
        return np.broadcast_to((np.arange(m) == self.state).astype(np.float64)[None, :, None], (rows, m, 1))


@dataclass(frozen=True, repr=False)
class Histogram(_PartsQuery):
    """How many sequences are in each state; s_1 = 2, s_k = 2 k.

    `of`: how many readings are below the first of the `edges`, from there to the next, ..., and from the last one on.

    >>> Histogram().evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [1.0, 2.0]
    >>> Histogram(edges=(0.5,), of=ReadingRange(0, 1, 0.5)).level_parts().tolist()
    [[1, 0], [0, 1], [0, 1]]
    """

    edges: tuple[float, ...] = ()
    of: ReadingRange | None = None

    def __post_init__(self) -> None:
        if self.of is None:
            if self.edges:
                raise InputError("histogram: edges are of readings; give of=ReadingRange(...), or no edges for states")
            return
        edges = tuple(float(edge) for edge in self.edges)
        inside = all(self.of.low < edge <= self.of.high for edge in edges)
        if not edges or not inside or sorted(set(edges)) != list(edges):
            raise InputError(
                f"histogram: edges {edges} given; of readings, one or more, rising, above {self.of.low:g} and at most "
                f"{self.of.high:g}"
            )
        object.__setattr__(self, "edges", edges)

    @property
    def _plain(self) -> str:
        return "histogram" + (":" + ",".join(map(repr, self.edges)) if self.edges else "")

    def level_parts(self) -> npt.ArrayLike:
        """A one-hot vector."""
        assert self.of is not None
        firsts = [level_from(self.of, edge) for edge in self.edges]
        place = np.searchsorted(np.array(firsts), self._levels(), side="right")
        return np.eye(len(firsts) + 1, dtype=np.int64)[place]

    def level_value(self) -> tuple[float, float]:
        """A count stands for itself."""
        return 0.0, 1.0

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """A one-hot vector."""
        rows, m = rows_of(values, members).shape
        return np.broadcast_to(np.eye(m), (rows, m, m))

    def output_names(self, names: Sequence[str], values: Floats) -> tuple[str, ...]:
        """One name per state, or per interval of readings."""
        if self.of is None:
            return tuple(f"state {a}" for a in range(values.shape[1]))
        middle = [f"{a:g} to {b:g}" for a, b in itertools.pairwise(self.edges)]
        return (f"below {self.edges[0]:g}", *middle, f"from {self.edges[-1]:g}")


@dataclass(frozen=True, repr=False)
class Identity(_PartsQuery):
    """The whole snapshot, one output per sequence; s_k = k (largest - smallest value).

    >>> Identity().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [0.0, 1.0]
    """

    _plain: ClassVar[str] = "identity"

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """The value, in the sequence's own coordinate."""
        chosen = rows_of(values, members)
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


@dataclass(frozen=True, repr=False)
class Linear(_PartsQuery):
    """Weighted sum of the values; s_k = sum of the k largest |weight| (largest - smallest value).

    Weights are put on a lattice of 2^-20 of the largest, so that sums are exact. `of`: of the readings themselves; a
    tick at which some sequence was not read has no answer.

    >>> Linear([2, -1]).evaluate([1, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [1.0]
    """

    weights: tuple[float, ...]
    of: ReadingRange | None = None

    def __init__(self, weights: Sequence[float], of: ReadingRange | None = None) -> None:
        try:
            numbers = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.empty(0)
        if numbers.ndim != 1 or not numbers.size or not np.isfinite(numbers).all() or not numbers.any():
            raise InputError("linear: give one finite weight per sequence, not all of them zero")
        object.__setattr__(self, "weights", tuple(on_lattice(numbers).tolist()))
        object.__setattr__(self, "of", of)

    @property
    def name(self) -> str:
        """Short name, with the weights where they are few."""
        first = ",".join(f"{w:g}" for w in self.weights[:8])
        readings = "" if self.of is None else " of readings"
        return f"linear:{first}{',...' if len(self.weights) > 8 else ''}{readings}"

    @property
    def _plain(self) -> str:
        return f"linear:{','.join(map(repr, self.weights))}"

    def shares(self, sequences: int) -> npt.ArrayLike | None:
        """The weights."""
        self._check_length(sequences)
        return self.weights

    def _check_length(self, sequences: int) -> None:
        if len(self.weights) != sequences:
            raise InputError(f"linear: {len(self.weights)} weights given for {sequences} sequences; give one each")

    def parts(self, values: Floats, members: Sequence[int] | None = None) -> Floats:
        """Weight times value."""
        self._check_length(values.shape[0])
        return rows_of(np.asarray(self.weights)[:, None] * values, members)[:, :, None]


@dataclass(frozen=True, repr=False)
class Max(_PartsQuery):
    """Largest value; s_k = largest - smallest value, whatever k.

    >>> Max().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [1.0]
    """

    _plain: ClassVar[str] = "max"
    fold: ClassVar[Fold] = "max"


@dataclass(frozen=True, repr=False)
class Min(_PartsQuery):
    """Smallest value; s_k = largest - smallest value, whatever k.

    >>> Min().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [0.0]
    """

    _plain: ClassVar[str] = "min"
    fold: ClassVar[Fold] = "min"
