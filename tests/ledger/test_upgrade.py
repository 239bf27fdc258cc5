"""Ledgers and plans of version 0.1: read as they are, gone on from, and nothing that they say is changed.

What they mean, and that their charges are recomputed, is in tests/contracts/test_outsider_contract.py.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from csdp import CoupledChain, Mean, Plan, Publisher
from csdp.ledger import Ledger
from csdp.publisher import Release

from command import run_command as run  # isort: skip

FILES = Path(__file__).parents[1] / "files"


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "ledger.db"
    with gzip.open(FILES / "ledger-0.1.db.gz") as packed, path.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    path.chmod(0o600)
    return path


def rows(path):
    """Every row of every table that is never updated, as it is in the file."""
    with sqlite3.connect(path) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            for table in ("csdp_meta", "csdp_plans", "csdp_entries")
        }


def test_what_was_recorded_stays_to_the_letter(old):
    before = rows(old)
    plan = Plan(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], values=[0.0, 2.0]), Mean(), 1, 0.5)
    with Ledger.open(old) as ledger:
        assert ledger.migrate() == []
        heads = {one.name: one.head_hash for one in ledger.datasets()}
        promised = ledger.dataset("mean").terms.guarantee
        assert all(ledger.verify(name, head=head) == [] for name, head in heads.items())
        with Publisher(plan, dataset="mean", ledger=ledger, budget=2.0) as publisher:
            publisher.observe([0, 1], time=5)
            first = publisher.push([0, 1], time=6)
            assert isinstance(first, Release)
        assert ledger.dataset("mean").terms.guarantee == promised
        # The old heads are still on the way: the new entries follow them.
        assert all(ledger.verify(name, head=head) == [] for name, head in heads.items())
    after = rows(old)
    assert after["csdp_meta"] == before["csdp_meta"]
    assert after["csdp_plans"] == before["csdp_plans"]
    kept = [entry for entry in after["csdp_entries"] if entry in set(before["csdp_entries"])]
    assert kept == before["csdp_entries"]
    assert len(after["csdp_entries"]) == len(before["csdp_entries"]) + 2


def test_a_repeated_tick_is_the_old_output(old):
    with Ledger.open(old) as ledger:
        [*_, newest] = ledger.published("mean")
        plan = Plan.from_json(ledger.history("mean")[0].plan_json)
        with Publisher(plan, dataset="mean", ledger=ledger, budget=2.0) as publisher:
            publisher.observe([0, 1], time=newest.tick - 1)
            again = publisher.push([1, 1], time=newest.tick)
        assert list(again.values) == newest.output["values"]
        assert ledger.summary("mean").head_seq == newest.seq


def test_the_command_line_reads_it(old):
    done = run("ledger", "verify", str(old), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert run("ledger", "migrate", str(old)).returncode == 0
