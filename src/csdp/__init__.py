"""csdp: publish statistics of correlated sequences without giving away anyone's present state."""

from typing import TYPE_CHECKING, Any

from csdp.chain import CoupledChain, Family, JointChain
from csdp.leakage import (
    Leakage,
    LeakageTable,
    aged_correlation,
    bounded_aged_correlation,
    cmc_leakage_coefficient,
    correlation_degree,
    leakage,
    leakage_table,
)
from csdp.queries import Count, Custom, Histogram, Identity, Linear, Max, Mean, Min, Query, Sum

if TYPE_CHECKING:
    from csdp.accountant import Accountant
    from csdp.ledger import Ledger
    from csdp.panel import Panel
    from csdp.plan import Plan
    from csdp.planning import find_plan, frontier
    from csdp.publisher import Publisher, Release, Skipped
    from csdp.utility import mse

__version__ = "0.1.0.dev0"
__all__ = [
    "Accountant",
    "Count",
    "CoupledChain",
    "Custom",
    "Family",
    "Histogram",
    "Identity",
    "JointChain",
    "Leakage",
    "LeakageTable",
    "Ledger",
    "Linear",
    "Max",
    "Mean",
    "Min",
    "Panel",
    "Plan",
    "Publisher",
    "Query",
    "Release",
    "Skipped",
    "Sum",
    "aged_correlation",
    "bounded_aged_correlation",
    "cmc_leakage_coefficient",
    "correlation_degree",
    "find_plan",
    "frontier",
    "leakage",
    "leakage_table",
    "mse",
]

# Rooms that bring in a database, a solver or a cipher load when they are first used.
_LATER = {
    "Accountant": "csdp.accountant",
    "Ledger": "csdp.ledger",
    "Panel": "csdp.panel",
    "Plan": "csdp.plan",
    "Publisher": "csdp.publisher",
    "Release": "csdp.publisher",
    "Skipped": "csdp.publisher",
    "find_plan": "csdp.planning",
    "frontier": "csdp.planning",
    "mse": "csdp.utility",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'csdp' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
