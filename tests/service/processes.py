"""`csdp serve` as a process of its own, as an operator starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import numpy as np

from service.parts import _CONTEXT, STEP, WARD, Access
from traces import raw

URL = f"/api/datasets/{WARD}"
#: Seconds to wait for what must happen: a machine may be busy, and nothing here is about time.
PATIENCE = 300


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
        self.launch()
        self.wait_until_ready(seconds)

    def launch(self):
        log = (self.folder / "stderr").open("ab")
        self._logged = (self.folder / "stderr").stat().st_size
        with log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def log(self):
        """What it has logged since it was started."""
        return (self.folder / "stderr").read_bytes()[self._logged :].decode()

    def wait_until_ready(self, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while True:
            told = self.log()
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
