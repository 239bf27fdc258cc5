"""csdp: publish statistics of correlated sequences without giving away anyone's present state."""

import typing as _typing

from csdp.audit.black_box import audit
from csdp.bounds.result import Leakage
from csdp.chain import CoupledChain, EnvironmentChain, Family, InfluenceGraph, JointChain, NoModel
from csdp.fitting.fit import fit
from csdp.query import Count, Custom, Histogram, Identity, Linear, Max, Mean, Min, PerGroup, Sum
from csdp.readings import ReadingRange

if _typing.TYPE_CHECKING:
    from csdp.accountant import Accountant
    from csdp.accountant.question import leakage
    from csdp.audit.attack import attack
    from csdp.audit.replay import replay
    from csdp.estimate import mse
    from csdp.fitting.checks import check_model, fit_quality
    from csdp.ledger import Ledger
    from csdp.panel import (
        Discretiser,
        InputSpec,
        Panel,
        Readings,
        find_input,
        read_panel,
        read_readings,
    )
    from csdp.plan import Plan
    from csdp.planning.dynamic import dynamic_plan
    from csdp.planning.frontier import frontier
    from csdp.planning.search import find_plan
    from csdp.publisher import Publisher, Release, Skipped, learn_from_past, plan_estimator
    from csdp.schedule import Schedule

__version__ = "0.2.0"
__all__ = [
    "Accountant",
    "Count",
    "CoupledChain",
    "Custom",
    "Discretiser",
    "EnvironmentChain",
    "Family",
    "Histogram",
    "Identity",
    "InfluenceGraph",
    "InputSpec",
    "JointChain",
    "Leakage",
    "Ledger",
    "Linear",
    "Max",
    "Mean",
    "Min",
    "NoModel",
    "Panel",
    "PerGroup",
    "Plan",
    "Publisher",
    "ReadingRange",
    "Readings",
    "Release",
    "Schedule",
    "Skipped",
    "Sum",
    "attack",
    "audit",
    "check_model",
    "dynamic_plan",
    "find_input",
    "find_plan",
    "fit",
    "fit_quality",
    "frontier",
    "leakage",
    "learn_from_past",
    "mse",
    "plan_estimator",
    "read_panel",
    "read_readings",
    "replay",
]

#: Names whose modules bring in a database, a solver or a cipher: loaded when first used.
_LATER = {
    "Accountant": "csdp.accountant",
    "Discretiser": "csdp.panel",
    "InputSpec": "csdp.panel",
    "Ledger": "csdp.ledger",
    "Panel": "csdp.panel",
    "Plan": "csdp.plan",
    "Publisher": "csdp.publisher",
    "Readings": "csdp.panel",
    "Release": "csdp.publisher",
    "Skipped": "csdp.publisher",
    "check_model": "csdp.fitting.checks",
    "attack": "csdp.audit.attack",
    "Schedule": "csdp.schedule",
    "dynamic_plan": "csdp.planning.dynamic",
    "find_input": "csdp.panel",
    "find_plan": "csdp.planning.search",
    "fit_quality": "csdp.fitting.checks",
    "frontier": "csdp.planning.frontier",
    "leakage": "csdp.accountant.question",
    "learn_from_past": "csdp.publisher",
    "mse": "csdp.estimate",
    "plan_estimator": "csdp.publisher",
    "read_panel": "csdp.panel",
    "read_readings": "csdp.panel",
    "replay": "csdp.audit.replay",
}

#: Rooms that are reachable as `csdp.<room>` after `import csdp`, and load then.
_ROOMS = (
    "accountant",
    "bounds",
    "chain",
    "datasets",
    "estimate",
    "fitting",
    "ledger",
    "noise",
    "panel",
    "paper",
    "planning",
    "publisher",
    "report",
    "service",
    "stream",
    "tables",
)


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER and name not in _ROOMS:
        raise AttributeError(f"module 'csdp' has no attribute {name!r}")
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"csdp.{name}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS, "__version__"})
