"""Ticks at which not every sequence was read: repeated readings are refused, and staleness is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.fran import NEVER
from csdp.tables import sql
from csdp.tables.sql import Domain
from csdp.tables.survey import Backend, Survey

Ints = npt.NDArray[np.int64]


def put_clock(backend: Backend, survey: Survey, name: str, chosen: npt.NDArray[np.bool_]) -> None:
    """Some times of the table with their ticks, as a small table."""
    import pyarrow as pa

    backend.put(name, pa.table({"time": survey.raw.filter(pa.array(chosen)), "tick": survey.at[chosen]}))


def check_repeated(backend: Backend, domain: Domain, survey: Survey) -> None:
    """Refuse two readings of a sequence at one tick, also where one of them is empty."""
    suspect = ~survey.whole[survey.at - survey.ticks[0]]
    if not suspect.any():
        return
    put_clock(backend, survey, "suspects", suspect)
    rows = sql.readings(backend.layout, domain)
    twice = backend.run(
        f"SELECT c.tick, a.idx FROM ({rows}) a JOIN suspects c ON a.time = c.time "
        "GROUP BY c.tick, a.idx HAVING count(*) > 1 ORDER BY c.tick, a.idx LIMIT 1"
    )
    if twice.num_rows:
        tick, place = int(twice.column(0)[0].as_py()), int(twice.column(1)[0].as_py())
        time = survey.times[tick - int(survey.ticks[0])]
        raise InputError(f"{backend.layout.label}: two readings of {domain.names[place]!r} at time {time}; keep one")


def stalest(backend: Backend, known: str, survey: Survey, members: dict[int, int]) -> dict[int, Ints]:
    """How stale, at most, the readings of the sequences of each age are at every slice; `members`: how many they are.

    `known` is a relation of known readings with their ticks. A gap is told by its ends alone, so that the answer has at
    most one row for each age and tick.
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
    found = {age: np.zeros(total, dtype=np.int64) for age in members}
    reach = dict.fromkeys(members, 0)
    for age, tick, until in zip(*(gaps.column(name).to_pylist() for name in ("age", "tick", "until")), strict=True):
        # In order of their beginnings: the earliest gap that holds a slice is its stalest reading.
        start = max(tick - first + 1, reach[age])
        found[age][start : until - first] = np.arange(start, until - first) - (tick - first)
        reach[age] = max(reach[age], until - first)
    latest = {int(row["age"]): row for row in begun}
    for age, count in members.items():
        row: Any = latest.get(age)
        unread = total if row is None or row["n"] < count else int(row["latest"]) - first
        found[age][:unread] = NEVER
    return found
