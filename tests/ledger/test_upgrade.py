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

from csdp import CoupledChain, Mean, Plan, Publisher, replay
from csdp.ledger import Ledger
from csdp.plan import ALGORITHM
from csdp.publisher import Release
from csdp.report.certificate import certify

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


class TestTheVersionOfTheAlgorithm:
    """Version 0.1 had algorithm 1. Its numbers are computed anew, and nothing is called what it is not."""

    def test_plans_keep_their_names(self, old):
        with Ledger.open(old) as ledger:
            recorded = [(one.name, ledger.dataset(one.name).terms) for one in ledger.datasets()]
        assert ALGORITHM > 1
        again = {name: Plan.from_json(terms.plan_json) for name, terms in recorded if "custom" not in terms.plan_json}
        assert len(again) > 4
        for name, terms in recorded:
            if name in again:
                assert again[name].digest == terms.plan_digest
                assert again[name].written_by == 1
        written = json.loads(again["mean"].to_json())
        assert written["algorithm"] == ALGORITHM
        assert Plan.from_json(json.dumps(written)).digest == again["mean"].digest

    def test_a_plan_file_is_certified_anew(self):
        plan = Plan.from_json((FILES / "plan-0.1.json").read_text())
        assert plan.written_by == 1
        words = f"certified anew by version {ALGORITHM} of the algorithm: the plan was written by version 1"
        assert words in plan.certified.assumptions
        new = Plan.from_json(plan.to_json())
        assert not any("anew" in one for one in new.certified.assumptions)
        assert new.certified.epsilon == plan.certified.epsilon

    def test_charges_name_the_version_that_computed_them(self, old):
        plan = Plan(
            CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], values=[0.0, 2.0]), Mean(), 1, 0.5
        )
        with Ledger.open(old) as ledger:
            with Publisher(plan, dataset="mean", ledger=ledger, budget=2.0) as publisher:
                publisher.observe([0, 1], time=5)
                publisher.push([0, 1], time=6)
                certificate = certify(publisher, ledger)
            charges = [e.data()["charge"]["algorithm"] for e in ledger.entries("mean") if e.kind == "reserve"]
            assert set(charges[:-1]) == {1}
            assert charges[-1] == ALGORITHM
            assert any("recorded by version 1 of the algorithm" in words for words in certificate.assumptions)
            replayed = replay(ledger, dataset="mean")
            assert replayed.findings == ()
            told = [words for words in replayed.notes if "charged by version 1 of the algorithm" in words]
            assert len(told) == len(charges) - 1

    def test_a_plan_that_was_found_before_is_kept(self, tmp_path, monkeypatch):
        from csdp.chain.files import save_model
        from csdp.stream import from_spec
        from csdp.stream.from_spec import make_plan
        from csdp.stream.spec import read_spec

        chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
        save_model(chain, tmp_path / "chain.json")
        (tmp_path / "stream.toml").write_text(
            'dataset = "d"\nledger = "ledger.db"\nchain = "chain.json"\n[target]\nquery = "mean"\nbudget = 1.0\n'
            'file = "plan.json"\n[clock]\nstep = 10\n[source]\nkind = "stdin"\n[sink]\nkind = "stdout"\n'
        )
        spec = read_spec(tmp_path / "stream.toml")
        with monkeypatch.context() as before:
            before.setattr(from_spec, "ALGORITHM", 1)
            found = make_plan(spec)
        file = tmp_path / "plan.json"
        content = json.loads(file.read_text())
        file.write_text(json.dumps({**content, "algorithm": 1}))
        kept = make_plan(spec)
        assert kept.digest == found.digest
        assert json.loads(file.read_text())["algorithm"] == 1  # as it was written
        assert kept.written_by == 1
        file.write_text(json.dumps({**content, "found_for": "another target"}))
        assert make_plan(spec).written_by == ALGORITHM
        assert json.loads(file.read_text())["found_for"] not in {content["found_for"], "another target"}
