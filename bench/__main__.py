"""Measure against peers and physical limits in one run: a table of ratios, and JSON in bench/results/.

    python -m bench                        everything, full size
    python -m bench --scale 0.01           everything at about a hundredth of the size, in some minutes
    python -m bench noise fran             some sections

A reduced size only shows that everything runs: targets hold at full size and are omitted otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from bench.record import Record, table

SECTIONS = (
    "imports",
    "leakage",
    "certificates",
    "noise",
    "means",
    "fran",
    "ledger",
    "planning",
    "own_data",
    "fit",
    "tables",
    "service",
)


def run_sections(sections: list[str], scale: float, out: Path) -> dict[str, list[Record]]:
    """Run sections one after the other; each writes its JSON as soon as it is done."""
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[Record]] = {}
    for section in sections:
        print(f"== {section}", flush=True)
        start = time.perf_counter()
        records: list[Record] = import_module(f"bench.{section}").run(scale)
        if scale < 1:
            records = [{**record, "target": None} if "target" in record else record for record in records]
        results[section] = records
        (out / f"{section}.json").write_text(json.dumps(records, indent=1))
        print(f"-- {time.perf_counter() - start:.0f} s", flush=True)
    return results


def main(arguments: list[str] | None = None) -> None:
    """Run the sections named on the command line, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default all")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size, default 1")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="for JSON")
    options = parser.parse_args(arguments)
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))} given; sections: {', '.join(SECTIONS)}")
    if not 0 < options.scale <= 1:
        parser.error(f"--scale {options.scale} given; above 0, at most 1")
    results = run_sections(options.sections or list(SECTIONS), options.scale, options.out)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    whole = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "scale": options.scale,
        **machine,
        "sections": results,
    }
    (options.out / "all.json").write_text(json.dumps(whole, indent=1))
    print("\nour time over theirs, measured in one run; below 1 is faster\n")
    print(table(results))


if __name__ == "__main__":
    main()
