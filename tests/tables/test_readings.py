"""Engines publish readings as memory does: answers to the last bit, gaps left out and counted."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import csdp
from csdp import Count, CoupledChain, Histogram, Linear, Mean, Panel, Plan, Publisher, Sum
from csdp.errors import InputError
from csdp.publisher import PanelSource
from csdp.tables import EngineSource, open_table
from csdp.tables.engine import MemoryEngine

NAMES = ("a", "b", "c")
CHAIN = CoupledChain(np.eye(3) * 0.8 + 0.2 / 3, [[0.7, 0.3], [0.3, 0.7]], names=NAMES)
RANGE = csdp.ReadingRange(-1, 2, 0.1)
QUERIES = [
    Mean(of=RANGE),
    Sum(of=RANGE),
    Count(at_least=0.3, below=1.2, of=RANGE),
    Histogram(edges=(0.0, 0.5, 1.5), of=RANGE),
    Linear([2.0, -0.5, 0.25], of=RANGE),
    Linear([0.5, 0.5, 0.5], of=RANGE),
]


def numbers():
    """Readings inside and outside of the range, on ties between two levels, and missing ones."""
    random = np.random.default_rng(3)
    found = random.uniform(-2, 3, (60, 3)).round(3)
    found[::7] = np.round(found[::7] * 10) / 10 + 0.05
    found[3] = [1e300, -1e300, 0.25]
    found[random.random(found.shape) < 0.2] = math.nan
    found[10] = math.nan
    found[0, 0] = found[-1, 0] = 0.5
    return found


def panel_of(found):
    states = np.where(np.isnan(found), -1, np.nan_to_num(found) > 0.5).astype(int)
    ticks = np.arange(len(found))
    return Panel(NAMES, ticks, ticks, states, 1, None, found)


def write(folder, found):
    time, sequence = np.repeat(np.arange(len(found)), 3), np.tile(NAMES, len(found))
    there = ~np.isnan(found.ravel())
    table = pa.table({"time": time[there], "sequence": sequence[there], "value": found.ravel()[there]})
    pq.write_table(table, folder / "readings.parquet")
    return folder / "readings.parquet"


def agree(table, panel, query, ages):
    plan = Plan(CHAIN, query, ages, 1.0, bound="group")
    memory, engine = PanelSource(panel, plan), EngineSource(table, plan)
    listed = list(memory.availability(plan))
    assert list(engine.availability(plan)) == listed
    ticks = [tick for tick, _, reason in listed if not reason]
    assert list(engine.counts(plan, ticks)) == memory.counts(plan, ticks)
    assert engine.answers(plan, ticks).tolist() == memory.answers(plan, ticks).tolist()
    return len(ticks)


@pytest.mark.parametrize("ages", [1, (0, 3, 1)], ids=["one age", "several"])
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_duckdb_agrees_with_memory_to_the_last_bit(tmp_path, query, ages):
    found = numbers()
    with open_table(write(tmp_path, found), names=NAMES, values=[0.0, 1.0], engine="duckdb") as table:
        assert agree(table, panel_of(found), query, ages) > 10


@pytest.mark.slow
def test_spark_agrees_with_memory_to_the_last_bit(tmp_path, spark):
    from csdp.tables.spark import SparkEngine

    found = numbers()
    table = SparkEngine(write(tmp_path, found), names=NAMES, values=np.array([0.0, 1.0]), session=spark)
    for query in (QUERIES[0], QUERIES[3], QUERIES[4]):
        assert agree(table, panel_of(found), query, (0, 3, 1)) > 10
    table.close()


def test_text_cells_and_a_release(tmp_path):
    (tmp_path / "readings.csv").write_text("time,a,b,c\n0,0.25,,1.999\n1,0.35,nan,\n2,,,\n3,1,1,1\n")
    found = np.array([[0.25, math.nan, 1.999], [0.35, math.nan, math.nan], [math.nan] * 3, [1.0] * 3])
    with open_table(tmp_path / "readings.csv", names=NAMES, values=[0.0, 1.0], engine="duckdb") as table:
        agree(table, panel_of(found), QUERIES[0], 1)
        plan = Plan(CHAIN, QUERIES[0], 1, 1e6)
        with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
            batch = publisher.publish(EngineSource(table, plan))
    assert [(r.tick, r.count) for r in batch] == [(1, 2), (2, 1)]
    assert [r.values[0] for r in batch] == pytest.approx([1.1, 0.4], abs=1e-6)


def test_infinite_readings_are_refused_before_anything_is_charged(tmp_path):
    found = numbers()
    found[5, 1] = math.inf
    table = open_table(write(tmp_path, found), names=NAMES, values=[0.0, 1.0], engine="duckdb")
    with table, pytest.raises(InputError, match="infinite readings"):
        EngineSource(table, Plan(CHAIN, QUERIES[0], 1, 1.0))


def test_an_engine_of_states_is_refused():
    class States:
        def check(self, plan):
            raise AssertionError

    with pytest.raises(InputError, match="States answers queries of states only"):
        EngineSource(States(), Plan(CHAIN, QUERIES[0], 1, 1.0))
    panel = panel_of(numbers())
    assert agree(MemoryEngine(panel, states=2), panel, QUERIES[0], 1) > 10
