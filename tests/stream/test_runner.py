"""The runner: each tick once, at the right time, whatever arrives in whatever order."""

from __future__ import annotations

import json
import logging
import math
import os
import sqlite3
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csdp import Histogram
from csdp.errors import InputError, LedgerBusyError, LedgerConflictError
from csdp.fit.drifting import DriftCheck
from csdp.ledger import Ledger
from csdp.panel import to_states
from csdp.publisher import Publisher, Release, Skipped
from csdp.stream import Bad, Clock, FileSink, LineSink, Nearest, Reading, Runner, Snapshot, messages

from stream.parts import DATASET, NAMES, Memory, SeenBy, plan, published, running  # isort: skip


def feed(runner, ticks, *, value=lambda tick, name: tick % 2, at=5):
    """A reading of every sequence in every tick; in the middle of a tick, it closes the one before."""
    for tick in ticks:
        for name in NAMES:
            runner.ingest(name, time=10 * tick + at, value=value(tick, name))


class TestTime:
    def test_ticks_are_published_when_the_watermark_passes_them(self, tmp_path):
        sink = Memory()
        with running(tmp_path, sink=sink) as runner:
            feed(runner, range(3), at=3)
            assert sink.ticks == []  # the watermark is at 18: tick 1 is open, and tick 0 has no past
            runner.ingest("hall", time=25, value=1)
            assert sink.ticks == [1]
            runner.ingest("hall", time=34.9, value=1)
            assert sink.ticks == [1]
            runner.ingest("hall", time=35, value=1)
            assert sink.ticks == [1, 2]
        assert set(published(tmp_path)) == {1, 2}
        output = sink.outputs[0]
        assert (output["dataset"], output["query"], output["tick"], output["time"]) == (DATASET, "mean", 1, 10)
        assert output["values"] == list(published(tmp_path)[1])

    def test_late_readings_are_dropped_and_counted(self, tmp_path):
        with running(tmp_path) as runner:
            feed(runner, range(4))
            before = runner.status()
            assert runner.ingest("hall", time=12, value=1) == "late"
            after = runner.status()
            assert (after.closed, after.published) == (before.closed, before.published)
            assert after.fates["late"] == 1

    def test_out_of_order_within_the_lateness_gives_the_same_snapshots(self, tmp_path):
        orders = []
        for number, times in enumerate([[1, 4, 8, 12, 14, 23, 27, 40], [4, 1, 8, 14, 12, 23, 27, 40]]):
            folder = tmp_path / str(number)
            folder.mkdir()
            seen = SeenBy()
            with running(folder, states=seen) as runner:
                for time in times:
                    assert runner.ingest("hall", time=time, value=time / 100) == "accepted" or time in {1, 12}
            orders.append(np.array(seen.snapshots))
        np.testing.assert_array_equal(*orders)
        assert orders[0][:, 0].tolist() == [0.08, 0.14, 0.27]  # the newest reading of a tick counts
        assert np.isnan(orders[0][:, 1]).all()

    def test_far_ahead(self, tmp_path):
        with running(tmp_path, clock=Clock(step=10, ahead=100), present=lambda: 50.0) as runner:
            assert runner.ingest("hall", time=20, value=1) == "accepted"
            assert runner.ingest("hall", time=10**9, value=1) == "ahead"
            assert runner.ingest("hall", time=30, value=1) == "accepted"

    def test_silence(self, tmp_path):
        """Time may pass without readings; the last ones are still published once they are old enough."""
        sink = Memory()
        with running(tmp_path, sink=sink) as runner:
            feed(runner, range(3))
            runner.advance(1000)
            assert sink.ticks == [1, 2, 3]
            assert runner.status().reason == "no reading for too long"
            assert runner.status().skipped == 1 + 95  # the first has no past; the rest comes long after

    def test_a_gap_of_a_billion_ticks_takes_no_time(self, tmp_path):
        with running(tmp_path) as runner:
            feed(runner, range(3))
            feed(runner, range(10**9, 10**9 + 4))
            assert {1, 10**9 + 1, 10**9 + 2} <= set(published(tmp_path))
            assert runner.status().open_ticks <= 2
            assert 10**9 not in published(tmp_path)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, None, "now", True, 2**70])
    def test_a_bad_time_is_an_error_of_the_caller(self, tmp_path, bad):
        with running(tmp_path) as runner, pytest.raises(InputError, match="time"):
            runner.ingest("hall", time=bad, value=1)


