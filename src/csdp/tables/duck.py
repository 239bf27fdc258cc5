"""DuckDB, the embedded default: Parquet and CSV larger than memory, spilling into a private folder that is removed."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csdp.arrays import Floats
from csdp.errors import InputError, TooLargeError
from csdp.panel.input import InputSpec
from csdp.panel.readings import Outside
from csdp.scratch import Scratch, open_bytes
from csdp.tables.open import TableFiles, find_table
from csdp.tables.relational import RelationalEngine, RowNoise
from csdp.tables.sql import CellKind, Domain, LongRelation, cell_kind

if TYPE_CHECKING:
    import duckdb

_WHOLE = {f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")}
_SMALL = {"TINYINT", "SMALLINT", "UTINYINT", "USMALLINT", "BOOLEAN"}


class DuckDBEngine(RelationalEngine):
    """A file, or a folder of Parquet files, read by DuckDB.

    Args:
        path: long (time, sequence, and value or state) or wide (time and one column per sequence).
        names, values: the sequences and the values of their states, as in a chain.
        step, outside: as for `csdp.panel.read_panel`; rows may come in any order.
        memory_limit: such as "4GB"; what does not fit is spilled. threads: default one per core.
        folder: where to make the private folder (mode 0700) for spilling; default the system's.
    """

    def __init__(
        self,
        path: str | Path | InputSpec,
        *,
        names: Sequence[str],
        values: Floats,
        step: int | str | None = None,
        outside: Outside = "refuse",
        memory_limit: str | None = None,
        threads: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        table = find_table(path, names)
        self._backend: _DuckDB = _DuckDB(memory_limit, threads, folder)
        try:
            self._backend.layout = self._backend.lay_out(table, names)
        except BaseException:
            self._backend.close()
            raise
        domain = Domain(tuple(names), table.cell_values(values), outside == "clamp")
        super().__init__(self._backend, domain, step=step)

    def close(self) -> None:
        """Close the database and remove its folder."""
        self._backend.close()


class _DuckDB:
    """A database in memory with one connection."""

    layout: LongRelation
    unnest = "unnest(range({a}, {b} + 1))"
    distributed = False

    def __init__(self, memory_limit: str | None, threads: int | None, folder: str | Path | None) -> None:
        import duckdb

        self._scratch = Scratch(folder)
        self._close_copy: Callable[[], object] = lambda: None
        if set(str(self._scratch.path)) & set("*?["):
            self._scratch.close()
            raise InputError(
                f"folder: {self._scratch.path.parent} given; its path may not contain '*', '?' or '[', which DuckDB "
                "takes as a pattern. Set TMPDIR, or give another folder"
            )
        # DuckDB may download nothing.
        config: dict[str, Any] = {
            "temp_directory": str(self._scratch.path / "spill"),
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
        }
        if memory_limit is not None:
            config["memory_limit"] = memory_limit
        if threads is not None:
            config["threads"] = threads
        try:
            self._connection: duckdb.DuckDBPyConnection = duckdb.connect(":memory:", config=config)
        except duckdb.Error:
            self._scratch.close()
            raise InputError(
                f"duckdb: memory_limit {memory_limit!r}, threads {threads!r} given; such as '4GB' and 2"
            ) from None

    def close(self) -> None:
        """Close, and remove the folder."""
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()
        self._close_copy()
        self._scratch.close()

    @contextmanager
    def _plain_errors(self, label: str) -> Iterator[None]:
        """Replace errors of DuckDB, whose messages may quote readings."""
        import duckdb

        try:
            yield
        except duckdb.OutOfMemoryException:
            raise TooLargeError(
                f"{label}: the memory limit of DuckDB is not enough, even with spilling; raise memory_limit or lower "
                "threads",
                needed=float("nan"),
                limit=float("nan"),
            ) from None
        except duckdb.ConnectionException:
            raise InputError(f"{label}: the engine was closed; open the table again") from None
        except duckdb.Error as error:
            kind = type(error).__name__
            raise InputError(f"{label}: DuckDB cannot read it as a table of readings ({kind})") from None

    def run(self, query: str) -> Any:
        """The result as an Arrow table."""
        with self._plain_errors(self.layout.label):
            return self._connection.sql(query).to_arrow_table()

    def register(self, name: str, table: Any) -> None:
        """Make a small Arrow table available under a name."""
        with self._plain_errors(name):
            self._connection.register("arrow_table", table)
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM arrow_table")
            self._connection.unregister("arrow_table")

    def noisy_answers(
        self, rows: str, unit: float, levels: Mapping[int, tuple[Any, float]], keys: Mapping[int, bytes]
    ) -> Any:
        """Return rows with their noise, batch by batch."""
        import pyarrow as pa

        return pa.Table.from_batches(list(RowNoise(unit, levels, keys)(iter(self.run(rows).to_batches()))))

    def lay_out(self, table: TableFiles, names: Sequence[str]) -> LongRelation:
        """Return the table as a relation (time, sequence, value); CSV and wide tables are copied to long Parquet."""
        listed = self._link_files(table.files)
        source = _read_csv_sql(listed, table) if table.csv else f"read_parquet({listed}, hive_partitioning=false)"
        if table.csv or table.value is None:
            copied = self._create_copy()
            with self._plain_errors(table.label):
                self._connection.execute(
                    f"COPY ({self._long(source, table, names)}) TO {_text(copied)} (FORMAT parquet, USE_TMP_FILE false)"
                )
            source = f"read_parquet({_text(copied)}, hive_partitioning=false)"
            columns = ("time", "sequence", "value")
        else:
            columns = (table.time, str(table.sequence), table.value)
        time, sequence, value = map(_quote, columns)
        kinds = self._column_kinds(
            table.label, f"SELECT {time} AS time, {sequence} AS sequence, {value} AS value FROM {source}"
        )
        name = "{}" if kinds["sequence"] in {*_WHOLE, "VARCHAR"} else "CAST({} AS VARCHAR)"
        relation = f"SELECT {time} AS time, {name.format(sequence)} AS sequence, {value} AS value FROM {source}"
        return LongRelation(table.label, relation, kinds["sequence"] in _WHOLE, _cell_kind(table.label, kinds["value"]))

    def _link_files(self, files: Sequence[Path]) -> str:
        """Link the files into the scratch folder under plain names; return the links as an SQL list.

        DuckDB takes '*', '?' and '[' in a path as a pattern, and not all of them can be quoted.
        """
        links = []
        for number, file in enumerate(files):
            links.append(self._scratch.path / f"{number}{file.suffix.lower()}")
            links[-1].symlink_to(file)
        return f"[{', '.join(map(_text, links))}]"

    def _create_copy(self) -> Path:
        """Create a file for a copy of the readings, and return its path.

        Where the system allows, the file is unlinked and reached through /proc, so that it disappears even if the
        process is killed; elsewhere it is removed with the scratch folder.
        """
        copy = self._scratch.path / "readings.parquet"
        handle = open_bytes(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._close_copy = weakref.finalize(self, os.close, handle)
        nameless = Path(f"/proc/self/fd/{handle}")
        if not nameless.exists():
            return copy
        copy.unlink()
        return nameless

    def _long(self, source: str, table: TableFiles, names: Sequence[str]) -> str:
        """SQL for the relation (time, sequence, value) of a CSV file or a wide table."""
        time = _quote(table.time)
        when = f"trim({time})" if table.csv else time
        if table.value is not None:
            return (
                f"SELECT {when} AS time, trim({_quote(str(table.sequence))}) AS sequence, "
                f"{_quote(table.value)} AS value FROM {source}"
            )
        kinds = {} if table.csv else self._column_kinds(table.label, f"SELECT * FROM {source}")
        text = table.csv or any(_cell_kind(table.label, kinds[name.strip()]) == "text" for name in names)
        kind = "VARCHAR" if text else "DOUBLE"
        columns = ", ".join(f"CAST({_quote(name.strip())} AS {kind}) AS {_quote(name.strip())}" for name in names)
        listed = ", ".join(_quote(name.strip()) for name in names)
        whole = f'SELECT {when} AS "time of row", {columns} FROM {source}'
        unpivoted = f"({whole}) UNPIVOT INCLUDE NULLS (value FOR sequence IN ({listed}))"
        return f'SELECT "time of row" AS time, sequence, value FROM {unpivoted}'

    def _column_kinds(self, label: str, query: str) -> dict[str, str]:
        with self._plain_errors(label):
            return {str(row[0]): str(row[1]) for row in self._connection.sql(f"DESCRIBE {query}").fetchall()}


def _cell_kind(label: str, kind: str) -> CellKind:
    return cell_kind(label, kind, small=_SMALL, numbers={*_WHOLE, "FLOAT", "DOUBLE"}, text="VARCHAR")


def _read_csv_sql(listed: str, table: TableFiles) -> str:
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in table.header)
    return (
        f"read_csv({listed}, header=true, auto_detect=false, delim=',', quote='\"', escape='\"', compression='none', "
        f"hive_partitioning=false, columns={{{columns}}})"
    )


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
