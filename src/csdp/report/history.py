"""Records of what was published: the series beside the truth, and the leakage tick by tick."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Publisher, Release, Standing

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReleaseRecord:
    """One published number, and the estimate of the present answer where there is one. Public."""

    tick: int
    value: float
    estimate: float | None
    standard_error: float | None


@dataclass(frozen=True)
class TruthRecord:
    """The answer before aging and noise. PRIVATE: a figure that draws it must not be passed on."""

    tick: int
    value: float


@dataclass(frozen=True)
class LeakageRecord:
    """What everything published up to a tick tells about the present at that tick."""

    tick: int
    epsilon: float
    published: bool


def release_records(releases: Iterable[Release]) -> list[ReleaseRecord]:
    """The first output of every release.

    >>> release_records([Release(7, (0.5,), (0.4,), (0.1,), 2, 0, 0.2)])
    [ReleaseRecord(tick=7, value=0.5, estimate=0.4, standard_error=0.1)]
    """
    return [
        ReleaseRecord(
            r.tick,
            r.values[0],
            r.estimate[0] if r.estimate else None,
            r.standard_error[0] if r.standard_error else None,
        )
        for r in releases
    ]


def first_answers(plan: Plan, panel: Panel) -> Floats:
    """The first output of the query at every tick, before aging and noise: as private as the readings.

    NaN where a reading is missing.
    """
    panel = panel.arrange(plan.model.names)
    whole = (panel.states >= 0).all(axis=1)
    answers = np.full(len(panel), np.nan)
    answers[whole] = plan.query.evaluate(panel.states[whole].astype(np.intp), plan.model.value_table)[:, 0]
    return answers


def truth_records(plan: Plan, panel: Panel) -> list[TruthRecord]:
    """The answer at every tick without a missing reading. Private."""
    answers = zip(panel.ticks.tolist(), first_answers(plan, panel).tolist(), strict=True)
    return [TruthRecord(tick, value) for tick, value in answers if not math.isnan(value)]


def leakage_records(
    publisher: Publisher | Standing, ledger: Ledger, *, until: int | None = None
) -> list[LeakageRecord]:
    """The leakage of the present at every tick since the first charge, quiet ones included, replayed from the ledger.

    Only the charges of the live plan are replayed. Values are not needed: what a history can tell depends on the plan,
    the ticks and which readings were missing.
    """
    accountant = publisher.accountant
    live = [entry for entry in ledger.entries(publisher.dataset, kind="reserve") if entry.plan == publisher.plan.digest]
    records: list[LeakageRecord] = []
    for number, entry in enumerate(live):
        assert entry.tick is not None
        following = live[number + 1].tick if number + 1 < len(live) else (entry.tick if until is None else until) + 1
        assert following is not None
        state = accountant.restore(entry.state().accountant)
        for tick in range(entry.tick, following):
            records.append(LeakageRecord(tick, accountant.leakage(state, tick).epsilon, tick == entry.tick))
    return records
