"""Ticks that another publisher has reserved are skipped, and never drawn a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from csdp.errors import LedgerBusyError, LedgerConflictError
from csdp.ledger import Reserved
from csdp.publisher import Publisher, Release, Skipped
from csdp.publisher.sources import Ready

from publisher.rules import opened, snapshot  # isort: skip


def holding(publisher: Publisher, *ticks: int) -> list[Reserved]:
    """Reserved and not committed, as by a process that is at work."""
    wanted = [Ready(tick, 0, publisher.plan.model.sequences) for tick in ticks]
    answers, refusal = publisher._reserve(publisher._rule.list_requests(wanted, None))
    assert refusal is None
    assert all(isinstance(one, Reserved) for one in answers)
    return answers  # type: ignore[return-value] # just checked


def test_a_tick_that_another_publisher_holds_is_skipped(file: Path) -> None:
    with opened(file, budget=None) as first, opened(file, budget=None) as second:
        holding(first, 1)
        for tick in (0, 1):
            found = second.push(snapshot(tick), time=tick)
        assert isinstance(found, Skipped)
        assert (found.tick, found.why) == (1, "lost")
        assert isinstance(second.push(snapshot(2), time=2), Release)


@pytest.mark.filterwarnings("ignore::csdp.errors.UnsafeRandomnessWarning")
def test_ticks_pushed_together_are_those_pushed_one_by_one(tmp_path: Path) -> None:
    """Same charges, same estimates, same outputs for the same noise; charged together, recorded together."""
    given = {tick: snapshot(tick) for tick in range(8)}
    with (
        opened(tmp_path / "one.db", budget=None, unsafe_seed=3) as one,
        opened(tmp_path / "many.db", budget=None, unsafe_seed=3) as many,
    ):
        single = [one.push(states, time=tick) for tick, states in given.items()]
        together = many.push_many(given)
        assert [vars(found) for found in together] == [vars(found) for found in single]
        states = [[entry.data()["state"] for entry in p.ledger.entries(p.dataset, kind="reserve")] for p in (one, many)]
        assert states[0] == states[1]
        kinds = [entry.kind for entry in many.ledger.entries(many.dataset)]
        assert kinds == ["open", *["reserve"] * 7, *["commit"] * 7]
        again = many.push_many({tick: snapshot(tick + 1) for tick in given})  # other readings now: the record answers
        assert [vars(found) for found in again] == [vars(found) for found in together]
        later = many.push_many({8: snapshot(8)})
        assert [found.tick for found in later] == [8]
        with pytest.raises(LedgerConflictError, match="ticks must come in order"):
            many.push_many({0: snapshot(0)})
        assert many.ledger.verify() == []


@pytest.mark.parametrize("step", ["reserve", "commit_many"])
def test_ticks_pushed_together_may_be_pushed_again_after_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the charge nothing is lost; after it all of them are, and none is drawn a second time."""
    with opened(file, budget=None) as publisher:
        publisher.push(snapshot(0), time=0)
        plain = getattr(publisher.ledger, step)

        def fail(*_: object, **__: object) -> None:
            raise LedgerBusyError("out of reach")

        monkeypatch.setattr(publisher.ledger, step, fail)
        given = {tick: snapshot(tick) for tick in range(1, 5)}
        with pytest.raises(LedgerBusyError):
            publisher.push_many(given)
        monkeypatch.setattr(publisher.ledger, step, plain)
        found = publisher.push_many(given | {5: snapshot(5)})
        kinds = [one.why if isinstance(one, Skipped) else "release" for one in found]
        assert kinds == (["release"] * 5 if step == "reserve" else ["lost"] * 4 + ["release"])
        assert publisher.summary()["lost"] == (0 if step == "reserve" else 4)
        assert publisher.ledger.verify() == []
