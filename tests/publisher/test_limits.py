"""What is refused: the budget, the other limits, and the tick from which it is granted again."""

from __future__ import annotations

from pathlib import Path

import pytest

from csdp import CoupledChain
from csdp.accountant import Accountant
from csdp.errors import BudgetExceeded, InputError
from csdp.ledger import Ledger
from csdp.publisher import Outlook, Release, Skipped, look_ahead

from publisher.rules import BUDGET, NAME, PAIR, charged_ticks, check, opened, panel, plan, snapshot  # isort: skip
from accountant.systems import follow


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
        check(publisher.ledger)
        for name, value in refused.fits.items():
            better = plan(epsilon_c=value) if name == "epsilon_c" else plan(ages=value)
            assert Accountant(better).limit().epsilon <= BUDGET
        assert set(refused.fits) == {"epsilon_c", "age"}
        assert isinstance(publisher.push(snapshot(5), time=5), Release)
        check(publisher.ledger)


@pytest.mark.parametrize(("ages", "epsilon_c"), [(1, 0.5), (2, 2.0), ((1, 2), 0.5)])
def test_affordable_from_is_the_first_tick_that_is_admitted(file: Path, ages: object, epsilon_c: float) -> None:
    chosen = plan(PAIR, ages, epsilon_c)
    one = follow(chosen, "metric").after(1).epsilon
    budget = one + 0.05 * (Accountant(chosen).limit().epsilon - one)
    with opened(file, plan=chosen, budget=budget) as publisher:
        with pytest.raises(BudgetExceeded) as caught:
            publisher.publish(panel(30, sequences=2))
        error, last = caught.value, charged_ticks(publisher.ledger)[-1]
        assert error.affordable_from is not None
        assert error.affordable_from > last + 1
    accountant = Accountant(chosen)
    with Ledger.open(file) as ledger:
        state = accountant.restore(ledger.summary(NAME).state.accountant)
    assert accountant.peak(accountant.release(state, error.affordable_from)) <= budget
    assert accountant.peak(accountant.release(state, error.affordable_from - 1)) > budget


def test_a_quiet_tick_cannot_pass_the_budget_either(file: Path) -> None:
    """The tick after this release leaks 6.6 of the present, the release itself only 4."""
    slow = CoupledChain([[0.4, 0.6], [0.6, 0.4]], [[0.999, 0.001], [0.0001, 0.9999]])
    with opened(file, plan=plan(slow, 0, 4.0), budget=5.0) as publisher:
        with pytest.raises(BudgetExceeded) as caught:
            publisher.push([0, 1], time=3)
        assert caught.value.requested > 6.5
        assert charged_ticks(publisher.ledger) == []


def test_event_limit(file: Path) -> None:
    with opened(file, budget=None, event_limit=0.5, plan=plan(stale_limit=2)) as publisher:
        for t in range(4):
            publisher.push(snapshot(t), time=t)
        assert publisher.remaining() == {"event_limit": pytest.approx(0.0, abs=1e-12)}
        publisher.push([-1], time=4)
        with pytest.raises(BudgetExceeded) as caught:
            publisher.push({}, time=5)  # the reading of tick 3 would be published again
        assert caught.value.limit_name == "event_limit"
        assert caught.value.requested == pytest.approx(1.0)
        assert caught.value.spent == pytest.approx(0.5)
        assert publisher.summary()["event_level"] == pytest.approx(0.5)
    with opened(file, dataset="other", budget=None, event_limit=0.4) as publisher:
        publisher.push([0], time=0)
        with pytest.raises(BudgetExceeded):
            publisher.push([0], time=1)


def test_moment_limit(file: Path) -> None:
    accountant = Accountant(plan())
    limit = accountant.every_moment(4) * (1 + 1e-9)
    with opened(file, budget=None, moment_limit=limit) as publisher:
        for t in range(5):
            publisher.push(snapshot(t), time=t)
        assert publisher.remaining()["moment_limit"] == pytest.approx(0.0, abs=1e-6)
        with pytest.raises(BudgetExceeded) as caught:
            publisher.push(snapshot(5), time=5)
        assert caught.value.limit_name == "moment_limit"
        assert caught.value.spent == pytest.approx(accountant.every_moment(4))
        assert caught.value.requested == pytest.approx(accountant.every_moment(5))
        assert publisher.summary()["every_moment"] == pytest.approx(accountant.every_moment(4))
        assert look_ahead(publisher, 5) == Outlook(None, 0, limited_by="moment_limit")
    with opened(file, dataset="for ever", budget=None, moment_limit=accountant.every_moment()) as publisher:
        assert len(publisher.publish(panel(50))) == 49


@pytest.mark.parametrize("limit", ["budget", "event_limit", "moment_limit"])
def test_nothing_is_left_of_a_limit_that_is_lowered_below_what_is_spent(file: Path, limit: str) -> None:
    """Lowering it is allowed, and ends the releases; nothing left is 0 and no debt."""
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(4))
        lowered = publisher.change_plan(plan(), from_tick=4, **{limit: 0.01})
        assert lowered.remaining() == {limit: 0.0}
        lowered.observe(snapshot(3), time=3)
        with pytest.raises(BudgetExceeded) as caught:
            lowered.push(snapshot(4), time=4)
        assert caught.value.limit_name == limit
        assert caught.value.spent > 0.01
        assert caught.value.remaining == 0.0
        again = lowered.change_plan(plan(epsilon_c=0.25), from_tick=4)  # still spent, and still allowed
        assert again.remaining() == {limit: 0.0}


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_limits_are_positive_numbers(file: Path, bad: float) -> None:
    with pytest.raises(InputError, match="budget"):
        opened(file, budget=bad)
