"""Races, kills and outages: charged >= published always, and nothing leaves without a record."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import postgres
from csdp.errors import InputError, LedgerBusyError, LedgerCorruptError, LedgerError
from csdp.ledger import Admission, Ledger, Published, Request, Reserved, store
from ledger import workers
from ledger.rules import PLAN, ask, at_most, register, reserve_one

SCRIPT = str(Path(workers.__file__))


def run(*arguments: object, timeout: float = 300) -> list[str]:
    """Run a worker to its end; its answer, in words."""
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


# ---- races


def test_eight_threads_share_one_ledger(where: str) -> None:
    limit = 25
    with Ledger.open(where) as ledger:
        register(ledger)
        granted: list[Reserved] = []

        def work() -> None:
            for tick in range(40):
                granted.extend(one for one in ask(ledger, [tick], limit=limit) if isinstance(one, Reserved))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert len(granted) == len({one.tick for one in granted}) == limit
        assert ledger.summary("ward-7").reserved == limit
        assert ledger.verify() == []


def test_processes_that_create_one_ledger_at_once_end_up_in_the_same(where: str, tmp_path: Path) -> None:
    started = threading.Barrier(6)
    heads, errors = [], []

    def work() -> None:
        started.wait(timeout=30)
        try:
            with Ledger.open(where) as ledger:
                heads.append(register(ledger).head_hash)
        except LedgerError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []
    assert len(heads) == 6
    assert len(set(heads)) == 1


# ---- disk, connection, server


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    done, kind = run("fill", path, 300_000)
    assert kind in {"LedgerBusyError", "LedgerError"}  # full, or an input/output error: a limit of a file gives either
    with Ledger.open(path) as ledger:
        summary = ledger.summary("ward-7")
        assert int(done) == summary.committed <= summary.reserved <= int(done) + 1
        assert ledger.verify() == []
        reserve_one(ledger, 100_001)


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that the test may stop."""
    with postgres.cluster() as server:
        if server is None:
            pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
        yield server


def test_a_server_that_stops_and_comes_back(own_server: postgres.Server, tmp_path: Path) -> None:
    with Ledger.open(own_server.url(), timeout=5) as ledger:
        register(ledger)
        held = reserve_one(ledger, 1)
        own_server.stop("immediate")
        for action in (
            lambda: ledger.commit(held, {"value": 1.0}),
            lambda: ask(ledger, [2]),
            lambda: ledger.summary("ward-7"),
            lambda: Ledger.open(own_server.url(), timeout=2),
        ):
            with pytest.raises(LedgerBusyError, match=r"out of reach|outcome is unknown"):
                action()
        own_server.start()
        assert ledger.commit(held, {"value": 1.0}).output == {"value": 1.0}
        # A restart between two calls goes unnoticed: nothing had been sent.
        own_server.stop("fast")
        own_server.start()
        reserve_one(ledger, 2)
        assert ledger.summary("ward-7").reserved == 2

        def outage(state: Any, last_tick: int | None, request: Request) -> Admission:
            if own_server.running():
                own_server.stop("immediate")
            return at_most(9)(state, last_tick, request)

        with pytest.raises(LedgerBusyError, match=r"out of reach .*nothing was written"):
            ledger.reserve("ward-7", [Request(3, "mean")], outage, plan_digest=PLAN)
        own_server.start()
        assert ledger.summary("ward-7").reserved == 2
        assert ledger.verify() == []


def test_a_connection_lost_while_committing_may_be_repeated(postgres_server: postgres.Server) -> None:
    """The COMMIT arrives, the answer does not: the caller cannot know, and repeating is safe."""
    with Ledger.open(postgres_server.new_database(), timeout=5) as ledger:
        register(ledger)
        held = reserve_one(ledger, 1)
        engine = ledger._database.engine
        real = engine.dialect.do_commit

        def cut(connection: Any) -> None:
            real(connection)
            connection.dbapi_connection.close()
            connection.dbapi_connection.execute("SELECT 1")  # raises what a lost connection raises

        engine.dialect.do_commit = cut  # type: ignore[method-assign]
        with pytest.raises(LedgerBusyError, match=r"outcome is unknown.*Repeat"):
            ledger.commit(held, {"value": 1.0})
        with pytest.raises(LedgerBusyError, match="outcome is unknown"):
            ask(ledger, [2])
        engine.dialect.do_commit = real  # type: ignore[method-assign]
        assert ledger.commit(held, {"value": 1.0}).seq == 3
        one, two = ask(ledger, [1, 2])
        assert isinstance(one, Published)
        assert not isinstance(two, Reserved)  # charged, and nobody holds it
        assert ledger.summary("ward-7").lost == 1
        assert ledger.verify() == []


