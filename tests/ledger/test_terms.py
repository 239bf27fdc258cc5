"""Under what a dataset is published: registered once, changed only explicitly; over SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from csdp.errors import BudgetExceeded, InputError, LedgerConflictError, LedgerCorruptError
from csdp.ledger import (
    Admission,
    Charge,
    DatasetState,
    EarlierPlans,
    Ledger,
    PrivacyLimits,
    Refused,
    Request,
    Reserved,
    Terms,
    TickGrid,
)
from csdp.ledger.records import decode, encode
from ledger.rules import PLAN, TERMS, ask, counted, keep, register, reserve_one

OpenLedger = Callable[[], Ledger]


def test_register_records_a_dataset_and_finds_it_again(open_ledger: OpenLedger) -> None:
    first = register(open_ledger(), fit_cost={"epsilon": 1.0})
    assert first.terms.limits == TERMS.limits
    assert first.terms.plan_json == TERMS.plan_json
    assert first.terms.guarantee == TERMS.guarantee
    assert first.terms.fit_cost == {"epsilon": 1.0}
    assert (first.terms.number, first.terms.from_tick, first.terms.rule) == (1, None, None)
    assert first.created.endswith("Z")
    assert register(open_ledger(), fit_cost={"epsilon": 1.0}) == first
    assert open_ledger().datasets() == [first]
    assert open_ledger().dataset("ward-7") == first


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"chain_digest": "d" * 64}, "chain"),
        ({"plan_digest": "q" * 64}, "plan"),
        ({"limits": PrivacyLimits(budget=9.0)}, "limits"),
        ({"grid": TickGrid(60)}, "limits"),
        ({"further": {"weekly_limit": 0.1}}, "limits"),
        ({"fit_cost": {"epsilon": 1.0}}, "fit cost"),
    ],
)
def test_register_refuses_other_terms_and_says_how_to_change_them(
    ledger: Ledger, other: dict[str, Any], word: str
) -> None:
    before = register(ledger)
    with pytest.raises(LedgerConflictError, match=rf"{word} .*change_plan"):
        register(ledger, **other)
    assert ledger.dataset("ward-7") == before


@pytest.mark.parametrize("name", ["", "x" * 201, "line\nbreak", "nul\0", 7])
def test_names_are_checked(ledger: Ledger, name: Any) -> None:
    with pytest.raises(InputError, match="printable"):
        register(ledger, name)
    with pytest.raises(InputError, match="printable"):
        Request(1, name)


@pytest.mark.parametrize("tick", [1.5, True, "1", None, 2**63])
def test_ticks_are_checked(tick: Any) -> None:
    with pytest.raises(InputError, match="tick"):
        Request(tick, "mean")


def test_terms_are_checked(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="plain JSON"):
        register(ledger, further={"a": object()})
    assert ledger.datasets() == []


def test_a_change_is_recorded_and_carries_the_state_over(open_ledger: OpenLedger) -> None:
    ledger = open_ledger()
    register(ledger)
    held = reserve_one(ledger, 5)
    other = replace(TERMS, plan_digest="q" * 64, chain_digest="d" * 64, limits=PrivacyLimits(budget=2.0))
    seen = []

    def admit(state: Any, last_tick: int | None, terms: Terms) -> Admission:
        seen.append((state, last_tick, terms))
        return keep(state, last_tick, terms)

    changed = ledger.change_plan("ward-7", replace(other, from_tick=8, rule="count kept"), admit)
    assert seen == [(counted(1, last=None), 5, TERMS)]
    assert (changed.terms.number, changed.terms.from_tick, changed.terms.rule) == (2, 8, "count kept")
    assert [terms.plan_digest for terms in ledger.history("ward-7")] == [PLAN, "q" * 64]
    # The old plan can no longer reserve, but what it reserved may still be committed.
    with pytest.raises(LedgerConflictError, match="change_plan"):
        ask(ledger, [9])
    assert ledger.commit(held, {"value": 1.0}).plan_digest == PLAN
    early, first, second = ask(open_ledger(), [7, 8, 9], plan="q" * 64)
    assert isinstance(early, Refused)
    assert early.why == "order"
    assert isinstance(first, Reserved)
    assert first.state == counted(2, last=7)
    assert isinstance(second, Reserved)
    assert ledger.register("ward-7", other).terms == changed.terms
    with pytest.raises(LedgerConflictError):
        register(ledger)
    assert ledger.verify() == []
    assert ledger.summary("ward-7").changes == 1


def test_a_change_cannot_reach_back_and_can_be_refused(ledger: Ledger) -> None:
    register(ledger)
    reserve_one(ledger, 5)
    other = replace(TERMS, plan_digest="q" * 64)
    with pytest.raises(LedgerConflictError, match="charged up to tick 5"):
        ledger.change_plan("ward-7", replace(other, from_tick=5, rule="none"), keep)

    def refuse(*_: Any) -> Admission:
        raise BudgetExceeded("no", limit_name="budget", spent=1.0, requested=2.0, remaining=0.0)

    with pytest.raises(BudgetExceeded):
        ledger.change_plan("ward-7", replace(other, from_tick=6, rule="none"), refuse)
    for lacking in ({"from_tick": 6, "rule": " "}, {"from_tick": 6, "rule": None}, {"from_tick": None, "rule": "none"}):
        with pytest.raises(InputError, match="rule in words"):
            ledger.change_plan("ward-7", replace(other, **lacking), keep)
    assert ledger.dataset("ward-7").terms.number == 1


def test_terms_that_were_recorded_in_another_form_are_read_and_verified(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is hashed is what was written, also where a limit was left out or has a name of its own."""
    with monkeypatch.context() as patched:
        patched.setattr(Terms, "recorded_limits", lambda self: {"budget": 1, "time_step": 60, "weekly": [2.0]})
        register(ledger, limits=PrivacyLimits(budget=1))
    terms = ledger.dataset("ward-7").terms
    assert (terms.limits, terms.grid, terms.further) == (PrivacyLimits(budget=1.0), TickGrid(60), {"weekly": [2.0]})
    assert ledger.verify() == []
    assert '"limits":{"budget":1,"time_step":60,"weekly":[2.0]}' in list(ledger.export("ward-7"))[1]
    assert register(ledger, limits=terms.limits, grid=terms.grid, further=terms.further).terms == terms


