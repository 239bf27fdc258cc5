"""Who may publish, and what the file holds."""

from __future__ import annotations

import json
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from csdp import CoupledChain, Custom, Identity, Linear, Max
from csdp.accountant import Accountant
from csdp.errors import InputError, LedgerConflictError, UnsafeRandomnessWarning
from csdp.ledger import Ledger
from csdp.panel import Panel, to_states
from csdp.plan import Plan
from csdp.publisher import Publisher

from publisher.rules import BUDGET, NAME, ONE, opened, panel, plan  # isort: skip


def test_other_terms_on_one_dataset_are_refused(file: Path) -> None:
    other_chain = CoupledChain([[1.0]], [[0.8, 0.2], [0.3, 0.7]])
    with opened(file):
        for changed in (
            {"plan": plan(other_chain)},
            {"plan": plan(ages=2)},
            {"plan": plan(epsilon_c=0.4)},
            {"plan": plan(stale_limit=1)},
            {"plan": Plan(ONE, Max(), 1, 0.5)},
            {"budget": 0.4},
            {"event_limit": 1.0},
        ):
            with pytest.raises(LedgerConflictError, match="other terms"):
                opened(file, **changed)


def test_queries_that_only_share_their_name_are_refused(file: Path) -> None:
    many = CoupledChain(np.eye(9), [[0.7, 0.3], [0.3, 0.7]])
    pairs = [
        (Linear([1.0] * 9), Linear([1.0] * 8 + [8.0])),
        (Custom(lambda v: v.sum(), name="f"), Custom(lambda v: 2 * v.max(), name="f")),
    ]
    for number, (first, second) in enumerate(pairs):
        with Publisher(Plan(many, first, 1, 0.5), dataset=f"d{number}", ledger=file):
            pass
        with pytest.raises(LedgerConflictError, match="plan"):
            Publisher(Plan(many, second, 1, 0.5), dataset=f"d{number}", ledger=file)


def test_unknown_ways_to_refuse_are_refused(file: Path) -> None:
    with pytest.raises(InputError, match="'raise' or 'skip'"):
        opened(file, on_refusal="ignore")


def test_a_seed_warns_and_marks_every_release(file: Path, tmp_path: Path) -> None:
    found = []
    for path in (file, tmp_path / "second.db"):
        with pytest.warns(UnsafeRandomnessWarning):
            publisher = opened(path, unsafe_seed=5, budget=None)
        with publisher:
            batch = publisher.publish(panel(40))
            assert all(r.unsafe for r in batch)
            found.append([r.values for r in batch])
            assert all(one.output["unsafe"] for one in publisher.ledger.published(NAME))
    assert found[0] == found[1]
    with opened(tmp_path / "third.db", budget=None) as publisher:
        safe = publisher.publish(panel(40))
        assert not any(r.unsafe for r in safe)
        assert [r.values for r in safe] != found[0]


def test_no_raw_reading_reaches_the_file(file: Path) -> None:
    # With the third value the noise's lattice has step 1: noise meets one reading by chance in one run of 10^7, and
    # two of them in one of 10^14.
    values = [111111.0, 123456.0, 654321.0, 123457.0, 777777.0]  # the ends, which no reading has, are those of bands
    chain = CoupledChain(np.eye(2), np.full((5, 5), 0.12) + 0.4 * np.eye(5), values=values, names=["alice", "bob"])
    readings = np.array([[123456.0, 654321.0], [654321.0, 654321.0], [123456.0, 123456.0], [123456.0, 654321.0]])
    states = to_states(readings, chain.value_table)
    chosen = Plan(chain, Identity(), 1, 1e-3)
    with Publisher(chosen, dataset=NAME, ledger=file) as publisher:
        publisher.publish(Panel.from_states(states))
        publisher.push([1, 0], time=9)
        publisher.push([1, 0], time=10)
        ledger = publisher.ledger
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for one in ledger.published(NAME):
            assert set(one.output) == {
                "values", "estimate", "standard_error", "low", "high", "level", "about", "no_data", "noise", "model",
                "stale", "unsafe", "ages", "epsilon_s",
            }  # fmt: skip
            assert not set(one.output["values"]) <= set(values)
        for entry in ledger.entries(NAME):
            payload = json.loads(entry.payload)
            assert set(payload) <= {"number", "terms", "state", "charge", "reserve", "output", "digest", "path"}
            if "state" in payload:
                assert set(payload["state"]) <= {"accountant", "releases", "stale", "cost", "times"}
    # Declared values are part of the chain, which is public; they stand in the terms once, and nowhere else. Row by
    # row: a long text is cut into pages in the file itself.
    with Ledger.open(file) as ledger:
        terms = ledger.dataset(NAME).terms.plan_json
    with closing(sqlite3.connect(file)) as rows:
        plain = "\n".join(rows.iterdump())
    assert terms in plain
    plain = plain.replace(terms, "")
    plain += "".join(
        p.read_text() for p in file.parent.rglob("*") if p.is_file() and not p.name.startswith("ledger.db")
    )
    assert len(re.findall(r"(?<![\w.])(?:123456|654321)(?:\.0)?(?![\w.])", plain)) <= 1
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o077 == 0 for p in file.parent.glob("ledger.db*") if p.is_file())


def test_summary_and_remaining(file: Path) -> None:
    with opened(file, event_limit=2.0, moment_limit=5.0, on_refusal="skip") as publisher:
        assert publisher.remaining() == {"budget": BUDGET, "event_limit": 2.0, "moment_limit": 5.0}
        empty = publisher.summary()
        assert (empty["published"], empty["present"], empty["event_level"], empty["every_moment"]) == (0, 0.0, 0.0, 0.0)
        publisher.publish(panel(6))
        accountant = Accountant(plan())
        left = publisher.remaining()
        summary = publisher.summary()
        assert left["budget"] == pytest.approx(BUDGET - summary["present"])
        assert left["event_limit"] == pytest.approx(1.5)
        assert left["moment_limit"] == pytest.approx(5.0 - accountant.every_moment(4))
        state = accountant.restore(publisher.ledger.summary(NAME).state.accountant)
        for wait in (1, 3, 10):
            later = publisher.remaining(time=5 + wait)["budget"]
            assert later == pytest.approx(BUDGET - accountant.leakage(state, 5 + wait).epsilon)
        with pytest.raises(InputError, match="before tick"):
            publisher.remaining(time=1)
        assert summary["published"] == 4
        assert summary["refused"] == 1
        assert summary["event_level"] == pytest.approx(0.5)
        assert summary["group_level"] == pytest.approx(4 * 0.5)
        assert summary["guarantee"]["one_release"] == plan().certified.epsilon
        assert any("missing" in words for words in summary["guarantee"]["words"])
        json.dumps(summary)
