"""Tables at scale: a mean of age 5 on DuckDB as a ratio to DuckDB's own average by tick, memory by size, Spark.

`python -m bench tables` makes the full 100,000 sequences x 1,000 ticks (10^8 rows). Every ratio is taken in one
process, interleaved, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.record import Record, ratio_record, scaled_size

SEQUENCES, TICKS, AGE = 100_000, 1_000, 5
SPARK_FROM = 0.005  # of the full size; below it, starting Spark would be all that is measured
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


def released(path: Path, plan: Any, folder: str, name: str) -> tuple[float, int]:
    """Seconds from opening the table with DuckDB to the last commit, and the ticks published. The publisher is warm:
    what depends on the chain alone (certificate, accountant, estimate) is reported by itself.
    """
    import numpy as np

    from csdp import Panel, Publisher
    from csdp.tables import open_table

    model = plan.model
    with Publisher(plan, dataset=name, ledger=f"{folder}/ledger.db") as publisher:
        publisher.publish(Panel.from_states(np.zeros((AGE + 1, model.sequences), np.int8), names=model.names))
        start = time.perf_counter()
        with open_table(path, plan, memory_limit=MEMORY) as table:
            batch = publisher.publish(table)
        return time.perf_counter() - start, len(batch)


def averaged(path: Path, columns: str) -> float:
    """Seconds that DuckDB needs to read columns and average by tick."""
    import duckdb

    with duckdb.connect(config={"memory_limit": MEMORY}) as connection:
        start = time.perf_counter()
        connection.sql(f"SELECT time, avg(state){columns} FROM '{path}' GROUP BY time").fetchall()
        return time.perf_counter() - start


def compare(sequences: int, ticks: int) -> Record:
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
            seconds, published = released(path, plan, folder, f"d{k}")
            ours.append(seconds)
    case = f"duckdb, mean of age 5, {sequences * ticks:,} rows"
    against = "DuckDB reading the Parquet columns once, average by tick"
    return {
        **ratio_record(case, against, min(ours), min(same), target=2.0 if ticks == TICKS else None),
        "rows": sequences * ticks,
        "published": published,
        "median_ratio": median(o / s for o, s in zip(ours, same, strict=True)),
        "without_the_sequence_column": min(less),
        "certificate_once": certified,
        "peak_gb": peak_mb() / 1024,
    }


def peak(sequences: int, ticks: int) -> Record:
    """Peak memory of one survey of a table, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.parquet")
        make_table(path, sequences, ticks)
        done = subprocess.run(
            [sys.executable, "-m", "bench.tables", str(path), str(sequences)],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        )
    case = f"peak memory, {sequences:,} sequences x {ticks:,} ticks"
    return {"case": case, **json.loads(done.stdout)}


def _peak_here(path: str, sequences: int) -> None:
    """In the child: before and after a survey with DuckDB and one answer for every tick."""
    from csdp.tables import open_table

    plan = make_plan(sequences)
    _ = plan.step, plan.divisor
    before = peak_mb()
    with open_table(path, plan, memory_limit="1GB") as table:
        ready = [tick for tick, _, reason in table.availability(plan) if not reason]
        table.answers(plan, ready)
    after = peak_mb()
    print(json.dumps({"before_mb": round(before), "peak_mb": round(after), "grown_mb": round(after - before)}))


def in_memory(sequences: int, ticks: int) -> Record:
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
    case = f"memory, aged mean of an int8 panel, {sequences * ticks:,} readings"
    return ratio_record(case, "one numpy mean over the panel", min(ours), min(passes), target=2.0)


def wide_ticks(sequences: int, ticks: int) -> Record:
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
    case = f"publisher, one tick of {sequences:,} sequences, ledger included"
    return {"case": case, "seconds": spent / ticks, "ticks": ticks, "grown_mb": grown}


def on_spark(sequences: int, ticks: int) -> Record:
    """The same aggregates from Spark local[2] and DuckDB."""
    import numpy as np

    from csdp.tables import open_table

    plan = make_plan(sequences)
    answers, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.parquet")
        make_table(path, sequences, ticks)
        for engine in ("duckdb", "spark"):
            master = "local[2]" if engine == "spark" else None
            with open_table(path, plan, engine=engine, master=master) as table:
                start = time.perf_counter()
                ready = [tick for tick, _, reason in table.availability(plan) if not reason]
                answers[engine] = table.answers(plan, ready)
                seconds[engine] = time.perf_counter() - start
    same = bool(np.array_equal(answers["duckdb"], answers["spark"]))
    case = f"spark local[2], first use, {sequences * ticks:,} rows"
    return {**ratio_record(case, "duckdb", seconds["spark"], seconds["duckdb"]), "same_aggregates": same}


def run(scale: float = 1.0) -> list[Record]:
    """All of it, at a part of the full number of ticks; of very small parts without Spark, and of fewer sequences."""
    sequences = SEQUENCES if scale >= SPARK_FROM else 1000
    ticks = scaled_size(TICKS, scale, 20)
    grown = [compare(sequences, part) for part in sorted({max(20, ticks // 100), max(20, ticks // 10), ticks})]
    records = [in_memory(sequences, ticks), *grown]
    records += [
        peak(sequences // 10, max(10, ticks // 10 * factor))
        for factor in ((1, 10, 100) if scale >= SPARK_FROM else (1,))
    ]
    records += [peak(sequences, ticks), wide_ticks(sequences, ticks)]
    return [*records, on_spark(sequences, max(20, ticks // 10))] if scale >= SPARK_FROM else records


if __name__ == "__main__":
    _peak_here(sys.argv[1], int(sys.argv[2]))
