"""Readings stay nowhere: not in a log, not in a message, not on the disk of a process that was killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from csdp.errors import InputError
from csdp.files import PREFIX, Scratch, write_privately
from csdp.panel import read_panel

from tables.tables import ALIKE, NAMES, rows, states, write  # isort: skip

SECRET = "37.062541"

#: Holds a table open; Spark in one small session.
HOLDER = """
import sys, time
from csdp import Mean, Plan
from csdp.tables import open_table
from csdp.tables.spark import spark_session
folder, engine, path = sys.argv[1:]
sys.path.insert(0, folder)
from tables import SPARK, chain

plan = Plan(chain(), Mean(), 2, 1.0)
if engine == "spark":
    running = spark_session("local[1]", more=SPARK)
    path = running.__enter__().read.parquet(path)
table = open_table(path, plan)
table.ticks
print("ready", flush=True)
time.sleep(600)
"""


def holder(path, temporary, engine="duckdb"):
    """A process that holds a table open."""
    command = [sys.executable, "-c", HOLDER, str(Path(__file__).parent), engine, str(path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdout.close()


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def test_a_killed_duckdb_leaves_no_readings_and_the_next_run_cleans_up(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    path = write(tmp_path / "t.parquet", rows(states(gaps=False), ALIKE))
    process, other = holder(path, temporary), holder(path, temporary)
    try:
        folders = [folder for folder in temporary.iterdir() if folder.name.startswith(PREFIX)]
        assert len(folders) == 2
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
        assert {file.name for file in files_in(temporary)} == {".owner"}
        kill(process)
        assert {file.name for file in files_in(temporary)} == {".owner"}
        third = holder(path, temporary)
        left = set(temporary.iterdir())
        assert len(left) == 2  # of the two that live
        assert len(left & set(folders)) == 1
        kill(third)
    finally:
        for one in (process, other):
            kill(one) if one.poll() is None else None
    with Scratch(temporary):
        assert len(list(temporary.iterdir())) == 1
    assert not list(temporary.iterdir())


class TestScratch:
    def test_a_live_one_is_left_alone_and_a_dead_one_goes(self, tmp_path):
        live = Scratch(tmp_path)
        (live.path / "readings").write_text(SECRET)
        script = "import os, sys; from csdp.files import Scratch; s = Scratch(sys.argv[1]); "
        script += "(s.path / 'a').mkdir(); (s.path / 'a' / 'readings').write_text('x'); os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=100)
        assert len(list(tmp_path.iterdir())) == 2
        with Scratch(tmp_path) as another:
            assert set(tmp_path.iterdir()) == {live.path, another.path}
        assert (live.path / "readings").read_text() == SECRET
        live.close()
        assert not list(tmp_path.iterdir())

    def test_what_is_not_ours_is_left_alone(self, tmp_path):
        (tmp_path / f"{PREFIX}file").write_text("x")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / ".owner").write_text("1")
        (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "elsewhere")
        unmarked = tmp_path / f"{PREFIX}unmarked"
        unmarked.mkdir()
        (unmarked / "x").write_text("x")
        (tmp_path / f"{PREFIX}empty").mkdir()
        with Scratch(tmp_path):
            pass
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {f"{PREFIX}file", "elsewhere", f"{PREFIX}link", f"{PREFIX}unmarked"}
        assert (tmp_path / "elsewhere" / ".owner").exists()

    def test_a_forked_process_does_not_remove_it(self, tmp_path):
        script = """
import os, sys
from csdp.files import Scratch
one = Scratch(sys.argv[1])
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
assert one.path.is_dir()
"""
        assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=100).returncode == 0
        assert not list(tmp_path.iterdir())


def test_the_part_of_a_killed_writer_goes(tmp_path):
    script = f"""
import os, sys
from pathlib import Path
from csdp.files import write_privately
os.fsync = lambda handle: os.kill(os.getpid(), 9)
write_privately(Path(sys.argv[1]), b"{SECRET}")
"""
    path, other = tmp_path / "state", tmp_path / ".state.old.0123456789abcdef.new"
    other.write_bytes(b"of another file")
    subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=100)
    [left] = set(tmp_path.iterdir()) - {other}
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    write_privately(path, b"new")
    assert set(tmp_path.iterdir()) == {path, other}
    assert path.read_bytes() == b"new"


BAD = {
    "cells": f"0,n0,{SECRET},9\n",
    "few": f"0,{SECRET}\n",
    "quote": f'0,n0,"{SECRET}\n',
    "word": f"0,n0,x{SECRET}\n",
    "value": f"0,n0,{SECRET}\n",
    "time": f"x{SECRET},n0,0\n",
    "bytes": f"0,n0,{SECRET}\udcff\n",
}


@pytest.mark.parametrize("bad", BAD)
def test_no_reading_of_a_bad_file_is_told(tmp_path, bad, capfd):
    good = "".join(f"{t},{name},0\n" for t in range(3) for name in NAMES)
    path = tmp_path / "bad.csv"
    path.write_bytes(f"time,sequence,value\n{BAD[bad]}{good}".encode(errors="surrogateescape"))
    with pytest.raises(InputError) as refused:
        read_panel(path, names=NAMES, values=ALIKE)
    assert SECRET not in str(refused.value) + "".join(capfd.readouterr())


@pytest.mark.slow
def test_a_killed_spark_leaves_no_readings(tmp_path):
    """The Java process ends after its driver and removes what it wrote; the next run removes the rest."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    path = write(tmp_path / "t.parquet", rows(states(gaps=False), ALIKE))
    process = holder(path, temporary, "spark")
    [folder] = [folder for folder in temporary.iterdir() if folder.name.startswith(PREFIX)]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(one.name.startswith("blockmgr") for one in folder.iterdir())
    kill(process)
    deadline = time.monotonic() + 60
    while True:
        with Scratch(temporary):
            pass
        if not any(one.name.startswith((PREFIX, "blockmgr", "spark-")) for one in temporary.iterdir()):
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
