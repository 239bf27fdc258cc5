"""The SQLite file: who may read it, and what happens when it is not what it should be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from csdp.errors import InputError, LedgerBusyError, LedgerCorruptError, LedgerError
from csdp.ledger import Ledger, store
from ledger.rules import ask, register, reserve_one


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def beside(path: Path) -> dict[str, bytes]:
    """Everything in the ledger's directory, to see that nothing changed."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}


def filled(path: Path, releases: int = 50) -> Path:
    with Ledger.open(path) as ledger:
        register(ledger)
        ask(ledger, range(releases))
    return path


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_every_file_is_for_its_owner_only(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Ledger.open(path) as ledger:
            register(ledger)
            assert {file.name for file in path.parent.iterdir()} == {
                "ledger.db",
                "ledger.db-wal",
                "ledger.db-shm",
            }
            assert {mode(file) for file in path.parent.iterdir()} == {0o600}
        assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]
        assert mode(path) == 0o600
    finally:
        os.umask(before)


def test_verify_tells_when_others_can_read_the_file(path: Path) -> None:
    filled(path).chmod(0o644)
    with Ledger.open(path) as ledger:
        assert "ledger.db can be opened by other users; chmod 600 it" in map(str, ledger.verify())


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (":memory:", "needs a file that lasts, not ':memory:'"),
        ("mysql://host/db", "lives in sqlite or postgresql, not mysql"),
        ("sqlite:///x.db?mode=memory", "takes a path only"),
        ("postgresql://me:hunter2@host:port/ward", "URL cannot be read"),
    ],
)
def test_what_is_no_place_for_a_ledger(where: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        Ledger.open(where)
    assert "hunter2" not in str(refused.value)


def test_settings_are_checked(path: Path) -> None:
    with pytest.raises(InputError, match="timeout"):
        Ledger.open(path, timeout=0)
    with pytest.raises(LedgerError, match="directory does not exist"):
        Ledger.open(path.parent / "nowhere" / "ledger.db")
    with pytest.raises(LedgerError, match="not a file"):
        Ledger.open(path.parent)
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(path, create=False)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"SQLite format 3\0", "truncated or not a SQLite file"),
        (b"time,value\n1,2\n" * 100, "truncated or not a SQLite file"),
        (os.urandom(8192), "truncated or not a SQLite file"),
    ],
    ids=["empty", "header", "table", "random"],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_not_a_database_is_refused_and_left_alone(
    path: Path, content: bytes, words: str, read_only: bool
) -> None:
    path.write_bytes(content)
    with pytest.raises(LedgerCorruptError, match=words):
        Ledger.open(path, read_only=read_only)
    assert beside(path) == {"ledger.db": content}


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_of_another_program_is_refused_and_left_alone(path: Path, journal: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
        other.execute("CREATE TABLE patients (name TEXT)")
        other.commit()
    before = beside(path)
    for read_only in (False, True):
        with pytest.raises(LedgerCorruptError, match="another program"):
            Ledger.open(path, read_only=read_only)
    assert beside(path) == before


@pytest.mark.parametrize("keep", [50, 4096, 4097, 0.99])
def test_a_truncated_file_is_refused_and_left_alone(path: Path, keep: float) -> None:
    size = filled(path).stat().st_size
    os.truncate(path, int(keep if keep > 1 else keep * size))
    before = beside(path)
    for _ in range(2):
        with pytest.raises(LedgerCorruptError):
            Ledger.open(path)
    assert {name: beside(path)[name] for name in before} == before


#: table: columns; in capitals the primary key, with a question mark what may be empty
TABLES = {
    "csdp_meta": "KEY value",
    "csdp_datasets": "NAME created plan_number head_seq head_hash state_seq?",
    "csdp_plans": "DATASET NUMBER digest plan chain limits guarantee fit_cost? from_tick? rule?",
    "csdp_entries": "DATASET SEQ kind tick? query? plan time payload previous hash",
}


def test_the_tables_are_those_of_the_format(path: Path) -> None:
    """docs/ledger-format.md describes them; whatever changes here is another version of the format."""
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        for table, columns in TABLES.items():
            found = connection.execute(f"PRAGMA table_info({table})").fetchall()
            told = [name.upper() if key else name + "?" * (not required) for _, name, _, required, _, key in found]
            assert " ".join(told) == columns
    for table in store.metadata.sorted_tables:
        text = str(CreateTable(table).compile(dialect=postgresql.dialect()))
        assert "SERIAL" not in text  # numbers are given by the log, never by the server
        required = [column.name for column in table.columns if not column.nullable]
        assert text.count("NOT NULL") == len(required)


def test_a_damaged_page_raises_or_is_found_and_is_never_written_over(path: Path) -> None:
    content = bytearray(filled(path, 300).read_bytes())
    pages = len(content) // 4096
    for page in range(1, pages):
        damaged = bytearray(content)
        damaged[page * 4096 : (page + 1) * 4096] = os.urandom(4096)
        path.write_bytes(damaged)
        problems = []
        try:
            with Ledger.open(path, read_only=True) as ledger:
                problems = ledger.verify()
        except LedgerCorruptError as error:
            problems = [error]  # type: ignore[list-item]
        assert problems, f"page {page} of {pages}"
        assert path.read_bytes() == damaged


def test_a_missing_ledger_with_its_log_left_is_not_started_anew(path: Path) -> None:
    with Ledger.open(path) as ledger:
        register(ledger)
        shutil.copy(f"{path}-wal", path.parent / "kept")
    path.unlink()
    shutil.move(path.parent / "kept", f"{path}-wal")
    with pytest.raises(LedgerError, match="removed, perhaps by mistake"):
        Ledger.open(path)
    assert not path.exists()


def test_a_locked_ledger_is_busy_and_unchanged(path: Path) -> None:
    filled(path, 3)
    with (
        Ledger.open(path, timeout=0.2) as ledger,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        for action in (lambda: ask(ledger, [9]), lambda: register(ledger, "ward-8")):
            with pytest.raises(LedgerBusyError, match="locked by another process"):
                action()
        assert ledger.summary("ward-7").reserved == 3  # readers are not held up
        other.execute("ROLLBACK")
        reserve_one(ledger, 9)
        assert ledger.verify() == []


def test_no_error_quotes_what_was_to_be_recorded(path: Path) -> None:
    """Nor does its cause, which a traceback shows."""
    with Ledger.open(path) as ledger:
        register(ledger)
        held = reserve_one(ledger, 1)
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TRIGGER no BEFORE INSERT ON csdp_entries BEGIN SELECT RAISE(ABORT, 'refused'); END")
        with pytest.raises(LedgerError, match="refused") as caught:
            ledger.commit(held, {"value": 271828.0})
        assert "csdp_entries" in str(caught.value.__cause__)
        assert not any("271828" in str(error) for error in (caught.value, caught.value.__cause__))


def test_an_interrupted_write_leaves_no_lock(path: Path) -> None:
    """Also while somebody looks at its traceback, as a notebook does, which holds the cursor."""
    with Ledger.open(path) as ledger:
        register(ledger)

        @sa.event.listens_for(ledger._database.engine, "after_cursor_execute", once=True)
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as caught:
            ask(ledger, range(1))
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        assert caught.value.__traceback__ is not None
        assert [type(answer).__name__ for answer in ask(ledger, range(1))] == ["Reserved"]


# ---- a small file system of our own, for a disk that is full or read-only


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "csdp-test", folder], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def test_a_full_disk_leaves_no_half_ledger(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 1_040_000)
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger.open(small_disk / "ledger.db")
    assert [file.name for file in small_disk.iterdir()] == ["filler"]


def test_a_read_only_disk_can_be_read_and_not_written(small_disk: Path) -> None:
    path = filled(small_disk / "ledger.db", 3)
    remount(small_disk, "ro")
    before = beside(path)
    with pytest.raises(LedgerError, match="read-only"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match=r"cannot be created: Read-only"):
        Ledger.open(small_disk / "new.db")
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []
        assert len(list(ledger.entries("ward-7"))) == 4
    assert beside(path) == before
