"""deploy/compose.yaml: its services as processes, with its commands, its settings and its secrets."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
import yaml

from csdp import Mean, Plan
from csdp.planning.plan_file import PlanFile
from csdp.service.keys import Keys, new_key

import mosquitto  # isort: skip
import postgres  # isort: skip
from deployment.machine import DEPLOY, call, need  # isort: skip
from stream.parts import pairs  # isort: skip
from waiting import until  # isort: skip

COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
URL = "/api/datasets/ward-7"


class PasswordServer(postgres.Server):
    """A server that is reached over TCP, with a password."""

    port = 0

    def start(self):
        self.port = mosquitto.free_port()
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "60", "-l", log, "-o", options, "start")

    def allow(self, password):
        """What the image of PostgreSQL does with POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD_FILE."""
        with psycopg.connect(f"host={self.folder} port={self.port} user=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE ROLE csdp LOGIN PASSWORD '{password}'")
            connection.execute("CREATE DATABASE csdp OWNER csdp")
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text("local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "reload")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    need("openssl", "mosquitto_passwd")
    folder = tmp_path_factory.mktemp("compose") / "secrets"
    call("sh", DEPLOY / "make-secrets.sh", folder)
    return folder


def test_every_file_and_secret_is_there(secrets):
    services = COMPOSE["services"]
    assert set(services) == {"db", "broker", "csdp"}
    for name, where in COMPOSE["secrets"].items():
        assert (secrets / Path(where["file"]).name).stat().st_mode & 0o077 == 0, name
    used = {name for service in services.values() for name in service["secrets"]}
    assert used == set(COMPOSE["secrets"])
    volumes = {one.split(":")[0] for service in services.values() for one in service["volumes"]}
    assert {one for one in volumes if not one.startswith(".")} == set(COMPOSE["volumes"])
    assert all((DEPLOY / one).exists() for one in volumes if one.startswith("."))
    build = services["csdp"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()
    assert services["csdp"]["ports"] == ["127.0.0.1:8765:8765"]  # for a proxy on this machine, and nobody else
    assert not any("ports" in services[name] for name in ("db", "broker"))
    for secret in ("db-password", "mqtt-password"):
        words = (secrets / secret).read_text().strip()
        assert len(words) == 48
        assert words not in "".join(path.read_text() for path in DEPLOY.iterdir() if path.is_file())
    assert (secrets / "db-password").read_text() != (secrets / "mqtt-password").read_text()


def test_secrets_are_not_made_twice(secrets):
    done = subprocess.run(["sh", DEPLOY / "make-secrets.sh", secrets], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is there already" in done.stderr


@contextmanager
def broker_of(folder, secrets):
    """Mosquitto with deploy/mosquitto.conf, on a free port of this machine."""
    if not mosquitto.installed():
        pytest.skip("not installed: mosquitto")
    port = mosquitto.free_port()
    (folder / "broker").mkdir()
    text = (DEPLOY / "mosquitto.conf").read_text()
    for old, new in (
        ("listener 1883", f"listener {port} 127.0.0.1\nuser root"),
        ("/run/secrets/mqtt-passwords", str(secrets / "mqtt-passwords")),
        ("/mosquitto/data/", f"{folder}/broker/"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "mosquitto.conf").write_text(text)
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen([mosquitto.PROGRAM, "-c", str(folder / "mosquitto.conf")], stdout=log, stderr=log)
    try:

        def listens():
            assert process.poll() is None, (folder / "broker.log").read_text()
            return any(one.laddr.port == port for one in psutil.Process(process.pid).net_connections())

        until(listens)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def test_the_services_work_together(tmp_path, secrets):
    """Readings over MQTT, a ledger behind a password; no secret in any command line or log."""
    import paho.mqtt
    from paho.mqtt import publish

    data = tmp_path / "data"
    data.mkdir()
    PlanFile(Plan(pairs(2), Mean(), 1, 0.5), about="then").save(data / "plan.json")
    key, text = new_key("reader", ["ward-7"])
    Keys(data / "keys.json").add(key)
    port = mosquitto.free_port()
    with postgres.cluster(PasswordServer) as server, broker_of(tmp_path, secrets) as broker:
        if server is None:
            pytest.skip("not installed: postgresql")
        server.allow((secrets / "db-password").read_text().strip())
        with pytest.raises(paho.mqtt.MQTTException, match="Not authorized"):
            publish.single("ward-7", "{}", hostname="127.0.0.1", port=broker)
        pgpass = tmp_path / "pgpass"
        pgpass.write_text((secrets / "pgpass").read_text().replace("db:5432", f"127.0.0.1:{server.port}"))
        pgpass.chmod(0o600)
        spec = (DEPLOY / "stream.toml").read_text()
        for old, new in (
            ("@db/csdp", f"@127.0.0.1:{server.port}/csdp"),
            ('"broker"', f'"127.0.0.1"\nport = {broker}'),
            ("/run/secrets/mqtt-password", str(secrets / "mqtt-password")),
            ('times = "wall"', 'times = "data"'),  # so that no test has to wait for the ticks
        ):
            assert spec.count(old) == 1, old
            spec = spec.replace(old, new)
        (data / "stream.toml").write_text(spec)
        service = COMPOSE["services"]["csdp"]
        command = [word.replace("/data/", f"{data}/").replace("0.0.0.0", "127.0.0.1") for word in service["command"]]
        command[command.index("8765")] = str(port)
        assert service["environment"] == {"PGPASSFILE": "/run/secrets/pgpass"}
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "csdp", *command],
                env={**os.environ, "PGPASSFILE": str(pgpass)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            login = {"username": "csdp", "password": (secrets / "mqtt-password").read_text().strip()}

            def say(tick):
                content = f'{{"time": {10 * tick + 3}, "values": [0, 1]}}'
                publish.single("ward-7", content, qos=1, hostname="127.0.0.1", port=broker, auth=login)

            ticks, numbers = [], itertools.count()
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
                client.headers["Authorization"] = f"Bearer {text}"

                def three_are_published():
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    say(next(numbers))
                    with suppress(httpx.TransportError):
                        answer = client.get(f"{URL}/releases")
                        ticks[:] = [one["tick"] for one in answer.json()] if answer.status_code == 200 else []
                    return len(ticks) >= 3

                until(three_are_published, told=(tmp_path / "log").read_text)
            told = [process.pid, *(one.pid for one in psutil.Process(process.pid).children(recursive=True))]
            lines = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in told if psutil.pid_exists(pid))
        finally:
            process.terminate()
            assert process.wait(60) == 0
    assert len(set(ticks)) == len(ticks)
    hidden = [(secrets / name).read_text().strip() for name in ("db-password", "mqtt-password")]
    said = (tmp_path / "log").read_text()
    assert not re.search("Traceback", said)
    for words in (*hidden, text):
        assert words not in said
        assert words.encode() not in lines
