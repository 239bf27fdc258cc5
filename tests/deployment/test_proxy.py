"""deploy/nginx.conf under a real nginx: TLS, live events one by one, nothing of a request on disk."""

from __future__ import annotations

import re
import ssl
import subprocess
from contextlib import contextmanager, suppress

import httpx
import pytest

from deployment.machine import DEPLOY, call, find, need  # isort: skip
from mosquitto import certificates, free_port  # isort: skip
from service.parts import WARD, events, serving, settings_of, snapshot  # isort: skip
from waiting import until  # isort: skip

URL = f"/api/datasets/{WARD}"


class Proxy:
    """nginx in front of a service, in a folder of its own."""

    #: Seconds that an event may take on its way. One that waits in a buffer of the proxy never arrives.
    patience = 15

    def __init__(self, folder, backend, *, changes=()):
        self.folder, self.port, self.plain_port = folder, free_port(), free_port()
        folder.mkdir()
        certificates(folder)
        site = (DEPLOY / "nginx.conf").read_text()
        for old, new in (
            ("listen 443 ", f"listen 127.0.0.1:{self.port} "),
            ("listen 80;", f"listen 127.0.0.1:{self.plain_port};"),
            ("http://127.0.0.1:8765", f"http://127.0.0.1:{backend}"),
            ("/etc/ssl/certs/csdp.pem", f"{folder}/broker.pem"),
            ("/etc/ssl/private/csdp.key", f"{folder}/broker.key"),
            *changes,
        ):
            assert site.count(old) == 1, old
            site = site.replace(old, new)
        (folder / "csdp.conf").write_text(site)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"    {kind}_temp_path {folder}/temp-{kind};\n" for kind in kinds)
        (folder / "nginx.conf").write_text(
            f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/log;\n"
            f"events {{}}\nhttp {{\n{places}    include {folder}/csdp.conf;\n}}\n"
        )
        self._command = [find("nginx"), "-p", str(folder), "-e", str(folder / "log"), "-c", str(folder / "nginx.conf")]

    def check(self):
        return call(*self._command, "-t").stderr

    @contextmanager
    def running(self):
        process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        try:
            until(self._answers, told=(self.folder / "log").read_text)
            yield self
        finally:
            process.terminate()
            process.wait(20)

    def _answers(self):
        with suppress(httpx.TransportError), self.client() as client:
            return client.get("/health").status_code == 200

    def client(self, headers=None, **more):
        trusted = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        url = f"https://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, headers=headers, verify=trusted, timeout=self.patience, **more)


@pytest.fixture
def proxied(tmp_path):
    """Start nginx in front of a service."""
    need("nginx", "openssl")
    with serving(settings_of(tmp_path)) as served:
        yield served, lambda name="nginx", **more: Proxy(tmp_path / name, served.port, **more)


def hear_one_by_one(served, proxy, ticks):
    """Hand in ticks through the proxy, each only when the event of the one before has arrived."""
    with (
        proxy.running(),
        proxy.client(served.access.headers("writer")) as writer,
        proxy.client(served.access.headers("reader")) as reader,
        reader.stream("GET", f"{URL}/events") as live,
    ):
        heard = (content for name, _, content in events(live) if name == "release")
        for tick in ticks:
            assert writer.post(f"{URL}/snapshots", json=snapshot(tick)).status_code == 200
            if tick >= ticks[0] + 2:  # ages fill first, and a tick closes when the next one is there
                assert next(heard)["tick"] == tick - 1


def test_events_arrive_one_by_one(proxied):
    served, make = proxied
    proxy = make()
    assert "test is successful" in proxy.check()
    hear_one_by_one(served, proxy, range(6))


def test_a_proxy_that_buffers_would_be_seen(proxied):
    served, make = proxied
    buffering = "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;"
    proxy = make(changes=[("proxy_buffering off;", buffering)])
    proxy.patience = 3
    with pytest.raises(httpx.ReadTimeout):
        hear_one_by_one(served, proxy, range(6))


def test_what_the_proxy_lets_through(proxied):
    served, make = proxied
    with make().running() as proxy, proxy.client(served.access.headers("admin", "*")) as client:
        health = client.get("/health")
        assert health.headers["strict-transport-security"] == "max-age=31536000"
        assert client.get("/metrics").status_code == 404
        assert client.get(f"{URL}/status").status_code == 200
        assert client.get("/").status_code == 200  # the dashboard
        moved = httpx.get(f"http://127.0.0.1:{proxy.plain_port}/health", follow_redirects=False, timeout=300)
        assert (moved.status_code, moved.headers["location"]) == (301, "https://127.0.0.1/health")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"https://127.0.0.1:{proxy.port}/health")  # not of an authority that the machine trusts


def test_nothing_of_a_request_is_left(proxied):
    """A body larger than every buffer passes, in pieces; no file of the proxy holds any of it."""
    served, make = proxied
    lines = [f'{{"time": {10 * tick + 3}, {" " * 2**15} "values": [0, 1]}}\n' for tick in range(30)]
    body = "".join(lines).encode()
    with make().running() as proxy, proxy.client(served.access.headers("writer")) as writer:
        sizes = []

        def pieces():
            for start in range(0, len(body), 2**16):
                yield body[start : start + 2**16]
                sizes.append(sum(path.stat().st_size for path in proxy.folder.glob("temp-*/**/*") if path.is_file()))

        answer = writer.post(f"{URL}/snapshots", content=pieces(), headers={"Content-Type": "application/x-ndjson"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == 30
    assert len(sizes) > 10
    assert not any(sizes)
    left = b"".join(path.read_bytes() for path in proxy.folder.rglob("*") if path.is_file())
    assert b'"values"' not in left
    assert not re.search(rb"csdp_[0-9a-f]{12}_", left)
