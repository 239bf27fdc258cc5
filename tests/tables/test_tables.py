"""One suite over DuckDB, Spark and Spark Connect: answers equal those of memory to the last bit."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import csdp
from csdp import Count, Histogram, Identity, Ledger, Linear, Max, Mean, Min, Panel, Plan, Publisher, Sum
from csdp.errors import InputError
from csdp.publisher import PanelSource
from csdp.query import PerGroup
from csdp.tables import open_table

from tables.tables import ALIKE, NAMES, OWN, TICKS, chain, rows, states, write  # isort: skip

RANGE = csdp.ReadingRange(-1, 2, 0.1)
WEIGHTS = [0.3, -1.7, 2.0, 0.001, 5.0, -0.2, 1.0]
GROUPS = PerGroup(Histogram(), ((5, 0), (1, 2, 3, 4), (6,)))
UNEQUAL = (1, 2, 4, 1, 2, 4, 1)
OF_STATES = [Mean(), Sum(), Max(), Min(), Count(1), Histogram(), Linear(WEIGHTS), Identity(), GROUPS]
OF_READINGS = [
    Mean(of=RANGE),
    Count(at_least=0.3, below=1.2, of=RANGE),
    Histogram(edges=(0.0, 0.5, 1.5), of=RANGE),
    Linear(WEIGHTS, of=RANGE),
]


def plan_of(query, ages=2, *, values=ALIKE, stale_limit=0):
    return Plan(chain(values), query, ages, 1.0, stale_limit=stale_limit)


def check(table, plan, panel):
    """The table answers as the panel does; returns the number of ticks that could be released."""
    memory = PanelSource(panel, plan)
    listed = list(memory.availability(plan))
    found = list(table.availability(plan))
    assert [(tick, reason) for tick, _, reason in found] == [(tick, reason) for tick, _, reason in listed]
    ready = [tick for tick, _, reason in listed if not reason]
    assert [entry for entry in found if not entry[2]] == [entry for entry in listed if not entry[2]]
    assert table.answers(plan, ready).tolist() == memory.answers(plan, ready).tolist()
    some = ready[5:2:-1]  # any order, any part
    assert table.answers(plan, some).tolist() == memory.answers(plan, some).tolist()
    if not plan.query.of_states:
        assert table.counts(plan, ready) == memory.counts(plan, ready)
    return len(ready)


def panel_of(cells, values=ALIKE):
    return Panel.from_states(cells, names=NAMES, values=values)


def readings():
    """Readings inside and outside of the range, on ties between two levels, and missing ones."""
    random = np.random.default_rng(3)
    found = random.uniform(-2, 3, (60, 7)).round(3)
    found[::7] = np.round(found[::7] * 10) / 10 + 0.05
    found[3, :3] = [1e300, -1e300, 0.25]
    found[random.random(found.shape) < 0.05] = math.nan
    found[10] = math.nan
    found[0, 0] = found[-1, 0] = 0.5
    return found


def readings_panel(found):
    ticks = np.arange(len(found))
    return Panel(NAMES, ticks, ticks, np.where(np.isnan(found), -1, 0), 1, None, found)


def write_readings(path, found):
    time, sequence = np.repeat(np.arange(len(found)), 7), np.tile(NAMES, len(found))
    there = ~np.isnan(found.ravel())
    pq.write_table(pa.table({"time": time[there], "sequence": sequence[there], "value": found.ravel()[there]}), path)
    return path


class TestDuckDB:
    @pytest.mark.parametrize("ages", [2, UNEQUAL], ids=["one age", "several"])
    @pytest.mark.parametrize("values", [ALIKE, OWN], ids=["alike", "own values"])
    def test_queries_of_states(self, tmp_path, values, ages):
        for gaps, limit in ((False, 0), (True, 0), (True, 3)):
            cells = states(gaps=gaps)
            path = write(tmp_path / "long.parquet", rows(cells, values))
            for query in OF_STATES:
                plan = plan_of(query, ages, values=values, stale_limit=limit)
                with open_table(path, plan) as table:
                    ready = check(table, plan, panel_of(cells, values))
                    assert ready, "a case without ticks shows nothing"

    @pytest.mark.parametrize("ages", [1, (0, 3, 1, 0, 3, 1, 0)], ids=["one age", "several"])
    def test_queries_of_readings(self, tmp_path, ages):
        found = readings()
        path = write_readings(tmp_path / "readings.parquet", found)
        for query in OF_READINGS:
            plan = plan_of(query, ages)
            with open_table(path, plan) as table:
                assert check(table, plan, readings_panel(found)) > 2

    def test_a_function_of_the_snapshot_is_refused(self, tmp_path):
        plan = plan_of(csdp.Custom(lambda v: v.max() - v.min()))
        with pytest.raises(InputError, match="in memory"):
            open_table(write(tmp_path / "long.parquet", rows(states(gaps=False), ALIKE)), plan)

    def test_the_spill_folder_is_private_and_goes(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        path = write(tmp_path / "long.parquet", rows(states(gaps=False), ALIKE))
        before = set(tmp_path.iterdir())
        with open_table(path, plan_of(Mean()), memory_limit="1GB") as table:
            [folder] = set(tmp_path.iterdir()) - before
            assert folder.stat().st_mode & 0o077 == 0
            assert len(table.ticks) == TICKS
        assert set(tmp_path.iterdir()) == before

    def test_through_the_gate_once(self, tmp_path):
        plan = plan_of(Mean())
        path = write(tmp_path / "long.parquet", rows(states(gaps=False), ALIKE))
        with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
            with open_table(path, plan) as table:
                first = publisher.publish(table)
            with open_table(path, plan) as table:
                again = publisher.publish(table)
        assert len(first) == TICKS - 2
        assert [r.values for r in again] == [r.values for r in first]


class TestLayouts:
    @pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.decimal128(6, 3)], ids=str)
    @pytest.mark.parametrize("query", [Histogram(), Max()], ids=["histogram", "max"])
    def test_kinds_of_cells(self, tmp_path, kind, query):
        cells, plan = states(gaps=True), plan_of(query, UNEQUAL, stale_limit=3)
        decimals = pa.types.is_decimal(kind)
        found = rows(cells, ALIKE if decimals else np.arange(3.0))
        as_kind = [(t, n, None if v is None else (Decimal(str(v)) if decimals else int(v))) for t, n, v in found]
        path = write(tmp_path / "table.parquet", as_kind, value="value" if decimals else "State", kind=kind)
        with open_table(path, plan) as table:
            check(table, plan, panel_of(cells))

    def test_wide_tables_with_timestamps(self, tmp_path):
        cells, plan = states(gaps=True), plan_of(Histogram(), stale_limit=3)
        times = np.datetime64("2024-03-01", "s") + 60 * np.arange(TICKS)
        numbers = np.where(cells < 0, np.nan, ALIKE[cells])
        columns = {name: pa.array(numbers[:, i], from_pandas=True) for i, name in enumerate(NAMES)}
        pq.write_table(pa.table({"time": times, **columns}), tmp_path / "wide.parquet")
        with open_table(tmp_path / "wide.parquet", plan) as table:
            assert table.times.tolist() == times.tolist()
            assert table.step == 60
            ready = [tick for tick, _, reason in table.availability(plan) if not reason]
            panel = Panel(NAMES, table.ticks, table.times, cells, 60, np.tile(ALIKE, (7, 1)))
            assert table.answers(plan, ready).tolist() == PanelSource(panel, plan).answers(plan, ready).tolist()

    def test_a_folder_and_named_columns(self, tmp_path):
        cells, plan = states(gaps=False), plan_of(Mean())
        (tmp_path / "folder").mkdir()
        every = rows(cells, ALIKE)
        for part in (0, 1):
            write(tmp_path / "folder" / f"{part}.parquet", every[part::2], value="reading")
        (tmp_path / "folder" / "_SUCCESS").write_text("")
        spec = csdp.InputSpec(file=str(tmp_path / "folder"), value="Reading", step=60)
        with open_table(spec, plan) as table:
            check(table, plan, panel_of(cells))

    def test_values_that_are_not_declared(self, tmp_path):
        cells, plan = states(gaps=False), plan_of(Mean())
        moved = [(t, n, v + 0.1) for t, n, v in rows(cells, ALIKE)]
        path = write(tmp_path / "long.parquet", moved)
        with open_table(path, plan) as table, pytest.raises(InputError, match="declared values"):
            list(table.availability(plan))


def altered(change):
    readings = rows(states(gaps=False), ALIKE)
    change(readings)
    return readings


BAD = {
    "unknown sequence 'stranger'": lambda r: r.append((0, "stranger", 0.5)),
    "infinite": lambda r: r.__setitem__(0, (*r[0][:2], math.inf)),
    "none of the 3 declared values": lambda r: r.__setitem__(0, (*r[0][:2], 0.7)),
    "two readings of 'n": lambda r: r.append(r[0]),
    "two readings of 'n.*keep one": lambda r: r.append((*r[0][:2], None)),
    "grid": lambda r: r.append((61, "n0", 0.5)),
    "empty cells": lambda r: r.append((0, None, 0.5)),
    "column 'time'": lambda r: r.append((None, "n0", 0.5)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_tables_are_refused_before_any_charge(tmp_path, message):
    plan = plan_of(Mean())
    step = 60 if message == "grid" else None
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        with (
            Publisher(plan, dataset="d", ledger=ledger) as publisher,
            open_table(write(tmp_path / "t.parquet", altered(BAD[message])), plan, step=step) as table,
            pytest.raises(InputError, match=message) as refused,
        ):
            publisher.publish(table)
        assert "0.7" not in str(refused.value)
        assert ledger.dataset("d").head_seq <= 1


def test_a_repeated_reading_in_the_place_of_a_missing_one_is_seen(tmp_path):
    """The number of rows of the tick is right: only the secret weights show it."""
    readings = rows(states(gaps=False), ALIKE)
    at = [k for k, row in enumerate(readings) if row[0] == 300]
    readings[at[0]] = readings[at[1]]
    plan = plan_of(Mean())
    opened = open_table(write(tmp_path / "t.parquet", readings), plan)
    with opened as table, pytest.raises(InputError, match="two readings of"):
        list(table.availability(plan))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("t.parquet", {"engine": "memory"}, "duckdb or spark"),
        ("t.parquet", {"master": "local"}, "engine 'spark'"),
        ("t.parquet", {"memory_limit": "lots"}, "4GB"),
        ("missing.parquet", {}, "no such file"),
        ("t*.parquet", {}, "pattern"),
        ("t.csv", {}, "COPY"),
        ("text.parquet", {}, "not a Parquet file"),
        ("words.parquet", {}, "not numbers"),
        ("mixed", {}, "other columns"),
        ("empty", {}, "without .parquet files"),
        ("log", {}, "may only hold"),
    ],
)
def test_bad_doors(tmp_path, name, settings, message):
    write(tmp_path / "t.parquet", rows(states(gaps=False), ALIKE))
    (tmp_path / "t.csv").write_text("time,sequence,value\n0,n0,0\n")
    (tmp_path / "text.parquet").write_text("no table")
    pq.write_table(pa.table({"time": [0], "sequence": ["n0"], "value": ["high"]}), tmp_path / "words.parquet")
    for folder in ("mixed", "empty", "log"):
        (tmp_path / folder).mkdir()
    for part, value in enumerate(("value", "state")):
        write(tmp_path / "mixed" / f"{part}.parquet", rows(states(gaps=False), ALIKE), value=value)
    (tmp_path / "log" / "_delta_log").mkdir()
    with pytest.raises(InputError, match=message):
        open_table(tmp_path / name, plan_of(Mean()), **settings)


# ---- Spark -----------------------------------------------------------------------------------------------------------


def spark_agrees(session, tmp_path):
    """A frame of a session gives the answers of memory: each kind of program once."""
    for values, gaps, query, ages in (
        (ALIKE, False, Histogram(), UNEQUAL),
        (OWN, True, Linear(WEIGHTS), UNEQUAL),
        (ALIKE, True, GROUPS, 2),
    ):
        cells = states(gaps=gaps)
        path = write(tmp_path / "long.parquet", rows(cells, values))
        plan = plan_of(query, ages, values=values, stale_limit=3 if gaps else 0)
        with open_table(session.read.parquet(str(path)), plan) as table:
            assert check(table, plan, panel_of(cells, values))
    found, plan = readings(), plan_of(OF_READINGS[0], 1)
    path = write_readings(tmp_path / "readings.parquet", found)
    with open_table(session.read.parquet(str(path)), plan) as table:
        assert check(table, plan, readings_panel(found))
    bad = write(tmp_path / "bad.parquet", altered(BAD["unknown sequence 'stranger'"]))
    with open_table(session.read.parquet(str(bad)), plan_of(Mean())) as table, pytest.raises(InputError, match="stra"):
        list(table.availability(table.plan))


def test_spark_agrees_with_memory(spark, tmp_path):
    spark_agrees(spark, tmp_path)


CONNECT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
from csdp.tables.spark import java_environment
import os
os.environ.update(java_environment(Path(sys.argv[2])))
os.environ["PYSPARK_PYTHON"] = sys.executable
from tables.test_tables import spark_agrees
from tables.tables import SPARK
builder = SparkSession.builder.remote("local[2]")
for name, value in SPARK.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
assert type(session).__module__.startswith("pyspark.sql.connect"), type(session)
spark_agrees(session, Path(sys.argv[2]))
print("agrees")
session.stop()
"""


def test_spark_connect_agrees_with_memory(tmp_path):
    """In a process of its own: one process has either kind of session."""
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-W", "ignore", "-c", CONNECT, str(tests), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.endswith("agrees\n"), done.stderr[-3000:]
