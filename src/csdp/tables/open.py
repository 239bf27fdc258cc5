"""Opening a table of readings for a plan: Parquet files with DuckDB or Spark, or a frame of a running Spark session.

A table is long (time, sequence, and value or state) or wide (time, one column per sequence).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import narwhals as nw

from csdp.errors import InputError, TooLargeError
from csdp.files import Scratch
from csdp.panel import InputSpec
from csdp.panel.read import check_columns, list_columns, to_spec
from csdp.plan import Plan
from csdp.tables.spark import guard_spark, lift_to_spark, open_parquet, spark_session
from csdp.tables.table import LongFrame, Table

#: Settings of an `[input]` section that Parquet files and frames have.
_SETTINGS = {"file", "names", "time", "sequence", "value", "step", "sort"}


def open_table(
    source: str | Path | InputSpec | Any,
    plan: Plan,
    *,
    engine: Literal["duckdb", "spark"] = "duckdb",
    step: int | str | None = None,
    master: str | None = None,
    memory_limit: str | None = None,
) -> Table:
    """Open a table of readings for the publisher of a plan: `publisher.publish(table)`.

    Args:
        source: a Parquet file, a folder of Parquet files, an `InputSpec` that names its columns, or a frame of a
            running Spark session (also of Spark Connect), which stays open. Rows may come in any order.
        plan: what is to be published; its chain names the sequences and their values.
        engine: "duckdb" (larger than memory) or "spark" (clusters); a frame needs none.
        step: time from one tick to the next; found from the times if None.
        master: of Spark, such as "local[2]".
        memory_limit: of DuckDB, such as "4GB"; what does not fit is spilled into a private folder.
    """
    if engine not in {"duckdb", "spark"}:
        raise InputError(f"engine: {engine!r} given; duckdb or spark. Files that fit in memory are read by read_panel")
    if master is not None and engine != "spark":
        raise InputError(f"master: {master!r} given for engine {engine!r}; it is for engine 'spark'")
    if memory_limit is not None and engine != "duckdb":
        raise InputError(f"memory_limit: {memory_limit!r} given for engine {engine!r}; it is for engine 'duckdb'")
    place, spec = to_spec(source, InputSpec(step=step))
    for name, value in spec.to_dict().items():
        if name not in _SETTINGS:
            raise InputError(f"{name}: {value!r} given; a table of an engine has typed columns, without such settings")
    stack = ExitStack()
    try:
        if not isinstance(place, str | Path):
            label, guard, lift = "frame", guard_spark, lift_to_spark(place)
            frame = _lift_frame(place)
        else:
            files = _find_files(Path(place))
            label = Path(place).name
            if engine == "spark":
                session = stack.enter_context(spark_session(master))
                guard, native = guard_spark, open_parquet(session, files, label)
                lift = lift_to_spark(native)
            else:
                connection = stack.enter_context(_connect(memory_limit))
                guard = guard_duckdb
                with guard(label):
                    native = connection.read_parquet([str(file) for file in files], hive_partitioning=False)
                lift = _lift_to(connection)
            frame = nw.from_native(native)
        long = _to_long(label, frame, spec, plan, lift, lambda: guard(label), stack.close)
        return Table(long, plan, spec.step)
    except BaseException:
        stack.close()
        raise


def _lift_frame(frame: Any) -> nw.LazyFrame[Any]:
    lifted = nw.from_native(frame, pass_through=True)
    if not isinstance(lifted, nw.LazyFrame) or not lifted.implementation.is_spark_like():
        raise InputError(
            f"source: {type(frame).__name__} given; a Parquet file or folder, or a frame of Spark. Frames in memory "
            "are read by read_panel"
        )
    return lifted


# ---- columns ---------------------------------------------------------------------------------------------------------


def _to_long(
    label: str,
    frame: nw.LazyFrame[Any],
    spec: InputSpec,
    plan: Plan,
    lift: Callable[[Any], nw.LazyFrame[Any]],
    guard: Callable[[], AbstractContextManager[None]],
    close: Callable[[], None],
) -> LongFrame:
    """The table with the columns time, sequence and value."""
    with guard():
        schema = frame.collect_schema()
    check_columns(label, schema.names())
    lower = {name.strip().lower(): name for name in schema.names()}
    time = lower.get((spec.time or "time").strip().lower())
    if time is None:
        raise InputError(
            f"{label}: no column {spec.time or 'time'!r}; found {list_columns(schema.names())}. Name that of the "
            "times: time="
        )
    sequence = lower.get((spec.sequence or "sequence").strip().lower())
    if spec.value is None and {"value", "state"} <= set(lower):
        raise InputError(f"{label}: columns 'value' and 'state' given; keep one of them")
    value = lower.get("value", lower.get("state")) if spec.value is None else lower.get(spec.value.strip().lower())
    if sequence is not None and value is not None:
        columns = [value]
        rows = frame.select(time=nw.col(time), sequence=nw.col(sequence), value=nw.col(value))
        if not schema[sequence].is_integer():
            rows = rows.with_columns(nw.col("sequence").cast(nw.String))
    else:
        columns = [name.strip() for name in plan.model.names]
        missing = [name for name in columns if name not in schema]
        if missing:
            raise InputError(
                f"{label}: no column {missing[0]!r}; the chain names {', '.join(columns[:8])}. A wide table has one "
                "column per sequence, a long one has time, sequence and value"
            )
        rows = _unpivot(frame, time, columns)
    for name in columns:
        if not (schema[name].is_numeric() or schema[name] == nw.Boolean):
            raise InputError(f"{label}: the readings hold {schema[name]}, not numbers")
    states = value is not None and sequence is not None and value.strip().lower() == "state"
    return LongFrame(label, rows, lift, guard, close, states)


def _unpivot(frame: nw.LazyFrame[Any], time: str, columns: list[str]) -> nw.LazyFrame[Any]:
    """A wide table as a long one."""
    cells = frame.select(nw.col(time).alias("time of row"), *(nw.col(name).cast(nw.Float64) for name in columns))
    if cells.implementation.is_duckdb():  # narwhals asks DuckDB's global connection, which does not know this table
        listed = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        sql = f"SELECT * FROM cells UNPIVOT INCLUDE NULLS (value FOR sequence IN ({listed}))"
        long: nw.LazyFrame[Any] = nw.from_native(cells.to_native().query("cells", sql))
    else:
        long = cells.unpivot(columns, index="time of row", variable_name="sequence", value_name="value")
    return long.rename({"time of row": "time"})


# ---- files -----------------------------------------------------------------------------------------------------------


def _find_files(path: Path) -> list[Path]:
    """The Parquet file, or those of a folder, which must have the same columns.

    A path is never a pattern, and folder names add no columns.
    """
    if set(str(path)) & set("*?[{\\"):
        raise InputError(f"{path.name}: a path with '*', '?', '[', '{{' or '\\' is a pattern for engines; rename it")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_dir():
        if path.suffix.lower() != ".parquet":
            raise InputError(
                f"{path.name}: engines read .parquet; convert the file (`duckdb -c \"COPY (FROM 'readings.csv') TO "
                "'readings.parquet'\"`), or read it in memory"
            )
        _schema(path)
        return [path.absolute()]
    files = []
    for entry in sorted(path.iterdir()):
        if entry.suffix.lower() == ".parquet" and entry.is_file() and not entry.name.startswith(("_", ".")):
            files.append(entry.absolute())
        elif entry.is_dir() or not entry.name.startswith(("_", ".")) or entry.suffix.lower() == ".parquet":
            raise InputError(
                f"{path.name}: it holds {entry.name!r}; the folder of a table may only hold .parquet files whose names "
                "do not begin with '_' or '.'. Move the others elsewhere"
            )
    if not files:
        raise InputError(f"{path.name}: a folder without .parquet files given")
    first = _schema(files[0])
    for file in files[1:]:
        if not _schema(file).equals(first):
            raise InputError(
                f"{path.name}: {file.name!r} has other columns, or columns of other kinds, than {files[0].name!r}; "
                "write all files of a folder alike"
            )
    return files


def _schema(file: Path) -> Any:
    """The columns of a Parquet file, as they are stored."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open("rb") as handle:
            return pq.read_metadata(handle).schema
    except (pa.ArrowException, OSError):
        raise InputError(f"{file.name}: not a Parquet file") from None


