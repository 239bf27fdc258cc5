"""csdp: publish statistics of correlated sequences without giving away anyone's present state."""

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

__version__ = "0.1.0.dev0"
__all__ = [
    "Count",
    "CoupledChain",
    "Custom",
    "Family",
    "Histogram",
    "Identity",
    "JointChain",
    "Leakage",
    "LeakageTable",
    "Linear",
    "Max",
    "Mean",
    "Min",
    "Query",
    "Sum",
    "aged_correlation",
    "bounded_aged_correlation",
    "cmc_leakage_coefficient",
    "correlation_degree",
    "leakage",
    "leakage_table",
]
