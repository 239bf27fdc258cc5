"""Where a dataset stands: what is spent and left of the limits on record. Answers questions and cannot publish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from csdp.accountant import Accountant, State
from csdp.ledger import Ledger, Summary, Terms
from csdp.publisher.exposure import NOTHING, RecordCosts
from csdp.publisher.terms import Grid, read_limits


class Standing:
    """Questions about one dataset under one plan, answered from the ledger.

    Where the recorded plan or grid is another one, the recorded state means nothing here: LedgerTermsError.
    """

    def __init__(self, ledger: Ledger, dataset: str, accountant: Accountant, records: RecordCosts, grid: Grid) -> None:
        self._ledger, self._dataset = ledger, dataset
        self._accountant, self._records, self._grid = accountant, records, grid

    def limits(self, terms: Terms) -> dict[str, float | None]:
        """The limits of recorded terms, where they are of this plan and grid."""
        return read_limits(terms, dataset=self._dataset, plan=self._accountant.plan, grid=self._grid)

    def state_of(self, found: Summary) -> State | None:
        """The accountant's state that the ledger keeps."""
        return None if found.state is None else self._accountant.restore(found.state["accountant"])

    def remaining(self, *, time: int | None = None) -> dict[str, float]:
        """What is left of every limit, at the newest published tick or at a later one."""
        found = self._ledger.summary(self._dataset)
        limits, last = self.limits(found.terms), found.state
        state, lifetime = self.state_of(found), limits["lifetime_limit"]
        used: dict[str, Callable[[], float]] = {
            "budget": lambda: 0.0 if state is None else self._accountant.leakage(state, time).epsilon,
            "event_limit": lambda: self._records.event(last or NOTHING),
            "lifetime_limit": lambda: 0.0 if last is None else self._records.lifetime(last, lifetime),
        }
        return {name: max(0.0, limit - used[name]()) for name, limit in limits.items() if limit is not None}

    def summary(self, *, time: int | None = None) -> dict[str, Any]:
        """What was published, refused and lost, and the leakage, at the newest charged tick or a later one."""
        counts = self._ledger.summary(self._dataset)
        limits, state = self.limits(counts.terms), self.state_of(counts)
        kept = counts.state or NOTHING
        return {
            "dataset": self._dataset,
            "published": counts.committed,
            "refused": counts.refused,
            "lost": counts.lost,
            "newest_tick": counts.newest_tick,
            "limits": limits,
            "present": 0.0 if state is None else self._accountant.leakage(state, time).epsilon,
            "event_level": self._records.event(kept),
            "group_level": self._records.group(kept),
            "lifetime": self._records.lifetime(kept, limits["lifetime_limit"]),
        }
