"""`csdp doctor`: check versions, a release into a ledger, and optional packages."""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from csdp.cli.options import FormatOption
from csdp.cli.terminal import BAD_INPUT, print_json, print_lines, print_table
from csdp.errors import CsdpError

#: The purpose of each optional extra.
_OPTIONAL = {
    "excel": "Excel files",
    "postgres": "ledgers in PostgreSQL",
    "mqtt": "streams from and to an MQTT broker",
    "service": "csdp serve",
    "spark": "tables and streams on Spark",
}

State = Literal["ok", "missing", "wrong"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: its state, what was found, and what to do if that is not enough."""

    name: str
    state: State
    found: str
    required: bool
    hint: str = ""


def doctor(
    compile_all: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the numerical loops now (about a minute), so that no first release, plan or fit waits.",
        ),
    ] = False,
    form: FormatOption = "table",
) -> None:
    """Check the installation: versions, a release into a ledger, and optional packages.

    \b
    Example:
      csdp doctor
      csdp doctor --format json

    Exit codes: 0 everything required works; 2 something required does not. Optional packages do not change the exit
    code. Nothing is sent anywhere, and files written for a check are removed.
    """
    checks = tuple(run_checks(compile_all=compile_all))
    failed = [check for check in checks if check.required and check.state != "ok"]
    if form == "json":
        print_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        marks = {"ok": "ok", "missing": "absent", "wrong": "WRONG"}
        rows = [
            (
                "MISSING" if check.required and check.state == "missing" else marks[check.state],
                check.name,
                check.found if check.state == "ok" else f"{check.found} ({check.hint})",
            )
            for check in checks
        ]
        print_table("csdp doctor", {name: {"overflow": "fold"} for name in ("", "part", "found")}, rows)
        print_lines(["Everything required works." if not failed else f"{len(failed)} required parts do not work."])
    if failed:
        raise typer.Exit(BAD_INPUT)


def run_checks(*, compile_all: bool = False) -> Iterator[CheckResult]:
    """Run every check in turn; none of them raises. `compile_all`: compile all loops first."""
    yield _check_python()
    for name, needed in sorted(_requirements("").items()):
        yield _check_package(name, needed, required=True, hint="pip install --upgrade csdp")
    if compile_all:
        yield _compile_loops()
    yield _check_ledger()
    for extra, purpose in _OPTIONAL.items():
        for name, needed in _requirements(extra).items():
            yield _check_package(name, needed, required=False, hint=f"{purpose}: pip install 'csdp[{extra}]'")


def _check_python() -> CheckResult:
    needed = _version_numbers(_package_metadata()[0])
    enough = sys.version_info[: len(needed)] >= needed
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    hint = "" if enough else f"install Python {_version_text(needed)} or later"
    return CheckResult("Python", "ok" if enough else "wrong", found, required=True, hint=hint)


def _check_package(name: str, needed: tuple[int, ...], *, required: bool, hint: str) -> CheckResult:
    """Check that a package is installed in a version that is new enough."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return CheckResult(name, "missing", "not installed", required, hint)
    if _version_numbers(version) < needed:
        return CheckResult(name, "wrong", f"{version}; {_version_text(needed)} or later is needed", required, hint)
    return CheckResult(name, "ok", version, required)


def _check_ledger() -> CheckResult:
    """Publish a release into a new ledger, and read it again from disk."""
    import sqlite3
    import tempfile

    from csdp import CoupledChain, Ledger, Mean, Plan, Publisher

    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=0, epsilon_c=1.0)
    version = f"SQLite {sqlite3.sqlite_version}"
    hint = "set TMPDIR to a writable folder on a local disk"
    try:
        with tempfile.TemporaryDirectory(prefix="csdp-doctor-") as folder:
            where = Path(folder) / "ledger.db"
            with Publisher(plan, dataset="doctor", ledger=where) as publisher:
                released = publisher.push([0], time=1)
            with Ledger.open(where, read_only=True) as book:
                problems = book.verify()
                recorded = [tuple(item.output["values"]) for item in book.published("doctor")]
    except (OSError, CsdpError) as error:
        problem = error.strerror if isinstance(error, OSError) else type(error).__name__
        return CheckResult("ledger", "wrong", f"{version}: {problem}", True, hint)
    if problems or recorded != [getattr(released, "values", None)]:
        return CheckResult("ledger", "wrong", f"{version} did not keep what was written", True, hint)
    return CheckResult("ledger", "ok", f"{version}, a release written, read again and verified", required=True)


def _compile_loops() -> CheckResult:
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
            fit(panel, public=True, ensemble=1)
            fit(panel, epsilon=1.0, states=m, ensemble=0)
            fit(panel, public=True, ensemble=0, environment="hidden", environments=2)
    return CheckResult("loops", "ok", f"compiled in {time.perf_counter() - start:.0f} s", required=False)


# ---- versions ------------------------------------------------------------------------------------------------------


def _package_metadata() -> tuple[str, list[str]]:
    """The Python version and the packages that the installed csdp requires; empty if it is not installed."""
    try:
        about = metadata.metadata("csdp")
    except metadata.PackageNotFoundError:
        return "", []
    return about["Requires-Python"] or "", metadata.requires("csdp") or []


def _requirements(extra: str) -> dict[str, tuple[int, ...]]:
    """The packages that csdp, or one of its extras, requires, with the lowest version of each."""
    lowest = {}
    for line in _package_metadata()[1]:
        text, _, marker = line.partition(";")
        of = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", text)
        if name and (of.group(1) if of else "") == extra:
            lowest[name.group()] = _version_numbers(text.partition(">=")[2])
    return lowest


def _version_numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version.

    >>> _version_numbers(">=2.0.36"), _version_numbers("1.12rc1"), _version_numbers("")
    ((2, 0, 36), (1, 12), ())
    """
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match.group().split("."))) if match else ()


def _version_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
