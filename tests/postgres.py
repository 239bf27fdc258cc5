"""A throw-away PostgreSQL cluster: no network, no password, gone with its directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

PORT = 5432  # only the name of the socket: nothing listens on the network


def binaries() -> Path | None:
    """The directory of `initdb` and `pg_ctl`, the newest version where there are several."""
    versioned = Path("/usr/lib/postgresql").glob("*/bin")
    for folder in sorted(versioned, key=lambda path: int(path.parent.name), reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class Server:
    """One cluster; `stop` and `start` may be called in between, as an outage would."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self._bin = bin_folder

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&port={PORT}"

    def create(self) -> None:
        self._run(
            "initdb",
            "-D",
            str(self.folder / "data"),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )

    def start(self) -> None:
        options = f"-p {PORT} -k {self.folder} -c listen_addresses='' -c max_connections=60 -c autovacuum=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "60", "-m", mode, "stop")

    def running(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    def new_database(self) -> str:
        """The URL of a fresh, empty database."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type, unused-ignore]
        return self.url(name)

    def _run(self, program: str, *arguments: str) -> None:
        as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        command = [*as_postgres, str(self._bin / program), *arguments]
        # Not a pipe: the server would inherit it and keep it open.
        with (self.folder / f"{program}.out").open("w") as out:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=120, cwd="/", check=False
            )
        if done.returncode:
            raise RuntimeError((self.folder / f"{program}.out").read_text())


@contextmanager
def cluster(make: Callable[[Path, Path], Server] = Server) -> Iterator[Server | None]:
    """A running server, of another kind if asked for; None where PostgreSQL is not installed."""
    found = binaries()
    if found is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="csdp-pg-"))  # short: a socket's path may have 107 characters
    server = make(folder, found)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server.create()
        server.start()
        yield server
    finally:
        if server.running():
            server.stop()
        # Hundreds of databases take half a minute to remove; no test has to wait for that.
        subprocess.run(["sh", "-c", 'rm -rf "$0" < /dev/null > /dev/null 2>&1 &', str(folder)], check=False)
