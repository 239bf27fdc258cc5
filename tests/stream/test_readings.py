"""A stream that publishes readings keeps them: to the gate, through gaps, and over a restart."""

import numpy as np
import pytest

import csdp
from csdp.stream import Clock
from stream.parts import DATASET, NAMES, feed, plan, published, running

RANGE = csdp.ReadingRange(0, 1, 0.125)
CLOSE = {"given": plan(2, epsilon_c=1e6, query=csdp.Mean(of=RANGE))}


def reading(tick, name):
    return (tick % 7) / 8 + (0.125 if name == "hall" else 0.0)


def test_readings_reach_the_gate_and_not_their_states(tmp_path):
    with running(tmp_path, **CLOSE) as runner:
        feed(runner, range(12), value=reading)
        runner.settle()
    values = published(tmp_path)
    assert set(values) >= set(range(2, 10))
    for tick, (value,) in values.items():
        assert value == pytest.approx(np.mean([reading(tick - 2, name) for name in NAMES]), abs=1e-9)


def test_a_restart_goes_on_with_the_readings_of_the_state_file(tmp_path):
    settings = {**CLOSE, "clock": Clock(step=10, lateness=0, times="data"), "state_file": tmp_path / "state.npz"}
    with running(tmp_path, **settings) as runner:
        feed(runner, range(6), value=reading)
        runner.settle()
        runner.close()
    with running(tmp_path, **settings) as runner:
        feed(runner, range(6, 10), value=reading)
        runner.settle()
    values = published(tmp_path)
    assert set(range(2, 9)) <= set(values)
    for tick, (value,) in values.items():
        assert value == pytest.approx(np.mean([reading(tick - 2, name) for name in NAMES]), abs=1e-9)


def test_who_is_missing_costs_nothing_before_and_after_a_restart(tmp_path):
    names = [f"s{i}" for i in range(6)]
    ring = {(i, (i + d) % 6): w for i in range(6) for d, w in ((0, 0.8), (1, 0.2))}
    chain = csdp.CoupledChain(ring, [[0.7, 0.3], [0.3, 0.7]], names=names, direction="backward")
    settings = {
        "given": csdp.Plan(chain, csdp.Mean(of=RANGE), 1, 0.3),
        "clock": Clock(step=10, lateness=0, times="data"),
        "state_file": tmp_path / "state.npz",
    }
    for ticks in (range(6), range(6, 12)):
        with running(tmp_path, **settings) as runner:
            for tick in ticks:
                for name in names[: 6 - tick % 3]:  # none, the last, or the last two are missing
                    runner.ingest(name, time=10 * tick + 5, value=reading(tick, name))
            runner.settle()
            runner.close()
    with csdp.Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert csdp.replay(ledger).ok
        charges = {e.tick: e.data()["charge"] for e in ledger.entries(DATASET) if e.kind == "reserve"}
    assert set(charges) >= set(range(1, 11))
    for tick, charge in charges.items():
        absent = list(range(6 - (tick - 1) % 3, 6))
        assert charge.get("late") == ({"missing": absent} if absent else None)
