"""One pass over a table: is it one of the chain's, and how many sequences are in which state at every time.

Whether a tick is whole (every sequence once) is found without a list of its rows: each of the s sequences has two
secret random whole numbers below 2^b, b = 53 - bits of s, and those of s rows add up to those of all sequences, exactly
in doubles. A tick of s rows that repeats some and lacks others passes for whole with probability at most 2^-2b (2^-72
for 100,000 sequences), whoever made the table. Ticks that are not whole are then looked at row by row.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp.computation import FoldComputation
from csdp.errors import InputError, TooLargeError
from csdp.panel import to_states
from csdp.panel.grid import TimeColumn, consecutive_ticks, find_step, read_times
from csdp.plan import Plan
from csdp.tables import sql
from csdp.tables.sql import Domain, Layout

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Rows that a survey may have: (time, age, state).
MAX_CELLS = 20_000_000


class Backend(Protocol):
    """What the shared SQL needs of a dialect."""

    layout: Layout
    unnest: str

    def run(self, query: str) -> Any:
        """The result as an Arrow table."""

    def put(self, name: str, table: Any) -> None:
        """Make a small Arrow table known under a name."""


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass found. Arrays of T ticks, G distinct ages, m states.

    `counts` (T, G, m): sequences in each state; `folds` (T, G): folded parts in lattice units, where the query needs
    them; `whole` (T,): every sequence was read once; `raw`: distinct times as in the table, with `at` their ticks.
    """

    ticks: Ints
    times: npt.NDArray[Any]
    step: int
    ages: tuple[int, ...]
    counts: Ints
    folds: Ints | None
    whole: npt.NDArray[np.bool_]
    raw: Any
    at: Ints


def dimensions(domain: Domain, plan: Plan | None, *, whole_names: bool) -> tuple[Any, Floats]:
    """One row for each sequence, and the sums of their two secret weights."""
    import pyarrow as pa

    count = len(domain.names)
    bits = 53 - count.bit_length()
    words = np.frombuffer(secrets.token_bytes(16 * count), dtype=np.uint64).reshape(2, count)
    weights = (words >> np.uint64(64 - bits)).astype(np.float64)
    found: dict[str, Any] = {
        "name": _names(domain.names, whole_names),
        "idx": np.arange(count, dtype=np.int32),
        "age": np.zeros(count, np.int32) if plan is None else np.asarray(plan.ages, dtype=np.int32),
        "w": weights[0],
        "w2": weights[1],
        **sql.columns(domain),
        **sql.part_columns(plan),
    }
    return pa.table(found), weights.sum(axis=1)


def _names(names: tuple[str, ...], whole: bool) -> Any:
    """The names as the table's column has them; of whole numbers only those that are written as one."""
    import pyarrow as pa

    stripped = [name.strip() for name in names]
    if not whole:
        return pa.array(stripped, pa.string())
    numbers = [int(name) if name.lstrip("-").isascii() and name.lstrip("-").isdigit() else None for name in stripped]
    alike = [n if n is not None and str(n) == name else None for n, name in zip(numbers, stripped, strict=True)]
    # As narrow as they fit: a join of equal kinds is the fastest.
    return pa.array(alike, pa.int32() if max(map(abs, filter(None, alike)), default=0) < 2**31 else pa.int64())


def survey(backend: Backend, domain: Domain, plan: Plan | None, *, step: int | None) -> Survey:
    """Look at the whole table once; refuse what is not a table of the chain."""
    layout = backend.layout
    table, totals = dimensions(domain, plan, whole_names=layout.whole_names)
    backend.put("dimensions", table)
    ages = tuple(sorted(set(plan.ages))) if plan is not None else (0,)
    found = backend.run(_query(backend, domain, plan, several=len(ages) > 1))
    if not found.num_rows:
        raise InputError(f"{layout.label}: no rows")
    if found.num_rows > MAX_CELLS:
        raise TooLargeError(
            f"{layout.label}: more than {MAX_CELLS:,} different times; split the table, or round its times to the grid",
            needed=found.num_rows,
            limit=MAX_CELLS,
        )
    states = _states(layout, domain, plan, found)
    _check_rows(backend, domain, found, states)
    encoded = found.column("time").combine_chunks().dictionary_encode()
    clock = _clock(layout.label, found.column("time"), encoded.dictionary)
    distinct = np.unique(clock.numbers)
    every = find_step(layout.label, clock, distinct, step)
    ticks, times = consecutive_ticks(layout.label, clock, distinct, every)
    at = clock.numbers // (every * clock.per_second)
    row = (at - ticks[0])[encoded.indices.to_numpy()]
    age = np.searchsorted(ages, found.column("age").to_numpy()) if len(ages) > 1 else np.zeros(len(row), dtype=np.intp)
    n = found.column("n").to_numpy()
    known = states >= 0
    counts = np.zeros((ticks.size, len(ages), domain.states), dtype=np.int64)
    np.add.at(counts, (row[known], age[known], states[known]), n[known])
    whole = counts.sum(axis=(1, 2)) == len(domain.names)
    whole[row[~known]] = False
    for name, expected in zip(("f", "f2"), totals, strict=True):
        weights = np.zeros(ticks.size)
        np.add.at(weights, row[known], found.column(name).to_numpy()[known])
        whole &= weights == expected
    folds = folded(found.filter(known), plan, (row[known], age[known]), (ticks.size, len(ages)))
    return Survey(ticks, times, every, ages, counts, folds, whole, encoded.dictionary, at)


