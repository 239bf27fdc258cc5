"""The admissibility rule: what a release would cost, and whether the limits on record allow it."""

from __future__ import annotations

from typing import Any

from csdp.accountant import Accountant
from csdp.ledger import Admission, Request
from csdp.plan import ALGORITHM
from csdp.publisher.drawing import scheduled_level
from csdp.publisher.exposure import NOTHING, RecordCosts
from csdp.publisher.refusal import check_limit
from csdp.publisher.standing import Standing
from csdp.publisher.times import Ticking


class Rule:
    """Grants a release or refuses it, from the recorded state and terms alone; it may run again after a lost race."""

    def __init__(
        self, dataset: str, accountant: Accountant, records: RecordCosts, standing: Standing, ticking: Ticking
    ) -> None:
        self._dataset, self._accountant, self._records = dataset, accountant, records
        self._standing, self._ticking = standing, ticking

    def admit(self, last: dict[str, Any] | None, last_tick: int | None, request: Request) -> Admission:
        """The admissibility rule; runs inside the ledger's transaction, under the terms that are recorded there."""
        assert request.terms is not None
        limits = self._standing.limits(request.terms)
        stale = int(request.detail)
        state = self._accountant.start() if last is None else self._accountant.restore(last["accountant"])
        level = scheduled_level(self._accountant.plan, request.tick)
        fresh = self._accountant.release(state, request.tick, stale=stale > 0, epsilon_c=level)
        kept = {"releases": 0, "stale": 0, "cost": 0.0} if last is None else last
        kept = {**kept, "releases": int(kept["releases"]) + 1, "stale": max(stale, int(kept["stale"]))}
        kept = {**kept, "times": self._ticking.after(last)}
        charge = {
            "present": self._accountant.leakage(fresh).epsilon,
            "peak": self._accountant.peak(fresh),
            "event": self._records.event(kept),
            "algorithm": ALGORITHM,
        }
        if level is not None:
            charge["epsilon_c"] = level
        lifetime = limits["lifetime_limit"]
        if lifetime is not None:
            charge["lifetime"] = self._records.lifetime(kept, lifetime)
        # A ceiling for every moment: quiet ticks after the release may raise the leakage before it falls.
        for name, value, spent_now in (
            ("budget", charge["peak"], lambda: self._accountant.leakage(state, request.tick).epsilon),
            ("event_limit", charge["event"], lambda: self._records.event(last or NOTHING)),
            (
                "lifetime_limit",
                charge.get("lifetime", 0.0),
                lambda: 0.0 if last is None else self._records.lifetime(last, lifetime),
            ),
        ):
            check_limit(self._dataset, name, limits[name], value, spent_now)
        cost = float(kept["cost"]) + self._accountant.history_cost()
        return Admission({**kept, "accountant": fresh.to_dict(), "cost": cost}, charge)
