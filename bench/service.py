"""The service under load, on loopback: snapshots per second, latency, listeners beside writers, memory over time.

The soak takes 10 minutes at full size. Client and server share the machine, so times are those of a busy one.
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import psutil

from bench.record import Record, ratio_record
from csdp import CoupledChain, Mean, Plan
from csdp.planning.plan_file import PlanFile
from csdp.service.keys import Keys, new_key

SECONDS = 6.0
SOAK = 600.0
NAME = "bench"
#: Snapshots that were taken, the seconds for all of them, and the seconds of each request.
Written = tuple[int, float, list[float]]


def spec(folder: Path, count: int, *, per_tick: int, name: str = NAME, lateness: int = 0) -> Path:
    """A dataset whose ticks take `per_tick` snapshots; all of a folder have one ledger."""
    edges = {(i, i): 0.75 for i in range(count)} | {(i, i ^ 1): 0.25 for i in range(count)}
    plan = Plan(CoupledChain(edges, [[0.7, 0.3], [0.3, 0.7]]), Mean(), 2, 0.5)
    PlanFile(plan).save(folder / "plan.json")
    path = folder / f"{name}.toml"
    path.write_text(
        f'dataset = "{name}"\nledger = "ledger.db"\nplan = "plan.json"\nanyway = true\n'
        f'[clock]\nstep = {per_tick}\nlateness = {lateness}\ntimes = "data"\n'
        '[source]\nkind = "http"\n[sink]\nkind = "none"\n'
    )
    return path


@contextmanager
def service(
    count: int, *, per_tick: int, names: Sequence[str] = (NAME,), lateness: int = 0
) -> Iterator[tuple[int, dict[str, str], psutil.Process]]:
    """`csdp serve` as a process: its port, keys of a writer and a reader, and the process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys = Keys(folder / "keys.json")
        texts = {}
        for role in ("admin", "writer", "reader"):
            key, texts[role] = new_key(role, ["*"])
            keys.add(key)
        specs = [spec(folder, count, per_tick=per_tick, name=name, lateness=lateness) for name in names]
        command = [sys.executable, "-m", "csdp", "serve", *(word for path in specs for word in ("--spec", str(path)))]
        command += ["--port", "0", "--keys", str(keys.path), "--rate", "1000000"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
        try:
            assert process.stderr is not None
            address = process.stderr.readline()
            match = re.search(r":(\d+)/", address)
            assert match is not None, address
            port = int(match[1])
            yield port, texts, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


class Snapshots:
    """Snapshots as they are sent, one tick time after the other, without end: no machine is too fast for them.

    Their values are encoded before the clock runs; a time is put in front of them when one is taken.
    """

    def __init__(self, count: int) -> None:
        rows = np.random.default_rng(0).integers(2, size=(64, count)).tolist()
        self._values = [json.dumps(row).encode() for row in rows]
        self._time = 1_000_000
        self._lock = Lock()

    def take(self, count: int) -> bytes:
        """The next snapshots, one a line."""
        with self._lock:
            times = range(self._time, self._time + count)
            self._time += count
        return b"\n".join(b'{"time": %d, "values": %s}' % (time, self._values[time % 64]) for time in times)


def write(port: int, key: str, snapshots: Snapshots, *, seconds: float, together: int = 1, name: str = NAME) -> Written:
    """Send snapshots one after another for a while; return their number, the total time, and that of each request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    kind = "application/json" if together == 1 else "application/x-ndjson"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": kind}
    took: list[float] = []
    sent, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        body = snapshots.take(together)
        start = time.perf_counter()
        connection.request("POST", f"/api/datasets/{name}/snapshots", body, headers)
        answer = connection.getresponse()
        answer.read()
        took.append(time.perf_counter() - start)
        assert answer.status == 200, answer.status
        sent += together
    connection.close()
    return sent, time.perf_counter() - begun, took


def load_record(what: str, count: int, written: Written, more: Record) -> Record:
    """Return one line of the table."""
    sent, seconds, took = written
    cut = statistics.quantiles(took, n=100) if len(took) > 1 else took * 99
    line = {
        "what": what,
        "sequences": count,
        "snapshots_per_s": round(sent / seconds, 1),
        "p50_ms": round(1e3 * cut[49], 2),
        "p99_ms": round(1e3 * cut[98], 2),
        **more,
    }
    print(line, flush=True)
    return line


@contextmanager
def listening(port: int, key: str, clients: int) -> Iterator[None]:
    """Clients on live events, in a process of their own."""
    code = (
        "import socket,sys,select\n"
        "port,key,n=int(sys.argv[1]),sys.argv[2],int(sys.argv[3])\n"
        f"ask=f'GET /api/datasets/{NAME}/events HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {{key}}\\r\\n\\r\\n'\n"
        "all=[socket.create_connection(('127.0.0.1',port)) for _ in range(n)]\n"
        "[one.sendall(ask.encode()) for one in all]\n"
        "[one.recv(65536) for one in all]\n"
        "print('ready',flush=True)\n"
        "while True:\n"
        "    for one in select.select(all,[],[])[0]: one.recv(1<<20)\n"
    )
    command = [sys.executable, "-c", code, str(port), key, str(clients)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


def loads(count: int, seconds: float) -> Iterator[Record]:
    """One snapshot a request and many, with every snapshot closing a tick, and with ten to a tick."""
    for per_tick in (1, 10):
        with service(count, per_tick=per_tick) as (port, texts, process):
            snapshots = Snapshots(count)
            write(port, texts["writer"], snapshots, seconds=seconds / 6)
            for together in (1, 5, 20):
                what = "one snapshot a request" if together == 1 else f"NDJSON, {together} a request"
                written = write(port, texts["writer"], snapshots, together=together, seconds=seconds)
                rss = round(process.memory_info().rss / 2**20)
                yield load_record(what, count, written, {"snapshots_a_tick": per_tick, "rss_mb": rss})


def beside_listeners(seconds: float) -> Iterator[Record]:
    """Measure a writer alone and with listeners; interleaved, so that a busy machine slows both alike."""
    with service(100, per_tick=1) as (port, texts, _):
        snapshots = Snapshots(100)
        writes: dict[int, Written] = {0: (0, 0.0, []), 50: (0, 0.0, [])}
        for clients in (0, 50, 0, 50, 0, 50):
            with listening(port, texts["reader"], clients) if clients else nullcontext():
                sent, took, each = write(port, texts["writer"], snapshots, seconds=seconds / 2)
            before = writes[clients]
            writes[clients] = (before[0] + sent, before[1] + took, before[2] + each)
        for clients, written in writes.items():
            yield load_record("one snapshot a request", 100, written, {"listeners": clients})
        beside, alone = (statistics.median(writes[clients][2]) for clients in (50, 0))
        yield ratio_record("a snapshot beside 50 listeners", "the writer alone, median", beside, alone, target=1.1)
        beside, alone = (writes[clients][1] / writes[clients][0] for clients in (50, 0))
        yield ratio_record("a snapshot beside 50 listeners", "the writer alone, mean", beside, alone, target=1.1)


def at_once(seconds: float) -> Iterator[Record]:
    """Eight writers at once, of one dataset or of eight."""
    for names in ([NAME] * 8, [f"{NAME}-{i}" for i in range(8)]):
        with service(100, per_tick=1, names=sorted(set(names)), lateness=16) as (port, texts, process):
            shared = Snapshots(100)
            takes = {name: shared if len(set(names)) == 1 else Snapshots(100) for name in names}

            def work(name: str, port: int = port, key: str = texts["writer"], takes: Any = takes) -> Written:
                return write(port, key, takes[name], seconds=seconds, name=name)

            with ThreadPoolExecutor(8) as pool:
                before = process.cpu_times()
                each = list(pool.map(work, names))
                after = process.cpu_times()
            sent = sum(one[0] for one in each)
            written = sent, max(one[1] for one in each), [took for one in each for took in one[2]]
            cpu = round(1e3 * (after.user + after.system - before.user - before.system) / sent, 2)
            more = {"writers": 8, "datasets": len(set(names)), "server_cpu_ms": cpu}
            yield load_record("one snapshot a request", 100, written, more)


def soak(seconds: float) -> Iterator[Record]:
    """Memory of the service while it publishes all the time."""
    with service(100, per_tick=1) as (port, texts, process):
        snapshots, ticks, begun = Snapshots(100), 0, time.monotonic()
        rss: list[float] = []
        while time.monotonic() < begun + seconds:
            sent, _, _ = write(port, texts["writer"], snapshots, seconds=seconds / 12)
            ticks += sent
            rss.append(round(process.memory_info().rss / 2**20, 1))
        third = max(1, len(rss) // 3)
        early, late = statistics.mean(rss[third : 2 * third] or rss), statistics.mean(rss[-third:])
        line = {"what": "soak", "seconds": seconds, "ticks": ticks, "rss_mb": rss, "growth_mb": round(late - early, 1)}
        print(line, flush=True)
        yield line


def run(scale: float = 1.0) -> list[Record]:
    """Measure everything; a writer with listeners is a ratio to the writer alone."""
    seconds = max(0.5, SECONDS * scale)
    records = [*loads(100, seconds), *loads(max(2, int(10_000 * scale)) // 2 * 2, seconds)]
    records += at_once(seconds)
    records += beside_listeners(seconds)
    return [*records, *soak(max(5.0, SOAK * scale))]
