"""Against a real broker: acknowledgement, redelivery, retained messages, passwords, TLS, outages."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

import mosquitto
from csdp.stream import run
from csdp.stream.mqtt import BrokerError, MqttSink, MqttSource
from csdp.stream.spec import MqttSinkPlace, MqttSourcePlace

from stream.parts import NAMES, Memory, SeenBy, published, running  # isort: skip
from waiting import until  # isort: skip


@pytest.fixture
def server(tmp_path):
    if not mosquitto.installed():
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    with mosquitto.broker(tmp_path / "broker") as running_server:
        yield running_server


def place(port, **more):
    return MqttSourcePlace(port=port, topic="home", **more)


def outlet(port, **more):
    return MqttSink(MqttSinkPlace(port=port, topic="published", **more), client_id="csdp-out")


@contextmanager
def client(port, name="client", *, clean=True):
    """A plain client of the test's own."""
    made = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean)
    made.reconnect_delay_set(1, 1)
    made.connect("127.0.0.1", port)
    made.loop_start()
    try:
        yield made
    finally:
        made.disconnect()
        made.loop_stop()


def send(sender, topic, content, **options):
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    sender.publish(topic, payload, qos=1, **options).wait_for_publish(10)


def send_ticks(sender, ticks):
    for tick in ticks:
        for name in NAMES:
            send(sender, f"home/{name}", {"time": 10 * tick + 5, "value": tick % 2})


@contextmanager
def live(folder, port, *, sink=None, broker=None, **settings):
    """A runner fed by the broker, in a thread; stopped at the end."""
    sink = sink if sink is not None else Memory()
    source = MqttSource(place(port, **(broker or {})), client_id="csdp-house")
    errors = []
    with running(folder, sink=sink, **settings) as runner:

        def work():
            try:
                run(runner, source)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            until(lambda: source.state() == "" or errors)
            runner.errors, runner.source = errors, source
            yield runner, sink
        finally:
            runner.stop.set()
            thread.join(15)
            assert not thread.is_alive()


def test_garbage_is_counted_and_acknowledged(server, tmp_path):
    with live(tmp_path, server.port) as (runner, sink), client(server.port) as sender:
        for _ in range(15):  # more than a broker leaves unacknowledged
            send(sender, "home/hall", b"\xff garbage")
            send(sender, "home/cellar", {"time": 10**6, "value": 1})
            send(sender, "home/hall", {"time": 5, "value": "secret"})
        send_ticks(sender, range(4))
        until(lambda: sink.ticks == [1, 2] and sum(runner.status().fates.values()) == 53)
        assert runner.status().fates == {"bad": 30, "unknown": 15, "accepted": 8}


def test_a_retained_old_reading_is_only_late(server, tmp_path):
    with client(server.port) as sender:
        send(sender, "home/hall", {"time": 5, "value": 1}, retain=True)
        with live(tmp_path, server.port) as (runner, sink):
            send_ticks(sender, range(5))
            until(lambda: sink.ticks == [1, 2, 3])
        with live(tmp_path, server.port) as (runner, sink):
            send_ticks(sender, range(5, 7))
            until(lambda: runner.status().fates.get("accepted", 0) >= 5)  # the retained one comes first
            send_ticks(sender, range(7, 9))
            until(lambda: sink.ticks[-1:] == [7])
            fates = runner.status().fates
            assert fates.get("late", 0) + fates.get("recorded", 0) >= 1
    assert len(published(tmp_path)) >= 5


def test_what_is_sent_while_nobody_runs_comes_later(server, tmp_path):
    with client(server.port) as sender:
        with live(tmp_path, server.port) as (_, sink):
            send_ticks(sender, range(3))
            until(lambda: sink.ticks == [1])
        send_ticks(sender, range(3, 9))
        with live(tmp_path, server.port) as (_, sink):
            until(lambda: sink.ticks[-1:] == [7])
    found = published(tmp_path)
    assert {1, 4, 5, 6, 7} <= set(found)


def test_unacknowledged_readings_come_again(server, tmp_path):
    """Messages that were handed over but not accepted when we stopped are delivered once more."""
    with client(server.port) as sender:
        source = MqttSource(place(server.port), client_id="csdp-house")
        first, stop = [], threading.Event()

        def swallow(message, done=None):
            first.append((message, done))
            return True  # and never acknowledged

        thread = threading.Thread(target=source.run, args=(swallow, stop))
        thread.start()
        until(lambda: source.state() == "")
        send_ticks(sender, range(4))
        until(lambda: len(first) == 8)
        for _, done in first[:2]:
            done()
        time.sleep(0.2)
        stop.set()
        thread.join(10)
        with live(tmp_path, server.port) as (runner, sink):
            send_ticks(sender, range(4, 6))
            until(lambda: sink.ticks[-1:] == [4] and sum(runner.status().fates.values()) >= 6 + 4)
            assert runner.status().fates["accepted"] == 6 + 4
    assert set(published(tmp_path)) == {2, 3, 4}


def test_the_broker_dies_and_comes_back(server, tmp_path):
    with live(tmp_path, server.port) as (runner, sink), client(server.port) as sender:
        send_ticks(sender, range(3))
        until(lambda: sink.ticks == [1])
        server.kill()
        until(lambda: "connection lost" in runner.source.state() or "out of reach" in runner.source.state())
        assert "127.0.0.1" in runner.source.state()
        server.start()
        until(lambda: runner.source.state() == "" and sender.is_connected())
        send_ticks(sender, range(3, 7))
        until(lambda: sink.ticks == [1, 2, 3, 4, 5])
    assert set(published(tmp_path)) == {1, 2, 3, 4, 5}


