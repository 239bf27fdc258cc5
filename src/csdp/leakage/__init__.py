"""How much an aged, noisy release tells about the present: exactly, by sound bounds, and as the paper prints it."""

from csdp.leakage.coefficient import LeakageCoefficient, cmc_leakage_coefficient
from csdp.leakage.front import BOUNDS, UNSOUND, Setting, aged_correlation, check_ages, check_epsilon, leakage
from csdp.leakage.lineage import lineage
from csdp.leakage.printed import bounded_aged_correlation, correlation_degree
from csdp.leakage.result import Leakage, Witness
from csdp.leakage.rounding import round_up
from csdp.leakage.table import LeakageTable, leakage_table

__all__ = [
    "BOUNDS",
    "UNSOUND",
    "Leakage",
    "LeakageCoefficient",
    "LeakageTable",
    "Setting",
    "Witness",
    "aged_correlation",
    "bounded_aged_correlation",
    "check_ages",
    "check_epsilon",
    "cmc_leakage_coefficient",
    "correlation_degree",
    "leakage",
    "leakage_table",
    "lineage",
    "round_up",
]