class TestContent:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "1", "", [], {}, True, 10**400, "secret-4711"])
    def test_bad_values_move_the_clock_like_good_ones_and_are_missing(self, tmp_path, bad, caplog):
        """When a tick closes must not depend on what a reading holds."""
        caplog.set_level(logging.DEBUG)
        closed = []
        for number, value in enumerate([1, bad]):
            folder = tmp_path / str(number)
            folder.mkdir()
            with running(folder) as runner:
                feed(runner, range(3))
                fate = runner.ingest("hall", time=47, value=value)
                closed.append((runner.status().closed, runner.status().newest_time))
        assert fate == "bad"
        assert closed[0] == closed[1]
        assert "4711" not in caplog.text

    def test_unknown_sequences_and_garbage_do_nothing(self, tmp_path):
        with running(tmp_path) as runner:
            feed(runner, range(2))
            before = runner.status()
            assert runner.ingest("cellar", time=10**6, value=1) == "unknown"
            assert runner.accept(Snapshot(10**6, {"cellar": 1})) == "unknown"
            assert runner.accept(Snapshot(10**6, [1])) == "bad"
            assert runner.accept(Bad("not JSON")) == "bad"
            assert (runner.status().closed, runner.status().newest_time) == (before.closed, before.newest_time)

    def test_duplicates(self, tmp_path):
        seen = SeenBy()
        with running(tmp_path, states=seen) as runner:
            assert runner.ingest("hall", time=3, value=1) == "accepted"
            assert runner.ingest("hall", time=3, value=1) == "duplicate"
            assert runner.ingest("hall", time=2, value=0) == "duplicate"
            assert runner.ingest("hall", time=4, value=0.5) == "accepted"
            runner.ingest("hall", time=30, value=1)
        assert seen.snapshots[0][0] == 0.5

    def test_announced_gaps(self, tmp_path):
        with running(tmp_path) as runner:
            assert runner.ingest("hall", time=3, value=None) == "missing"
            assert runner.ingest_snapshot([None, None], time=3) == "missing"

    def test_snapshots(self, tmp_path):
        seen = SeenBy()
        with running(tmp_path, states=seen) as runner:
            assert runner.ingest_snapshot({"kitchen": 1, "cellar": 7}, time=3) == "accepted"
            assert runner.ingest_snapshot([0.25, None], time=4) == "accepted"
            assert runner.ingest_snapshot([0.25, 0.5], time=4) == "accepted"
            assert runner.ingest_snapshot({"hall": "x", "kitchen": 0.75}, time=13) == "accepted"
            runner.advance(30)
            assert runner.status().fates["unknown"] == 1
            assert runner.status().fates["bad"] == 1
        np.testing.assert_array_equal(seen.snapshots, [[0.25, 0.5], [np.nan, 0.75]])

    @given(
        st.lists(st.sampled_from([0, 1, 0.5, None, math.nan, math.inf, "x", True, 10**400, np.int64(1)]), max_size=9)
    )
    def test_many_numbers_are_each_what_one_is(self, values):
        found, bad = messages.numbers(values)
        each = [messages.number(value) for value in values]
        assert bad == each.count(None)
        np.testing.assert_array_equal(found, [math.nan if one is None else one for one in each])

    def test_nearest_is_the_clamp_of_the_panel(self):
        values = np.array([[0.0, 1.0, 4.0], [5.0, -1.0, 2.0]])
        readings = np.random.default_rng(1).uniform(-3, 8, size=(500, 2))
        readings[::7, 0] = np.nan
        expected = to_states(readings, values, outside="clamp")
        assert [Nearest(values).states_of(row).tolist() for row in readings] == expected.tolist()

    def test_missing_readings_follow_the_plan(self, tmp_path):
        sink = Memory()
        with running(tmp_path, sink=sink, given=plan(stale_limit=1)) as runner:
            feed(runner, range(3))
            for tick in range(3, 8):
                runner.ingest("hall", time=10 * tick, value=1)  # the kitchen is silent
            runner.advance(100)
        assert {o["tick"]: o["stale"] for o in sink.outputs} == {1: 0, 2: 0, 3: 0, 4: 1}
        assert "2 steps older than planned" in [r.reason for r in runner.recent if isinstance(r, Skipped)][1]

    def test_refusals_and_skips_are_the_same_for_all_values(self, tmp_path):
        """What is published when, and why not, is a function of times."""
        stories = []
        for number in range(4):
            folder = tmp_path / str(number)
            folder.mkdir()
            rng = np.random.default_rng(number)
            with running(folder, given=plan(ages=2, epsilon_c=1.0), budget=0.18) as runner:
                feed(runner, [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13], value=lambda _t, _n, rng=rng: rng.integers(2))
                stories.append([(r.tick, r.reason if isinstance(r, Skipped) else "") for r in runner.recent])
        assert stories[0] == stories[1] == stories[2] == stories[3]
        assert {reason.split()[0] for _, reason in stories[0] if reason} >= {f"{DATASET}:", "some"}
        assert any(not reason for _, reason in stories[0])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*NAMES, "cellar"]), st.integers(0, 120), st.sampled_from([0, 1, None, "x", math.nan])
        ),
        min_size=1,
        max_size=40,
    )
)
def test_any_messages_at_all(tmp_path_factory, messages):
    folder = tmp_path_factory.mktemp("any")
    sink = Memory()
    with running(folder, sink=sink, given=plan(stale_limit=2)) as runner:
        for name, time, value in messages:
            runner.ingest(name, time=time, value=value)
        status = runner.status()
        assert sum(status.fates.values()) == len(messages)
        assert status.open_ticks <= 2
    ticks = sink.ticks
    assert ticks == sorted(set(ticks))
    assert set(ticks) == set(published(folder))


