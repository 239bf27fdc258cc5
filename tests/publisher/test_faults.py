"""Kills, races and locks: charged >= published always, no output without a record, no noise drawn twice."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from csdp.errors import LedgerBusyError
from csdp.ledger import Ledger
from csdp.publisher import Release

from publisher.rules import check, opened, panel, snapshot  # isort: skip

DRIVER = str(Path(__file__).with_name("driver.py"))


def drive(*given: object, timeout: float = 500) -> dict[str, int]:
    """Run the driver; its counts."""
    command = [sys.executable, "-W", "ignore", DRIVER, *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    words = done.stdout.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def test_killed_before_every_statement(where: str, tmp_path: Path) -> None:
    found = drive("statements", where, tmp_path / "sink")
    assert found["kills"] >= (12 if where.startswith("sqlite") else 7)
    assert 0 < found["lost"] <= 5 * found["kills"]


@pytest.mark.parametrize("count", [30, pytest.param(1100, marks=pytest.mark.slow)])
def test_killed_at_random_moments(where: str, tmp_path: Path, count: int) -> None:
    found = drive("kills", where, tmp_path / "sink", count, count, timeout=3500)
    assert found["published"] > count // 4


def test_eight_processes_race(where: str, tmp_path: Path) -> None:
    found = drive("race", where, tmp_path / "sink", 8, 25)
    assert found["published"] > 8


@pytest.mark.parametrize("mode", ["push", "batch"])
def test_a_locked_database_is_busy_and_nothing_is_lost(file: Path, mode: str) -> None:
    with opened(file, on_refusal="skip") as publisher:
        publisher.publish(panel(2))
    with Ledger.open(file, timeout=0.2) as ledger, opened(ledger, on_refusal="skip") as publisher:
        publisher.push(snapshot(1), time=1)
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerBusyError):
            publisher.push(snapshot(2), time=2) if mode == "push" else publisher.publish(panel(5))
        holder.execute("ROLLBACK")
        holder.close()
        assert publisher.summary()["lost"] == 0
        if mode == "push":
            result = publisher.push(snapshot(2), time=2)  # the same tick again
            assert isinstance(result, Release)
        else:
            assert {r.tick for r in publisher.publish(panel(5))} == {1, 2, 3}
        check(ledger)


def test_a_lock_between_reserve_and_commit_loses_the_tick_but_stays_charged(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(file, timeout=0.2) as ledger, opened(ledger, on_refusal="skip") as publisher:
        publisher.push(snapshot(0), time=0)
        from csdp.publisher import gate

        plain = gate.fran.release
        holder = sqlite3.connect(file, isolation_level=None)

        def slow(*given: object, **named: object) -> object:
            holder.execute("BEGIN IMMEDIATE")
            return plain(*given, **named)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(gate.fran, "release", slow)
            with pytest.raises(LedgerBusyError):
                publisher.push(snapshot(1), time=1)
        holder.execute("ROLLBACK")
        holder.close()
        again = publisher.push(snapshot(1), time=1)
        assert not isinstance(again, Release)
        assert publisher.summary()["lost"] == 1
        assert isinstance(publisher.push(snapshot(2), time=2), Release)
        check(ledger)
