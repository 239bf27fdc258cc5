"""Faults around a running service: database cut off, disk full, clock set, broker gone.

Nothing is lost that was recorded, nothing is published twice, and the service goes on by itself.
CSDP_OUTAGE sets how many seconds the database is cut off.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

from csdp.ledger import Ledger

import postgres  # isort: skip
from deployment.machine import call, find, need  # isort: skip
from service.parts import WARD, released, serving, settings_of, snapshot, write_spec  # isort: skip
from service.processes import PATIENCE, URL, Process, Ward  # isort: skip
from stream.test_kill import check, streaming  # isort: skip
from waiting import until  # isort: skip

OUTAGE = float(os.environ.get("CSDP_OUTAGE", "3"))


def all_released(service):
    """Every published tick, oldest first."""
    ticks = []
    with service.client("reader") as reader:
        # The first question of a worker after an outage may meet a connection that is gone: 503, ask again.
        until(lambda: reader.get(f"{URL}/releases").status_code == 200)
        while page := released(reader, limit=1000, after=ticks[-1] if ticks else -1):
            ticks += [one["tick"] for one in page]
    return ticks


def check_ledger(place, *, lost):
    """The ledger is sound, each tick was reserved once; what was committed is what is recorded as published."""
    with Ledger.open(place, read_only=True) as ledger:
        assert ledger.verify() == []
        reserved = [entry.tick for entry in ledger.entries(WARD, kind="reserve")]
        published = [one.tick for one in ledger.published(WARD)]
        summary = ledger.summary(WARD)
    assert len(set(reserved)) == len(reserved)
    assert len(set(published)) == len(published) == summary.committed
    assert set(published) <= set(reserved)
    assert summary.lost <= lost
    return published


def test_requests_that_a_closed_thread_leaves_behind_are_told_to_come_back(tmp_path):
    """The thread that publishes is closed while requests wait for their turn: 503, not 500, and upkeep goes on."""
    with serving(settings_of(tmp_path)) as served:
        dataset = served.app.state.service.datasets[WARD]
        thread, hold = dataset.publisher_thread, threading.Event()
        thread.submit(hold.wait, 60)
        answers = []

        def send():
            with served.client("writer") as writer:
                answers.append(writer.post(f"{URL}/snapshots", json=snapshot(0)))

        senders = [threading.Thread(target=send) for _ in range(3)]
        for sender in senders:
            sender.start()
        until(lambda: thread._executor._work_queue.qsize() >= 3 + 1)  # with the upkeep of the dataset
        thread._executor.shutdown(wait=False, cancel_futures=True)
        hold.set()
        for sender in senders:
            sender.join(30)
        assert [answer.status_code for answer in answers] == [503] * 3
        assert all("send it again" in answer.json()["detail"] for answer in answers)
        assert "retry-after" in answers[0].headers
        thread._executor = ThreadPoolExecutor(1)
        thread.submit = thread._executor.submit
        with served.client("writer") as writer:
            assert writer.post(f"{URL}/snapshots", json=snapshot(0)).status_code == 200


def test_upkeep_that_waits_while_its_thread_is_closed_on_purpose_is_no_error(tmp_path, monkeypatch):
    """As at a change of the budget, or at the end of a service."""
    logged = []
    monkeypatch.setattr("csdp.service.dataset.log.error", lambda *words: logged.append(words))
    with serving(settings_of(tmp_path)) as served:
        dataset = served.app.state.service.datasets[WARD]
        thread, begun, hold = dataset.publisher_thread, threading.Event(), threading.Event()
        thread.submit(lambda: begun.set() or hold.wait(60))
        assert begun.wait(60)
        until(lambda: thread._executor._work_queue.qsize() >= 1)  # the upkeep of the dataset
        dataset.publisher_thread = None
        thread._executor.shutdown(wait=False, cancel_futures=True)
        hold.set()
        time.sleep(0.3)
        dataset.publisher_thread = thread
        thread._executor = ThreadPoolExecutor(1)
        thread.submit = thread._executor.submit
        with served.client("writer") as writer:
            assert writer.post(f"{URL}/snapshots", json=snapshot(0)).status_code == 200
    assert logged == []


# ---- the network between service and database -----------------------------------------------------------------------


class Namespace:
    """A network namespace with two links to this one: to clients, and to the database, which can be cut."""

    def __init__(self):
        need("ip")
        self.name, number = f"csdp{os.getpid()}", os.getpid() % 200 + 20
        self.database, self.client_side = f"10.{number}.1.1", f"10.{number}.2.1"
        self.service_address = f"10.{number}.2.2"
        try:
            call("ip", "netns", "add", self.name)
        except RuntimeError:
            pytest.skip("no network namespace can be made")
        for link, network in (("db", 1), ("cl", 2)):
            outside, inside = f"{link}o{os.getpid()}", f"{link}i{os.getpid()}"
            call("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name)
            call("ip", "addr", "add", f"10.{number}.{network}.1/24", "dev", outside)
            call("ip", "link", "set", outside, "up")
            self.inside("ip", "addr", "add", f"10.{number}.{network}.2/24", "dev", inside)
            self.inside("ip", "link", "set", inside, "up")
        self.inside("ip", "link", "set", "lo", "up")
        self._link = f"dbo{os.getpid()}"

    def inside(self, *command):
        return call("ip", "netns", "exec", self.name, *command)

    def cut(self):
        call("ip", "link", "set", self._link, "down")

    def mend(self):
        call("ip", "link", "set", self._link, "up")

    def close(self):
        call("ip", "netns", "del", self.name)  # the links go with it


class ReachableServer(postgres.Server):
    """A server on an address of this machine, for whoever is in its network."""

    def __init__(self, folder, binaries, *, address):
        super().__init__(folder, binaries)
        self.address = address

    def start(self):
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text("local all all trust\nhost all all samenet trust\n")
        options = f"-p {postgres.PORT} -k {self.folder} -c listen_addresses={self.address} -c max_connections=60"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "60", "-l", log, "-o", options, "start")


class InNamespace(Process):
    """A service in a namespace."""

    def __init__(self, folder, specs, network):
        super().__init__(folder, specs)
        self._network = network

    def _command(self):
        words = ["--host", self._network.service_address, "--port", "8765", "--rate", "100000"]
        spec = ["--spec", str(self._specs[0])]
        return [find("ip"), "netns", "exec", self._network.name, sys.executable, "-m", "csdp", "serve", *spec, *words]

    def start(self, seconds=PATIENCE):
        self.launch()
        self.port = 8765
        until(self._is_there, seconds)

    def start_as_a_supervisor_does(self):
        """Again and again: the server may not have noticed yet that the old session is gone."""
        until(self._is_started)

    def _is_started(self):
        if self.process.poll() is not None:
            self.launch()
        return self._answers_here()

    def _is_there(self):
        assert self.process.poll() is None, (self.folder / "stderr").read_text()
        return self._answers_here()

    def _answers_here(self):
        try:
            return httpx.get(f"http://{self._network.service_address}:8765/health", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def client(self, role, *datasets, **more):
        made = super().client(role, *datasets, **more)
        made.base_url = f"http://{self._network.service_address}:8765"
        return made


@pytest.mark.slow
def test_the_network_between_service_and_database_is_cut(tmp_path):
    """Packets vanish without a word: the service loses its right to publish and ends; started again it goes on."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    network = Namespace()
    try:
        with postgres.cluster(partial(ReachableServer, address=network.database)) as server:
            if server is None:
                pytest.skip("not installed: postgresql")
            database = server.new_database().partition("@/")[2].partition("?")[0]
            ledger = f"postgresql://postgres@{network.database}:{postgres.PORT}/{database}"
            service = InNamespace(tmp_path, [write_spec(tmp_path, count=4, ledger=ledger)], network)
            ward = Ward(service, 4, ticks=10**9)
            ward.pace = 0.02
            try:
                service.start()
                ward.start()
                for _ in range(2):
                    taken = ward.tick
                    until(lambda taken=taken: ward.tick >= taken + 10)
                    before = all_released(service)
                    network.cut()
                    assert service.process.wait(PATIENCE) == 2
                    time.sleep(OUTAGE)
                    network.mend()
                    service.start_as_a_supervisor_does()
                    taken = ward.tick
                    until(lambda taken=taken: ward.tick >= taken + 10)
                    assert all_released(service)[: len(before)] == before
                ward.stop()
                assert service.stop() == 0
            finally:
                ward.stop()
                network.mend()
                service.close()
            local = f"{server.url(database)}"
            assert len(check_ledger(local, lost=4)) > 20
    finally:
        network.close()


