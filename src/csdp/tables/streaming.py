"""Spark Structured Streaming: micro-batches of readings, stored for their ages, published tick by tick by the gate.

Ticks, lateness and watermark are those of `csdp.clock`, as for every stream. The readings that later ticks need are
stored next to Spark's checkpoint before anything is published, as a function of what the previous batch stored and of
the micro-batch. So a batch that Spark runs again computes the same, and the ledger, which knows every charged tick,
returns what was published: nothing is charged or drawn twice.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Floats, Indices
from csdp.clock import TIME_LIMIT, Clock, Mark, Time, check_time
from csdp.errors import InputError
from csdp.panel.readings import arrange_names
from csdp.publisher import Publisher, Release, Skipped
from csdp.tables import sql
from csdp.tables.engine import EngineSource
from csdp.tables.relational import RelationalEngine
from csdp.tables.spark import SparkBackend, literal_reader
from csdp.tables.sql import Domain, LongRelation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("csdp.stream")

#: Fates of a reading, as for every stream (`csdp.stream`); duplicates are accepted, and the newest is used.
FATES: Final = ("accepted", "missing", "late", "ahead", "undated", "unknown", "bad")
_PLACED = "fate string, tick bigint, idx int, time double, st smallint"
_STORED = "tick bigint, idx int, time double, st smallint"
#: Values of `idx` of stored rows that are no readings: the mark of the clock, and the number of the micro-batch.
_MARK, _NUMBER = -1, -2
_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double"}


@dataclass(frozen=True)
class StreamResult:
    """Result of one micro-batch: its number, the mark of the clock, counts of its readings by fate, and the ticks."""

    number: int
    mark: Mark | None
    fates: Mapping[str, int]
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...]


def publish_stream(
    readings: DataFrame,
    publisher: Publisher,
    *,
    clock: Clock,
    checkpoint: str | Path,
    names: Sequence[str] | None = None,
    every: str | None = None,
    available_now: bool = False,
    on_batch: Callable[[StreamResult], None] | None = None,
) -> StreamingQuery:
    """Start a query that publishes every tick of a stream of readings once, when it closes.

    Args:
        readings: a streaming frame (time, sequence, and value or state), such as of files or of Kafka. Times are
            timestamps, or seconds since 1970. A value that is not declared is replaced by the nearest declared one.
        publisher: the gate, made with on_refusal="skip", times="wall", and with the clock's step and origin as
            time_step and time_origin. It must stay open while the query runs; its wall clock is the stream's.
        clock: the grid of ticks and its lateness, as for every other stream. A live stream is always compared with
            the wall clock; recorded readings are published with `csdp.tables.open_table`.
        checkpoint: a private folder that driver and workers reach; it holds the states that the ages need.
        names: of the sequences in the stream, in the order of the chain; by default the chain's own.
        every: interval of micro-batches, such as "10 seconds"; by default each starts when the last is done.
        available_now: stop after the readings that are available now.
        on_batch: called after every micro-batch, also of one that is run again; releases may then come twice.

    Formal guarantee: that of the publisher. Whichever process is killed, and however often a micro-batch runs again, no
    tick is charged or published twice; ticks that were charged when the driver died are lost. Which ticks have an
    output depends on times and on which readings are missing, never on a value.
    """
    plan = publisher.plan
    if not plan.query.of_states:
        raise InputError(
            f"plan: {plan.query.name} given; a stream of Spark keeps states so far. Publish the query of states, or "
            "readings with csdp.stream or csdp.tables.open_table"
        )
    publisher.tick_times.check_clock(clock)
    if clock.times != "wall":
        raise InputError(
            f"clock: times {clock.times!r} given; a live stream needs 'wall'. Publish recorded readings with "
            "csdp.tables.open_table"
        )
    order = arrange_names(plan.model.names if names is None else names, plan.model.names)
    if not readings.isStreaming:
        raise InputError("readings: a frame that is no stream given; publish a table with csdp.tables.open_table")
    if every is not None and available_now:
        raise InputError("every and available_now given; keep one of them")
    value = _value_column(readings)
    folder = str(checkpoint)
    if "://" not in folder:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = str(Path(folder).resolve())
        Path(folder, "kept").mkdir(mode=0o700, exist_ok=True)  # Spark itself would make it readable by others
    batches = _BatchPublisher(readings, publisher, clock, f"{folder}/kept", order, value, on_batch)
    writer = readings.writeStream.foreachBatch(batches.process).option("checkpointLocation", f"{folder}/spark")
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    return writer.start()


def _value_column(readings: DataFrame) -> str:
    """Check the columns, and return the name of the column of readings."""
    kinds = {name.lower(): kind for name, kind in readings.dtypes}
    for name in ("time", "sequence"):
        if name not in kinds:
            raise InputError(f"readings: no column {name!r}; time, sequence, and value or state expected")
    if ("value" in kinds) == ("state" in kinds):
        raise InputError("readings: one column 'value' or 'state' expected")
    value = "value" if "value" in kinds else "state"
    if kinds["time"] not in {*_NUMBERS, "timestamp"}:
        raise InputError(f"readings: column 'time' holds {kinds['time']}; numbers or timestamps expected")
    if kinds[value] not in _NUMBERS and not kinds[value].startswith("decimal"):
        raise InputError(f"readings: column {value!r} holds {kinds[value]}; numbers expected")
    return value


@dataclass(frozen=True, eq=False)
class ReadingPlacer:
    """Assigns fate, tick and state to readings (idx, time, value, gap), in the tasks that hold them."""

    clock: Clock
    mark: Mark | None
    limit: Time
    levels: Floats  #: values of the states in ascending order, (1, m) or (s, m)
    order: Indices  #: the states that have these values

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches (fate, tick, idx, time, st)."""
        import pyarrow as pa

        for batch in batches:
            idx, time, value, gap = (
                batch.column(name).to_numpy(zero_copy_only=False) for name in ("idx", "time", "value", "gap")
            )
            timed = np.abs(time) <= TIME_LIMIT  # False for NaN
            ticks, fates = self.clock.judge_times(self.mark, np.where(timed, time, 0.0), limit=self.limit)
            fates = fates.astype("<U9")
            fates[~timed] = "bad"
            fates[idx < 0] = "unknown"
            # The clock decides before the value is read: which ticks close must not depend on values.
            in_time = fates == "open"
            usable = in_time & np.isfinite(value)
            fates[in_time] = np.where(gap[in_time], "missing", np.where(usable[in_time], "accepted", "bad value"))
            columns = [pa.array(fates.tolist(), pa.string()), pa.array(ticks), pa.array(idx.astype(np.int32))]
            columns += [pa.array(time), pa.array(self._states(idx, value, usable))]
            yield pa.RecordBatch.from_arrays(columns, names=["fate", "tick", "idx", "time", "st"])

    def _states(self, idx: npt.NDArray[Any], value: npt.NDArray[Any], usable: Bools) -> npt.NDArray[np.int16]:
        """The state whose value is nearest; -1 where there is none."""
        states = np.full(value.size, -1, dtype=np.int16)
        row = idx[usable] if len(self.levels) > 1 else np.zeros(int(usable.sum()), dtype=np.intp)
        middle = (self.levels[:, 1:] + self.levels[:, :-1]) / 2
        place = (middle[row] < value[usable][:, None]).sum(axis=1)
        states[usable] = self.order[row, place]
        return states

    def __repr__(self) -> str:
        return f"<ReadingPlacer after {self.mark}>"


