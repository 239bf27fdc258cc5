"""The gate: what is published, refused, repeated, resumed and changed."""

from __future__ import annotations

import json
import math
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from csdp import CoupledChain, Custom, Identity, Linear, Max, Mean
from csdp.accountant import Accountant
from csdp.errors import BudgetExceeded, InputError, LedgerConflictError, UnsafeRandomnessWarning, UnsoundError
from csdp.ledger import Ledger
from csdp.panel import Panel, to_states
from csdp.plan import Plan
from csdp.publisher import Publisher, Release, Skipped, gate

from publisher.rules import BUDGET, NAME, ONE, PAIR, charged_ticks, check, opened, outputs, panel, plan, snapshot  # isort: skip


# ---- the ceiling


def test_push_until_refused_and_again_from_the_tick_that_was_named(file: Path) -> None:
    with opened(file) as publisher:
        assert publisher.push(snapshot(0), time=0) == Skipped(0, "1 of 2 snapshots read so far")
        values = [publisher.push(snapshot(t), time=t) for t in (1, 2, 3)]
        assert [round(v.epsilon_s, 4) for v in values if isinstance(v, Release)] == [0.1966, 0.2695, 0.2956]
        with pytest.raises(BudgetExceeded, match=r"above its limit 0\.3") as caught:
            publisher.push(snapshot(4), time=4)
        refused = caught.value
        accountant = Accountant(plan())
        three = accountant.release(accountant.release(accountant.release(accountant.start(), 1), 2), 3)
        assert refused.limit_name == "budget"
        assert refused.requested == pytest.approx(accountant.after(4).epsilon)
        assert refused.spent == pytest.approx(accountant.leakage(three, 4).epsilon)
        assert refused.remaining == pytest.approx(BUDGET - refused.spent)
        assert refused.affordable_from == 5
        assert "afforded from tick 5 on" in str(refused)
        check(publisher._ledger)
        for name, value in refused.fits.items():
            better = plan(epsilon_c=value) if name == "epsilon_c" else plan(ages=value)
            assert Accountant(better).limit().epsilon <= BUDGET
        assert set(refused.fits) == {"epsilon_c", "age"}
        assert isinstance(publisher.push(snapshot(5), time=5), Release)
        check(publisher._ledger)


@pytest.mark.parametrize(("ages", "epsilon_c"), [(1, 0.5), (2, 2.0), ((1, 2), 0.5)])
def test_affordable_from_is_the_first_tick_that_is_admitted(file: Path, ages: object, epsilon_c: float) -> None:
    chosen = plan(PAIR, ages, epsilon_c)
    one = Accountant(chosen).after(1, state="metric").epsilon
    budget = one + 0.05 * (Accountant(chosen).limit().epsilon - one)
    with opened(file, plan=chosen, budget=budget) as publisher:
        with pytest.raises(BudgetExceeded) as caught:
            publisher.publish(panel(30, sequences=2))
        error, last = caught.value, charged_ticks(publisher._ledger)[-1]
        assert error.affordable_from is not None
        assert error.affordable_from > last + 1
    accountant = Accountant(chosen)
    with Ledger.open(file) as ledger:
        state = accountant.restore(ledger.summary(NAME).state["accountant"])
    assert accountant.peak(accountant.release(state, error.affordable_from)) <= budget
    assert accountant.peak(accountant.release(state, error.affordable_from - 1)) > budget


def test_what_can_never_be_afforded_says_so(file: Path) -> None:
    with opened(file, budget=0.01) as publisher:
        publisher.push([0], time=0)
        with pytest.raises(BudgetExceeded) as caught:
            publisher.push([1], time=1)
        assert caught.value.affordable_from is None
        assert caught.value.spent < 1e-12
        assert caught.value.fits["epsilon_c"] < 0.5
        assert publisher.summary()["published"] == 0


def test_skipping_keeps_going_and_the_leakage_recovers(file: Path) -> None:
    with opened(file, on_refusal="skip") as publisher:
        batch = publisher.publish(panel(40))
        published = check(publisher._ledger)
        assert len(batch) == len(published) > 15
        refused = [s for s in batch.skipped if "above its limit" in s.reason]
        assert len(refused) + len(batch) == 39
        assert publisher.summary()["refused"] == len(refused)


