"""THE GATE: reserve, release, commit, in that order. Nothing is published except through here."""

from csdp.publisher.estimates import learn_from_past, plan_estimator
from csdp.publisher.gate import Batch, Publisher, Release, Skipped
from csdp.publisher.sources import AgedSource, PanelSource
from csdp.publisher.status import Outlook, Standing, look_ahead

__all__ = [
    "AgedSource",
    "Batch",
    "Outlook",
    "PanelSource",
    "Publisher",
    "Release",
    "Skipped",
    "Standing",
    "learn_from_past",
    "look_ahead",
    "plan_estimator",
]
