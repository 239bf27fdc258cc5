"""Leases on a real PostgreSQL server: one holder at a time, and a fence that the database itself checks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psycopg
import pytest

from csdp.errors import InputError, LedgerError, LedgerLeaseError
from csdp.ledger import Admission, Charge, DatasetState, Fence, Ledger, Request, Terms, lease

TERMS = Terms(plan_digest="p", plan_json="{}", chain_digest="c")


def admit(state, last_tick, request):
    return Admission(DatasetState(cost=0.5), Charge(present=0.5))


def reserve(ledger, tick, dataset="ward"):
    return ledger.reserve(dataset, [Request(tick, "mean")], admit, plan_digest="p")[0]


@pytest.fixture
def url(postgres_server):
    found = postgres_server.new_database()
    with Ledger.open(found) as ledger:
        ledger.register("ward", TERMS)
    return found


@pytest.fixture
def candidate(url):
    """Leases as different processes would ask for them."""
    opened = []

    def make(dataset="ward", *, where=url, seconds=60.0):
        ledger = Ledger.open(where, timeout=5)
        opened.append((ledger, ledger.lease(dataset, seconds=seconds)))
        return opened[-1][1]

    yield make
    for ledger, asked in opened:
        asked.close()
        ledger.close()


def expire(url):
    """Let the time of the holder pass, by the clock of the server."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE csdp_leases SET expires = clock_timestamp() - interval '1 s'")


def test_a_lease_is_on_disk_whatever_the_server_s_default(url, postgres_server):
    """Else a server that fails could forget who holds it, and hand its number out again."""
    with Ledger.open(f"{url}{'&' if '?' in url else '?'}options=-csynchronous_commit%3Doff") as ledger:
        held = ledger.lease("ward")
        assert held.renew()
        assert held._session.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        held.close()


def test_one_holder_at_a_time(candidate):
    first, second = candidate(), candidate()
    assert first.renew()
    assert not second.renew()
    assert first.renew("waiting for the ledger")
    assert not second.renew()
    assert second.leader.trouble == "waiting for the ledger"
    assert 0 <= second.leader.silent < 30
    first.close()
    assert not first.is_current()
    assert second.renew()
    assert second.fence.number == 2


def test_who_does_not_renew_is_replaced_and_fenced(candidate, url):
    """Between reserve and commit: the tick stays charged, and what the former holder drew never comes out."""
    hung, heir = candidate(), candidate()
    assert hung.renew()
    with Ledger.open(url, fence=hung.fence) as stale:
        reserved = reserve(stale, 1)
        assert not heir.renew()
        expire(url)
        reserve(stale, 2)  # but as long as nobody has taken over, nothing is wrong
        assert heir.renew()
        for write in (lambda: stale.commit(reserved, {"value": 1.0}), lambda: reserve(stale, 3)):
            with pytest.raises(LedgerLeaseError, match="another process has taken over dataset 'ward'"):
                write()
        assert not hung.renew()
        with Ledger.open(url, fence=heir.fence) as live:
            live.commit(reserve(live, 3), {"value": 2.0})
            summary = live.summary("ward")
            assert (summary.reserved, summary.committed, summary.lost) == (3, 1, 2)
            assert live.verify() == []


def test_the_holder_knows_by_its_own_clock(candidate):
    holder = candidate(seconds=0.01)
    holder.renew()
    time.sleep(0.02)
    assert not holder.is_current()


def test_the_fence_is_checked_in_the_transaction(candidate, url, monkeypatch):
    """A takeover waits for a transaction that has begun, so no write of the old holder comes after it."""
    monkeypatch.setattr(lease, "_LOCK_SECONDS", 0.2)
    old, heir = candidate(), candidate()
    assert old.renew()
    expire(url)
    seen = []

    def slow(state, last_tick, request):
        seen.append(heir.renew())  # waits for the row, in vain
        return admit(state, last_tick, request)

    with Ledger.open(url, fence=old.fence) as ledger:
        ledger.reserve("ward", [Request(1, "mean")], slow, plan_digest="p")
    assert seen == [False]
    assert heir.renew()


def test_a_stop_in_a_transaction_keeps_nobody_out(candidate, url, monkeypatch):
    """The server ends the session of a holder that was stopped while it held the row of the dataset."""
    code = (
        "import os, signal, sys; from csdp.ledger import *; from ledger.test_lease import admit\n"
        "ledger = Ledger.open(sys.argv[1], fence=Fence('ward', 1, 0.5))\n"
        "def stop(*rest):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return admit(*rest)\n"
        "ledger.reserve('ward', [Request(1, 'mean')], stop, plan_digest='p')\n"
    )
    monkeypatch.setattr(lease, "_LOCK_SECONDS", 0.2)
    hung, heir = candidate(), candidate()
    assert hung.renew()
    expire(url)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code, url], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        deadline = time.monotonic() + 120
        while not heir.renew():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with Ledger.open(url, fence=heir.fence, timeout=5) as live:
            live.commit(reserve(live, 1), {"value": 1.0})
        process.send_signal(signal.SIGCONT)
        assert "LedgerLeaseError" in process.communicate(timeout=120)[1]
    finally:
        process.kill()
        process.wait()
    with Ledger.open(url) as ledger:
        assert (ledger.summary("ward").reserved, ledger.summary("ward").committed) == (1, 1)


def test_a_dead_holder_is_replaced_before_its_time_is_over(candidate):
    dead, heir = candidate(), candidate()
    assert dead.renew()
    dead._disconnect()  # what the server sees of a killed process
    assert not heir.renew()  # it might only have been cut off for a moment
    assert heir.renew()
    assert not dead.renew()


def test_a_cut_connection_does_not_lose_the_lease(candidate, url):
    holder, other = candidate(), candidate()
    assert holder.renew()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert holder.renew()  # the error is met here, and the lease is still ours
    assert holder.renew()
    assert not other.renew()
    assert not other.renew()
    assert not other.renew()


def test_every_schema_has_leases_of_its_own(candidate, url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
    elsewhere = f"{url}&options=-csearch_path%3Dother"
    with Ledger.open(elsewhere) as ledger:
        ledger.register("ward", TERMS)
    here, there = candidate(), candidate(where=elsewhere)
    assert here.renew()
    assert there.renew()


def test_who_may_not_create_the_table_is_told(postgres_server, url):
    role = f"r{os.urandom(4).hex()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {role}")
    with Ledger.open(url.replace("postgres@", f"{role}@")) as ledger:
        with pytest.raises(LedgerError, match="may not create the table csdp_leases"):
            ledger.lease("ward")
        with Ledger.open(url) as owner:
            owner.lease("ward")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"GRANT SELECT, INSERT, UPDATE ON csdp_leases TO {role}")
        granted = ledger.lease("ward")
        assert granted.renew()
        granted.close()


def test_a_file_has_one_process(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        only = ledger.lease("ward")
        assert (only.renew(), only.is_current(), only.fence) == (True, True, None)
    with pytest.raises(InputError, match="a ledger in a file has no leases"):
        Ledger.open(tmp_path / "ledger.db", fence=Fence("ward", 1, 1.0))
