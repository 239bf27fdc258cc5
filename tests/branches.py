"""After a run with `--cov`: which branches of the mathematics and the gate no test took, room by room."""

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from coverage import Coverage

LEAST = 0.95  # of the branches of every room


def main():
    """Print a line a room; fail where a room is below the least."""
    found = Coverage()
    found.load()
    with tempfile.TemporaryDirectory() as folder:
        found.json_report(outfile=f"{folder}/report.json")
        files = json.loads(Path(folder, "report.json").read_text())["files"]
    taken, all_of = defaultdict(int), defaultdict(int)
    for name, report in files.items():
        room = Path(name).relative_to("src/csdp").parts[0].removesuffix(".py")
        taken[room] += report["summary"]["covered_branches"]
        all_of[room] += report["summary"]["num_branches"]
    low = [room for room in all_of if taken[room] < LEAST * all_of[room]]
    for room in sorted(all_of):
        share = taken[room] / all_of[room] if all_of[room] else 1.0
        print(f"{room:12} {share:7.1%} of {all_of[room]:4} branches{' TOO FEW' if room in low else ''}")
    print(f"{'together':12} {sum(taken.values()) / sum(all_of.values()):7.1%}; at least {LEAST:.0%} of every room")
    if low:
        print(f"branches not taken in {', '.join(low)}: coverage report -m names them; test them or delete them")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
