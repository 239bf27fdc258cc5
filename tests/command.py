"""The command `csdp` in a process of its own, forked from one that has its modules loaded: a start costs no imports."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from multiprocessing import forkserver
from pathlib import Path

from waiting import until

#: Modules that commands import, many of them only when they are used.
LOADED = (
    "csdp.cli.app",
    "csdp.publisher",
    "csdp.ledger",
    "csdp.panel",
    "csdp.planning",
    "duckdb",
    "pandas",
    "pyarrow.csv",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "pydantic.type_adapter",
    "scipy.sparse.csgraph",
    "warm",
)
LONGEST = 300  # seconds that a command may take

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["command", *LOADED])


def _start_server():
    """Start what commands are forked from, unless it runs; only its environment tells it where modules of tests are."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([before] if before else [])])
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class Command:
    """`csdp ARGS` with these environment variables added, while it runs; `before()` is called in its process first."""

    def __init__(self, *args, before=None, **environment):
        self._args = args
        self._folder = tempfile.TemporaryDirectory()
        self._streams = [Path(self._folder.name, name) for name in ("stdout", "stderr")]
        given = {**os.environ, **environment}
        words = [str(arg) for arg in args]
        _start_server()
        self._process = _context.Process(target=_main, args=(words, given, os.getcwd(), self._streams, before))
        self._process.start()

    def finish(self):
        """Wait for its end; the finished process with its output as text."""
        self._process.join(LONGEST)
        if self._process.is_alive():
            self.kill()
            raise TimeoutError(f"csdp {self._args}: not done after {LONGEST} s")
        told = [path.read_text() if path.exists() else "" for path in self._streams]
        self._folder.cleanup()
        return subprocess.CompletedProcess(self._args, self._process.exitcode, *told)

    def first_complaint(self):
        """The first line on its standard error, as soon as it is there."""

        def complained():
            assert self._process.is_alive()
            return self._streams[1].exists() and "\n" in self._streams[1].read_text()

        until(complained, LONGEST)
        return self._streams[1].read_text().splitlines()[0]

    def kill(self):
        """End it at once, if it has not ended."""
        self._process.kill()
        self._process.join(LONGEST)
        self._folder.cleanup()


def run_command(*args, **environment):
    """Run `csdp ARGS` with these environment variables added; the finished process with its output as text."""
    return Command(*args, **environment).finish()


def _main(args, environment, folder, streams, before):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in enumerate(streams, start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["csdp", *args]
    warnings.simplefilter("error", UserWarning)
    from csdp.cli import main

    if before is not None:
        before()
    main()