class _BatchPublisher:
    """Processes micro-batches, one at a time, in the thread from which Spark calls."""

    def __init__(
        self,
        readings: DataFrame,
        publisher: Publisher,
        clock: Clock,
        folder: str,
        names: tuple[str, ...],
        value: str,
        on_batch: Callable[[StreamResult], None] | None,
    ) -> None:
        import pyarrow as pa

        plan = publisher.plan
        model = plan.model
        # States stored under another plan or list of sequences mean something else.
        identity = (publisher.dataset, plan.digest, clock.step, clock.origin, names, value)
        self._folder = f"{folder}/{hashlib.sha256(repr(identity).encode()).hexdigest()[:16]}"
        self._publisher, self._clock, self._value = publisher, clock, value
        self._on_batch = on_batch
        self._reach = plan.max_age + plan.stale_limit
        values = np.arange(model.states, dtype=np.float64) if value == "state" else model.values
        table = values[None, :] if values.ndim == 1 else values
        self._order = np.argsort(table, axis=1)
        self._levels = np.take_along_axis(table, self._order, axis=1)
        self._names = pa.table({"name": list(names), "idx": np.arange(len(names), dtype=np.int32)})
        numbers = tuple(str(i) for i in range(model.sequences))
        self._domain = Domain(numbers, np.arange(model.states, dtype=np.float64), False)
        self._backend = SparkBackend(readings.sparkSession)

    def process(self, batch: DataFrame, number: int) -> None:
        """Place the readings of a micro-batch, store those that ages need, publish the ticks that it closes."""
        with self._backend.plain_errors("stream"):
            limit = self._clock.limit(self._publisher.tick_times.wall.now())
            before = self._mark_after(batch, number - 1)
            placed = self._place_readings(batch, before, limit).persist()
            try:
                corrected = self._put_back(placed, before, limit)
                if corrected != before:
                    placed.unpersist()
                    before, placed = corrected, self._place_readings(batch, corrected, limit).persist()
                fates, times = _count_fates(placed)
                closed, mark = self.advance(before, times, limit)
                self._store(placed, number, closed.start, mark, limit)
            finally:
                placed.unpersist()
            releases, skipped = self._publish(number, closed)
        if self._on_batch is not None:
            self._on_batch(StreamResult(number, mark, fates, tuple(releases), tuple(skipped)))

    # ---- placing and storing readings --------------------------------------------------------------------------------

    def _store_path(self, number: int) -> str:
        """Folder of a batch: two in turns, so that the input of the running batch stays until it ends."""
        return f"{self._folder}/{number % 2}"

    def _load_state(self, batch: DataFrame, number: int) -> DataFrame | None:
        if number < 0:
            return None
        return literal_reader(batch.sparkSession).schema(_STORED).parquet(self._store_path(number))

    def _mark_after(self, batch: DataFrame, number: int) -> Mark | None:
        """The mark after an earlier batch."""
        from pyspark.errors import AnalysisException

        try:
            stored = self._load_state(batch, number)
            rows = [] if stored is None else stored.where("idx < 0").collect()
        except AnalysisException:
            rows = []
        notes = {row.idx: row for row in rows}
        if number >= 0 and (_NUMBER not in notes or notes[_NUMBER].tick != number):
            raise InputError(
                f"checkpoint: nothing is stored after batch {number} for this dataset, plan, grid and list of "
                "sequences; use those that the checkpoint was made with, or give another checkpoint"
            )
        return Mark(check_time(notes[_MARK].time), int(notes[_MARK].tick)) if _MARK in notes else None

    def _put_back(self, placed: DataFrame, before: Mark | None, limit: Time) -> Mark | None:
        """The mark to continue from: put back if it is beyond the wall clock and most sequences are behind it.

        This happens after the wall clock was wrong. Ticks that were charged stay closed.
        """
        from pyspark.sql.functions import min as min_of

        if before is None or before.newest <= limit:
            return before
        # The oldest reading of each sequence, so that no other of this batch stays late.
        oldest = placed.where("fate = 'late'").groupBy("idx").agg(min_of("time")).collect()
        times = sorted((row[1] for row in oldest), reverse=True)
        most = self._publisher.plan.model.sequences // 2
        if len(times) <= most:
            return before
        log.warning("%s: the clock was ahead of most sequences and was put back", self._publisher.dataset)
        return self._clock.put_back(times[most], self._publisher.summary()["newest_tick"])

    def _place_readings(self, batch: DataFrame, before: Mark | None, limit: Time) -> DataFrame:
        """Rows (fate, tick, idx, time, st) of a batch; Spark looks up the names, `ReadingPlacer` does the rest."""
        from pyspark.sql.functions import col, expr, trim

        stamps = {name.lower(): kind for name, kind in batch.dtypes}["time"] == "timestamp"
        time = "unix_micros(time) / 1000000D" if stamps else "CAST(time AS DOUBLE)"
        names = batch.sparkSession.createDataFrame(self._names)
        rows = batch.select(
            trim(col("sequence").cast("string")).alias("name"),
            expr(f"coalesce({time}, CAST('NaN' AS DOUBLE)) AS time"),
            expr(f"coalesce(CAST({self._value} AS DOUBLE), CAST('NaN' AS DOUBLE)) AS value"),
            expr(f"{self._value} IS NULL AS gap"),
        )
        known = rows.join(names, "name", "left").selectExpr("coalesce(idx, -1) AS idx", "time", "value", "gap")
        placer = ReadingPlacer(self._clock, before, limit, self._levels, self._order)
        return known.mapInArrow(placer.__call__, _PLACED)

    def advance(self, before: Mark | None, times: tuple[Time, Time] | None, limit: Time) -> tuple[range, Mark | None]:
        """The ticks that a batch closes and the mark after it, from its least and greatest times."""
        mark = before
        start = None if before is None else before.closed + 1
        for time in times or ():
            mark = self._clock.observe(mark, time, limit=limit).mark
            start = mark.closed + 1 if start is None and mark is not None else start
        return range(start or 0, 0 if mark is None else mark.closed + 1), mark

    def _store(self, placed: DataFrame, number: int, first: int, mark: Mark | None, limit: Time) -> None:
        """Write the newest reading of each tick and sequence, as far back as ticks from `first` on need.

        Readings beyond the wall clock, which were stored while it was wrong, are dropped.
        """
        from pyspark.sql.functions import max as max_of
        from pyspark.sql.functions import struct

        # Of two readings of one time the stored one wins, and within a batch the least state. Any rule will do that
        # gives the same when a batch is run again.
        columns = ("tick", "idx", "time", "-st AS minus")
        rows = placed.where("fate = 'accepted'").selectExpr(*columns, "0 AS stored")
        earlier = self._load_state(placed, number - 1)
        if earlier is not None:
            rows = rows.union(earlier.where("idx >= 0").selectExpr(*columns, "1 AS stored"))
        newest = (
            rows.where(f"tick >= {first - self._reach} AND tick <= {self._clock.tick(limit)}")
            .groupBy("tick", "idx")
            .agg(max_of(struct("time", "stored", "minus")).alias("reading"))
            .selectExpr("tick", "idx", "reading.time AS time", "CAST(-reading.minus AS SMALLINT) AS st")
        )
        notes = [(number, _NUMBER, 0.0)] + ([] if mark is None else [(mark.closed, _MARK, float(mark.newest))])
        note_rows = " UNION ALL ".join(
            f"SELECT CAST({tick} AS BIGINT), {idx}, {sql.number(time)}, CAST(0 AS SMALLINT)"
            for tick, idx, time in notes
        )
        newest.union(placed.sparkSession.sql(note_rows)).write.mode("overwrite").parquet(self._store_path(number))

    # ---- publishing --------------------------------------------------------------------------------------------------

    def _publish(self, number: int, closed: range) -> tuple[list[Release], list[Skipped]]:
        releases: list[Release] = []
        skipped: list[Skipped] = []
        if closed:
            self._backend.view("stored", self._store_path(number))
            for first, last in self._stretches(closed):
                self._select_stretch(first, last, closed.stop - 1)
                table = RelationalEngine(self._backend, self._domain, step=1, once=True, by_place=True)
                batch = self._publisher.publish(EngineSource(table, self._publisher.plan, ticks=closed))
                releases += batch.releases
                skipped += batch.skipped
        return releases, skipped

    def _stretches(self, closed: range) -> Iterator[tuple[int, int]]:
        """First and last ticks of stretches of readings; gaps between them are longer than ages and staleness reach."""
        self._backend.layout = LongRelation("stream", "SELECT * FROM stored", True, "small")
        rows = self._backend.run(f"SELECT DISTINCT tick FROM stored WHERE idx >= 0 AND tick < {closed.stop}")
        ticks = np.sort(rows.column("tick").to_numpy())
        for stretch in np.split(ticks, np.flatnonzero(np.diff(ticks) > self._reach) + 1):
            if stretch.size and stretch[-1] + self._reach >= closed.start:
                yield int(stretch[0]), int(stretch[-1])

    def _select_stretch(self, first: int, last: int, closed: int) -> None:
        """Make the backend's table the readings of a stretch; its time is the tick, and it ends with the last age."""
        end = min(last + self._reach, closed)
        after = f" UNION ALL SELECT CAST({end} AS BIGINT), 0, CAST(NULL AS SMALLINT)" if end > last else ""
        relation = (
            f"SELECT tick AS time, idx AS sequence, st AS value FROM stored WHERE idx >= 0 AND tick >= {first} "
            f"AND tick <= {last}{after}"
        )
        self._backend.layout = LongRelation("stream", relation, True, "small")


def _count_fates(placed: DataFrame) -> tuple[dict[str, int], tuple[Time, Time] | None]:
    """Number of readings by fate, and the least and greatest times of the readings that move the clock."""
    from pyspark.sql.functions import count
    from pyspark.sql.functions import max as max_of
    from pyspark.sql.functions import min as min_of

    rows = placed.groupBy("fate").agg(count("*"), min_of("time"), max_of("time")).collect()
    fates: Counter[str] = Counter()
    moving = []
    for fate, number, least, greatest in rows:
        fates[fate.removesuffix(" value")] += number
        # A reading whose value is no number moves the clock like any other.
        if fate in {"accepted", "missing", "late", "bad value"}:
            moving += [least, greatest]
    times = (check_time(min(moving)), check_time(max(moving))) if moving else None
    return {fate: fates[fate] for fate in FATES if fates[fate]}, times
