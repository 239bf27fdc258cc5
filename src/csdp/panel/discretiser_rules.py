"""How a discretiser is made: from declarations alone, or from readings, with what was taken from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.panel import discretiser_rules as rules
from csdp.panel.readings import Readings, value_rows

Floats = npt.NDArray[np.float64]
Strategy = Literal["quantile", "uniform", "edges", "categories"]

#: More states than this are no discretisation; the chain's tables grow with their square.
MAX_STATES = 256


@dataclass(frozen=True, eq=False)
class Partition:
    """Edges (s, m-1) and values (s, m); `taken`: in words, what of it was read from the data, or empty."""

    edges: Floats
    values: Floats
    strategy: Strategy
    bounds: Floats | None = None
    categories: tuple[str, ...] | None = None
    taken: str = ""


def choose_strategy(strategy: str | None, edges: Any, categories: Any) -> Strategy:
    """The strategy asked for, by name or by what was given."""
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
    """From what is known without the data."""
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
            raise InputError("bounds: equal parts need bounds=(low, high), or a pair for each sequence")
        cuts, strategy = rules.uniform_edges(ends[:, 0], ends[:, 1], check_state_count(states)), "uniform"
    elif table is not None:
        return _partition_values(table)
    else:
        raise InputError("discretiser: give edges=, states= with bounds=, categories= or values=")
    if table is None:
        table = rules.midpoints(cuts, *((None, None) if ends is None else (ends[:, 0], ends[:, 1])))
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
    """From readings; public ones also give the medians of the states."""
    s = len(readings.names)
    if strategy == "categories":
        if categories is None and values is None:
            return _partition_values(_distinct_numbers(readings, shared), "the distinct numbers")
        return declare_partition(s, None, None, bounds, values, categories)
    if not public and (strategy == "edges" or (strategy == "uniform" and bounds is not None)):
        return declare_partition(s, edges, None if strategy == "edges" else states, bounds, values, None)
    ends = None if bounds is None else bound_rows(bounds, s)
    pool = _pool(readings, ends, edges, shared)
    taken = []
    if strategy == "edges":
        cuts = edge_rows(edges, s, ends)[: pool.size]
    elif strategy == "uniform":
        cuts = rules.uniform_edges(pool.low, pool.high, check_state_count(states))
    else:
        cuts = rules.quantile_edges(pool.ranked, pool.counts, check_state_count(states))
        taken.append("the quantiles")
    if ends is None and (strategy == "uniform" or (values is None and strategy == "quantile")):
        taken.append("the smallest and largest readings")
    if values is None and public:
        taken.append("the medians")
    table = pool.values(cuts, public=public) if values is None else value_rows(values, s)
    wide = [np.broadcast_to(part, (s, part.shape[1])).copy() for part in (cuts, table)]
    return _make_partition(wide[0], wide[1], strategy, ends, " and ".join(taken))


@dataclass(frozen=True, eq=False)
class _Pool:
    """Readings clamped and sorted, one column per set of edges; `low` and `high` end the outer states."""

    ranked: Floats
    counts: npt.NDArray[np.int64]
    low: Floats
    high: Floats

    @property
    def size(self) -> int:
        return int(self.counts.size)

    def values(self, cuts: Floats, *, public: bool) -> Floats:
        middle = rules.midpoints(cuts, np.minimum(self.low, cuts[:, 0]), self._top(cuts))
        return rules.medians(self.ranked, self.counts, cuts, middle) if public else middle

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
    ranked, counts = rules.sort_columns(cells.reshape(-1, 1) if shared else cells)
    if not counts.size or not counts.all():
        name = "of all" if shared or not counts.size else repr(readings.names[int(np.argmin(counts))])
        raise InputError(f"readings: sequence {name} has none; leave it out, or declare edges or bounds")
    if ends is not None:
        return _Pool(ranked, counts, ends[: counts.size, 0], ends[: counts.size, 1])
    return _Pool(ranked, counts, ranked[0], ranked[counts - 1, np.arange(counts.size)])


def _make_partition(cuts: Floats, table: Floats, strategy: Strategy, ends: Floats | None, taken: str = "") -> Partition:
    if table.shape[1] != cuts.shape[1] + 1:
        raise InputError(f"values: {table.shape[1]} given for {cuts.shape[1] + 1} states")
    return Partition(cuts, rules.lattice_values(table), strategy, ends, None, taken)


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
    return Partition(cuts, rules.lattice_values(table), "categories", None, words)


def _partition_values(table: Floats, taken: str = "") -> Partition:
    """Numbers that are categories: the edges lie half-way between them; a repeated last value is a state not taken."""
    gaps = np.diff(table, axis=1)
    spare = np.logical_and.accumulate(gaps[:, ::-1] == 0, axis=1)[:, ::-1]
    if (gaps[~spare] <= 0).any():
        raise InputError("values: as categories they must rise from state to state")
    cuts = np.where(spare, np.inf, (table[:, 1:] + table[:, :-1]) / 2)
    return Partition(cuts, rules.lattice_values(table), "categories", taken=taken)


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
