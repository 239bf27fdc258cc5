"""Planning: from an error target or a budget to ages and noise."""

from csdp.planning.frontier import Frontier, Point, frontier
from csdp.planning.search import EVENT_LIMIT, Found, find_plan

__all__ = ["EVENT_LIMIT", "Found", "Frontier", "Point", "find_plan", "frontier"]