def test_a_batch_is_released_up_to_the_refusal(file: Path) -> None:
    with opened(file) as publisher:
        with pytest.raises(BudgetExceeded):
            publisher.publish(panel(10))
        assert sorted(outputs(publisher._ledger)) == charged_ticks(publisher._ledger) == [1, 2, 3]
        with pytest.raises(BudgetExceeded):
            publisher.publish(panel(10))
        assert sorted(outputs(publisher._ledger)) == charged_ticks(publisher._ledger) == [1, 2, 3]
        check(publisher._ledger)


def test_a_refusal_on_record_loses_nothing_that_is_granted_after_it(file: Path) -> None:
    with opened(file, on_refusal="skip") as publisher:
        publisher.publish(panel(7))
        done = charged_ticks(publisher._ledger)
        assert 4 not in done
        assert max(done) > 4
    with opened(file) as publisher:
        with pytest.raises(BudgetExceeded):
            publisher.publish(panel(12))
        assert publisher.summary()["lost"] == 0
        check(publisher._ledger)


@pytest.mark.parametrize("mode", ["push", "batch"])
def test_push_and_batch_are_charged_alike(file: Path, tmp_path: Path, mode: str) -> None:
    rows = np.array([snapshot(t, 2) for t in range(25)])
    rows[5, 0] = rows[6, 0] = rows[11, 1] = rows[18] = -1
    chosen = plan(PAIR, (1, 2), stale_limit=1)
    with opened(file, plan=chosen, budget=0.4, on_refusal="skip") as publisher:
        if mode == "batch":
            publisher.publish(Panel.from_states(rows))
        else:
            for t, row in enumerate(rows):
                publisher.push(row, time=t)
        found = [(e.tick, json.loads(e.payload)) for e in publisher._ledger.entries(NAME, kind="reserve")]
        stale = {one.tick: one.output["stale"] for one in publisher._ledger.published(NAME)}
    with opened(tmp_path / "other.db", plan=chosen, budget=0.4, on_refusal="skip") as other:
        other.publish(Panel.from_states(rows))
        again = [(e.tick, json.loads(e.payload)) for e in other._ledger.entries(NAME, kind="reserve")]
    assert found == again
    assert set(stale.values()) == {0, 1}
    accountant, state = Accountant(chosen), Accountant(chosen).start()
    for tick, payload in found:
        state = accountant.release(state, tick, stale=stale[tick] > 0)
        assert payload["charge"]["present"] == pytest.approx(accountant.leakage(state).epsilon, rel=1e-9)


def test_a_quiet_tick_cannot_pass_the_budget_either(file: Path) -> None:
    """Section 5.6: the tick after this release leaks 6.6 of the present, the release itself only 4."""
    slow = CoupledChain([[0.4, 0.6], [0.6, 0.4]], [[0.999, 0.001], [0.0001, 0.9999]])
    with opened(file, plan=plan(slow, 0, 4.0), budget=5.0) as publisher:
        with pytest.raises(BudgetExceeded) as caught:
            publisher.push([0, 1], time=3)
        assert caught.value.requested > 6.5
        assert charged_ticks(publisher._ledger) == []


# ---- other limits


def test_event_limit(file: Path) -> None:
    with opened(file, budget=None, event_limit=0.5, plan=plan(stale_limit=2)) as publisher:
        for t in range(4):
            publisher.push(snapshot(t), time=t)
        assert publisher.remaining() == {"event_limit": pytest.approx(0.0, abs=1e-12)}
        publisher.push([-1], time=4)
        with pytest.raises(BudgetExceeded) as caught:
            publisher.push([-1], time=5)  # the reading of tick 3 would be published again
        assert caught.value.limit_name == "event_limit"
        assert caught.value.requested == pytest.approx(1.0)
        assert caught.value.spent == pytest.approx(0.5)
        assert publisher.summary()["event_level"] == pytest.approx(0.5)
    with opened(file, dataset="other", budget=None, event_limit=0.4) as publisher:
        publisher.push([0], time=0)
        with pytest.raises(BudgetExceeded):
            publisher.push([0], time=1)


