"""End to end with a real broker: a thousand sequences, the broker and the stream killed and restarted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

import mosquitto
from csdp import Mean, Plan
from csdp.ledger import Ledger
from csdp.planning.plan_file import PlanFile

from stream.parts import pairs  # isort: skip
from traces import has_trace, raw  # isort: skip

NAME = "ward"


class Wards:
    """A client that publishes readings of many sequences over MQTT, QoS 1, and survives the death of its broker."""

    def __init__(self, port, count):
        self._count = count
        self._rng = np.random.default_rng(7)
        self._client = Client(CallbackAPIVersion.VERSION2, client_id="wards")
        self._client.reconnect_delay_set(1, 1)
        self._client.max_inflight_messages_set(100)
        self._sent = self._taken = 0
        self._client.on_publish = self._count_taken
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self.tick = 0

    def _count_taken(self, *_):
        self._taken += 1

    def publish(self, ticks):
        """Readings of all sequences at the next ticks, in any order; each tick is taken before the next one begins."""
        for _ in range(ticks):
            order = list(range(self._count))
            random.Random(self.tick).shuffle(order)
            for i in order:
                content = json.dumps({"time": 10 * self.tick + 5, "value": raw(self._rng)})
                self._client.publish(f"ward/s{i}", content, qos=1)
                self._sent += 1
            self.tick += 1
            deadline = time.monotonic() + 300
            while self._taken < self._sent:
                assert time.monotonic() < deadline, "the broker does not take the readings"
                time.sleep(0.01)

    def close(self):
        self._client.disconnect()
        self._client.loop_stop()


class Process:
    """`csdp stream` as a process of its own; started again it goes on with the same specification."""

    def __init__(self, folder):
        self._folder = folder
        self.start()

    def start(self):
        self._log = (self._folder / "stderr").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "csdp", "stream", "--spec", str(self._folder / "stream.toml")],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=self._folder,
        )

    def kill(self):
        self.process.kill()
        self.process.wait(20)
        self._log.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self._log.close()
        return code


def setup(folder, port, count, *, state_file=False):
    folder.mkdir()
    PlanFile(Plan(pairs(count), Mean(), 1, 0.5, stale_limit=2)).save(folder / "plan.json")
    (folder / "stream.toml").write_text(
        f"""
dataset = "{NAME}"
ledger = "ledger.db"
plan = "plan.json"
anyway = true
{'state_file = "state"' if state_file else ""}

[limits]
budget = 1.0

[clock]
step = 10
lateness = 5
times = "data"

[source]
kind = "mqtt"
port = {port}
topic = "ward"

[sink]
kind = "file"
path = "out.ndjson"
"""
    )


def delivered(folder):
    """Ticks in the sink's whole lines, with their values."""
    file = folder / "out.ndjson"
    whole = file.read_bytes().rpartition(b"\n")[0] if file.exists() else b""
    return [(output["tick"], output["values"]) for output in map(json.loads, whole.splitlines())]


def until_tick(folder, tick, seconds=300):
    deadline = time.monotonic() + seconds
    while not any(found >= tick for found, _ in delivered(folder)):
        told = (folder / "stderr").read_text()
        assert time.monotonic() < deadline, f"no output of tick {tick} or later; {told[-2000:]}"
        time.sleep(0.02)


def until_subscribed(broker, seconds=300):
    """The persistent session exists once the first start has subscribed; a broker forgets what is sent before."""
    deadline = time.monotonic() + seconds
    while "ward/#" not in (broker / "log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check(folder):
    """Each tick at most once, delivered what was published, the ledger sound."""
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []
        found = list(ledger.published(NAME))
        summary = ledger.summary(NAME)
        reserved = [entry.tick for entry in ledger.entries(NAME, kind="reserve")]
    assert len(set(reserved)) == len(reserved)
    published = {one.tick: one.output["values"] for one in found}
    assert len(published) == len(found) == summary.committed
    sink = delivered(folder)
    assert len({tick for tick, _ in sink}) == len(sink)
    assert dict(sink) == published
    return published, summary


def no_traces(folder):
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {"ledger.db", "out.ndjson", "stderr"} <= {file.name for file in files}
    for file in files:
        assert not has_trace(file.read_bytes()), f"a raw reading in {file.name}"


@contextmanager
def streaming(folder, broker, count, *, state_file=False):
    """A broker, a stream and its wards; at the end all that was sent is published, and the stream stops well."""
    with mosquitto.broker(broker) as server:
        setup(folder, server.port, count, state_file=state_file)
        stream = Process(folder)
        until_subscribed(broker)
        wards = Wards(server.port, count)
        try:
            yield server, stream, wards
            until_tick(folder, wards.tick - 2)
            assert stream.stop() == 0
        finally:
            wards.close()
            if stream.process.poll() is None:
                stream.kill()


@pytest.mark.slow
def test_a_thousand_sequences_with_kills(tmp_path):
    folder = tmp_path / "stream"
    with streaming(folder, tmp_path / "broker", 1000) as (server, stream, wards):
        wards.publish(4)
        until_tick(folder, 2)

        server.kill()  # in the middle of things
        sender = threading.Thread(target=wards.publish, args=(3,))
        sender.start()
        time.sleep(0.3)
        server.start()
        sender.join(60)
        wards.publish(2)
        until_tick(folder, wards.tick - 2)
        no_traces(folder)

        sender = threading.Thread(target=wards.publish, args=(4,))
        sender.start()
        time.sleep(0.4)
        stream.kill()  # SIGKILL while readings arrive
        sender.join(60)
        published = check_after_kill(folder)
        stream.start()
        wards.publish(5)
    after, summary = check(folder)
    assert {tick: after[tick] for tick in published} == published
    assert len(after) >= 8
    assert summary.lost <= 1
    no_traces(folder)
    last = (folder / "stderr").read_text().splitlines()[-1]
    assert last.startswith(f"csdp: {NAME}: ")
    assert "Traceback" not in (folder / "stderr").read_text()


def recorded(folder):
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []
        return {one.tick: one.output["values"] for one in ledger.published(NAME)}


def check_after_kill(folder):
    """What must hold right after a SIGKILL: at most the newest output has not been delivered yet."""
    published = recorded(folder)
    sink = dict(delivered(folder))
    assert {tick: published[tick] for tick in sink} == sink
    assert len(published) - len(sink) <= 1
    no_traces(folder)
    return published


@pytest.mark.slow
@pytest.mark.parametrize("state_file", [False, True])
def test_a_sweep_of_kills(tmp_path, state_file):
    """Stream and broker are killed at random moments, over and over."""
    folder, rng = tmp_path / "stream", random.Random(5)
    with streaming(folder, tmp_path / "broker", 100, state_file=state_file) as (server, stream, wards):
        before = {}
        for turn in range(25):
            sender = threading.Thread(target=wards.publish, args=(6,))
            sender.start()
            time.sleep(rng.uniform(0.0, 2.0))
            if turn % 4 == 3:
                server.kill()
                server.start()
            else:
                stream.kill()
                published = recorded(folder)
                assert {tick: published[tick] for tick in before} == before
                before = published
                stream.start()
            sender.join(60)
        wards.publish(4)
    after, summary = check(folder)
    assert len(after) > 30
    assert summary.lost <= 25
