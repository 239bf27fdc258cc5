"""`python -m golden.make`, in tests/: write the golden certificates anew. A commit that does lists what has changed.

Every case is plain data with the numbers that the library gave for it, so that a feature which goes takes its own cases
along and leaves the others as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from golden.case import Data, compute, differences, machine

FILE = Path(__file__).with_name("certificates.json")
Random = np.random.Generator
QUERIES = ("mean", "sum", "max", "min", "count:1", "histogram", "identity", "linear")
KINDS = ("coupled", "backward", "joint", "clock", "hidden", "family", "large", "apart", "limits")
OTHERS = ("mean of readings 0..2 by 0.25", "count:1.. of readings 0..2 by 0.25", "schedule")


def random_cases() -> Iterator[Data]:
    """Cases of every kind of model and query, each from a seed of its own."""
    for kind in KINDS:
        for place, query in enumerate((*QUERIES, "per group", *OTHERS)):
            for repeat in range(4):
                random = np.random.default_rng([KINDS.index(kind), place, repeat])
                yield _case(random, kind, query, f"{kind} {query} {repeat}")


def _case(random: Random, kind: str, query: str, name: str) -> Data:
    m = int(random.integers(2, 4))
    s = int(random.integers(4, 6)) if kind == "large" else int(random.integers(1, 4))
    s, m = (max(s, 2), m) if query == "per group" else (s, m)
    case: Data = {"name": name, "model": _model(random, kind, s, 2 if kind == "large" else m)}
    case["query"] = query
    if query == "linear":
        case["query"] = "linear:" + ",".join(str(int(w)) for w in random.integers(1, 5, s))
    if query == "per group":
        case |= {"query": "sum", "groups": [[0], list(range(1, s))]}
    equal = random.random() < 0.6
    case["ages"] = int(random.integers(0, 4)) if equal else random.integers(0, 4, s).tolist()
    case["epsilon_c"] = float(random.choice([0.1, 0.5, 1.0, 2.0]))
    if query == "schedule":
        levels = (case["epsilon_c"] * random.choice([0.0, 0.5, 1.0], size=6)).tolist()
        case |= {"query": "mean", "schedule": {"levels": levels, "start": 2, "then": case["epsilon_c"] / 2}}
    if random.random() < 0.4 and "readings" not in query:
        case["stale_limit"] = int(random.integers(1, 3))
    if random.random() < 0.25:
        case["limits"] = {"lifetime_limit": 1e6}
    case["history"] = list(_history(random, case, s))
    return case


def _history(random: Random, case: Data, s: int) -> Iterator[Data]:
    """Up to 40 ticks with gaps and late sequences, and in some cases a change of plan half way."""
    count = int(random.choice([3, 6, 12, 40], p=[0.5, 0.3, 0.15, 0.05]))
    changed = count // 2 if random.random() < 0.25 and "schedule" not in case else None
    tick = 0
    for number in range(count + 4):
        step: Data = {"tick": tick}
        if (case.get("stale_limit") or "readings" in case["query"]) and number > 4 and random.random() < 0.2:
            step["missing"] = [int(random.integers(s))]
        yield step
        tick += int(random.choice([1, 2, 5], p=[0.85, 0.1, 0.05]))
        if number == changed:
            yield {"tick": tick, "plan": {"epsilon_c": case["epsilon_c"] / 2}}


def _model(random: Random, kind: str, s: int, m: int) -> Data:
    if kind == "joint":
        return {"kind": "joint", "kernel": _rows(random, m**s, m**s), "states": m, "sequences": s}
    if kind == "clock":
        cycle = [0, 1, 1] if random.random() < 0.5 else [0, 1]
        return {"kind": "environment", "members": _pair(random, s, m), "cycle": cycle}
    if kind == "hidden":
        return {"kind": "environment", "members": _pair(random, s, m), "switching": _rows(random, 2, 2)}
    if kind == "family":
        return {"family": _pair(random, s, m)}
    if kind == "limits":
        return {"kind": "limits", "point": _coupled(random, s, m, backward=True), "margin": 0.05}
    return _coupled(random, s, m, backward=kind == "backward", apart=kind == "apart")


def _pair(random: Random, s: int, m: int) -> list[Data]:
    backward = bool(random.random() < 0.5)
    return [_coupled(random, s, m, backward=backward) for _ in range(2)]


def _coupled(random: Random, s: int, m: int, *, backward: bool = False, apart: bool = False) -> Data:
    coupling = np.eye(s) if apart else 0.6 * np.eye(s) + 0.4 * random.dirichlet(np.ones(s), size=s)
    own: Data = {"kind": "coupled", "coupling": coupling.tolist(), "transitions": _rows(random, m, m)}
    return own | ({"direction": "backward"} if backward else {})


def _rows(random: Random, n: int, m: int) -> list[list[float]]:
    rows: list[list[float]] = (0.5 * np.eye(n, m) + 0.5 * random.dirichlet(np.ones(m), size=n)).tolist()
    return rows


def data_cases() -> Iterator[tuple[Data, Any]]:
    """A plan for each bundled data set, with its fitted model."""
    import csdp
    from csdp import datasets

    for name, settings in (
        ("flights", {"environment": "hidden", "environments": 2, "direction": "backward", "neighbours": 0}),
        ("parking", {"direction": "backward", "neighbours": 0}),
        ("glucose", {"direction": "backward"}),
    ):
        data = datasets.load(name)
        past, _ = data.readings.split(data.past_ends)
        chain = csdp.fit(data.discretiser().apply(past), public=True, ensemble=0, progress=False, **settings)
        ages = {"flights": 0, "parking": 2, "glucose": 1}[name]
        case = {
            "name": name,
            "query": "mean",
            "ages": ages,
            "epsilon_c": 0.5,
            "history": [{"tick": t} for t in range(8)],
        }
        yield case, chain


def main() -> None:
    """Write the file, and print what has changed."""
    old = (
        {case["name"]: case for case in json.loads(FILE.read_text(encoding="utf-8"))["cases"]} if FILE.exists() else {}
    )
    cases = [{**case, "expected": compute(case)} for case in random_cases()]
    cases += [{**case, "expected": compute(case, model)} for case, model in data_cases()]
    for case in cases:
        before = old.get(case["name"], {}).get("expected", case["expected"])
        for line in differences(before, case["expected"], tolerance=0.0):
            sys.stdout.write(f"{case['name']}{line}\n")
    lines = ",\n".join(json.dumps(case) for case in cases)
    FILE.write_text(f'{{"machine": "{machine()}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
