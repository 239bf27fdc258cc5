"""Small admissibility rules for the tests: so many releases and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from csdp.errors import BudgetExceeded
from csdp.ledger import (
    Admission,
    Admit,
    Charge,
    DatasetState,
    Ledger,
    PrivacyLimits,
    Published,
    RecordedDataset,
    Refused,
    Request,
    Reserved,
    Terms,
)

TERMS = Terms(
    plan_digest="p" * 64,
    plan_json='{"query": "mean"}',
    chain_digest="c" * 64,
    limits=PrivacyLimits(budget=0.5),
    guarantee={"adversary": "informed", "epsilon_s": 0.25},
)
PLAN = TERMS.plan_digest


def counted(count: int, *, last: int | None) -> DatasetState:
    """The state after so many releases; `last`: the tick that the newest of them was admitted after."""
    return DatasetState({"last": last}, releases=count, times=("ticks",) if count else ())


def at_most(limit: int) -> Admit:
    """Grant `limit` releases in all."""

    def admit(state: DatasetState | None, last_tick: int | None, request: Request) -> Admission:
        count = (state.releases if state else 0) + 1
        if count > limit:
            raise BudgetExceeded(
                "the budget is spent",
                limit_name="budget",
                spent=float(limit),
                requested=float("inf"),
                remaining=0.0,
                fits={"age": 3},
                affordable_from=99,
            )
        return Admission(counted(count, last=last_tick), Charge(present=0.5))

    return admit


def keep(state: DatasetState | None, last_tick: int | None, terms: Terms) -> Admission:
    """Carry the count over a change of plan."""
    return Admission(counted(state.releases if state else 0, last=last_tick), Charge(present=0.0))


def register(ledger: Ledger, name: str = "ward-7", **other: Any) -> RecordedDataset:
    return ledger.register(name, replace(TERMS, **other))


def ask(
    ledger: Ledger,
    ticks: Sequence[int],
    *,
    limit: int = 100,
    query: str = "mean",
    plan: str = PLAN,
    stop: bool = False,
) -> list[Reserved | Published | Refused]:
    wanted = [Request(tick, query) for tick in ticks]
    return ledger.reserve("ward-7", wanted, at_most(limit), plan_digest=plan, stop=stop)


def reserve_one(ledger: Ledger, tick: int, query: str = "mean") -> Reserved:
    (answer,) = ask(ledger, [tick], query=query)
    assert isinstance(answer, Reserved)
    return answer
