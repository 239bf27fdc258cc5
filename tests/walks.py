"""`python tests/walks.py`: how much code three everyday jobs run through.

A *walk* is everything of `src/csdp` that runs during one job. Three numbers are counted:

- **functions**: distinct named functions and methods (file and qualified name) that are entered at least once. Lambdas
  and comprehensions are not counted, and neither is the top level of a module that is imported on the way.
- **modules**: distinct files that these functions are defined in.
- **changes of room**: all code that was entered, lambdas and comprehensions included, in the order in which it was
  entered for the first time, whichever thread ran it; counted is how often the next one lies in another room. A room
  is a folder of `src/csdp`; a module directly in `src/csdp` is a room of its own.

The jobs, each in a process that has everything imported:

- **release**: `csdp release` of 50 snapshots on a chain of two sequences, with the plan given by options, into a new
  ledger. The same process has made the chain, simulated the readings and published them once under another plan, so
  that what is computed once in a process is not counted.
- **HTTP snapshot**: one `POST /api/datasets/.../snapshots` to the real application (FastAPI's test client), the fifth
  of a new dataset, so that its tick is published. Counted until the answer is back, in all threads of the service.
- **csdp.leakage**: one call for a new chain of two sequences.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import warnings
from contextlib import chdir
from itertools import pairwise
from pathlib import Path

import csdp

ROOT = str(Path(csdp.__file__).parent) + os.sep
HEADER = ("walk", "functions", "modules", "changes of room")


class Walk:
    """Records the code of csdp that is entered, in this thread and in threads that start while it is active."""

    def __init__(self):
        self.entered = {}  # (file, qualified name, first line), in the order of the first call

    def record(self, frame, event, _):
        """The function that Python calls for every call and return."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            self.entered.setdefault((code.co_filename[len(ROOT) :], code.co_qualname, code.co_firstlineno))

    def __enter__(self):
        threading.setprofile(self.record)
        sys.setprofile(self.record)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def counts(self):
        """Functions, modules and changes of room."""
        entered = list(self.entered)
        named = {(file, name) for file, name, _ in entered if not name.rpartition(".")[2].startswith("<")}
        rooms = [Path(file).parts[0] for file, _, _ in entered]
        changes = sum(room != following for room, following in pairwise(rooms))
        return len(named), len({file for file, _ in named}), changes


def walk_release():
    """`csdp release` on a chain of two sequences."""
    from typer.testing import CliRunner

    from csdp.cli import app

    def run(command):
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, result.output

    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        run("chain new --sequences 2 --self-coupling 0.75 --p 0.1 --q 0.2 -o chain.json")
        run("chain simulate chain.json --steps 50 --seed 1 -o readings.csv")
        run("plan chain.json --age 1 --epsilon-c 0.1 -o plan.json")
        run(
            "release readings.csv --plan plan.json --dataset first --ledger first.db --budget 0.5 --anyway -o first.csv"
        )
        run("ledger show first.db")
        run("plan chain.json --age 2 --epsilon-c 1 --about then -o then.json")
        with Walk() as walk:
            run("release readings.csv --plan then.json --dataset home --ledger ledger.db -o released.csv")
    return walk.counts()


def walk_http_snapshot():
    """One snapshot handed in over HTTP."""
    from csdp.service.app import create
    from service.parts import WARD, Access, settings_of, snapshot

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the HTTP library that the test client prefers
        from fastapi.testclient import TestClient

    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(Path(folder))
        headers = Access(Path(settings.keys)).headers("writer")
        # The service's threads start with the application, so recording does too; what they did before is dropped.
        with Walk() as walk, TestClient(create(settings), headers=headers) as client:
            sys.setprofile(None)  # this thread is the client
            for tick in range(5):
                walk.entered.clear()
                answer = client.post(f"/api/datasets/{WARD}/snapshots", json=snapshot(tick))
                assert answer.json().get("accepted") == 1, answer.text
            return walk.counts()


def walk_leakage():
    """`csdp.leakage` of one release."""
    chain = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    with Walk() as walk:
        csdp.leakage(chain, csdp.Mean(), ages=2, epsilon_c=1.0)
    return walk.counts()


#: csdp.leakage comes first: nothing has been computed in the process yet.
WALKS = {"csdp.leakage": walk_leakage, "release": walk_release, "HTTP snapshot": walk_http_snapshot}


def main():
    """Print the table."""
    print(("{:16}" + "{:>18}" * 3).format(*HEADER))
    for name, walk in WALKS.items():
        print(("{:16}" + "{:>18}" * 3).format(name, *walk()))


if __name__ == "__main__":
    main()
