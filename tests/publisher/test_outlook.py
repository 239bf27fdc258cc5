"""What the limits are said to allow is what the gate then does."""

from __future__ import annotations

from math import inf

import pytest

from csdp import CoupledChain, Mean, Plan, Publisher, Release
from csdp.accountant import Accountant
from csdp.publisher import Outlook, look_ahead

#: How often a sequence moves, limits, and whether every seventh tick passes without a push.
CASES = [
    (0.1, {"budget": 0.7}, False),
    (0.1, {"budget": 1.0}, True),
    (0.3, {"budget": 0.4}, False),
    (0.1, {"budget": 0.3}, False),
    (0.1, {"budget": 5.0, "moment_limit": 3.0}, True),
    (0.1, {"budget": 5.0}, True),
    (0.1, {"event_limit": 0.4}, False),
    (0.1, {}, False),
]


def plan_of(moves, level=0.5):
    return Plan(CoupledChain([[1.0]], [[1 - moves, moves], [moves, 1 - moves]]), Mean(), ages=1, epsilon_c=level)


def opened(folder, moves, limits):
    return Publisher(plan_of(moves), dataset="ward", ledger=folder / "ledger.db", on_refusal="skip", **limits)


@pytest.mark.parametrize(("moves", "limits", "gaps"), CASES)
def test_the_gate_does_what_was_foretold(tmp_path, moves, limits, gaps):
    with opened(tmp_path, moves, limits) as publisher:
        publisher.push([0], time=0)
        said, outcomes = {}, {}
        for tick in range(1, 26):
            said[tick] = look_ahead(publisher, tick - 1)
            if not (gaps and tick % 7 == 0):
                outcomes[tick] = isinstance(publisher.push([0], time=tick), Release)
        assert any(outcomes.values()) == (limits not in ({"budget": 0.3}, {"event_limit": 0.4}))
        for tick, published in outcomes.items():
            if not (gaps and (tick - 1) % 7 == 0):  # the reading that it would take is missing then
                assert (said[tick].tick == tick) == published, tick
        for tick, outlook in said.items():
            row = [outcomes.get(at) for at in range(outlook.tick or inf, 26)] if outlook.tick else []
            if not gaps and outlook.tick == tick and outlook.ticks is not None and tick + outlook.ticks < 26:
                assert all(row[: outlook.ticks])
                assert outlook.more or not row[outlook.ticks]
            if not gaps and outlook.ticks is None:
                assert all(row)


def test_a_budget_of_exactly_the_ceiling_lasts(tmp_path):
    with opened(tmp_path, 0.1, {"budget": Accountant(plan_of(0.1)).ceiling()}) as publisher:
        assert look_ahead(publisher, 0) == Outlook(1, None)


def test_after_a_lower_limit_publishing_rests_and_resumes(tmp_path):
    with opened(tmp_path, 0.3, {"budget": 2.0}) as publisher:
        for tick in range(20):
            publisher.push([0], time=tick)
        lower = publisher.change_plan(plan_of(0.3, 0.05), from_tick=20, budget=0.1)
        outlook = look_ahead(lower, 19)
        assert outlook.rests > 0
        assert outlook.limited_by == "budget"
        assert f"resumes at step {outlook.tick}" in outlook.words
        lower.push([0], time=19)
        pushed = [isinstance(lower.push([0], time=tick), Release) for tick in range(20, outlook.tick + 12)]
        assert pushed == [False] * outlook.rests + [True] * 12
        assert outlook.ticks is None or outlook.ticks >= 12


def test_words_name_the_limit_that_ends_it():
    assert (
        "what everything published reveals of any moment above its limit"
        in Outlook(None, 0, limited_by="moment_limit").words
    )
    assert Outlook(4, 1).words == "The limits allow 1 number in a row."
    assert "at least 20 numbers in a row" in Outlook(4, 20, more=True, limited_by="budget").words
