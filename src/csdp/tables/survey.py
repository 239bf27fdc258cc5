"""One pass over a table: check it against the chain, count states or add up readings, find missing and repeated ones.

A tick is whole if every sequence has one reading. This is checked without listing the rows: each of the s sequences has
two secret random whole numbers below 2^b, b = 53 - bits of s; over the s rows of a whole tick they sum to that of
all sequences, exactly in doubles. A tick of s rows that repeats some sequences and lacks others passes as whole with
probability at most 2^-2b (2^-72 for 100,000 sequences), for any table. Other ticks are then examined row by row.

The level of a reading is computed in SQL by the same double arithmetic as `ReadingRange.levels`, ties to the even
level, and all sums are of whole numbers, so the engines agree with the memory to the last bit.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Floats, Ints
from csdp.computation import FoldComputation, ReadingsComputation
from csdp.errors import InputError, TooLargeError
from csdp.fran import NEVER
from csdp.panel import to_states
from csdp.panel.grid import consecutive_ticks, find_step
from csdp.panel.times import TimeColumn, parse_step, read_times
from csdp.plan import Plan
from csdp.tables import sql
from csdp.tables.sql import Domain, LongRelation

#: Largest number of rows (time, age, state) of a survey.
MAX_CELLS = 20_000_000


class Backend(Protocol):
    """What the shared SQL needs of a dialect."""

    layout: LongRelation
    unnest: str

    def run(self, query: str) -> Any:
        """The result as an Arrow table."""

    def register(self, name: str, table: Any) -> None:
        """Make a small Arrow table available under a name."""


@dataclass(frozen=True, eq=False)
class Survey:
    """Result of the pass, for T ticks, G distinct ages, m states.

    `counts` (T, G, m): sequences in each state; `folds` (T, G): folded contributions in lattice units, where the query
    needs them; `whole` (T,): every sequence was read once; `raw`: distinct times as in the table; `at`: their ticks.
    """

    ticks: Ints
    times: npt.NDArray[Any]
    step: int
    ages: tuple[int, ...]
    counts: Ints
    folds: Ints | None
    whole: Bools
    raw: Any
    at: Ints


def dimensions(domain: Domain, plan: Plan | None, *, whole_names: bool) -> tuple[Any, Floats]:
    """Return the table with one row per sequence, and the sums of the two secret weights."""
    import pyarrow as pa

    count = len(domain.names)
    bits = 53 - count.bit_length()
    words = np.frombuffer(secrets.token_bytes(16 * count), dtype=np.uint64).reshape(2, count)
    weights = (words >> np.uint64(64 - bits)).astype(np.float64)
    columns: dict[str, Any] = {
        "name": _names(domain.names, whole_names),
        "idx": np.arange(count, dtype=np.int32),
        "age": np.zeros(count, np.int32) if plan is None else np.asarray(plan.ages, dtype=np.int32),
        "w": weights[0],
        "w2": weights[1],
        **sql.value_columns(domain),
        **dimension_columns(plan),
    }
    return pa.table(columns), weights.sum(axis=1)


def dimension_columns(plan: Plan | None) -> dict[str, npt.NDArray[np.generic]]:
    """Columns of `dimensions` that a plan needs: what a sequence contributes in each state, or its weight."""
    if plan is None or not isinstance(plan.query, ReadingsComputation):
        return sql.contribution_columns(plan)
    query = plan.query
    return {"share": np.rint(query.shares / query.unit).astype(np.int64)} if query.needs_all else {}


def _names(names: tuple[str, ...], whole: bool) -> Any:
    """Names in the type of the table's column: text, or whole numbers with null for a name that is none."""
    import pyarrow as pa

    stripped = [name.strip() for name in names]
    if not whole:
        return pa.array(stripped, pa.string())
    numbers = [int(name) if name.lstrip("-").isascii() and name.lstrip("-").isdigit() else None for name in stripped]
    alike = [n if n is not None and str(n) == name else None for n, name in zip(numbers, stripped, strict=True)]
    # The narrowest type that fits: joins of equal types are fastest.
    return pa.array(alike, pa.int32() if max(map(abs, filter(None, alike)), default=0) < 2**31 else pa.int64())


