"""Queries: what is asked of a snapshot, each a small constructor of its table.

Every sequence contributes what its state adds, or, with `of=ReadingRange(...)`, what its reading adds, clipped to that
range. Contributions of states are multiples of a power of two and those of readings whole numbers, so that sums are
exact and the noise can live on a lattice; a mean is the sum, divided when all is done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import Model
from csdp.errors import InputError
from csdp.numbers import Floats, Indices, Ints
from csdp.numbers import on_lattice as to_lattice
from csdp.query_table import (
    ENUMERATION_STATES,
    Fold,
    FoldTable,
    FunctionTable,
    Groups,
    Query,
    all_snapshots,
    is_enumerable,
)
from csdp.readings import ReadingRange, ReadingsTable

QueryTable = FoldTable | FunctionTable | ReadingsTable

#: Between a query and the range of the readings that it is of.
OF_READINGS = " of readings "
#: Outputs that a query per group may have.
MAX_OUTPUTS = 4096


def tabulate(
    query: Query | str, model: Model, *, on_lattice: bool = False, readings_check: str | None = None
) -> QueryTable:
    """The table of a query, or of its text, on the values of a model.

    Args:
        query: what is asked; a table of the same values is returned as it is.
        model: whose values the states carry.
        on_lattice: round the answers of a custom function to a lattice.
        readings_check: for a query of readings, what is known of them; by default as the record of the model's fit has
            it.

    >>> from csdp import CoupledChain
    >>> tabulate("mean", CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])).unit
    1.0
    """
    made: QueryTable = to_query(query).on(model.value_table, model.names, on_lattice=on_lattice)
    if isinstance(made, ReadingsTable):
        record = model.point.fitted
        return made.judge(None if record is None else record.readings_check, given=readings_check)
    if readings_check is not None:
        raise InputError(f"readings_check: {readings_check!r} given, but {made.name} publishes no readings")
    return made


def on_values(table: QueryTable) -> FoldTable | FunctionTable:
    """What a query computes on the values that states carry: itself, or, of readings, its approximation by them."""
    return table.by_values if isinstance(table, ReadingsTable) else table


def d(query: Query, k: int, values: Floats) -> float:
    """d(k) = s_k / s_1, the paper's k-sensitivity (its Definition 4).

    >>> d(Mean(), 2, np.array([[0.0, 1.0]] * 3)), d(Max(), 2, np.array([[0.0, 1.0]] * 3))
    (2.0, 1.0)
    """
    return query.sensitivity(k, values) / query.sensitivity(1, values)


class _BuiltIn(Query):
    """What built-in queries share: names, and tables of one block of outputs."""

    of: ReadingRange | None = None

    @property
    def _plain(self) -> str:
        """The query without what it is of, as text."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Short name, as on the command line."""
        return self._plain if self.of is None else f"{self._plain} of readings"

    @property
    def text(self) -> str:
        """The query as `parse_query` reads it, with all digits."""
        return self._plain if self.of is None else f"{self._plain} of readings {self.of.text}"

    def __repr__(self: Any) -> str:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value not in (None, ()))
        return f"{type(self).__name__}({shown})"

    def _table(self, values: Floats, rows: Floats, names: Sequence[str], **options: Any) -> FoldTable:
        made = {"outputs": (self.name,), "rows": rows, "table": values, "names": tuple(names), **options}
        return FoldTable(name=self.name, text=self.text, source=self, **made)

    def _readings(self, values: Floats, parts: Ints, **options: Any) -> ReadingsTable:
        """A table of readings, whose levels stand for themselves: low + level * resolution."""
        assert self.of is not None
        made = {"outputs": (self.name,), "base": self.of.low, "step": self.of.resolution, **options}
        return ReadingsTable(name=self.name, text=self.text, of=self.of, parts=parts, table=values, source=self, **made)

    def _levels(self) -> Ints:
        """The numbers 0, 1, ... of the levels."""
        assert self.of is not None
        return np.arange(self.of.steps + 1)


@dataclass(frozen=True, repr=False)
class Sum(_BuiltIn):
    """Sum of the values; s_k = k (largest - smallest value).

    `of`: of the readings themselves, clipped to a range; s_k = k (high - low).

    >>> Sum().evaluate([0, 1, 1], np.array([[0.0, 2.0]] * 3)).tolist()
    [4.0]
    """

    of: ReadingRange | None = None
    _plain: ClassVar[str] = "sum"

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """The value itself."""
        if self.of is not None:
            return self._readings(values, self._levels()[:, None])
        return self._table(values, values[:, :, None], names)