class TestRestart:
    def test_ticks_that_are_counted_differently_are_refused(self, tmp_path):
        """Another grid would misjudge how much time has passed since the last release."""
        with running(tmp_path, clock=Clock(step=10, origin=3)) as runner:
            feed(runner, range(3))
        for other in (Clock(step=10), Clock(step=10, origin=-97), Clock(step=5, origin=3)):
            with pytest.raises(LedgerConflictError, match="other terms"), running(tmp_path, clock=other):
                pass
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            publisher = Publisher(plan(), dataset="other", ledger=ledger, on_refusal="skip")
            with pytest.raises(InputError, match="time_step and time_origin of the clock"):
                Runner(publisher, ledger=ledger, clock=Clock(step=10))

    def test_a_second_run_publishes_nothing_twice(self, tmp_path):
        first, second = Memory(), Memory()
        with running(tmp_path, sink=first) as runner:
            feed(runner, range(6))
        before = published(tmp_path)
        with running(tmp_path, sink=second) as runner:
            feed(runner, range(9))  # all of it once more, and three ticks
            assert runner.status().past == 4 + 1
        assert first.ticks == [1, 2, 3, 4]
        assert second.ticks == [4, 5, 6, 7]  # the newest again, since this sink cannot tell what it has
        assert second.outputs[0] == first.outputs[-1]
        after = published(tmp_path)
        assert {tick: after[tick] for tick in before} == before

    def test_without_readings_the_ages_fill_again(self, tmp_path):
        with running(tmp_path) as runner:
            feed(runner, range(6))
        with running(tmp_path) as runner:
            feed(runner, range(6, 10))
        assert set(published(tmp_path)) == {1, 2, 3, 4, 7, 8}

    def test_a_reserved_tick_is_lost_for_ever(self, tmp_path, monkeypatch):
        with running(tmp_path) as runner:
            feed(runner, range(4))

            def crash(*_args, **_named):
                raise KeyboardInterrupt

            monkeypatch.setattr(Ledger, "commit_many", crash)
            with pytest.raises(KeyboardInterrupt):
                feed(runner, range(4, 6))
        monkeypatch.undo()
        sink = Memory()
        with running(tmp_path, sink=sink) as runner:
            feed(runner, range(9))
        assert sink.ticks == [2, 4, 5, 6, 7]
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            assert ledger.summary(DATASET).lost == 1
        assert set(published(tmp_path)) == {1, 2, 4, 5, 6, 7}

    def test_state_file(self, tmp_path):
        file = tmp_path / "stream.state"
        with running(tmp_path, state_file=file) as runner:
            feed(runner, range(6))
            runner.close()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        seen = SeenBy()
        with running(tmp_path, state_file=file, states=seen) as runner:
            assert runner.status().closed == 3 + 1
            assert runner.ingest("hall", time=20, value=1) == "late"
            feed(runner, range(6, 8))
        assert set(published(tmp_path)) == {1, 2, 3, 4, 5, 6}
        assert seen.snapshots[0].tolist() == [1, 1]  # tick 5, whose readings came before the stop
        assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []

    def test_state_file_with_gaps_and_older_readings(self, tmp_path):
        """Resuming gives what one long run gives."""
        stories = []
        given = plan(ages=(1, 3), stale_limit=3)
        for number, cuts in enumerate([(), (4, 7, 8)]):
            folder = tmp_path / str(number)
            folder.mkdir()
            file = folder / "stream.state"
            story = []
            for low, high in zip((0, *cuts), (*cuts, 14), strict=True):
                with running(folder, state_file=file, given=given, on_outcome=story.append) as runner:
                    for tick in range(low, high):
                        if tick % 4 != 2:
                            runner.ingest("hall", time=10 * tick, value=1)
                        if tick % 3 == 0:
                            runner.ingest("kitchen", time=10 * tick + 1, value=0)
                    runner.close()
            stories.append([(o.tick, o.stale if isinstance(o, Release) else o.reason) for o in story])
        assert stories[0] == stories[1]
        assert sum(isinstance(stale, int) for _, stale in stories[0]) >= 6

    @pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 no archive"])
    def test_a_damaged_state_file(self, tmp_path, content):
        file = tmp_path / "stream.state"
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"stream\.state: not a state file"), running(tmp_path, state_file=file):
            pass

    def test_the_state_of_another_plan(self, tmp_path):
        file = tmp_path / "stream.state"
        with running(tmp_path, state_file=file) as runner:
            feed(runner, range(3))
        other = tmp_path / "other"
        other.mkdir()
        with (
            pytest.raises(InputError, match="another dataset, plan, grid"),
            running(other, state_file=file, given=plan(ages=2)),
        ):
            pass

    def test_a_state_of_another_version(self, tmp_path):
        file = tmp_path / "stream.state"
        with file.open("wb") as handle:
            np.savez(handle, version=np.array("csdp/stream-state/99"))
        with pytest.raises(InputError, match="another version"), running(tmp_path, state_file=file):
            pass

    def test_without_a_state_file_no_reading_reaches_the_disk(self, tmp_path):
        with running(tmp_path, sink=FileSink(tmp_path / "out.ndjson")) as runner:
            feed(runner, range(8), value=lambda _t, _n: 0.7182818284590452)
            runner.close()
        assert len(published(tmp_path)) > 4
        for file in tmp_path.rglob("*"):
            assert b"0.718281828" not in file.read_bytes()
            assert np.float64(0.7182818284590452).tobytes() not in file.read_bytes()


