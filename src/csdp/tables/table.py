"""One relational program in narwhals that reads a table of readings for a plan, on DuckDB or on Spark.

Aging shifts a row to `tick + age`; there is no self-join. One pass checks the table and folds what its rows contribute.
Only if readings are missing, or if a release has many outputs, is the table read again. All sums are of whole numbers
below 2^53, so memory, DuckDB and Spark agree to the last bit.

A tick is whole if every sequence has one reading. This is checked without listing the rows: each of the s sequences has
two secret random whole numbers below 2^b, b = 53 - bits of s; over the s rows of a whole tick they sum to that of
all sequences. A tick of s rows that repeats some sequences and lacks others passes as whole with probability at most
2^-2b (2^-72 for 100,000 sequences), for any table. Other ticks are then examined row by row.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Self

import narwhals as nw
import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Bools, Floats, Indices, Ints
from csdp.panel.times import consecutive_ticks, find_step, parse_step, read_times
from csdp.plan import Plan
from csdp.query_table import FoldTable
from csdp.readings import ReadingsTable

#: Largest number of different times and ages.
MAX_GROUPS = 20_000_000
#: Codes in the column of states for rows that make the table unusable; a missing reading is null.
_UNDECLARED, _INFINITE, _UNKNOWN = -1, -2, -3


@dataclass(frozen=True, eq=False)
class LongFrame:
    """A table with the columns time, sequence and value, in the engine that holds it.

    `lift` makes a frame of the same engine from a small Arrow table; `guard` replaces errors of the engine, whose
    messages may quote readings; `states`: values are state numbers.
    """

    label: str
    rows: nw.LazyFrame[Any]
    lift: Callable[[Any], nw.LazyFrame[Any]]
    guard: Callable[[], AbstractContextManager[None]]
    close: Callable[[], None]
    states: bool = False


@dataclass(frozen=True, eq=False)
class _Contributions:
    """What a reading adds to the answers, in whole lattice units.

    `parts` (s, n, w), or (1, n, w) if sequences are alike: by state, or by level of a reading; `shares` (s,), or (1,):
    the weights of the sequences; `block` (s,): the block of w outputs that a sequence moves.
    """

    fold: str
    parts: Ints
    shares: Ints
    block: Indices
    unit: float

    @classmethod
    def of(cls, plan: Plan) -> _Contributions:
        query = plan.query
        if isinstance(query, ReadingsTable):
            unit = query.unit if query.shares.size > 1 else float(query.shares[0])
            shares = np.rint(query.shares / unit).astype(np.int64)
            return cls("sum", query.parts[None], shares, np.zeros(query.sequences, dtype=np.intp), unit)
        if not isinstance(query, FoldTable):
            raise InputError(
                f"table: the plan publishes {query.name}, a function of the whole snapshot; read the file in memory"
            )
        parts = np.rint(query.rows / query.unit).astype(np.int64)
        return cls(query.fold, parts, np.ones(1, dtype=np.int64), query.block, query.unit)

    @property
    def blocks(self) -> int:
        return int(self.block.max()) + 1

    @property
    def width(self) -> int:
        return int(self.parts.shape[2])

    def start(self, shape: tuple[int, ...]) -> Floats:
        """Answers before anything is folded into them."""
        return np.full(shape, {"sum": 0.0, "max": -np.inf, "min": np.inf}[self.fold])

    def fold_into(self, answers: Floats, place: tuple[Any, ...], parts: Floats) -> None:
        {"sum": np.add, "max": np.maximum, "min": np.minimum}[self.fold].at(answers, place, parts)

    def aggregates(self) -> dict[str, nw.Expr]:
        return {f"part_{j}": getattr(nw.col(f"part_{j}"), self.fold)() for j in range(self.width)}


@dataclass(frozen=True, eq=False)
class _Survey:
    """The clock of a table, its groups by time and age, and which ticks are whole."""

    ticks: Ints
    times: npt.NDArray[Any]
    step: int
    raw: Any  #: distinct times as in the table
    at: Ints  #: their ticks
    slices: Ints  #: tick of every group
    groups: Any
    whole: Bools


@dataclass(frozen=True, eq=False)
class _Totals:
    """Of every tick t: sequences read for it, steps by which the stalest is late, and answers (T, w) on the lattice."""

    read: Ints
    late: Ints
    answers: Floats


@dataclass(eq=False)
class Table:
    """A table of readings as a source for the publisher of one plan: `publisher.publish(table)`.

    The table holds readings of the plan's chain: known sequences, declared values, at most one reading of each sequence
    at each time of a regular grid. Any other is refused before anything is charged. No message quotes a reading.
    Noise is drawn by the gate, never here.
    """

    frame: LongFrame = field(repr=False)
    plan: Plan = field(repr=False)
    declared_step: int | str | None = None

    def __post_init__(self) -> None:
        self.plan.check_exact()
        self._contributions = _Contributions.of(self.plan)

    def close(self) -> None:
        """Release the resources of the engine."""
        self.frame.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- as a source ---------------------------------------------------------------------------------------------

    @property
    def ticks(self) -> Ints:
        """Consecutive ticks, from the first to the last that has a reading."""
        return self._survey.ticks

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, as they were read."""
        return self._survey.times

    @property
    def step(self) -> int:
        """Time from one tick to the next."""
        return self._survey.step

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """For each tick: staleness, and why it cannot be released; depends only on which readings are missing."""
        self._check_plan(plan)
        reasons = fran.reasons_against(plan, self._totals.read)
        return zip(self.ticks.tolist(), self._totals.late.tolist(), reasons, strict=True)

    def counts(self, plan: Plan, ticks: Sequence[int]) -> list[int]:
        """How many sequences were read at the aged ticks of some ticks."""
        self._check_plan(plan)
        return [int(count) for count in self._totals.read[self._places(ticks)]]

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks, exact, on the plan's lattice."""
        self._check_plan(plan)
        if self._contributions.blocks == 1:
            return self._totals.answers[self._places(ticks)]
        return self._answer_blocks(ticks)

    def _places(self, ticks: Sequence[int]) -> Ints:
        return np.asarray(ticks, dtype=np.int64) - int(self.ticks[0])

    def _check_plan(self, plan: Plan) -> None:
        if plan is not self.plan and plan.digest != self.plan.digest:
            raise InputError("table: it was opened for another plan; open it for the plan that publishes it")

    # ---- rows ----------------------------------------------------------------------------------------------------

    def _collect(self, frame: nw.LazyFrame[Any]) -> Any:
        """The result as an Arrow table."""
        with self.frame.guard():
            return frame.collect("pyarrow").to_native()

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.plan.model.names)

    @cached_property
    def _several_ages(self) -> bool:
        return len(set(self.plan.ages)) > 1

    @cached_property
    def _weights(self) -> Floats:
        """Two secret whole numbers for each sequence (2, s)."""
        count = len(self._names)
        bits = 53 - count.bit_length()
        words = np.frombuffer(secrets.token_bytes(16 * count), dtype=np.uint64).reshape(2, count)
        return (words >> np.uint64(64 - bits)).astype(np.float64)

    @cached_property
    def _sequences(self) -> nw.LazyFrame[Any]:
        """One row per sequence: its place in the chain, age and block of outputs, and what differs between them."""
        import pyarrow as pa

        made = self._contributions
        columns: dict[str, Any] = {
            "name": self._name_column(),
            "idx": np.arange(len(self._names), dtype=np.int32),
            "w": self._weights[0],
            "w2": self._weights[1],
        }
        if self._several_ages:
            columns["age"] = np.asarray(self.plan.ages, dtype=np.int64)
        if made.blocks > 1:
            columns["block"] = made.block.astype(np.int64)
        if made.shares.size > 1:
            columns["share"] = made.shares.astype(np.float64)
        if made.parts.shape[0] > 1:
            for state, j in np.ndindex(*made.parts.shape[1:]):
                columns[f"part_{state}_{j}"] = made.parts[:, state, j].astype(np.float64)
        if self._values.shape[0] > 1:
            columns |= self._value_columns()
        return self.frame.lift(pa.table(columns))

    def _name_column(self) -> Any:
        """Names in the type of the table's column: text, or whole numbers with null for a name that is none."""
        import pyarrow as pa

        names = [name.strip() for name in self._names]
        kind = self.frame.rows.collect_schema()["sequence"]
        if not kind.is_integer():
            return pa.array(names, pa.string())
        numbers = [int(name) if name.removeprefix("-").isdecimal() and name.isascii() else None for name in names]
        same = [n if n is not None and str(n) == name else None for n, name in zip(numbers, names, strict=True)]
        # The narrowest type that fits: joins of equal types are fastest.
        small = all(n is None or abs(n) < 2**31 for n in same)
        return pa.array(same, pa.int32() if small and kind != nw.Int64 else pa.int64())

    # ---- states and levels ---------------------------------------------------------------------------------------

    @cached_property
    def _values(self) -> Floats:
        """Values that cells may have, (s, m), or (1, m) if sequences are alike."""
        model = self.plan.model
        if self.frame.states:
            return np.arange(float(model.states))[None]
        values = np.asarray(model.values, dtype=np.float64)
        table = values[None] if values.ndim == 1 else values
        return table[:1] if (table == table[0]).all() else table

    def _value_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Values in ascending order, their states, the middles between them, and how far a reading may be from one."""
        order = np.argsort(self._values, axis=1)
        levels = np.take_along_axis(self._values, order, axis=1)
        gaps = np.diff(levels, axis=1)
        least = np.min(np.where(gaps > 0, gaps, np.inf), axis=1, initial=np.inf)
        columns = {"tolerance": np.minimum(1e-5 * float(np.abs(self._values).max()), least / 2)}
        for k in range(levels.shape[1]):
            columns[f"level_{k}"] = levels[:, k]
            columns[f"state_{k}"] = order[:, k].astype(np.int32)
        for k in range(gaps.shape[1]):
            columns[f"middle_{k}"] = (levels[:, k] + levels[:, k + 1]) / 2
        return columns

    def _state(self, value: nw.Expr, unknown: nw.Expr) -> nw.Expr:
        """The state of a reading, or a code; null if it is missing. `unknown`: whether its sequence is."""
        columns = self._value_columns()

        def known(name: str) -> nw.Expr:
            return nw.col(name) if self._values.shape[0] > 1 else nw.lit(columns[name][0].item())

        def chosen(kind: str) -> nw.Expr:
            nearest = known(f"{kind}_0")
            for k in range(1, self._values.shape[1]):
                nearest = nw.when(value > known(f"middle_{k - 1}")).then(known(f"{kind}_{k}")).otherwise(nearest)
            return nearest

        state = chosen("state")
        if self.plan.query.of_states:  # of readings that are published, the states decide nothing
            far = (chosen("level") - value).abs() > known("tolerance")
            state = nw.when(far).then(nw.lit(_UNDECLARED)).otherwise(state)
        finite = nw.when(value.abs() < nw.lit(np.inf)).then(state).otherwise(nw.lit(_INFINITE))
        there = nw.when(~(value.is_null() | value.is_nan())).then(finite)
        return nw.when(unknown).then(nw.lit(_UNKNOWN)).otherwise(there).cast(nw.Int32)

    def _level(self, value: nw.Expr) -> nw.Expr:
        """The level of a finite reading, by the double arithmetic of `ReadingRange.levels`: ties to the even level."""
        query = self.plan.query
        assert isinstance(query, ReadingsTable)
        place = (value - nw.lit(float(query.of.low))) / nw.lit(float(query.of.resolution))
        place = nw.when(place > 0.0).then(place).otherwise(nw.lit(0.0))
        place = nw.when(place < float(query.of.steps)).then(place).otherwise(nw.lit(float(query.of.steps)))
        below = place.floor()
        odd = below - (below / 2.0).floor() * 2.0 == 1.0
        up = (place - below > 0.5) | ((place - below == 0.5) & odd)
        return nw.when(up).then(below + 1.0).otherwise(below)

    @cached_property
    def _joined(self) -> nw.LazyFrame[Any]:
        """Rows of the table with their sequence."""
        return self.frame.rows.join(self._sequences, left_on="sequence", right_on="name", how="left")

    @cached_property
    def _rows(self) -> nw.LazyFrame[Any]:
        """Rows of the table with their sequence, state and contributions."""
        return self._contribute(self._joined, nw.col("idx").is_null())

    def _contribute(self, rows: nw.LazyFrame[Any], unknown: nw.Expr) -> nw.LazyFrame[Any]:
        """Add states and contributions to rows; parts are null if a reading is missing."""
        made = self._contributions
        rows = rows.with_columns(nw.col("value").cast(nw.Float64))
        rows = rows.with_columns(state=self._state(nw.col("value"), unknown))
        if self.plan.query.of_states:
            parts = {f"part_{j}": self._part_of_state(j) for j in range(made.width)}
        else:
            rows = rows.with_columns(level=self._level(nw.col("value")))
            parts = {f"part_{j}": self._part_of_level(j) for j in range(made.width)}
        known = nw.col("state") >= 0
        return rows.with_columns(**{name: nw.when(known).then(part) for name, part in parts.items()})

    def _part_of_state(self, j: int) -> nw.Expr:
        parts = self._contributions.parts
        each = [
            nw.col(f"part_{a}_{j}") if parts.shape[0] > 1 else nw.lit(float(parts[0, a, j]))
            for a in range(parts.shape[1])
        ]
        steps = list(enumerate(each))
        return reduce(
            lambda rest, step: nw.when(nw.col("state") == step[0]).then(step[1]).otherwise(rest), steps[1:], steps[0][1]
        )

    def _part_of_level(self, j: int) -> nw.Expr:
        """What a level adds: itself, or a step function of it, written as the places at which it changes."""
        made = self._contributions
        column = made.parts[0, :, j]
        if np.array_equal(column, np.arange(column.size)):
            part: nw.Expr = nw.col("level")
        else:
            part = nw.lit(float(column[0]))
            for level in np.flatnonzero(np.diff(column)) + 1:
                part = nw.when(nw.col("level") >= float(level)).then(nw.lit(float(column[level]))).otherwise(part)
        return part * nw.col("share") if made.shares.size > 1 else part

    # ---- one pass ------------------------------------------------------------------------------------------------

    @cached_property
    def _survey(self) -> _Survey:
        """Read the whole table once; raise InputError if it is not a table of the chain's readings."""
        label, made = self.frame.label, self._contributions
        keys = ["time", "age"] if self._several_ages else ["time"]
        rows = self._count_cells(keys) if self._has_few_cells else self._rows.with_columns(n=nw.lit(1.0))
        groups = self._collect(
            rows.group_by(*keys)
            .agg(
                nw.col("n").sum(),
                read=nw.when(~nw.col("state").is_null()).then(nw.col("n")).sum(),
                worst=nw.col("state").min(),
                w=nw.col("w").sum(),
                w2=nw.col("w2").sum(),
                **(made.aggregates() if made.blocks == 1 else {}),
            )
            .head(MAX_GROUPS + 1)
        )
        if not groups.num_rows:
            raise InputError(f"{label}: no rows")
        if groups.num_rows > MAX_GROUPS:
            raise TooLargeError(
                f"{label}: more than {MAX_GROUPS:,} different times; split the table, or round its times to the grid",
                needed=groups.num_rows,
                limit=MAX_GROUPS,
            )
        self._check_states(groups)
        survey = self._find_clock(groups)
        self._check_repeated(survey)
        return survey

    @cached_property
    def _has_few_cells(self) -> bool:
        """Whether cells are small whole numbers, and sequences are alike: it is faster to count equal cells first."""
        made, kind = self._contributions, self.frame.rows.collect_schema()["value"]
        alike = self._values.shape[0] == made.parts.shape[0] == made.blocks == 1
        return alike and self.plan.query.of_states and kind in {nw.Int8, nw.UInt8, nw.Int16, nw.UInt16, nw.Boolean}

    def _count_cells(self, keys: list[str]) -> nw.LazyFrame[Any]:
        """Equal cells of one time as one row, with how many they are."""
        made, n = self._contributions, nw.col("n")
        counted = self._joined.group_by(*keys, "value").agg(
            nw.len().cast(nw.Float64).alias("n"),
            nw.col("idx").count().alias("known"),
            nw.col("w").sum(),
            nw.col("w2").sum(),
        )
        rows = self._contribute(counted, nw.col("known") < n)
        if made.fold != "sum":
            return rows
        return rows.with_columns(*(nw.col(f"part_{j}") * n for j in range(made.width)))

    def _check_states(self, groups: Any) -> None:
        label, worst = self.frame.label, groups.column("worst").drop_null().to_numpy().min(initial=0)
        if worst == _UNKNOWN:
            unknown = self._rows.filter(nw.col("idx").is_null()).select("sequence").head(1)
            [name] = self._collect(unknown).column(0).to_pylist()
            if name is None or not str(name):
                raise InputError(f"{label}: column 'sequence' has empty cells; every reading needs its sequence")
            known = ", ".join(name.strip() for name in self._names[:8])
            raise InputError(f"{label}: unknown sequence {str(name)!r}; the chain names {known}")
        if worst == _INFINITE:
            raise InputError(f"{label}: infinite readings; leave missing cells empty")
        if worst == _UNDECLARED:
            # The reading itself is private.
            raise InputError(
                f"{label}: some readings are none of the {self.plan.model.states} declared values of their sequence; "
                "declare the values in the chain"
            )

    def _find_clock(self, groups: Any) -> _Survey:
        import pyarrow as pa

        label = self.frame.label
        if groups.column("time").null_count:
            raise InputError(f"{label}: column 'time' must hold whole numbers or timestamps throughout")
        encoded = groups.column("time").combine_chunks().dictionary_encode()
        clock = read_times(label, "time", pa.chunked_array([encoded.dictionary]), None)
        distinct = np.unique(clock.numbers)
        declared = None if self.declared_step is None else parse_step(self.declared_step, stamps=clock.stamps)
        step = find_step(label, clock, distinct, declared)
        ticks, times = consecutive_ticks(label, clock, distinct, step)
        at = clock.numbers // (step * clock.per_second)
        slices = at[encoded.indices.to_numpy()]
        whole = np.ones(ticks.size, dtype=bool)
        expected = len(self._names)
        for name, total in (
            ("n", expected),
            ("read", expected),
            *zip(("w", "w2"), self._weights.sum(axis=1), strict=True),
        ):
            added = np.zeros(ticks.size)
            np.add.at(added, slices - ticks[0], _numbers(groups, name))
            whole &= added == total
        return _Survey(ticks, times, step, encoded.dictionary, at, slices, groups, whole)

    def _at_ticks(self, survey: _Survey, chosen: Bools) -> nw.LazyFrame[Any]:
        """Rows at the chosen times of the table, with their ticks."""
        import pyarrow as pa

        clock = self.frame.lift(pa.table({"time": survey.raw.filter(pa.array(chosen)), "tick": survey.at[chosen]}))
        return self._rows.join(clock, on="time", how="inner")

    def _check_repeated(self, survey: _Survey) -> None:
        """Raise InputError for two readings of a sequence at one tick, also if one of them is empty."""
        suspect = ~survey.whole[survey.at - survey.ticks[0]]
        if not suspect.any():
            return
        twice = self._collect(
            self._at_ticks(survey, suspect)
            .group_by("tick", "idx")
            .agg(n=nw.len())
            .filter(nw.col("n") > 1)
            .sort("tick", "idx")
            .head(1)
        )
        if twice.num_rows:
            time = survey.times[int(twice.column("tick")[0].as_py()) - int(survey.ticks[0])]
            name = self._names[int(twice.column("idx")[0].as_py())]
            raise InputError(f"{self.frame.label}: two readings of {name!r} at time {time}; keep one")

    # ---- answers -------------------------------------------------------------------------------------------------

    def _slices(self, low: int, high: int) -> nw.LazyFrame[Any]:
        """Known readings at slices low to high: where a reading is missing, the last one, up to the stale limit."""
        import pyarrow as pa

        survey, plan = self._survey, self.plan
        limit = 0 if survey.whole.all() else plan.stale_limit
        known = self._at_ticks(survey, (survey.at >= low - limit) & (survey.at <= high)).filter(
            ~nw.col("state").is_null()
        )
        if not limit:
            return known.with_columns(slice=nw.col("tick"), late=nw.lit(0))
        following = nw.col("tick").shift(-1).over("idx", order_by="tick")
        offsets = self.frame.lift(pa.table({"late": np.arange(limit + 1, dtype=np.int64)}))
        return (
            known.with_columns(following=following)
            .join(offsets, how="cross")
            .with_columns(slice=nw.col("tick") + nw.col("late"))
            .filter(
                (nw.col("slice") >= low)
                & (nw.col("slice") <= high)
                & (nw.col("following").is_null() | (nw.col("slice") < nw.col("following")))
            )
        )

    @cached_property
    def _totals(self) -> _Totals:
        """Answers of every tick, if they are few, and what they rest on; the aged tick of a slice is slice + age."""
        survey, made = self._survey, self._contributions
        groups, slices = survey.groups, survey.slices
        carried = self.plan.stale_limit > 0 and not survey.whole.all()
        if carried:
            keys = ["slice", "age"] if self._several_ages else ["slice"]
            groups = self._collect(
                self._slices(int(survey.ticks[0]), int(survey.ticks[-1]))
                .group_by(*keys)
                .agg(read=nw.len(), late=nw.col("late").max(), **(made.aggregates() if made.blocks == 1 else {}))
            )
            slices = _numbers(groups, "slice").astype(np.int64)
        age = _numbers(groups, "age").astype(np.int64) if self._several_ages else self.plan.max_age
        place = slices - int(survey.ticks[0]) + age
        total = survey.ticks.size
        inside = (place >= self.plan.max_age) & (place < total)
        place = place[inside]
        read = np.zeros(total, dtype=np.int64)
        np.add.at(read, place, _numbers(groups, "read")[inside].astype(np.int64))
        late = np.zeros(total, dtype=np.int64)
        if carried:
            np.maximum.at(late, place, _numbers(groups, "late")[inside].astype(np.int64))
        answers = made.start((total, made.width))
        if made.blocks == 1:
            for j in range(made.width):
                made.fold_into(answers[:, j], (place,), _numbers(groups, f"part_{j}")[inside])
        return _Totals(read, late, answers * made.unit)

    def _answer_blocks(self, ticks: Sequence[int]) -> Floats:
        """Answers (ticks, d) of a query of many outputs, folded by block at the shifted tick."""
        made, plan = self._contributions, self.plan
        low, high = min(ticks), max(ticks)
        rows = self._slices(low - plan.max_age, high - plan.min_age)
        age = nw.col("age") if self._several_ages else nw.lit(plan.max_age)
        groups = self._collect(
            rows.with_columns(aged=nw.col("slice") + age)
            .filter((nw.col("aged") >= low) & (nw.col("aged") <= high))
            .group_by("aged", "block")
            .agg(n=nw.len(), **made.aggregates())
        )
        place = (_numbers(groups, "aged").astype(np.int64) - low, _numbers(groups, "block").astype(np.int64))
        answers = made.start((high - low + 1, made.blocks, made.width))
        read = np.zeros(high - low + 1, dtype=np.int64)
        np.add.at(read, place[0], _numbers(groups, "n").astype(np.int64))
        for j in range(made.width):
            answers[(*place, j)] = _numbers(groups, f"part_{j}")
        chosen = np.asarray(ticks, dtype=np.int64) - low
        if (read[chosen] != len(self._names)).any():
            raise InputError(f"{self.frame.label}: the table changed while it was read; run it again")
        return (answers[chosen] * made.unit).reshape(len(ticks), -1)


def _numbers(groups: Any, name: str) -> Floats:
    """A column of whole numbers; 0 if nothing was added up."""
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(groups.column(name).cast("float64"), 0.0).to_numpy())
