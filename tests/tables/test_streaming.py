"""Spark Structured Streaming: the same clock as every stream, the same answers as a panel, each tick once."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdp import CoupledChain, Ledger, Mean, Panel, Plan, Publisher, fran, leakage, leakage_summary
from csdp.clock import Clock, Mark, WallClock
from csdp.errors import InputError
from csdp.publisher import PanelSource
from csdp.stream import Nearest, Reading, Runner
from csdp.tables import SparkWorkers, publish_stream
from csdp.tables.streaming import ReadingPlacer
from laws.strategies import law_settings

from tables.driver import BEGIN, CLOCK, SCHEMA, plan, readings  # isort: skip
from tables.tables import ALIKE, NAMES, OWN, chain, rows, states, write  # isort: skip


def drop(folder, batches):
    """One file for each micro-batch, in order of their times of change; times count from where tick 0 begins."""
    (folder / "in").mkdir(exist_ok=True)
    for k, batch in enumerate(batches, start=len(list((folder / "in").iterdir()))):
        file = write(folder / "in" / f"{k}.parquet", [(BEGIN + when, name, value) for when, name, value in batch])
        os.utime(file, (1_000_000 + k, 1_000_000 + k))


def asked(values):
    """What was asked, from an output that has hardly any noise: a whole number of units of 0.5."""
    exact = np.round(np.asarray(values) * 2) / 2
    assert np.abs(np.asarray(values) - exact).max() < 0.24
    return exact.tolist()


def published(folder):
    """tick -> what was asked; each tick once, and the ledger sound."""
    with Ledger.open(folder / "ledger.db", read_only=True) as book:
        assert book.verify() == []
        found = list(book.published("d"))
        summary = book.summary("d")
    assert len({one.tick for one in found}) == len(found) == summary.committed
    return {one.tick: asked(one.output["values"]) for one in found}, summary


def gate(folder, given, clock, wall=None):
    return Publisher(
        given, dataset="d", ledger=folder / "ledger.db", on_refusal="skip", time_step=clock.step,
        time_origin=clock.origin, times="wall", wall=wall,
    )  # fmt: skip


def by_runner(folder, given, clock, batches, wall):
    """The same micro-batches through the stream runner, each in order of time."""
    folder.mkdir()
    fates = []
    with Ledger.open(folder / "ledger.db") as book:
        publisher = Publisher(
            given, dataset="d", ledger=book, on_refusal="skip", time_step=60, time_origin=BEGIN, times="wall", wall=wall
        )
        runner = Runner(publisher, ledger=book, clock=clock)
        for batch in batches:
            met = Counter()
            for when, name, value in sorted(batch, key=lambda row: row[0]):
                fate = runner.accept(Reading(name, BEGIN + when, value))
                met["accepted" if fate == "duplicate" else fate] += 1
            runner.settle()
            fates.append(dict(met))
    return published(folder)[0], fates


def test_the_same_as_the_stream_runner_and_a_batch_that_is_run_again_charges_nothing(spark, tmp_path):
    found = states(gaps=True)[:24]
    given = sorted(rows(found, ALIKE))
    first, second, third = (
        [r for r in given if low <= r[0] < high] for low, high in ((0, 500), (500, 1000), (1000, 1440))
    )
    far = 60 * 5_000_000  # a silence longer than any table may have
    batches = [
        first,
        [
            *second,
            (120, "n1", 2.0),  # late: its tick is closed
            (second[-1][0] + 20, second[-1][1], 2.0),  # newer than another of its tick
            (700, "attic", 1.0),  # unknown, and moves no clock
            (10**9, "attic", 1.0),
            (10**6 + 10**9, "n3", 1.0),  # too far ahead
            (710, "n3", float("nan")),  # no number, but its time counts
            (711, "n3", float("inf")),
        ],
        [*third, (1380 + 25, "n0", 77.0), (1380 + 26, "n2", -4.4)],  # not declared: the nearest
        [(far + 60 * t, name, 0.5) for t in range(6) for name in NAMES],
    ]
    clock, wall = CLOCK, WallClock(time=lambda: BEGIN + far + 600, elapsed=lambda: 0.0)
    wanted = plan(stale_limit=1)
    drop(tmp_path, batches)
    told = []

    def stream():
        """Times as timestamps, which count in seconds."""
        return readings(spark, tmp_path).selectExpr("timestamp_seconds(time) AS time", "sequence", "value")

    def watch(taken):
        told.append(taken)
        if len(told) == 2:
            raise RuntimeError("after the outputs, before Spark knows")

    with gate(tmp_path, wanted, clock, wall) as publisher:
        settings = {"clock": clock, "checkpoint": tmp_path / "check[1]", "available_now": True}
        query = publish_stream(stream(), publisher, on_batch=watch, **settings)
        with pytest.raises(Exception, match="before Spark knows"):
            query.awaitTermination()
        before, _ = published(tmp_path)
        # Another plan must not go on from what this one kept.
        other = Plan(chain(), Mean(), 2, 1.0, bound="group")
        (tmp_path / "other").mkdir()
        with gate(tmp_path / "other", other, clock, wall) as wrong:
            query = publish_stream(stream(), wrong, **settings)
            with pytest.raises(Exception, match="nothing is stored after batch 0"):
                query.awaitTermination()
        query = publish_stream(stream(), publisher, on_batch=watch, **settings)
        query.awaitTermination()
    assert [taken.number for taken in told] == [0, 1, 1, 2, 3]
    again, replayed = told[1:3]
    assert again == replayed
    assert replayed.releases
    answers, summary = published(tmp_path)
    assert before.items() <= answers.items()
    assert summary.reserved == summary.committed
    expected, fates = by_runner(tmp_path / "runner", wanted, clock, batches, wall)
    assert answers == expected
    assert [taken.fates for taken in told[:2] + told[3:]] == fates
    assert max(answers) == far // 60 + 3
    for folder in ("check[1]", "check[1]/kept"):  # its name is a name, not a pattern
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


@pytest.mark.parametrize("own", [False, True], ids=["alike", "own values"])
def test_placing_is_what_the_stream_does_reading_by_reading(own):
    """In a task: the clock's verdict first, then the nearest state, as the runner's."""
    table = OWN if own else np.broadcast_to(ALIKE, OWN.shape)
    random = np.random.default_rng(5)
    value = random.normal(scale=4.0, size=200)
    value[:3] = np.nan, np.inf, -np.inf
    gap = np.zeros(200, dtype=bool)
    gap[0] = True
    when = random.integers(0, 500, 200) + 0.25
    when += BEGIN
    when[3:6] = np.nan, np.inf, 2.0**54
    idx = random.integers(0, 7, 200)
    idx[6] = -1
    clock, mark = CLOCK, Mark(BEGIN + 200, 1)
    order = np.argsort(table, axis=1)[: len(OWN) if own else 1]
    levels = np.take_along_axis(table[: len(order)], order, axis=1)
    batch = pa.RecordBatch.from_arrays([idx, when, value, gap], names=["idx", "time", "value", "gap"])
    [placed] = ReadingPlacer(clock, mark, BEGIN + 10**6, levels, order)(iter([batch]))
    found = placed.to_pydict()
    assert found["fate"][0] == ("missing" if when[0] >= BEGIN + 120 else "late")
    assert {found["fate"][k] for k in (1, 2)} <= {"bad value", "late"}
    assert [found["fate"][k] for k in (3, 4, 5, 6)] == ["bad", "bad", "bad", "unknown"]
    for k in range(7, 200):
        late = clock.observe(mark, when[k], limit=BEGIN + 10**6).verdict == "late"
        assert found["fate"][k] == ("late" if late else "accepted")
        if not late:
            snapshot = np.full(7, np.nan)
            snapshot[idx[k]] = value[k]
            assert found["st"][k] == Nearest(table).states_of(snapshot)[idx[k]]
            assert found["tick"][k] == clock.tick(when[k])
    assert {"late", "accepted"} <= set(found["fate"])


@pytest.mark.slow
def test_killed_between_charge_and_output_and_restarted_from_its_checkpoint(tmp_path):
    """SIGKILL of a driver: the ticks that were charged are lost, every other tick is published once, as by a panel."""
    found = states(gaps=False)[:15]
    given = rows(found, ALIKE)
    drop(tmp_path, [[r for r in given if low <= r[0] < low + 300] for low in range(0, 900, 300)])
    places = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}

    def drive(die_at):
        command = [sys.executable, "-m", "tables.driver", str(tmp_path), str(die_at)]
        with subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE) as driver:
            told = driver.stderr.read().decode()
            driver.wait(timeout=300)
        return driver.returncode, told

    assert drive(die_at=7)[0] == -signal.SIGKILL
    answers, summary = published(tmp_path)
    lost = {3, 4, 5, 6, 7}  # those that the second batch closes: its last reading is of 540, less 30
    assert sorted(answers) == [2]
    assert (summary.reserved, summary.committed) == (6, 1)
    code, told = drive(die_at=-1)
    assert code == 0, told
    answers, summary = published(tmp_path)
    panel = PanelSource(Panel.from_states(found, names=NAMES), plan())
    # The last reading is of 14 * 60, less 30: tick 12 is the last that is over.
    whole = [tick for tick in range(2, 13) if tick not in lost]
    assert sorted(answers) == whole
    assert summary.reserved == summary.committed + len(lost)
    assert [answers[tick] for tick in whole] == panel.answers(plan(), whole).tolist()
    wrong = fran.answers(plan(), found, np.array(whole) - 1)  # of another age
    assert [answers[tick] for tick in whole] != wrong.tolist()


def test_bad_input(spark, tmp_path):
    (tmp_path / "in").mkdir()
    stream = readings(spark, tmp_path)
    with gate(tmp_path, plan(), CLOCK) as publisher:

        def refused(message, frame=stream, **settings):
            with pytest.raises(InputError, match=message):
                publish_stream(frame, publisher, **{"clock": CLOCK, "checkpoint": tmp_path / "c"} | settings)

        refused("no stream given", spark.createDataFrame([(1, "n0", 1.0)], SCHEMA))
        refused("step 30 and origin 0 given", clock=Clock(step=30))
        refused("times 'data' given, but the publisher has 'wall'", clock=Clock(step=60, origin=BEGIN, times="data"))
        refused("names: 2 sequences a, b given; the chain has 7", names=["a", "b"])
        refused("keep one of them", every="1 second", available_now=True)
        refused("no column 'time'", stream.withColumnRenamed("time", "when"))
        refused("'value' or 'state' expected", stream.withColumnRenamed("value", "v"))
        refused("'time' holds string", stream.selectExpr("CAST(time AS STRING)", "sequence", "value"))
        refused("'value' holds boolean", stream.selectExpr("time", "sequence", "value > 1 AS value"))
    assert not (tmp_path / "c").exists()


class TestHostileTimes:
    """Rows from the future in a micro-batch, and wall clocks that were wrong."""

    def publish(self, spark, folder, wall, *, stale_limit=30):
        told = []
        with gate(folder, plan(stale_limit=stale_limit), CLOCK, wall) as publisher:
            settings = {"clock": CLOCK, "checkpoint": folder / "checkpoint", "available_now": True}
            publish_stream(readings(spark, folder), publisher, on_batch=told.append, **settings).awaitTermination()
        return told

    def snapshots(self, ticks, *, names=NAMES):
        return [(60 * tick, name, 0.5) for tick in ticks for name in names]

    def test_no_row_has_the_present_published_as_if_it_were_old(self, spark, tmp_path):
        now = 60 * 20
        wall = WallClock(time=lambda: BEGIN + now, elapsed=lambda: 0.0)
        poison = [(now + 370, "n0", 0.5), (2**53 - BEGIN, "n1", 0.5), (now + 31, "n2", 0.5)]
        snapshots = [(10**12 + 60 * k, name, 0.5) for k in range(3) for name in NAMES]
        drop(tmp_path, [self.snapshots(range(12)), poison + snapshots, self.snapshots(range(12, 21)), poison])
        told = self.publish(spark, tmp_path, wall)
        assert [taken.fates.get("ahead", 0) for taken in told] == [0, 3 + 21, 0, 3]
        assert [taken.fates.get("late", 0) for taken in told] == [0] * 4
        answers, summary = published(tmp_path)
        assert sorted(answers) == list(range(2, 19))  # 20 is the present, less the lateness
        assert summary.newest_tick == 18

    @pytest.mark.slow
    def test_a_wall_clock_that_was_wrong_is_put_back_by_most_sequences(self, spark, tmp_path):
        """A device that was a year ahead, like the server, has moved the mark; then the server is right again."""
        year, shown = 365 * 86400, [0]
        drop(tmp_path, [self.snapshots(range(6)), [(year + 60 * k, "n0", 0.5) for k in range(4)]])
        shown[0] = BEGIN + year + 300
        wrong = self.publish(spark, tmp_path, WallClock(time=lambda: shown[0], elapsed=lambda: 0.0), stale_limit=0)
        assert wrong[-1].mark.newest == BEGIN + year + 180
        shown[0] = BEGIN + 60 * 12
        drop(tmp_path, [self.snapshots(range(6, 9), names=NAMES[:3]), self.snapshots(range(6, 13))])
        right = self.publish(spark, tmp_path, WallClock(time=lambda: shown[0], elapsed=lambda: 0.0), stale_limit=0)
        # Ticks 6 and 7 were charged while the clock was wrong, with the readings of 4 and 5: they stay closed.
        assert [taken.fates for taken in right] == [{"late": 9}, {"accepted": 35, "late": 14}]
        assert right[-1].mark.newest == shown[0]
        answers, summary = published(tmp_path)
        assert sorted(answers) == [*range(2, 8), 10]
        assert summary.newest_tick == 10


times = st.lists(st.integers(-300, 300) | st.floats(-300, 300), min_size=1, max_size=30)


@law_settings(200)
@given(times, times, st.integers(1, 50), st.integers(-20, 20), st.integers(0, 120), st.none() | st.integers(0, 100))
def test_a_batch_is_judged_as_its_times_in_order(earlier, given_times, step, origin, lateness, limit):
    """`judge_times` is `observe`, reading by reading in rising order; the mark is that of the least and greatest."""
    clock = Clock(step=step, origin=origin, lateness=lateness, times="data")
    before: Mark | None = None
    for when in earlier:
        before = clock.observe(before, when, limit=limit).mark
    ticks, verdicts = clock.judge_times(before, given_times, limit=limit)
    mark = before
    for k in np.argsort(given_times, kind="stable"):
        moved = clock.observe(mark, given_times[k], limit=limit)
        assert (moved.verdict, clock.tick(given_times[k])) == (verdicts[k], ticks[k])
        mark = moved.mark
    ends = before
    counted = [t for t, verdict in zip(given_times, verdicts, strict=True) if verdict != "ahead"]
    for when in [min(counted), max(counted)] if counted else []:
        ends = clock.observe(ends, when, limit=limit).mark
    assert ends == mark


def test_components_spread_over_spark(spark):
    """The same record as in this process: exact, with its witness and its components."""
    edges = {(i, i): 0.8 for i in range(9)} | {(i, i - i % 3 + (i + 1) % 3): 0.2 for i in range(9)}
    moves = {edge: [[0.7 + edge[0] / 50, 0.3 - edge[0] / 50], [0.3, 0.7]] for edge in edges}
    given = CoupledChain(edges, moves)
    settings = {"ages": 2, "epsilon_c": 1.0}
    here = leakage(given, Mean(), **settings)
    assert len(here.components) == 3
    workers = SparkWorkers(spark)
    assert leakage(given, Mean(), workers=workers, **settings) == here
    assert leakage_summary(given, Mean(), workers=workers, **settings) == leakage_summary(given, Mean(), **settings)
