"""Processes that fill a disk or hold a dataset; a script, so that they are small and have one thread.

python workers.py fill WHERE BYTES
python workers.py hold WHERE
"""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from csdp.errors import LedgerError
from csdp.ledger import Ledger, Request, Reserved
from ledger.rules import PLAN, at_most, register

UNLIMITED = 10**9


def fill(where: str, limit: int) -> None:
    """A file-size limit stands for a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Ledger.open(where) as ledger:
        register(ledger)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        done = 0
        try:
            for tick in range(100_000):
                (held,) = ledger.reserve("ward-7", [Request(tick, "m")], at_most(UNLIMITED), plan_digest=PLAN)
                assert isinstance(held, Reserved)
                ledger.commit(held, {"text": "x" * 2000})
                done += 1
        except LedgerError as error:
            print(done, type(error).__name__)  # noqa: T201 - the answer to the test


def hold(where: str) -> None:
    """Hold the dataset, and after a line on standard input try twice to publish; prints the errors."""
    with Ledger.open(where, timeout=10) as ledger:
        ledger.hold("ward-7")
        print("held", flush=True)  # noqa: T201 - the answer to the test
        sys.stdin.readline()
        for tick in (5, 6):
            try:
                ledger.reserve("ward-7", [Request(tick, "mean")], at_most(UNLIMITED), plan_digest=PLAN)
            except LedgerError as error:
                print(type(error).__name__)  # noqa: T201 - the answer to the test


if __name__ == "__main__":
    command, place, *rest = sys.argv[1:]
    if command == "hold":
        hold(place)
    else:
        fill(place, int(rest[0]))
