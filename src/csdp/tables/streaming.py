"""Spark Structured Streaming: micro-batches of readings, kept for their ages, published tick by tick through the gate.

Ticks, lateness and watermark are those of `csdp.clock`, the clock of every stream. What the next ticks need is written
beside Spark's checkpoint as a function of what was kept before and of the micro-batch, before anything is published.
So a batch that Spark runs again finds what it found the first time, and the ledger, which knows every tick that was
charged, answers with what was published: nothing is charged or drawn twice.
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

from csdp.clock import TIME_LIMIT, Clock, Mark, Time, check_time
from csdp.errors import InputError
from csdp.panel.names import arrange_names
from csdp.publisher import Publisher, Release, Skipped
from csdp.tables import sql
from csdp.tables.engine import EngineSource
from csdp.tables.relational import RelationalEngine
from csdp.tables.spark import SparkBackend, literal_reader
from csdp.tables.sql import Domain, Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("csdp.stream")

#: What became of a reading, as for every stream (`csdp.stream`); duplicates are accepted, the newest counts.
FATES: Final = ("accepted", "missing", "late", "ahead", "undated", "unknown", "bad")
_PLACED = "fate string, tick bigint, idx int, time double, st smallint"
_KEPT = "tick bigint, idx int, time double, st smallint"
#: Rows that are no readings: the mark of the clock, and the number of the micro-batch.
_MARK, _NUMBER = -1, -2
_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double"}


@dataclass(frozen=True)
class Taken:
    """What one micro-batch did: its number, how far the clock is, what became of its readings, and the ticks."""

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
    on_batch: Callable[[Taken], None] | None = None,
) -> StreamingQuery:
    """Start a query that publishes every tick of a stream of readings once, when it closes.

    Args:
        readings: a streaming frame (time, sequence, and value or state), such as of files or of Kafka. Times are
            timestamps, or seconds since 1970. A value that is not declared goes to the nearest.
        publisher: the gate, made with on_refusal="skip", times="wall", and with the clock's step and origin as
            time_step and time_origin. It must stay open while the query runs; its wall clock is the stream's.
        clock: the grid of ticks and its lateness, the same as of every other stream. A live stream is always held
            against the wall clock; what was recorded is published with `csdp.tables.open_table`.
        checkpoint: a private folder that driver and workers reach; it holds the states that the ages need.
        names: of the sequences in the stream, in the order of the chain; by default the chain's own.
        every: how often a micro-batch is made, such as "10 seconds"; by default as soon as the last is done.
        available_now: stop after what is there now.
        on_batch: told of every micro-batch, also of one that is run again; releases may then come a second time.

    Formal guarantee: that of the publisher. Whatever is killed, and however often a micro-batch is run again, no tick
    is charged or published twice; ticks that were charged when the driver died are lost. Which ticks have an output
    depends on times and on which readings are missing, never on a value.
    """
    plan = publisher.plan
    publisher.tick_times.check_clock(clock)
    if clock.times != "wall":
        raise InputError(
            f"clock: times {clock.times!r} given; a live stream needs 'wall', and what was recorded is published with "
            "csdp.tables.open_table"
        )
    called = arrange_names(plan.model.names if names is None else names, plan.model.names)
    if not readings.isStreaming:
        raise InputError("readings: a frame that is no stream given; publish it with csdp.tables.open_table")
    if every is not None and available_now:
        raise InputError("every and available_now given; keep one of them")
    kind = _value_column(readings)
    folder = str(checkpoint)
    if "://" not in folder:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = str(Path(folder).resolve())
        Path(folder, "kept").mkdir(mode=0o700, exist_ok=True)  # Spark itself would let others read it
    batches = _Batches(readings, publisher, clock, f"{folder}/kept", called, kind, on_batch)
    writer = readings.writeStream.foreachBatch(batches.take).option("checkpointLocation", f"{folder}/spark")
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    return writer.start()


def _value_column(readings: DataFrame) -> str:
    """The column of readings, once all columns are what they should be."""
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
class Placing:
    """Gives readings (idx, time, value, gap) their fate, tick and state, in the tasks that hold them."""

    clock: Clock
    mark: Mark | None
    limit: Time
    levels: npt.NDArray[np.float64]  #: values of the states in ascending order, (1, m) or (s, m)
    order: npt.NDArray[np.intp]  #: the states of these values

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches (fate, tick, idx, time, st)."""
        import pyarrow as pa

        for batch in batches:
            idx, time, value, gap = (
                batch.column(name).to_numpy(zero_copy_only=False) for name in ("idx", "time", "value", "gap")
            )
            timed = np.abs(time) <= TIME_LIMIT  # False for what is no number
            ticks, fates = self.clock.judge_times(self.mark, np.where(timed, time, 0.0), limit=self.limit)
            fates = fates.astype("<U9")
            fates[~timed] = "bad"
            fates[idx < 0] = "unknown"
            # The clock has judged before a value is looked at: what counts must not depend on what a reading holds.
            counts = fates == "open"
            usable = counts & np.isfinite(value)
            fates[counts] = np.where(gap[counts], "missing", np.where(usable[counts], "accepted", "bad value"))
            columns = [pa.array(fates.tolist(), pa.string()), pa.array(ticks), pa.array(idx.astype(np.int32))]
            columns += [pa.array(time), pa.array(self._states(idx, value, usable))]
            yield pa.RecordBatch.from_arrays(columns, names=["fate", "tick", "idx", "time", "st"])

    def _states(
        self, idx: npt.NDArray[Any], value: npt.NDArray[Any], usable: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int16]:
        """The state whose value is nearest; -1 where there is none."""
        states = np.full(value.size, -1, dtype=np.int16)
        row = idx[usable] if len(self.levels) > 1 else np.zeros(int(usable.sum()), dtype=np.intp)
        middle = (self.levels[:, 1:] + self.levels[:, :-1]) / 2
        place = (middle[row] < value[usable][:, None]).sum(axis=1)
        states[usable] = self.order[row, place]
        return states

    def __repr__(self) -> str:
        return f"<Placing after {self.mark}>"


