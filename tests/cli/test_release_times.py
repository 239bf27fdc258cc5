"""`csdp release` of a file with times from the future: no tick leaves before the wall clock has passed its end."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from csdp import Ledger, Publisher
from csdp.errors import InputError
from csdp.panel import read_panel
from csdp.planning.plan_file import PlanFile
from csdp.tables import open_table

STEP, AGE = 60, 5


@pytest.fixture
def readings(tmp_path):
    """Honest readings up to now, then a row from the future."""
    now = int(time.time()) // STEP * STEP
    path = tmp_path / "readings.parquet"
    times = np.array([now - STEP * age for age in range(20, -1, -1)] + [now + STEP * AGE])
    columns = {"x1": np.arange(times.size) % 2, "x2": np.ones(times.size)}
    pq.write_table(pa.table({"time": times.astype("datetime64[s]"), **columns}), path)
    return path


@pytest.fixture
def paper(paper, plan_file):
    """A plan file in the place of the chain."""
    return plan_file(paper, age=AGE, stale_limit=30)


def release(run, paper, readings, *more, dataset="d", **settings):
    folder = readings.parent
    where = ("--dataset", dataset, "--ledger", folder / "ledger.db", "-o", folder / "out.json", "--format", "json")
    content = json.loads(run("release", readings, "--plan", paper, *where, *more, **settings).stdout)
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        ticks = [one.tick for one in ledger.published(dataset)]
    return content["certificate"], ticks


def test_ticks_of_the_future_are_left_out_and_told(run, paper, readings):
    found, ticks = release(run, paper, readings)
    assert all((tick + 1) * STEP <= time.time() for tick in ticks)
    assert len(ticks) >= 15
    assert found["counts"]["without_output"]["its time is not over by the wall clock"] >= AGE
    assert any("wall clock has passed its end" in words for words in found["assumptions"])
    assert not any("timestamps say" in words for words in found["not_promised"])


def test_times_that_are_simulated_are_declared_and_said(run, paper, readings):
    found, ticks = release(run, paper, readings, "--simulated-times")
    assert max(ticks) * STEP > time.time() + STEP
    assert any("The age is what the timestamps say" in words for words in found["not_promised"])
    again, _ = release(run, paper, readings)  # what was published so is said for ever
    assert again["not_promised"] == found["not_promised"]


def test_numbers_are_what_they_say(run, paper, tmp_path):
    path = tmp_path / "counted.csv"
    path.write_text("time,x1,x2\n" + "".join(f"{k},{k % 2},1\n" for k in range(20)))
    found, ticks = release(run, paper, path)
    assert ticks == list(range(AGE, 20))
    assert any("The age is what the timestamps say" in words for words in found["not_promised"])


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_in_python_somebody_has_to_say_what_times_are(paper, readings, tmp_path, engine):
    plan = PlanFile.load(paper).plan
    model = plan.model
    source = read_panel(readings, values=model.value_table) if engine == "memory" else open_table(readings, plan)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db", time_step=STEP) as publisher:
        with pytest.raises(InputError, match="newest timestamps lie beyond the wall clock"):
            publisher.publish(source)
        assert publisher.summary()["published"] == 0
    with Publisher(plan, dataset="e", ledger=tmp_path / "ledger.db", time_step=STEP, times="wall") as publisher:
        ticks = [one.tick for one in publisher.publish(source).releases]
        assert ticks
        assert all((tick + 1) * STEP <= time.time() for tick in ticks)
