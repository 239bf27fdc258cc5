"""The service as an operator runs it: killed and started again, and replaced by one that stands by."""

from __future__ import annotations

import time
from contextlib import ExitStack

import httpx
import psutil
import psycopg
import pytest

from csdp.ledger import Ledger

from service.parts import WARD, events, hand_in, released, snapshot, write_spec  # isort: skip
from service.processes import PATIENCE, Process, Ward  # isort: skip
from traces import has_trace  # isort: skip
from waiting import until  # isort: skip

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
        answer = httpx.get(f"http://127.0.0.1:{service.port}/api/datasets", headers=headers, timeout=300)
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


def test_a_standby_takes_over_from_a_holder_that_is_gone(tmp_path, where):
    """The holder is stopped and its session ends, or on a file its process: the right to publish ends with it."""
    services = []
    for name, *more in (("holder",), ("other",), ("standby", "--standby")):
        (tmp_path / name).mkdir()
        services.append(Process(tmp_path / name, [write_spec(tmp_path / name, ledger=where)], *more))
    holder, other, standby = services
    try:
        holder.start()
        with holder.client("writer") as writer:
            hand_in(writer, range(6))
        other.launch()
        assert other.process.wait(PATIENCE) == 2
        assert "is published by another process" in other.log()
        standby.launch()
        time.sleep(5)
        assert "listening" not in standby.log()
        held = psutil.Process(holder.process.pid)
        held.suspend()
        if where.startswith("postgresql"):
            with psycopg.connect(where) as server:
                server.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        else:
            holder.kill()
        standby.wait_until_ready()
        with standby.client("writer") as writer:
            for tick in range(4, 10):  # what was open at the holder is handed in again
                assert writer.post(f"{URL}/snapshots", json=snapshot(tick)).status_code == 200
        if where.startswith("postgresql"):
            held.resume()
            assert holder.process.wait(PATIENCE) == 2
            assert "was lost, and the right with it" in holder.log()
        assert standby.stop() == 0
    finally:
        for service in services:
            if service.process is not None and service.process.poll() is None:
                service.kill()
    with Ledger.open(where, read_only=True) as ledger:
        assert ledger.verify() == []
        assert [one.tick for one in ledger.published(WARD)] == list(range(1, 9))
