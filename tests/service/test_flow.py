"""Readings in, published numbers out: what a writer and a reader see, live and afterwards."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from csdp import Mean
from csdp.accountant import Accountant
from csdp.ledger import Ledger
from csdp.plan import Plan

from service.parts import (  # isort: skip
    OTHER,
    STEP,
    WARD,
    events,
    hand_in,
    pairs,
    released,
    serving,
    settings_of,
    snapshot,
    write_spec,
)

URL = f"/api/datasets/{WARD}"


def lines(*messages):
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def test_what_is_published_is_what_the_ledger_has(served, tmp_path):
    hand_in(served.client("writer"), range(6))
    reader = served.client("reader")
    found = released(reader)
    assert [one["tick"] for one in found] == [1, 2, 3, 4]
    assert [one["time"] for one in found] == [10, 20, 30, 40]
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        recorded = list(ledger.published(WARD))
        assert [one["values"] for one in found] == [one.output["values"] for one in recorded]
        assert [one["epsilon_s"] for one in found] == [one.output["epsilon_s"] for one in recorded]
        heads = {entry.hash for entry in ledger.entries(WARD)}
        assert ledger.verify() == []
    assert [one["tick"] for one in released(reader, after=2)] == [3, 4]
    assert [one["tick"] for one in released(reader, after=0, limit=2)] == [1, 2]
    assert [one["tick"] for one in released(reader, limit=2)] == [3, 4]
    assert released(reader, after=4) == released(served.client("reader", OTHER), dataset=OTHER) == []
    charges = reader.get(f"{URL}/ledger", params={"limit": 3}).json()
    assert [one["tick"] for one in charges] == [2, 3, 4]
    assert {one["kind"] for one in charges} == {"commit"}
    assert {one["hash"] for one in charges} | {one["charge_hash"] for one in charges} < heads
    assert [one["charge"]["present"] for one in charges] == [one["epsilon_s"] for one in found[1:]]
    everything = served.client("admin").get(f"{URL}/ledger").json()
    assert [one["kind"] for one in everything] == ["open", *["reserve", "commit"] * 4]
    assert not any("values" in json.dumps(one) for one in (*charges, *everything))


def test_the_status_agrees_with_the_publisher(served):
    hand_in(served.client("writer"), range(6))
    reader = served.client("reader")
    status = reader.get(f"{URL}/status").json()
    plan = Plan(pairs(2), Mean(), 1, 0.5, stale_limit=1)
    last = Accountant(plan).after(4).epsilon
    assert status["newest_tick"] == status["closed_tick"] == 4
    assert status["present"] == pytest.approx(last, rel=1e-12)
    assert (status["published"], status["refused"], status["lost"], status["skipped"]) == (4, 0, 0, 1)
    assert status["watermark"] == STEP * 5 + 3
    assert [one["age"] for one in status["age_of_information"]] == [1, 1]
    assert status["trouble"] == ""
    info = reader.get("/api/datasets").json()[0]
    assert info["names"] == ["s0", "s1"]
    assert info["outputs"] == ["mean"]
    assert info["guarantee"]["one_release"] == plan.certified.epsilon


def test_the_wall_clock_closes_ticks_while_everybody_is_silent(tmp_path):
    clock = 'advance = "wall"\nlateness = 0'
    with serving(settings_of(tmp_path, specs=[write_spec(tmp_path, times="wall", clock=clock, age=0)])) as served:
        now = time.time()
        answer = served.client("writer").post(f"{URL}/snapshots", json={"time": now - STEP, "values": [0, 1]})
        assert answer.json()["accepted"] + answer.json()["late"] == 1
        reader = served.client("reader")
        deadline = time.monotonic() + 200
        while reader.get(f"{URL}/status").json()["closed_tick"] != int(time.time()) // STEP - 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)


# ---- live events ---------------------------------------------------------------------------------------------------


def test_events_come_live_and_go_on_after_a_cut(served):
    writer, reader = served.client("writer"), served.client("reader")
    hand_in(writer, range(3))
    with reader.stream("GET", f"{URL}/events") as live:
        assert live.headers["content-type"].startswith("text/event-stream")
        seen = events(live)
        name, _, status = next(seen)
        assert (name, status["published"]) == ("status", 1)
        hand_in(writer, range(3, 5))
        releases = []
        while len(releases) < 2:
            name, number, content = next(seen)
            if name == "release":
                assert number == content["id"]
                releases.append(content)
    hand_in(writer, range(5, 8))
    with reader.stream("GET", f"{URL}/events", headers={"Last-Event-ID": str(releases[-1]["id"])}) as live:
        seen = (content for name, _, content in events(live) if name == "release")
        releases += [next(seen) for _ in range(3)]
    assert releases == released(reader, after=1)
    with reader.stream("GET", f"{URL}/events", headers={"Last-Event-ID": "0"}) as live:
        seen = (content for name, _, content in events(live) if name == "release")
        assert [next(seen)["tick"] for _ in range(6)] == [1, 2, 3, 4, 5, 6]


def test_an_id_beyond_the_newest_entry_is_answered(served):
    """As after a restore of an older ledger: the client is told, and gets what is published from then on."""
    writer, reader = served.client("writer"), served.client("reader")
    hand_in(writer, range(4))
    newest = released(reader)[-1]["id"]
    with reader.stream("GET", f"{URL}/events", headers={"Last-Event-ID": str(newest + 10**6)}) as live:
        heard = (event for event in events(live) if event[0] != "status")
        name, number, content = next(heard)
        assert (name, number, content["id"]) == ("reset", newest, newest)
        assert "older copy" in content["reason"]
        hand_in(writer, [4, 5])
        assert [next(heard)[2]["tick"] for _ in range(2)] == [3, 4]
    with reader.stream("GET", f"{URL}/events", headers={"Last-Event-ID": str(newest + 4)}) as live:
        assert next(events(live))[0] == "status"  # the newest id of all is nothing special


def test_a_client_far_behind_reads_the_ledger(served, monkeypatch):
    import csdp.service.events as feed

    monkeypatch.setattr(feed, "_PAGES", 2)
    monkeypatch.setattr(feed, "_PAGE", 4)
    writer, reader = served.client("writer"), served.client("reader")
    with reader.stream("GET", f"{URL}/events") as first:  # somebody listens, so the newest events are kept
        ahead = events(first)
        next(ahead)
        hand_in(writer, range(14))
        ticks = []
        while len(ticks) < 12:
            name, _, content = next(ahead)
            ticks += [content["tick"]] if name == "release" else []
        with reader.stream("GET", f"{URL}/events", headers={"Last-Event-ID": "0"}) as second:
            behind = (content["tick"] for name, _, content in events(second) if name == "release")
            assert [next(behind) for _ in range(12)] == ticks == list(range(1, 13))


def test_answers_have_the_fields_that_the_page_lists_and_no_others(served):
    """A field that is added must be listed, so that nothing goes out unseen."""
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (\w+) \| (`.*) \|$", page.split("### Fields of the answers")[1].split("\n#")[0], re.MULTILINE
    )
    listed = {name: set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", fields))) for name, fields in rows}
    hand_in(served.client("writer"), range(4))
    reader = served.client("reader")
    [described] = reader.get("/api/datasets").json()
    newest, status = released(reader)[-1], reader.get(f"{URL}/status").json()
    charged = [
        one
        for role, names in (("reader", [WARD]), ("admin", ["*"]))
        for one in served.client(role, *names).get(f"{URL}/ledger").json()
    ]
    assert set(served.client().get("/health").json()) == listed["health"]
    assert set(described) == listed["dataset"]
    assert set(described["estimate"]) == listed["estimate"]
    assert set(newest) | {"count"} == listed["release"]
    assert set(status) == listed["status"]
    assert set(status["outlook"]) == listed["outlook"]
    assert set().union(*charged) | {"reason"} == listed["ledger"]
    for answer in (described, status):
        assert set(answer["limits"]) == {"budget", "moment_limit", "event_limit", "window", "window_limit"}
        assert set(answer["model"]) == {"status", "reason", "words"}
    assert set(status["age_of_information"][0]) == {"sequence", "planned", "age"}


def test_pages_and_description(shared):
    client = shared.client()
    content = client.get("/openapi.json").json()
    for path, methods in content["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert operation["description"], path
            assert {"4XX", "5XX"} <= set(operation["responses"])
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert client.get("/../pyproject.toml").status_code == 404
    assert client.get("/%2e%2e/app.py").status_code == 404


def test_a_snapshot_that_names_an_unknown_sequence_beside_known_ones_is_refused(served):
    writer = served.client("writer")
    wrong = {"time": 3, "values": {"s0": 1, "s1": 0, "cellar": 1}}
    answer = writer.post(f"{URL}/snapshots", json=wrong)
    assert answer.status_code == 422
    assert "unknown sequence 'cellar'; the dataset has 's0', 's1'" in answer.json()["detail"]
    headers = {"Content-Type": "application/x-ndjson"}
    many = writer.post(f"{URL}/snapshots", content=lines(wrong, snapshot(0), wrong), headers=headers).json()
    assert (many["accepted"], many["unreadable"]) == (1, 2)
    assert [one.partition(";")[0] for one in many["reasons"]] == ["unknown sequence 'cellar'"]
