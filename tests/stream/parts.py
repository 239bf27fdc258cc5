"""What the tests of streams share: a small model, a runner on a fresh ledger, sinks that remember."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np

from csdp import CoupledChain, Mean, Plan, Publisher
from csdp.clock import WallClock
from csdp.ledger import Ledger
from csdp.stream import Clock, Runner

NAMES = ("hall", "kitchen")
DATASET = "house"
#: A moment of a wall clock; a multiple of ten.
NOW = 1_700_000_000


def plan(ages=1, *, stale_limit=0, epsilon_c=0.5, query=None):
    chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=NAMES)
    return Plan(chain, query or Mean(), ages=ages, epsilon_c=epsilon_c, stale_limit=stale_limit)


def pairs(count):
    """A chain of many sequences that influence each other two by two."""
    edges = {(i, i): 0.75 for i in range(count)} | {(i, i ^ 1): 0.25 for i in range(count)}
    return CoupledChain(edges, [[0.7, 0.3], [0.3, 0.7]], names=[f"s{i}" for i in range(count)])


class Wall:
    """A wall clock that a test moves: `pass_by` lets time pass, `set_to` is somebody who sets the clock."""

    def __init__(self, now):
        self.shown, self._elapsed = now, 0.0
        self.clock = WallClock(time=lambda: self.shown, elapsed=lambda: self._elapsed)

    def pass_by(self, seconds):
        self.shown += seconds
        self._elapsed += seconds

    def set_to(self, now):
        self.shown = now


class Memory:
    """A sink that remembers; while `open` is not set it waits, until it is set or the runner is stopped."""

    def __init__(self, newest=None):
        self.outputs = []
        self.open = threading.Event()
        self.open.set()
        self.closed = False
        self._newest = newest

    def deliver(self, output, stop):
        while not self.open.wait(0.01):
            if stop.is_set():
                return False
        self.outputs.append(output)
        return True

    def newest(self):
        return self._newest

    def close(self):
        self.closed = True

    @property
    def ticks(self):
        return [output["tick"] for output in self.outputs]


@contextmanager
def running(folder, *, clock=None, given=None, budget=None, wall=None, **settings):
    """A runner on the ledger of a folder; a second one goes on where the first stopped."""
    clock = clock or Clock(step=10, lateness=5, times="data")
    with Ledger.open(folder / "ledger.db") as ledger:
        publisher = Publisher(
            given or plan(),
            dataset=DATASET,
            ledger=ledger,
            budget=budget,
            on_refusal="skip",
            time_step=clock.step,
            time_origin=clock.origin,
            times=clock.times,
            wall=wall,
        )
        yield Runner(publisher, ledger=ledger, clock=clock, **settings)


def feed(runner, ticks, *, value=lambda tick, name: tick % 2, at=5):
    """A reading of every sequence in every tick; in the middle of a tick, it closes the one before."""
    for tick in ticks:
        for name in NAMES:
            runner.ingest(name, time=10 * tick + at, value=value(tick, name))


def published(folder):
    """tick -> values of everything in the ledger, each tick once, and the ledger sound."""
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []
        found = list(ledger.published(DATASET))
    assert len({one.tick for one in found}) == len(found)
    return {one.tick: one.output["values"] for one in found}


class SeenBy:
    """Stands in the place of a discretiser, and remembers the snapshots that were closed."""

    categories, source, state_count, names = None, "declared", 2, NAMES

    def __init__(self):
        self.snapshots = []

    def arrange(self, names):
        return self

    def states_of(self, snapshot):
        self.snapshots.append(snapshot.copy())
        return np.where(np.isnan(snapshot), -1, np.clip(np.nan_to_num(snapshot), 0, 1).astype(np.int16))
