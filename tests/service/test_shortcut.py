"""The short way for snapshots answers as the declared route does, and heads of requests have a limit."""

import socket

import pytest

from csdp.service import routes, server
from service.parts import WARD, serving, settings_of, snapshot

URL = f"/api/datasets/{WARD}/snapshots"
JSON = {"Content-Type": "application/json"}


def cases(access):
    """Requests of every kind: name, path, headers, body."""
    writer = access.headers("writer")
    good = {**writer, **JSON}
    yield "accepted", URL, good, snapshot(1)
    yield "late", URL, good, snapshot(-(10**6))
    yield "not json", URL, good, "{"
    yield "unreadable", URL, good, {"time": 1}
    yield "unknown", URL, good, {"time": 1, "values": {"nobody": 1}}
    yield "other type", URL, {**writer, "Content-Type": "text/plain"}, snapshot(2)
    yield "no key", URL, JSON, snapshot(2)
    yield "wrong key", URL, {"Authorization": "Bearer csdp_000000000000_" + "A" * 43, **JSON}, snapshot(2)
    yield "no key's form", URL, {"Authorization": "Bearer nothing", **JSON}, snapshot(2)
    yield "other scheme", URL, {"Authorization": "Basic " + writer["Authorization"][7:], **JSON}, snapshot(2)
    yield "small letters", URL, {"Authorization": "bearer " + writer["Authorization"][7:], **JSON}, snapshot(3)
    yield "reader", URL, {**access.headers("reader"), **JSON}, snapshot(2)
    yield "key of another", URL, {**access.headers("writer", "ward-8"), **JSON}, snapshot(2)
    yield "no dataset", "/api/datasets/nothing/snapshots", good, snapshot(2)
    yield "escaped", "/api/datasets/ward%2D7/snapshots", good, snapshot(4)
    yield "slash", URL + "/", good, snapshot(2)
    yield "query", URL + "?x=1", good, snapshot(5)


def answers(app_folder, monkeypatch, *, short):
    if not short:

        async def pass_on(self, scope, receive, send):
            await self._app(scope, receive, send)

        monkeypatch.setattr(routes.SnapshotShortcut, "__call__", pass_on)
    found = {}
    with serving(settings_of(app_folder)) as served:
        client = served.client()
        for name, path, headers, body in cases(served.access):
            given = {"content": body} if isinstance(body, str) else {"json": body}
            answer = client.post(path, headers=headers, **given)
            kept = {key: answer.headers.get(key) for key in ("content-type", "www-authenticate", "cache-control")}
            found[name] = (answer.status_code, answer.text, kept)
        client.get("/health")  # a request is counted after its answer is sent, and before the next one is taken
        counted = served.app.state.service.metrics.text([]).decode()
        route = 'route="/api/datasets/{name}/snapshots"'
        found["counted"] = sorted(line for line in counted.splitlines() if "requests_total" in line and route in line)
    return found


def test_both_ways_answer_alike(tmp_path, monkeypatch):
    for folder in ("short", "long"):
        (tmp_path / folder).mkdir()
    short = answers(tmp_path / "short", monkeypatch, short=True)
    long = answers(tmp_path / "long", monkeypatch, short=False)
    assert short == long
    codes = {name: answer[0] for name, answer in short.items() if name != "counted"}
    assert codes["accepted"] == codes["late"] == codes["escaped"] == codes["query"] == 200
    assert (codes["wrong key"], codes["reader"], codes["no dataset"], codes["other type"]) == (401, 403, 404, 415)


def test_snapshots_take_the_short_way(tmp_path, monkeypatch):
    """Where they would not, the comparison above would compare the routes with themselves."""

    async def refuse(*_):
        raise AssertionError

    with serving(settings_of(tmp_path)) as served:
        client = served.client("writer")
        monkeypatch.setattr("fastapi.routing.APIRouter.__call__", refuse)
        assert client.post(URL, json=snapshot(1)).json()["accepted"] == 1
        assert client.post("/api/datasets/nothing/snapshots", json=snapshot(1)).status_code == 500


def exchange(port, *parts):
    """Send bytes until the other side closes or all are sent, and return what it answered."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        try:
            for part in parts:
                raw.sendall(part)
            raw.settimeout(10)
            while part := raw.recv(65536):
                answer += part
        except (ConnectionError, TimeoutError):
            pass
    return answer


@pytest.mark.parametrize("what", ["one header", "many headers", "trailers", "one trailer", "the address"])
def test_a_head_without_end_is_cut_off(tmp_path, what):
    with serving(settings_of(tmp_path)) as served:
        key = served.access.headers("writer")["Authorization"]
        begin = f"POST {URL} HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n".encode()
        chunked = begin + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
        piece = b"x" * 10_000
        endless = {
            "one header": [begin, b"X: ", *[piece] * 1000],
            "many headers": [begin, *[b"X: 1\r\n" * 2000] * 1000],
            "trailers": [chunked, *[b"X: 1\r\n" * 2000] * 1000],
            "one trailer": [chunked, b"X: ", *[piece] * 1000],
            "the address": [b"GET /", *[piece] * 1000],
        }
        answer = exchange(served.port, *endless[what])
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nconnection: close\r\n" in answer or answer == b""
        assert served.client("writer").post(URL, json=snapshot(1)).status_code == 200


@pytest.mark.parametrize("piece", [b"X: 1\r\n" * 2000, b"x" * 10_000], ids=["many", "one"])
def test_a_long_body_buys_no_trailers(tmp_path, monkeypatch, piece):
    """Whoever has no key may send a body, which nobody keeps; what follows it must not be kept either."""
    kept = []
    plain = server.LimitedProtocol.data_received

    def note(protocol, data):
        plain(protocol, data)
        kept.append((len(protocol.headers), protocol._other))

    monkeypatch.setattr(server.LimitedProtocol, "data_received", note)
    with serving(settings_of(tmp_path)) as served:
        begin = f"POST {URL} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
        answer = exchange(served.port, begin, *[chunk] * 4, b"0\r\nX: ", *[piece] * 200)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 401 ")
        assert max(headers for headers, _ in kept) == 2
        assert sum(size > 2**16 for _, size in kept) == 1  # the first data above the limit are the last that are taken
        assert served.client("writer").post(URL, json=snapshot(1)).status_code == 200


def test_a_trailer_is_no_header(tmp_path):
    """A proxy that looks at the headers does not see it."""
    with serving(settings_of(tmp_path)) as served:
        begin = f"POST {URL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        body = b'{"time": 15, "values": [0, 1]}'
        end = b"\r\n0\r\nAuthorization: %s\r\n\r\n" % served.access.headers("writer")["Authorization"].encode()
        sent = f"{begin}Content-Type: application/json\r\n\r\n{len(body):x}\r\n".encode() + body + end
        assert exchange(served.port, sent).startswith(b"HTTP/1.1 401 ")


def test_bodies_in_tiny_chunks_are_taken(tmp_path):
    with serving(settings_of(tmp_path)) as served:
        body = b" " * 100_000 + b'{"time": 15, "values": [0, 1]}'
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        key = served.access.headers("writer")["Authorization"]
        begin = f"POST {URL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {key}\r\n"
        begin += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = exchange(served.port, begin.encode(), chunks)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        assert b'"accepted":1' in answer