def survey_table(backend: Backend, domain: Domain, plan: Plan | None, *, step: int | str | None) -> Survey:
    """Read the whole table once; raise InputError if it is not a table of the chain's readings."""
    layout = backend.layout
    table, totals = dimensions(domain, plan, whole_names=layout.whole_names)
    backend.register("dimensions", table)
    ages = tuple(sorted(set(plan.ages))) if plan is not None else (0,)
    groups = backend.run(_query(backend, domain, plan, several=len(ages) > 1))
    if _has_unknown(groups) and not layout.whole_names:
        # Spaces around names mean nothing. They are rare, so names are only trimmed where some are unknown otherwise.
        backend.layout = layout = layout.trim_names()
        groups = backend.run(_query(backend, domain, plan, several=len(ages) > 1))
    if not groups.num_rows:
        raise InputError(f"{layout.label}: no rows")
    if groups.num_rows > MAX_CELLS:
        raise TooLargeError(
            f"{layout.label}: more than {MAX_CELLS:,} different times; split the table, or round its times to the grid",
            needed=groups.num_rows,
            limit=MAX_CELLS,
        )
    states = _states(layout, domain, plan, groups)
    _check_rows(backend, domain, groups, states)
    encoded = groups.column("time").combine_chunks().dictionary_encode()
    clock = _clock(layout, groups.column("time"), encoded.dictionary)
    distinct = np.unique(clock.numbers)
    every = find_step(layout.label, clock, distinct, None if step is None else parse_step(step, stamps=clock.stamps))
    ticks, times = consecutive_ticks(layout.label, clock, distinct, every)
    at = clock.numbers // (every * clock.per_second)
    row = (at - ticks[0])[encoded.indices.to_numpy()]
    age = np.searchsorted(ages, groups.column("age").to_numpy()) if len(ages) > 1 else np.zeros(len(row), dtype=np.intp)
    n = groups.column("n").to_numpy()
    known = states >= 0
    counts = np.zeros((ticks.size, len(ages), domain.states), dtype=np.int64)
    np.add.at(counts, (row[known], age[known], states[known]), n[known])
    whole = counts.sum(axis=(1, 2)) == len(domain.names)
    whole[row[~known]] = False
    for name, expected in zip(("f", "f2"), totals, strict=True):
        weights = np.zeros(ticks.size)
        np.add.at(weights, row[known], groups.column(name).to_numpy()[known])
        whole &= weights == expected
    folds = fold_contributions(groups.filter(known), plan, (row[known], age[known]), (ticks.size, len(ages)))
    return Survey(ticks, times, every, ages, counts, folds, whole, encoded.dictionary, at)


def _query(backend: Backend, domain: Domain, plan: Plan | None, *, several: bool) -> str:
    count = "count(*) AS n, count(w) AS known, sum(w) AS f, sum(w2) AS f2"
    age = "age, " if several else ""
    if _has_raw_cells(backend.layout, domain, plan):
        # Group by the raw cells: they have few distinct values, which `_states` maps to states afterwards.
        rows = f"({backend.layout.relation}) r LEFT JOIN dimensions d ON r.sequence = d.name"
        query = f"SELECT time, {age}value AS cell, {count} FROM {rows} GROUP BY time, {age}value"
    else:
        rows = sql.readings(backend.layout, domain, dimension_columns(plan))
        folds = sql.folded_column(plan)
        query = f"SELECT time, {age}st AS cell, {count}{folds} FROM ({rows}) a GROUP BY time, {age}st"
    return f"{query} LIMIT {MAX_CELLS + 1}"


def _has_raw_cells(layout: LongRelation, domain: Domain, plan: Plan | None) -> bool:
    return layout.cells == "small" and domain.alike and not sql.has_own_contributions(plan)


def _states(layout: LongRelation, domain: Domain, plan: Plan | None, groups: Any) -> Ints:
    """States of the groups, or the codes of `csdp.tables.sql` for those without one."""
    import pyarrow as pa

    cells = groups.column("cell")
    if not _has_raw_cells(layout, domain, plan):
        return np.asarray(cells.to_numpy(), dtype=np.int64)
    distinct = cells.combine_chunks().dictionary_encode(null_encoding="encode")
    numbers = distinct.dictionary.cast(pa.int8() if pa.types.is_boolean(cells.type) else cells.type).cast(pa.float64())
    values = numbers.to_numpy(zero_copy_only=False)
    code = np.empty(values.size, dtype=np.int64)
    for k, value in enumerate(values):
        try:
            outside: Any = "clamp" if domain.clamp else "refuse"
            code[k] = to_states(np.array([[value]]), domain.values[None, :], outside=outside)[0, 0]
        except InputError:
            code[k] = sql.UNDECLARED
    return np.asarray(code[distinct.indices.to_numpy()])


def _has_unknown(groups: Any) -> bool:
    return int(groups.column("n").to_numpy().sum()) != int(groups.column("known").to_numpy().sum())


