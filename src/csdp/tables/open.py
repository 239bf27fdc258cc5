"""Open a table with a chosen engine, and count its lag-1 pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.arrays import Ints
from csdp.errors import InputError
from csdp.panel import read_panel
from csdp.panel.read import Outside
from csdp.tables.engine import Engine
from csdp.tables.layout import TableFiles, find_table
from csdp.tables.memory import MemoryEngine

EngineName = Literal["memory", "duckdb", "spark"]

ENGINES: Final = get_args(EngineName)


def open_table(
    path: str | Path,
    *,
    names: Sequence[str],
    values: npt.ArrayLike,
    engine: EngineName = "duckdb",
    step: int | None = None,
    outside: Outside = "refuse",
    master: str | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Engine:
    """Open a table of readings: CSV or Parquet, long (time, sequence, value or state) or wide.

    All engines give the same answers to the last bit.

    Args:
        path: one file, or a folder of Parquet files with the same columns. It is never taken as a pattern, and names
            of folders add no columns.
        names: sequences of the chain.
        values: of the chain's states, (m,) or (s, m).
        engine: "memory", "duckdb" (larger than memory) or "spark" (clusters).
        step: time from one tick to the next; found from the times if None.
        outside: what to do with a reading that is no declared value: "refuse" the table, or "clamp" to the nearest.
        master: of Spark, such as "local[2]".
        memory_limit: of DuckDB, such as "4GB".
        threads: of DuckDB; by default one per core.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "readings.csv")
    ...     _ = file.write_text("time,sequence,value\\n0,a,0\\n1,a,1\\n2,a,1\\n")
    ...     with open_table(file, names=["a"], values=[0.0, 1.0]) as table:
    ...         table.ticks.tolist(), table.pair_counts([(0, 0)]).tolist()
    ([0, 1, 2], [[[0, 1], [0, 1]]])
    """
    if engine not in ENGINES:
        raise InputError(f"engine: {engine!r} given; {', '.join(ENGINES)}")
    if master is not None and engine != "spark":
        raise InputError(f"master: {master!r} given for engine {engine!r}; it is for engine 'spark'")
    if (memory_limit is not None or threads is not None) and engine != "duckdb":
        raise InputError(f"memory_limit and threads are for engine 'duckdb'; engine {engine!r} given")
    if outside not in {"refuse", "clamp"}:
        raise InputError(f"outside: {outside!r} given; 'refuse' or 'clamp'")
    table = np.asarray(values, dtype=np.float64)
    if table.ndim not in {1, 2} or (table.ndim == 2 and table.shape[0] != len(names)) or not np.isfinite(table).all():
        raise InputError(f"values: shape {table.shape} given; (states,) or ({len(names)}, states), finite")
    if table.ndim == 2 and (table == table[0]).all():
        table = table[0]  # one list of values makes shorter SQL
    if engine == "duckdb":
        from csdp.tables.duck import DuckDBEngine

        return DuckDBEngine(
            path,
            names=names,
            values=table,
            step=step,
            outside=outside,
            memory_limit=memory_limit,
            threads=threads,
        )
    if engine == "spark":
        from csdp.tables.spark import SparkEngine

        return SparkEngine(path, names=names, values=table, step=step, outside=outside, master=master)
    files = find_table(path, names)
    panel = read_panel(
        _read_folder(files) if Path(path).is_dir() else files.files[0],
        names=names,
        values=np.broadcast_to(files.cell_values(table), (len(names), table.shape[-1])),
        step=step,
        outside=outside,
        sort=True,
        time=files.time,
        sequence=files.sequence,
        value=files.value,
    )
    return MemoryEngine(panel, states=table.shape[-1])


def _read_folder(folder: TableFiles) -> object:
    """Read the files of a folder, one after the other, into one Arrow table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for file in folder.files:
        try:
            with file.open("rb") as handle:
                tables.append(pq.read_table(handle))
        except (pa.ArrowException, OSError):
            raise InputError(f"{file.name}: not a Parquet file, or a damaged one") from None
    return pa.concat_tables(tables)


def pair_counts(
    path: str | Path,
    edges: npt.ArrayLike,
    *,
    names: Sequence[str],
    values: npt.ArrayLike,
    engine: EngineName = "duckdb",
    step: int | None = None,
    outside: Outside = "refuse",
    master: str | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Ints:
    """Count lag-1 pairs (edges, m, m) of a table, for edges (target, source); other arguments as for `open_table`.

    counts[e, a, b] = number of ticks t with the source in state a and, at t + 1, the target in state b; pairs with a
    missing reading are not counted. Counts of private data are private: a chain made from them leaks.
    """
    table = open_table(
        path,
        names=names,
        values=values,
        engine=engine,
        step=step,
        outside=outside,
        master=master,
        memory_limit=memory_limit,
        threads=threads,
    )
    with table:
        return table.pair_counts(edges)
