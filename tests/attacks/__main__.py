"""Random histories against the truth: `python -m attacks --seconds 600` in the folder of the tests."""

from __future__ import annotations

import argparse
import os
import sys
import time

from attacks.campaign import reported, run_campaign
from attacks.cases import ODDS


def main() -> int:
    """Run, print what was covered and found; 1 where something was."""
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__)
    parser.add_argument("--seed", type=int, default=ODDS, help="seed of the first history")
    parser.add_argument("--count", type=int, default=10**9, help="histories, at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="time, at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    begun = time.monotonic()
    jobs = max(1, min(given.jobs, given.count))
    coverage = run_campaign(given.seed, given.count, seconds=given.seconds, jobs=jobs)
    took = time.monotonic() - begun
    print("\n".join(coverage.lines()))
    print(f"\n{took:.0f} s on {jobs} processes: {coverage.histories / max(took, 1e-9):.2f} histories a second")
    for line in reported(coverage):
        print(line)
    print(f"{len({finding.seed for finding in coverage.findings})} histories with a number below the truth")
    return 1 if coverage.findings else 0


if __name__ == "__main__":
    sys.exit(main())