def test_lifetime_limit(file: Path) -> None:
    accountant = Accountant(plan())
    limit = accountant.lifetime(4) * (1 + 1e-9)
    with opened(file, budget=None, lifetime_limit=limit) as publisher:
        for t in range(5):
            publisher.push(snapshot(t), time=t)
        assert publisher.remaining()["lifetime_limit"] == pytest.approx(0.0, abs=1e-6)
        with pytest.raises(BudgetExceeded) as caught:
            publisher.push(snapshot(5), time=5)
        assert caught.value.limit_name == "lifetime_limit"
        assert caught.value.spent == pytest.approx(accountant.lifetime(4))
        assert caught.value.requested == pytest.approx(accountant.lifetime(5))
        assert publisher.summary()["lifetime"] == pytest.approx(accountant.lifetime(4))
    with opened(file, dataset="for ever", budget=None, lifetime_limit=accountant.lifetime()) as publisher:
        assert len(publisher.publish(panel(50))) == 49


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_limits_are_positive_numbers(file: Path, bad: float) -> None:
    with pytest.raises(InputError, match="budget"):
        opened(file, budget=bad)


# ---- repeated, out of order, resumed


def test_a_repeated_publish_draws_and_charges_nothing(where: str) -> None:
    with opened(where, on_refusal="skip") as publisher:
        first = publisher.publish(panel(10))
        count = publisher._ledger.summary(NAME).head_seq
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gate.fran, "noisy", lambda *_, **__: pytest.fail("noise was drawn again"))
            again = publisher.publish(panel(10))
            assert again == first
        assert publisher._ledger.summary(NAME).head_seq == count
    with opened(where, on_refusal="skip") as publisher:
        assert publisher.publish(panel(10)) == first
        pushed = [publisher.push(snapshot(t), time=t) for t in range(10)]
        assert tuple(p for p in pushed if isinstance(p, Release)) == first.releases
        assert publisher._ledger.summary(NAME).head_seq == count


def test_other_data_for_a_published_tick_changes_nothing(file: Path) -> None:
    with opened(file, on_refusal="skip") as publisher:
        first = publisher.publish(panel(6))
        other = Panel.from_states(1 - panel(6).states)
        assert publisher.publish(other).releases == first.releases


def test_a_repeated_publish_in_another_process(file: Path) -> None:
    with opened(file, on_refusal="skip") as publisher:
        first = publisher.publish(panel(8))
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parents[1])]!r}\n"
        "from publisher.rules import opened, panel\n"
        f"with opened({str(file)!r}, on_refusal='skip') as publisher:\n"
        "    print([r.values[0] for r in publisher.publish(panel(8))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [r.values[0] for r in first]


def test_pushing_again_returns_the_record_even_where_readings_are_short(file: Path) -> None:
    with opened(file) as publisher:
        publisher.push(snapshot(0), time=0)
        first = publisher.push(snapshot(1), time=1)
        assert publisher.push(snapshot(1), time=1) == first
    with opened(file) as publisher:
        assert publisher.push(snapshot(1), time=1) == first
        publisher.push(snapshot(2), time=2)
        assert publisher.push([1], time=1) == first
        with pytest.raises(LedgerConflictError, match="ticks must come in order"):
            publisher.push(snapshot(0), time=0)


def test_a_refused_tick_can_be_pushed_again(file: Path) -> None:
    with opened(file) as publisher:
        for t in range(4):
            publisher.push(snapshot(t), time=t)
        for _ in range(2):
            with pytest.raises(BudgetExceeded):
                publisher.push(snapshot(4), time=4)
        assert publisher.summary()["refused"] == 1
        assert charged_ticks(publisher._ledger) == [1, 2, 3]


def test_ticks_before_the_newest_charged_one_are_skipped(file: Path) -> None:
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(4, first=10))
        batch = publisher.publish(panel(9, first=4))
        assert [r.tick for r in batch] == [11, 12]
        assert {s.tick for s in batch.skipped if "out of order" in s.reason} == set(range(5, 11))


def test_gaps_count_as_missing_readings(file: Path) -> None:
    with opened(file, budget=None, plan=plan(ages=2, stale_limit=1)) as publisher:
        for t in (0, 1, 2):
            result = publisher.push([0], time=t)
        assert isinstance(result, Release)
        assert result.stale == 0
        result = publisher.push([1], time=5)  # reads tick 3, which was not seen: the reading of tick 2 stands in
        assert isinstance(result, Release)
        assert result.stale == 1
        result = publisher.push([1], time=6)
        assert isinstance(result, Skipped)
        assert "2 steps older" in result.reason
        assert isinstance(publisher.push([1], time=7), Release)
        far = publisher.push([1], time=1_000_000)
        assert isinstance(far, Skipped)
        state = publisher._ledger.summary(NAME).state
        assert state["stale"] == 1