class TestTrouble:
    def test_a_busy_ledger_loses_nothing(self, tmp_path):
        sink = Memory()
        with Ledger.open(tmp_path / "ledger.db", timeout=0.2) as ledger:
            publisher = Publisher(plan(), dataset=DATASET, ledger=ledger, on_refusal="skip", time_step=10)
            runner = Runner(publisher, ledger=ledger, clock=Clock(step=10, lateness=5), sink=sink)
            feed(runner, range(3))
            holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerBusyError):
                runner.ingest("hall", time=36, value=1)
            assert runner.accept(Reading("kitchen", 36, 1)) == "accepted"
            holder.execute("ROLLBACK")
            holder.close()
            runner.settle()
            feed(runner, range(4, 7))
        assert sink.ticks == [1, 2, 3, 4, 5]

    def test_a_sink_that_fails_gets_the_same_output_again(self, tmp_path):
        class Failing(Memory):
            def deliver(self, output, stop):
                super().deliver(output, stop)
                if len(self.outputs) == 2:
                    raise OSError(28, "No space left on device")
                return True

        sink = Failing()
        with running(tmp_path, sink=sink) as runner:
            with pytest.raises(OSError, match="No space"):
                feed(runner, range(4))
            runner.ingest("kitchen", time=35, value=1)  # only the reading after the one that failed is lacking
            feed(runner, range(4, 6))
        assert sink.ticks == [1, 2, 2, 3, 4]
        assert sink.outputs[1] == sink.outputs[2]
        assert set(published(tmp_path)) == {1, 2, 3, 4}

    def test_a_stopped_delivery_comes_again(self, tmp_path):
        sink = Memory()
        with running(tmp_path, sink=sink) as runner:
            feed(runner, range(3))
            sink.open.clear()
            runner.stop.set()
            feed(runner, range(3, 5))
            assert runner.stuck
        again = Memory()
        with running(tmp_path, sink=again) as runner:
            assert runner.recover()
        assert (sink.ticks, again.ticks) == ([1], [2])
        assert set(published(tmp_path)) == {1, 2}

    def test_many_threads(self, tmp_path):
        sink = Memory()
        clock = Clock(step=10, lateness=1000)
        with running(tmp_path, sink=sink, clock=clock) as runner:

            def work(name):
                for time in range(0, 200, 2):
                    runner.ingest(name, time=time, value=1)

            threads = [threading.Thread(target=work, args=(name,)) for name in NAMES * 3]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            runner.advance(1200)
            assert runner.status().fates["accepted"] + runner.status().fates["duplicate"] == 600
        assert sink.ticks == list(range(1, 20))

    def test_memory_is_flat(self, tmp_path):
        import tracemalloc

        with running(tmp_path, given=plan(ages=2, query=Histogram()), state_file=tmp_path / "state") as runner:
            feed(runner, range(30))
            tracemalloc.start()
            feed(runner, range(30, 36))
            start, _ = tracemalloc.get_traced_memory()
            feed(runner, range(36, 76))
            end, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert end - start < 300_000
            assert runner.status().open_ticks <= 2


