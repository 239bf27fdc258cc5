"""Private fits: each counts once for every record, whatever plan is in force, in limits, figures and replays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from csdp import CoupledChain, EnvironmentChain, Family, InfluenceGraph, replay
from csdp.chain import fits_epsilon, private_fits, recorded_fits
from csdp.errors import BudgetExceeded
from csdp.ledger import Ledger
from csdp.publisher import Publisher

from publisher.rules import NAME, opened, panel, plan  # isort: skip


def fitted(flip: float, epsilon: float, fit: str | None = None, sequences: int = 1) -> CoupledChain:
    chain = CoupledChain(np.eye(sequences), [[1 - flip, flip], [flip, 1 - flip]])
    return chain.carrying(fit_cost={"epsilon": epsilon, **({} if fit is None else {"fit": fit})})


PUBLIC = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
BACK = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], direction="backward")
CLOCK = EnvironmentChain([BACK, BACK], cycle=[0, 1])


def started(file: Path, chain: Any, **given: Any) -> Publisher:
    return opened(file, budget=None, plan=plan(chain, epsilon_c=0.5), **given)


def _tied() -> CoupledChain:
    return fitted(0.3, 0.4, "a", sequences=2)


@pytest.mark.parametrize(
    "derive",
    [
        lambda: _tied().subchain([1]),
        lambda: CLOCK.carrying(fit_cost={"epsilon": 0.4, "fit": "a"}).subchain([1]),
        lambda: InfluenceGraph.around(BACK.carrying(fit_cost={"epsilon": 0.4, "fit": "a"}), 0.01).subchain([1]),
        lambda: InfluenceGraph.around(BACK, 0.01).carrying(fit_cost={"epsilon": 0.4, "fit": "a"}),
    ],
    ids=["part", "part under a clock", "part of a family", "family"],
)
def test_what_is_made_of_a_chain_has_cost_what_its_fit_cost(file: Path, derive: Callable[[], Any]) -> None:
    """The cost was left behind: 0.5 of the releases alone was said to be spent of a record, where 0.9 was."""
    for chain in (CLOCK, BACK):
        chain.subchain([1])  # what is cached was made before there was a cost
    chain = derive()
    assert private_fits(chain) == {"a": 0.4}
    with started(file, chain) as publisher:
        publisher.publish(panel(4, sequences=chain.sequences))
        assert publisher.summary()["event_level"] == pytest.approx(0.9)


def test_fits_add_up_over_plans(file: Path) -> None:
    """A first fit of 1, a second of 1, half of releases: 2.5, above a limit of 1.6 before anything is released."""
    with started(file, fitted(0.3, 1.0, "a"), event_limit=1.6) as publisher:
        publisher.publish(panel(4))
        assert publisher.summary()["event_level"] == pytest.approx(1.5)
        before = publisher.ledger.summary(NAME)
        with pytest.raises(
            BudgetExceeded, match=r"2\.5 \(2 of it from private fits\).*limit 1\.6.*not changed"
        ) as caught:
            publisher.change_plan(plan(fitted(0.2, 1.0, "b"), epsilon_c=0.5), from_tick=4)
        assert caught.value.limit_name == "event_limit"
        assert publisher.ledger.summary(NAME) == before
        assert len(publisher.publish(panel(3, first=3))) == 2  # goes on as before


def test_a_fit_is_not_forgotten_under_a_public_chain(file: Path) -> None:
    with started(file, fitted(0.3, 1.0, "a"), event_limit=3.5) as publisher:
        publisher.publish(panel(4))
        second = publisher.change_plan(plan(PUBLIC, ages=4, epsilon_c=1.5), from_tick=4)
        assert second.summary()["event_level"] == pytest.approx(1.5)
        second.publish(panel(8, first=0))
        # records that both plans read: 0.5 and 1.5, and the fit
        assert second.summary()["event_level"] == pytest.approx(3.0)
    with opened(file, budget=None, plan=plan(PUBLIC, ages=4, epsilon_c=1.5), event_limit=3.5) as again:
        assert again.summary()["event_level"] == pytest.approx(3.0)
        assert again.guarantee()["event_level"] == pytest.approx(2.5)
        third = again.change_plan(plan(fitted(0.3, 1.0, "a"), ages=9, epsilon_c=0.5), from_tick=8)
        third.publish(panel(10, first=0))
        assert third.summary()["event_level"] == pytest.approx(3.5)  # the same fit counts once
        with pytest.raises(BudgetExceeded, match="private fits"):
            third.change_plan(plan(fitted(0.3, 0.1, "c"), epsilon_c=0.5), from_tick=20)


def test_a_publisher_that_was_open_all_along_counts_fits_of_plans_that_came_and_went(file: Path) -> None:
    first, between = plan(PUBLIC, epsilon_c=0.5), plan(fitted(0.3, 1.0, "a"), epsilon_c=0.5)
    with opened(file, budget=None, plan=first) as patient, opened(file, budget=None, plan=first) as other:
        patient.publish(panel(3))
        other.change_plan(between, from_tick=3).change_plan(first, from_tick=4)
        patient.publish(panel(3, first=3))
        assert patient.summary()["event_level"] == pytest.approx(1.5)
        assert patient.fit_epsilon == pytest.approx(1.0)
        last = list(patient.ledger.entries(NAME, kind="reserve"))[-1]
        assert last.data()["charge"]["event"] == pytest.approx(1.5)


def test_what_a_replay_recomputes_holds_every_fit(file: Path) -> None:
    with started(file, Family([fitted(0.3, 0.4, "a"), fitted(0.2, 0.6, "b")])) as publisher:
        publisher.publish(panel(4))
        changed = publisher.change_plan(plan(PUBLIC, epsilon_c=0.5), from_tick=4)
        changed.publish(panel(4, first=3))
        assert [entry.data()["charge"]["event"] for entry in changed.ledger.entries(NAME, kind="reserve")] == [
            pytest.approx(1.5)
        ] * 6
        assert replay(changed.ledger).ok


def test_a_replay_finds_a_charge_that_forgot_a_fit(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a ledger of csdp 0.1 has it: of a family the first member alone was charged."""
    with monkeypatch.context() as patched:
        patched.setattr("csdp.publisher.status.recorded_fits", lambda plans: {"a": 0.4})
        patched.setattr("csdp.publisher.gate.private_fits", lambda chain: {"a": 0.4})
        with started(file, Family([fitted(0.3, 0.4, "a"), fitted(0.2, 0.6, "b")])) as publisher:
            publisher.publish(panel(4))
    with Ledger.open(file) as ledger:
        found = replay(ledger)
        assert not found.ok
        assert "plain epsilon-DP of a record is recorded as 0.9, below 1.5" in str(found.findings[0])


