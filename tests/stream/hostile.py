"""Messages of honest devices up to now, and those of one that lies about the time; the same for every source."""

from __future__ import annotations

import json
import time

from csdp import Mean, Plan
from csdp.ledger import Ledger
from csdp.planning.plan_file import PlanFile

from stream.parts import DATASET, NAMES, pairs  # isort: skip

STEP, LATENESS, AGE = 60, 10, 5
#: One message, or three, that would move the clock of all for ever.
POISON = {
    "a reading at 2^53": [{"time": 2**53, "sequence": "s0", "value": 1}],
    "a reading in a year": [{"time": time.time() + 365 * 86400, "sequence": "s0", "value": 1}],
    "three snapshots at 10^12": [{"time": 10**12 + k * STEP, "values": {"s0": 1, "s1": 0}} for k in range(3)],
}


def spec(folder, *, source="kind = 'stdin'", clock=f"lateness = {LATENESS}", stale_limit=0, age=AGE, more=""):
    """A specification as it was always written: nothing in it says what times are."""
    PlanFile(Plan(pairs(2), Mean(), age, 0.5, stale_limit=stale_limit)).save(folder / "plan.json")
    path = folder / "stream.toml"
    path.write_text(
        f"""
dataset = "{DATASET}"
ledger = "ledger.db"
plan = "plan.json"
{more}
anyway = true

[clock]
step = {STEP}
{clock}

[source]
{source}

[sink]
kind = "none"
"""
    )
    return path


def honest(ages):
    """Snapshots of so many ticks ago, in order; 0 is the present."""
    now = time.time()
    return [{"time": now - STEP * age, "values": {"s0": age % 2, "s1": 1}} for age in ages]


def lines(messages):
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def published(folder):
    """The ticks in the ledger: each of them over by the wall clock, and nothing charged beside them."""
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []
        ticks = [one.tick for one in ledger.published(DATASET)]
        newest = ledger.summary(DATASET).newest_tick
    assert all((tick + 1) * STEP <= time.time() for tick in ticks)
    assert newest is None or (newest + 1) * STEP <= time.time()
    return ticks


__all__ = ["AGE", "DATASET", "LATENESS", "NAMES", "POISON", "STEP", "honest", "lines", "published", "spec"]
