"""A change of plan: what the old history still counts for under the new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from csdp.accountant import Accountant
from csdp.ledger import Admission
from csdp.plan import Plan
from csdp.publisher.times import recorded_times


@dataclass(frozen=True)
class Carried:
    """A history under a plan: its accountant, the plain epsilon-DP of a record so far, and the recorded state."""

    plan: Plan
    accountant: Accountant
    event: float
    last: dict[str, Any] | None


def carried(old: Carried, plan: Plan, accountant: Accountant, from_tick: int) -> Admission:
    """The state under the new plan before its first release.

    The old history counts at most what it told between any two snapshots (under any model if the chain changes), placed
    at the newest reading it touched, and shrinks under the new chain from there.
    """
    state = accountant.start(from_tick - 1)
    fresh: dict[str, Any] = {"releases": 0, "stale": 0, "cost": 0.0}
    last = old.last
    if last is None:
        return Admission({**fresh, "accountant": state.to_dict()}, {"present": 0.0})
    before = old.accountant.restore(last["accountant"])
    cost = float(last["cost"])
    if cost > 0:
        if plan.chain == old.plan.chain:
            cost = min(cost, old.accountant.largest(before))
        passed = from_tick - 1 - before.tick
        state = accountant.resume(cost, from_tick - 1, old.accountant.newest_depth(before) + passed)
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
    newest = [] if before["newest"] is None else [int(before["newest"])]
    newest += [last_tick - plan.min_age] if released else []
    return {
        "releases": int(before["releases"]) + released,
        "event": old.event,
        "group": float(before["group"]) + (accountant.group_level(released) if released else 0.0),
        "slice": this_chain if following.chain == plan.chain else any_model,
        "slice_any": any_model,
        "newest": max(newest),
        "overlap": from_tick - following.max_age - following.stale_limit <= max(newest),
    }
