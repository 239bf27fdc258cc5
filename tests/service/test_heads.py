"""Heads of requests have a limit."""

import socket

import pytest

from service.parts import WARD, serving, settings_of, snapshot

URL = f"/api/datasets/{WARD}/snapshots"


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


@pytest.mark.parametrize("what", ["many headers", "one trailer", "the address"])
def test_a_head_without_end_is_cut_off(tmp_path, what):
    with serving(settings_of(tmp_path)) as served:
        key = served.access.headers("writer")["Authorization"]
        begin = f"POST {URL} HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n".encode()
        chunked = begin + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
        piece = b"x" * 10_000
        endless = {
            "many headers": [begin, *[b"X: 1\r\n" * 2000] * 1000],
            "one trailer": [chunked, b"X: ", *[piece] * 1000],
            "the address": [b"GET /", *[piece] * 1000],
        }
        answer = exchange(served.port, *endless[what])
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nconnection: close\r\n" in answer or answer == b""
        assert served.client("writer").post(URL, json=snapshot(1)).status_code == 200


def test_a_trailer_is_no_header(tmp_path):
    """A proxy that looks at the headers does not see it."""
    with serving(settings_of(tmp_path)) as served:
        begin = f"POST {URL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        body = b'{"time": 15, "values": [0, 1]}'
        end = b"\r\n0\r\nAuthorization: %s\r\n\r\n" % served.access.headers("writer")["Authorization"].encode()
        sent = f"{begin}Content-Type: application/json\r\n\r\n{len(body):x}\r\n".encode() + body + end
        assert exchange(served.port, sent).startswith(b"HTTP/1.1 401 ")
