"""Small admissibility rules for the tests: so many releases and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from csdp.errors import BudgetExceeded
from csdp.ledger import Admission, Admit, Change, Dataset, Ledger, Published, Refused, Request, Reserved

TERMS: dict[str, Any] = {
    "limits": {"budget": 0.5, "event_limit": None},
    "chain_digest": "c" * 64,
    "plan_digest": "p" * 64,
    "plan_json": '{"query": "mean"}',
    "guarantee": {"adversary": "informed", "epsilon_s": 0.25},
}
PLAN: str = TERMS["plan_digest"]


def at_most(limit: int) -> Admit:
    """Grant `limit` releases in all."""

    def admit(state: dict[str, Any] | None, last_tick: int | None, request: Request) -> Admission:
        count = (state["count"] if state else 0) + 1
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
        return Admission(state={"count": count, "last": last_tick}, charge={"epsilon": 0.5})

    return admit


def keep(state: dict[str, Any] | None, last_tick: int | None, change: Change) -> Admission:
    """Carry the count over a change of plan."""
    return Admission(state={"count": state["count"] if state else 0, "last": last_tick}, charge={})


def register(ledger: Ledger, name: str = "ward-7", **other: Any) -> Dataset:
    return ledger.register(name, **{**TERMS, **other})


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
