"""The secret as a distance: how much is told between present values that are at most r apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from csdp.accountant.accountant import Accountant
from csdp.accountant.vector import InfluenceComponent
from csdp.arrays import Floats
from csdp.bounds.result import as_text, round_up
from csdp.errors import InputError
from csdp.plan import Plan

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class DistanceTable:
    """Leakage of the present against the distance of two present values: (distance, epsilon), both rising."""

    rows: tuple[tuple[float, float], ...]

    def at(self, distance: float) -> float:
        """The epsilon that protects present values at most this far apart; 0 where no two values are that close."""
        return max((epsilon for far, epsilon in self.rows if far <= distance), default=0.0)

    def __rich__(self) -> Table:
        from rich.table import Column, Table

        table = Table(Column("values at most this far apart", justify="right"), Column("epsilon", justify="right"))
        for far, epsilon in self.rows:
            table.add_row(f"{far:g}", as_text(epsilon))
        return table


def leakage_by_distance(plan: Plan, releases: int | None = None) -> DistanceTable:
    """How much releases tell between present values of one sequence, by their distance.

    With many states the largest leakage is between far-apart values. Whoever needs to hide only small differences may
    declare that as the secret: two present values at most r apart are protected by `.at(r)`.

    Formal guarantee: as `Accountant.after` (or `.limit`, without `releases`), for presents that differ in one sequence
    whose two values are at most r apart. Backward coupled chains, the informed adversary: `influence` follows every
    pair of states by itself.

    Args:
        plan: what is released at every tick.
        releases: how many times; without end by default.

    >>> from csdp import CoupledChain, Mean
    >>> slow = [[0.8, 0.19, 0.01], [0.1, 0.8, 0.1], [0.01, 0.19, 0.8]]
    >>> plan = Plan(CoupledChain([[1.0]], slow, direction="backward"), Mean(), ages=1, epsilon_c=1.0)
    >>> [(far, round(epsilon, 3)) for far, epsilon in leakage_by_distance(plan, releases=2).rows]
    [(1.0, 1.235), (2.0, 1.611)]
    """
    accountant = Accountant(plan, state="vector")
    if not all(isinstance(component, InfluenceComponent) for component in accountant.components):
        raise InputError("distance: needs a CoupledChain with direction='backward', whose pairs of states are followed")
    state = accountant.long_run() if releases is None else accountant.history(releases)
    if state is None:
        raise InputError("distance: no state at rest was found; give a number of releases")
    worst: dict[float, float] = {}
    for component, now, depth in accountant._newest(state):
        assert isinstance(component, InfluenceComponent)
        for told, far in zip(component.by_pairs(now, depth), _distances(plan, component), strict=True):
            for distance, epsilon in _off_diagonal(far, told):
                worst[distance] = max(worst.get(distance, 0.0), epsilon)
    rows, largest = [], 0.0
    for distance in sorted(worst):
        largest = max(largest, worst[distance])
        rows.append((distance, round_up(largest)))
    return DistanceTable(tuple(rows))


def _distances(plan: Plan, component: InfluenceComponent) -> Floats:
    """(phases x sequences, m, m) how far the values of two states are apart.

    Where a component stands for others that are alike: the least over all sequences, so that no pair is left out.
    """
    values = plan.model.value_table
    far = np.abs(values[:, :, None] - values[:, None, :])
    own = (
        far[list(component.members)]
        if component.alike is None
        else np.broadcast_to(far.min(axis=0), (len(component.members), *far.shape[1:]))
    )
    return np.tile(own, (component.model.phases, 1, 1))


def _off_diagonal(far: Floats, told: Floats) -> Iterator[tuple[float, float]]:
    off = ~np.eye(far.shape[0], dtype=bool)
    yield from zip(far[off].tolist(), told[off].tolist(), strict=True)
