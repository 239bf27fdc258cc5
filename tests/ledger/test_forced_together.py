"""Charges that reach the disk together with their output: a power failure never leaves an output without its charge."""

from __future__ import annotations

import shutil
import sqlite3

import psycopg
import pytest

import postgres
from csdp import CoupledChain, Custom, Identity
from csdp.errors import InputError, LedgerBusyError
from csdp.ledger import Ledger, Request, Reserved, database
from csdp.ledger.outputs import INLINE_VALUES
from csdp.plan import Plan
from csdp.publisher import Publisher, Release, plan_estimator
from csdp.publisher.release import stays_in_memory
from ledger.rules import PLAN, at_most, register
from publisher.rules import NAME, check, opened, panel, plan, snapshot

DATASET = "ward-7"
#: Sizes in a write-ahead log: its header, and a frame around each page.
HEADER, FRAME = 32, 24


def reserve(ledger: Ledger, tick: int, *, durable: bool = False) -> Reserved:
    [held] = ledger.reserve(DATASET, [Request(tick, "mean")], at_most(100), plan_digest=PLAN, durable=durable)
    assert isinstance(held, Reserved)
    return held


def entries(ledger: Ledger) -> list[tuple[str, int | None]]:
    return [(one.kind, one.tick) for one in ledger.entries(DATASET) if one.kind in ("reserve", "commit")]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A ledger as a power failure finds it: some pairs are only in the write-ahead log."""
    folder = tmp_path_factory.mktemp("written")
    with Ledger.open(folder / "ledger.db") as ledger:
        register(ledger)
        first = reserve(ledger, 0, durable=True)  # from here on the ledger remembers where its log stands
        ledger.commit(first, {"value": 0})
        with sqlite3.connect(folder / "ledger.db") as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        for tick in range(1, 7):
            ledger.commit(reserve(ledger, tick), {"value": tick})
        reserve(ledger, 7)
        for name in ("ledger.db", "ledger.db-wal"):
            shutil.copy(folder / name, folder / f"copy-{name}")
    return folder


def after_power_failure(folder, target, log):
    """Open a copy of the ledger whose write-ahead log holds only what reached the disk."""
    target.mkdir()
    shutil.copy(folder / "copy-ledger.db", target / "ledger.db")
    (target / "ledger.db-wal").write_bytes(log)
    (target / "ledger.db-wal").chmod(0o600)
    with Ledger.open(target / "ledger.db") as ledger:
        assert ledger.verify() == []
        return entries(ledger)


def test_any_gap_in_the_log_loses_all_that_came_after_it(written, tmp_path):
    """Frames that were not forced may be missing at the end, or be missing in the middle while later ones are there."""
    whole = (written / "copy-ledger.db-wal").read_bytes()
    page = int.from_bytes(whole[8:12])
    frames = (len(whole) - HEADER) // (FRAME + page)
    counts = set()
    for k in range(frames):
        at = HEADER + k * (FRAME + page)
        cut, hole = whole[: at + FRAME + page // 2], whole[:at] + bytes(FRAME + page) + whole[at + FRAME + page :]
        for name, log in (("cut", cut), ("hole", hole)):
            found = after_power_failure(written, tmp_path / f"{name}-{k}", log)
            charged = {tick for kind, tick in found if kind == "reserve"}
            published = {tick for kind, tick in found if kind == "commit"}
            assert published <= charged
            assert sorted(charged) == list(range(len(charged)))
            counts.add((len(charged), len(published)))
    assert len(counts) > 10, "the gaps fell into hardly any different places"
    assert after_power_failure(written, tmp_path / "whole", whole)[-1] == ("reserve", 7)


@pytest.fixture
def forced(monkeypatch):
    """How the connection of every COMMIT was set. 1: NORMAL, which forces nothing; 2: FULL."""
    seen = []

    class Spy(sqlite3.Connection):
        def execute(self, statement, *bound):
            if statement == "COMMIT":
                (level,) = super().execute("PRAGMA synchronous").fetchone()
                seen.append(level)
            return super().execute(statement, *bound)

        def commit(self):  # how SQLAlchemy ends a transaction
            self.execute("COMMIT") if self.in_transaction else super().commit()

    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: plain(*a, **{"factory": Spy, **k}))
    return seen


def test_only_the_commit_waits_for_the_disk(tmp_path, forced):
    """Every statement's transaction and how the connection is set: charges of ticks are not forced, all else is."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        ledger.commit(reserve(ledger, 0, durable=True), {"value": 0})
        forced.clear()
        for tick in (1, 2, 3):
            ledger.commit(reserve(ledger, tick), {"value": tick})
        ledger.commit(reserve(ledger, 4, durable=True), {"value": 4})
    assert forced == [1, 2, 1, 2, 1, 2, 2, 2]


