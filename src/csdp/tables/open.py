"""The front doors: open a table with the engine that is asked for, and count its lag-1 pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.panel import read_panel
from csdp.tables.engine import Engine
from csdp.tables.layout import Found, cell_values, look
from csdp.tables.memory import MemoryEngine

EngineName = Literal["memory", "duckdb", "spark"]
Outside = Literal["refuse", "clamp"]
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

    `path` is one file, or a folder of Parquet files with the same columns; it is never taken as a pattern, and names
    of folders add no columns.

    `names` and `values` (m,) or (s, m) are those of the chain; `master` is for Spark, `memory_limit` and `threads` for
    DuckDB. All engines give the same answers to the last bit.

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
        table = table[0]  # sequences that are alike are asked together
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
    return _in_memory(path, names, table, step, outside)


def _in_memory(
    path: str | Path, names: Sequence[str], values: npt.NDArray[np.float64], step: int | None, outside: Outside
) -> MemoryEngine:
    found = look(path, names)
    cells = np.broadcast_to(cell_values(found, values), (len(names), values.shape[-1]))
    panel = read_panel(
        _folder_table(found) if Path(path).is_dir() else found.files[0],
        names=names,
        values=cells,
        step=step,
        outside=outside,
        sort=True,
        time=found.time,
        sequence=found.sequence,
        value=found.value,
    )
    return MemoryEngine(panel, states=values.shape[-1])


def _folder_table(found: Found) -> object:
    """The files of a folder, one after the other; they have the same columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for file in found.files:
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
) -> npt.NDArray[np.int64]:
    """Lag-1 pair counts (edges, m, m) of a table, for edges (target, source).

    counts[e, a, b] = ticks t at which the source was in state a and, at t + 1, the target in state b; pairs with a
    missing reading do not count. Counts of private data are private: a chain made of them is a leak.
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