def _query(backend: Backend, domain: Domain, plan: Plan | None, *, several: bool) -> str:
    count = "count(*) AS n, count(w) AS known, sum(w) AS f, sum(w2) AS f2"
    age = "age, " if several else ""
    if _as_they_are(backend.layout, domain, plan):
        # Cells as they are: the engine knows their range, and the few different ones are understood afterwards.
        rows = f"({backend.layout.relation}) r LEFT JOIN dimensions d ON r.sequence = d.name"
        query = f"SELECT time, {age}value AS cell, {count} FROM {rows} GROUP BY time, {age}value"
    else:
        rows = sql.readings(backend.layout, domain, sql.part_columns(plan))
        part = sql.folded_part(plan)
        query = f"SELECT time, {age}st AS cell, {count}{part} FROM ({rows}) a GROUP BY time, {age}st"
    return f"{query} LIMIT {MAX_CELLS + 1}"


def _as_they_are(layout: Layout, domain: Domain, plan: Plan | None) -> bool:
    return layout.cells == "small" and domain.alike and not sql.weighted(plan)


def _states(layout: Layout, domain: Domain, plan: Plan | None, found: Any) -> Ints:
    """States of the groups, or what is wrong with them."""
    import pyarrow as pa

    cells = found.column("cell")
    if not _as_they_are(layout, domain, plan):
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


def _check_rows(backend: Backend, domain: Domain, found: Any, states: Ints) -> None:
    n = found.column("n").to_numpy()
    label = backend.layout.label
    if int(n.sum()) != int(found.column("known").to_numpy().sum()):
        rows = f"({backend.layout.relation}) r LEFT JOIN dimensions d ON r.sequence = d.name"
        [name] = backend.run(f"SELECT r.sequence FROM {rows} WHERE d.w IS NULL LIMIT 1").column(0).to_pylist()
        if name is None:
            raise InputError(f"{label}: column 'sequence' has empty cells; every reading needs its sequence")
        shown = ", ".join(name.strip() for name in domain.names[:8])
        raise InputError(f"{label}: unknown sequence {str(name)!r}; the chain names {shown}")
    if (states == sql.NO_NUMBER).any():
        raise InputError(
            f"{label}: {int(n[states == sql.NO_NUMBER].sum())} readings are no numbers; leave missing cells empty"
        )
    if (states == sql.INFINITE).any():
        raise InputError(f"{label}: infinite readings; leave missing cells empty")
    if (states == sql.UNDECLARED).any():
        # The reading itself is private; only how many and what is allowed is told.
        raise InputError(
            f"readings: {int(n[states == sql.UNDECLARED].sum())} are none of the {domain.states} declared values of "
            "their sequence; declare the values in the chain, discretise first, or choose outside='clamp'"
        )


def _clock(label: str, column: Any, distinct: Any) -> TimeColumn:
    import pyarrow as pa

    if column.null_count:
        raise InputError(f"{label}: column 'time' must hold whole numbers or ISO timestamps throughout")
    return read_times(label, "time", pa.chunked_array([distinct]), None)


def folded(found: Any, plan: Plan | None, place: tuple[Any, Any], shape: tuple[int, int]) -> Ints | None:
    """The folded parts (T, G) of groups at their places; None where counts say all."""
    if "p" not in found.column_names:
        return None
    fold = plan.query.fold if plan is not None and isinstance(plan.query, FoldComputation) else "sum"
    start = {"sum": 0, "max": np.iinfo(np.int64).min, "min": np.iinfo(np.int64).max}[fold]
    out = np.full(shape, start, dtype=np.int64)
    {"sum": np.add, "max": np.maximum, "min": np.minimum}[fold].at(out, place, found.column("p").to_numpy())
    return out