# ---- disk, clock, broker ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk(tmp_path):
    """The disk of the ledger is full while the service publishes; when there is space again it goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", disk], check=False)
    if done.returncode:
        pytest.skip("no file system can be mounted")
    try:
        service = Process(tmp_path, [write_spec(tmp_path, count=4, ledger=str(disk / "ledger.db"))])
        ward = Ward(service, 4, ticks=10**9)
        try:
            service.start()
            (disk / "ballast").write_bytes(bytes(400_000))
            ward.start()
            until(lambda: ward.refusals > 5 or _is_degraded(service))
            assert shutil.disk_usage(disk).free < 100_000
            before = all_released(service)
            (disk / "ballast").unlink()
            taken = ward.tick
            until(lambda: ward.tick >= taken + 20)
            ward.stop()
            assert all_released(service)[: len(before)] == before
            assert service.stop() == 0
        finally:
            ward.stop()
            service.close()
        published = check_ledger(disk / "ledger.db", lost=2)
        assert len(published) > len(before) > 10
    finally:
        call("umount", disk)


def _is_degraded(service):
    with service.client("reader") as reader:
        return reader.get("/health").json()["status"] == "degraded"


@pytest.mark.slow
def test_the_clock_is_set(tmp_path):
    """The machine's clock jumps back an hour and forth a day under a service that publishes by it."""
    need("faketime")
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if library is None:
        pytest.skip("not installed: libfaketime")
    setting = tmp_path / "faketime"
    setting.write_text("+0\n")
    spec = write_spec(tmp_path, count=2, times="wall", clock="lateness = 0")
    spec.write_text(spec.read_text().replace("step = 10", "step = 1"))
    service = Process(tmp_path, [spec])
    fake = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(setting), "FAKETIME_NO_CACHE": "1"}
    fake |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    stop, offset = threading.Event(), [0]

    def report():
        with service.client("writer") as writer:
            while not stop.wait(0.2):
                body = {"time": time.time() + offset[0], "values": [0, 1]}
                writer.post(f"{URL}/snapshots", json=body)

    reporter = threading.Thread(target=report)
    os.environ.update(fake)
    try:
        service.start()
    finally:
        for name in fake:
            del os.environ[name]
    try:
        reporter.start()
        for seconds in (-3600, 86_400, 0):
            with service.client("reader") as reader:
                until(lambda reader=reader: len(released(reader, limit=1000)) >= 3)
                before = [(one["tick"], one["values"]) for one in released(reader, limit=1000)]
                setting.write_text(f"{seconds:+d}\n")
                offset[0] = seconds
                time.sleep(3)
                after = [(one["tick"], one["values"]) for one in released(reader, limit=1000)]
                assert after[: len(before)] == before
        right = int(time.time())
        with service.client("reader") as reader:
            until(lambda: released(reader, limit=1)[-1]["tick"] >= right)
        stop.set()
        reporter.join(30)
        assert service.stop() == 0
    finally:
        stop.set()
        service.close()
    published = check_ledger(tmp_path / "ledger.db", lost=0)
    assert published == sorted(published)
    assert published[-1] >= right
    assert all(tick <= time.time() for tick in published)  # nothing by a clock that was ahead


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_broker_that_is_gone_for_long(tmp_path):
    """Readings wait at their senders, the stream waits for the broker; nothing is lost, nothing comes twice."""
    folder = tmp_path / "stream"
    with streaming(folder, tmp_path / "broker", 100) as (server, _, wards):
        wards.publish(5)
        server.stop()  # with its sessions saved: what a killed broker forgets is not the stream's to keep
        sender = threading.Thread(target=wards.publish, args=(3,))
        time.sleep(OUTAGE)
        server.start()
        sender.start()
        sender.join(60)
        wards.publish(4)
    published, summary = check(folder)
    assert len(published) >= wards.tick - 4
    assert summary.lost == 0
