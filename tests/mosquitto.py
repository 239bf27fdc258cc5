"""A real Mosquitto broker on a free port of this machine, killed and restarted as a test likes."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import until

PROGRAM = shutil.which("mosquitto") or "/usr/sbin/mosquitto"


def installed() -> bool:
    return Path(PROGRAM).exists()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Mosquitto:
    """One broker with its own folder: sessions and retained messages survive a restart."""

    def __init__(self, folder: Path, *, password: tuple[str, str] | None = None, tls: bool = False) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {folder}/",
            "autosave_interval 500",  # changes, not seconds
            "autosave_on_changes true",
            "max_queued_messages 100000",
            "user root",  # it runs as whoever started it; as root it would change to a user that cannot write here
            "log_type error",
            "log_type subscribe",
        ]
        if password is None:
            lines.append("allow_anonymous true")
        else:
            file = folder / "passwords"
            subprocess.run(["mosquitto_passwd", "-c", "-b", file, *password], check=True, capture_output=True)
            lines += ["allow_anonymous false", f"password_file {file}"]
        if tls:
            certificates(folder)
            lines += [f"cafile {folder}/ca.pem", f"certfile {folder}/broker.pem", f"keyfile {folder}/broker.key"]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [PROGRAM, "-c", str(self.folder / "mosquitto.conf")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.folder / "log").read_text())
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """SIGKILL: what was not written is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None


@contextmanager
def broker(folder: Path, *, password: tuple[str, str] | None = None, tls: bool = False) -> Iterator[Mosquitto]:
    """A running broker, stopped at the end."""
    server = Mosquitto(folder, password=password, tls=tls)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def certificates(folder: Path) -> None:
    """An authority (ca.pem), the certificate of 127.0.0.1 that it signed (broker.pem), and another one (other.pem)."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    for name in ("ca", "other"):
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN=csdp test {name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=127.0.0.1", "-keyout", "broker.key", "-out", "broker.csr"),
    )
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        *("x509", "-req", "-in", "broker.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"),
        *("-extfile", "san", "-out", "broker.pem"),
    )
