"""A runner in trouble: busy ledgers, sinks that fail, many threads, readings that drift."""

from __future__ import annotations

import json
import sqlite3

import pytest

from csdp.errors import LedgerBusyError
from csdp.fitting.drift import DriftCheck
from csdp.ledger import Ledger
from csdp.publisher import Publisher
from csdp.stream import Clock, FileSink, Reading, Runner

from stream.parts import DATASET, Memory, feed, plan, published, running  # isort: skip


class TestTrouble:
    def test_a_busy_ledger_loses_nothing(self, tmp_path):
        sink = Memory()
        with Ledger.open(tmp_path / "ledger.db", timeout=0.2) as ledger:
            publisher = Publisher(plan(), dataset=DATASET, ledger=ledger, on_refusal="skip", time_step=10, times="data")
            runner = Runner(publisher, ledger=ledger, clock=Clock(step=10, lateness=5, times="data"), sink=sink)
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


class TestDrift:
    def test_alarms_reach_the_operator_only(self, tmp_path, caplog):
        """A real check: readings that alternate are not what the chain says; told once, and in no output."""
        check = DriftCheck(plan().model, rows_between_false_alarms=1000, public=True)
        clock = Clock(step=10, lateness=5, times="data")
        sink = FileSink(tmp_path / "out")
        with running(tmp_path, clock=clock, sink=sink, drift=check) as runner:
            feed(runner, range(60))
            feed(runner, range(66, 69))
        assert caplog.text.count("no longer follow the chain") == 1
        quiet = tmp_path / "quiet"
        quiet.mkdir()
        with running(quiet, clock=clock, sink=FileSink(quiet / "out")) as runner:
            feed(runner, range(60))
            feed(runner, range(66, 69))
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
