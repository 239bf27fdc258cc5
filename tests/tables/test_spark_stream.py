"""The example of a Spark stream: as a panel of the same readings, and the same numbers if a micro-batch runs twice."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from csdp import Ledger, Mean, Plan, Publisher
from csdp.publisher import PanelSource

from tables.tables import ALIKE, NAMES, TICKS, chain, rows, states, write  # isort: skip

SCHEMA = "time BIGINT, sequence STRING, value DOUBLE"


@pytest.fixture(scope="module")
def publish_batches():
    path = Path(__file__).parents[2] / "examples" / "spark_stream.py"
    spec = importlib.util.spec_from_file_location("spark_stream", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.publish_batches


class KilledError(Exception):
    """As if the driver died: the micro-batch does not end, and what is in memory is gone."""


def write_files(folder, parts):
    """One file for each micro-batch; Spark takes them by the time of their last change."""
    folder.mkdir()
    for number, part in enumerate(parts):
        path = write(folder / f"{number}.parquet", part)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run(spark, folder, plan, publish_batches, *, kill_at=None):
    """One run of the stream over the files that are there; the releases by tick, as they came."""
    came = []

    def each(release):
        came.append((release.tick, release.values))
        if release.tick == kill_at:
            raise KilledError

    with Publisher(
        plan, dataset="d", ledger=folder / "ledger.db", on_refusal="skip", times="data", time_step=60
    ) as publisher:
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "incoming"))
        publish = publish_batches(publisher, folder / "kept", step=60, late=2, each=each)
        writer = stream.writeStream.foreachBatch(publish).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        if kill_at is None:
            query.awaitTermination()
        else:
            with pytest.raises(Exception, match="KilledError"):
                query.awaitTermination()
    return came


def test_a_micro_batch_that_runs_twice_returns_the_recorded_numbers(spark, tmp_path, publish_batches):
    plan = Plan(chain(), Mean(), (1, 2, 4, 1, 2, 4, 1), 1.0)
    every = sorted(rows(states(gaps=False), ALIKE))
    # Three files; the last row of the first comes late, with the second, and one row comes twice.
    cuts = [every[:69], [*every[70:140], every[69], every[3]], every[140:]]
    write_files(tmp_path / "incoming", cuts)
    first = run(spark, tmp_path, plan, publish_batches, kill_at=15)
    second = run(spark, tmp_path, plan, publish_batches)
    numbers = dict(first)
    assert max(numbers) == 15
    assert set(dict(second)) >= set(range(10, TICKS))  # the killed micro-batch ran again, and the next ones
    for tick, values in second:
        assert numbers.setdefault(tick, values) == values
    assert sorted(numbers) == list(range(4, TICKS))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.summary("d").reserved == ledger.summary("d").committed == TICKS - 4
    assert len(list((tmp_path / "kept").iterdir())) <= 2


def test_answers_are_those_of_a_panel(spark, tmp_path, publish_batches):
    """With next to no noise: the readings kept for their ages are the right ones."""
    from csdp import Panel

    plan = Plan(chain(), Mean(), (1, 2, 4, 1, 2, 4, 1), 1e6)
    cells = states(gaps=False)
    every = sorted(rows(cells, ALIKE))
    write_files(tmp_path / "incoming", [every[:70], every[70:140], every[140:]])
    came = dict(run(spark, tmp_path, plan, publish_batches))
    panel = Panel.from_states(cells, names=NAMES)
    ticks = list(range(4, TICKS))
    exact = PanelSource(panel, plan).answers(plan, ticks) / plan.divisor
    assert [came[tick][0] for tick in ticks] == pytest.approx(exact[:, 0].tolist(), abs=1e-3)