def _check_rows(backend: Backend, domain: Domain, groups: Any, states: Ints) -> None:
    n = groups.column("n").to_numpy()
    label = backend.layout.label
    if _has_unknown(groups):
        rows = f"({backend.layout.relation}) r LEFT JOIN dimensions d ON r.sequence = d.name"
        [name] = backend.run(f"SELECT r.sequence FROM {rows} WHERE d.w IS NULL LIMIT 1").column(0).to_pylist()
        if name is None or not str(name):
            raise InputError(f"{label}: column 'sequence' has empty cells; every reading needs its sequence")
        known = ", ".join(name.strip() for name in domain.names[:8])
        raise InputError(f"{label}: unknown sequence {str(name)!r}; the chain names {known}")
    if (states == sql.NO_NUMBER).any():
        raise InputError(
            f"{label}: {int(n[states == sql.NO_NUMBER].sum())} readings are no numbers; leave missing cells empty"
        )
    if (states == sql.INFINITE).any():
        raise InputError(f"{label}: infinite readings; leave missing cells empty")
    if (states == sql.UNDECLARED).any():
        # The reading itself is private: the message gives a count and what is allowed.
        raise InputError(
            f"readings: {int(n[states == sql.UNDECLARED].sum())} are none of the {domain.states} declared values of "
            "their sequence; declare the values in the chain, or choose outside='clamp'"
        )


def _clock(layout: LongRelation, column: Any, distinct: Any) -> TimeColumn:
    import pyarrow as pa

    if column.null_count:
        raise InputError(f"{layout.label}: column 'time' must hold whole numbers or ISO timestamps throughout")
    times = distinct.cast(pa.timestamp("ns")) if layout.nanoseconds else distinct
    return read_times(layout.label, "time", pa.chunked_array([times]), None)


def fold_contributions(groups: Any, plan: Plan | None, place: tuple[Any, Any], shape: tuple[int, int]) -> Ints | None:
    """Fold the contributions of groups into (T, G); None where counts of states determine the answer."""
    if "p" not in groups.column_names:
        return None
    fold = plan.query.fold if plan is not None and isinstance(plan.query, FoldComputation) else "sum"
    start = {"sum": 0, "max": np.iinfo(np.int64).min, "min": np.iinfo(np.int64).max}[fold]
    out = np.full(shape, start, dtype=np.int64)
    {"sum": np.add, "max": np.maximum, "min": np.minimum}[fold].at(out, place, groups.column("p").to_numpy())
    return out


def register_clock(backend: Backend, survey: Survey, name: str, chosen: Bools) -> None:
    """Register the chosen times of the table with their ticks as a small table."""
    import pyarrow as pa

    backend.register(name, pa.table({"time": survey.raw.filter(pa.array(chosen)), "tick": survey.at[chosen]}))


def check_repeated(backend: Backend, domain: Domain, survey: Survey) -> None:
    """Raise InputError for two readings of a sequence at one tick, also where one of them is empty."""
    suspect = ~survey.whole[survey.at - survey.ticks[0]]
    if not suspect.any():
        return
    register_clock(backend, survey, "suspects", suspect)
    rows = sql.readings(backend.layout, domain)
    twice = backend.run(
        f"SELECT c.tick, a.idx FROM ({rows}) a JOIN suspects c ON a.time = c.time "
        "GROUP BY c.tick, a.idx HAVING count(*) > 1 ORDER BY c.tick, a.idx LIMIT 1"
    )
    if twice.num_rows:
        tick, place = int(twice.column(0)[0].as_py()), int(twice.column(1)[0].as_py())
        time = survey.times[tick - int(survey.ticks[0])]
        raise InputError(f"{backend.layout.label}: two readings of {domain.names[place]!r} at time {time}; keep one")


