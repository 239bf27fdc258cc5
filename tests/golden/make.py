"""`python -m golden.make`, in tests/: write the golden certificates anew. A commit that does lists what has changed.

Every case is plain data with the numbers that the library gave for it. The cases were drawn once, from fixed seeds. A
feature that goes takes its own cases along: delete their lines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden.case import Data, compute, differences, machine

FILE = Path(__file__).with_name("certificates.json")


def data_cases() -> Iterator[tuple[Data, Any]]:
    """A plan for each bundled data set, with its fitted chain; growing a class would take minutes."""
    from unittest.mock import patch

    import csdp
    from csdp import datasets

    for name, settings in (
        ("flights", {"environment": "hidden", "environments": 2, "direction": "backward", "neighbours": 0}),
        ("parking", {"direction": "backward", "neighbours": 0}),
    ):
        data = datasets.load(name)
        past, _ = data.readings.split(data.past_ends)
        with patch("csdp.fitting.grow.FEWEST", 10**9):
            chain = csdp.fit(data.discretiser().apply(past), public=True, **settings)
        ages = {"flights": 0, "parking": 2}[name]
        case = {
            "name": name,
            "query": "mean",
            "ages": ages,
            "epsilon_c": 0.5,
            "history": [{"tick": t} for t in range(8)],
        }
        yield case, chain


def main() -> None:
    """Compute the numbers of every case in the file anew, and print what has changed."""
    cases = json.loads(FILE.read_text(encoding="utf-8"))["cases"]
    models = {case["name"]: model for case, model in data_cases()}
    for case in cases:
        before = case["expected"]
        case["expected"] = compute(case, models.get(case["name"]))
        for line in differences(before, case["expected"], tolerance=0.0):
            sys.stdout.write(f"{case['name']}{line}\n")
    lines = ",\n".join(json.dumps(case) for case in cases)
    FILE.write_text(f'{{"machine": "{machine()}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