def test_a_refused_snapshot_does_not_shift_the_readings(file: Path) -> None:
    """A snapshot that is no state, pushed after a gap, must not leave the ring of readings out of step."""
    chosen = plan(ages=3, epsilon_c=1e6, stale_limit=3)
    with opened(file, plan=chosen, budget=None) as publisher:
        for t, state in enumerate((0, 0, 0, 1)):
            publisher.push([state], time=t)
        for _ in range(3):
            with pytest.raises(InputError, match="unknown state"):
                publisher.push([7], time=5)
        result = publisher.push([1], time=5)  # reads tick 2
        assert isinstance(result, Release)
        assert (round(result.values[0]), result.stale) == (0, 0)


def test_bad_panels_are_refused_before_anything_is_charged(file: Path) -> None:
    with opened(file) as publisher:
        for states, message in (([[0], [0], [2]], "unknown state"), ([[0], [-5], [0]], "unknown"), ([[0, 1]], "panel")):
            with pytest.raises(InputError, match=message):
                publisher.publish(Panel.from_states(states))
        with pytest.raises(InputError, match="integer"):
            publisher.push([0], time=1.5)  # type: ignore[arg-type]
        assert charged_ticks(publisher._ledger) == []


def test_a_plan_whose_noise_cannot_be_drawn_opens_no_dataset(file: Path) -> None:
    with pytest.raises(InputError, match="lattice steps"):
        opened(file, plan=plan(epsilon_c=1e-10))
    assert not file.exists()


def test_closing_and_reopening_resumes_the_state(where: str) -> None:
    with opened(where, budget=None) as publisher:
        for t in range(5):
            publisher.push(snapshot(t), time=t)
        before = publisher.summary()
    for start in (5, 9):
        with opened(where, budget=None) as publisher:
            assert publisher.summary()["present"] == before["present"]
            for t in (start, start + 1):
                publisher.push(snapshot(t), time=t)
            before = publisher.summary()
            accountant = Accountant(plan())
            state = accountant.start()
            for tick in charged_ticks(publisher._ledger):
                state = accountant._add(state, tick, stale=False)
            assert before["present"] == pytest.approx(accountant._leakage(state, 0).epsilon, rel=1e-9)
    with Ledger.open(where) as ledger:
        check(ledger, budget=None)


def test_a_reservation_without_a_commit_stays_charged(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(file) as publisher:
        publisher.push(snapshot(0), time=0)
        with monkeypatch.context() as patch:
            patch.setattr(gate.fran, "release", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("power cut")))
            with pytest.raises(RuntimeError, match="power cut"):
                publisher.push(snapshot(1), time=1)
        lost = publisher.push(snapshot(1), time=1)
        assert isinstance(lost, Skipped)
        assert "stays charged" in lost.reason
        publisher.push(snapshot(2), time=2)
        summary = publisher.summary()
        assert (summary["published"], summary["lost"], summary["newest_tick"]) == (1, 1, 2)
        assert summary["present"] == pytest.approx(Accountant(plan()).after(2).epsilon)


# ---- who may publish


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


def test_a_bound_that_is_not_proven_cannot_publish(file: Path) -> None:
    for bound in ("printed-loose", "printed-tight"):
        with pytest.raises(UnsoundError, match="not proven"):
            opened(file, plan=plan(bound=bound))
    assert not file.exists()
    with opened(file) as publisher, pytest.raises(UnsoundError, match="not proven"):
        publisher.change_plan(plan(bound="printed-loose"), from_tick=5)


def test_unknown_ways_to_refuse_are_refused(file: Path) -> None:
    with pytest.raises(InputError, match="'raise' or 'skip'"):
        opened(file, on_refusal="ignore")


def test_a_seed_warns_and_marks_every_release(file: Path, tmp_path: Path) -> None:
    found = []
    for path in (file, tmp_path / "second.db"):
        with pytest.warns(UnsafeRandomnessWarning):
            publisher = opened(path, unsafe_seed=5, budget=None)
        with publisher:
            batch = publisher.publish(panel(5))
            assert all(r.unsafe for r in batch)
            found.append([r.values for r in batch])
            assert all(one.output["unsafe"] for one in publisher._ledger.published(NAME))
    assert found[0] == found[1]
    with opened(tmp_path / "third.db", budget=None) as publisher:
        safe = publisher.publish(panel(5))
        assert not any(r.unsafe for r in safe)
        assert [r.values for r in safe] != found[0]


