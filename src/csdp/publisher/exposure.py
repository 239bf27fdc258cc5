"""What releases, under a plan and those before it, mean for one record."""

from __future__ import annotations

from typing import Any

from csdp.accountant import Accountant
from csdp.leakage import round_up
from csdp.plan import Plan


def fit_epsilon(plan: Plan) -> float:
    """Plain epsilon-DP that a private fit of the plan's model has spent on every record it used.

    Whether a record is in the fit, in the releases or in both is not known here, so it counts as both.
    """
    cost = plan.model.fit_cost
    return 0.0 if cost is None else float(cost["epsilon"])


class RecordCosts:
    """Plain epsilon-DP and lifetime leakage of the record that was read most, from what the ledger keeps."""

    def __init__(self, accountant: Accountant) -> None:
        self._accountant = accountant
        self._fit = fit_epsilon(accountant.plan)
        self._for_ever: dict[tuple[int, float, bool], float] = {}

    def event(self, kept: dict[str, Any]) -> float:
        """Plain epsilon-DP of the record that was read most, under this plan and earlier ones."""
        own = round_up(self._accountant.event_level(int(kept["stale"])) + self._fit) if int(kept["releases"]) else 0.0
        earlier = kept.get("earlier")
        if earlier is None:
            return own
        return round_up(own + earlier["event"]) if earlier["overlap"] else max(own, float(earlier["event"]))

    def lifetime(self, kept: dict[str, Any], limit: float | None) -> float:
        """What all releases, under this plan and earlier ones, tell of one record; no finer than the limit needs."""
        earlier = kept.get("earlier") or {"releases": 0, "slice": 0.0, "overlap": False}
        releases = int(kept["releases"]) + int(earlier["releases"])
        if not releases:
            return 0.0
        stale, cost, overlap = int(kept["stale"]), float(earlier["slice"]), bool(earlier["overlap"])
        key = (stale, cost, overlap)
        if key not in self._for_ever:
            self._for_ever[key] = self._accountant.lifetime(None, stale=stale, earlier=cost, overlap=overlap)
        if limit is not None and self._for_ever[key] <= limit:
            return self._for_ever[key]
        counted = self._accountant.lifetime(releases, stale=stale, earlier=cost, overlap=overlap)
        return min(self._for_ever[key], counted)
