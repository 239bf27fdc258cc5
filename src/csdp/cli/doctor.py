"""`csdp doctor`: check what a release needs, and which optional packages are installed."""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from csdp.cli.options import FormatOption
from csdp.cli.terminal import BAD_INPUT, print_json, print_lines, print_table, progress_bar
from csdp.errors import CsdpError, InputError

#: Draws of the noise check, and how many standard errors their mean size may be off (false alarm below 1e-11).
_DRAWS, _SIGMAS, _SCALE = 200_000, 7.0, 1000.0
#: Optional extras: their purpose, and the packages that they need, as distribution -> module.
_OPTIONAL: dict[str, tuple[str, dict[str, str]]] = {
    "postgres": ("ledgers in PostgreSQL", {"psycopg": "psycopg"}),
    "mqtt": ("streams from and to an MQTT broker", {"paho-mqtt": "paho.mqtt"}),
    "service": ("csdp serve", {"fastapi": "fastapi", "uvicorn": "uvicorn", "prometheus-client": "prometheus_client"}),
    "spark": ("tables and streams on Spark", {"pyspark": "pyspark"}),
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
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the future ledger; a durable write is tested in it.",
            show_default="a temporary folder",
        ),
    ] = None,
    compile_all: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the numerical loops now (about a minute), so that no first release, plan or fit waits.",
        ),
    ] = False,
    form: FormatOption = "table",
) -> None:
    """Check the installation: versions, cipher, noise, ledger, and optional packages.

    \b
    Example:
      csdp doctor
      csdp doctor --format json

    Exit codes: 0 everything required works; 2 something required does not. Optional packages do not change the exit
    code. Nothing is sent anywhere, and files written for a check are removed.
    """
    if folder is not None and not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give one that exists")
    with progress_bar() as progress:
        checks = tuple(run_checks(folder, progress, compile_all=compile_all))
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
        wrong = (*failed, *(check for check in checks if not check.required and check.state == "wrong"))
        print_lines(f"{check.name}: {check.hint}" for check in wrong)
        print_lines(["Everything required works." if not failed else f"{len(failed)} required parts do not work."])
    if failed:
        raise typer.Exit(BAD_INPUT)


def run_checks(
    folder: str | None = None, progress: Callable[[str, int, int], None] | None = None, *, compile_all: bool = False
) -> Iterator[CheckResult]:
    """Run every check in turn; none of them raises. `compile_all`: compile all loops first."""
    steps: list[Callable[[], Iterator[CheckResult]]] = [
        _check_python,
        _check_packages,
        _check_cipher,
        _check_noise,
        *([_compile_loops] if compile_all else []),
        _check_compiled_code,
        lambda: _check_ledger(folder),
        _check_extras,
    ]
    for done, step in enumerate(steps, start=1):
        yield from step()
        if progress is not None:
            progress("checking", done, len(steps))


# ---- required ------------------------------------------------------------------------------------------------------


def _check_python() -> Iterator[CheckResult]:
    needed = _version_numbers(_package_metadata()[0])
    enough = sys.version_info[: len(needed)] >= needed
    yield CheckResult(
        "Python",
        "ok" if enough else "wrong",
        f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        required=True,
        hint="" if enough else f"install Python {_version_text(needed)} or later",
    )


def _check_packages() -> Iterator[CheckResult]:
    if not _package_metadata()[0]:
        hint = "package versions cannot be checked; pip install it"
        yield CheckResult("csdp", "wrong", "runs from source, not installed", required=False, hint=hint)
    for name, needed in sorted(_requirements("").items()):
        yield _check_package(name, needed, required=True, hint="pip install --upgrade csdp")


