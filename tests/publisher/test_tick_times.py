"""What ticks are: held against the wall clock where they are its times, and said where nothing holds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import csdp
from csdp.clock import WallClock
from csdp.errors import InputError
from csdp.panel import Panel
from csdp.publisher import Release, Skipped

from publisher.rules import opened, panel, snapshot  # isort: skip

HOUR = 1_800_000_000 - 1_800_000_000 % 3600


class Wall(WallClock):
    """A wall clock that a test moves."""

    def __init__(self, now: float) -> None:
        self.at = now
        super().__init__(time=lambda: self.at, elapsed=lambda: self.at)


def test_no_tick_is_published_before_the_wall_clock_has_passed_its_end(file: Path) -> None:
    wall = Wall(HOUR + 59.9)
    tick = HOUR // 60
    with opened(file, budget=None, times="wall", time_step=60, wall=wall) as publisher:
        publisher.observe(snapshot(0), time=tick - 2)
        assert isinstance(publisher.push(snapshot(1), time=tick - 1), Release)
        early = publisher.push(snapshot(2), time=tick)
        assert isinstance(early, Skipped)
        assert "not over by the wall clock" in early.reason
        assert isinstance(publisher.push(snapshot(2), time=tick + 1), Skipped)
        assert publisher.charged == 1
    with opened(file, budget=None, times="wall", time_step=60, wall=wall) as publisher:
        wall.at = HOUR + 60.0
        batch = publisher.publish(panel(4, first=tick - 2))
        assert [release.tick for release in batch] == [tick - 1, tick]
        assert batch.skipped[-1].reason == "its time is not over by the wall clock"


def test_timestamps_beyond_the_wall_clock_need_a_word_of_what_they_are(file: Path) -> None:
    stamps = np.datetime64(HOUR, "s") + 60 * np.arange(4)
    dated = Panel(("x1",), HOUR // 60 + np.arange(4), stamps, np.zeros((4, 1), dtype=np.int8), 60, None)
    for late, refused in ((0.0, True), (239.9, True), (240.0, False)):
        with opened(file, dataset=f"d{late}", budget=None, time_step=60, wall=Wall(HOUR + late)) as publisher:
            if refused:
                with pytest.raises(InputError, match="beyond the wall clock"):
                    publisher.publish(dated)
                assert publisher.charged == 0
            else:
                assert len(publisher.publish(dated)) == 3
    with opened(file, dataset="simulated", budget=None, time_step=60, times="data", wall=Wall(HOUR)) as publisher:
        assert len(publisher.publish(dated)) == 3


def test_what_the_times_were_is_kept(file: Path) -> None:
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(3))
        assert publisher.ledger.summary("ward-7").state.times == ("ticks",)
    with opened(file, budget=None, times="data") as publisher:
        publisher.publish(panel(3, first=3))
        assert publisher.ledger.summary("ward-7").state.times == ("data", "ticks")
    with opened(file, dataset="other", budget=None) as publisher:
        assert any("the program that pushes tick T" in words for words in publisher.guarantee()["words"])


def _timed(step: int, ticks: int = 40, begin: int = HOUR - 10**8 + 10**8 % 3600) -> Panel:
    states = np.random.default_rng(5).integers(0, 2, (ticks, 1))
    times = (begin + step * np.arange(ticks)).astype("datetime64[s]")
    return Panel(("a",), begin // step + np.arange(ticks), times, states, step)


def test_a_chain_fitted_to_hours_publishes_no_minutes(file: Path) -> None:
    chain = csdp.fit(_timed(3600, 400), public=True)
    assert chain.fitted is not None
    assert chain.fitted.step == 3600
    plan = csdp.Plan(csdp.CoupledChain.from_dict(chain.to_dict()), csdp.Mean(), ages=1, epsilon_c=0.5)
    wrong = "fitted to ticks of 3600 seconds"
    for grid in ({"time_step": 60}, {"time_step": 60, "times": "data"}, {"time_step": 1, "times": "data"}):
        with pytest.raises(InputError, match=wrong):
            csdp.Publisher(plan, dataset="d", ledger=file, **grid)
    with csdp.Publisher(plan, dataset="d", ledger=file) as publisher:
        with pytest.raises(InputError, match=wrong):
            publisher.publish(_timed(60))
        with pytest.raises(InputError, match="3600 seconds apart, and the publisher has no time_step"):
            publisher.publish(_timed(3600))
        assert publisher.charged == 0
    with csdp.Publisher(plan, dataset="f", ledger=file, time_step=3600) as publisher:
        assert len(publisher.publish(_timed(3600))) == 39
    free = csdp.Plan(csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), csdp.Mean(), ages=1, epsilon_c=0.5)
    with (
        csdp.Publisher(free, dataset="e", ledger=file, time_step=60) as publisher,
        pytest.raises(InputError, match=wrong),
    ):
        publisher.change_plan(plan, from_tick=0)


def test_the_same_times_have_the_same_ticks(file: Path) -> None:
    plan = csdp.Plan(csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), csdp.Mean(), ages=1, epsilon_c=0.5)
    with csdp.Publisher(plan, dataset="d", ledger=file, time_step=3600) as publisher:
        with pytest.raises(InputError, match="same times must have the same ticks"):
            publisher.publish(_timed(60))
        assert len(publisher.publish(_timed(3600))) == 39
    with (
        csdp.Publisher(plan, dataset="e", ledger=file, time_step=3600, time_origin=HOUR) as publisher,
        pytest.raises(InputError, match="same times must have the same ticks"),
    ):
        publisher.publish(_timed(3600))
