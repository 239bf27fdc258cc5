"""Event time: every tick closes once, in order, and whether a reading counts depends on times alone."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdp.clock import Clock, Mark, parse_time
from csdp.errors import InputError

from stream.parts import NOW, Wall  # isort: skip

whole_times = st.integers(-(10**12), 10**12)
any_times = whole_times | st.floats(-1e12, 1e12, allow_nan=False)
clocks = st.builds(
    Clock,
    step=st.integers(1, 10**6),
    origin=st.integers(-(10**6), 10**6),
    lateness=st.integers(0, 10**6) | st.floats(0, 1e6),
    times=st.just("data"),
)
near = st.lists(st.integers(-200, 200), min_size=1, max_size=60)


def fold(clock, times):
    """Verdicts, and the last mark."""
    mark, verdicts = None, []
    for time in times:
        mark, verdict = clock.observe(mark, time)
        verdicts.append(verdict)
    return verdicts, mark


@given(clocks, any_times)
def test_a_tick_holds_its_times(clock, time):
    tick = clock.tick(time)
    assert clock.start(tick) <= Fraction(time) < clock.start(tick + 1)


@given(
    st.builds(
        Clock, step=st.integers(1, 20), origin=st.integers(-9, 9), lateness=st.integers(0, 60), times=st.just("data")
    ),
    near,
)
def test_against_the_definition(clock, times):
    """A reading counts exactly while the end of its tick lies after the newest time so far less the lateness."""
    verdicts, _ = fold(clock, times)
    for n, (time, verdict) in enumerate(zip(times, verdicts, strict=True)):
        newest = max(times[: n + 1])
        end = clock.origin + clock.step * (math.floor(Fraction(time - clock.origin, clock.step)) + 1)
        assert (verdict == "open") == (end > newest - clock.lateness)


@given(st.integers(1, 20), st.integers(0, 60), near, st.randoms(use_true_random=False))
def test_within_the_lateness_order_does_not_matter(step, lateness, times, random):
    clock = Clock(step=step, lateness=lateness, times="data")
    ordered = sorted(times)
    shuffled = sorted(times, key=lambda time: time + random.uniform(0, lateness))
    assert set(fold(clock, shuffled)[0]) == {"open"}
    assert fold(clock, shuffled)[1] == fold(clock, ordered)[1]


@given(clocks, st.lists(any_times, min_size=1, max_size=30))
def test_time_never_runs_backwards(clock, times):
    mark = None
    for time in times:
        moved, verdict = clock.observe(mark, time)
        assert mark is None or (moved.closed >= mark.closed and moved.newest >= mark.newest)
        assert verdict == "late" or clock.tick(time) > moved.closed
        mark = moved
    assert clock.advance(mark, min(times)) == mark


class TestWall:
    """Times of the wall clock: what the certificate of an age rests on."""

    @given(
        st.integers(1, 100),
        st.integers(-300, NOW + 1000),
        st.integers(0, 120) | st.floats(0, 120),
        st.floats(0, 1),
        st.lists(st.tuples(st.integers(0, 30) | st.floats(0, 30), st.integers(-300, 10**9)), max_size=40),
    )
    def test_no_tick_closes_before_the_wall_clock_has_passed_its_end(self, step, origin, lateness, share, story):
        clock = Clock(step=step, origin=origin, lateness=lateness, ahead=share * lateness)
        mark, now = None, float(NOW)
        for passed, beyond in story:
            now += passed
            mark, verdict = clock.observe(mark, NOW + beyond, limit=clock.limit(now))
            assert (verdict == "ahead") == (beyond + NOW > now + clock.ahead)
            if mark is not None:
                assert clock.start(mark.closed + 1) <= now
                assert mark.closed <= clock.over(now)

    def test_too_far_ahead_moves_nothing(self):
        clock = Clock(step=10, lateness=60, ahead=60)
        mark = Mark(newest=NOW, closed=clock.tick(NOW - 60) - 1)
        limit = clock.limit(NOW + 120.0)
        for time in (NOW + 181, NOW + 10**6, 10**12, 2**53):
            assert clock.observe(mark, time, limit=limit) == (mark, "ahead")
        assert clock.observe(mark, NOW + 180, limit=limit)[1] == "open"

    def test_somebody_must_say_what_the_present_is(self):
        with pytest.raises(InputError, match="no limit given"):
            Clock(step=10).observe(None, NOW)

    def test_counted_ticks_are_not_taken_for_timestamps(self):
        clock = Clock(step=60, lateness=10)
        for time in (0, 370, -5, 946_684_799):
            assert clock.observe(None, time, limit=clock.limit(NOW)) == (None, "undated")


class TestWallClock:
    def test_a_jump_forward_is_not_believed_until_it_is_back(self, caplog):
        wall = Wall(NOW)
        wall.pass_by(60)
        wall.set_to(NOW + 365 * 86400)
        wall_clock = wall.clock
        assert wall_clock.now() == NOW + 60
        wall.pass_by(30)
        assert wall_clock.now() == NOW + 90
        assert "not believed" in wall_clock.trouble
        wall.set_to(NOW + 91)
        assert (wall_clock.now(), wall_clock.trouble) == (NOW + 91, "")
        assert caplog.text.count("WARNING") == 2

    def test_a_step_back_is_believed_and_so_is_the_way_forward_again(self):
        wall = Wall(NOW)
        wall.set_to(NOW - 3600)
        assert wall.clock.now() == NOW - 3600
        assert "set back" in wall.clock.trouble
        wall.pass_by(10)
        assert wall.clock.now() == NOW - 3590
        wall.set_to(NOW + 10)
        assert (wall.clock.now(), wall.clock.trouble) == (NOW + 10, "")

    @given(st.lists(st.tuples(st.floats(0, 100), st.floats(-4.9, 4.9)), max_size=30))
    def test_small_corrections_are_followed(self, story):
        wall = Wall(NOW)
        for passed, step in story:
            wall.pass_by(passed)
            wall.set_to(wall.shown + step)
            assert wall.clock.now() == wall.shown

    @given(st.lists(st.tuples(st.floats(0, 100), st.floats(-(10**9), 10**9)), max_size=30))
    def test_never_later_than_shown_nor_than_it_can_be(self, story):
        wall, passed = Wall(NOW), 0.0
        for number, (seconds, step) in enumerate(story, start=1):
            wall.pass_by(seconds)
            wall.set_to(wall.shown + step)
            passed += seconds
            assert wall.clock.now() <= wall.shown
            assert wall.clock.now() <= NOW + passed + 5.0 * number + 1e-6


@pytest.mark.parametrize(
    "bad",
    [
        {"step": 0},
        {"step": 1.5},
        {"step": 2**60},
        {"lateness": -1},
        {"lateness": math.nan},
        {"ahead": 300, "lateness": 10},
        {"times": "logical"},
    ],
)
def test_bad_settings(bad):
    with pytest.raises(InputError, match=f"clock: {next(iter(bad))}"):
        Clock(**{"step": 1, **bad})


@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        2**60,
        "soon",
        "9" * 5000,
    ],
)
def test_bad_times_are_refused_without_being_quoted(bad):
    with pytest.raises(InputError) as error:
        parse_time(bad)
    assert "soon" not in str(error.value)
    assert "9999" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1970-01-02", 86400),
        ("1970-01-01T00:00:01.5", 1.5),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:59:59Z", -1),
        (7.0, 7),
    ],
)
def test_times(given, expected):
    assert parse_time(given) == expected
