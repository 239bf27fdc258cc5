"""The commands of docs/deployment.md: each is run by a test, or the page says why not."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import threading

import pytest

from csdp import CoupledChain, Mean, Plan, Publisher

from command import run_command  # isort: skip
from deployment.machine import ROOT, call, need  # isort: skip
from service.parts import write_spec  # isort: skip

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
PROGRAMS = ("csdp", "podman", "docker", "systemctl", "journalctl", "sqlite3", "pg_dump", "python3", "sh", "cp")
PLAN = Plan(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), 1, 0.5)


#: How each command of the page begins, and the test that runs it; None if no test can.
RUN_BY = {
    "python3 -m venv": "packaging/test_package.py",
    "/opt/csdp/bin/pip install": "packaging/test_package.py",
    "cp deploy/csdp.service": None,
    "systemctl": None,
    "csdp serve": "service/test_processes.py",
    "csdp serve key": "deployment/test_commands.py",
    "csdp stream": "stream/test_kill.py",
    "csdp release": "e2e/test_release_race.py",
    "csdp ledger verify": "deployment/test_commands.py",
    "podman build": "deployment/test_image.py",
    "podman run": "deployment/test_image.py",
    "sh deploy/make-secrets.sh": "deployment/test_compose.py",
    "docker compose": None,
    "sqlite3": "deployment/test_commands.py",
    "pg_dump": "deployment/test_commands.py",
}


def test_every_command_of_the_page_is_run_or_named_as_not_run():
    prose, _, said = PAGE.partition("## What was run")
    lines = re.findall(r"^ {4}(\S.*)$", prose.replace("\\\n", " "), re.MULTILINE)
    found = [part.strip() for line in lines for part in line.split("#")[0].split("&&")]
    quoted = re.findall(r"`([^`\n]+)`", prose)
    found += [one for one in quoted if one.split()[0] in PROGRAMS and one not in {"csdp", "cp"}]
    assert len(found) > 15
    assert [one for one in found if not one.startswith(tuple(RUN_BY))] == []
    assert [known for known in RUN_BY if not any(one.startswith(known) for one in found)] == []
    for known, test in RUN_BY.items():
        assert f"`{known}`" in said if test is None else (ROOT / "tests" / test).exists(), known


def run_line(line, folder):
    """Run a command of the page in a folder; its output."""
    words = shlex.split(line, comments=True)
    assert words[0] == "csdp"
    done = run_command(*words[1:], PWD=str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_specification_is_checked_and_keys_are_rotated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_spec(tmp_path).rename(tmp_path / "stream.toml")
    assert "dataset ward-7" in run_line("csdp serve --spec stream.toml --check", tmp_path)
    section = PAGE.partition("## Rotation of keys")[2].partition("\n## ")[0]
    new, listed, removed = re.findall(r"^ {4}(csdp serve key .*)$", section, re.MULTILINE)
    assert run_line(new, tmp_path).startswith("csdp_")
    [row] = re.findall(r"│ (\w{12}) │ reader │ ward-7 +│ corridor 2025 │", run_line(listed, tmp_path))
    run_line(removed.replace("0123456789ab", row), tmp_path)
    assert "reader" not in run_line("csdp serve key list", tmp_path)


@pytest.fixture
def busy():
    """Publish under a dataset until a test ends."""
    stops = []

    def begin(place):
        stop, published = threading.Event(), threading.Event()

        def publish():
            with Publisher(PLAN, dataset="ward-7", ledger=place) as publisher:
                tick = 0
                while not stop.is_set():
                    publisher.push([tick % 2, 1], time=tick)
                    tick += 1
                    if tick > 5:
                        published.set()

        thread = threading.Thread(target=publish)
        thread.start()
        stops.append((stop, thread))
        assert published.wait(60)

    yield begin
    for stop, thread in stops:
        stop.set()
        thread.join(60)


def verify(place, folder):
    """The head of the dataset, as the command of the page prints it."""
    told = json.loads(run_line(f"csdp ledger verify {shlex.quote(str(place))} --format json", folder))
    assert told["problems"] == []
    return told["heads"]["ward-7"]


def check_restored(copy, noted, folder):
    """A copy holds the head that was noted before it; a head that was noted after it is missed."""
    run_line(f"csdp ledger verify {shlex.quote(str(copy))} --dataset ward-7 --head {noted}", folder)
    later = run_command("ledger", "verify", str(copy), "--dataset", "ward-7", "--head", "0" * 64)
    assert later.returncode != 0


def test_a_backup_of_a_file_while_it_is_written(tmp_path, busy, monkeypatch):
    need("sqlite3")
    monkeypatch.chdir(tmp_path)
    busy(tmp_path / "ledger.db")
    noted = verify("ledger.db", tmp_path)
    [line] = re.findall(r"`(sqlite3 [^`]+)`", PAGE)
    call(*shlex.split(line), cwd=tmp_path)
    if (tmp_path / "ledger.db.outputs").exists():
        shutil.copytree(tmp_path / "ledger.db.outputs", tmp_path / "ledger-copy.db.outputs")
    (tmp_path / "ledger-copy.db").chmod(0o600)
    check_restored("ledger-copy.db", noted, tmp_path)


def test_a_backup_of_a_database(tmp_path, busy, postgres_server, monkeypatch):
    need("pg_dump", "psql")
    monkeypatch.chdir(tmp_path)
    place, other = postgres_server.new_database(), postgres_server.new_database()
    busy(place)
    noted = verify(place, tmp_path)
    call("pg_dump", "--file", tmp_path / "dump.sql", place)
    call("psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", tmp_path / "dump.sql", other)
    check_restored(other, noted, tmp_path)
