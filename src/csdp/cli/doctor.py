"""`csdp doctor`: check the installed packages, and a release into a ledger."""

from __future__ import annotations

import platform
import re
import time
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from csdp.cli.terminal import BAD_INPUT, print_lines, print_table

#: The purpose of each optional extra.
_OPTIONAL = {
    "excel": "Excel files",
    "postgres": "ledgers in PostgreSQL",
    "mqtt": "streams from and to an MQTT broker",
    "service": "csdp serve",
    "spark": "tables and streams on Spark",
}

#: A line of a table of checks: its state, the part, and what was found.
Row = tuple[str, str, str]


def doctor(
    compile_all: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the numerical loops now (about a minute), so that no first release, plan or fit waits.",
        ),
    ] = False,
) -> None:
    """Check the installation: versions, a release into a ledger, and optional packages.

    \b
    Example:
      csdp doctor

    Exit codes: 0 everything required works; 2 something required does not. Optional packages do not change the exit
    code. Nothing is sent anywhere, and files written for a check are removed.
    """
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    rows = [("ok", "Python", python), *_check_packages()]
    if compile_all:
        rows.append(_compile_loops())
    rows.append(_check_ledger())
    print_table("csdp doctor", ("", "part", "found"), rows)
    failed = sum(state in {"MISSING", "WRONG"} for state, _, _ in rows)
    print_lines([f"{failed} required parts do not work." if failed else "Everything required works."])
    if failed:
        raise typer.Exit(BAD_INPUT)


def _check_packages() -> list[Row]:
    """Check that every required and optional package is installed."""
    rows = []
    for line in metadata.requires("csdp") or ():
        name = re.split(r"[^\w.-]", line)[0]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        try:
            rows.append(("ok", name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            if extra is None:
                rows.append(("MISSING", name, "not installed (pip install --upgrade csdp)"))
            elif extra[1] in _OPTIONAL:
                found = f"not installed ({_OPTIONAL[extra[1]]}: pip install 'csdp[{extra[1]}]')"
                rows.append(("absent", name, found))
    return rows


def _check_ledger() -> Row:
    """Publish a release into a new ledger, and read it again from disk."""
    import sqlite3
    import tempfile

    from csdp import CoupledChain, Ledger, Mean, Plan, Publisher

    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=0, epsilon_c=1.0)
    with tempfile.TemporaryDirectory(prefix="csdp-doctor-") as folder:
        where = Path(folder) / "ledger.db"
        with Publisher(plan, dataset="doctor", ledger=where) as publisher:
            publisher.push([0], time=1)
        with Ledger.open(where, read_only=True) as book:
            kept = not book.verify() and book.summary("doctor").committed == 1
    version = f"SQLite {sqlite3.sqlite_version}"
    if not kept:
        return "WRONG", "ledger", f"{version} did not keep what was written; set TMPDIR to a folder on a local disk"
    return "ok", "ledger", f"{version}, a release written, read again and verified"


def _compile_loops() -> Row:
    """Compile the loops of all common kinds of work by a small piece of each; the compiled code is cached."""
    import warnings

    import numpy as np

    from csdp.accountant import Accountant
    from csdp.chain import CoupledChain, certified_model
    from csdp.fitting.fit import fit
    from csdp.noise import Randomness, prepare_draws, two_sided_geometric
    from csdp.panel import Panel
    from csdp.plan import Plan
    from csdp.query import Mean

    start = time.perf_counter()
    prepare_draws(200_000)
    two_sided_geometric(1000.0, 1, Randomness.secure())
    coupling = {(i, k): 0.8 if i == k else 0.2 for i in range(12) for k in (i, (i + 1) % 12)}
    moves = {m: np.full((m, m), 0.2 / m) + 0.8 * np.eye(m) for m in (2, 3, 9)}  # of many states others are used
    rings = {m: CoupledChain(coupling, move, direction="backward") for m, move in moves.items()}
    for ring in rings.values():
        Accountant(Plan(ring, Mean(), 1, 0.5)).limit()
    for m in (2, 3):
        pair = CoupledChain([[0.8, 0.2], [0.2, 0.8]], moves[m])
        Accountant(Plan(pair, Mean(), 1, 0.5)).limit()
        panel, many = (Panel.from_states(chain.simulate(200, seed=1)) for chain in (pair, rings[m]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of so few readings
            fitted = fit(many, public=True, direction="backward", neighbours=1)
            Accountant(Plan(certified_model(fitted), Mean(), 1, 0.5)).limit()
            fit(panel, public=True)
            fit(panel, epsilon=1.0, states=m)
            fit(panel, public=True, environment="hidden", environments=2)
    return "ok", "loops", f"compiled in {time.perf_counter() - start:.0f} s"
