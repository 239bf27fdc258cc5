"""How much an aged, noisy release tells about the present: exactly, by sound bounds, and as the paper prints it."""

from csdp.leakage.coefficient import LeakageCoefficient, cmc_leakage_coefficient
from csdp.leakage.curve import age_curve
from csdp.leakage.front import BOUNDS, UNSOUND, Setting, leakage
from csdp.leakage.lineage import lineage
from csdp.leakage.part import Part
from csdp.leakage.printed import aged_correlation, bounded_aged_correlation, correlation_degree
from csdp.leakage.result import Leakage, Witness
from csdp.leakage.rounding import round_up, shown
from csdp.leakage.slice import Slice, slice_bound
from csdp.leakage.summary import LeakageSummary, SequenceLeakage, leakage_summary
from csdp.leakage.table import LeakageTable, leakage_table

__all__ = [
    "BOUNDS",
    "UNSOUND",
    "Leakage",
    "LeakageCoefficient",
    "LeakageSummary",
    "LeakageTable",
    "Part",
    "SequenceLeakage",
    "Setting",
    "Slice",
    "Witness",
    "age_curve",
    "aged_correlation",
    "bounded_aged_correlation",
    "cmc_leakage_coefficient",
    "correlation_degree",
    "leakage",
    "leakage_summary",
    "leakage_table",
    "lineage",
    "round_up",
    "shown",
    "slice_bound",
]
