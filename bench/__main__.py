"""Run every bench, print the tables, keep the numbers in bench/results/."""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path

SECTIONS = ("leakage", "certificates", "noise", "fran", "ledger", "fit", "tables")


def main() -> None:
    """Run the sections named on the command line, or all."""
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    for section in sys.argv[1:] or SECTIONS:
        print(f"\n== {section}", flush=True)
        start = time.perf_counter()
        records = import_module(f"bench.{section}").run()
        for record in records:
            print(record)
        (results / f"{section}.json").write_text(json.dumps(records, indent=1))
        print(f"-- {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
