"""csdp: publish statistics of correlated sequences without giving away anyone's present state."""

from typing import TYPE_CHECKING, Any

from csdp.audit import Audit, audit
from csdp.chain import CoupledChain, Family, FitRecord, JointChain
from csdp.fit import fit
from csdp.leakage import (
    Leakage,
    LeakageSummary,
    LeakageTable,
    age_curve,
    aged_correlation,
    bounded_aged_correlation,
    cmc_leakage_coefficient,
    correlation_degree,
    leakage,
    leakage_summary,
    leakage_table,
)
from csdp.queries import Count, Custom, Histogram, Identity, Linear, Max, Mean, Min, Query, Sum

if TYPE_CHECKING:
    from csdp.accountant import Accountant
    from csdp.audit.attacker import Attack, attack
    from csdp.audit.bits import LowBits, low_bits
    from csdp.audit.replay import Replay, replay
    from csdp.fit.drifting import Drift, DriftCheck, drift
    from csdp.fit.estimator import CoupledChainEstimator
    from csdp.fit.quality import FitQuality, fit_quality
    from csdp.ledger import Ledger
    from csdp.panel import Discretiser, Panel, Readings, read_panel, read_readings
    from csdp.plan import Plan, Schedule
    from csdp.planning import DynamicPlan, Segmentation, dynamic_plan, find_plan, frontier, segment
    from csdp.publisher import Publisher, Release, Skipped
    from csdp.rivals.comparison import compare
    from csdp.utility import mse

__version__ = "0.1.0.dev0"
__all__ = [
    "Accountant",
    "Attack",
    "Audit",
    "Count",
    "CoupledChain",
    "CoupledChainEstimator",
    "Custom",
    "Discretiser",
    "Drift",
    "DriftCheck",
    "DynamicPlan",
    "Family",
    "FitQuality",
    "FitRecord",
    "Histogram",
    "Identity",
    "JointChain",
    "Leakage",
    "LeakageSummary",
    "LeakageTable",
    "Ledger",
    "Linear",
    "LowBits",
    "Max",
    "Mean",
    "Min",
    "Panel",
    "Plan",
    "Publisher",
    "Query",
    "Readings",
    "Release",
    "Replay",
    "Schedule",
    "Segmentation",
    "Skipped",
    "Sum",
    "age_curve",
    "aged_correlation",
    "attack",
    "audit",
    "bounded_aged_correlation",
    "cmc_leakage_coefficient",
    "compare",
    "correlation_degree",
    "drift",
    "dynamic_plan",
    "find_plan",
    "fit",
    "fit_quality",
    "frontier",
    "leakage",
    "leakage_summary",
    "leakage_table",
    "low_bits",
    "mse",
    "read_panel",
    "read_readings",
    "replay",
    "segment",
]

# Rooms that bring in a database, a solver or a cipher load when they are first used.
_LATER = {
    "Accountant": "csdp.accountant",
    "Attack": "csdp.audit.attacker",
    "Discretiser": "csdp.panel",
    "CoupledChainEstimator": "csdp.fit.estimator",
    "Drift": "csdp.fit.drifting",
    "DriftCheck": "csdp.fit.drifting",
    "FitQuality": "csdp.fit.quality",
    "Ledger": "csdp.ledger",
    "LowBits": "csdp.audit.bits",
    "Panel": "csdp.panel",
    "Plan": "csdp.plan",
    "Publisher": "csdp.publisher",
    "Readings": "csdp.panel",
    "Release": "csdp.publisher",
    "Replay": "csdp.audit.replay",
    "Skipped": "csdp.publisher",
    "compare": "csdp.rivals.comparison",
    "attack": "csdp.audit.attacker",
    "drift": "csdp.fit.drifting",
    "DynamicPlan": "csdp.planning",
    "Schedule": "csdp.plan",
    "Segmentation": "csdp.planning",
    "dynamic_plan": "csdp.planning",
    "find_plan": "csdp.planning",
    "segment": "csdp.planning",
    "fit_quality": "csdp.fit.quality",
    "frontier": "csdp.planning",
    "low_bits": "csdp.audit.bits",
    "mse": "csdp.utility",
    "read_panel": "csdp.panel",
    "read_readings": "csdp.panel",
    "replay": "csdp.audit.replay",
}


#: Rooms that are used by their own name, `csdp.rivals.names()`, and load then.
_ROOMS = ("datasets", "neighbours", "rivals", "stream", "tables")


def __getattr__(name: str) -> Any:
    if name not in _LATER and name not in _ROOMS:
        raise AttributeError(f"module 'csdp' has no attribute {name!r}")
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"csdp.{name}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER, *_ROOMS])
