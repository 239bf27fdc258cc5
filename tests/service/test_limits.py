"""Too much, too long, too slow, too often: refused with a reason, and nobody else is held up."""

from __future__ import annotations

import json
import socket
import sqlite3
import time

import pytest
import sqlalchemy as sa

from csdp.service.app import create

from service.parts import WARD, events, hand_in, released, serving, settings_of, snapshot  # isort: skip
from waiting import until  # isort: skip

URL = f"/api/datasets/{WARD}"
NDJSON = {"Content-Type": "application/x-ndjson"}


def refused(answer, status, kind):
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:csdp:problem:{kind}"


def test_bodies_that_are_too_long(tmp_path):
    with serving(settings_of(tmp_path, max_body=4000, max_line=300, max_lines=20)) as served:
        writer = served.client("writer")
        refused(writer.post(f"{URL}/snapshots", content=b" " * 4001, headers=NDJSON), 413, "too-long")
        refused(
            writer.post(f"{URL}/snapshots", content=(b" " * 500 for _ in range(9)), headers=NDJSON), 413, "too-long"
        )
        line = json.dumps(snapshot(0)).encode()
        refused(writer.post(f"{URL}/snapshots", content=line + b"\n" + b"x" * 301, headers=NDJSON), 413, "too-long")
        refused(writer.post(f"{URL}/snapshots", content=(line + b"\n") * 21, headers=NDJSON), 413, "too-long")
        # Nothing of a body that was refused was taken in.
        status = served.client("reader").get(f"{URL}/status").json()
        assert status["watermark"] is None
        many = b"".join(json.dumps(snapshot(tick)).encode() + b"\n" for tick in range(20))
        assert writer.post(f"{URL}/snapshots", content=many, headers=NDJSON).json()["accepted"] == 20


def head(served, more, *, path=f"{URL}/snapshots"):
    key = served.access.key("writer")
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\n{more}\r\n"
    ).encode()


def test_a_body_that_arrives_slowly(tmp_path):
    with serving(settings_of(tmp_path, body_seconds=0.4)) as served:
        with socket.create_connection(("127.0.0.1", served.port), 10) as raw:
            raw.sendall(head(served, "Content-Length: 1000\r\n"))
            begun = time.monotonic()
            answer = b""
            while time.monotonic() < begun + 10 and not answer:
                raw.sendall(b" ")  # a byte now and then does not help
                raw.settimeout(0.05)
                try:
                    answer = raw.recv(65536)
                except TimeoutError:
                    continue
            assert b" 408 " in answer
            assert b"urn:csdp:problem:slow" in answer + rest(raw)
        hand_in(served.client("writer"), range(2))


def rest(raw):
    raw.settimeout(10)
    found = b""
    while part := raw.recv(65536):
        found += part
    return found


def test_a_client_that_does_not_take_its_events_is_left(tmp_path):
    with serving(settings_of(tmp_path, send_seconds=0.5), send_buffer=4096) as served:
        writer = served.client("writer", timeout=300)
        many = b"".join(json.dumps(snapshot(tick)).encode() + b"\n" for tick in range(400))
        assert writer.post(f"{URL}/snapshots", content=many, headers=NDJSON).json()["accepted"] == 400
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            raw.connect(("127.0.0.1", served.port))
            key = served.access.key("reader")
            lines = (
                f"GET {URL}/events HTTP/1.1",
                "Host: x",
                f"Authorization: Bearer {key}",
                "Last-Event-ID: 0",
                "",
                "",
            )
            raw.sendall("\r\n".join(lines).encode())
            feed = served.app.state.service.feeds[WARD]
            until(lambda: feed.listeners == 1)
            until(lambda: feed.listeners == 0)
        with served.client("reader").stream("GET", f"{URL}/events", headers={"Last-Event-ID": "0"}) as live:
            ticks = (content["tick"] for name, _, content in events(live) if name == "release")
            assert [next(ticks) for _ in range(390)] == list(range(1, 391))


def test_too_many_listeners(tmp_path):
    with serving(settings_of(tmp_path, max_listeners=2)) as served:
        reader = served.client("reader")
        with reader.stream("GET", f"{URL}/events") as one, reader.stream("GET", f"{URL}/events") as two:
            seen = events(one), events(two)
            assert [next(each)[0] for each in seen] == ["status", "status"]
            third = reader.get(f"{URL}/events")
            refused(third, 503, "busy")
            assert int(third.headers["retry-after"]) > 0
        until(lambda: served.app.state.service.feeds[WARD].listeners == 0)
        with reader.stream("GET", f"{URL}/events") as again:
            assert again.status_code == 200


def test_too_many_requests_of_one_key(tmp_path):
    with serving(settings_of(tmp_path, rate=2.0, burst=5.0)) as served:
        reader = served.client("reader")
        answers = [reader.get("/api/datasets") for _ in range(12)]
        assert [one.status_code for one in answers[:5]] == [200] * 5
        late = [one for one in answers if one.status_code == 429]
        assert len(late) >= 4
        refused(late[0], 429, "rate")
        assert 1 <= int(late[0].headers["retry-after"]) <= 2
        assert served.client("reader", "*").get("/api/datasets").status_code == 200  # another key is not held up
        time.sleep(1.0)
        assert reader.get("/api/datasets").status_code == 200


def test_wrong_keys_are_slowed_down(tmp_path):
    with serving(settings_of(tmp_path, wrong_keys=2.0)) as served:
        client = served.client()
        client.headers["Authorization"] = "Bearer csdp_000000000000_" + "A" * 43
        codes = [client.get("/api/datasets").status_code for _ in range(60)]
        assert set(codes) == {401, 429}
        assert codes[:8] == [401] * 8
        assert served.client("reader").get("/api/datasets").status_code == 200


def test_a_dataset_that_is_stuck_tells_writers_to_come_back(tmp_path):
    with serving(settings_of(tmp_path, work_seconds=3)) as served:
        writer = served.client("writer")
        hand_in(writer, range(3))
        live = served.app.state.service.datasets[WARD].publisher_thread
        with live.runner._lock:  # as a sink that does not answer would hold it
            stuck = writer.post(f"{URL}/snapshots", json=snapshot(3))
            refused(stuck, 503, "busy")
            # Readers are served meanwhile, and nobody waits for the event loop.
            assert released(served.client("reader"))
            assert served.client().get("/health").status_code == 200
        until(lambda: served.client("reader").get(f"{URL}/status").json()["closed_tick"] == 2)


def test_a_busy_ledger_costs_no_reading(tmp_path):
    """The ledger is locked while readings come: they are kept, and published once it is free."""
    with serving(settings_of(tmp_path)) as served:
        writer = served.client("writer")
        hand_in(writer, range(3))
        live = served.app.state.service.datasets[WARD].publisher_thread
        engine = live.runner._ledger._database.engine
        sa.event.listen(engine, "checkout", lambda connection, *_: connection.execute("PRAGMA busy_timeout = 200"))
        lock = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        hand_in(writer, range(3, 5))
        assert served.client().get("/health").json()["status"] == "degraded"
        lock.execute("ROLLBACK")
        lock.close()
        reader = served.client("reader")
        until(lambda: [one["tick"] for one in released(reader)] == [1, 2, 3])
        assert served.client().get("/health").json()["status"] == "ok"


def test_two_specifications_of_one_dataset(tmp_path):
    from service.parts import write_spec

    spec = write_spec(tmp_path)
    with pytest.raises(ValueError, match="another specification too"):
        create(settings_of(tmp_path, specs=[spec, spec]))
