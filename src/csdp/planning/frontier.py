"""The whole trade-off of leakage and error on a grid of ages and noise levels."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from csdp.aging import Adversary
from csdp.chain import Family, Model, certified_model
from csdp.computation import verify_query
from csdp.display import Displayed
from csdp.estimate.result import About, Estimate
from csdp.planning.curves import EVENT_LIMIT, Curves, Releases
from csdp.queries import Query


@dataclass(frozen=True)
class Point:
    """One setting and what it achieves; `best` where no other point has less leakage and less error.

    About the time of the readings, age is a delay and counts as well.
    """

    age: int
    epsilon_c: float
    leakage: float
    bound: str
    mse: float
    best: bool


@dataclass(frozen=True)
class Frontier(Displayed):
    """Points by age and noise level, and the error of publishing nothing (leakage 0)."""

    points: tuple[Point, ...]
    no_data: float

    def __repr__(self) -> str:
        best = sum(point.best for point in self.points)
        return f"Frontier({len(self.points)} points, {best} of them best, no-data error {self.no_data:.6g})"

    def records(self) -> list[dict[str, Any]]:
        """One plain record per point."""
        return [asdict(point) for point in self.points]


def frontier(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Sequence[int] = (0, 1, 2, 3, 5, 8),
    levels: Sequence[float] | None = None,
    releases: Releases = 1,
    estimate: Estimate = "history",
    bound: str = "auto",
    adversary: Adversary = "informed",
    protect: float | None = None,
    about: About = "now",
) -> Frontier:
    """Leakage and error over a grid of common ages and noise levels; about="then": of delay, leakage and error.

    Args:
        chain, query, releases, estimate, bound, adversary, protect, about: as for `find_plan`.
        ages: the common ages of the grid.
        levels: its values of epsilon_c; default 12 between 0.05 and 10.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> line = frontier(chain, Mean(), ages=(1, 2), levels=(0.5, 1.0))
    >>> len(line.points), round(line.no_data, 4)
    (4, 0.1333)
    """
    grid = np.geomspace(0.05, EVENT_LIMIT, 12).tolist() if levels is None else list(levels)
    model = certified_model(chain).members[0]
    query = verify_query(query, model)
    settings, no_data = [], 0.0
    for age in ages:
        curves = Curves(
            chain,
            query,
            [age] * model.sequences,
            estimate=estimate,
            releases=releases,
            bound=bound,
            adversary=adversary,
            protect=protect,
            about=about,
        )
        for level in grid:
            answer, error = curves.leakage(level), curves.error(level)
            no_data = error.no_data
            settings.append((age, level, answer.epsilon, answer.bound, error.safe))
    points = []
    for age, level, leak, name, mse in settings:
        costs = (leak, mse) if about == "now" else (leak, mse, age)
        rivals = [(o[2], o[4]) if about == "now" else (o[2], o[4], o[0]) for o in settings]
        beaten = any(all(map(operator.le, rival, costs)) and rival != costs for rival in rivals)
        points.append(Point(age, level, leak, name, mse, not beaten and mse < no_data))
    return Frontier(tuple(points), no_data)
