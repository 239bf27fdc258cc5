"""THE GATE: reserve, release, commit, in that order. Nothing is published except through here."""

from csdp.publisher.admission import Batch, Skipped
from csdp.publisher.estimates import learn_from_past, plan_estimator, smooth_releases
from csdp.publisher.gate import Publisher
from csdp.publisher.outlook import Outlook, look_ahead
from csdp.publisher.release import Release
from csdp.publisher.sources import AgedSource, PanelSource
from csdp.publisher.standing import Standing

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
    "smooth_releases",
]