def test_after_an_error_the_connection_forces_again(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        ledger.commit(reserve(ledger, 0), {"value": 0})

        def fail(_):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            ledger._database.append([fail], durable=False)
        with ledger._database.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        ledger.commit(reserve(ledger, 1), {"value": 1})
        assert ledger.verify() == []


@pytest.mark.parametrize("when", ["before the charge", "after the charge"])
def test_after_an_interruption_the_connection_forces_again(tmp_path, monkeypatch, forced, when):
    """A signal may come between any two steps of Python: also before the setting is put back."""
    statement = f"PRAGMA synchronous = {'NORMAL' if when == 'before the charge' else 'FULL'}"
    plain = database.execute_raw

    def interrupt(connection, given, bound=None):
        if given != statement:
            return plain(connection, given, bound)
        monkeypatch.setattr(database, "execute_raw", plain)
        if "NORMAL" in given:
            plain(connection, given)
        raise KeyboardInterrupt

    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        ledger.commit(reserve(ledger, 0), {"value": 0})
        monkeypatch.setattr(database, "execute_raw", interrupt)
        with pytest.raises(KeyboardInterrupt):
            reserve(ledger, 1)
        forced.clear()
        with ledger._database.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        ledger.commit(reserve(ledger, 2, durable=True), {"value": 2})
        assert forced.count(2) == len(forced) > 1
        assert ledger.verify() == []


def test_a_refusal_is_forced_at_once(tmp_path, monkeypatch):
    """Somebody is told of it, so it must not vanish; only charges may wait for their output."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        ledger.commit(reserve(ledger, 0), {"value": 0})
        forced, plain = [], ledger._database.append

        def note(steps, *, durable):
            forced.append(durable)
            return plain(steps, durable=durable)

        monkeypatch.setattr(ledger._database, "append", note)
        wanted = [Request(tick, "mean") for tick in (1, 2)]
        ledger.reserve(DATASET, wanted, at_most(2), plan_digest=PLAN, durable=False)
        # The refusal had to be looked up, so the locked log decided, and that is always forced.
        assert forced == []
        assert [entry.kind for entry in ledger.entries(DATASET)][-1] == "refuse"


def test_an_output_that_needs_a_file_needs_a_forced_charge(tmp_path):
    output = {"values": [0.5] * (INLINE_VALUES + 1)}
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        ledger.commit(reserve(ledger, 0), {"value": 0})
        with pytest.raises(InputError, match="must be durable"):
            ledger.commit(reserve(ledger, 1), output)
        assert not list(tmp_path.glob("*.outputs/*"))
        ledger.commit(reserve(ledger, 2, durable=True), output)
        assert ledger.verify() == []


class LazyServer(postgres.Server):
    """A server that writes what was not forced only when it must: a failure then loses it."""

    def create(self) -> None:
        super().create()
        with (self.folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write("wal_writer_delay = 10s\nwal_writer_flush_after = 1GB\nautovacuum = off\n")


@pytest.fixture(scope="module")
def lazy_server():
    with postgres.cluster(LazyServer) as server:
        if server is None:
            pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
        yield server


def unflushed(where: str) -> int:
    """Bytes of the server's log that are not on disk."""
    with psycopg.connect(where, autocommit=True) as connection:
        query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn())"
        return int(connection.execute(query).fetchone()[0])


