"""`csdp serve` as a process of its own, as an operator starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import httpx
import numpy as np
import psutil

from service.parts import _CONTEXT, STEP, WARD, Access
from traces import raw

URL = f"/api/datasets/{WARD}"
#: Seconds to wait for what must happen: a machine may be busy, and nothing here is about time.
PATIENCE = 300

#: Serves with settings that have no option of the command line.
_SERVE = """
import sys
from csdp.service import Settings
from csdp.service.server import serve
def ready(port):
    print(f"listening on http://127.0.0.1:{port}/", flush=True)
settings = Settings.from_json(sys.argv[1])
serve(settings, host="127.0.0.1", port=int(sys.argv[2]), workers=int(sys.argv[3]), ready=ready)
"""

#: The same, with workers that are forked where everything is imported already, and soon after one has died: a run of
#: many kills would otherwise spend its time with imports. Whoever leads renews, and others look, four times a second.
_SERVE_FORKED = """
import dataclasses
import os
import signal
import sys
import tempfile
import time
import traceback
import csdp.bounds.metric_loops
from csdp.service import Settings, dataset, server
from csdp.stream.from_spec import make_plan, open_runner
from csdp.stream.spec import read_spec
class Forked:
    def __init__(self, environment, listening):
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.environ.update(environment)
                server._run_worker(os.dup(listening.fileno()))
            except BaseException:
                traceback.print_exc()
            os._exit(0)
    def poll(self):
        if self.returncode is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.returncode = 1
        return self.returncode
    def wait(self, seconds=60):
        deadline = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    def terminate(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
server._start_worker, server._POLL, server._RESTART_PAUSE, dataset.RENEWAL = Forked, 0.05, 0.05, 0.25
def warm_up(settings):
    with tempfile.TemporaryDirectory() as folder:
        spec = dataclasses.replace(read_spec(settings.specs[0]), ledger=f"{folder}/ledger.db")
        with open_runner(spec, make_plan(spec)):
            pass  # the first states are computed and compiled code is loaded; nothing is published
warm_up(Settings.from_json(sys.argv[1]))
"""


class Process:
    """A service with its own folder; started again it goes on with the same port, keys and ledger."""

    def __init__(self, folder, specs, *arguments):
        self.folder = folder
        self.access = Access(folder / "keys.json")
        self.access.key("admin", "*")
        self._specs, self._arguments = specs, arguments
        self.port = 0
        self.process = None

    def start(self, seconds=PATIENCE):
        log = (self.folder / "stderr").open("ab")
        size = (self.folder / "stderr").stat().st_size
        with log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        deadline = time.monotonic() + seconds
        while True:
            told = (self.folder / "stderr").read_bytes()[size:].decode()
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)/", told)
            if found and self._answers(int(found[1])):
                self.port = int(found[1])
                return
            assert self.process.poll() is None, told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

    def _command(self):
        specs = [part for spec in self._specs for part in ("--spec", str(spec))]
        command = [sys.executable, "-m", "csdp", "serve", *specs, "--port", str(self.port), "--rate", "100000"]
        return [*command, *self._arguments]

    def _answers(self, port):
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2, verify=_CONTEXT).status_code == 200
        except httpx.HTTPError:
            return False

    def client(self, role, *datasets, **more):
        headers = self.access.headers(role, *datasets)
        url = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, headers=headers, timeout=30, verify=_CONTEXT, **more)

    def kill(self):
        self.process.kill()
        self.process.wait(20)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.stop()


class Workers(Process):
    """Several workers, with settings of their own."""

    def __init__(self, folder, settings, *, workers, forked=False):
        super().__init__(folder, settings.specs)
        self._settings, self._workers = settings, workers
        self._script = _SERVE_FORKED + _SERVE if forked else _SERVE

    def _command(self):
        return [sys.executable, "-c", self._script, self._settings.to_json(), str(self.port), str(self._workers)]


class Ward(threading.Thread):
    """A writer that hands in raw readings of tick after tick, again and again until they are taken."""

    def __init__(self, service, sequences, *, ticks):
        super().__init__()
        self._service, self._sequences, self._ticks = service, sequences, ticks
        self._rng = np.random.default_rng(5)
        self.tick = 0
        self.refusals = 0
        self.pace = 0.0
        self._stopped = threading.Event()

    def stop(self):
        self._stopped.set()
        if self.ident is not None:
            self.join(60)

    def run(self):
        while self.tick < self._ticks and not self._stopped.is_set():
            body = {"time": STEP * self.tick + 3, "values": [raw(self._rng) for _ in range(self._sequences)]}
            try:
                # A new connection each time: with several workers each of them gets its share.
                with self._service.client("writer") as client:
                    answer = client.post(f"{URL}/snapshots", json=body)
                if answer.status_code == 503:
                    self.refusals += 1
                    time.sleep(0.1)
                    continue
                assert answer.status_code == 200, answer.text
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            self.tick += 1
            time.sleep(self.pace)


def until(condition, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def find_leader(parent, *, but=None):
    """The worker that answers the others, once there is one: its socket was made under a name with its number."""
    found = []

    def look():
        for worker in parent.children():
            with suppress(psutil.Error):
                sockets = [str(one.laddr) for one in worker.net_connections(kind="unix")]
                if worker != but and any(name.endswith(f".{worker.pid}") for name in sockets):
                    found.append(worker)
        return found

    until(look)
    return found[0]