def test_an_open_ledger_is_shared_and_left_open(file: Path) -> None:
    with Ledger.open(file) as ledger:
        with opened(ledger) as publisher:
            publisher.publish(panel(3))
        assert len(outputs(ledger)) == 2


# ---- what the file holds


def test_no_raw_reading_reaches_the_file(file: Path) -> None:
    values = [123456.0, 654321.0]
    chain = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], values=values, names=["alice", "bob"])
    readings = np.array([[123456.0, 654321.0], [654321.0, 654321.0], [123456.0, 123456.0], [123456.0, 654321.0]])
    states = to_states(readings, chain.value_table)
    chosen = Plan(chain, Identity(), 1, 0.05)
    with Publisher(chosen, dataset=NAME, ledger=file) as publisher:
        publisher.publish(Panel.from_states(states))
        publisher.push([1, 0], time=9)
        publisher.push([1, 0], time=10)
        ledger = publisher._ledger
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for one in ledger.published(NAME):
            assert set(one.output) == {
                "values", "estimate", "standard_error", "stale", "unsafe", "ages", "epsilon_s",
            }  # fmt: skip
            assert not set(one.output["values"]) & set(values)
        for entry in ledger.entries(NAME):
            payload = json.loads(entry.payload)
            assert set(payload) <= {"number", "terms", "state", "charge", "reserve", "output", "digest", "path"}
            if "state" in payload:
                assert set(payload["state"]) <= {"accountant", "releases", "stale", "cost"}
    plain = b"".join(p.read_bytes() for p in file.parent.iterdir() if p.is_file())
    # Declared values are part of the chain, which is public; they stand in the terms once, and nowhere else.
    with Ledger.open(file) as ledger:
        terms = ledger.dataset(NAME).terms.plan_json.encode()
    plain = plain.replace(terms, b"")
    for marker in (b"123456", b"654321"):
        assert marker not in plain
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o077 == 0 for p in file.parent.glob("ledger.db*") if p.is_file())


def test_many_outputs_go_to_a_private_file(file: Path) -> None:
    s = 6000
    chain = CoupledChain({(j, j): 1.0 for j in range(s)}, [[0.7, 0.3], [0.3, 0.7]])
    with Publisher(Plan(chain, Identity(), 0, 1.0), dataset=NAME, ledger=file) as publisher:
        first = publisher.push(np.zeros(s, dtype=np.int8), time=1)
        assert isinstance(first, Release)
        assert len(first.values) == s
        assert publisher._ledger.verify() == []
    with Publisher(Plan(chain, Identity(), 0, 1.0), dataset=NAME, ledger=file) as publisher:
        assert publisher.push(np.ones(s, dtype=np.int8), time=1) == first


def test_summary_and_remaining(file: Path) -> None:
    with opened(file, event_limit=2.0, lifetime_limit=5.0, on_refusal="skip") as publisher:
        assert publisher.remaining() == {"budget": BUDGET, "event_limit": 2.0, "lifetime_limit": 5.0}
        empty = publisher.summary()
        assert (empty["published"], empty["present"], empty["event_level"], empty["lifetime"]) == (0, 0.0, 0.0, 0.0)
        publisher.publish(panel(6))
        accountant = Accountant(plan())
        left = publisher.remaining()
        summary = publisher.summary()
        assert left["budget"] == pytest.approx(BUDGET - summary["present"])
        assert left["event_limit"] == pytest.approx(1.5)
        assert left["lifetime_limit"] == pytest.approx(5.0 - accountant.lifetime())
        state = accountant.restore(publisher._ledger.summary(NAME).state["accountant"])
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


def test_progress_is_told(file: Path) -> None:
    told: list[tuple[int, int]] = []
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(251), progress=lambda done, total: told.append((done, total)))
    assert told == [(100, 250), (200, 250), (250, 250)]


# ---- a change of plan


