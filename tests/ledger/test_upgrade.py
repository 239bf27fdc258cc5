"""Files of csdp 0.1 are refused in words; plans and ledgers of an older algorithm go on, and every number says whose.

What was recorded is never changed.
"""

from __future__ import annotations

import gzip
import importlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from csdp import CoupledChain, Mean, Plan, Publisher, replay
from csdp.errors import BudgetExceeded, InputError, LedgerConflictError, LedgerTermsError
from csdp.ledger import Charge, Ledger, store
from csdp.plan import ALGORITHM
from csdp.publisher import Release, Standing
from csdp.report.certificate import certify

from command import run_command as run  # isort: skip

FILES = Path(__file__).parents[1] / "files"
PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], values=[0.0, 2.0])
PLAN = Plan(PAIR, Mean(), 1, 0.5)
#: Modules that know the version of the algorithm.
MODULES = (
    "csdp.plan",
    "csdp.accountant.record",
    "csdp.audit.replay",
    "csdp.publisher.charge",
    "csdp.publisher.status",
    "csdp.report.series",
)


def unpack(version: str, folder: Path) -> Path:
    """A ledger of an earlier version as a file of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / "ledger.db"
    with gzip.open(FILES / f"ledger-{version}.db.gz") as packed, path.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    path.chmod(0o600)
    return path


def unpack_at(where: str, folder: Path) -> str | Path:
    """A ledger of 0.2 as a file of its own, or copied to a server row by row."""
    path = unpack("0.2", folder)
    if where.startswith("sqlite"):
        return path
    Ledger.open(where).close()
    target = sa.create_engine(where.replace("postgresql://", "postgresql+psycopg://"))
    with sa.create_engine(f"sqlite:///{path}").connect() as old, target.begin() as new:
        for table in (store.datasets, store.plans, store.entries):
            new.execute(sa.insert(table), [dict(row._mapping) for row in old.execute(sa.select(table))])
    target.dispose()
    return where


class TestVersion02:
    """A ledger of csdp 0.2: several plans, gaps, late readings, an initial law, a schedule, a change of plan."""

    def test_it_is_verified_and_replayed_and_goes_on(self, where: str, tmp_path: Path) -> None:
        with Ledger.open(unpack_at(where, tmp_path / "old")) as ledger:
            assert ledger.verify() == []
            recorded = {one.name: list(ledger.entries(one.name)) for one in ledger.datasets()}
            assert set(recorded) == {"changed", "gaps", "initial", "level", "many", "mean"}
            del recorded["initial"]
            assert all(replay(ledger, dataset=name).findings == () for name in recorded)
            for name, before in recorded.items():
                terms = ledger.dataset(name).terms
                plan, limits = Plan.from_json(terms.plan_json), vars(terms.limits)
                assert plan.digest == terms.plan_digest
                with Publisher(plan, dataset=name, ledger=ledger, **limits) as publisher:
                    assert publisher.limits == limits
                    pushed = [publisher.push([0] * plan.model.sequences, time=tick) for tick in (10, 11, 12)]
                assert isinstance(pushed[-1], Release)
                assert ledger.dataset(name).terms == terms
                assert list(ledger.entries(name))[: len(before)] == before
            assert ledger.verify() == []
            assert all(replay(ledger, dataset=name).findings == () for name in recorded)

    def test_a_dataset_under_an_initial_law_is_refused_in_words(self, tmp_path: Path) -> None:
        with Ledger.open(unpack("0.2", tmp_path)) as ledger:
            again = replay(ledger, dataset="initial")
            assert "chains follow their stationary law" in again.findings[0].what
            with pytest.raises(LedgerTermsError, match=r"stationary law.* use a new dataset name"):
                Publisher(PLAN, dataset="initial", ledger=ledger, budget=2.0)
            with pytest.raises(InputError, match="Make the chain again without it"):
                Plan.from_json(ledger.dataset("initial").terms.plan_json)

    def test_a_recorded_limit_of_the_lifetime_stays_in_force_as_one_on_every_moment(self, tmp_path: Path) -> None:
        with Ledger.open(unpack("0.2", tmp_path)) as ledger:
            terms = ledger.dataset("gaps").terms
            assert (terms.limits.moment_limit, terms.further) == (50.0, {})
            plan, limits = Plan.from_json(terms.plan_json), vars(terms.limits)
            with pytest.raises(LedgerConflictError, match="moment_limit"):
                Publisher(plan, dataset="gaps", ledger=ledger, budget=4.0, event_limit=2.0)
            with Publisher(plan, dataset="gaps", ledger=ledger, **limits) as publisher:
                assert publisher.remaining()["moment_limit"] > 45
                lowered = publisher.change_plan(plan, from_tick=12, moment_limit=4.0)
                lowered.observe([0] * plan.model.sequences, time=11)
                with pytest.raises(BudgetExceeded) as caught:
                    lowered.push([0] * plan.model.sequences, time=12)
                assert caught.value.limit_name == "moment_limit"
            old = json.loads(next(line for line in ledger.export("gaps") if '"terms"' in line))
            assert old["limits"] == {"budget": 4.0, "event_limit": 2.0, "lifetime_limit": 50.0}
            charges = [entry.data()["charge"] for entry in ledger.entries("gaps", kind="reserve")]
            assert Charge.from_record(charges[0]).every_moment == charges[0]["lifetime"] > 1.6
            assert ledger.verify() == []
            assert replay(ledger, dataset="gaps").findings == ()

    def test_a_lifetime_recorded_too_low_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        read = Charge.from_record.__func__
        monkeypatch.setattr(
            Charge, "from_record", classmethod(lambda cls, record: replace(read(cls, record), every_moment=0.5))
        )
        with Ledger.open(unpack("0.2", tmp_path)) as ledger:
            found = replay(ledger, dataset="gaps").findings
        assert any("of any moment is recorded as 0.5, below" in str(one) for one in found)

    def test_a_repeated_tick_is_the_old_output(self, tmp_path: Path) -> None:
        with Ledger.open(unpack("0.2", tmp_path)) as ledger:
            [*_, newest] = ledger.published("mean")
            with Publisher(PLAN, dataset="mean", ledger=ledger, budget=2.0) as publisher:
                publisher.observe([0, 1], time=newest.tick - 1)
                again = publisher.push([1, 1], time=newest.tick)
            assert isinstance(again, Release)
            assert list(again.values) == newest.output["values"]
            assert ledger.summary("mean").head_seq == newest.seq


class TestVersion01:
    """What csdp 0.1 wrote."""

    @pytest.fixture
    def old(self, tmp_path: Path) -> Path:
        return unpack("0.1", tmp_path)

    def test_a_plan_file_is_refused(self) -> None:
        text = (FILES / "plan-0.1.json").read_text()
        with pytest.raises(InputError, match=r"written by csdp 0\.1, .* make the plan again from its chain"):
            Plan.from_json(text)

    def test_a_ledger_is_not_continued_nor_changed(self, old: Path) -> None:
        before = old.read_bytes()
        with Ledger.open(old) as ledger:
            for attempt in (
                lambda: Publisher(PLAN, dataset="mean", ledger=ledger, budget=2.0),
                lambda: Standing(ledger, "mean"),
                lambda: Standing(ledger, "mean", plan=PLAN),
            ):
                with pytest.raises(
                    LedgerTermsError, match=r"'mean' was published under plan .*csdp 0\.1.* new dataset name"
                ):
                    attempt()
        with sqlite3.connect(old) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert old.read_bytes() == before

    def test_its_log_can_be_verified_but_its_charges_are_not_replayed(self, old: Path) -> None:
        with Ledger.open(old) as ledger:
            assert all(ledger.verify(one.name) == [] for one in ledger.datasets())
            for plans in ((), (PLAN,)):
                again = replay(ledger, dataset="mean", plans=plans)
                assert not again.ok
                assert "recorded by csdp 0.1" in again.findings[0].what
                assert not any(again.charges.values())
        assert run("ledger", "verify", str(old)).returncode == 0

    def test_another_dataset_of_the_file_goes_on(self, old: Path) -> None:
        with Ledger.open(old) as ledger, Publisher(PLAN, dataset="new", ledger=ledger, budget=2.0) as publisher:
            publisher.observe([0, 1], time=5)
            publisher.push([0, 1], time=6)
            assert replay(ledger, dataset="new").ok


class TestTheVersionOfTheAlgorithm:
    """A newer algorithm computes numbers anew, and nothing is called what it is not."""

    @pytest.fixture
    def upgrade(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
        """From here on the algorithm is one version newer."""

        def newer() -> int:
            for module in [importlib.import_module(name) for name in MODULES]:  # all imported before one is changed
                monkeypatch.setattr(module, "ALGORITHM", ALGORITHM + 1)
            return ALGORITHM + 1

        return newer

    def test_a_plan_file_is_certified_anew(self, upgrade: Callable[[], int]) -> None:
        text = PLAN.to_json()
        assert not any("anew" in one for one in PLAN.certified.assumptions)
        now = upgrade()
        plan = Plan.from_json(text)
        assert plan.digest == PLAN.digest
        assert plan.written_by == ALGORITHM
        words = f"certified anew by version {now} of the algorithm: the plan was written by version {ALGORITHM}"
        assert words in plan.certified.assumptions
        assert json.loads(plan.to_json())["algorithm"] == now
        assert Plan.from_json(plan.to_json()).written_by == now
        assert plan.certified.epsilon == PLAN.certified.epsilon

    def test_charges_name_the_version_that_computed_them(self, tmp_path: Path, upgrade: Callable[[], int]) -> None:
        path = tmp_path / "ledger.db"
        with Publisher(PLAN, dataset="d", ledger=path, budget=2.0) as publisher:
            for tick in (0, 1, 2, 5):
                publisher.push([0, 1], time=tick)
        with Ledger.open(path) as ledger:
            before = [(entry.seq, entry.payload, entry.hash) for entry in ledger.entries("d")]
            promised = ledger.dataset("d").terms
            now = upgrade()
            with Publisher(PLAN, dataset="d", ledger=ledger, budget=2.0) as publisher:
                publisher.observe([0, 1], time=5)
                publisher.push([0, 1], time=6)
                certificate = certify(publisher, ledger)
            assert ledger.verify("d") == []
            assert ledger.dataset("d").terms == promised
            assert [(entry.seq, entry.payload, entry.hash) for entry in ledger.entries("d")][: len(before)] == before
            charges = [e.data()["charge"]["algorithm"] for e in ledger.entries("d") if e.kind == "reserve"]
            assert set(charges[:-1]) == {ALGORITHM}
            assert charges[-1] == now
            said = f"recorded by version {ALGORITHM} of the algorithm"
            assert any(said in words for words in certificate.assumptions)
            replayed = replay(ledger, dataset="d")
            assert replayed.findings == ()
            told = [words for words in replayed.notes if f"charged by version {ALGORITHM} of the algorithm" in words]
            assert len(told) == len(charges) - 1