class TestDrift:
    def test_alarms_reach_the_operator_only(self, tmp_path):
        """A real check: readings that alternate are not what the chain says; told once, and in no output."""
        check, alarms = DriftCheck(plan().model, rows_between_false_alarms=1000, public=True), []
        with running(tmp_path, sink=FileSink(tmp_path / "out"), drift=check, on_drift=alarms.append) as runner:
            feed(runner, range(60))
            feed(runner, range(500, 503))
        assert check.rows == 60 + 1 + 1 + 2  # read, missing, the rest of the gap as one, and read again
        assert [alarm.alarm for alarm in alarms] == [True]
        quiet = tmp_path / "quiet"
        quiet.mkdir()
        with running(quiet, sink=FileSink(quiet / "out")) as runner:
            feed(runner, range(60))
            feed(runner, range(500, 503))
        assert list(published(quiet)) == list(published(tmp_path))
        keys = [set(json.loads(line)) for line in (tmp_path / "out").read_bytes().splitlines()]
        assert keys[0] == set(json.loads((quiet / "out").read_bytes().splitlines()[0]))

    def test_a_check_that_fails_is_switched_off(self, tmp_path, caplog):
        class Broken:
            def update(self, snapshot):
                raise ZeroDivisionError(f"{snapshot} is private")

        with running(tmp_path, drift=Broken()) as runner:
            feed(runner, range(6))
        assert len(published(tmp_path)) == 4
        assert caplog.text.count("ZeroDivisionError") == 1
        assert "private" not in caplog.text


class TestSinks:
    def test_a_torn_line_is_repaired_and_comes_again(self, tmp_path):
        out = tmp_path / "out.ndjson"
        with running(tmp_path, sink=FileSink(out)) as runner:
            feed(runner, range(7))
        whole = out.read_bytes()
        assert whole.count(b"\n") == 5
        cut = whole.rfind(b"\n", 0, -1) + 20
        out.write_bytes(whole[:cut])
        with running(tmp_path, sink=FileSink(out)) as runner:
            runner.recover()
        assert out.read_bytes() == whole

    def test_a_lost_file_is_written_again_from_the_ledger(self, tmp_path):
        out = tmp_path / "out.ndjson"
        with running(tmp_path, sink=FileSink(out)) as runner:
            feed(runner, range(80))
        whole = out.read_bytes()
        out.unlink()
        with running(tmp_path, sink=FileSink(out)) as runner:
            runner.recover()
        assert out.read_bytes() == whole
        out.write_bytes(b"".join(whole.splitlines(keepends=True)[:40]))
        with running(tmp_path, sink=FileSink(out)) as runner:
            runner.recover()
        assert out.read_bytes() == whole

    def test_a_foreign_file_is_left_alone(self, tmp_path):
        out = tmp_path / "out"
        out.write_text("my diary\n")
        with pytest.raises(InputError, match="no output of a stream"):
            FileSink(out)
        assert out.read_text() == "my diary\n"

    def test_a_full_disk_leaves_no_half_line(self, tmp_path):
        out = tmp_path / "out"
        sink = FileSink(out)
        real, calls = os.write, []

        def half(handle, data):
            calls.append(len(data))
            if len(calls) == 1:
                return real(handle, data[: len(data) // 2])
            raise OSError(28, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("csdp.stream.sinks.os.write", half)
            with pytest.raises(OSError, match="No space"):
                sink.deliver({"tick": 1}, threading.Event())
        assert out.read_bytes() == b""
        assert sink.deliver({"tick": 1}, threading.Event())
        assert sink.deliver({"tick": 1}, threading.Event())
        assert out.read_bytes() == b'{"tick":1}\n'
        sink.close()
        sink.close()

    def test_infinity_is_text(self, tmp_path):
        with (tmp_path / "out").open("wb") as stream:
            LineSink(stream).deliver({"tick": 1, "epsilon_s": math.inf}, threading.Event())
        assert Path(tmp_path / "out").read_bytes() == b'{"tick":1,"epsilon_s":"inf"}\n'