def test_a_change_of_plan_is_recorded_and_carries_the_history(file: Path) -> None:
    with opened(file) as publisher:
        for t in range(3):
            publisher.push(snapshot(t), time=t)
        before = publisher.summary()["present"]
        with pytest.raises(LedgerConflictError, match="later tick"):
            publisher.change_plan(plan(ages=2), from_tick=2)
        new = publisher.change_plan(plan(ages=2, epsilon_c=1.0), from_tick=4, budget=0.5)
        history = publisher._ledger.history(NAME)
        assert [terms.plan_digest for terms in history] == [publisher.plan.digest, new.plan.digest]
        assert history[1].from_tick == 4
        assert "same chain" in (history[1].rule or "")
        assert history[1].limits["budget"] == 0.5
        assert history[1].guarantee["one_release"] == new.plan.certified.epsilon
        assert 0 < new.summary()["present"] <= before
        with pytest.raises(LedgerConflictError, match="published under plan"):
            publisher.push(snapshot(3), time=3)
        results = [new.push(snapshot(t), time=t) for t in range(4, 8)]
        assert isinstance(results[-1], Release)
        assert new._ledger.verify() == []
        old = new.push(snapshot(2), time=2)
        assert isinstance(old, Release)
    with pytest.raises(LedgerConflictError):
        opened(file)
    with opened(file, plan=plan(ages=2, epsilon_c=1.0), budget=0.5) as again:
        assert again.summary()["published"] >= 3


def test_a_change_of_chain_counts_the_history_under_any_model(file: Path) -> None:
    other = CoupledChain([[1.0]], [[0.9, 0.1], [0.2, 0.8]])
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(6))
        changed = publisher.change_plan(plan(other), from_tick=6)
        assert "new chain" in (publisher._ledger.history(NAME)[1].rule or "")
        accountant = Accountant(plan(other))
        expected = accountant.leakage(accountant.resume(5 * 0.5, 5, 1)).epsilon
        assert changed.summary()["present"] == pytest.approx(expected)


def test_a_change_before_any_release_starts_afresh(file: Path) -> None:
    with opened(file) as publisher:
        changed = publisher.change_plan(plan(ages=2), from_tick=10)
        with changed.change_plan(plan(ages=3), from_tick=12) as third:
            assert third.summary()["present"] < 1e-12
            assert third.summary()["event_level"] == 0.0
            for t in range(12, 16):
                result = third.push(snapshot(t), time=t)
            assert isinstance(result, Release)
            assert result.epsilon_s == pytest.approx(Accountant(plan(ages=3)).after(1, state="metric").epsilon)


def test_records_that_both_plans_read_count_twice(file: Path) -> None:
    """Event level and lifetime: older ages read again what was published before the change."""
    with opened(file, budget=None, event_limit=0.8) as publisher:
        publisher.publish(panel(5))
        older = publisher.change_plan(plan(ages=4), from_tick=5)
        assert older.summary()["event_level"] == pytest.approx(0.5)
        with pytest.raises(BudgetExceeded) as caught:
            older.publish(panel(9, first=1))
        assert caught.value.limit_name == "event_limit"
        assert caught.value.requested == pytest.approx(1.0)
    with opened(file, dataset="fresh", budget=None, event_limit=0.8) as publisher:
        publisher.publish(panel(5))
        same_age = publisher.change_plan(plan(epsilon_c=0.7), from_tick=5)
        assert len(same_age.publish(panel(4, first=4))) == 3
        assert same_age.summary()["event_level"] == pytest.approx(0.7)


def test_lifetime_is_carried_over_a_change(file: Path) -> None:
    with opened(file, budget=None, plan=plan(epsilon_c=2.0)) as publisher:
        publisher.publish(panel(5))
        before = publisher.summary()
        changed = publisher.change_plan(plan(epsilon_c=0.01), from_tick=5)
        after = changed.summary()
        assert after["lifetime"] >= before["lifetime"] * (1 - 1e-9)
        assert after["group_level"] >= before["group_level"] * (1 - 1e-9)
        changed.publish(panel(4, first=4))
        after = changed.summary()
        assert after["lifetime"] >= before["lifetime"] * (1 - 1e-9)
        assert after["group_level"] == pytest.approx(4 * 2.0 + 3 * 0.01)
        again = changed.change_plan(plan(CoupledChain([[1.0]], [[0.9, 0.1], [0.2, 0.8]]), ages=6), from_tick=9)
        state = again._ledger.summary(NAME).state
        assert state["earlier"]["overlap"]
        assert state["earlier"]["releases"] == 7
        assert again.summary()["lifetime"] >= after["lifetime"] * (1 - 1e-9)
        assert math.isfinite(again.summary()["lifetime"])
        assert isinstance(again.plan.query, Mean)


def test_a_dataset_has_one_step_of_time(file):
    plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), 1, 0.5)
    with Publisher(plan, dataset="d", ledger=file, time_step=10):
        pass
    with Publisher(plan, dataset="d", ledger=file, time_step=10):
        pass
    with pytest.raises(LedgerConflictError):
        Publisher(plan, dataset="d", ledger=file, time_step=20)
