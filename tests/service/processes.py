"""`csdp serve` as a process of its own, as an operator starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import httpx

from service.parts import _CONTEXT, Access

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


class Process:
    """A service with its own folder; started again it goes on with the same port, keys and ledger."""

    def __init__(self, folder, specs, *arguments):
        self.folder = folder
        self.access = Access(folder / "keys.json")
        self.access.key("admin", "*")
        self._specs, self._arguments = specs, arguments
        self.port = 0
        self.process = None

    def start(self, seconds=60):
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
        return self.process.wait(60)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.stop()


class Workers(Process):
    """Several workers, with settings of their own."""

    def __init__(self, folder, settings, *, workers):
        super().__init__(folder, settings.specs)
        self._settings, self._workers = settings, workers

    def _command(self):
        return [sys.executable, "-c", _SERVE, self._settings.to_json(), str(self.port), str(self._workers)]
