"""Publish from a Spark stream: every micro-batch goes through `open_table`, the publisher and its ledger.

The folder `kept` holds the readings that later ticks still need, one Parquet table per micro-batch. A micro-batch is a
function of the readings that the one before it kept and of its own rows, so it can run twice: after a kill Spark
repeats it, and the ledger returns the numbers that it has recorded. Both folders hold private readings.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, floor
from pyspark.sql.functions import max as max_of
from pyspark.sql.functions import min as min_of

from csdp import Publisher
from csdp.tables import open_table


def publish_batches(
    publisher: Publisher, kept: Path, *, step: int, late: int = 1, each: Callable[[Any], None] = print
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` over readings (time BIGINT in seconds, sequence STRING, value DOUBLE).

    Args:
        publisher: of times="wall" or "data", with on_refusal="skip".
        kept: a private folder that driver and workers reach.
        step: seconds from one tick to the next.
        late: ticks by which a reading may be late.
        each: called with every release; a repeated micro-batch calls it again with the same numbers.
    """
    plan = publisher.plan
    window = (max(plan.ages) + plan.stale_limit + late) * step
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)

    def publish(batch: DataFrame, number: int) -> None:
        tick_time = (floor(col("time") / step) * step).alias("time")
        rows = batch.where(col("time") <= int(time.time())).select(tick_time, "sequence", "value")
        before = kept / str(number - 1)
        if before.exists():
            rows = rows.unionByName(batch.sparkSession.read.parquet(str(before)))
        # A source may deliver a reading twice; which of two different ones counts does not depend on their order.
        rows = rows.groupBy("time", "sequence").agg(min_of("value").alias("value")).cache()
        newest = rows.agg(max_of("time")).first()[0]
        if newest is not None:
            with open_table(rows, plan, step=step) as table:
                for release in publisher.publish(table).releases:
                    each(release)
            rows.where(col("time") >= newest - window).write.mode("overwrite").parquet(str(kept / str(number)))
        rows.unpersist()
        shutil.rmtree(kept / str(number - 2), ignore_errors=True)

    return publish
