"""Tables of readings for the tests of the engines: a chain, its readings with gaps, and files that hold them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from csdp import CoupledChain

NAMES = tuple(f"n{i}" for i in range(7))
MOVES = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]
ALIKE = np.array([0.0, 0.5, 2.0])
OWN = ALIKE * np.arange(1, 8)[:, None]
TICKS = 30
#: A session for tables of a few hundred rows: no compiling of what runs once, few tasks.
SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def chain(values: np.ndarray = ALIKE, names: tuple[str, ...] = NAMES) -> CoupledChain:
    return CoupledChain(np.eye(7), MOVES, values=values, names=names)


def states(*, gaps: bool, seed: int = 3) -> np.ndarray:
    """States (T, 7), -1 where missing: single cells, a whole tick, a sequence that begins late."""
    random = np.random.default_rng(seed)
    cells = random.integers(0, 3, (TICKS, 7)).astype(np.int8)
    if gaps:
        cells[random.random(cells.shape) < 0.06] = -1
        cells[14] = -1
        cells[:3, 2] = -1
        cells[-1, 4] = -1
    return cells


def rows(cells: np.ndarray, values: np.ndarray, *, names: tuple[str, ...] = NAMES, step: int = 60) -> list[tuple]:
    """(time, sequence, value), shuffled: a missing reading is a row without a value, or no row at all."""
    random = np.random.default_rng(1)
    table = np.broadcast_to(values, (len(names), values.shape[-1]))
    out = []
    for (t, i), a in np.ndenumerate(cells):
        if a >= 0:
            out.append((t * step, names[i], float(table[i, a])))
        elif random.random() < 0.5 and t not in {0, len(cells) - 1}:
            out.append((t * step, names[i], None))
    return [out[k] for k in random.permutation(len(out))]


def write(path: Path, readings: list[tuple], *, value: str = "value", kind: pa.DataType | None = None) -> Path:
    """Rows as a long CSV or Parquet file."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("time", "sequence", value), *readings])
        return path
    times, names, cells = zip(*readings, strict=True)
    kind = pa.float64() if kind is None else kind
    pq.write_table(pa.table({"time": times, "sequence": names, value: pa.array(cells, kind)}), path)
    return path
