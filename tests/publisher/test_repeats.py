"""Repeated, out of order, resumed: a tick is drawn and charged once."""

from __future__ import annotations

from pathlib import Path

import pytest

from csdp.accountant import Accountant
from csdp.errors import InputError, LedgerConflictError
from csdp.panel import Panel
from csdp.publisher import Release, Skipped, gate

from publisher.rules import NAME, charged_ticks, opened, panel, plan, snapshot  # isort: skip


def test_a_repeated_publish_draws_and_charges_nothing(where: str) -> None:
    with opened(where, on_refusal="skip") as publisher:
        first = publisher.publish(panel(10))
        count = publisher.ledger.summary(NAME).head_seq
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gate.fran, "add_noise", lambda *_, **__: pytest.fail("noise was drawn again"))
            again = publisher.publish(panel(10))
            assert again == first
        assert publisher.ledger.summary(NAME).head_seq == count
    with opened(where, on_refusal="skip") as publisher:
        assert publisher.publish(panel(10)) == first
        pushed = [publisher.push(snapshot(t), time=t) for t in range(10)]
        assert tuple(p for p in pushed if isinstance(p, Release)) == first.releases
        assert publisher.ledger.summary(NAME).head_seq == count


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
        assert result.reason == "no sequence was read at its age"
        assert isinstance(publisher.push([1], time=7), Release)
        far = publisher.push([1], time=1_000_000)
        assert isinstance(far, Skipped)
        state = publisher.ledger.summary(NAME).state
        assert state.stale == 1


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
        with pytest.raises(InputError, match="a whole number"):
            publisher.push([0], time=1.5)  # type: ignore[arg-type]
        assert charged_ticks(publisher.ledger) == []


def test_a_plan_whose_noise_cannot_be_drawn_opens_no_dataset(file: Path) -> None:
    with pytest.raises(InputError, match="lattice steps"):
        opened(file, plan=plan(epsilon_c=1e-10))
    assert not file.exists()


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
