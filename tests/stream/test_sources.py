"""Lines, files that grow, the bounded queue, and stopping."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdp.errors import InputError
from csdp.stream import Clock, FileSource, Reading, Snapshot, StreamSource, run, stop_on_signals
from csdp.stream.messages import MAX_BYTES, Bad, decode_message
from csdp.stream.sources import LineSplitter

from stream.parts import NAMES, NOW, Memory, Wall, published, running  # isort: skip


def line(time, sequence="hall", value=1):
    return json.dumps({"time": time, "sequence": sequence, "value": value}).encode() + b"\n"


def lines(ticks):
    return b"".join(line(10 * tick + 5, name, tick % 2) for tick in ticks for name in NAMES)


class Collected:
    """What a source emits, gathered in a thread."""

    def __init__(self, source):
        self.messages = []
        self.stop = threading.Event()
        self._thread = threading.Thread(target=source.run, args=(self._emit, self.stop), daemon=True)

    def _emit(self, message, done=None):
        self.messages.append(message)
        return not self.stop.is_set()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self._thread.join(5)
        assert not self._thread.is_alive()

    def wait(self, count, seconds=5):
        deadline = time.monotonic() + seconds
        while len(self.messages) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return [message.time if isinstance(message, Reading) else message for message in self.messages]


class TestMessages:
    @pytest.mark.parametrize(
        "payload",
        [
            b"\xff\xfe",
            b"{",
            b'{"time": 1e400, "sequence": "a", "value": 1}',
            b'{"time": 1, "values": 5}',
            b'{"time": ' + b"9" * 5000 + b', "sequence": "a", "value": 1}',
            b"[" * 100_000,
            b'{"time": 1, "sequence": "a", "value": 1' + b" " * MAX_BYTES + b"}",
        ],
        ids=range(7),
    )
    def test_garbage_is_bad_and_never_quoted(self, payload):
        found = decode_message(payload)
        assert isinstance(found, Bad)
        assert len(found.why) < 60

    @given(st.binary(max_size=200))
    def test_any_bytes(self, payload):
        assert isinstance(decode_message(payload), Bad | Reading | Snapshot)

    def test_readings_do_not_show_their_values(self):
        shown = repr(decode_message(b'{"time": 1, "sequence": "a", "value": 4711}'))
        assert "4711" not in shown + repr(decode_message(b'{"time": 1, "values": [4711]}'))

    @given(st.lists(st.integers(0, 1000), max_size=20), st.lists(st.integers(1, 40), min_size=1))
    def test_lines_are_the_same_however_they_are_cut(self, times, cuts):
        whole = b"".join(map(line, times))
        cutter, found, at = LineSplitter(), [], 0
        for cut in cuts * (len(whole) + 1):
            found += cutter.feed(whole[at : at + cut])
            at += cut
            if at >= len(whole):
                break
        found += cutter.end()
        assert [message.time for message in found] == times

    def test_a_line_without_end_does_not_fill_memory(self):
        cutter = LineSplitter()
        found = []
        for _ in range(40):
            found += cutter.feed(b"x" * 2**20)
            assert len(cutter._rest) <= MAX_BYTES + 2**20
        found += cutter.feed(b"\n" + line(3))
        assert [type(message) for message in found] == [Bad, Reading]


class TestFiles:
    def test_a_file_that_grows(self, tmp_path):
        path = tmp_path / "in"
        with Collected(FileSource(path)) as found:
            time.sleep(0.15)
            path.write_bytes(line(1) + line(2)[:10])
            assert found.wait(1) == [1]
            with path.open("ab") as file:
                file.write(line(2)[10:] + line(3))
            assert found.wait(3) == [1, 2, 3]

    @pytest.mark.parametrize("how", ["replaced", "cut"])
    def test_a_file_that_is_replaced_or_cut_ends_the_stream(self, tmp_path, how):
        path = tmp_path / "in"
        path.write_bytes(line(1) + line(2))
        source, seen = FileSource(path), []

        def emit(message, done=None):
            seen.append(message)
            if len(seen) == 2:
                other = tmp_path / "other"
                other.write_bytes(line(3))
                os.replace(other, path) if how == "replaced" else path.write_bytes(b"")
            return True

        with pytest.raises(InputError, match="replaced or cut"):
            source.run(emit, threading.Event())

    def test_a_pipe(self):
        out, into = os.pipe()
        with os.fdopen(out, "rb") as stream, Collected(StreamSource(stream)) as found:
            os.write(into, line(1))
            assert found.wait(1) == [1]
            os.write(into, line(2).rstrip())
            os.close(into)
            assert found.wait(2) == [1, 2]


class TestRun:
    def test_a_slow_sink_slows_the_source_down(self, tmp_path, monkeypatch):
        """Between the two there are never more messages than the queue holds."""
        handed = []

        class Endless:
            def run(self, emit, stop):
                for tick in range(10**9):
                    if not all(emit(Reading(name, 10 * tick + 5, 1)) for name in NAMES):
                        return
                    handed.append(tick)

            def state(self):
                return ""

        sink = Memory()
        sink.open.clear()
        with running(tmp_path, sink=sink) as runner:
            monkeypatch.setattr("csdp.stream.sources.QUEUE", 10)
            live = threading.Thread(target=run, args=(runner, Endless()))
            live.start()
            time.sleep(0.6)
            stuck = len(handed)
            time.sleep(0.3)
            assert len(handed) == stuck < 12
            sink.open.set()
            deadline = time.monotonic() + 10
            while len(sink.outputs) < 20 and time.monotonic() < deadline:
                time.sleep(0.01)
            runner.stop.set()
            live.join(10)
            assert not live.is_alive()
        assert sink.ticks == list(range(1, len(sink.ticks) + 1))
        assert len(sink.ticks) >= 20

    def test_messages_that_come_again_are_not_taken_after_a_stop(self, tmp_path):
        acknowledged = []

        class Broker:
            def run(self, emit, stop):
                for tick in range(10**6):
                    if not emit(Reading("hall", 10 * tick, 1), lambda tick=tick: acknowledged.append(tick)):
                        return

            def state(self):
                return ""

        with running(tmp_path) as runner:

            def stop_after_some():
                while len(acknowledged) < 50:
                    time.sleep(0.01)
                runner.stop.set()

            threading.Thread(target=stop_after_some, daemon=True).start()
            status = run(runner, Broker())
        assert acknowledged == list(range(status.fates["accepted"]))

    def test_a_source_that_raises_loses_nothing_that_it_handed_over(self, tmp_path):
        class Breaks:
            def run(self, emit, stop):
                assert all(emit(Reading(name, 10 * tick + 5, 1)) for tick in range(6) for name in NAMES)
                raise RuntimeError("the wire is cut")

            def state(self):
                return ""

        with running(tmp_path) as runner, pytest.raises(RuntimeError, match="the wire is cut"):
            run(runner, Breaks())
        assert list(published(tmp_path)) == [1, 2, 3, 4]

    def test_the_wall_clock_closes_ticks(self, tmp_path):
        sink, wall = Memory(), Wall(NOW)
        out, into = os.pipe()
        settings = {"sink": sink, "clock": Clock(step=10, lateness=20), "wall": wall.clock}
        with os.fdopen(out, "rb") as stream, running(tmp_path, **settings) as runner:
            os.write(into, b"".join(line(NOW - age, name) for age in (15, 5) for name in NAMES))

            def told(status, _state):
                if status.fates.get("accepted") == 4:  # they have come; from now on everybody is silent
                    wall.pass_by(5)
                if status.published >= 2:
                    runner.stop.set()

            run(runner, StreamSource(stream), by_wall_clock=True, on_status=told)
            os.close(into)
        assert sink.ticks == [NOW // 10 - 1, NOW // 10]

    @pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
    def test_signals_ask_to_stop_and_insist(self, which):
        stop = threading.Event()
        before = signal.getsignal(which)
        with stop_on_signals(stop):
            os.kill(os.getpid(), which)
            assert stop.wait(2)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(which)
        assert signal.getsignal(which) is before

    def test_stop_publishes_only_what_is_closed(self, tmp_path):
        out, into = os.pipe()
        with os.fdopen(out, "rb") as stream, running(tmp_path) as runner:
            os.write(into, lines(range(6)))

            def told(status, _state):
                if status.fates.get("accepted") == 12:
                    runner.stop.set()

            run(runner, StreamSource(stream), on_status=told)
            os.close(into)
        assert set(published(tmp_path)) == {1, 2, 3, 4}
