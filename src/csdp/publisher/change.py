"""A change of plan: what the old history still counts for under the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from csdp.accountant import Accountant
from csdp.bounds.result import as_text
from csdp.errors import BudgetExceeded
from csdp.ledger import Admission
from csdp.plan import Plan
from csdp.publisher.exposure import RecordCosts
from csdp.publisher.refusal import LIMITED
from csdp.publisher.times import recorded_times


@dataclass(frozen=True)
class Carried:
    """A history under a plan: its accountant, plain epsilon-DP of a record from its releases, the recorded state."""

    plan: Plan
    accountant: Accountant
    event: float
    last: dict[str, Any] | None


def carried(
    old: Carried, plan: Plan, accountant: Accountant, from_tick: int, *, fits: Mapping[str, float]
) -> Admission:
    """The state under the new plan before its first release; `fits` are all private fits that are paid for by then.

    The old history counts at most what it told between any two snapshots (under any model if the chain changes), placed
    at the newest reading it touched, and shrinks under the new chain from there.
    """
    state = accountant.start(from_tick - 1)
    fresh: dict[str, Any] = {"releases": 0, "stale": 0, "cost": 0.0, **({"fits": dict(fits)} if fits else {})}
    last = old.last
    if last is None:
        return Admission({**fresh, "accountant": state.to_dict()}, {"present": 0.0})
    before = old.accountant.restore(last["accountant"])
    cost = float(last["cost"])
    if cost > 0:
        state = accountant.take_over(old.accountant, before, tick=from_tick - 1, cost=cost)
        fresh["earlier"] = _earlier_costs(old, last, before.tick, plan, from_tick)
    kept = {**fresh, "accountant": state.to_dict(), "cost": last["cost"], "times": recorded_times(last)}
    return Admission(kept, {"present": accountant.leakage(state).epsilon})


def _earlier_costs(
    old: Carried, last: dict[str, Any], last_tick: int, following: Plan, from_tick: int
) -> dict[str, Any]:
    """What the releases under a plan, and under those before it, mean for limits on records under the next."""
    plan, accountant = old.plan, old.accountant
    stale = int(last["stale"])
    before = last.get("earlier") or {
        "releases": 0,
        "group": 0.0,
        "slice": 0.0,
        "slice_any": 0.0,
        "newest": None,
        "overlap": False,
    }

    def joined(earlier: float, own: float) -> float:
        return earlier + own if before["overlap"] else max(earlier, own)

    released = int(last["releases"])
    any_model = joined(before["slice_any"], accountant.slice_cost(stale, any_model=True) * bool(released))
    this_chain = joined(before["slice"], accountant.slice_cost(stale) * bool(released))
    own_group = float(before["group"]) + (accountant.group_level(released) if released else 0.0)
    newest = [] if before["newest"] is None else [int(before["newest"])]
    newest += [last_tick - plan.min_age] if released else []
    return {
        "releases": int(before["releases"]) + released,
        "event": old.event,
        # Another chain may tie together what this one holds apart.
        "group": own_group if following.chain == plan.chain else max(own_group, float(last["cost"])),
        "slice": this_chain if following.chain == plan.chain else any_model,
        "slice_any": any_model,
        "newest": max(newest),
        "overlap": from_tick - following.max_age - following.stale_limit <= max(newest),
    }


def check_records(
    dataset: str,
    before: tuple[RecordCosts, dict[str, Any]],
    after: tuple[RecordCosts, dict[str, Any]],
    limits: dict[str, float | None],
) -> None:
    """Refuse a change that by itself raises what a record has cost above its limits: they never recover.

    A limit that is lowered below what is spent already is no such change: it ends the releases. The leakage of the
    present is left to the first release: it falls while nothing is published.
    """
    records, kept = after
    figures: dict[str, Callable[[float, RecordCosts, dict[str, Any]], float]] = {
        "event_limit": lambda _, costs, state: costs.event(state),
        "lifetime_limit": lambda limit, costs, state: costs.lifetime(state, limit),
    }
    for name, figure in figures.items():
        limit = limits[name]
        if limit is None:
            continue
        reached = figure(limit, *after)
        if reached > limit >= figure(limit, *before):
            told = "" if name != "event_limit" else f" ({as_text(records.fit_epsilon(kept))} of it from private fits)"
            raise BudgetExceeded(
                f"{dataset}: under the new plan {LIMITED[name]} would be {as_text(reached)}{told}, above its limit "
                f"{limit:g}, before any release; the plan was not changed. Use a chain whose fit is paid for already, "
                "or a new dataset for records that no fit has read",
                limit_name=name,
                spent=reached,
                requested=reached,
                remaining=0.0,
            )
