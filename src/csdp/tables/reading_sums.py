"""Sums of readings at every tick, in one pass of SQL: how many sequences were read, and what their levels add.

A level is computed in SQL by the same double arithmetic as `ReadingRange.levels`, ties to the even level, and all sums
are of whole numbers, so the engines agree with the memory to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from csdp.arrays import Floats, Ints
from csdp.computation import ReadingsComputation
from csdp.plan import Plan
from csdp.tables import sql
from csdp.tables.survey import Backend, Survey


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
