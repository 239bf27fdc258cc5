"""The whole trade-off: leakage against error, by age, with the no-data line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from csdp.aging import Adversary
from csdp.chain import Family, Model
from csdp.computation import verify_query
from csdp.estimate.error import Estimate
from csdp.planning.curves import EVENT_LIMIT, Curves, Releases
from csdp.queries import Query


@dataclass(frozen=True)
class Point:
    """One setting and what it achieves; `best` where no other point has less leakage and less error."""

    age: int
    epsilon_c: float
    leakage: float
    bound: str
    mse: float
    best: bool


@dataclass(frozen=True)
class Frontier:
    """Points by age and noise level, and the error of publishing nothing (leakage 0)."""

    points: tuple[Point, ...]
    no_data: float

    def records(self) -> list[dict[str, Any]]:
        """One plain record per point."""
        return [asdict(point) for point in self.points]


def frontier(
    chain: Model | Family,
    query: Query,
    *,
    ages: Sequence[int] = (0, 1, 2, 3, 5, 8),
    levels: Sequence[float] | None = None,
    releases: Releases = 1,
    estimate: Estimate = "linear",
    bound: str = "auto",
    adversary: Adversary = "informed",
) -> Frontier:
    """Leakage and error over a grid of common ages and noise levels.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> line = frontier(chain, Mean(), ages=(1, 2), levels=(0.5, 1.0))
    >>> len(line.points), round(line.no_data, 4)
    (4, 0.1333)
    """
    grid = np.geomspace(0.05, EVENT_LIMIT, 12).tolist() if levels is None else list(levels)
    model = chain.members[0] if isinstance(chain, Family) else chain
    sequences, query = model.sequences, verify_query(query, model)
    found, no_data = [], 0.0
    for age in ages:
        curves = Curves(
            chain,
            query,
            [age] * sequences,
            estimate=estimate,
            releases=releases,
            bound=bound,
            adversary=adversary,
        )
        for level in grid:
            leakage, error = curves.leakage(level), curves.error(level)
            no_data = error.no_data
            found.append((age, level, leakage.epsilon, leakage.bound, error.safe))
    points = []
    for age, level, leak, name, error_value in found:
        beaten = any(o[2] <= leak and o[4] <= error_value and (o[2], o[4]) != (leak, error_value) for o in found)
        points.append(Point(age, level, leak, name, error_value, not beaten and error_value < no_data))
    return Frontier(tuple(points), no_data)