def test_a_cost_without_identity_is_that_of_its_chain(file: Path) -> None:
    """Chains of csdp 0.1: members and plans count separately, the same chain once."""
    old = fitted(0.3, 0.5)
    assert fits_epsilon(private_fits(Family([old, fitted(0.2, 0.5), old]))) == pytest.approx(1.0)
    texts = [json.dumps(plan(chain).record()) for chain in (old, PUBLIC, fitted(0.2, 0.5), old)]
    assert fits_epsilon(recorded_fits(texts)) == pytest.approx(1.0)
    with started(file, old) as publisher:
        publisher.publish(panel(3))
        back = publisher.change_plan(plan(PUBLIC), from_tick=4).change_plan(plan(old), from_tick=5)
        assert back.fit_epsilon == pytest.approx(0.5)


def test_the_group_level_counts_every_record_in_every_fit(file: Path) -> None:
    """Three releases of two tied sequences: six records, each in the fit, beside the cost of the releases."""
    pair = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    with started(file, pair.carrying(fit_cost={"epsilon": 0.1, "fit": "a"})) as publisher:
        publisher.publish(panel(4, sequences=2))
        assert publisher.summary()["group_level"] == pytest.approx(3 * 2 * 0.5 + 6 * 0.1)


def test_the_group_level_under_a_chain_that_ties_more(file: Path) -> None:
    """What the old chain held apart is one group under the new one: its releases count for both sequences."""
    apart = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]])
    pair = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    with started(file, apart) as publisher:
        publisher.publish(panel(4, sequences=2))
        assert publisher.summary()["group_level"] == pytest.approx(3 * 0.5)
        tied = publisher.change_plan(plan(pair, epsilon_c=0.5), from_tick=4)
        assert tied.summary()["group_level"] == pytest.approx(3 * 2 * 0.5)


def test_a_change_that_passes_the_moment_limit_is_refused(file: Path) -> None:
    """Under another chain the old releases count in full; this record's limit would never be kept again."""
    other = CoupledChain([[1.0]], [[0.99, 0.01], [0.01, 0.99]])
    with started(file, PUBLIC, moment_limit=1.2) as publisher:
        publisher.publish(panel(4))
        assert publisher.summary()["every_moment"] <= 1.2
        with pytest.raises(BudgetExceeded, match="reveals of any moment would be"):
            publisher.change_plan(plan(other, epsilon_c=0.5), from_tick=4)