class TestSink:
    def test_outputs_arrive(self, server, tmp_path):
        got = []
        with client(server.port, "reader") as reader, client(server.port) as sender:
            reader.on_message = lambda _c, _u, message: got.append(json.loads(message.payload))
            reader.subscribe("published", qos=1)
            sink = outlet(server.port, retain=True)
            with live(tmp_path, server.port, sink=sink):
                send_ticks(sender, range(5))
                until(lambda: len(got) == 3)
            sink.close()
            sink.close()
            late = []
            reader.on_message = lambda _c, _u, message: late.append(json.loads(message.payload))
            reader.subscribe("published", qos=1)
            until(lambda: late == got[-1:])  # retained
        assert [output["tick"] for output in got] == [1, 2, 3]
        assert {output["tick"]: output["values"] for output in got} == published(tmp_path)

    def test_an_output_waits_for_the_broker(self, server, tmp_path):
        other = mosquitto.Mosquitto(tmp_path / "other")  # not started yet
        sink = outlet(other.port)
        try:
            with live(tmp_path, server.port, sink=sink) as (runner, _), client(server.port) as sender:
                send_ticks(sender, range(5))
                until(lambda: set(published(tmp_path)) == {1})
                time.sleep(0.3)
                assert runner.status().published == 0  # nothing more is published before the first has arrived
                other.start()
                until(lambda: runner.status().published == 3)
        finally:
            sink.close()
            other.stop()

    def test_a_stop_does_not_wait_for_ever(self, server, tmp_path):
        sink = outlet(mosquitto.free_port())
        with live(tmp_path, server.port, sink=sink), client(server.port) as sender:
            send_ticks(sender, range(5))
            until(lambda: set(published(tmp_path)) == {1})
        sink.close()  # `live` has ended: its thread waits for no broker
        again = Memory()
        with live(tmp_path, server.port, sink=again):
            until(lambda: again.ticks[:1] == [1])


class TestAccess:
    def test_password(self, tmp_path):
        with mosquitto.broker(tmp_path / "broker", password=("csdp", "s3same-0pen")) as server:
            (tmp_path / "right").write_text("s3same-0pen\n")
            (tmp_path / "wrong").write_text("wr0ng-one\n")
            good = {"username": "csdp", "password_file": str(tmp_path / "right")}
            with live(tmp_path, server.port, broker=good) as (runner, _):
                assert runner.errors == []
            for bad in ({}, {**good, "password_file": str(tmp_path / "wrong")}):
                with live(tmp_path, server.port, broker=bad) as (runner, _):
                    until(lambda runner=runner: runner.errors)
                    assert isinstance(runner.errors[0], BrokerError)
                    assert "not authorized" in str(runner.errors[0])
                    assert "wr0ng" not in str(runner.errors[0])

    # paho forgets to close a socket whose certificate it refused
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_tls(self, tmp_path):
        folder = tmp_path / "broker"
        with mosquitto.broker(folder, tls=True) as server:
            good = {"tls": True, "ca_file": str(folder / "ca.pem")}
            with live(tmp_path, server.port, broker=good) as (runner, _):
                assert runner.errors == []
            for bad in ({**good, "ca_file": str(folder / "other.pem")}, {**good, "host": "localhost"}):
                with live(tmp_path, server.port, broker=bad) as (runner, _):
                    until(lambda runner=runner: runner.errors)
                    assert isinstance(runner.errors[0], BrokerError)
                    assert "cannot be trusted" in str(runner.errors[0])


class TestHostile:
    """Against a real broker: devices that lie about the time, or about each other."""

    def test_the_topic_of_one_sequence_takes_no_snapshots_and_no_other_names(self, server, tmp_path):
        seen = SeenBy()
        with live(tmp_path, server.port, discretiser=seen) as (runner, sink), client(server.port) as sender:
            send_ticks(sender, range(3))
            for tick in range(3):
                send(sender, "home/hall", {"time": 10 * tick + 8, "values": {"hall": 1, "kitchen": 0.75}})
                send(sender, "home/hall", {"time": 10 * tick + 8, "values": [1, 0.75]})
                send(sender, "home/hall", {"time": 10 * tick + 8, "value": 1, "values": [1, 0.75]})
                send(sender, "home/hall", {"time": 10 * tick + 8, "sequence": "kitchen", "value": 0.75})
                send(sender, "home/hall", b'{"time": 8, "sequence": "hall", "sequence": "kitchen", "value": 0.75}')
                send(sender, "home/hall/kitchen", {"time": 10 * tick + 8, "value": 0.75})
                send(sender, "home/", {"time": 10 * tick + 8, "value": 0.75})
            send(sender, "home", {"time": 28, "values": {"hall": 0.25}})  # the topic of snapshots
            send_ticks(sender, range(3, 6))
            until(
                lambda: sink.ticks == [1, 2, 3, 4] and sum(runner.status().fates.values()) == 34
            )  # the last one counted
            assert runner.status().fates == {"accepted": 13, "bad": 15, "unknown": 6}
        kitchen = [snapshot[1] for snapshot in seen.snapshots]
        assert 0.75 not in kitchen
        assert seen.snapshots[2][0] == 0.25
