"""Tables and queries of databases: SQLite and DuckDB files, PostgreSQL. They are opened for reading only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from csdp.errors import InputError
from csdp.panel.input import InputSpec

SQLITE = (".db", ".sqlite", ".sqlite3")
DUCKDB = (".duckdb",)

Rows = tuple[list[str], list[list[Any]]]


def read_database(file: str | Path, spec: InputSpec) -> tuple[str, Rows]:
    """A label for messages, and the columns of the table or query that a specification names."""
    if isinstance(file, str) and "://" in file:
        return "database", _read_postgres(file, spec)
    path = Path(file)
    kind = _read_duckdb if path.suffix.lower() in DUCKDB else _read_sqlite
    return path.name, kind(path, spec)


def _select(label: str, spec: InputSpec, tables: Sequence[str]) -> str:
    """The query: as given, or all of one table, which must exist."""
    if spec.sql is not None:
        return spec.sql
    listed = ", ".join(tables[:8]) or "none"
    name = spec.table
    if name is None:
        if len(tables) != 1:
            raise InputError(f"{label}: which table? Give table= (there are: {listed}), or sql= with a query")
        name = tables[0]
    if name not in tables:
        raise InputError(f"{label}: no table {name!r}; give table= with one of: {listed}")
    return 'SELECT * FROM "{}"'.format(name.replace('"', '""'))


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Rows:
    return list(names), [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


def _wrong_query(label: str) -> InputError:
    return InputError(
        f"{label}: the database refused the query of sql=, or is damaged; give one SELECT that it can run"
    )


def _read_sqlite(file: Path, spec: InputSpec) -> Rows:
    import sqlite3
    from contextlib import closing

    uri = f"file:{quote(str(file.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
            cursor = connection.execute(_select(file.name, spec, [name for (name,) in found]))
            return _columns([column[0] for column in cursor.description or ()], cursor.fetchall())
    except sqlite3.DatabaseError:
        raise _wrong_query(file.name) from None


def _read_duckdb(file: Path, spec: InputSpec) -> Rows:
    import duckdb

    try:
        connection = duckdb.connect(
            str(file.absolute()), read_only=True, config={"autoinstall_known_extensions": False}
        )
        with connection:
            found = connection.execute(
                "SELECT table_name FROM information_schema.tables ORDER BY table_name"
            ).fetchall()
            cursor = connection.execute(_select(file.name, spec, [name for (name,) in found]))
            return _columns([column[0] for column in cursor.description or ()], cursor.fetchall())
    except duckdb.Error:
        raise _wrong_query(file.name) from None


def _read_postgres(address: str, spec: InputSpec) -> Rows:
    import sqlalchemy as sa

    try:
        url = sa.make_url(address).set(drivername="postgresql+psycopg")
        options = {"postgresql_readonly": True}
        engine = sa.create_engine(url, poolclass=sa.NullPool, execution_options=options)
    except sa.exc.ArgumentError:
        raise InputError("database: its address cannot be read; postgresql://user@host/database expected") from None
    except ImportError:
        raise InputError("postgresql: needs the package psycopg; install csdp[postgres]") from None
    try:
        with engine.connect() as connection:
            inspector = sa.inspect(connection)
            tables = sorted([*inspector.get_table_names(), *inspector.get_view_names()])
            result = connection.exec_driver_sql(_select("database", spec, tables))
            return _columns(list(result.keys()), [tuple(row) for row in result])
    except sa.exc.OperationalError:
        raise InputError(
            "database: cannot be reached, or it refused the user; check the address and PGPASSWORD"
        ) from None
    except sa.exc.SQLAlchemyError:
        raise _wrong_query("database") from None
