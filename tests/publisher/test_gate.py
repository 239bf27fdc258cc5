"""Who may publish, and what the file holds."""

from __future__ import annotations

import json
import re
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from csdp import CoupledChain, Custom, Identity, Linear, Max, Sum
from csdp.accountant import Accountant
from csdp.errors import InputError, LedgerConflictError, UnsafeRandomnessWarning
from csdp.ledger import Ledger
from csdp.panel import Panel, to_states
from csdp.plan import Plan
from csdp.publisher import PanelSource, Publisher
from csdp.publisher.sources import published_bounds
from csdp.schedule import Schedule

from publisher.rules import BUDGET, NAME, ONE, PAIR, opened, panel, plan  # isort: skip


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
            assert publisher.unsafe is True
            batch = publisher.publish(panel(40))
            assert all(r.unsafe for r in batch)
            found.append([r.values for r in batch])
            assert all(one.output["unsafe"] for one in publisher.ledger.published(NAME))
    assert found[0] == found[1]
    with opened(tmp_path / "third.db", budget=None) as publisher:
        assert publisher.unsafe is False
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


def test_a_batch_becomes_a_table(file: Path) -> None:
    for query, ticks, ends in ((Max(), 3, [""]), (Identity(), 2, [":0", ":1"])):
        with opened(file, dataset=query.name, budget=None, plan=Plan(PAIR, query, 1, 0.5)) as publisher:
            batch = publisher.publish(panel(ticks, sequences=2))
        table = batch.to_pandas()
        assert table["tick"].tolist() == list(range(1, ticks))
        for column, row in (("value", "values"), ("estimate", "estimate")):
            assert table[[column + end for end in ends]].to_numpy().tolist() == [list(vars(r)[row]) for r in batch]


class Miscounted(PanelSource):
    """A source that counts more sequences than there are, or none."""

    def __init__(self, count: int) -> None:
        super().__init__(panel(4), plan())
        self.count = count

    def counts(self, plan: Plan, ticks: Sequence[int]) -> list[int]:
        return [self.count for _ in ticks]


@pytest.mark.parametrize("count", [0, 2])
def test_a_source_that_miscounts_is_refused_before_anything_is_charged(file: Path, count: int) -> None:
    with opened(file) as publisher:
        with pytest.raises(InputError, match=f"tick 1 is offered with {count} sequences read, not 1 to 1"):
            publisher.publish(Miscounted(count))
        assert publisher.charged == 0


def test_the_answers_of_a_sum_that_leaves_sequences_out_have_bounds() -> None:
    """All three give 0 to 3, any one of them -2 to 2; the first two give up to 4."""
    chain = CoupledChain(np.eye(3), [[0.7, 0.3], [0.3, 0.7]], values=[[1.0, 2.0], [1.0, 2.0], [-2.0, -1.0]])
    assert published_bounds(Plan(chain, Sum(), 1, 0.5)) == (-2.0, 4.0)


def test_a_schedule_charges_and_records_the_level_of_each_tick(file: Path) -> None:
    levels = {1: 0.5, 2: 0.1, 3: 0.25}
    scheduled = plan(schedule=Schedule((0.5, 0.5, 0.1, 0.25)))
    with opened(file, plan=scheduled, budget=None) as publisher:
        publisher.publish(panel(4))
        charges = {entry.tick: entry.data()["charge"] for entry in publisher.ledger.entries(NAME, kind="reserve")}
    accountant = Accountant(scheduled)
    state = accountant.start()
    for tick, level in levels.items():
        state = accountant.release(state, tick, epsilon_c=level)
        assert (charges[tick]["epsilon_c"], charges[tick]["present"]) == (level, accountant.epsilon(state))


def test_a_status_is_never_that_of_an_earlier_tick(file: Path) -> None:
    """Whoever asks says what tick it is; ticks are charged while one asks."""
    with opened(file) as publisher:
        assert publisher.status(since=7) == publisher.status(since=None)  # nothing was charged yet
        publisher.publish(panel(4))
        newest, later = publisher.status(since=None), publisher.status(since=7)
        assert newest == publisher.status(since=1) == {**publisher.summary(), "remaining": publisher.remaining()}
        assert later == {**publisher.summary(time=7), "remaining": publisher.remaining(time=7)}
        assert later["present"] < newest["present"]


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
