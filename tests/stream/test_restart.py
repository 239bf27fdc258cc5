"""A runner that is started again: nothing is published twice, and a state file spares the wait."""

from __future__ import annotations

import sqlite3
import stat

import numpy as np
import pytest

from csdp.errors import InputError, LedgerConflictError
from csdp.ledger import Ledger
from csdp.publisher import Publisher, Release
from csdp.stream import Clock, FileSink, Runner

from stream.parts import DATASET, Memory, SeenBy, feed, plan, published, running  # isort: skip


def test_ticks_that_are_counted_differently_are_refused(tmp_path):
    """Another grid would misjudge how much time has passed since the last release."""
    with running(tmp_path, clock=Clock(step=10, origin=3, times="data")) as runner:
        feed(runner, range(3))
    for other in (
        Clock(step=10, times="data"),
        Clock(step=10, origin=-97, times="data"),
        Clock(step=5, origin=3, times="data"),
    ):
        with pytest.raises(LedgerConflictError, match="other terms"), running(tmp_path, clock=other):
            pass
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        publisher = Publisher(plan(), dataset="other", ledger=ledger, on_refusal="skip")
        with pytest.raises(InputError, match="time_step and time_origin of the clock"):
            Runner(publisher, ledger=ledger, clock=Clock(step=10, times="data"))


def test_a_reserved_tick_is_lost_for_ever(tmp_path, monkeypatch):
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


def test_state_file(tmp_path):
    file = tmp_path / "stream.state"
    with running(tmp_path, state_file=file) as runner:
        feed(runner, range(6))
        runner.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    seen = SeenBy()
    with running(tmp_path, state_file=file, discretiser=seen) as runner:
        assert runner.status().closed == 3 + 1
        assert runner.ingest("hall", time=20, value=1) == "late"
        feed(runner, range(6, 8))
    assert set(published(tmp_path)) == {1, 2, 3, 4, 5, 6}
    assert seen.snapshots[0].tolist() == [1, 1]  # tick 5, whose readings came before the stop
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_state_file_with_gaps_and_older_readings(tmp_path):
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
def test_a_damaged_state_file(tmp_path, content):
    file = tmp_path / "stream.state"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"stream\.state: not a state file"), running(tmp_path, state_file=file):
        pass


def test_the_state_of_another_plan(tmp_path):
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


@pytest.mark.parametrize("witness", ["sink", "state file"])
def test_a_restored_older_ledger_is_refused(tmp_path, witness):
    """Its charges after the copy are missing, and the same ticks would be published once more with fresh noise."""

    def settings():
        if witness == "sink":
            return {"sink": FileSink(tmp_path / "out.ndjson")}
        return {"state_file": tmp_path / "stream.state"}

    with running(tmp_path, **settings()) as runner:
        feed(runner, range(5))
    copy = tmp_path / "copy.db"
    with sqlite3.connect(tmp_path / "ledger.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
    with running(tmp_path, **settings()) as runner:
        feed(runner, range(5, 12))
    newest = max(published(tmp_path))
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    copy.chmod(0o600)
    copy.rename(tmp_path / "ledger.db")
    assert max(published(tmp_path)) < newest
    with (
        pytest.raises(LedgerConflictError, match=f"knows of tick {newest}, .* missing_up_to = {newest}"),
        running(tmp_path, **settings()),
    ):
        pass
    with (
        pytest.raises(LedgerConflictError, match=f"the {witness} of dataset"),
        running(tmp_path, missing_up_to=newest - 1, **settings()),
    ):
        pass
    before = published(tmp_path)
    with running(tmp_path, missing_up_to=newest, **settings()) as runner:
        feed(runner, range(16))  # everything once more, from the beginning
    after = published(tmp_path)
    assert all(tick > newest for tick in set(after) - set(before))
    assert max(after) == 14


def test_without_a_state_file_no_reading_reaches_the_disk(tmp_path):
    with running(tmp_path, sink=FileSink(tmp_path / "out.ndjson")) as runner:
        feed(runner, range(8), value=lambda _t, _n: 0.7182818284590452)
        runner.close()
    assert len(published(tmp_path)) > 4
    for file in tmp_path.rglob("*"):
        assert b"0.718281828" not in file.read_bytes()
        assert np.float64(0.7182818284590452).tobytes() not in file.read_bytes()