@dataclass(frozen=True, repr=False)
class Mean(_BuiltIn):
    """Mean of the values; s_k = k (largest - smallest value) / s.

    `of`: of the readings themselves, clipped to a range; s_k = k (high - low) / n, n the sequences that were read.

    >>> Mean().evaluate([[0, 1], [1, 1]], np.array([[0.0, 1.0]] * 2)).tolist()
    [[0.5], [1.0]]
    >>> Mean(of=ReadingRange(10, 30, 0.5)).sensitivity(1, np.zeros((4, 2)))
    5.0
    """

    of: ReadingRange | None = None
    _plain: ClassVar[str] = "mean"

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """The value itself, divided by the number of sequences."""
        if self.of is not None:
            return self._readings(values, self._levels()[:, None], is_mean=True)
        return self._table(values, values[:, :, None], names, denominator=float(values.shape[0]), is_mean=True)


@dataclass(frozen=True, repr=False)
class Count(_BuiltIn):
    """How many sequences are in one state; s_k = k.

    Args:
        state: the state that is counted.
        at_least: with `of`: count readings of at least this, instead of states.
        below: with `of`: count readings below this.
        of: the range of the readings; without it states are counted.

    >>> Count(1).evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [2.0]
    >>> Count(at_least=0.5, of=ReadingRange(0, 1, 0.25)).on(np.zeros((1, 2))).parts.ravel().tolist()
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

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """1 in the state that is counted, or at the levels from `at_least` on and below `below`."""
        if self.of is not None:
            first = 0 if self.at_least is None else self.of.level_from(self.at_least)
            last = self.of.steps + 1 if self.below is None else self.of.level_from(self.below)
            levels = self._levels()
            counted = ((levels >= first) & (levels < last)).astype(np.int64)
            return self._readings(values, counted[:, None], base=0.0, step=1.0)
        return self._table(values, _indicator("count", self.state, values.shape[1]), names)


@dataclass(frozen=True, repr=False)
class Share(_BuiltIn):
    """Which share of the sequences that were read are in one state; s_k = k / s.

    >>> Share(1).evaluate([0, 1, 1, 1], np.array([[0.0, 1.0]] * 4)).tolist()
    [0.75]
    """

    state: int

    @property
    def _plain(self) -> str:
        return f"share:{self.state}"

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """1 in the state, divided by the number of sequences."""
        rows = _indicator(self.name, self.state, values.shape[1])
        return self._table(values, rows, names, denominator=float(values.shape[0]), is_mean=True)


def _indicator(query: str, state: int | None, states: int) -> Floats:
    """Contributions (1, m, 1): 1 in one state."""
    if state is None or not 0 <= state < states:
        raise InputError(f"{query}: unknown state {state}; states are 0..{states - 1}")
    return np.eye(states)[None, :, state : state + 1]


@dataclass(frozen=True, repr=False)
class Histogram(_BuiltIn):
    """How many sequences are in each state; s_1 = 2, s_k = 2 k.

    `of`: how many readings are below the first of the `edges`, from there to the next, ..., and from the last one on.

    >>> Histogram().evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [1.0, 2.0]
    >>> Histogram(edges=(0.5,), of=ReadingRange(0, 1, 0.5)).on(np.zeros((1, 2))).parts.tolist()
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

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """1 in the output of the state, or of the interval of readings."""
        if self.of is None:
            m = values.shape[1]
            return self._table(values, np.eye(m)[None], names, outputs=tuple(f"state {a}" for a in range(m)))
        firsts = [self.of.level_from(edge) for edge in self.edges]
        place = np.searchsorted(np.array(firsts), self._levels(), side="right")
        parts = np.eye(len(firsts) + 1, dtype=np.int64)[place]
        middle = [f"{a:g} to {b:g}" for a, b in itertools.pairwise(self.edges)]
        outputs = (f"below {self.edges[0]:g}", *middle, f"from {self.edges[-1]:g}")
        return self._readings(values, parts, base=0.0, step=1.0, outputs=outputs)


@dataclass(frozen=True, repr=False)
class Identity(_BuiltIn):
    """The whole snapshot, one output per sequence; s_k = k (largest - smallest value).

    >>> Identity().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [0.0, 1.0]
    """

    _plain: ClassVar[str] = "identity"

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """The value, in a block of outputs for each sequence."""
        s = values.shape[0]
        outputs = tuple(names) or tuple(map(str, range(s)))
        return self._table(values, values[:, :, None], names, outputs=outputs, block=np.arange(s))


