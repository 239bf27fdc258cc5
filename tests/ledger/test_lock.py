"""One process holds a dataset: others are refused or stand by, and a holder that lost its right writes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import postgres
from csdp.errors import LedgerError, LedgerHeldError
from csdp.ledger import Ledger, Reserved
from csdp.ledger.store import SessionLock
from ledger import workers
from ledger.rules import ask, register, reserve_one

OpenLedger = Callable[[], Ledger]


def test_a_second_holder_is_refused_in_words(open_ledger: OpenLedger) -> None:
    first, second = open_ledger(), open_ledger()
    register(first)
    first.hold("ward-7")
    with pytest.raises(LedgerHeldError, match=r"'ward-7' of .* is published by another process; wait until that has"):
        second.hold("ward-7")
    with pytest.raises(LedgerError, match="holds a dataset already"):
        first.hold("ward-8")
    second.hold("ward-8")
    first.commit(reserve_one(first, 1), {"value": 1.0})
    first.close()
    open_ledger().hold("ward-7")


def test_a_standby_takes_over_and_the_old_holder_is_refused(where: str, open_ledger: OpenLedger) -> None:
    """The holder is stopped and its session ended; it wakes up while another process publishes."""
    ledger = open_ledger()
    register(ledger)
    command = [sys.executable, str(Path(workers.__file__)), "hold", where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        standby = threading.Thread(target=ledger.hold, args=("ward-7",), kwargs={"standby": True})
        standby.start()
        standby.join(1.5)
        assert standby.is_alive()  # a stopped process still holds it
        on_server = where.startswith("postgresql")
        if on_server:
            with psycopg.connect(where) as server:
                server.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        else:
            holder.kill()
        standby.join(60)
        assert not standby.is_alive()
        assert isinstance(ask(ledger, [1])[0], Reserved)
        if on_server:
            holder.send_signal(signal.SIGCONT)
            answer, _ = holder.communicate("go\n", timeout=60)
            assert answer.split() == ["LedgerHeldError"] * 2  # it is never connected anew
    assert ledger.summary("ward-7").reserved == 1


def test_an_interrupted_write_ends_the_right(postgres_server: postgres.Server) -> None:
    """The driver closes a connection that is interrupted: it must not be opened anew without the lock."""
    with Ledger.open(postgres_server.new_database()) as ledger:
        register(ledger)
        ledger.hold("ward-7")
        ledger.check_held()
        lock = ledger._database._lock
        assert isinstance(lock, SessionLock)
        lock.session.invalidate()
        for _ in range(2):
            with pytest.raises(LedgerHeldError, match="was lost, and the right with it"):
                ask(ledger, [1])
        with pytest.raises(LedgerHeldError):
            ledger.check_held()
