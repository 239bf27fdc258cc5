"""No raw reading and no secret leaves: not in an answer, a log, a metric, an error, or a file."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import struct
import traceback

import numpy as np
import pytest

from service.parts import WARD, serving, settings_of, write_spec  # isort: skip
from traces import has_trace, raw  # isort: skip

URL = f"/api/datasets/{WARD}"


def test_traces_would_be_found():
    rng = np.random.default_rng(1)
    for value in (raw(rng) for _ in range(100)):
        assert all(
            has_trace(form) for form in (repr(value).encode(), struct.pack(">d", value), struct.pack("<d", value))
        )


@contextlib.contextmanager
def everything_logged():
    """Every record of every logger, at the lowest level, with its traceback."""
    records = []

    class Kept(logging.Handler):
        def emit(self, record):
            told = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
            records.append(f"{record.name}: {record.getMessage()} {record.args!r} {told}")

    handler = Kept(level=0)
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in logging.root.manager.loggerDict)]
    before = [(one, one.level, one.disabled) for one in loggers]
    logging.getLogger().addHandler(handler)
    try:
        for one in loggers:
            # Not the client's, which runs in this process too: it may know what it sends.
            one.setLevel(1 if not one.name.startswith(("httpx", "httpcore")) else logging.CRITICAL)
        yield records
    finally:
        logging.getLogger().removeHandler(handler)
        for one, level, disabled in before:
            one.setLevel(level)
            one.disabled = disabled


def every_answer(served):
    """What everybody who may ask for something gets, for every route that gives something."""
    for role in ("reader", "admin", "writer"):
        client = served.client(role, "*")
        for path in ("releases?limit=1000", "status", "ledger?limit=1000"):
            yield client.get(f"{URL}/{path}").content
        for path in ("/api/datasets", "/metrics", "/openapi.json", "/health"):
            yield client.get(path).content
        with client.stream("GET", f"{URL}/events", headers={"Last-Event-ID": "0"}) as live:
            if live.status_code == 200:
                found = b""
                for part in live.iter_raw():
                    found += part
                    if found.count(b"event: release") >= 20:
                        break
                yield found


def test_no_raw_reading_anywhere(tmp_path):
    rng = np.random.default_rng(3)
    sent = set()
    with (
        everything_logged() as records,
        serving(settings_of(tmp_path, specs=[write_spec(tmp_path, count=6)])) as served,
    ):
        writer = served.client("writer")
        answers = []
        for tick in range(24):
            values = [raw(rng) for _ in range(6)]
            sent.update(values)
            body = {"time": 10 * tick + 3, "values": dict(zip(served_names(6), values, strict=True))}
            answers.append(writer.post(f"{URL}/snapshots", json=body).content)
            broken = json.dumps(body).encode()
            for wrong in (broken[:-4], broken.replace(b'"time"', b'"tame"'), b"[" + broken, broken + broken):
                answers.append(
                    writer.post(f"{URL}/snapshots", content=wrong, headers={"Content-Type": "application/json"}).content
                )
        logging.getLogger("csdp.service").debug("a record, so that an empty log would be found")
        answers += every_answer(served)
        text = b"\n".join(answers)
        assert text.count(b'"tick"') > 20
        assert not has_trace(text)
        for value in re.findall(rb"-?\d+\.\d+(?:e-?\d+)?", text):
            assert float(value) not in sent
        on_disk = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    on_disk += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(map(len, on_disk)) > 20_000
    assert not any(map(has_trace, on_disk))
    assert records
    assert not has_trace("\n".join(records).encode())
    secrets = [text.split("_", 2)[2] for text in served.access.texts.values()]
    assert len(secrets) >= 4
    for secret in secrets:
        assert secret.encode() not in b"\n".join(on_disk)
        assert secret not in "\n".join(records)


def served_names(count):
    return [f"s{i}" for i in range(count)]


MARK = "Zebra77Secret"


@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("POST", f"{URL}/snapshots", {"json": {"time": MARK, "values": [1, 0]}}),
        ("POST", f"{URL}/snapshots", {"json": {"time": 1, "values": {MARK: 1}}}),
        ("POST", f"{URL}/snapshots", {"content": MARK, "headers": {"Content-Type": "application/json"}}),
        ("POST", f"{URL}/snapshots", {"content": MARK, "headers": {"Content-Type": MARK}}),
        ("POST", f"{URL}/snapshots", {"content": f"{MARK}\n", "headers": {"Content-Type": "application/x-ndjson"}}),
        ("GET", f"{URL}/releases", {"params": {"after": MARK}}),
        ("GET", f"{URL}/events", {"headers": {"Last-Event-ID": MARK}}),
        ("GET", f"/api/datasets/{MARK}/status", {}),
        ("GET", f"/{MARK}", {}),
    ],
)
def test_an_error_never_repeats_what_was_sent(shared, method, path, more):
    with everything_logged() as records:
        for role in ("writer", "reader", "admin"):
            answer = shared.client(role, "*").request(method, path, **more)
            assert answer.status_code in {200, 403, 404, 405, 415, 422}
            if answer.status_code != 200:
                assert answer.headers["content-type"] == "application/problem+json"
                content = answer.json()
                assert content["status"] == answer.status_code
                assert content["type"].startswith("urn:csdp:problem:")
                assert content["detail"]
                assert MARK not in answer.text
    assert MARK not in "\n".join(records)


def test_an_unexpected_error_is_told_without_its_words(served, monkeypatch):
    from csdp.service.dataset import ServedDataset

    def broken(self, *_, **__):
        raise RuntimeError(f"value {MARK}")

    monkeypatch.setattr(ServedDataset, "releases", broken)
    with everything_logged() as records:
        answer = served.client("reader").get(f"{URL}/releases")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert MARK not in answer.text
    told = "\n".join(records)
    assert "RuntimeError at test_private.py" in told
    assert MARK not in told


def test_what_a_writer_is_told_does_not_depend_on_values(shared):
    """The same times and names with other values: the same answers, byte for byte."""
    writer = shared.client("writer")
    kinds = ([0, 1], [1e308, -1e308], [None, None], ["x", {}], [True, []], [10**400, 2])
    answers = set()
    for values in kinds:
        answer = writer.post(f"{URL}/snapshots", json={"time": 7, "values": values})
        answers.add((answer.status_code, answer.content))
    assert answers == {(200, b'{"accepted":1,"late":0,"ahead":0,"unreadable":0}')}
    single = set()
    for value in (0, 1e308, None, "x", {}, True, 10**400):
        message = json.dumps({"time": 7, "sequence": "s0", "value": value})
        answer = writer.post(f"{URL}/snapshots", content=message, headers={"Content-Type": "application/x-ndjson"})
        single.add((answer.status_code, answer.content))
    assert single == {(200, b'{"accepted":1,"late":0,"ahead":0,"unreadable":0}')}
