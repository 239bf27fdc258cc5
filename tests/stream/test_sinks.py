"""Sinks of lines: torn, lost, foreign and full files."""

from __future__ import annotations

import json
import os
import threading

import pytest

from csdp.errors import InputError
from csdp.stream import FileSink

from stream.parts import feed, running  # isort: skip


def test_a_torn_line_is_repaired_and_comes_again(tmp_path):
    out = tmp_path / "out.ndjson"
    with running(tmp_path, sink=FileSink(out)) as runner:
        feed(runner, range(7))
    whole = out.read_bytes()
    assert whole.count(b"\n") == 5
    cut = whole.rfind(b"\n", 0, -1) + 20
    out.write_bytes(whole[:cut])
    with running(tmp_path, sink=FileSink(out)) as runner:
        runner.recover()
    assert out.read_bytes() == whole


def test_a_lost_file_is_written_again_from_the_ledger(tmp_path):
    out = tmp_path / "out.ndjson"
    with running(tmp_path, sink=FileSink(out)) as runner:
        feed(runner, range(80))
    whole = out.read_bytes()
    out.unlink()
    with running(tmp_path, sink=FileSink(out)) as runner:
        runner.recover()
    assert out.read_bytes() == whole
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:40]))
    with running(tmp_path, sink=FileSink(out)) as runner:
        runner.recover()
    assert out.read_bytes() == whole


def test_a_foreign_file_is_left_alone(tmp_path):
    out = tmp_path / "out"
    out.write_text("my diary\n")
    with pytest.raises(InputError, match="no output of a stream"):
        FileSink(out)
    assert out.read_text() == "my diary\n"


def test_a_full_disk_leaves_no_half_line(tmp_path):
    out = tmp_path / "out"
    sink = FileSink(out)
    real, calls = os.write, []

    def half(handle, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real(handle, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("csdp.stream.sinks.os.write", half)
        with pytest.raises(OSError, match="No space"):
            sink.deliver({"tick": 1}, threading.Event())
    assert out.read_bytes() == b""
    assert sink.deliver({"tick": 1}, threading.Event())
    assert sink.deliver({"tick": 1}, threading.Event())
    assert out.read_bytes() == b'{"tick":1}\n'
    sink.close()
    sink.close()


def test_who_was_replaced_repeats_nothing(tmp_path):
    """A process that hung between its commit and its delivery finds that another one has delivered since."""
    stop = threading.Event()
    hung = FileSink(tmp_path / "out.ndjson")
    hung.deliver({"tick": 1}, stop)
    heir = FileSink(tmp_path / "out.ndjson")
    for tick in (2, 3):
        heir.deliver({"tick": tick}, stop)
    assert hung.deliver({"tick": 2}, stop)
    hung.deliver({"tick": 4}, stop)
    heir.deliver({"tick": 4}, stop)
    heir.deliver({"tick": 5}, stop)
    for sink in (hung, heir):
        sink.close()
    lines = (tmp_path / "out.ndjson").read_text().splitlines()
    assert [json.loads(line)["tick"] for line in lines] == [1, 2, 3, 4, 5]
