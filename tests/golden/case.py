"""A golden case as plain data, and the numbers that the library gives for it."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import csdp
from csdp.errors import CsdpError
from csdp.report.certificate import certify

Data = dict[str, Any]


def build_model(data: Data) -> Any:
    """The model of a case; several stand for a family."""
    if "family" in data:
        return csdp.Family([build_model(one) for one in data["family"]])
    kind = data["kind"]
    if kind == "coupled":
        names = ("coupling", "transitions", "direction", "values")
        return csdp.CoupledChain(**{name: data[name] for name in names if name in data})
    if kind == "joint":
        return csdp.JointChain(data["kernel"], states=data["states"], sequences=data["sequences"])
    if kind == "limits":
        return csdp.InfluenceGraph.around(build_model(data["point"]), data["margin"])
    members = [build_model(one) for one in data["members"]]
    return csdp.EnvironmentChain(members, cycle=data.get("cycle"), switching=data.get("switching"))


def build_plan(data: Data, model: Any) -> csdp.Plan:
    """The plan of a case."""
    query: Any = data["query"]
    if "groups" in data:
        query = csdp.PerGroup(query, data["groups"])
    schedule = csdp.Schedule(**data["schedule"]) if "schedule" in data else None
    options: Data = {"stale_limit": data.get("stale_limit", 0), "schedule": schedule}
    return csdp.Plan(model, query, data["ages"], data["epsilon_c"], **options)


def compute(case: Data, model: Any = None) -> Data:
    """The leakage of one release, the charge of every tick, the ceiling and the certificate; floats in hex.

    What the library refuses is recorded as the name of the error.
    """
    try:
        return _compute(case, build_model(case["model"]) if model is None else model)
    except CsdpError as error:
        return {"refused": type(error).__name__}


def _compute(case: Data, model: Any) -> Data:
    plan = build_plan(case, model)
    result: Data = {"one_release": _hex(plan.certified.epsilon), "bound": plan.certified.bound}
    with tempfile.TemporaryDirectory() as folder:
        options: Data = {"dataset": "golden", "ledger": Path(folder) / "ledger.db", "on_refusal": "skip"}
        options |= {"model_unchecked": True, **case.get("limits", {})}
        with csdp.Publisher(plan, **options) as publisher:
            result["ceiling"] = _hex(publisher.accountant.ceiling())
            current = publisher
            for step in case["history"]:
                if "plan" in step:
                    changed = build_plan({**case, **step["plan"]}, model)
                    current = current.change_plan(changed, from_tick=step["tick"], model_unchecked=True)
                    continue
                current.push(_snapshot(plan, step), time=step["tick"])
            result["charges"] = [_charge(entry) for entry in publisher.ledger.entries("golden", kind="reserve")]
            certificate = certify(current, publisher.ledger)
        result["certificate"] = {
            promise.name: [_hex(promise.epsilon), None if promise.ceiling is None else _hex(promise.ceiling)]
            for promise in certificate.promises
        }
    return result


def _snapshot(plan: csdp.Plan, step: Data) -> list[Any]:
    """States or readings that depend on the tick alone: which they are changes no charge."""
    states = np.random.default_rng(step["tick"]).integers(0, plan.model.states, plan.model.sequences).tolist()
    absent = -1 if plan.query.of_states else None
    return [absent if i in step.get("missing", []) else state for i, state in enumerate(states)]


def _charge(entry: Any) -> list[Any]:
    charge = entry.data()["charge"]
    names = ("present", "peak", "event", "every_moment")
    return [entry.tick, *(None if charge.get(name) is None else _hex(charge[name]) for name in names)]


def _hex(value: float) -> str:
    return float(value).hex()


def differences(expected: Any, found: Any, *, tolerance: float, where: str = "") -> list[str]:
    """Where two results differ; floats by more than a relative tolerance, 0 for the last bit."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        parts = [
            differences(expected[key], found[key], tolerance=tolerance, where=f"{where}.{key}") for key in expected
        ]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        parts = [differences(*pair, tolerance=tolerance, where=f"{where}[{i}]") for i, pair in pairs]
    elif _same(expected, found, tolerance):
        parts = []
    else:
        parts = [[f"{where}: {_shown(expected)} expected, {_shown(found)} found"]]
    return [one for part in parts for one in part]


def _same(expected: Any, found: Any, tolerance: float) -> bool:
    if expected == found or not (_is_float(expected) and _is_float(found)):
        return bool(expected == found)
    return math.isclose(float.fromhex(expected), float.fromhex(found), rel_tol=tolerance, abs_tol=0.0)


def _is_float(value: Any) -> bool:
    return isinstance(value, str) and ("0x" in value or value == "inf")


def _shown(value: Any) -> str:
    return f"{float.fromhex(value):.15g}" if _is_float(value) else repr(value)


def machine() -> str:
    """What decides the last digits: the processor that loops are compiled for, and numpy's functions on it."""
    from llvmlite.binding import get_host_cpu_name

    x = np.linspace(0.01, 3.0, 997)
    digits = float((np.expm1(x) * np.log1p(x)).sum() + np.exp(-x).sum() + np.linalg.inv(np.eye(3) + 0.1).sum())
    return f"{get_host_cpu_name()} {digits.hex()}"
