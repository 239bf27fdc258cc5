"""Devices that lie about the time: none of them has the present published as if it were old, or stops the clock."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest

from csdp import Mean, Plan, ReadingRange
from csdp.cli.init import first_spec
from csdp.errors import InputError
from csdp.ledger import Ledger
from csdp.publisher import Publisher
from csdp.report.certificate import certify
from csdp.stream import Clock, Runner, run
from csdp.stream.spec import open_stream, read_spec
from csdp.stream.ticks import REPEATS

from stream import hostile  # isort: skip
from stream.hostile import AGE, LATENESS, POISON, STEP  # isort: skip
from stream.parts import DATASET, NAMES, NOW, Memory, Wall, pairs, plan, published, running  # isort: skip


def stream(path, messages):
    """`csdp stream` of these lines; what became of the messages."""
    with open_stream(read_spec(path), stdin=io.BytesIO(hostile.lines(messages))) as (runner, source):
        return run(runner, source).fates


class TestLines:
    def test_one_reading_from_the_future_publishes_nothing(self, tmp_path):
        """It would close the ticks of the next minutes, whose outputs are made of the readings of now."""
        path = hostile.spec(tmp_path)
        future = {"time": time.time() + 370, "sequence": "s0", "value": 1}
        fates = stream(path, [*hostile.honest(range(20, -1, -1)), future])
        assert fates == {"accepted": 21, "ahead": 1}
        assert 10 <= len(hostile.published(tmp_path)) <= 15

    def test_the_first_specification_keeps_the_age_that_it_certifies(self, tmp_path):
        hostile.spec(tmp_path)
        stamps = np.datetime64("2024-05-01T00:00:00") + np.arange(30) * np.timedelta64(STEP, "s")
        rows = "\n".join(f"{stamp}Z,{k % 2},1" for k, stamp in enumerate(stamps))
        (tmp_path / "readings.csv").write_text(f"time,s0,s1\n{rows}\n")
        text = first_spec(tmp_path / "readings.csv", dataset=DATASET)
        text = text.replace("# anyway = true", "anyway = true")
        (tmp_path / "first.toml").write_text(text.replace('kind = "stdout"', 'kind = "none"'))
        assert 'times = "wall"' in text
        for seconds in (299, 120, STEP):
            future = {"time": time.time() + seconds, "sequence": "s0", "value": 1}
            stream(tmp_path / "first.toml", [*hostile.honest(range(20, -1, -1)), future])
        assert hostile.published(tmp_path)

    @pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
    @pytest.mark.parametrize("more", ["", 'state_file = "state"'], ids=["", "state file"])
    def test_a_poisoned_clock_goes_on_also_after_a_restart(self, tmp_path, poison, more):
        path = hostile.spec(tmp_path, age=1, more=more)
        fates = stream(path, [*hostile.honest(range(20, 10, -1)), *poison, *hostile.honest(range(10, 5, -1))])
        assert fates == {"accepted": 15, "ahead": len(poison)}
        before = hostile.published(tmp_path)
        fates = stream(path, [*poison, *hostile.honest(range(5, -1, -1))])
        assert fates == {"accepted": 6, "ahead": len(poison)}
        after = hostile.published(tmp_path)
        assert len(before) >= 10
        assert len(after) >= len(before) + 2

    def test_counted_ticks_are_refused_unless_they_are_declared(self, tmp_path):
        path = hostile.spec(tmp_path)
        counted = [{"time": STEP * k, "values": [0, 1]} for k in range(20)]
        assert stream(path, counted) == {"undated": 20}
        path = hostile.spec(tmp_path, clock='lateness = 10\ntimes = "data"')
        assert stream(path, counted) == {"accepted": 20}


CLOCK = Clock(step=STEP, lateness=LATENESS)


def house(folder, wall, **settings):
    settings.setdefault("given", plan(AGE, stale_limit=30))
    return running(folder, clock=CLOCK, wall=wall.clock, **settings)


def over(runner, wall):
    """Every published tick is over; how many there are."""
    releases = [one for one in runner.recent if hasattr(one, "values")]
    assert all(CLOCK.start(one.tick + 1) <= wall.shown for one in releases)
    return len(releases)


class TestRealAge:
    def test_every_output_is_as_old_as_it_says(self, tmp_path):
        """Readings carry the true time as their value: what is published when can be looked up."""
        wall, ages = Wall(NOW), []

        def told(outcome):
            if hasattr(outcome, "values"):
                ages.append(wall.shown - CLOCK.start(outcome.tick - AGE + 1))

        with house(tmp_path, wall, on_outcome=told, given=plan(AGE)) as runner:
            for k in range(400):
                wall.pass_by(7.3)
                runner.ingest(NAMES[k % 2], time=wall.shown + (k % 12) - 1, value=k % 2)
        assert len(ages) > 30
        # AGE whole ticks, and the lateness less what times may be ahead: here as much
        assert min(ages) >= AGE * STEP

    def test_less_ahead_is_more_age(self, tmp_path):
        wall, ages = Wall(NOW), []
        clock = Clock(step=STEP, lateness=LATENESS, ahead=2)

        def told(outcome):
            if hasattr(outcome, "values"):
                ages.append(wall.shown - clock.start(outcome.tick - AGE + 1))

        with running(tmp_path, clock=clock, wall=wall.clock, given=plan(AGE), on_outcome=told) as runner:
            for k in range(400):
                wall.pass_by(7.3)
                runner.ingest(NAMES[k % 2], time=wall.shown + 2, value=k % 2)
        assert min(ages) >= AGE * STEP + LATENESS - 2

    def test_time_that_passes_closes_ticks_up_to_the_wall_clock_and_no_further(self, tmp_path):
        wall = Wall(NOW)
        with house(tmp_path, wall) as runner:
            for k in range(8):
                wall.pass_by(STEP)
                runner.ingest_snapshot([k % 2, 1], time=wall.shown)
            before = over(runner, wall)
            runner.advance(wall.shown + 100 * STEP)
            assert over(runner, wall) <= before + 1
            wall.pass_by(10 * STEP)
            runner.advance(wall.shown)
            assert over(runner, wall) >= before + 10


class TestTheGate:
    def test_what_times_were_is_recorded_and_said(self, tmp_path):
        wall = Wall(NOW)
        settings = {"time_step": STEP, "wall": wall.clock, "on_refusal": "skip"}
        tick = NOW // STEP - 10
        with Ledger.open(tmp_path / "l.db") as ledger:
            said = []
            for k, times in enumerate(["wall", "wall", "data", "wall", None]):
                publisher = Publisher(plan(1), dataset="d", ledger=ledger, times=times, **settings)
                publisher.push([0, 1], time=tick + 2 * k)
                publisher.push([0, 1], time=tick + 2 * k + 1)
                said.append((ledger.summary("d").state.times, certify(publisher, ledger)))
            publisher.change_plan(plan(2), from_tick=tick + 20)
            assert ledger.summary("d").state.times == ("data", "ticks", "wall")
        assert [times for times, _ in said] == [
            ("wall",), ("wall",), ("data", "wall"), ("data", "wall"), ("data", "ticks", "wall"),
        ]  # fmt: skip
        words = "the age is what the timestamps say"
        assert words not in " ".join(said[1][1].not_promised).lower()
        assert words in " ".join(said[3][1].not_promised).lower()  # also after the wall clock is there again
        assert any("wall clock has passed its end" in one for one in said[0][1].assumptions)

    def test_a_stream_and_its_gate_agree_on_what_times_are(self, tmp_path):
        with Ledger.open(tmp_path / "l.db") as ledger:
            publisher = Publisher(plan(), dataset="d", ledger=ledger, time_step=STEP, on_refusal="skip")
            with pytest.raises(InputError, match="times 'wall' given, but the publisher has None"):
                Runner(publisher, ledger=ledger, clock=CLOCK)
            with pytest.raises(InputError, match="without time_step"):
                Publisher(plan(), dataset="e", ledger=ledger, times="wall")
            with pytest.raises(InputError, match="'logical' given"):
                Publisher(plan(), dataset="e", ledger=ledger, time_step=1, times="logical")


class TestTheClockOnTheWall:
    def test_a_sequence_that_died_does_not_hold_up_the_other(self, tmp_path):
        """Ticks close without it; its last reading serves 30 ticks more, and then it is left out."""
        wall = Wall(NOW)
        with house(tmp_path, wall) as runner:
            for k in range(60):
                wall.pass_by(STEP)
                for name in NAMES if k < 10 else NAMES[:1]:
                    assert runner.ingest(name, time=wall.shown, value=k % 2) == "accepted"
            assert runner.status().closed >= CLOCK.tick(wall.shown) - 2
            assert over(runner, wall) > 50
            counts = [one.count for one in runner.recent if hasattr(one, "values")]
            assert 35 <= counts.count(2) < 50
            assert counts == sorted(counts, reverse=True)
            assert counts[-1] == 1

    def test_a_sequence_that_never_sent_does_not_stop_the_clock(self, tmp_path):
        """With readings published, the mean of those that are there."""
        wall = Wall(NOW)
        with house(tmp_path, wall, given=readings_plan()) as runner:
            for k in range(20):
                wall.pass_by(STEP)
                runner.ingest(NAMES[0], time=wall.shown, value=k % 2)
            assert over(runner, wall) >= 10

    def test_a_year_ahead_and_back(self, tmp_path):
        """Not believed: nothing closes early, honest readings go on, and so they do when it is back."""
        wall = Wall(NOW)
        with house(tmp_path, wall) as runner:
            feed_now(runner, wall, 10)
            wall.set_to(wall.shown + 365 * 86400)
            assert runner.ingest("hall", time=wall.shown, value=1) == "ahead"
            runner.advance(wall.shown)
            assert "jumped forward" in runner.status().trouble
            wall.set_to(wall.shown - 365 * 86400)
            feed_now(runner, wall, 10)
            assert runner.status().trouble == ""
            assert over(runner, wall) >= 14

    def test_an_hour_back_and_again_forward(self, tmp_path):
        """Ticks wait; no reading is published early, none twice, and all goes on when the clock is right again."""
        wall, sink = Wall(NOW), Memory()
        with house(tmp_path, wall, sink=sink) as runner:
            feed_now(runner, wall, 10)
            before = list(sink.ticks)
            wall.set_to(wall.shown - 3600)
            assert runner.ingest_snapshot([1, 1], time=wall.shown + 3660) == "ahead"
            runner.advance(wall.shown)
            assert sink.ticks == before
            assert runner.status().trouble
            wall.set_to(wall.shown + 3600)
            feed_now(runner, wall, 10)
        assert sink.ticks == list(range(before[0], before[-1] + 11))

    def test_charged_ticks_never_come_again(self, tmp_path):
        wall = Wall(NOW + 3600)  # an hour fast, and so are the devices
        with house(tmp_path, wall) as runner:
            feed_now(runner, wall, 10)
        before = published(tmp_path)
        wall = Wall(NOW)
        with house(tmp_path, wall) as runner:
            feed_now(runner, wall, 10)
            assert published(tmp_path) == before  # they wait until the hour is over
            feed_now(runner, wall, 70)
        after = published(tmp_path)
        assert before.items() < after.items()
        assert all(tick > max(before) for tick in set(after) - set(before))


def readings_plan():
    chain = plan().model
    return Plan(chain, Mean(of=ReadingRange(0.0, 1.0, 1.0)), ages=AGE, epsilon_c=0.5)


def feed_now(runner, wall, ticks):
    """Honest snapshots of the present."""
    for k in range(ticks):
        wall.pass_by(STEP)
        for name in NAMES:
            runner.ingest(name, time=wall.shown, value=k % 2)


class TestData:
    """Without a wall clock: the sequences themselves say what the time is, most of them."""

    @pytest.mark.parametrize(
        "poison",
        [
            [("s0", 2**53)],
            [("s0", 10**12 + k) for k in range(1000)],
            [("s0", 10 * k) for k in range(10, 2000, 11)],  # step by step
            [(f"s{i}", 10**12) for i in range(4)],
            [("s0", -(2**53))] * 10,
        ],
        ids=["far", "often", "walk", "four of nine", "the past"],
    )
    @pytest.mark.parametrize("first", [False, True], ids=["", "before anybody else"])
    def test_a_minority_does_not_move_the_clock(self, tmp_path, poison, first):
        nine = plan_of(9)
        with running(tmp_path, given=nine) as runner:
            if not first:
                feed_all(runner, range(6))
            for name, when in poison:
                runner.ingest(name, time=when, value=1)
            feed_all(runner, range(6 if not first else 0, 40))
            assert runner.status().closed == 38
        assert max(published(tmp_path)) == 38

    def test_three_snapshots_about_all_do_not_either(self, tmp_path, caplog):
        with running(tmp_path, given=plan_of(9)) as runner:
            feed_all(runner, range(6))
            for k in range(REPEATS - 1):
                assert runner.ingest_snapshot([1] * 9, time=10**12 + 10 * k) == "ahead"
            feed_all(runner, range(6, 20))
            assert runner.status().closed == 18
            assert runner.status().fates["ahead"] == 3
        assert "1 messages lay too far ahead of most sequences" in caplog.text
        assert "10000" not in caplog.text

    def test_a_gap_that_most_sequences_show_is_believed(self, tmp_path):
        with running(tmp_path, given=plan_of(9)) as runner:
            feed_all(runner, range(6))
            feed_all(runner, range(10**6, 10**6 + 10))
            assert runner.status().closed == 10**6 + 8
        assert {1, 10**6 + 6, 10**6 + 8} <= set(published(tmp_path))

    def test_ticks_wait_until_most_sequences_have_sent_something(self, tmp_path):
        with running(tmp_path, given=plan_of(9)) as runner:
            for tick in range(1000):
                for name in runner.names[:4]:
                    assert runner.ingest(name, time=10 * tick, value=1) == "accepted"
            assert runner.status().closed is None
            assert "more than half" in runner.status().trouble
            assert len(runner._open) <= 32
            feed_all(runner, range(990, 1010))
            assert (runner.status().closed, runner.status().trouble) == (1008, "")
        assert max(published(tmp_path)) == 1008


def plan_of(count):
    from csdp import Mean, Plan

    return Plan(pairs_of(count), Mean(), ages=1, epsilon_c=0.5, stale_limit=1)


def pairs_of(count):
    from csdp import CoupledChain

    if count % 2 == 0:
        return pairs(count)
    return CoupledChain(np.eye(count), [[0.7, 0.3], [0.3, 0.7]], names=[f"s{i}" for i in range(count)])


def feed_all(runner, ticks):
    for tick in ticks:
        for name in runner.names:
            runner.ingest(name, time=10 * tick + 5, value=tick % 2)
