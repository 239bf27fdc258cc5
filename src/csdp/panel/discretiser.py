"""Discretiser: numbers to states; fitted once, saved, and applied to new data and to streams."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints, freeze
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.json_text import parse_json
from csdp.panel import discretiser_rules
from csdp.panel.discretiser_rules import MAX_STATES, Partition, Strategy, state_numbers
from csdp.panel.readings import Panel, Readings, Source, default_names, match_names, read_labels


@dataclass(frozen=True, eq=False)
class Discretiser:
    """Numbers to states: state k holds the readings with edges[k-1] <= reading < edges[k].

    `edges` (s, m-1), infinite where a sequence has fewer states; `values` (s, m): what each state carries, multiples of
    one power of two, so a chain takes them as they are; `bounds` (s, 2) or None; `categories`: labels, where readings
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
    elementwise = True  #: a reading's state depends on that reading alone, and on edges that never change

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

    @property
    def used_states(self) -> Ints:
        """How many of the m states each sequence can take; fewer where it had too few distinct numbers."""
        count: Ints = np.isfinite(self.edges).sum(axis=1) + 1
        return count

    def __repr__(self) -> str:
        return f"Discretiser({self.strategy}, {len(self.names)} sequences, {self.state_count} states, {self.source})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Discretiser) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.names, self.edges.tobytes(), self.values.tobytes()))

    @classmethod
    def declared(
        cls,
        names: Sequence[str],
        *,
        edges: npt.ArrayLike | None = None,
        states: int | None = None,
        bounds: npt.ArrayLike | None = None,
        values: npt.ArrayLike | None = None,
        categories: Sequence[str] | None = None,
    ) -> Discretiser:
        """A discretiser from declarations alone; no data is looked at.

        Give `edges`, or `states` with `bounds`, or `categories`, or only `values`.

        Args:
            names: names of the sequences.
            edges: boundaries between the states, (m - 1,), or a row for each sequence.
            states: number of states, equal parts of `bounds`.
            bounds: smallest and largest possible reading, (2,), or a row for each sequence.
            values: the number that each state carries; by default the middle of the state. Alone: the only numbers
                that readings can be.
            categories: labels of the states, in order.

        >>> Discretiser.declared(["a", "b"], states=4, bounds=(0, 100)).values[0].tolist()
        [12.5, 37.5, 62.5, 87.5]
        """
        labels = default_names(names, len(names))
        partition = discretiser_rules.declare_partition(len(labels), edges, states, bounds, values, categories)
        return cls._from_partition(labels, partition, "declared")

    @classmethod
    def _from_partition(cls, names: tuple[str, ...], cut: Partition, source: Source) -> Discretiser:
        return cls(names, cut.edges, cut.values, cut.strategy, source, cut.bounds, cut.categories)

    @classmethod
    def fit(
        cls,
        data: Any,
        *,
        states: int = 4,
        strategy: Strategy | None = None,
        edges: npt.ArrayLike | None = None,
        bounds: npt.ArrayLike | None = None,
        values: npt.ArrayLike | None = None,
        categories: Sequence[str] | None = None,
        shared: bool = False,
        public: bool = False,
    ) -> Discretiser:
        """A discretiser for readings (`Readings`, an array, a frame or a file).

        What is read from the data becomes public with the model: PrivacyLeakWarning where that happens and the data is
        not declared `public=True`. Declared `edges` or `bounds` avoid it.

        Args:
            data: the readings.
            states: number of states.
            strategy: "quantile" (default) for about as many readings in each state, "uniform" for equal parts of the
                bounds, "edges" for declared edges, "categories" for a state of every distinct number or label.
            edges: edges (m-1,), or a row for each sequence.
            bounds: (low, high), or a row for each sequence.
            values: what the states carry; default the median reading of each state of public data, else its middle.
            categories: labels, where readings are words.
            shared: one set of edges for all sequences.
            public: the data is public.

        >>> d = Discretiser.fit(np.arange(8.0).reshape(8, 1), states=2, public=True)
        >>> d.edges.tolist(), d.values.tolist()
        ([[3.5]], [[1.5, 5.5]])
        """
        rule = discretiser_rules.choose_strategy(strategy, edges, categories)
        readings = as_readings(data, categories)
        partition = discretiser_rules.fit_partition(
            readings, rule, states, edges, bounds, values, categories, shared, public
        )
        if partition.from_data and not public:
            warnings.warn(
                f"discretiser: {partition.from_data} come from these readings and are published with the model; "
                "declare edges or bounds from what is known without the data, or say public=True if the data is",
                PrivacyLeakWarning,
                stacklevel=2,
            )
        source: Source = ("public" if public else "private") if partition.from_data else "declared"
        return cls._from_partition(readings.names, partition, source)

    def apply(self, data: Any) -> Panel:
        """The states of readings (`Readings`, an array, a frame or a file), in the order of this discretiser's names.

        >>> Discretiser.declared(["a"], states=2, bounds=(0, 1)).apply(np.array([[0.2], [0.7]])).states.tolist()
        [[0], [1]]
        """
        if isinstance(data, np.ndarray):
            data = Readings.from_array(data, names=self.names)
        readings = as_readings(data, self.categories)
        if set(readings.names) != set(self.names):
            strange = sorted(set(self.names) ^ set(readings.names))[0]
            raise InputError(
                f"readings: sequence {strange!r} is in the readings or in the discretiser, but not in both; "
                "read with names=discretiser.names"
            )
        if readings.names != self.names:
            readings = readings.select(self.names)
        states = self._states_of(readings.readings)
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
            unknown = [name for name in named if name not in self._place]
            if unknown:
                raise InputError(f"snapshot: unknown sequence {unknown[0]!r}; there are {', '.join(self.names[:8])}")
            row = np.full(len(self.names), np.nan)
            for name, reading in named.items():
                row[self._place[name]] = self._number(reading)
        else:
            try:
                row = np.ma.filled(np.ma.asarray(snapshot).astype(np.float64), np.nan)
            except (TypeError, ValueError):
                raise InputError("snapshot: numbers expected, NaN where missing; words only in a mapping") from None
        if row.shape != (len(self.names),):
            raise InputError(f"snapshot: shape {row.shape} given; one reading for each of {len(self.names)} sequences")
        return self._states_of(row)

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

    def state_of(self, sequence: str | int, reading: Any) -> int:
        """The state of one reading of one sequence (its name or number); -1 where it is None or NaN.

        >>> Discretiser.declared(["a"], edges=[10, 20], bounds=(0, 30)).state_of("a", 12)
        1
        """
        place = self._place.get(sequence, -1) if isinstance(sequence, str) else int(sequence)
        if not 0 <= place < len(self.names):
            raise InputError(f"sequence {sequence!r}: unknown; there are {', '.join(self.names[:8])}")
        number = np.array([self._number(reading)])
        _refuse_infinite(number)
        return int(state_numbers(number, self.edges[place : place + 1])[0])

    def outside_counts(self, data: Readings) -> Ints:
        """How many readings of each sequence lie outside the bounds and were clamped. Private, as they are."""
        if self.bounds is None:
            return np.zeros(len(self.names), dtype=np.int64)
        cells = data.select(self.names).readings
        count: Ints = ((cells < self.bounds[:, 0]) | (cells > self.bounds[:, 1])).sum(axis=0)
        return count

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

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

    def _states_of(self, readings: Floats) -> npt.NDArray[np.int16]:
        _refuse_infinite(readings)
        return state_numbers(readings, self.edges)

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
                None if bounds is None else discretiser_rules.bound_rows(bounds, len(names)),
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


def _refuse_infinite(readings: Floats) -> None:
    if np.isinf(readings).any():
        raise InputError("readings: infinite values; give missing readings as NaN or None")