@dataclass(frozen=True, repr=False)
class Linear(_BuiltIn):
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
        object.__setattr__(self, "weights", tuple(to_lattice(numbers).tolist()))
        object.__setattr__(self, "of", of)

    @property
    def name(self) -> str:
        """Short name, with the weights if they are few."""
        first = ",".join(f"{w:g}" for w in self.weights[:8])
        readings = "" if self.of is None else " of readings"
        return f"linear:{first}{',...' if len(self.weights) > 8 else ''}{readings}"

    @property
    def _plain(self) -> str:
        return f"linear:{','.join(map(repr, self.weights))}"

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """Weight times value, or weight times level."""
        sequences = values.shape[0]
        if len(self.weights) != sequences:
            raise InputError(f"linear: {len(self.weights)} weights given for {sequences} sequences; give one each")
        if self.of is not None:
            return self._readings(values, self._levels()[:, None], shares=np.asarray(self.weights))
        weights = np.asarray(self.weights)
        unequal = bool((weights != weights[0]).any())
        return self._table(values, (weights[:, None] * values)[:, :, None], names, needs_all=unequal)


class _Extreme(_BuiltIn):
    """The largest or the smallest value, as the name says."""

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """The value itself; the largest or the smallest counts."""
        return self._table(values, values[:, :, None], names, fold=self._plain)


@dataclass(frozen=True, repr=False)
class Max(_Extreme):
    """Largest value; s_k = largest - smallest value, whatever k.

    >>> Max().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [1.0]
    """

    _plain: ClassVar[str] = "max"


@dataclass(frozen=True, repr=False)
class Min(_Extreme):
    """Smallest value; s_k = largest - smallest value, whatever k.

    >>> Min().evaluate([0, 1], np.array([[0.0, 1.0]] * 2)).tolist()
    [0.0]
    """

    _plain: ClassVar[str] = "min"


@dataclass(frozen=True, eq=False)
class Custom(Query):
    """A custom query: a table of contributions, or a function of the snapshot's values that is tabulated once.

    A table has one contribution for every sequence and state, (s, m), or several outputs of each, (s, m, d). They are
    folded by their sum, the largest or the smallest (one output), and divided by `divisor` in the end. They are put on
    a lattice of 2^-20 of the largest. A function gives a number, or d numbers, for the values of a snapshot; it is
    called once for every snapshot, of which there may be 4,096.

    >>> alarms = Custom([[0, 1], [0, 5]], name="alarms")
    >>> alarms.sensitivity(1, np.zeros((2, 2))), alarms.evaluate([1, 0], np.zeros((2, 2))).tolist()
    (5.0, [1.0])
    >>> Custom(lambda v: v.max() - v.min(), name="spread").sensitivity(1, np.array([[0.0, 1.0]] * 3))
    1.0
    """

    contributions: Floats | None = field(repr=False)
    function: Callable[[Floats], Any] | None = field(repr=False)
    fold: Fold
    divisor: float
    label: str

    def __init__(
        self,
        table: npt.ArrayLike | Callable[[Floats], Any],
        *,
        fold: Fold = "sum",
        divisor: float = 1.0,
        name: str = "custom",
    ) -> None:
        check.choice("custom fold", fold, ("sum", "max", "min"))
        divisor = check.number("custom divisor", divisor, above=0)
        check.text("custom name", name)
        is_function = callable(table)
        if is_function and (fold != "sum" or divisor != 1.0):
            raise InputError("custom: fold and divisor belong to a table; a function of the snapshot needs neither")
        object.__setattr__(self, "function", table if is_function else None)
        object.__setattr__(self, "contributions", None if is_function else _read_contributions(table, fold))
        object.__setattr__(self, "fold", fold)
        object.__setattr__(self, "divisor", divisor)
        object.__setattr__(self, "label", name)

    @property
    def name(self) -> str:
        """The name given."""
        return self.label

    @property
    def text(self) -> str:
        """The name: no text can be read back as a custom query."""
        return self.label

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """The table as it was given, or that of the function."""
        if self.contributions is None:
            return self._tabulated(values, names, on_lattice=on_lattice)
        if self.contributions.shape[:2] != values.shape:
            raise InputError(
                f"query {self.name}: a table of shape {self.contributions.shape} given; (sequences, states, outputs) = "
                f"({values.shape[0]}, {values.shape[1]}, d) expected"
            )
        return FoldTable(
            name=self.name,
            text=self.text,
            fold=self.fold,
            rows=self.contributions,
            denominator=self.divisor,
            needs_all=self.divisor != 1.0,
            table=values,
            outputs=self._outputs(self.contributions.shape[2]),
            source=self,
            names=tuple(names),
            custom=True,
        )

    def _outputs(self, count: int) -> tuple[str, ...]:
        return (self.name,) if count == 1 else tuple(f"{self.name} {i}" for i in range(count))

    def _tabulated(self, values: Floats, names: Sequence[str], *, on_lattice: bool) -> FunctionTable:
        s, m = values.shape
        if not is_enumerable(s, m):
            raise InputError(
                f"query {self.name}: {m}**{s} snapshots are too many to tabulate a function (at most "
                f"{ENUMERATION_STATES:,}); give Custom a table of contributions, (sequences, states), instead"
            )
        assert self.function is not None
        try:
            returned = [self.function(row) for row in values[np.arange(s), all_snapshots(s, m)]]
            answers = np.array([np.atleast_1d(np.asarray(answer, dtype=np.float64)) for answer in returned])
        except (TypeError, ValueError) as error:
            raise InputError(f"query {self.name}: the function failed ({type(error).__name__}: {error})") from error
        if answers.ndim != 2 or not answers.shape[1] or not np.isfinite(answers).all():
            raise InputError(
                f"query {self.name}: the function must return a finite number, or always the same count of them"
            )
        return FunctionTable(
            name=self.name,
            exact=answers,
            table=values,
            outputs=self._outputs(answers.shape[1]),
            on_lattice=on_lattice,
            source=self,
            names=tuple(names),
        )


