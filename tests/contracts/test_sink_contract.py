"""One contract for sinks: whatever they do, each tick is published once, recorded, and not lost."""

from __future__ import annotations

import copy
import io
import json
import threading

import pytest

from csdp.errors import LedgerConflictError
from csdp.ledger import Ledger
from csdp.stream import FileSink, LineSink, Reading

from stream.parts import DATASET, feed, published, running  # isort: skip


class Custom:
    """A sink written from the protocol alone."""

    def __init__(self):
        self.got = []

    def deliver(self, output, stop):
        self.got.append(copy.deepcopy(output))
        return True

    def newest(self):
        return self.got[-1]["tick"] if self.got else None

    def close(self):
        self.got = list(self.got)


class Raises(Custom):
    """Fails at every second output, before it has taken it."""

    tries = 0

    def deliver(self, output, stop):
        self.tries += 1
        if self.tries % 2:
            raise OSError("the disk is full")
        return super().deliver(output, stop)


class RaisesAfter(Custom):
    """Takes every output, and fails then."""

    def deliver(self, output, stop):
        again = self.got and self.got[-1]["tick"] == output["tick"]
        super().deliver(output, stop)
        if not again:
            raise TimeoutError("no answer")
        return True


class Mutates(Custom):
    """Takes an output, and writes its own into it."""

    def deliver(self, output, stop):
        super().deliver(output, stop)
        for value in output.values():
            if isinstance(value, list):
                value.clear()
        output.update(tick=10**9, dataset="mine", values=[0.0], epsilon_s=0.0)
        output["more"] = stop
        return True


class Refuses(Custom):
    """Says that it was stopped, although nobody stopped it."""

    tries = 0

    def deliver(self, output, stop):
        self.tries += 1
        return super().deliver(output, stop) if self.tries % 2 == 0 else False


class Lies(Custom):
    """Says that it has what it never got."""

    def newest(self):
        return 10**12


class Lines(LineSink):
    """Ours, on a stream in memory."""

    def __init__(self):
        self.stream = io.BytesIO()
        super().__init__(self.stream)

    @property
    def got(self):
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


class File(FileSink):
    """Ours, in a file."""

    def __init__(self, path):
        self.path = path
        super().__init__(path)

    @property
    def got(self):
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


def publish(folder, sink, ticks):
    """A run that goes on after errors, as an operator would let it; no reading is handed in twice."""
    with running(folder, sink=sink) as runner:
        for tick in ticks:
            for name in runner.names:
                runner.accept(Reading(name, 10 * tick + 5, tick % 2))
            settle(runner)


def settle(runner):
    for _ in range(50):
        try:
            runner.settle()
        except (OSError, TimeoutError):
            continue
        if not runner.stuck:
            return
        runner.stuck = False
    raise AssertionError("it never went on")


def test_a_sink_that_claims_ticks_which_nobody_charged_is_refused(tmp_path):
    with pytest.raises(LedgerConflictError, match="knows of tick 1000000000000"):
        publish(tmp_path, Lies(), range(8))
    assert published(tmp_path) == {}


@pytest.mark.parametrize(
    "make", [Custom, Lines, File, Raises, RaisesAfter, Mutates, Refuses], ids=lambda kind: kind.__name__
)
def test_each_tick_is_published_once_recorded_before_it_leaves_and_the_same_after_a_restart(make, tmp_path):
    sink = make(tmp_path / "out.ndjson") if make is File else make()
    publish(tmp_path, sink, range(8))
    before = published(tmp_path)  # each tick once, and the ledger sound
    assert list(before) == list(range(1, 7))
    ticks = [output["tick"] for output in sink.got]
    assert ticks == sorted(ticks)
    assert set(ticks) == set(before)  # nothing is lost on the way
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        entries = len(list(ledger.entries(DATASET)))
    publish(tmp_path, sink, range(8))
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert len(list(ledger.entries(DATASET))) == entries  # nothing is charged again
        assert ledger.summary(DATASET).lost == 0
    assert published(tmp_path) == before
    publish(tmp_path, sink, range(8, 12))
    after = published(tmp_path)
    assert before.items() < after.items()
    for output in sink.got:
        assert list(after[output["tick"]]) == output["values"]  # also of a tick that is delivered again
        assert output["dataset"] == DATASET
    sink.close()
    sink.close()


def test_a_sink_that_raises_stops_what_follows_and_nothing_else(tmp_path):
    """Nothing more is published before the failed output was taken."""

    class Broken(Custom):
        def deliver(self, output, stop):
            raise OSError("gone")

    with running(tmp_path, sink=Broken()) as runner:
        for _ in range(5):
            with pytest.raises(OSError, match="gone"):
                feed(runner, range(8))
        assert list(published(tmp_path)) == [1]
    found = Custom()
    with running(tmp_path, sink=found) as runner:
        assert runner.recover()
    assert [output["tick"] for output in found.got] == [1]


def test_a_sink_that_waits_does_not_hold_readings_back(tmp_path):
    gate = threading.Event()

    class Waits(Custom):
        def deliver(self, output, stop):
            while not gate.wait(0.01):
                if stop.is_set():
                    return False
            return super().deliver(output, stop)

    sink = Waits()
    with running(tmp_path, sink=sink) as runner:
        worker = threading.Thread(target=feed, args=(runner, range(8)))
        worker.start()
        assert runner.status().published == 0  # it answers while a delivery waits
        gate.set()
        worker.join(20)
        assert not worker.is_alive()
    assert [output["tick"] for output in sink.got] == list(published(tmp_path)) == list(range(1, 7))
