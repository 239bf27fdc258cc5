"""Tables at scale: a mean of age 5 on DuckDB as a ratio to DuckDB's own average by tick, memory by size, Spark.

`python -m bench.tables --scale 1` makes the full 100,000 sequences x 1,000 ticks (10^8 rows); the default is a
hundredth of the ticks. Every ratio is taken in one process, interleaved, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

SEQUENCES, TICKS, AGE = 100_000, 1_000, 5
ROUNDS = 5
MEMORY = "3GB"  # for DuckDB; the process has to stay below 4 GiB


def peak_mb() -> float:
    """The most memory this program has held; not `ru_maxrss`, which a child takes over from its parent."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def make_table(path: Path, sequences: int, ticks: int) -> None:
    """A long Parquet table (time, sequence, state) of random states, written by DuckDB."""
    import duckdb

    duckdb.connect().execute(
        f"COPY (SELECT t::INT AS time, i::INT AS sequence, (hash(t * 1000003 + i) % 10 < 3)::TINYINT AS state "
        f"FROM range({ticks}) a(t), range({sequences}) b(i)) TO '{path}' (FORMAT parquet)"
    )


def make_plan(sequences: int) -> Any:
    """A mean of age 5 of independent binary sequences, named by their numbers."""
    from scipy.sparse import eye_array

    from csdp import CoupledChain, Mean, Plan

    names = [str(i) for i in range(sequences)]
    chain = CoupledChain(eye_array(sequences, format="csr"), [[0.7, 0.3], [0.3, 0.7]], names=names)
    return Plan(chain, Mean(), AGE, 1.0)


def released(path: Path, plan: Any, folder: str, name: str, *, engine: str) -> tuple[float, int]:
    """Seconds from opening the table to the last commit, and the ticks published. The publisher is warm: what depends
    on the chain alone (certificate, accountant, estimate) is reported by itself.
    """
    import numpy as np

    from csdp import Panel, Publisher
    from csdp.tables import EngineSource, open_table

    model = plan.model
    settings: dict[str, Any] = {"memory_limit": MEMORY} if engine == "duckdb" else {"master": "local[2]"}
    with Publisher(plan, dataset=name, ledger=f"{folder}/ledger.db") as publisher:
        publisher.publish(Panel.from_states(np.zeros((AGE + 1, model.sequences), np.int8), names=model.names))
        start = time.perf_counter()
        with open_table(path, names=model.names, values=model.values, engine=engine, **settings) as table:
            batch = publisher.publish(EngineSource(table, plan))
        return time.perf_counter() - start, len(batch)


def averaged(path: Path, columns: str) -> float:
    """Seconds that DuckDB needs to read columns and average by tick."""
    import duckdb

    with duckdb.connect(config={"memory_limit": MEMORY}) as connection:
        start = time.perf_counter()
        connection.sql(f"SELECT time, avg(state){columns} FROM '{path}' GROUP BY time").fetchall()
        return time.perf_counter() - start


def compare(sequences: int, ticks: int) -> dict[str, Any]:
    """The release against the average by tick of the same columns, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.parquet")
        make_table(path, sequences, ticks)
        start = time.perf_counter()
        plan = make_plan(sequences)
        _ = plan.certified
        certified = time.perf_counter() - start
        ours, same, less, published = [], [], [], 0
        for k in range(ROUNDS):
            same.append(averaged(path, ", max(sequence)"))
            less.append(averaged(path, ""))
            seconds, published = released(path, plan, folder, f"d{k}", engine="duckdb")
            ours.append(seconds)
    base = min(same)
    return {
        "what": "duckdb, mean of age 5",
        "rows": sequences * ticks,
        "published": published,
        "seconds": min(ours),
        "same_columns_average": base,
        "ratio": min(ours) / base,
        "median_ratio": median(o / s for o, s in zip(ours, same, strict=True)),
        "without_the_sequence_column": min(less),
        "certificate_once": certified,
        "peak_gb": peak_mb() / 1024,
    }


def peak(sequences: int, ticks: int) -> dict[str, Any]:
    """Peak memory of one survey of a table, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.parquet")
        make_table(path, sequences, ticks)
        done = subprocess.run(
            [sys.executable, "-m", "bench.tables", "--peak", str(path), "--sequences", str(sequences)],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        )
    return {"what": "peak memory", "sequences": sequences, "ticks": ticks, **json.loads(done.stdout)}