def _check_package(name: str, needed: tuple[int, ...], *, required: bool, hint: str) -> CheckResult:
    """Check that a package is installed in a version that is new enough."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return CheckResult(name, "missing", "not installed", required, hint)
    if _version_numbers(version) < needed:
        return CheckResult(name, "wrong", f"{version}; {_version_text(needed)} or later is needed", required, hint)
    return CheckResult(name, "ok", version, required)


def _check_cipher() -> Iterator[CheckResult]:
    """Compare AES-256 in counter mode with the first block of NIST SP 800-38A, F.5.5."""
    import numpy as np

    from csdp.noise.randomness import Words

    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    block = bytes.fromhex("0bdf7df1591716335e9a8b15c860c502")  # the key stream of the counter block of the standard
    words = np.empty(2, np.uint64)
    Words(key, int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)).fill(words)
    if words.tobytes() != block:
        yield CheckResult("cipher", "wrong", "AES-256-CTR differs from the standard", True, "reinstall cryptography")
        return
    yield CheckResult("cipher", "ok", "AES-256-CTR matches the standard", required=True)


def _check_noise() -> Iterator[CheckResult]:
    """Compare the mean size of the noise with its expectation; the check rejects a scale that is 3 % off."""
    import numpy as np

    from csdp.noise import Randomness, two_sided_geometric, variance

    began = time.perf_counter()
    drawn = np.abs(two_sided_geometric(_SCALE, _DRAWS, Randomness.secure()))
    taken = time.perf_counter() - began
    expected = 1.0 / np.sinh(1.0 / _SCALE)
    spread = np.sqrt((variance(_SCALE) - expected**2) / _DRAWS)
    away = abs(float(drawn.mean()) - expected) / spread
    if away > _SIGMAS:
        problem = f"mean size {drawn.mean():.1f} where {expected:.1f} is expected, {away:.0f} standard errors away"
        yield CheckResult(
            "noise", "wrong", problem, True, "do not publish; reinstall csdp, numpy and numba, and report this"
        )
        return
    yield CheckResult("noise", "ok", f"{_DRAWS:,} draws of the right size, {taken:.2f} s with start-up", required=True)


def _check_ledger(folder: str | None) -> Iterator[CheckResult]:
    """Publish a release into a new ledger, and read it again from disk."""
    import sqlite3
    import tempfile

    from csdp import CoupledChain, Ledger, Mean, Plan, Publisher

    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=0, epsilon_c=1.0)
    hint = "choose a writable folder on a local disk with --folder"
    try:
        with tempfile.TemporaryDirectory(prefix="csdp-doctor-", dir=folder) as inside:
            where = Path(inside) / "ledger.db"
            began = time.perf_counter()
            with Publisher(plan, dataset="doctor", ledger=where) as publisher:
                released = publisher.push([0], time=1)
            taken = time.perf_counter() - began
            with Ledger.open(where, read_only=True) as book:
                problems = book.verify()
                recorded = [tuple(item.output["values"]) for item in book.published("doctor")]
    except (OSError, CsdpError) as error:
        problem = error.strerror if isinstance(error, OSError) else type(error).__name__
        yield CheckResult("ledger", "wrong", f"SQLite {sqlite3.sqlite_version}: {problem}", True, hint)
        return
    good = not problems and recorded == [getattr(released, "values", None)]
    if good:
        text = f"SQLite {sqlite3.sqlite_version}, a release written, read again and verified in {taken:.2f} s"
        yield CheckResult("ledger", "ok", text, required=True)
    else:
        yield CheckResult(
            "ledger", "wrong", f"SQLite {sqlite3.sqlite_version} did not keep what was written", True, hint
        )


# ---- optional ------------------------------------------------------------------------------------------------------


def _check_compiled_code() -> Iterator[CheckResult]:
    """Check that compiled code can be cached between starts."""
    import os

    import csdp.noise

    configured = os.environ.get("NUMBA_CACHE_DIR")
    default = Path(csdp.noise.__file__).parent / "__pycache__"
    folder = Path(configured) if configured else default if default.is_dir() else default.parent
    if folder.is_dir() and os.access(folder, os.W_OK):
        yield CheckResult("compiled code", "ok", "cached between starts", required=False)
        return
    hint = "every start compiles again for some seconds; set NUMBA_CACHE_DIR to a writable folder"
    yield CheckResult("compiled code", "wrong", "cannot be cached", False, hint)


def _compile_loops() -> Iterator[CheckResult]:
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
    prepare_draws(_DRAWS)
    two_sided_geometric(_SCALE, 1, Randomness.secure())
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
    yield CheckResult("loops", "ok", f"compiled in {time.perf_counter() - start:.0f} s", required=False)


def _check_extras() -> Iterator[CheckResult]:
    for extra, (purpose, needs) in _OPTIONAL.items():
        versions, hint = _requirements(extra), f"{purpose}: pip install 'csdp[{extra}]'"
        for name, module in needs.items():
            check = _check_package(name, versions.get(name, ()), required=False, hint=hint)
            yield check if check.state != "ok" else _check_import(check, module)


def _check_import(check: CheckResult, module: str) -> CheckResult:
    """Check that an installed package can be imported; it cannot if, say, a system library is missing."""
    from importlib import import_module

    try:
        import_module(module)
    except ImportError as error:
        hint = f"installed, but cannot be imported ({type(error).__name__}); install it again"
        return CheckResult(check.name, "wrong", check.found, required=False, hint=hint)
    return check


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
