"""What releases, under a plan and those before it, mean for one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from csdp.accountant import Accountant
from csdp.bounds.result import round_up
from csdp.chain import fits_epsilon, join_fits

#: What the ledger keeps of a dataset without releases.
NOTHING: Final = {"releases": 0, "stale": 0}


class RecordCosts:
    """Plain epsilon-DP and lifetime leakage of the record that was read most, from what the ledger keeps."""

    def __init__(self, accountant: Accountant, *, fits: Mapping[str, float]) -> None:
        self._accountant = accountant
        self.fits = dict(fits)
        self._for_ever: dict[tuple[int, float, bool], float] = {}

    def fit_epsilon(self, kept: dict[str, Any]) -> float:
        """What all private fits have spent on one record.

        Those of plans that came and went while this publisher was open are in what the ledger keeps.
        """
        return fits_epsilon(join_fits(self.fits, kept.get("fits", {})))

    def event(self, kept: dict[str, Any]) -> float:
        """Plain epsilon-DP of the record that was read most, under this plan and earlier ones, the fits included."""
        released, fits = self.released(kept), self.fit_epsilon(kept)
        return round_up(released + fits) if fits else released

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
        released, fits = float(earlier["group"]) + own, self.fit_epsilon(kept)
        return round_up(released + records * fits) if fits else released

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
