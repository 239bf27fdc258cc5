"""deploy/Containerfile built and run by podman; where no registry can be reached, on a root made by debootstrap."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress

import httpx
import pytest

from csdp.service.keys import Keys, new_key

from deployment.machine import Podman  # isort: skip
from mosquitto import free_port  # isort: skip
from service.parts import WARD, hand_in, released, write_spec  # isort: skip
from waiting import until  # isort: skip

IMAGE = "localhost/csdp-test"
USER = 10001


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    found = Podman(tmp_path_factory.mktemp("podman"))
    found.build(IMAGE)
    yield found
    found("rmi", IMAGE)


@contextmanager
def container(podman, folder):
    """The image as docs/deployment.md runs it, on a free port; its name and a client."""
    name, port = f"csdp-test-{os.getpid()}", free_port()
    key, text = new_key("admin", ["*"])
    writer_key, writer_text = new_key("writer", [WARD])
    for one in (key, writer_key):
        Keys(folder / "keys.json").add(one)
    for path in (folder, *folder.iterdir()):
        os.chown(path, USER, USER)
    served = ("serve", "--spec", f"/data/{WARD}.toml", "--keys", "/data/keys.json", "--port", str(port))
    options = ("--read-only", "--tmpfs", "/var/cache/csdp:mode=1777", "-v", f"{folder}:/data")
    podman("run", "-d", "--name", name, *options, IMAGE, *served)
    try:
        url = f"http://127.0.0.1:{port}"
        with (
            httpx.Client(base_url=url, headers={"Authorization": f"Bearer {text}"}, timeout=300) as admin,
            httpx.Client(base_url=url, headers={"Authorization": f"Bearer {writer_text}"}, timeout=300) as writer,
        ):

            def answers():
                with suppress(httpx.TransportError):
                    return admin.get("/health").status_code == 200

            until(answers, told=lambda: podman("logs", name))
            yield name, admin, writer
    finally:
        podman("rm", "-f", name)


def test_it_runs_and_ends_well(podman, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_spec(folder)
    with container(podman, folder) as (name, admin, writer):
        hand_in(writer, range(4))
        assert [one["tick"] for one in released(admin)] == [1, 2]
        [facts] = json.loads(podman("inspect", name))
        assert facts["HostConfig"]["ReadonlyRootfs"]
        assert podman("exec", name, "id", "-u").strip() == str(USER)
        limits = podman("exec", name, "cat", "/proc/1/limits")
        [core] = [line.split() for line in limits.splitlines() if line.startswith("Max core file size")]
        assert core[4:6] == ["0", "0"]
        podman("stop", "-t", "30", name)
        [facts] = json.loads(podman("inspect", name))
        assert facts["State"]["ExitCode"] == 0
    assert (folder / "ledger.db").stat().st_mode & 0o777 == 0o600
    assert (folder / "ledger.db").stat().st_uid == USER
