"""The runner: each tick once, at the right time, whatever arrives in whatever order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csdp.errors import InputError
from csdp.publisher import Skipped
from csdp.stream.messages import Nearest

from stream.parts import DATASET, NAMES, Memory, SeenBy, feed, plan, published, running  # isort: skip


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

    def test_out_of_order_within_the_lateness_gives_the_same_snapshots(self, tmp_path):
        orders = []
        for number, times in enumerate([[1, 4, 8, 12, 14, 23, 27, 40], [4, 1, 8, 14, 12, 23, 27, 40]]):
            folder = tmp_path / str(number)
            folder.mkdir()
            seen = SeenBy()
            with running(folder, discretiser=seen) as runner:
                runner.ingest("kitchen", time=0, value=None)
                for time in times:
                    assert runner.ingest("hall", time=time, value=time / 100) == "accepted" or time in {1, 12}
            orders.append(np.array(seen.snapshots))
        np.testing.assert_array_equal(*orders)
        assert orders[0][:, 0].tolist() == [0.08, 0.14, 0.27]  # the newest reading of a tick counts
        assert np.isnan(orders[0][:, 1]).all()

    def test_silence(self, tmp_path):
        """Time may pass without readings; the last ones are still published once they are old enough."""
        sink = Memory()
        with running(tmp_path, sink=sink) as runner:
            feed(runner, range(3))
            runner.advance(1000)
            assert sink.ticks == [1, 2, 3]
            assert runner.status().reason == "no reading for too long"
            assert runner.status().skipped == 1 + 95  # the first has no past; the rest comes long after

    @pytest.mark.parametrize(
        "bad",
        [
            math.nan,
            "now",
        ],
    )
    def test_a_bad_time_is_an_error_of_the_caller(self, tmp_path, bad):
        with running(tmp_path) as runner, pytest.raises(InputError, match="time"):
            runner.ingest("hall", time=bad, value=1)


class TestContent:
    def test_duplicates(self, tmp_path):
        seen = SeenBy()
        with running(tmp_path, discretiser=seen) as runner:
            runner.ingest("kitchen", time=0, value=None)
            assert runner.ingest("hall", time=3, value=1) == "accepted"
            assert runner.ingest("hall", time=3, value=1) == "duplicate"
            assert runner.ingest("hall", time=2, value=0) == "duplicate"
            assert runner.ingest("hall", time=4, value=0.5) == "accepted"
            runner.ingest("hall", time=30, value=1)
        assert seen.snapshots[0][0] == 0.5

    def test_snapshots(self, tmp_path):
        seen = SeenBy()
        with running(tmp_path, discretiser=seen) as runner:
            assert runner.ingest_snapshot({"kitchen": 1, "cellar": 7}, time=3) == "accepted"
            assert runner.ingest_snapshot([0.25, None], time=4) == "accepted"
            assert runner.ingest_snapshot([0.25, 0.5], time=4) == "accepted"
            assert runner.ingest_snapshot({"hall": "x", "kitchen": 0.75}, time=13) == "accepted"
            runner.advance(30)
            assert runner.status().fates["unknown"] == 1
            assert runner.status().fates["bad"] == 1
        np.testing.assert_array_equal(seen.snapshots, [[0.25, 0.5], [np.nan, 0.75]])

    def test_nearest_takes_the_state_of_the_nearest_value(self):
        values = np.array([[0.0, 1.0, 4.0], [5.0, -1.0, 2.0]])
        readings = np.random.default_rng(1).uniform(-3, 8, size=(500, 2))
        readings[::7, 0] = np.nan
        expected = np.abs(readings[:, :, None] - values).argmin(axis=2)
        expected[np.isnan(readings)] = -1
        assert [Nearest(values).states_of(row).tolist() for row in readings] == expected.tolist()

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
        assert {reason.split()[0] for _, reason in stories[0] if reason} >= {f"{DATASET}:", "no"}
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
        assert len(runner._open) <= 2
    ticks = sink.ticks
    assert ticks == sorted(set(ticks))
    assert set(ticks) == set(published(folder))


class TestWhatTheOperatorIsTold:
    def test_unknown_sequences_beside_known_ones_are_named_once(self, tmp_path, caplog):
        with running(tmp_path) as runner:
            for time in (3, 4):
                assert runner.ingest_snapshot({"kitchen": 1, "cellar": 0}, time=time) == "accepted"
            assert runner.ingest_snapshot({"cellar": 0}, time=5) == "unknown"
        (record,) = [one.getMessage() for one in caplog.records if "unknown" in one.getMessage()]
        assert "unknown sequence 'cellar'; the dataset has 'hall', 'kitchen'" in record

    def test_numbers_beyond_the_values_are_reported_and_leave_no_gap(self, tmp_path, caplog):
        with running(tmp_path) as runner:
            assert runner.ingest_snapshot({"hall": 7, "kitchen": -1}, time=3) == "accepted"
            assert runner.ingest("hall", time=13, value=2) == "accepted"
            assert runner.ingest("kitchen", time=13, value=0.6) == "accepted"
            assert runner.status().fates["outside"] == 3
        (record,) = [one.getMessage() for one in caplog.records if "beyond" in one.getMessage()]
        assert "2 readings lay beyond the values of the chain's states, 0 to 1" in record

    def test_readings_of_recorded_ticks_are_counted(self, tmp_path):
        with running(tmp_path) as runner:
            feed(runner, range(4))
            first = runner.status()
            assert first.published
        with running(tmp_path) as runner:
            runner.ingest("kitchen", time=5, value=None)
            fates = [runner.ingest("hall", time=10 * tick + 5, value=0) for tick in range(6)]
            newest = first.last.tick
            assert fates == ["recorded" if tick <= newest else "accepted" for tick in range(6)]
            assert runner.status().past
