"""The whole trade-off between leakage and error, on a grid of ages and noise levels."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from csdp.accountant.joint import Known
from csdp.chain import Family, Model, certified_model
from csdp.errors import InputError, TooLargeError
from csdp.estimate.result import About, Estimate
from csdp.plan import Plan
from csdp.planning.calibrate import EVENT_LIMIT, Curves, Releases
from csdp.query import tabulate
from csdp.query_table import Query


@dataclass(frozen=True)
class Point:
    """One setting and what it achieves; `best` if no other point has less leakage and less error.

    About the time of the readings, age is a delay and counts as well.
    """

    age: int
    epsilon_c: float
    leakage: float
    bound: str
    mse: float
    best: bool
    moment: float | None = None  #: what is revealed of any one moment; None if nothing finite is known, or in old files


@dataclass(frozen=True)
class Frontier:
    """Points by age and noise level, and the squared error of publishing nothing (leakage 0).

    `releases` and `about` are those of the points, as for `find_plan`.
    """

    points: tuple[Point, ...]
    no_data: float
    releases: Releases = 1
    about: About = "now"

    def __repr__(self) -> str:
        best = sum(point.best for point in self.points)
        return f"Frontier({len(self.points)} points, {best} of them best, no-data squared error {self.no_data:.6g})"

    def to_dict(self) -> dict[str, Any]:
        """To be written into a plan file under "frontier"; no part of the digest of the plan."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Frontier:
        """Read what `to_dict` wrote."""
        try:
            points = tuple(Point(**point) for point in content["points"])
            return cls(points, float(content["no_data"]), content["releases"], content["about"])
        except (KeyError, TypeError, ValueError):
            raise InputError("frontier: cannot be read; make the plan again with `csdp plan`") from None


def frontier(
    chain: Model | Family,
    query: Query | str,
    *,
    ages: Sequence[int] = (0, 1, 2, 3, 5, 8),
    levels: Sequence[float] | None = None,
    releases: Releases = 1,
    estimate: Estimate = "history",
    about: About = "now",
    units: Sequence[Sequence[str | int]] | None = None,
) -> Frontier:
    """Leakage and error over a grid of common ages and noise levels; about="then": of delay, leakage and error.

    Args:
        chain, query, releases, estimate, about, units: as for `find_plan`.
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
    table = tabulate(query, model)
    points: list[Point] = []
    moments: dict[float, float] = {}
    no_data = 0.0
    known = Known()
    for age in ages:
        old = (age,) * model.sequences
        curves = Curves(chain, table, old, estimate=estimate, releases=releases, about=about, known=known, units=units)
        for level in grid:
            answer, error = curves.leakage(level), curves.error(level)
            no_data = error.no_data
            if level not in moments:  # it does not depend on the age
                moments[level] = curves.every_moment(level)
            moment = moments[level] if math.isfinite(moments[level]) else None
            points.append(Point(age, level, answer.epsilon, answer.bound, error.safe, best=True, moment=moment))

    def costs(point: Point) -> tuple[float, ...]:
        return (point.leakage, point.mse) if about == "now" else (point.leakage, point.mse, point.age)

    def is_beaten(point: Point) -> bool:
        own = costs(point)
        return any(all(map(operator.le, costs(rival), own)) and costs(rival) != own for rival in points)

    marked = tuple(replace(point, best=point.mse < no_data and not is_beaten(point)) for point in points)
    return Frontier(marked, no_data, releases, about)


def plan_frontier(
    plan: Plan, *, releases: Releases = "continual", estimate: Estimate = "history", about: About = "now"
) -> Frontier | None:
    """Leakage and error of settings around those of a plan, to be stored with it; None if they cannot be bounded.

    All sequences have one age: that of the plan, about half of it, and about twice as much.
    """
    ages = {age for own in (plan.min_age, plan.max_age) for age in (own // 2, own, 2 * own + 1)}
    if not plan.model.has_law and about == "now":  # what changes in the meantime is not known
        ages &= {0}
    levels = [plan.epsilon_c * factor for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
    try:
        line = frontier(
            plan.chain,
            plan.query,
            ages=sorted(ages),
            levels=[level for level in levels if level <= max(EVENT_LIMIT, plan.epsilon_c)],
            releases=releases,
            estimate=estimate,
            about=about,
            units=plan.units,
        )
    except TooLargeError:
        return None
    points = tuple(point for point in line.points if math.isfinite(point.leakage))
    return replace(line, points=points) if points else None
