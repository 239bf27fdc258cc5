"""Planning: from an error target or a budget to ages and noise."""

from csdp.planning.calibrate import EVENT_LIMIT
from csdp.planning.dynamic import DynamicPlan, dynamic_plan
from csdp.planning.frontier import Frontier, Point, frontier, plan_frontier
from csdp.planning.search import FoundPlan, check_useful, find_plan, improvements

__all__ = [
    "EVENT_LIMIT",
    "DynamicPlan",
    "FoundPlan",
    "Frontier",
    "Point",
    "check_useful",
    "dynamic_plan",
    "find_plan",
    "frontier",
    "improvements",
    "plan_frontier",
]
