"""Records behind the figures: leakage against age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from csdp.aging import Progress
from csdp.bounds.overview import leakage_table
from csdp.chain import Model
from csdp.queries import Query


@dataclass(frozen=True)
class AgeRecord:
    """The leakage of a release at one common age, by one bound."""

    bound: str
    age: int
    epsilon: float
    sound: bool


def leakage_by_age(
    model: Model, query: Query, *, ages: Sequence[int], epsilon_c: float, progress: Progress | None = None
) -> list[AgeRecord]:
    """Every bound at every age, for the informed adversary; bounds that do not apply are left out.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> records = leakage_by_age(chain, Mean(), ages=[2], epsilon_c=1.0)
    >>> records[0].bound, round(records[0].epsilon, 6)
    ('exact', 0.153046)
    """
    records = []
    for done, age in enumerate(ages, start=1):
        table = leakage_table(model, query, ages=age, epsilon_c=epsilon_c)
        records += [AgeRecord(row.bound, age, row.epsilon, row.sound) for row in table.rows]
        if progress is not None:
            progress("leakage by age", done, len(ages))
    return records
