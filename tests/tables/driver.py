"""A Spark driver of its own, to be killed: publishes the stream of a folder, and may die between charge and output."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from csdp import Plan, Publisher, Sum
from csdp.clock import Clock
from csdp.tables.spark import spark_session
from csdp.tables.streaming import publish_stream

from tables.tables import SPARK, chain  # isort: skip

#: So little noise that what was asked can be read off: a unit of the sum is 100 times as wide as the noise.
EPSILON = 400.0
#: Where tick 0 of these tests begins: times of a live stream are timestamps.
BEGIN = 1_000_000_000
CLOCK = Clock(step=60, origin=BEGIN, lateness=30)
SCHEMA = "time bigint, sequence string, value double"


def plan(*, stale_limit: int = 0) -> Plan:
    return Plan(chain(), Sum(), 2, EPSILON, stale_limit=stale_limit, bound="group")


def readings(session, folder):
    return session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(str(folder / "in"))


def main(folder: Path, die_at: int) -> None:
    with (
        spark_session("local[2]", more=SPARK) as session,
        Publisher(
            plan(),
            dataset="d",
            ledger=folder / "ledger.db",
            on_refusal="skip",
            time_step=CLOCK.step,
            time_origin=BEGIN,
            times="wall",
        ) as publisher,
    ):
        whole = publisher._reserve

        def reserve(requests, **how):
            answers = whole(requests, **how)
            if die_at in [request.tick for request in requests]:
                os.kill(os.getpid(), signal.SIGKILL)
            return answers

        publisher._reserve = reserve
        query = publish_stream(
            readings(session, folder), publisher, clock=CLOCK, checkpoint=folder / "checkpoint", available_now=True
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
