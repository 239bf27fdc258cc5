"""Leakage by distance: how much is revealed between present values that are at most r apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from csdp.accountant.accountant import Accountant
from csdp.arrays import Floats
from csdp.bounds.result import as_text, chance
from csdp.plan import Plan

if TYPE_CHECKING:
    from rich.table import Table

#: Distances that a table has at most; where values have more of them, some are left out.
MOST_ROWS = 24


@dataclass(frozen=True)
class DistanceTable:
    """Leakage of the present against the distance of two present values: (distance, epsilon), both rising."""

    rows: tuple[tuple[float, float], ...]

    def __repr__(self) -> str:
        return f"DistanceTable({len(self.rows)} distances, largest {as_text(self.at(float('inf')))})"

    def at(self, distance: float) -> float:
        """The epsilon of the first row that is no closer than this; 0 where no two values are as close as this."""
        if not self.rows or distance * (1 + 1e-9) < self.rows[0][0]:
            return 0.0
        return next((epsilon for far, epsilon in self.rows if far >= distance * (1 - 1e-9)), self.rows[-1][1])

    def records(self) -> list[dict[str, Any]]:
        """One plain record per distance."""
        return [{"distance": far, "epsilon": epsilon} for far, epsilon in self.rows]

    def __rich__(self) -> Table:
        from rich.table import Column, Table

        heads = ("values at most this far apart", "epsilon", "a 50 % guess becomes at most")
        table = Table(*(Column(name, justify="right") for name in heads))
        for far, epsilon in self.rows:
            table.add_row(f"{far:g}", as_text(epsilon), chance(epsilon))
        return table


def leakage_by_distance(plan: Plan, releases: int | None = None, *, state: str = "auto") -> DistanceTable:
    """How much releases tell between present values of one sequence, by their distance.

    With many states the largest leakage is between far-apart values. If only small differences must be hidden, you may
    declare that as the secret: `Plan(..., protect=r)`, of which no more than `.at(r)` is charged.

    Formal guarantee: as `Accountant.after` (or `.limit`, without `releases`), for presents that differ in one sequence
    whose two values are at most r apart. The history is followed between any two snapshots, whatever r is; the distance
    counts in the last step, from the newest reading to the present. Bounds that have one number for all values of a
    sequence (slice, lineage, group) say the same at every distance.

    Args:
        plan: what is released at every tick; its own `protect` is left aside.
        releases: how many times; without end by default.
        state: as for `Accountant`.

    >>> from csdp import CoupledChain, Mean
    >>> slow = [[0.8, 0.19, 0.01], [0.1, 0.8, 0.1], [0.01, 0.19, 0.8]]
    >>> plan = Plan(CoupledChain([[1.0]], slow, direction="backward"), Mean(), ages=1, epsilon_c=1.0)
    >>> [(far, round(epsilon, 3)) for far, epsilon in leakage_by_distance(plan, releases=2).rows]
    [(1.0, 0.694), (2.0, 1.375)]
    """
    distances = _distances(plan.model.value_table)
    accountants = [Accountant(plan.protecting(far), state=state) for far in distances]
    # What a history tells at the newest slice is the same for every distance: it is followed once.
    first = accountants[0]
    history = first.long_run() if releases is None else first.history(releases)
    rows, largest = [], 0.0
    for far, accountant in zip(distances, accountants, strict=True):
        if releases == 1 or history is None:
            told = (accountant.limit() if releases is None else accountant.after(releases)).epsilon
        else:
            told = accountant.leakage(replace(history, consecutive=None)).epsilon
            told = told if releases is None else min(told, accountant.group_level(releases))
        largest = max(largest, told)
        rows.append((far, largest))
    return DistanceTable(tuple(rows))


def _distances(values: Floats) -> list[float]:
    """The distances between two values of a sequence, rising; of many some, the least and the largest among them."""
    far = np.unique(np.abs(values[:, :, None] - values[:, None, :]))
    far = far[far > 0]
    # Decimals are rounded: distances that differ by that alone are one, the larger.
    distinct = far[np.append(np.diff(far) > 1e-9 * far[1:], True)]
    chosen = np.unique(np.linspace(0, distinct.size - 1, min(MOST_ROWS, distinct.size)).round().astype(np.intp))
    return [float(each) for each in distinct[chosen]]