class _Batches:
    """The work on each micro-batch; one at a time, in the thread that Spark calls from."""

    def __init__(
        self,
        readings: DataFrame,
        publisher: Publisher,
        clock: Clock,
        folder: str,
        names: tuple[str, ...],
        value: str,
        on_batch: Callable[[Taken], None] | None,
    ) -> None:
        import pyarrow as pa

        plan = publisher.plan
        model = plan.model
        what = (publisher.dataset, plan.digest, clock.step, clock.origin, names, value)
        # A checkpoint of another plan or list of sequences holds states that mean something else.
        self._folder = f"{folder}/{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}"
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

    def take(self, batch: DataFrame, number: int) -> None:
        """Place the readings of a micro-batch, keep what is needed, publish the ticks that they close."""
        with self._backend.plain_errors("stream"):
            limit = self._clock.limit(self._publisher.tick_times.wall.now())
            before = self._mark_after(batch, number - 1)
            placed = self._placed(batch, before, limit).persist()
            try:
                right = self._put_back(placed, before, limit)
                if right != before:
                    placed.unpersist()
                    before, placed = right, self._placed(batch, right, limit).persist()
                fates, times = _counted(placed)
                closed, mark = self._moved(before, times, limit)
                self._keep(placed, number, closed.start, mark, limit)
            finally:
                placed.unpersist()
            releases, skipped = self._published(number, closed)
        if self._on_batch is not None:
            self._on_batch(Taken(number, mark, fates, tuple(releases), tuple(skipped)))

    # ---- taking in ---------------------------------------------------------------------------------------------------

    def _place(self, number: int) -> str:
        """Where a batch keeps: two folders in turns, so that what the running batch began from stays until it ends."""
        return f"{self._folder}/{number % 2}"

    def _kept(self, batch: DataFrame, number: int) -> DataFrame | None:
        if number < 0:
            return None
        return literal_reader(batch.sparkSession).schema(_KEPT).parquet(self._place(number))

    def _mark_after(self, batch: DataFrame, number: int) -> Mark | None:
        """The mark after an earlier batch."""
        from pyspark.errors import AnalysisException

        try:
            kept = self._kept(batch, number)
            rows = [] if kept is None else kept.where("idx < 0").collect()
        except AnalysisException:
            rows = []
        found = {row.idx: row for row in rows}
        if number >= 0 and (_NUMBER not in found or found[_NUMBER].tick != number):
            raise InputError(
                f"checkpoint: nothing is kept after batch {number} for this dataset, plan, grid and list of sequences; "
                "go on with those that the checkpoint was made with, or give another checkpoint"
            )
        return Mark(check_time(found[_MARK].time), int(found[_MARK].tick)) if _MARK in found else None

    def _put_back(self, placed: DataFrame, before: Mark | None, limit: Time) -> Mark | None:
        """The mark to go on from: put back if it lies beyond the wall clock, and most sequences are behind it.

        It is so after a wall clock that was wrong. Ticks that were charged stay closed.
        """
        from pyspark.sql.functions import min as min_of

        if before is None or before.newest <= limit:
            return before
        # The oldest of each, so that no other reading of this batch stays late.
        oldest = placed.where("fate = 'late'").groupBy("idx").agg(min_of("time")).collect()
        times = sorted((row[1] for row in oldest), reverse=True)
        most = self._publisher.plan.model.sequences // 2
        if len(times) <= most:
            return before
        log.warning("%s: the clock was ahead of most sequences and was put back", self._publisher.dataset)
        return self._clock.put_back(times[most], self._publisher.summary()["newest_tick"])

    def _placed(self, batch: DataFrame, before: Mark | None, limit: Time) -> DataFrame:
        """Rows (fate, tick, idx, time, st): names are looked up by Spark, the rest is the clock's, on the workers."""
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
        placing = Placing(self._clock, before, limit, self._levels, self._order)
        return known.mapInArrow(placing.__call__, _PLACED)

    def _moved(self, before: Mark | None, times: tuple[Time, Time] | None, limit: Time) -> tuple[range, Mark | None]:
        """The ticks that a batch closes, and the mark after it: its least time, then its greatest."""
        mark = before
        start = None if before is None else before.closed + 1
        for time in times or ():
            mark = self._clock.observe(mark, time, limit=limit).mark
            start = mark.closed + 1 if start is None and mark is not None else start
        return range(start or 0, 0 if mark is None else mark.closed + 1), mark

    def _keep(self, placed: DataFrame, number: int, first: int, mark: Mark | None, limit: Time) -> None:
        """Write the newest reading of each tick and sequence from the oldest that ticks after `first` look back to.

        Those beyond the wall clock, which were kept while it was wrong, are dropped.
        """
        from pyspark.sql.functions import max as max_of
        from pyspark.sql.functions import struct

        # Of two readings of one time the one that was kept counts, and within a batch the least state: any rule that
        # a batch that is run again follows as well.
        rows = placed.where("fate = 'accepted'").selectExpr("tick", "idx", "time", "0 AS kept", "-st AS minus")
        earlier = self._kept(placed, number - 1)
        if earlier is not None:
            rows = rows.union(earlier.where("idx >= 0").selectExpr("tick", "idx", "time", "1 AS kept", "-st AS minus"))
        newest = (
            rows.where(f"tick >= {first - self._reach} AND tick <= {self._clock.tick(limit)}")
            .groupBy("tick", "idx")
            .agg(max_of(struct("time", "kept", "minus")).alias("reading"))
            .selectExpr("tick", "idx", "reading.time AS time", "CAST(-reading.minus AS SMALLINT) AS st")
        )
        notes = [(number, _NUMBER, 0.0)] + ([] if mark is None else [(mark.closed, _MARK, float(mark.newest))])
        written = " UNION ALL ".join(
            f"SELECT CAST({tick} AS BIGINT), {idx}, {sql.number(time)}, CAST(0 AS SMALLINT)"
            for tick, idx, time in notes
        )
        newest.union(placed.sparkSession.sql(written)).write.mode("overwrite").parquet(self._place(number))

    # ---- publishing --------------------------------------------------------------------------------------------------

    def _published(self, number: int, closed: range) -> tuple[list[Release], list[Skipped]]:
        releases: list[Release] = []
        skipped: list[Skipped] = []
        if closed:
            self._backend.view("kept", self._place(number))
            for first, last in self._stretches(closed):
                table = RelationalEngine(
                    self._over(first, last, closed.stop - 1), self._domain, step=1, once=True, by_place=True
                )
                batch = self._publisher.publish(EngineSource(table, self._publisher.plan, ticks=closed))
                releases += batch.releases
                skipped += batch.skipped
        return releases, skipped

    def _stretches(self, closed: range) -> Iterator[tuple[int, int]]:
        """First and last ticks with readings, without gaps so long that nothing is looked up across them."""
        self._backend.layout = Layout("stream", "SELECT * FROM kept", True, "small")
        found = self._backend.run(f"SELECT DISTINCT tick FROM kept WHERE idx >= 0 AND tick < {closed.stop}")
        ticks = np.sort(found.column("tick").to_numpy())
        for part in np.split(ticks, np.flatnonzero(np.diff(ticks) > self._reach) + 1):
            if part.size and part[-1] + self._reach >= closed.start:
                yield int(part[0]), int(part[-1])

    def _over(self, first: int, last: int, closed: int) -> SparkBackend:
        """The readings of a stretch as a table whose time is the tick; it goes on while there is something to age."""
        end = min(last + self._reach, closed)
        after = f" UNION ALL SELECT CAST({end} AS BIGINT), 0, CAST(NULL AS SMALLINT)" if end > last else ""
        relation = (
            f"SELECT tick AS time, idx AS sequence, st AS value FROM kept WHERE idx >= 0 AND tick >= {first} "
            f"AND tick <= {last}{after}"
        )
        self._backend.layout = Layout("stream", relation, True, "small")
        return self._backend


def _counted(placed: DataFrame) -> tuple[dict[str, int], tuple[Time, Time] | None]:
    """How many readings had which fate, and the least and the greatest time of those that move the clock."""
    from pyspark.sql.functions import count
    from pyspark.sql.functions import max as max_of
    from pyspark.sql.functions import min as min_of

    rows = placed.groupBy("fate").agg(count("*"), min_of("time"), max_of("time")).collect()
    fates: Counter[str] = Counter()
    moving = []
    for fate, number, least, greatest in rows:
        fates[fate.removesuffix(" value")] += number
        # A value that is no number still moves the clock, like any other.
        if fate in {"accepted", "missing", "late", "bad value"}:
            moving += [least, greatest]
    times = (check_time(min(moving)), check_time(max(moving))) if moving else None
    return {fate: fates[fate] for fate in FATES if fates[fate]}, times
