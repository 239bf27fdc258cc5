"""The ledger: reserve + commit pairs per second, as a ratio to one bare durable insert in the same run.

One pair is two transactions that reach the disk together, as for the ticks of a stream. PostgreSQL is left out where it
is not installed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import psycopg

# The tests have a way to start a PostgreSQL server of their own.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import postgres
from bench.record import Record, ratio_record
from csdp.ledger import Admission, Charge, DatasetState, Ledger, Request, Reserved, Terms

SECONDS = 1.5
ROUNDS = 3
BATCH = 1000
PAYLOAD = json.dumps({"charge": {"epsilon": 0.5}, "state": {"b": 0.25}})


def run(scale: float = 1.0) -> list[Record]:
    """One row per database and batch size: pairs per second, and the bare inserts they are compared with."""
    seconds = max(0.1, SECONDS * scale)
    with tempfile.TemporaryDirectory() as folder, postgres.cluster() as server:
        rows = _compare("sqlite", f"{folder}/ledger.db", _bare_sqlite(f"{folder}/bare.db", seconds), seconds)
        if server is not None:
            rows += _compare(
                "postgresql", server.new_database(), _bare_postgresql(server.new_database(), seconds), seconds
            )
    return rows


def _compare(name: str, where: str, bare: Callable[[], float], seconds: float) -> list[Record]:
    rates: dict[str, list[float]] = {"bare": [], "single": [], "batch": []}
    with Ledger.open(where) as ledger:
        ledger.register("d", Terms(plan_digest="p", plan_json="{}", chain_digest="c"))
        tick = 0

        def pairs(size: int) -> Callable[[], int]:
            def once() -> int:
                nonlocal tick
                wanted = [Request(tick + k, "mean") for k in range(size)]
                tick += size
                answers = ledger.reserve("d", wanted, _admit, plan_digest="p")
                held = [one for one in answers if isinstance(one, Reserved)]
                ledger.commit_many([(one, {"value": 0.5}) for one in held])
                return size

            return once

        for _ in range(ROUNDS):  # interleaved, so that a busy machine slows all alike
            rates["bare"].append(bare())
            rates["single"].append(_rate(pairs(1), seconds))
            rates["batch"].append(_rate(pairs(BATCH), seconds))
    base = median(rates["bare"])
    return [
        {
            **ratio_record(
                f"reserve and commit, {name}, {size:,} at a time",
                "one bare durable insert",
                1 / median(rates[kind]),
                1 / base,
                target=3.0,
            ),
            "pairs_per_second": median(rates[kind]),
            "bare_inserts_per_second": base,
        }
        for kind, size in (("single", 1), ("batch", BATCH))
    ]


def _admit(state: DatasetState | None, last_tick: int | None, request: Request) -> Admission:
    return Admission(DatasetState({"b": 0.25}), Charge(present=0.5))


def _rate(once: Callable[[], int], seconds: float) -> float:
    start, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds:
        done += once()
    return done / spent


def _bare_sqlite(path: str, seconds: float) -> Callable[[], float]:
    def inserts_per_second() -> float:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, payload TEXT)")

            def once() -> int:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO bare (payload) VALUES (?)", (PAYLOAD,))
                connection.execute("COMMIT")
                return 1

            return _rate(once, seconds)

    return inserts_per_second


def _bare_postgresql(url: str, seconds: float) -> Callable[[], float]:
    def inserts_per_second() -> float:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS bare (id BIGSERIAL PRIMARY KEY, payload TEXT)")

            def once() -> int:
                connection.execute("INSERT INTO bare (payload) VALUES (%s)", (PAYLOAD,))
                return 1

            return _rate(once, seconds)

    return inserts_per_second
