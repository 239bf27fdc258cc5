"""The service as an operator runs it: killed and started again; several workers with PostgreSQL."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import psutil
import pytest

from csdp.errors import InputError
from csdp.ledger import Ledger
from csdp.service.server import check_shareable
from csdp.stream.spec import read_spec

from service.parts import WARD, events, hand_in, released, settings_of, write_spec  # isort: skip
import postgres  # isort: skip
from service.processes import Process, Ward, Workers, find_leader, until  # isort: skip
from traces import has_trace  # isort: skip

URL = f"/api/datasets/{WARD}"


@pytest.fixture
def started(tmp_path):
    """Start services; all of them are stopped at the end."""
    found = []

    def start(specs, *arguments):
        found.append(Process(tmp_path, specs, *arguments))
        found[-1].start()
        return found[-1]

    yield start
    for one in found:
        one.close()


def test_killed_and_started_again(started, tmp_path):
    kills = 2
    service = started([write_spec(tmp_path, count=20)])
    ward = Ward(service, 20, ticks=40)
    ward.pace = 0.01
    ward.start()
    before = {}
    for kill in range(kills):
        until(lambda tick=12 * (kill + 1): ward.tick >= tick)
        with service.client("reader") as reader:
            before |= {one["tick"]: one["values"] for one in released(reader, limit=1000)}
        service.kill()
        service.start()
    ward.join(60)
    with service.client("reader") as reader:
        after = released(reader, limit=1000)
        status = reader.get(f"{URL}/status").json()
    assert service.stop() == 0
    ticks = [one["tick"] for one in after]
    assert len(set(ticks)) == len(ticks) > 20
    assert {
        tick: values for tick, values in ((one["tick"], one["values"]) for one in after) if tick in before
    } == before
    assert ticks[-1] == 38
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []
        summary = ledger.summary(WARD)
        assert summary.committed == len(ticks) == status["published"]
        assert summary.lost <= kills
    content = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(map(has_trace, content))
    for text in service.access.texts.values():
        assert text.encode() not in b"".join(content)


def test_the_first_start_shows_a_key_once(tmp_path):
    service = Process(tmp_path, [write_spec(tmp_path)])
    (tmp_path / "keys.json").unlink()
    try:
        service.start()
        told = (tmp_path / "stderr").read_text()
        [key] = [word for word in told.split() if word.startswith("csdp_")]
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx.get(f"http://127.0.0.1:{service.port}/api/keys", headers=headers, timeout=300)
        assert answer.status_code == 200
        assert key.split("_", 2)[2] not in (tmp_path / "keys.json").read_text()
        assert service.stop() == 0
        service.start()
        assert (tmp_path / "stderr").read_text().count("csdp_") == 1
    finally:
        service.close()


def test_a_signal_ends_it_while_clients_listen(started, tmp_path):
    """Listeners never leave by themselves: what is closed is published, they are let go, and the end is a good one."""
    service = started([write_spec(tmp_path)])
    with service.client("writer") as writer, ExitStack() as open_streams:
        reader = open_streams.enter_context(service.client("reader"))
        lives = [open_streams.enter_context(reader.stream("GET", f"{URL}/events")) for _ in range(3)]
        heard = [events(live) for live in lives]
        assert [next(one)[0] for one in heard] == ["status"] * 3  # they are connected and served
        hand_in(writer, range(3))
        assert service.stop() == 0
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert ledger.verify() == []
        assert [published.tick for published in ledger.published(WARD)] == [1]
    told = (tmp_path / "stderr").read_text()
    assert "exceeded" not in told  # nobody had to be cut off
    assert "Traceback" not in told


def test_two_workers_share_a_dataset(started, tmp_path, postgres_server):
    """Any worker takes readings and shows what is published; one publishes; when it dies another one does."""
    service = started([write_spec(tmp_path, count=20, ledger=postgres_server.new_database())], "--workers", "2")
    parent = psutil.Process(service.process.pid)
    until(lambda: len(parent.children()) == 2)
    ward = Ward(service, 20, ticks=60)
    ward.pace = 0.02
    ward.start()
    heard = []

    def listen():
        last = "0"
        while not heard or heard[-1] < 55:
            try:
                with (
                    service.client("reader") as reader,
                    reader.stream("GET", f"{URL}/events", headers={"Last-Event-ID": last}) as live,
                ):
                    for name, number, content in events(live):
                        if name == "release":
                            heard.append(content["tick"])
                            last = str(number)
                            if content["tick"] >= 55:
                                break
            except httpx.TransportError:
                time.sleep(0.1)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    for tick in (15, 35):  # first one worker dies, then the other: one of them was publishing
        until(lambda tick=tick: ward.tick >= tick)
        killed = parent.children()[0 if tick == 15 else -1]
        killed.kill()
        until(lambda killed=killed: killed.pid not in [one.pid for one in parent.children()])
        until(lambda: len(parent.children()) == 2)
    ward.join(90)
    assert not ward.is_alive()
    listener.join(30)
    assert not listener.is_alive()
    with service.client("reader") as reader:
        ticks = [one["tick"] for one in released(reader, limit=1000)]
        seen = set()

        def ask(_):  # each time over another connection, so that both workers are asked: they say the same
            with service.client("admin", "*") as admin:
                assert [one["tick"] for one in released(admin, limit=1000)] == ticks
                status = admin.get(f"{URL}/status").json()
                assert (status["closed_tick"], status["trouble"]) == (58, "")
                return f'csdp_dataset_led{{dataset="{WARD}"}} 1.0' in admin.get("/metrics").text

        with ThreadPoolExecutor(16) as pool:
            until(lambda: seen.update(pool.map(ask, range(16))) or seen == {True, False})
    assert len(set(ticks)) == len(ticks) >= 40
    assert heard == ticks[: len(heard)]
    assert service.stop() == 0
    assert not psutil.pid_exists(service.process.pid) or parent.children() == []


@pytest.mark.slow
def test_a_hung_leader_is_replaced(tmp_path, postgres_server):
    """A stopped worker is told by /health, loses its lease, and publishes nothing when it goes on."""
    spec = write_spec(tmp_path, count=20, ledger=postgres_server.new_database())
    service = Workers(tmp_path, settings_of(tmp_path, specs=[spec], lease_seconds=5.0), workers=2)
    ward = Ward(service, 20, ticks=10**6)
    ward.pace = 0.02
    try:
        service.start()
        parent = psutil.Process(service.process.pid)
        until(lambda: len(parent.children()) == 2)
        ward.start()
        until(lambda: ward.tick >= 15)
        leader = find_leader(parent)
        with service.client("reader") as reader:
            assert reader.get("/health").json()["status"] == "ok"
            before = len(released(reader, limit=1000))
        leader.suspend()
        with service.client("reader") as reader:
            until(lambda: reader.get("/health").json()["status"] == "degraded")
            until(lambda: len(released(reader, limit=1000)) > before + 5)  # another one publishes
            assert reader.get("/health").json()["status"] == "ok"
        assert leader.status() == psutil.STATUS_STOPPED
        leader.resume()
        taken = ward.tick
        until(lambda: ward.tick >= taken + 15)
        ward.stop()
        with service.client("reader") as reader:
            ticks = [one["tick"] for one in released(reader, limit=1000)]
        assert len(parent.children()) == 2
        assert service.stop() == 0
    finally:
        ward.stop()
        service.close()
    assert len(set(ticks)) == len(ticks)
    with Ledger.open(read_spec(spec).ledger, read_only=True) as ledger:
        assert ledger.verify() == []
        assert ledger.summary(WARD).lost <= 1  # what it had reserved when it was stopped


@pytest.mark.slow
def test_leaders_and_the_database_come_and_go(tmp_path):
    """A leader is killed, the server restarts, a leader hangs and wakes up, again and again: no tick comes twice."""
    with postgres.cluster() as server:
        spec = write_spec(tmp_path, count=20, ledger=server.new_database())
        service = Workers(tmp_path, settings_of(tmp_path, specs=[spec], lease_seconds=5.0), workers=3)
        ward = Ward(service, 20, ticks=10**6)
        ward.pace = 0.01
        try:
            service.start()
            parent = psutil.Process(service.process.pid)
            until(lambda: len(parent.children()) == 3)
            ward.start()
            faults = ("kill", "restart", "kill", "hang", "restart", "kill", "restart", "kill")
            for fault in faults:
                taken = ward.tick
                until(lambda taken=taken: ward.tick >= taken + 15)
                leader = find_leader(parent)
                if fault == "kill":
                    leader.kill()
                elif fault == "hang":
                    leader.suspend()
                    until(lambda leader=leader: find_leader(parent, but=leader) is not None)
                    leader.resume()
                else:
                    server.stop()
                    server.start()
            taken = ward.tick
            until(lambda: ward.tick >= taken + 15)
            ward.stop()
            with service.client("reader") as reader:
                # The first question of a worker after a restart may meet a connection that is gone: 503, ask again.
                until(lambda: reader.get(f"{URL}/releases").status_code == 200)
                ticks = [one["tick"] for one in released(reader, limit=1000)]
                until(lambda: reader.get("/health").json()["status"] == "ok")
            assert service.stop() == 0
        finally:
            ward.stop()
            service.close()
        assert len(set(ticks)) == len(ticks) > 60
        with Ledger.open(read_spec(spec).ledger, read_only=True) as ledger:
            assert ledger.verify() == []
            summary = ledger.summary(WARD)
            assert summary.committed >= len(ticks)
            assert summary.lost <= len(faults)  # at most one for each


def test_several_workers_need_postgresql(tmp_path):
    with pytest.raises(InputError, match=r"toml:\d+: ledger: several workers need postgresql"):
        check_shareable(settings_of(tmp_path))


@pytest.mark.slow
def test_memory_stays_flat(started, tmp_path):
    """A short soak; bench/service.py has the long one."""
    service = started([write_spec(tmp_path, count=100)])
    process = psutil.Process(service.process.pid)

    def work(ticks):
        with service.client("writer") as client:
            for tick in ticks:
                body = {"time": 2 * tick, "values": [tick % 2] * 100}
                assert client.post(f"{URL}/snapshots", json=body).status_code == 200
        return process.memory_info().rss

    work(range(100))
    before = work(range(100, 300))
    after = work(range(300, 700))
    assert after < before + 8 * 2**20
