"""The rules behind a discretiser: edges and values of states, from declarations alone or from readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.errors import InputError
from csdp.lattice import on_lattice
from csdp.panel.readings import Readings, value_rows

Strategy = Literal["quantile", "uniform", "edges", "categories"]

#: More states than this are no discretisation; the chain's tables grow with their square.
MAX_STATES = 256


@dataclass(frozen=True, eq=False)
class Partition:
    """Edges (s, m-1) and values (s, m) of the states; `from_data`: in words, what was read from the data, or empty."""

    edges: Floats
    values: Floats
    strategy: Strategy
    bounds: Floats | None = None
    categories: tuple[str, ...] | None = None
    from_data: str = ""


def choose_strategy(strategy: str | None, edges: Any, categories: Any) -> Strategy:
    """The strategy by its name, or the one that the other arguments imply."""
    if edges is not None and categories is not None:
        raise InputError("edges: given together with categories; give one of the two")
    implied: Strategy = "edges" if edges is not None else "categories" if categories is not None else "quantile"
    if strategy is None:
        return implied
    if strategy not in get_args(Strategy):
        raise InputError(f"strategy: {strategy!r} given; {', '.join(get_args(Strategy))}")
    if strategy == "edges" and edges is None:
        raise InputError("edges: strategy 'edges' needs them")
    if implied not in {"quantile", strategy}:
        raise InputError(f"strategy: {strategy!r} given together with {implied}; leave one out")
    return strategy  # type: ignore[return-value]  # one of them, as checked


def declare_partition(sequences: int, edges: Any, states: Any, bounds: Any, values: Any, categories: Any) -> Partition:
    """A partition from declarations, without the data."""
    ends = None if bounds is None else bound_rows(bounds, sequences)
    table = None if values is None else value_rows(values, sequences)
    if categories is not None:
        if edges is not None or states is not None or ends is not None:
            raise InputError("categories: they are the states; leave out edges, states and bounds")
        return _partition_words(sequences, categories, table)
    if edges is not None:
        if states is not None:
            raise InputError("states: edges say how many; give one of the two")
        cuts, strategy = edge_rows(edges, sequences, ends), "edges"
    elif states is not None:
        if ends is None:
            raise InputError(
                "bounds: equal parts need bounds=, the least and the largest possible reading, or a pair for each one"
            )
        cuts, strategy = uniform_edges(ends[:, 0], ends[:, 1], check_state_count(states)), "uniform"
    elif table is not None:
        return _partition_values(table)
    else:
        raise InputError("discretiser: give edges=, states= with bounds=, categories= or values=")
    if table is None:
        table = midpoints(cuts, *((None, None) if ends is None else (ends[:, 0], ends[:, 1])))
    return _make_partition(cuts, table, strategy, ends)  # type: ignore[arg-type]  # one of the two above


def fit_partition(
    readings: Readings,
    strategy: Strategy,
    states: int,
    edges: Any,
    bounds: Any,
    values: Any,
    categories: Sequence[str] | None,
    shared: bool,
    public: bool,
) -> Partition:
    """A partition from readings; public ones also give the medians of the states."""
    s = len(readings.names)
    if strategy == "categories":
        if categories is None and values is None:
            return _partition_values(_distinct_numbers(readings, shared), "the distinct numbers")
        return declare_partition(s, None, None, bounds, values, categories)
    if not public and (strategy == "edges" or (strategy == "uniform" and bounds is not None)):
        return declare_partition(s, edges, None if strategy == "edges" else states, bounds, values, None)
    ends = None if bounds is None else bound_rows(bounds, s)
    pool = _pool(readings, ends, edges, shared)
    from_data = []
    if strategy == "edges":
        cuts = edge_rows(edges, s, ends)[: pool.size]
    elif strategy == "uniform":
        cuts = uniform_edges(pool.low, pool.high, check_state_count(states))
    else:
        cuts = quantile_edges(pool.ranked, pool.counts, check_state_count(states))
        from_data.append("the quantiles")
    if ends is None and (strategy == "uniform" or (values is None and strategy == "quantile")):
        from_data.append("the smallest and largest readings")
    if values is None and public:
        from_data.append("the medians")
    table = pool.values(cuts, public=public) if values is None else value_rows(values, s)
    wide = [np.broadcast_to(part, (s, part.shape[1])).copy() for part in (cuts, table)]
    return _make_partition(wide[0], wide[1], strategy, ends, " and ".join(from_data))


@dataclass(frozen=True, eq=False)
class _Pool:
    """Readings clamped and sorted, one column per set of edges; `low` and `high` end the outer states."""

    ranked: Floats
    counts: Ints
    low: Floats
    high: Floats

    @property
    def size(self) -> int:
        return int(self.counts.size)

    def values(self, cuts: Floats, *, public: bool) -> Floats:
        middle = midpoints(cuts, np.minimum(self.low, cuts[:, 0]), self._top(cuts))
        return medians(self.ranked, self.counts, cuts, middle) if public else middle

    def _top(self, cuts: Floats) -> Floats:
        """The upper end, not below the last edge: given edges may lie beyond all readings."""
        last: Floats = np.where(np.isfinite(cuts), cuts, -np.inf).max(axis=1)
        return np.maximum(self.high, last)


def _pool(readings: Readings, ends: Floats | None, edges: Any, shared: bool) -> _Pool:
    if shared and ends is not None and (ends != ends[0]).any():
        raise InputError("bounds: shared edges need one (low, high) for all sequences")
    if shared and edges is not None and np.ndim(edges) == 2:
        raise InputError("edges: one row for each sequence given, but shared=True; give one row for all")
    cells = readings.readings if ends is None else np.clip(readings.readings, ends[:, 0], ends[:, 1])
    ranked, counts = sort_columns(cells.reshape(-1, 1) if shared else cells)
    if not counts.size or not counts.all():
        name = "of all" if shared or not counts.size else repr(readings.names[int(np.argmin(counts))])
        raise InputError(f"readings: sequence {name} has none; leave it out, or declare edges or bounds")
    if ends is not None:
        return _Pool(ranked, counts, ends[: counts.size, 0], ends[: counts.size, 1])
    return _Pool(ranked, counts, ranked[0], ranked[counts - 1, np.arange(counts.size)])


def _make_partition(
    cuts: Floats, table: Floats, strategy: Strategy, ends: Floats | None, from_data: str = ""
) -> Partition:
    if table.shape[1] != cuts.shape[1] + 1:
        raise InputError(f"values: {table.shape[1]} given for {cuts.shape[1] + 1} states")
    return Partition(cuts, values_on_lattice(table), strategy, ends, None, from_data)


def _partition_words(sequences: int, categories: Sequence[str], values: Floats | None) -> Partition:
    if isinstance(categories, str):
        raise InputError("categories: one text given; a list of labels expected")
    words = tuple(str(word).strip() for word in categories)
    if not 2 <= len(words) <= MAX_STATES or len(set(words)) != len(words):
        raise InputError(f"categories: at least two and at most {MAX_STATES}, all different")
    table = value_rows(np.arange(len(words)), sequences) if values is None else values
    if table.shape[1] != len(words):
        raise InputError(f"values: {table.shape[1]} given for {len(words)} categories")
    cuts = value_rows(np.arange(1, len(words)) - 0.5, sequences)
    return Partition(cuts, values_on_lattice(table), "categories", None, words)


def _partition_values(table: Floats, from_data: str = "") -> Partition:
    """Numbers that are categories: the edges lie half-way between them; a repeated last value is a state not taken."""
    gaps = np.diff(table, axis=1)
    spare = np.logical_and.accumulate(gaps[:, ::-1] == 0, axis=1)[:, ::-1]
    if (gaps[~spare] <= 0).any():
        raise InputError("values: as categories they must rise from state to state")
    cuts = np.where(spare, np.inf, (table[:, 1:] + table[:, :-1]) / 2)
    return Partition(cuts, values_on_lattice(table), "categories", from_data=from_data)


def _distinct_numbers(readings: Readings, shared: bool) -> Floats:
    cells = readings.readings
    pools = [cells.ravel()] if shared else [cells[:, i] for i in range(cells.shape[1])]
    levels = [np.unique(pool[~np.isnan(pool)]) for pool in pools]
    sizes = [level.size for level in levels]
    if min(sizes, default=0) < 1 or max(sizes) > MAX_STATES:
        raise InputError(
            f"categories: a sequence has no readings, or more than {MAX_STATES} distinct numbers; "
            "use strategy='quantile' for numbers that vary"
        )
    padded = [np.append(level, np.repeat(level[-1], max(sizes) - level.size)) for level in levels]
    return value_rows(padded[0] if shared else np.array(padded), cells.shape[1])


def check_state_count(states: Any) -> int:
    """How many states, checked."""
    if isinstance(states, bool) or not isinstance(states, int | np.integer) or not 2 <= states <= MAX_STATES:
        raise InputError(f"states: {states!r} given; a whole number from 2 to {MAX_STATES}")
    return int(states)


def edge_rows(edges: Any, sequences: int, ends: Floats | None) -> Floats:
    """Edges (m-1,) or (s, m-1) as one rising row per sequence, inside the bounds."""
    try:
        table = np.array(edges, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.ndim not in {1, 2} or not table.size or (table.ndim == 2 and table.shape[0] != sequences):
        raise InputError(f"edges: one row of numbers expected, or one for each of {sequences} sequences")
    if not np.isfinite(table).all() or (np.diff(table, axis=-1) <= 0).any():
        raise InputError("edges: they must be finite and rise from state to state")
    rows = np.broadcast_to(table, (sequences, table.shape[-1])).copy()
    if ends is not None and ((rows[:, 0] <= ends[:, 0]).any() or (rows[:, -1] >= ends[:, 1]).any()):
        raise InputError("edges: they must lie inside the bounds")
    return rows


def bound_rows(bounds: Any, sequences: int) -> Floats:
    """Bounds (low, high), or a row for each sequence, as (s, 2)."""
    try:
        table = np.array(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.shape not in {(2,), (sequences, 2)}:
        raise InputError(f"bounds: (low, high) expected, or one such row for each of {sequences} sequences")
    table = np.broadcast_to(table, (sequences, 2)).copy()
    if not np.isfinite(table).all() or (table[:, 0] >= table[:, 1]).any():
        raise InputError("bounds: low must be below high, and both finite")
    return table


def sort_columns(readings: Floats) -> tuple[Floats, Ints]:
    """Each column sorted, missing readings last, and how many it has."""
    return np.sort(readings, axis=0), np.count_nonzero(~np.isnan(readings), axis=0)


def quantile_edges(ranked: Floats, counts: Ints, states: int) -> Floats:
    """Edges (s, m-1) at the quantiles k/m (linear between readings, as numpy's), moved where a state would be empty.

    Where a column has fewer distinct numbers than states, each number has its state and the edges left over are
    infinite: those states are never taken.
    """
    at = (np.arange(1, states) / states)[:, None] * (counts - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, counts - 1)
    below, above = np.take_along_axis(ranked, low, axis=0), np.take_along_axis(ranked, high, axis=0)
    edges = (below + (above - below) * (at - low)).T
    held = np.stack([(ranked < edges[:, k]).sum(axis=0) for k in range(states - 1)])  # NaN is below nothing
    empty = np.diff(np.vstack([np.zeros_like(counts), held, counts]), axis=0) == 0
    for i in np.flatnonzero(empty.any(axis=0)):
        edges[i] = _distinct_edges(ranked[: counts[i], i], states)
    return edges


def _distinct_edges(column: Floats, states: int) -> Floats:
    """Edges at distinct numbers, each as near as can be to its quantile."""
    distinct, first = np.unique(column, return_index=True)
    out = np.full(states - 1, np.inf)
    if distinct.size <= states:
        out[: distinct.size - 1] = distinct[1:]
        return out
    at = 0
    for k in range(1, states):
        room = np.arange(at + 1, distinct.size - (states - 1 - k))  # leaves a number for every later state
        at = int(room[np.argmin(np.abs(first[room] - column.size * k / states))])
        out[k - 1] = distinct[at]
    return out


def uniform_edges(low: Floats, high: Floats, states: int) -> Floats:
    """Edges (s, m-1) that cut [low, high] into equal parts; where low = high, all readings share state 0."""
    parts = np.arange(1, states) / states
    edges = low[:, None] + (high - low)[:, None] * parts
    edges[low == high] = np.inf
    return edges


def state_numbers(readings: Floats, edges: Floats) -> npt.NDArray[np.int16]:
    """How many edges (s, m-1) each reading (T, s) or (s,) has reached; -1 where missing.

    One comparison per edge, over all sequences at once: no search per sequence, so a snapshot of 10^5 costs no loop.
    """
    out = np.zeros(readings.shape, dtype=np.int16)
    for k in range(edges.shape[1]):
        out += readings >= edges[:, k]
    out[np.isnan(readings)] = -1
    return out


def midpoints(edges: Floats, low: Floats | None, high: Floats | None) -> Floats:
    """A value (s, m) for each state from edges and bounds alone: the middle of its part of the range.

    Without bounds the outer states are as wide as their neighbours. States that are never taken carry the last value.
    """
    s, cuts = edges.shape
    used = np.isfinite(edges).sum(axis=1)
    if low is None or high is None:
        if (used < 2).any():
            raise InputError(
                "values: one edge does not show how wide the outer states are; give bounds=, the least and the largest "
                "possible reading"
            )
        rows = np.arange(s)
        low = 2 * edges[:, 0] - edges[:, 1]
        high = 2 * edges[rows, used - 1] - edges[rows, used - 2]
    ends = np.column_stack([low, edges, np.full(s, np.inf)])
    ends = np.minimum(np.maximum(ends, low[:, None]), high[:, None])  # an infinite edge ends at the upper bound
    values = (ends[:, 1:] + ends[:, :-1]) / 2
    last = np.take_along_axis(values, used[:, None], axis=1)
    return np.where(np.arange(cuts + 1) > used[:, None], last, values)


def medians(ranked: Floats, counts: Ints, edges: Floats, otherwise: Floats) -> Floats:
    """The median reading of each state (s, m); where a state has none, the value `otherwise`."""
    cuts = [(ranked < edges[:, k]).sum(axis=0) for k in range(edges.shape[1])]  # NaN is below nothing
    starts = np.stack([np.zeros_like(counts), *cuts], axis=1)
    ends = np.stack([*cuts, counts], axis=1)
    top = max(ranked.shape[0] - 1, 0)
    lower, upper = np.minimum((starts + ends - 1) // 2, top), np.minimum((starts + ends) // 2, top)
    middle = (np.take_along_axis(ranked.T, lower, axis=1) + np.take_along_axis(ranked.T, upper, axis=1)) / 2
    return np.where(ends > starts, middle, otherwise)


def values_on_lattice(values: Floats) -> Floats:
    """Values as multiples of one power of two, as a chain makes them; refused where that would make two states one."""
    rounded = on_lattice(values) + 0.0  # turns -0.0 into 0.0, as in a chain
    lost = (np.diff(values, axis=1) != 0) & (np.diff(rounded, axis=1) == 0)
    if lost.any():
        row = int(np.argmax(lost.any(axis=1)))
        raise InputError(
            f"values: those of sequence {row + 1} lie too close together beside the largest of all (closer than 2^-20 "
            "of it); bring the sequences to one scale, such as shares of a capacity"
        )
    return rounded
