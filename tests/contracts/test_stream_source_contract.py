"""One contract for stream sources: what they hand over is taken or refused, and never fatal."""

from __future__ import annotations

import io
import json
import math
import threading

import numpy as np
import pytest

from csdp.stream import Bad, FileSource, Reading, Snapshot, StreamSource, run

from stream.parts import NAMES, Memory, SeenBy, plan, published, running  # isort: skip


def honest(ticks):
    return [Reading(name, 10 * tick + 5, tick % 2) for tick in ticks for name in NAMES]


class Custom:
    """A source written from the protocol alone."""

    def __init__(self, messages):
        self._messages = messages
        self.done = 0

    def run(self, emit, stop):
        for message in self._messages:
            if not emit(message, self._taken):
                return

    def _taken(self):
        self.done += 1

    def state(self):
        return ""


def as_lines(messages):
    content = [{"time": m.time, "sequence": m.sequence, "value": m.value} for m in messages]
    return b"".join(json.dumps(one).encode() + b"\n" for one in content)


@pytest.fixture(params=["custom", "lines", "file"])
def source(request, tmp_path):
    """A source of messages; ours read them from JSON."""

    def make(messages):
        if request.param == "custom":
            return Custom(messages)
        if request.param == "lines":
            return StreamSource(io.BytesIO(as_lines(messages)))
        (tmp_path / "in.ndjson").write_bytes(as_lines(messages))
        return FileSource(tmp_path / "in.ndjson", follow=False)

    return make


HOSTILE_VALUES = [math.nan, -math.inf, True, -(10**400), "1", None, [1], 1e308]


@pytest.mark.parametrize("value", HOSTILE_VALUES, ids=repr)
def test_values_that_are_not_numeric_move_the_clock_and_nothing_else(tmp_path, value):
    """What is published when is the same for every value."""
    seen = SeenBy()
    with running(tmp_path, discretiser=seen) as runner:
        messages = honest(range(4))
        messages += [Reading("hall", 47, value)]
        run(runner, Custom(messages))
        assert runner.status().closed == 3
    assert list(published(tmp_path)) == [1, 2, 3]
    assert all(np.isfinite(one).all() for one in seen.snapshots)


def test_times_without_order_publish_each_tick_at_most_once(source, tmp_path):
    ordered = honest(range(12))
    shuffled = [ordered[k] for k in np.random.default_rng(7).permutation(len(ordered))]
    messages = shuffled + ordered[::-1] + ordered
    sink = Memory()
    with running(tmp_path, sink=sink) as runner:
        status = run(runner, source(messages))
    assert sum(status.fates.values()) == len(messages)
    assert sink.ticks == sorted(set(sink.ticks)) == list(published(tmp_path))


def test_numbers_of_numpy_and_custom_mappings(tmp_path):
    """Numbers of numpy, snapshots as tuples or custom mappings, times that are floats: as what they are."""
    seen = SeenBy()
    with running(tmp_path, discretiser=seen) as runner:
        messages = [
            Snapshot(5.0, (np.float64(0.25), np.int64(1))),
            Snapshot(15, {"hall": np.float32(0.5), "cellar": 3, "kitchen": np.bool_(True)}),
            Bad("whatever"),
            Snapshot(25, {}),
            Snapshot(26, []),
            Reading("hall", 35, 1),
        ]
        status = run(runner, Custom(messages))
        assert status.fates == {"accepted": 3, "bad": 3, "unknown": 2}
    assert seen.snapshots[0].tolist() == [0.25, 1.0]
    assert seen.snapshots[1][0] == 0.5
    assert math.isnan(seen.snapshots[1][1])


HOSTILE_TIMES = [math.nan, math.inf, True, None, "now", 2**60, 1j]
HOSTILE = {
    "unknown": [
        Reading("cellar", 10**9, 1),
        Reading([], 10**9, 1),
        Reading("", 10**9, 1),
        Reading("hall\x00", 10**9, 1),
    ],
    "bad": [
        *(Reading("hall", time, 1) for time in HOSTILE_TIMES),
        *(Snapshot(time, [1, 1]) for time in HOSTILE_TIMES),
        *(Snapshot(47, None), Snapshot(47, "10")),
    ],
}


@pytest.mark.parametrize("fate", HOSTILE)
def test_hostile_messages_are_counted_and_the_stream_goes_on(tmp_path, fate):
    with running(tmp_path) as runner:
        status = run(runner, Custom([*honest(range(3)), *HOSTILE[fate], *honest(range(3, 6))]))
    assert status.fates == {"accepted": 12, fate: len(HOSTILE[fate])}
    assert status.closed == 4
    assert list(published(tmp_path)) == [1, 2, 3, 4]


@pytest.mark.parametrize("room", [np.zeros(2), [0, 0], dict.fromkeys(NAMES, 0)], ids=["array", "list", "names"])
def test_values_that_a_source_overwrites_while_they_wait_stay_as_they_were(tmp_path, room):
    """The newest reading passed for those of the ticks before, which were published as if they were old."""

    handed_over = threading.Event()

    class Reused:
        def run(self, emit, stop):
            for tick in range(6):
                for key in room if isinstance(room, dict) else range(2):
                    room[key] = int(tick == 5)
                emit(Snapshot(10 * tick, room))
            handed_over.set()

        def state(self):
            return ""

    with running(tmp_path, given=plan(epsilon_c=200.0)) as runner:
        recover = runner.recover
        runner.recover = lambda: handed_over.wait(10) and recover()  # all of it waits before anything is taken in
        run(runner, Reused())
        runner.advance(70)
    assert published(tmp_path) == {tick: [0.0] for tick in range(1, 6)}


def test_a_source_that_raises_loses_nothing_that_it_handed_over(tmp_path):
    class Breaks(Custom):
        def run(self, emit, stop):
            super().run(emit, stop)
            raise RuntimeError("the wire is cut")

    with running(tmp_path) as runner, pytest.raises(RuntimeError, match="the wire is cut"):
        run(runner, Breaks(honest(range(6))))
    assert list(published(tmp_path)) == [1, 2, 3, 4]


def test_a_source_that_goes_on_after_a_stop_is_left_alone(tmp_path):
    class Deaf(Custom):
        def run(self, emit, stop):
            for message in self._messages:
                emit(message)

    with running(tmp_path) as runner:
        stop = threading.Event()
        stop.set()
        run(runner, Deaf(honest(range(1000))), stop=stop)
    assert len(published(tmp_path)) < 1000


def test_several_sources_at_once(tmp_path):
    """Threads that write at will: each tick once."""
    with running(tmp_path) as runner:

        def ingest(message, _):
            return bool(runner.ingest(message.sequence, time=message.time, value=message.value))

        workers = [
            threading.Thread(target=Custom(messages).run, args=(ingest, None))
            for messages in (honest(range(20)), honest(range(19, -1, -1)), honest(range(20)))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    assert 0 < len(published(tmp_path)) <= 19  # `published` finds each tick once
