"""Looking at a ledger changes nothing and shows all of it; over SQLite and PostgreSQL."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from csdp.errors import LedgerError
from csdp.ledger import Ledger
from csdp.ledger.records import GENESIS, entry_hash
from csdp.ledger.store import VERSION
from ledger.rules import ask, register, reserve_one

OpenLedger = Callable[[], Ledger]


def test_export_lets_anyone_recompute_the_hashes(ledger: Ledger) -> None:
    register(ledger)
    ledger.commit(reserve_one(ledger, 1), {"value": math.inf})
    ask(ledger, [2], limit=1)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in ledger.export("ward-7")]
    assert [line["line"] for line in lines] == ["dataset", "terms", *["entry"] * 4]
    assert lines[0]["format"] == f"csdp-ledger/{VERSION}"
    assert json.loads(lines[2]["payload"])["terms"] == lines[1]["digest"]
    previous = GENESIS
    for line in lines[2:]:
        assert line["previous"] == previous
        previous = entry_hash(previous, line)
        assert line["hash"] == previous
    assert ledger.summary("ward-7").head_hash == previous


def test_the_program_in_the_documentation_checks_an_export(ledger: Ledger) -> None:
    page = Path(__file__).parents[2] / "docs" / "ledger-format.md"
    lines = page.read_text().partition("    import hashlib")[2].partition("\n\n")[0]
    program = textwrap.dedent("    import hashlib" + lines)
    register(ledger)
    ledger.commit(reserve_one(ledger, 1, "größte"), {"value": math.inf})
    export = list(ledger.export("ward-7"))
    for text, code in ((export, 0), ([line.replace("größte", "x").replace("gr\\u00f6", "x") for line in export], 1)):
        done = subprocess.run(
            [sys.executable, "-c", program], input="\n".join(text), text=True, capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr


def test_outputs_can_be_asked_for_by_tick(ledger: Ledger) -> None:
    register(ledger)
    # Published out of order, beside another query, and one tick that is charged and never published.
    held = [reserve_one(ledger, tick) for tick in (1, 2, 3, 5)]
    other = reserve_one(ledger, 5, "max")
    for one in (held[3], other, held[0], held[2]):
        ledger.commit(one, {"value": 10 * one.tick})

    def ticks(after: int | None, limit: int = 9, query: str = "mean") -> list[int]:
        found = ledger.outputs("ward-7", query=query, after=after, limit=limit)
        assert all(one.output == {"value": 10 * one.tick} for one in found)
        return [one.tick for one in found]

    assert ticks(0) == ticks(None) == [1, 3, 5]
    assert ticks(1) == [3, 5]
    assert ticks(1, limit=1) == [3]
    assert ticks(None, limit=2) == [3, 5]
    assert ticks(5) == []
    assert ticks(0, query="max") == [5]
    assert ticks(0, query="sum") == []
    assert [one.tick for one in ledger.outputs("ward-7", query="mean", before=5, limit=1)] == [3]
    assert [one.query for one in ledger.outputs("ward-7", after=4, before=6)] == ["max", "mean"]


def test_read_only_reads_and_never_writes(where: str, open_ledger: OpenLedger) -> None:
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(where, read_only=True)
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger.open(where, create=False)
    register(open_ledger())
    with Ledger.open(where, read_only=True) as ledger:
        assert ledger.verify() == []
        with pytest.raises(LedgerError, match="read_only=True"):
            register(ledger)
    with pytest.raises(LedgerError, match="closed"):
        ledger.datasets()
    ledger.close()


def test_a_forked_child_uses_connections_of_its_own(ledger: Ledger) -> None:
    register(ledger)
    reserve_one(ledger, 1)
    database = ledger._database
    pool = database.engine.pool
    database._process = -1  # what a child sees: another process opened the connections
    reserve_one(ledger, 2)
    assert database.engine.pool is not pool
    assert database._process == os.getpid()
    pool.dispose()
