"""`python tests/without_posix.py FOLDER`: a chain, a plan, a release and a report, without what Windows does not have.

What the standard library and other packages bring is imported first; they know the system that they run on. Then every
module and name is taken away that typeshed says Windows does not have, and csdp is imported and used.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import os
import pkgutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

#: Modules that Windows has not.
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
#: Modules of which Windows has a part, and the stub that says which.
PARTLY = {"os": "os/__init__", "signal": "signal", "time": "time", "asyncio": "asyncio/streams"}
COMMANDS = """
chain new --sequences 2 --self-coupling 0.75 --p 0.1 --q 0.2 -o chain.json
chain simulate chain.json --steps 50 --seed 1 -o readings.csv
fit readings.csv --public -o fitted.json
plan chain.json --age 1 --epsilon-c 0.1 -o plan.json
release readings.csv --plan plan.json --dataset a --ledger ledger.db --budget 0.5 --anyway -o a.csv
ledger verify ledger.db
doctor
"""


def posix_names(module, platform="win32"):
    """What a module of the standard library has on Linux and not on another platform."""
    import mypy

    stub = Path(mypy.__file__).parent / "typeshed" / "stdlib" / f"{PARTLY[module]}.pyi"
    body = ast.parse(stub.read_text(encoding="utf-8")).body
    return set(_list_names(body, "linux")) - set(_list_names(body, platform))


def _list_names(body, platform):
    for node in body:
        if isinstance(node, ast.If):
            system = SimpleNamespace(platform=platform, version_info=sys.version_info)
            holds = eval(compile(ast.Expression(node.test), "stub", "eval"), {"sys": system})
            yield from _list_names(node.body if holds else node.orelse, platform)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets)


def take_away():
    """Make this process as poor as one on Windows."""
    packages = (
        "concurrent.futures.process cryptography.hazmat.primitives.ciphers duckdb fastapi logging.handlers"
        " matplotlib.pyplot narwhals numba paho.mqtt.client portalocker prometheus_client pyarrow.compute pyarrow.csv"
        " pyarrow.parquet rich.progress scipy.optimize scipy.sparse.csgraph scipy.stats sqlalchemy.dialects.sqlite"
        " sqlite3 subprocess typer.testing uvicorn zipfile"
    )
    for name in packages.split():
        importlib.import_module(name)
    for module in (os, signal, time, asyncio):
        for name in posix_names(module.__name__):
            if hasattr(module, name):
                delattr(module, name)
    sys.modules.update(dict.fromkeys(POSIX_MODULES))
    tempfile._O_TMPFILE_WORKS = False


def main(folder):
    """Import all of csdp, and run the commands."""
    take_away()
    import csdp

    for module in pkgutil.walk_packages(csdp.__path__, "csdp."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from typer.testing import CliRunner

    from csdp.cli import app

    os.chdir(folder)
    for command in COMMANDS.strip().splitlines():
        result = CliRunner().invoke(app, command.split())
        if result.exit_code:
            raise SystemExit(f"csdp {command}: {result.output}") from result.exception


if __name__ == "__main__":
    main(sys.argv[1])