def test_a_locked_server_is_busy(postgres_server: postgres.Server) -> None:
    where = postgres_server.new_database()
    with Ledger.open(where, timeout=0.3) as ledger, Ledger.open(where) as other:
        register(ledger)
        with pytest.raises(LedgerBusyError):  # noqa: PT012 - both happen under the other's lock

            def slow(state: Any, last_tick: int | None, request: Request) -> Admission:
                ask(ledger, [2])
                raise AssertionError("the other transaction held the lock")

            other.reserve("ward-7", [Request(1, "mean")], slow, plan_digest=PLAN)
        assert ledger.summary("ward-7").reserved == 0
        reserve_one(ledger, 1)


def test_datasets_on_a_server_do_not_wait_for_each_other(postgres_server: postgres.Server) -> None:
    where = postgres_server.new_database()
    with Ledger.open(where, timeout=2) as ledger, Ledger.open(where, timeout=2) as other:
        register(ledger)
        register(ledger, "ward-8")

        def nested(state: Any, last_tick: int | None, request: Request) -> Admission:
            if not other.summary("ward-8").reserved:
                other.reserve("ward-8", [Request(1, "mean")], at_most(9), plan_digest=PLAN)
            return at_most(9)(state, last_tick, request)

        (answer,) = ledger.reserve("ward-7", [Request(1, "mean")], nested, plan_digest=PLAN)
        assert isinstance(answer, Reserved)
        assert ledger.verify() == []


def test_no_password_in_any_message(postgres_server: postgres.Server, tmp_path: Path) -> None:
    folder = postgres_server.folder
    places = [
        f"postgresql://me:hunter2@/nowhere?host={folder}",
        f"postgres://postgres:hunter2@/nowhere?host={folder}",
        f"postgresql://postgres@/nowhere?host={folder}&password=hunter2",
        f"postgresql://postgres:hunter2@/postgres?host={tmp_path}",
        "postgresql://me:hunter2@[bad/ward",
        "postgresql://me:hunter2@127.0.0.1:1/ward",
        "postgresql://me:hunter2@/ward?nonsense=1",
        "mysql://me:hunter2@host/ward",
    ]
    for place in places:
        with pytest.raises((LedgerError, ValueError)) as caught:
            Ledger.open(place, timeout=2)
        chain: BaseException | None = caught.value
        while chain is not None:
            assert "hunter2" not in str(chain)
            chain = chain.__cause__
    with Ledger.open(postgres_server.new_database().replace("postgres@", "postgres:hunter2@")) as ledger:
        assert "hunter2" not in repr(ledger)


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("40001", LedgerBusyError, "is contended: no turn within 3 s; try again"),
        ("55P03", LedgerBusyError, "is out of reach (as it said); nothing was written; try again"),
        ("57P01", LedgerBusyError, "is out of reach (as it said); nothing was written; try again"),
        ("53100", LedgerBusyError, "cannot grow: the server's disk is full; nothing was written"),
        ("XX001", LedgerCorruptError, "reports damaged data (as it said)"),
        ("42501", LedgerError, "refused the transaction (as it said); nothing was written"),
    ],
)
def test_what_a_server_says_becomes_what_to_do(state: str, kind: type[LedgerError], words: str) -> None:
    engine = sa.create_engine("postgresql+psycopg://me:hunter2@/ward")  # never connected
    database = store.Database(engine, label="the ledger", timeout=3, read_only=False)
    said = psycopg.errors.lookup(state)("as it said\nHINT: the statement was SELECT hunter2")
    told = database.translate(sa.exc.DBAPIError("SELECT 'hunter2'", {}, said))
    assert type(told) is kind
    assert str(told) == f"the ledger {words}"


def test_a_connection_that_was_cut_is_given_up_after_the_timeout() -> None:
    """In seconds, and in milliseconds for the kernel; three unanswered probes take as long as the silence before."""
    assert store._connect_settings(30.0) == {
        "connect_timeout": 30,
        "tcp_user_timeout": 30_000,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }


def test_a_server_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="URL cannot be used; give postgresql://user@host/database"):
        Ledger.open("postgresql://me:hunter2@/ward?host=a&host=b&host=c&port=1&port=2")
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as where it is not installed
    with pytest.raises(LedgerError, match=r"PostgreSQL needs the psycopg package: install csdp\[postgres\]"):
        Ledger.open("postgresql://me@/ward")
