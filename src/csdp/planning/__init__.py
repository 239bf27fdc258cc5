"""Planning: from an error target or a budget to ages and noise."""

from csdp.planning.curves import EVENT_LIMIT, Frontier, Point, frontier, plan_frontier
from csdp.planning.dynamic import DynamicPlan, dynamic_plan
from csdp.planning.found import FoundPlan, check_useful, improvements
from csdp.planning.search import find_plan

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
