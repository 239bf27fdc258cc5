"""Discretiser: numbers to states; fitted once, saved, and applied to new data and to streams."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.numbers import Floats, Ints, freeze, on_lattice, parse_json
from csdp.panel.panel import (
    Panel,
    Readings,
    Source,
    default_names,
    match_names,
    place_states,
    read_labels,
    value_rows,
)

Strategy = Literal["quantile", "uniform", "edges", "categories"]

#: More states than this are no discretisation; the chain's tables grow with their square.
MAX_STATES = 256


@dataclass(frozen=True, eq=False)
class Discretiser:
    """Numbers to states: state k holds the readings with edges[k-1] <= reading < edges[k].

    `edges` (s, m-1), infinite if a sequence has fewer states; `values` (s, m): what each state carries, multiples of
    one power of two, so a chain takes them as they are; `bounds` (s, 2) or None; `categories`: labels, if readings
    are words; `source`: whether edges and values were "declared", or come from "public" or "private" data.

    A reading below the first edge has state 0 and one above the last edge state m-1, also outside the bounds: it is
    clamped. A missing reading (NaN) has state -1.

    >>> d = Discretiser.declared(["a"], edges=[10, 20], bounds=(0, 30))
    >>> d.apply(np.array([[3.0], [10.0], [float("nan")], [99.0]])).states[:, 0].tolist()
    [0, 1, -1, 2]
    """

    names: tuple[str, ...]
    edges: Floats
    values: Floats
    strategy: Strategy
    source: Source
    bounds: Floats | None = None
    categories: tuple[str, ...] | None = None

    schema = "csdp.discretiser/1"

    def __post_init__(self) -> None:
        for name in ("edges", "values", "bounds"):  # copies: edges that change later would follow the readings
            numbers = getattr(self, name)
            if numbers is not None:
                object.__setattr__(self, name, freeze(np.array(numbers, dtype=np.float64)))
        s, m = len(self.names), self.values.shape[-1]
        default_names(self.names, s)
        if self.values.shape != (s, m) or self.edges.shape != (s, m - 1) or not 1 <= m <= MAX_STATES:
            raise InputError(
                f"discretiser: edges {self.edges.shape} and values {self.values.shape} given for {s} sequences; "
                f"(sequences, m-1) and (sequences, m), m at most {MAX_STATES}"
            )
        finite = np.where(np.isposinf(self.edges), np.finfo(np.float64).max, self.edges)
        gaps = np.diff(finite, axis=1)
        if not np.isfinite(finite).all() or ((gaps <= 0) & np.isfinite(self.edges[:, 1:])).any():
            raise InputError("edges: they must be finite and rise from state to state")
        if not np.isfinite(self.values).all():
            raise InputError("values: NaN or infinite entries are not allowed")
        if self.categories is not None and len(self.categories) != m:
            raise InputError(f"categories: {len(self.categories)} given for {m} states")
        if self.strategy not in get_args(Strategy) or self.source not in get_args(Source):
            raise InputError(f"discretiser: unknown strategy {self.strategy!r} or source {self.source!r}")

    @property
    def state_count(self) -> int:
        """m, the same for every sequence."""
        return int(self.values.shape[1])

    def __repr__(self) -> str:
        return f"Discretiser({self.strategy}, {len(self.names)} sequences, {self.state_count} states, {self.source})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Discretiser) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.names)

    @classmethod
    def declared(
        cls,
        names: Sequence[str],
        *,
        edges: npt.ArrayLike | None = None,
        states: int | None = None,
        bounds: npt.ArrayLike | None = None,
        categories: Sequence[str] | None = None,
    ) -> Discretiser:
        """A discretiser from declarations alone; no data is looked at.

        Give `edges`, or `states` with `bounds`, or `categories`. A state carries its middle.

        Args:
            names: names of the sequences.
            edges: boundaries between the states, (m - 1,), or a row for each sequence.
            states: number of states, equal parts of `bounds`.
            bounds: smallest and largest possible reading, (2,), or a row for each sequence.
            categories: labels of the states, in order.

        >>> Discretiser.declared(["a", "b"], states=4, bounds=(0, 100)).values[0].tolist()
        [12.5, 37.5, 62.5, 87.5]
        """
        labels = default_names(names, len(names))
        ends = None if bounds is None else bound_rows(bounds, len(labels))
        if categories is not None:
            if edges is not None or states is not None or ends is not None:
                raise InputError("categories: they are the states; leave out edges, states and bounds")
            return cls._of_words(labels, categories)
        if edges is not None:
            if states is not None:
                raise InputError("states: edges say how many; give one of the two")
            cuts = edge_rows(edges, len(labels), ends)
        elif states is None:
            raise InputError("discretiser: give edges=, states= with bounds=, or categories=")
        elif ends is None:
            raise InputError(
                "bounds: equal parts need bounds=, the least and the largest possible reading, or a pair for each one"
            )
        else:
            cuts = uniform_edges(ends[:, 0], ends[:, 1], states)
        table = values_on_lattice(midpoints(cuts, *((None, None) if ends is None else (ends[:, 0], ends[:, 1]))))
        return cls(labels, cuts, table, "uniform" if edges is None else "edges", "declared", ends)

    @classmethod
    def _of_words(cls, names: tuple[str, ...], categories: Sequence[str]) -> Discretiser:
        if isinstance(categories, str):
            raise InputError("categories: one text given; a list of labels expected")
        words = tuple(str(word).strip() for word in categories)
        if not 2 <= len(words) <= MAX_STATES or len(set(words)) != len(words):
            raise InputError(f"categories: at least two and at most {MAX_STATES}, all different")
        table = value_rows(np.arange(len(words)), len(names))
        return cls(names, table[:, 1:] - 0.5, values_on_lattice(table), "categories", "declared", None, words)

    @classmethod
    def fit(
        cls,
        data: Any,
        *,
        states: int = 4,
        strategy: Strategy | None = None,
        edges: npt.ArrayLike | None = None,
        bounds: npt.ArrayLike | None = None,
        categories: Sequence[str] | None = None,
        public: bool = False,
    ) -> Discretiser:
        """A discretiser for readings (`Readings`, an array, a frame or a file).

        A state carries its median reading if the data is public, else its middle. What is read from the data becomes
        public with the model: PrivacyLeakWarning if that happens and the data is not declared `public=True`. Declared
        `edges` or `bounds` avoid it.

        Args:
            data: the readings.
            states: number of states.
            strategy: "quantile" (default) for about as many readings in each state, "uniform" for equal parts of the
                bounds, "edges" for declared edges, "categories" for a state of every distinct number or label.
            edges: edges (m-1,), or a row for each sequence.
            bounds: (low, high), or a row for each sequence.
            categories: labels, if readings are words.
            public: the data is public.

        >>> d = Discretiser.fit(np.arange(8.0).reshape(8, 1), states=2, public=True)
        >>> d.edges.tolist(), d.values.tolist()
        ([[3.5]], [[1.5, 5.5]])
        """
        rule = choose_strategy(strategy, edges, categories)
        readings = as_readings(data, categories)
        names, ends = readings.names, None if bounds is None else bound_rows(bounds, len(readings.names))
        if categories is not None:
            return cls.declared(names, bounds=bounds, categories=categories)
        if not public and (rule == "edges" or (rule == "uniform" and ends is not None)):
            return cls.declared(names, edges=edges, states=None if rule == "edges" else states, bounds=bounds)
        from_data = []
        if rule == "categories":
            table, ends = _distinct_numbers(readings), None
            repeated = np.diff(table, axis=1) == 0  # at the end of a row: states that are never taken
            cuts = np.where(repeated, np.inf, (table[:, 1:] + table[:, :-1]) / 2)
            from_data.append("the distinct numbers")
        else:
            ranked, counts, low, high = _rank(readings, ends)
            if rule == "edges":
                cuts = edge_rows(edges, len(names), ends)
            elif rule == "uniform":
                cuts = uniform_edges(low, high, states)
            else:
                cuts = quantile_edges(ranked, counts, states)
                from_data.append("the quantiles")
            if ends is None and rule != "edges":
                from_data.append("the smallest and largest readings")
            last = np.where(np.isfinite(cuts), cuts, -np.inf).max(axis=1)  # given edges may lie beyond all readings
            table = midpoints(cuts, np.minimum(low, cuts[:, 0]), np.maximum(high, last))
            if public:
                table = medians(ranked, counts, cuts, table)
        if not public:
            warnings.warn(
                f"discretiser: {' and '.join(from_data)} come from these readings and are published with the model; "
                "declare edges or bounds from what is known without the data, or say public=True if the data is",
                PrivacyLeakWarning,
                stacklevel=2,
            )
        return cls(names, cuts, values_on_lattice(table), rule, "public" if public else "private", ends)

    def apply(self, data: Any) -> Panel:
        """The states of readings (`Readings`, an array, a frame or a file), in the order of this discretiser's names.

        >>> Discretiser.declared(["a"], states=2, bounds=(0, 1)).apply(np.array([[0.2], [0.7]])).states.tolist()
        [[0], [1]]
        """
        if isinstance(data, np.ndarray):
            data = Readings.from_array(data, names=self.names)
        readings = as_readings(data, self.categories)
        if set(readings.names) != set(self.names):
            other = sorted(set(self.names) ^ set(readings.names))[0]
            raise InputError(
                f"readings: sequence {other!r} is in the readings or in the discretiser, but not in both; "
                "read with names=discretiser.names"
            )
        if readings.names != self.names:
            readings = readings.select(self.names)
        states = state_numbers(readings.readings, self.edges)
        numbers = readings.readings if self.categories is None else None  # words are no readings to add up
        return Panel(
            self.names, readings.ticks, readings.times, states, readings.step, self.values, numbers, self.source
        )

    def states_of(self, snapshot: npt.ArrayLike | Mapping[str, Any]) -> npt.NDArray[np.int16]:
        """The states of one snapshot (s,): an array in the order of the names, or a mapping; -1 where missing.

        >>> Discretiser.declared(["a", "b"], states=2, bounds=(0, 1)).states_of({"b": 0.9}).tolist()
        [-1, 1]
        """
        named = read_labels(snapshot)
        if named is not None:
            row = np.array([self._number(reading) for reading in place_states(named, self.names, missing=np.nan)])
        else:
            try:
                row = np.ma.filled(np.ma.asarray(snapshot).astype(np.float64), np.nan)
            except (TypeError, ValueError):
                raise InputError("snapshot: numbers expected, NaN where missing; words only in a mapping") from None
        if row.shape != (len(self.names),):
            raise InputError(f"snapshot: shape {row.shape} given; one reading for each of {len(self.names)} sequences")
        return state_numbers(row, self.edges)

    def arrange(self, names: Sequence[str]) -> Discretiser:
        """The same discretiser with its sequences in the order of a chain's names; of other sequences it is refused.

        >>> Discretiser.declared(["b", "a"], edges=[[1], [5]], bounds=(0, 9)).arrange(["a", "b"]).edges.tolist()
        [[5.0], [1.0]]
        """
        hint = "Make it for the sequences of the chain"
        place = match_names(self.names, names, what="discretiser", hint=hint)
        if place is None:
            return self
        return replace(
            self,
            names=tuple(self.names[i] for i in place),
            edges=self.edges[place],
            values=self.values[place],
            bounds=None if self.bounds is None else self.bounds[place],
        )

    def _number(self, reading: Any) -> float:
        if reading is None:
            return float("nan")
        if isinstance(reading, str):
            if self.categories is None or reading.strip() not in self.categories:
                raise InputError(
                    "reading: a word that is none of the declared categories; numbers are given as numbers"
                )
            return float(self.categories.index(reading.strip()))
        try:
            return float(reading)
        except (TypeError, ValueError):
            raise InputError(f"reading: {type(reading).__name__} given; a number, None where missing") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinite edges, which no reading reaches, are None."""
        return {
            "schema": self.schema,
            "names": list(self.names),
            "strategy": self.strategy,
            "source": self.source,
            "edges": [[edge if np.isfinite(edge) else None for edge in row] for row in self.edges.tolist()],
            "values": self.values.tolist(),
            "bounds": None if self.bounds is None else self.bounds.tolist(),
            "categories": None if self.categories is None else list(self.categories),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Discretiser:
        """The discretiser that `to_dict` describes."""
        if content.get("schema") != cls.schema:
            raise InputError(f"discretiser: schema {content.get('schema')!r} given; this version reads {cls.schema}")
        try:
            names = tuple(content["names"])
            m = len(content["values"][0])
            cuts = [[np.inf if edge is None else float(edge) for edge in row] for row in content["edges"]]
            bounds, words = content.get("bounds"), content.get("categories")
            return cls(
                names,
                np.array(cuts, dtype=np.float64).reshape(len(names), m - 1),
                np.array(content["values"], dtype=np.float64),
                content["strategy"],
                content["source"],
                None if bounds is None else bound_rows(bounds, len(names)),
                None if words is None else tuple(words),
            )
        except InputError:
            raise
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"discretiser: the JSON is garbled ({error}); write it with save") from None

    def to_json(self) -> str:
        """JSON text; `from_json` gives an equal discretiser back."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Discretiser:
        """The discretiser that a JSON text describes."""
        content = parse_json("discretiser", text)
        if not isinstance(content, dict):
            raise InputError(f"discretiser: a JSON {type(content).__name__} given; an object expected")
        return cls.from_dict(content)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON; `load` gives an equal one back."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Discretiser:
        """The discretiser in a JSON file."""
        where = Path(path)
        try:
            return cls.from_json(where.read_text(encoding="utf-8"))
        except OSError:
            raise InputError(f"{where}: no such file, or it cannot be read") from None
        except UnicodeDecodeError:
            raise InputError(f"{where}: not a text file; JSON in UTF-8 expected") from None
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


def as_readings(data: Any, categories: Sequence[str] | None = None) -> Readings:
    """Readings as they are; anything else is read with the usual settings."""
    if isinstance(data, Readings):
        return data
    if isinstance(data, Panel):
        raise InputError("data: a panel has states already; a discretiser takes readings (read_readings)")
    from csdp.panel.read import read_readings

    return read_readings(data, categories=categories)


# ---- edges and values of states, from declarations or from readings ------------------------------------------------


def choose_strategy(strategy: str | None, edges: Any, categories: Any) -> Strategy:
    """The strategy by its name, or the one that the other arguments imply."""
    if edges is not None and categories is not None:
        raise InputError("edges: given together with categories; give one of the two")
    implied: Strategy = "edges" if edges is not None else "categories" if categories is not None else "quantile"
    if strategy is None:
        return implied
    chosen: Strategy = check.choice("strategy", strategy, get_args(Strategy))
    if chosen == "edges" and edges is None:
        raise InputError("edges: strategy 'edges' needs them")
    if implied not in {"quantile", chosen}:
        raise InputError(f"strategy: {chosen!r} given together with {implied}; leave one out")
    return chosen


def _rank(readings: Readings, ends: Floats | None) -> tuple[Floats, Ints, Floats, Floats]:
    """The readings of each sequence clamped and sorted, how many it has, and the ends of its outer states."""
    cells = readings.readings if ends is None else np.clip(readings.readings, ends[:, 0], ends[:, 1])
    ranked = np.sort(cells, axis=0)  # missing readings last
    counts = np.count_nonzero(~np.isnan(cells), axis=0)
    if not counts.size or not counts.all():
        name = "of all" if not counts.size else repr(readings.names[int(np.argmin(counts))])
        raise InputError(f"readings: sequence {name} has none; leave it out, or declare edges or bounds")
    if ends is not None:
        return ranked, counts, ends[:, 0], ends[:, 1]
    return ranked, counts, ranked[0], ranked[counts - 1, np.arange(counts.size)]


def _distinct_numbers(readings: Readings) -> Floats:
    levels = [np.unique(column[~np.isnan(column)]) for column in readings.readings.T]
    sizes = [level.size for level in levels]
    if min(sizes, default=0) < 1 or max(sizes) > MAX_STATES:
        raise InputError(
            f"categories: a sequence has no readings, or more than {MAX_STATES} distinct numbers; "
            "use strategy='quantile' for numbers that vary"
        )
    padded = [np.append(level, np.repeat(level[-1], max(sizes) - level.size)) for level in levels]
    return value_rows(np.array(padded), readings.readings.shape[1])


def edge_rows(edges: Any, sequences: int, ends: Floats | None) -> Floats:
    """Edges (m-1,) or (s, m-1) as one rising row per sequence, inside the bounds."""
    rows = value_rows(edges, sequences, "edges")
    if (np.diff(rows, axis=1) <= 0).any():
        raise InputError("edges: they must rise from state to state")
    if ends is not None and ((rows[:, 0] <= ends[:, 0]).any() or (rows[:, -1] >= ends[:, 1]).any()):
        raise InputError("edges: they must lie inside the bounds")
    return rows


def bound_rows(bounds: Any, sequences: int) -> Floats:
    """Bounds (low, high), or a row for each sequence, as (s, 2)."""
    rows = value_rows(bounds, sequences, "bounds")
    if rows.shape[1] != 2 or (rows[:, 0] >= rows[:, 1]).any():
        raise InputError("bounds: (low, high) expected, or a row for each sequence; low must be below high")
    return rows


def quantile_edges(ranked: Floats, counts: Ints, states: int) -> Floats:
    """Edges (s, m-1) at the quantiles k/m (linear between readings, as numpy's), moved if a state would be empty.

    Where a column has fewer distinct numbers than states, each number has its state and the edges left over are
    infinite: those states are never taken.
    """
    check.whole("states", states, least=2, most=MAX_STATES)
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
    """Edges at distinct numbers, each as near as possible to its quantile."""
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
    """Edges (s, m-1) that cut [low, high] into equal parts; if low = high, all readings share state 0."""
    check.whole("states", states, least=2, most=MAX_STATES)
    parts = np.arange(1, states) / states
    edges = low[:, None] + (high - low)[:, None] * parts
    edges[low == high] = np.inf
    return edges


def state_numbers(readings: Floats, edges: Floats) -> npt.NDArray[np.int16]:
    """How many edges (s, m-1) each reading (T, s) or (s,) has reached; -1 where missing.

    One comparison per edge, over all sequences at once: no search per sequence, so a snapshot of 10^5 costs no loop.
    """
    if np.isinf(readings).any():
        raise InputError("readings: infinite values; give missing readings as NaN or None")
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
    """The median reading of each state (s, m); if a state has none, the value `otherwise`."""
    cuts = [(ranked < edges[:, k]).sum(axis=0) for k in range(edges.shape[1])]  # NaN is below nothing
    starts = np.stack([np.zeros_like(counts), *cuts], axis=1)
    ends = np.stack([*cuts, counts], axis=1)
    top = max(ranked.shape[0] - 1, 0)
    lower, upper = np.minimum((starts + ends - 1) // 2, top), np.minimum((starts + ends) // 2, top)
    middle = (np.take_along_axis(ranked.T, lower, axis=1) + np.take_along_axis(ranked.T, upper, axis=1)) / 2
    return np.where(ends > starts, middle, otherwise)


def values_on_lattice(values: Floats) -> Floats:
    """Values as multiples of one power of two, as a chain makes them; refused if that would make two states one."""
    rounded = on_lattice(values) + 0.0  # turns -0.0 into 0.0, as in a chain
    lost = (np.diff(values, axis=1) != 0) & (np.diff(rounded, axis=1) == 0)
    if lost.any():
        row = int(np.argmax(lost.any(axis=1)))
        raise InputError(
            f"values: those of sequence {row + 1} lie too close together beside the largest of all (closer than 2^-20 "
            "of it); bring the sequences to one scale, such as shares of a capacity"
        )
    return rounded
