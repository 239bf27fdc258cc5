"""What releases, under a plan and those before it, mean for one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from csdp.accountant import Accountant
from csdp.chain import fits_epsilon
from csdp.leakage import round_up


class RecordCosts:
    """Plain epsilon-DP and lifetime leakage of the record that was read most, from what the ledger keeps."""

    def __init__(self, accountant: Accountant, lifetime_limit: float | None, *, fits: Mapping[str, float]) -> None:
        self._accountant = accountant
        self._limit = lifetime_limit
        self.fits = dict(fits)
        self._for_ever: dict[tuple[int, float, bool], float] = {}

    @property
    def fit_epsilon(self) -> float:
        """What all private fits have spent on one record."""
        return fits_epsilon(self.fits)

    def event(self, kept: dict[str, Any]) -> float:
        """Plain epsilon-DP of the record that was read most, under this plan and earlier ones, the fits included."""
        released = self.released(kept)
        return round_up(released + self.fit_epsilon) if self.fits else released

    def released(self, kept: dict[str, Any]) -> float:
        """The same, from releases alone."""
        own = self._accountant.event_level(int(kept["stale"])) if int(kept["releases"]) else 0.0
        earlier = kept.get("earlier")
        if earlier is None:
            return own
        return round_up(own + earlier["event"]) if earlier["overlap"] else max(own, float(earlier["event"]))

    def group(self, kept: dict[str, Any]) -> float:
        """Plain DP of all records of all releases, of sequences that the model ties together; each is in the fits."""
        earlier = kept.get("earlier") or {"releases": 0, "group": 0.0}
        releases = int(kept["releases"])
        own = self._accountant.group_level(releases) if releases else 0.0
        records = (releases + int(earlier["releases"])) * self._accountant.largest_component
        released = float(earlier["group"]) + own
        return round_up(released + records * self.fit_epsilon) if self.fits else released

    def lifetime(self, kept: dict[str, Any]) -> float:
        """What all releases, under this plan and earlier ones, tell of one record."""
        earlier = kept.get("earlier") or {"releases": 0, "slice": 0.0, "overlap": False}
        releases = int(kept["releases"]) + int(earlier["releases"])
        if not releases:
            return 0.0
        stale, cost, overlap = int(kept["stale"]), float(earlier["slice"]), bool(earlier["overlap"])
        key = (stale, cost, overlap)
        if key not in self._for_ever:
            self._for_ever[key] = self._accountant.lifetime(None, stale=stale, earlier=cost, overlap=overlap)
        if self._limit is not None and self._for_ever[key] <= self._limit:
            return self._for_ever[key]
        counted = self._accountant.lifetime(releases, stale=stale, earlier=cost, overlap=overlap)
        return min(self._for_ever[key], counted)