def staleness_by_age(backend: Backend, known: str, survey: Survey, members: dict[int, int]) -> dict[int, Ints]:
    """Largest staleness (T,) among the sequences of each age at every slice; NEVER where one was not read yet.

    Args:
        backend: runs the SQL.
        known: relation of known readings with their ticks.
        survey: of the same table.
        members: number of sequences of each age.

    Gaps are queried by their two ends, so the result has at most one row for each age and tick.
    """
    first, total = int(survey.ticks[0]), survey.ticks.size
    end = first + total
    begun = backend.run(
        "SELECT age, count(*) AS n, max(begin) AS latest FROM "
        f"(SELECT idx, age, min(tick) AS begin FROM ({known}) k GROUP BY idx, age) b GROUP BY age"
    ).to_pylist()
    gaps = backend.run(
        "SELECT age, tick, max(until) AS until FROM (SELECT age, tick, "
        f"coalesce(lead(tick) OVER (PARTITION BY idx ORDER BY tick), {end}) AS until FROM ({known}) k) g "
        "WHERE until > tick + 1 GROUP BY age, tick ORDER BY tick"
    )
    stale = {age: np.zeros(total, dtype=np.int64) for age in members}
    reach = dict.fromkeys(members, 0)
    for age, tick, until in zip(*(gaps.column(name).to_pylist() for name in ("age", "tick", "until")), strict=True):
        # Gaps come in order of their beginnings: the earliest gap that holds a slice has its stalest reading.
        start = max(tick - first + 1, reach[age])
        stale[age][start : until - first] = np.arange(start, until - first) - (tick - first)
        reach[age] = max(reach[age], until - first)
    latest = {int(row["age"]): row for row in begun}
    for age, count in members.items():
        row: Any = latest.get(age)
        unread = total if row is None or row["n"] < count else int(row["latest"]) - first
        stale[age][:unread] = NEVER
    return stale


# ---- sums of readings ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReadingSums:
    """For T ticks and G distinct ages: sequences read (T, G), and the sums of their parts on the lattice (T, G, d)."""

    ages: tuple[int, ...]
    first: int
    read: Ints
    sums: Floats

    def counts(self, oldest: int) -> Ints:
        """How many sequences the release of each tick reads, (T,); 0 before the first that can be released."""
        total = self.read.shape[0]
        counts = np.zeros(total, dtype=np.int64)
        for group, age in enumerate(self.ages):
            counts[oldest:] += self.read[oldest - age : total - age, group]
        return counts

    def answers(self, ticks: Sequence[int]) -> Floats:
        """Answers (ticks, d) of releases, on the lattice."""
        rows = np.asarray(ticks, dtype=np.int64) - self.first
        parts = [self.sums[rows - age, group] for group, age in enumerate(self.ages)]
        return np.asarray(np.sum(parts, axis=0))


def sum_readings(backend: Backend, known: str, plan: Plan, survey: Survey) -> ReadingSums:
    """Add up the known readings of a table; `known`: their relation, with the columns tick, age and lv."""
    import pyarrow as pa

    query = plan.query
    assert isinstance(query, ReadingsComputation)
    itself = query.parts.shape[1] == 1 and np.array_equal(query.parts[:, 0], np.arange(len(query.parts)))
    join = ""
    if not itself:
        columns = {f"part_{j}": column for j, column in enumerate(query.parts.T)}
        backend.register("level_parts", pa.table({"level": np.arange(len(query.parts)), **columns}))
        join = " JOIN level_parts l ON k.lv = l.level"
    share = "k.share * " if query.needs_all else ""
    parts = ["k.lv"] if itself else [f"l.part_{j}" for j in range(query.parts.shape[1])]
    sums = ", ".join(f"CAST(sum({share}{part}) AS BIGINT) AS sum_{j}" for j, part in enumerate(parts))
    cells = backend.run(f"SELECT tick, age, count(*) AS n, {sums} FROM ({known}) k{join} GROUP BY tick, age")
    ages = tuple(sorted(set(plan.ages)))
    place = (
        cells.column("tick").to_numpy().astype(np.int64) - int(survey.ticks[0]),
        np.searchsorted(ages, cells.column("age").to_numpy()),
    )
    read = np.zeros((survey.ticks.size, len(ages)), dtype=np.int64)
    read[place] = cells.column("n").to_numpy()
    unit = query.unit if query.needs_all else float(query.shares[0])
    added = np.zeros((*read.shape, len(parts)))
    for j in range(len(parts)):
        added[(*place, j)] = cells.column(f"sum_{j}").to_numpy().astype(np.float64) * unit
    return ReadingSums(ages, int(survey.ticks[0]), read, added)


def level_column(query: ReadingsComputation) -> str:
    """SQL for the level of a reading v, null where it is missing or infinite."""
    of = query.of
    zero, half, top = (sql.number(value) for value in (0.0, 0.5, float(of.steps)))
    clipped = f"least(greatest((v - {sql.number(of.low)}) / {sql.number(of.resolution)}, {zero}), {top})"
    below = f"CAST(floor({clipped}) AS BIGINT)"
    rest = f"({clipped} - floor({clipped}))"
    up = f"CASE WHEN {rest} > {half} OR ({rest} = {half} AND {below} % 2 = 1) THEN 1 ELSE 0 END"
    finite = "v IS NOT NULL AND NOT isnan(v) AND abs(v) < CAST('Infinity' AS DOUBLE)"
    return f"CASE WHEN {finite} THEN {below} + {up} END"
