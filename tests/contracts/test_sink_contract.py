"""One contract for sinks: whatever they do, each tick is published once, recorded, and not lost."""

from __future__ import annotations

import copy
import io
import json

import pytest

from csdp.errors import LedgerConflictError
from csdp.ledger import Ledger
from csdp.stream import FileSink, LineSink

from stream.parts import DATASET, feed, published, running  # isort: skip


class Custom:
    """A sink that remembers."""

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


class Slow(Custom):
    """Waits, as one should, for a stop or for its turn."""

    def deliver(self, output, stop):
        return super().deliver(output, stop) if not stop.wait(0.01) else False


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


HONEST = [Custom, Slow, Lines, File]
HOSTILE = [Raises, RaisesAfter]


@pytest.fixture(params=HONEST + HOSTILE, ids=lambda kind: kind.__name__)
def sink(request, tmp_path):
    found = request.param(tmp_path / "out.ndjson") if request.param is File else request.param()
    yield found
    found.close()
    found.close()


def publish(folder, sink, ticks):
    """A run that goes on after errors, as an operator would let it; no reading is handed in twice."""
    with running(folder, sink=sink) as runner:
        for tick in ticks:
            for name in runner.names:
                runner.accept(message(name, tick))
            settle(runner)
        return runner.status().published


def message(name, tick):
    from csdp.stream import Reading

    return Reading(name, 10 * tick + 5, tick % 2)


def settle(runner):
    for _ in range(50):
        try:
            runner.settle()
        except (OSError, TimeoutError):
            continue
        return
    raise AssertionError("it never went on")


def test_a_sink_that_claims_ticks_which_nobody_charged_is_refused(tmp_path):
    with pytest.raises(LedgerConflictError, match="knows of tick 1000000000000"):
        publish(tmp_path, Lies(), range(8))
    assert published(tmp_path) == {}


def test_each_tick_is_published_once_and_recorded_before_it_leaves(sink, tmp_path):
    publish(tmp_path, sink, range(8))
    record = published(tmp_path)  # each tick once, and the ledger sound
    assert list(record) == list(range(1, 7))
    for output in sink.got:
        assert list(record[output["tick"]]) == output["values"]
        assert output["dataset"] == DATASET
    ticks = [output["tick"] for output in sink.got]
    assert ticks == sorted(ticks)
    assert set(ticks) == set(record)  # nothing is lost on the way


def test_a_restart_repeats_and_changes_nothing(sink, tmp_path):
    publish(tmp_path, sink, range(8))
    before = published(tmp_path)
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
    said = {}
    for output in sink.got:
        assert said.setdefault(output["tick"], output["values"]) == output["values"]  # the same key, the same numbers


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