# ---- DuckDB ----------------------------------------------------------------------------------------------------------


@contextmanager
def _connect(memory_limit: str | None) -> Iterator[Any]:
    """A database in memory that spills into a private folder, which is removed with it."""
    import duckdb

    with Scratch() as scratch:
        # DuckDB may download nothing.
        config: dict[str, Any] = {
            "temp_directory": str(scratch.path / "spill"),
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
        }
        if memory_limit is not None:
            config["memory_limit"] = memory_limit
        try:
            connection = duckdb.connect(":memory:", config=config)
        except duckdb.Error:
            raise InputError(f"duckdb: memory_limit {memory_limit!r} given; such as '4GB'") from None
        try:
            yield connection
        finally:
            connection.close()


def _lift_to(connection: Any) -> Callable[[Any], nw.LazyFrame[Any]]:
    return lambda table: nw.from_native(connection.from_arrow(table))


@contextmanager
def guard_duckdb(label: str) -> Iterator[None]:
    """Replace errors of DuckDB, whose messages may quote readings."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException:
        raise TooLargeError(
            f"{label}: the memory limit of DuckDB is not enough, even with spilling; raise memory_limit",
            needed=float("nan"),
            limit=float("nan"),
        ) from None
    except duckdb.ConnectionException:
        raise InputError(f"{label}: the table was closed; open it again") from None
    except duckdb.Error as error:
        raise InputError(f"{label}: DuckDB cannot read it as a table of readings ({type(error).__name__})") from None