def test_the_recorded_form_of_states_and_charges() -> None:
    """Ledgers that were written before must be read, and go on in the same form."""
    costs = {"event": 0.5, "group": 1.5, "slice": 0.25, "slice_any": 0.5, "total": 1.5, "level": 0.5}
    earlier = EarlierPlans(releases=3, newest=7, overlap=True, youngest=1, oldest=2, **costs)
    state = DatasetState({"tick": 9}, 4, 1, 2.0, ("data", "wall"), {"a": 1.0}, earlier)
    text = encode(state.to_record(), "a state")
    assert text == (
        '{"accountant":{"tick":9},"cost":2.0,"earlier":{"event":0.5,"group":1.5,"level":0.5,"newest":7,"oldest":2,'
        '"overlap":true,"releases":3,"slice":0.25,"slice_any":0.5,"total":1.5,"youngest":1},"fits":{"a":1.0},'
        '"releases":4,"stale":1,"times":["data","wall"]}'
    )
    assert DatasetState.from_record(decode(text)) == state
    assert encode(DatasetState().to_record(), "a state") == '{"accountant":{},"cost":0.0,"releases":0,"stale":0}'
    old = {name: value for name, value in vars(earlier).items() if name not in {"total", "level", "youngest", "oldest"}}
    assert EarlierPlans.from_record(old) == replace(earlier, youngest=None, oldest=None)
    timeless = replace(state, times=(), releases=0).to_record()
    assert DatasetState.from_record(timeless).times == ("ticks",)  # of the releases under the earlier plan
    assert DatasetState.from_record({**timeless, "releases": 2, "earlier": None}).times == ("ticks",)
    assert DatasetState.from_record({**timeless, "earlier": None}).times == ()
    charge = Charge(0.1, peak=0.2, event=0.5, algorithm=1)
    assert charge.to_record() == {"present": 0.1, "peak": 0.2, "event": 0.5, "algorithm": 1}
    assert Charge.from_record({**charge.to_record(), "later": 3.0}) == charge
    assert Charge.from_record({**charge.to_record(), "lifetime": 3.0}) == replace(charge, every_moment=3.0)


@pytest.mark.parametrize("lacking", ["accountant", "releases", "stale", "cost"])
def test_a_state_that_lacks_a_figure_is_not_taken_as_zero(lacking: str) -> None:
    record = DatasetState().to_record()
    del record[lacking]
    with pytest.raises(LedgerCorruptError, match="state of a dataset cannot be read"):
        DatasetState.from_record(record)
    with pytest.raises(LedgerCorruptError):
        DatasetState.from_record({**DatasetState().to_record(), "earlier": {"releases": 2}})