def _read_contributions(table: Any, fold: Fold) -> Floats:
    try:
        numbers = np.array(table, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    numbers = numbers[:, :, None] if numbers.ndim == 2 else numbers
    if numbers.ndim != 3 or not numbers.size or not np.isfinite(numbers).all():
        raise InputError(
            "custom: a function of a snapshot's values, or a table of finite numbers (sequences, states) or "
            "(sequences, states, outputs) expected"
        )
    if fold != "sum" and numbers.shape[2] > 1:
        raise InputError(f"custom: the {fold} of contributions to several outputs; one output, or several queries")
    return to_lattice(numbers)


@dataclass(frozen=True)
class PerGroup(Query):
    """A sum, count, histogram or another undivided sum of every group of sequences, all in one release; or its text.

    s_k is that of the query over all: every record is in one group.

    >>> PerGroup("sum", ((0, 1), (2,))).evaluate([0, 1, 1], np.array([[0.0, 1.0]] * 3)).tolist()
    [1.0, 1.0]
    """

    query: Query
    groups: Groups

    def __init__(self, query: Query | str, groups: Sequence[Sequence[int]]) -> None:
        inner = to_query(query)
        if getattr(inner, "of", None) is not None:
            raise InputError(f"per group: {inner.name} given; groups are of states so far, leave of= out")
        is_sum = isinstance(inner, Sum | Count | Histogram | Linear)
        if isinstance(inner, Custom):
            is_sum = inner.contributions is not None and inner.fold == "sum" and inner.divisor == 1.0
        if not is_sum:
            raise InputError(
                f"per group: {inner.name} given; sum, count or histogram (a mean is the sum, divided afterwards), or "
                "another sum of contributions without a divisor"
            )
        object.__setattr__(self, "query", inner)
        object.__setattr__(self, "groups", tuple(tuple(int(i) for i in group) for group in groups))
        listed = sorted(i for group in self.groups for i in group)
        if not listed or listed != list(range(len(listed))) or not all(self.groups):
            raise InputError("per group: every sequence must be in exactly one group, and no group may be empty")

    @property
    def name(self) -> str:
        """Short name, with the number of groups."""
        return f"{self.query.name} of {len(self.groups)} groups"

    @property
    def text(self) -> str:
        """The query of every group as `parse_query` reads it; the groups are not part of it."""
        return self.query.text

    def on(self, values: Floats, names: Sequence[str] = (), *, on_lattice: bool = False) -> QueryTable:
        """The contributions of the query, in the block of the sequence's group."""
        labels = group_labels(self.groups)
        if values.shape[0] != labels.size:
            raise InputError(f"per group: groups of {labels.size} sequences given for {values.shape[0]}")
        inner: FoldTable = self.query.on(values, names)
        if len(self.groups) * inner.width > MAX_OUTPUTS:
            raise InputError(
                f"per group: {len(self.groups) * inner.width:,} outputs of {len(values):,} sequences; use larger groups"
            )
        return FoldTable(
            name=self.name,
            text=self.text,
            rows=inner.rows,
            block=labels,
            table=values,
            outputs=tuple(f"group {g + 1}: {name}" for g in range(len(self.groups)) for name in inner.outputs),
            needs_all=True,
            groups=self.groups,
            source=self,
            names=tuple(names),
            custom=inner.custom,
        )


def group_labels(groups: Groups) -> Indices:
    """The number of the group of every sequence.

    >>> group_labels(((0, 2), (1,))).tolist()
    [0, 1, 0]
    """
    labels = np.empty(sum(map(len, groups)), dtype=np.intp)
    for number, group in enumerate(groups):
        labels[list(group)] = number
    return labels


# ---- text ------------------------------------------------------------------------------------------------------------

#: The queries without arguments, by name.
_WHOLE: dict[str, Callable[[], Query]] = {
    "mean": Mean,
    "sum": Sum,
    "max": Max,
    "min": Min,
    "histogram": Histogram,
    "identity": Identity,
}


def parse_query(text: str) -> Query:
    """The query of a text: mean, sum, max, min, count:STATE, share:STATE, histogram, identity, linear:W1,W2,...

    Of readings, clipped to a range: mean, sum, linear:W1,W2,..., count:FROM..BELOW or histogram:EDGE1,EDGE2,...,
    followed by `of readings LOW..HIGH by RESOLUTION`.

    >>> parse_query("count:1"), parse_query("mean of readings 0..1 by 0.01")
    (Count(state=1), Mean(of=ReadingRange(low=0.0, high=1.0, resolution=0.01)))
    """
    plain, separator, declared = text.strip().lower().partition(OF_READINGS)
    if separator:
        return with_readings(plain, ReadingRange.parse(declared))
    head, _, tail = plain.partition(":")
    if head in _WHOLE and not tail:
        return _WHOLE[head]()
    try:
        if head in {"count", "share"}:
            return Count(int(tail)) if head == "count" else Share(int(tail))
        if head == "linear":
            return Linear([float(w) for w in tail.split(",")])
    except ValueError:
        pass
    raise InputError(
        f"query: {text!r} given; use mean, sum, max, min, histogram, identity, count:STATE, share:STATE or "
        "linear:W1,W2,..."
    )


def describe(table: QueryTable) -> str:
    """What a table computes, of how many sequences.

    >>> describe(Share(1).on(np.array([[0.0, 1.0]] * 4))), describe(Mean().on(np.zeros((1, 2))))
    ('share of 4 sequences in state 1', 'mean of one sequence')
    """
    whom = "one sequence" if table.sequences == 1 else f"{table.sequences:,} sequences"
    source = table.source
    if isinstance(source, Share | Count) and source.state is not None:
        return f"{'share' if isinstance(source, Share) else 'number'} of {whom} in state {source.state}"
    return f"{table.name} of {whom}"


def to_query(query: Query | str) -> Query:
    """A query as it is, or the one of a text, as on the command line: every function that takes a query starts here.

    >>> to_query("mean"), to_query(Mean())
    (Mean(), Mean())
    """
    if isinstance(query, str):
        return parse_query(query)
    if not isinstance(query, Query):
        hint = (
            "an instance, Mean() not Mean"
            if isinstance(query, type)
            else "Mean(), Max(), Custom(...), ... or a text such as 'mean'"
        )
        raise InputError(f"query: {query!r} given; expected {hint}")
    return query


def with_readings(text: str, of: ReadingRange) -> Query:
    """The query of a text, of readings in a range.

    >>> with_readings("count:0.5..", ReadingRange(0, 1, 0.1)).text
    'count:0.5.. of readings 0..1 by 0.1'
    """
    head, _, tail = text.strip().lower().partition(":")
    try:
        if head in {"mean", "sum"} and not tail:
            return Mean(of=of) if head == "mean" else Sum(of=of)
        if head == "linear":
            return Linear([float(w) for w in tail.split(",")], of=of)
        if head == "histogram":
            return Histogram(edges=tuple(float(edge) for edge in tail.split(",")), of=of)
        if head == "count" and ".." in tail:
            first, last = (float(end) if end.strip() else None for end in tail.split("..", 1))
            return Count(at_least=first, below=last, of=of)
    except InputError:
        raise
    except ValueError:
        pass
    raise InputError(
        f"query: {text!r} of readings given; use mean, sum, linear:W1,W2,..., count:FROM..BELOW (either may be left "
        "out) or histogram:EDGE1,EDGE2,..."
    )