def _peak_here(path: str, sequences: int) -> None:
    """In the child: before and after a survey with DuckDB and one answer for every tick."""
    from csdp.tables import EngineSource, open_table

    plan = make_plan(sequences)
    model = plan.model
    _ = plan.step, plan.divisor
    before = peak_mb()
    with open_table(path, names=model.names, values=model.values, memory_limit="1GB", threads=2) as table:
        source = EngineSource(table, plan)
        ready = [tick for tick, _, reason in source.availability(plan) if not reason]
        source.answers(plan, ready)
    after = peak_mb()
    print(json.dumps({"before_mb": round(before), "peak_mb": round(after), "grown_mb": round(after - before)}))


def in_memory(sequences: int, ticks: int) -> dict[str, Any]:
    """Aged answers of an int8 panel in memory against one numpy pass over it."""
    import numpy as np

    from csdp import Panel
    from csdp.publisher import PanelSource

    plan = make_plan(sequences)
    states = np.random.default_rng(0).integers(0, 2, (ticks, sequences), dtype=np.int8)
    ours, passes = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        states.mean(axis=1)
        passes.append(time.perf_counter() - start)
        start = time.perf_counter()
        source = PanelSource(Panel.from_states(states, names=plan.model.names), plan)
        ready = [tick for tick, _, reason in source.availability(plan) if not reason]
        source.answers(plan, ready)
        ours.append(time.perf_counter() - start)
    return {
        "what": "in memory, int8",
        "rows": sequences * ticks,
        "seconds": min(ours),
        "numpy_mean": min(passes),
        "ratio": min(ours) / min(passes),
    }


def wide_ticks(sequences: int, ticks: int) -> dict[str, Any]:
    """Ticks of a streaming publisher at full width: time per tick, and whether memory is flat."""
    import numpy as np

    from csdp import Publisher

    plan = make_plan(sequences)
    snapshots = np.random.default_rng(0).integers(0, 2, (16, sequences), dtype=np.int8)
    with tempfile.TemporaryDirectory() as folder, Publisher(plan, dataset="d", ledger=f"{folder}/l.db") as publisher:
        for tick in range(20):
            publisher.push(snapshots[tick % 16], time=tick)
        before, start = peak_mb(), time.perf_counter()
        for tick in range(20, 20 + ticks):
            publisher.push(snapshots[tick % 16], time=tick)
        spent = time.perf_counter() - start
        grown = peak_mb() - before
    return {"what": "publisher, push", "sequences": sequences, "ticks": ticks, "tick_ms": 1000 * spent / ticks,
            "grown_mb": grown}  # fmt: skip


def on_spark(sequences: int, ticks: int) -> dict[str, Any]:
    """The same aggregates from Spark local[2] and DuckDB."""
    import numpy as np

    from csdp.tables import EngineSource, open_table

    plan = make_plan(sequences)
    found, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.parquet")
        make_table(path, sequences, ticks)
        for engine in ("duckdb", "spark"):
            master = "local[2]" if engine == "spark" else None
            with open_table(
                path, names=plan.model.names, values=plan.model.values, engine=engine, master=master
            ) as table:
                start = time.perf_counter()
                source = EngineSource(table, plan)
                ready = [tick for tick, _, reason in source.availability(plan) if not reason]
                found[engine] = source.answers(plan, ready)
                seconds[engine] = time.perf_counter() - start
    same = bool(np.array_equal(found["duckdb"], found["spark"]))
    return {"what": "spark local[2]", "rows": sequences * ticks, "same_aggregates": same,
            "spark_seconds": seconds["spark"], "duckdb_seconds": seconds["duckdb"]}  # fmt: skip


def run(scale: float = 0.01) -> list[dict[str, Any]]:
    """All of it, at a part of the full number of ticks."""
    ticks = max(20, round(TICKS * scale))
    records = [in_memory(SEQUENCES, ticks), compare(SEQUENCES, ticks)]
    records += [peak(10_000, max(10, ticks // 10 * factor)) for factor in (1, 10, 100)]
    records += [peak(SEQUENCES, ticks)]
    return [*records, on_spark(SEQUENCES, ticks), wide_ticks(SEQUENCES, ticks)]


def main() -> None:
    """Print one line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--peak")
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    given = parser.parse_args()
    if given.peak:
        _peak_here(given.peak, given.sequences)
        return
    for record in run(given.scale):
        print(record, flush=True)


if __name__ == "__main__":
    main()
