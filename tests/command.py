"""The command `csdp` in a process of its own, forked from one that has its modules loaded: a start costs no imports."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

#: Modules that commands import, many of them only when they are used.
LOADED = (
    "csdp.cli.app",
    "csdp.publisher",
    "csdp.ledger",
    "csdp.panel",
    "pandas",
    "pyarrow.parquet",
    "scipy.sparse.csgraph",
)
LONGEST = 300  # seconds that a command may take

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["command", *LOADED])


def run_command(*args, **environment):
    """Run `csdp ARGS` with these environment variables added; the finished process with its output as text."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdout", "stderr")]
        given = {**os.environ, **environment}
        process = _context.Process(target=_main, args=([str(arg) for arg in args], given, os.getcwd(), streams))
        process.start()
        process.join(LONGEST)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"csdp {args}: not done after {LONGEST} s")
        return subprocess.CompletedProcess(args, process.exitcode, *(path.read_text() for path in streams))


def _main(args, environment, folder, streams):
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

    main()