def test_a_server_forces_the_commit_and_not_the_charge(lazy_server):
    where = lazy_server.new_database()
    with Ledger.open(where) as ledger:
        register(ledger)
        ledger.commit(reserve(ledger, 0), {"value": 0})
        held = reserve(ledger, 1)
        assert unflushed(where) > 0
        ledger.commit(held, {"value": 1})
        assert unflushed(where) == 0
        reserve(ledger, 2, durable=True)
        assert unflushed(where) == 0
        with ledger._database.engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_a_server_that_fails_loses_the_charge_and_the_output_is_not_recorded(lazy_server):
    with Ledger.open(lazy_server.new_database()) as ledger:
        register(ledger)
        ledger.commit(reserve(ledger, 0), {"value": 0})
        held = reserve(ledger, 1)
        lazy_server.stop("immediate")
        lazy_server.start()
        with pytest.raises(LedgerBusyError, match=r"lost the charge of tick 1.*nothing was published; try again"):
            ledger.commit(held, {"value": 1})
        assert entries(ledger) == [("reserve", 0), ("commit", 0)]
        ledger.commit(reserve(ledger, 1), {"value": 11})
        assert entries(ledger)[2:] == [("reserve", 1), ("commit", 1)]
        assert ledger.verify() == []


def test_a_publisher_goes_on_after_a_server_that_failed(lazy_server, monkeypatch):
    """The tick whose charge was lost is published once, when it is pushed again; what it was charged counts."""
    with opened(lazy_server.new_database(), budget=None) as publisher:
        for tick in range(3):
            publisher.push(snapshot(tick), time=tick)
        plain = Ledger.commit_many

        def fail_first(ledger, pairs):
            monkeypatch.setattr(Ledger, "commit_many", plain)
            lazy_server.stop("immediate")
            lazy_server.start()
            return plain(ledger, pairs)

        monkeypatch.setattr(Ledger, "commit_many", fail_first)
        with pytest.raises(LedgerBusyError):
            publisher.push(snapshot(3), time=3)
        assert isinstance(publisher.push(snapshot(3), time=3), Release)
        assert isinstance(publisher.push(snapshot(4), time=4), Release)
        assert sorted(check(publisher.ledger, budget=None)) == [1, 2, 3, 4]


def test_ticks_of_a_stream_are_forced_with_their_output_and_batches_before_it(tmp_path, monkeypatch):
    seen: list[bool] = []
    plain = Ledger.reserve

    def note(ledger, *given, durable, **rest):
        seen.append(durable)
        return plain(ledger, *given, durable=durable, **rest)

    monkeypatch.setattr(Ledger, "reserve", note)
    with opened(tmp_path / "a.db") as publisher:
        publisher.push(snapshot(0), time=0)
        publisher.push(snapshot(1), time=1)
        publisher.publish(panel(4))
    assert seen == [False, True]
    seen.clear()
    own = CoupledChain({(i, i): 1.0 for i in range(3000)}, [[0.7, 0.3], [0.3, 0.7]])
    with Publisher(Plan(own, Identity(), ages=0, epsilon_c=1.0), dataset=NAME, ledger=tmp_path / "b.db") as publisher:
        publisher.push([0] * 3000, time=0)
    assert seen == [True]  # its output goes to a file
    many = CoupledChain({(i, i): 1.0 for i in range(14)}, [[0.7, 0.3], [0.3, 0.7]])
    called = Custom(lambda states: float(states[0]), sensitivity=1.0, name="own")
    assert not stays_in_memory(Plan(many, called, ages=1, epsilon_c=1.0, bound="lineage"))  # it sees the readings


def test_an_estimator_of_ones_own_sees_no_output_before_its_charge_is_forced(tmp_path, forced):
    """It may show what it is given to anybody. A power failure would lose the charge, and the tick come out anew."""
    wanted = plan()
    inner, at = plan_estimator(wanted), []

    class Own:
        kind, about, level, memory = "own", inner.about, inner.level, inner.memory

        def check(self, ages, outputs):
            inner.check(ages, outputs)

        def expected(self, noise):
            return inner.expected(noise)

        def of(self, releases):
            at.append(forced[-1])
            return inner.of(releases)

    with opened(tmp_path / "ledger.db", plan=wanted, estimator=Own()) as publisher:
        for tick in range(4):
            publisher.push(snapshot(tick), time=tick)
    assert at == [2, 2, 2]
    forced.clear()
    with opened(tmp_path / "other.db", plan=wanted, estimator=inner) as publisher:
        for tick in range(4):
            publisher.push(snapshot(tick), time=tick)
    assert 1 in forced  # ours shows nothing to anybody, so its ticks are forced once
