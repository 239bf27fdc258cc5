"""What the tests of the service share: a folder with a dataset, a service in a thread, clients with keys."""

from __future__ import annotations

import faulthandler
import json
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from csdp import Mean, Plan
from csdp.planning.plan_file import PlanFile
from csdp.service import Settings
from csdp.service.app import Server, create, open_socket
from csdp.service.keys import Keys, new_key

from stream.parts import pairs  # isort: skip

WARD, OTHER = "ward-7", "ward-8"
STEP = 10
#: Made once: a client would load all certificates of the machine, for nothing.
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def write_spec(folder, *, dataset=WARD, count=2, ledger="ledger.db", age=1, clock="", times="data", more="", limits=""):
    """A specification and its plan file; the path of the specification."""
    plan = Plan(pairs(count), Mean(), age, 0.5, stale_limit=1)
    PlanFile(plan).save(folder / f"{dataset}.plan.json")
    path = folder / f"{dataset}.toml"
    path.write_text(
        f"""
dataset = {json.dumps(dataset)}
ledger = {json.dumps(ledger)}
plan = {json.dumps(dataset + ".plan.json")}
anyway = true
{more}

[limits]
{limits}

[clock]
step = {STEP}
times = "{times}"
{clock}

[source]
kind = "http"

[sink]
kind = "none"
"""
    )
    return path


class Access:
    """Keys of every kind for a service."""

    def __init__(self, path):
        self.store = Keys(path)
        self.texts = {}
        self._lock = threading.Lock()  # a key is used only once the service can know it

    def key(self, role, *datasets):
        which = (role, *(datasets or (WARD,)))
        with self._lock:
            if which not in self.texts:
                made, text = new_key(role, datasets or (WARD,))
                self.store.add(made)
                self.texts[which] = text
            return self.texts[which]

    def headers(self, role, *datasets):
        return {"Authorization": f"Bearer {self.key(role, *datasets)}"}


def settings_of(folder, *, specs=None, **more):
    base = Settings(specs=tuple(map(str, specs or [write_spec(folder)])), keys=str(folder / "keys.json"))
    return replace(base, **{"rate": 1e6, "burst": 1e6, "wrong_keys": 1e6, **more})


class Served:
    """A service on a free port of this machine, and clients for it."""

    def __init__(self, app, port, access):
        self.app, self.port, self.access = app, port, access
        self.url = f"http://127.0.0.1:{port}"
        self._clients = []

    def client(self, role=None, *datasets, timeout=120):
        headers = {} if role is None else self.access.headers(role, *datasets)
        self._clients.append(httpx.Client(base_url=self.url, headers=headers, timeout=timeout, verify=_CONTEXT))
        return self._clients[-1]

    def close(self):
        for client in self._clients:
            client.close()


@contextmanager
def serving(settings, *, send_buffer=None):
    """A real server in a thread."""
    app = create(settings)
    with open_socket("127.0.0.1", 0) as listening:
        if send_buffer is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # connections inherit it
        server = Server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        deadline = time.monotonic() + 200
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        served = Served(app, listening.getsockname()[1], Access(Path(settings.keys)))
        try:
            yield served
        finally:
            served.close()
            server.should_exit = True
            thread.join(30)
            if thread.is_alive():
                faulthandler.dump_traceback(all_threads=True)
            assert not thread.is_alive()


def snapshot(tick, values=(0, 1)):
    return {"time": STEP * tick + 3, "values": list(values)}


def hand_in(client, ticks, *, dataset=WARD, values=(0, 1)):
    """Snapshots of some ticks, one by one."""
    for tick in ticks:
        answer = client.post(f"/api/datasets/{dataset}/snapshots", json=snapshot(tick, values))
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == 1


def released(client, *, dataset=WARD, **asked):
    answer = client.get(f"/api/datasets/{dataset}/releases", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(response):
    """(name, id, data) of server-sent events, as they come; comments too."""
    name, number, lines = "", None, []
    for line in response.iter_lines():
        if line.startswith(":"):
            yield "comment", None, line
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            lines.append(line[6:])
        elif not line and lines:
            yield name, number, json.loads("".join(lines))
            name, number, lines = "", None, []
