"""Released series as CSV or JSON, and the records that figures are drawn from."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy.typing as npt

from csdp.errors import InputError
from csdp.files import replace_file
from csdp.ledger import Charge, Ledger
from csdp.numbers import json_text
from csdp.panel import Panel
from csdp.plan import ALGORITHM, Plan
from csdp.publisher import Release, Skipped, Standing
from csdp.publisher.sources import true_answers

#: Endings of the files that a series can be written to.
SERIES_KINDS = (".csv", ".json")
#: Largest number of sequences whose unequal ages are listed in every row; otherwise their range is.
_AGES_LISTED = 100
#: Largest number of times that are written on an axis.
_LABELS = 8


# ---- released series -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """Releases in order of their ticks, the times of the ticks as read, and the ticks without output."""

    names: tuple[str, ...]
    times: Mapping[int, Any]
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...] = ()

    @classmethod
    def of(
        cls, plan: Plan, readings: Panel, releases: tuple[Release, ...], skipped: tuple[Skipped, ...] = ()
    ) -> Series:
        """Make the series of the releases of some readings."""
        names = plan.query.output_names(plan.model.names, plan.model.value_table)
        times = readings.times.tolist() if readings.times.dtype.kind != "M" else readings.times.astype(str).tolist()
        return cls(names, dict(zip(readings.ticks.tolist(), times, strict=True)), releases, skipped)

    def columns(self) -> dict[str, list[Any]]:
        """The columns tick, time, value, estimate, standard_error, low, high, about, ages, stale, epsilon_s, model, and
        count where readings were published.

        With several outputs, value, estimate, standard_error, low and high are followed by `:NAME`. What is missing of
        an estimate is None.
        """
        table: dict[str, list[Any]] = {
            "tick": [r.tick for r in self.releases],
            "time": [self.times[r.tick] for r in self.releases],
        }
        for part in ("value", "estimate", "standard_error", "low", "high"):
            rows = [r.values if part == "value" else getattr(r, part) for r in self.releases]
            for i, name in enumerate(self.names):
                label = part if len(self.names) == 1 else f"{part}:{name}"
                table[label] = [row[i] if row else None for row in rows]
        table["about"] = [r.about for r in self.releases]
        table["ages"] = [_format_ages(r.ages) for r in self.releases]
        table["stale"] = [r.stale for r in self.releases]
        table["epsilon_s"] = [r.epsilon_s for r in self.releases]
        table["model"] = [r.model for r in self.releases]
        if any(r.count is not None for r in self.releases):
            table["count"] = [r.count for r in self.releases]
        return table


def _format_ages(ages: int | tuple[int, ...]) -> int | str:
    """Format one age, or one per sequence; of very many only their range.

    >>> _format_ages(2), _format_ages((1, 3))
    (2, '1,3')
    """
    if isinstance(ages, int):
        return ages
    return ",".join(map(str, ages)) if len(ages) <= _AGES_LISTED else f"{min(ages)}..{max(ages)}"


def check_kind(path: Path) -> str:
    """Return the ending of the file's name; refuse one that no series can be written to."""
    kind = path.suffix.lower()
    if kind not in SERIES_KINDS:
        raise InputError(f"output: {path.name!r} given; the name must end in {' or '.join(SERIES_KINDS)}")
    return kind


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON, completely or not at all."""
    with replace_file(path) as file:
        file.write((json_text(content) + "\n").encode())


def write_series(series: Series, path: Path) -> None:
    """Write a series in the format of the name's ending, completely or not at all."""
    content = _csv(series) if check_kind(path) == ".csv" else _json(series)
    with replace_file(path) as file:
        file.write(content)


def _csv(series: Series) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    table = series.columns()
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue().encode()


def _json(series: Series) -> bytes:
    content = {
        "outputs": list(series.names),
        "releases": [r.to_dict(series.times[r.tick]) for r in series.releases],
        "skipped": [{"tick": s.tick, "time": series.times[s.tick], "reason": s.reason} for s in series.skipped],
    }
    return (json_text(content) + "\n").encode()


# ---- what figures are drawn from -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReleaseRecord:
    """One published number, and its estimate with a band if there is one. Public.

    A release from before bands were recorded has one of two standard errors.
    """

    tick: int
    value: float
    estimate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class TruthRecord:
    """The answer before aging and noise. PRIVATE: a figure that draws it must not be passed on."""

    tick: int
    value: float


@dataclass(frozen=True)
class LeakageRecord:
    """The leakage of everything published up to a tick about the present at that tick."""

    tick: int
    epsilon: float
    published: bool


def release_records(releases: Iterable[Release]) -> list[ReleaseRecord]:
    """Make the records of releases, from the first output of each.

    >>> release_records([Release(7, (0.5,), (0.5,), (0.125,), 2, 0, 0.2)])
    [ReleaseRecord(tick=7, value=0.5, estimate=0.5, low=0.25, high=0.75)]
    """
    records = []
    for r in releases:
        middle = r.estimate[0] if r.estimate else None
        low, high = (r.low[0], r.high[0]) if r.low else (None, None)
        if middle is not None and r.standard_error and not r.low:  # recorded before bands were
            low, high = middle - 2 * r.standard_error[0], middle + 2 * r.standard_error[0]
        records.append(ReleaseRecord(r.tick, r.values[0], middle, low, high))
    return records


def truth_records(plan: Plan, panel: Panel) -> list[TruthRecord]:
    """Compute the first output of the query at every tick without a missing reading. PRIVATE."""
    pairs = zip(panel.ticks.tolist(), true_answers(plan, panel)[:, 0].tolist(), strict=True)
    return [TruthRecord(tick, value) for tick, value in pairs if not math.isnan(value)]


def leakage_records(publisher: Standing, ledger: Ledger, *, until: int | None = None) -> list[LeakageRecord]:
    """Compute the leakage of the present at every tick since the first charge, also ticks without a release.

    The charges of the current plan are replayed from the ledger. Published values are not needed: the leakage depends
    on the plan, the ticks, and which readings were missing.
    """
    accountant = publisher.accountant
    live = [entry for entry in ledger.entries(publisher.dataset, kind="reserve") if entry.plan == publisher.plan.digest]
    records: list[LeakageRecord] = []
    for number, entry in enumerate(live):
        assert entry.tick is not None
        following = live[number + 1].tick if number + 1 < len(live) else (entry.tick if until is None else until) + 1
        assert following is not None
        charge = Charge.from_record(entry.data()["charge"])
        ticks = range(entry.tick, following)
        if charge.algorithm == ALGORITHM:  # computed as it would be now
            records.append(LeakageRecord(entry.tick, charge.present, True))
            ticks = ticks[1:]
        if not ticks:
            continue
        recorded = entry.state()
        state = accountant.restore(recorded.accountant, cost=recorded.cost)
        for tick in ticks:
            records.append(LeakageRecord(tick, accountant.leakage(state, tick).epsilon, tick == entry.tick))
    return records


# ---- the axis of ticks in the reader's time -------------------------------------------------------------------------


def label_times(
    ticks: Sequence[int], times: npt.NDArray[Any], *, timezone: str | None = None
) -> tuple[list[tuple[int, str]], str]:
    """At most eight ticks with the time to write there, and the name of the axis.

    Args:
        ticks: The ticks, in order.
        times: Their times: whole numbers, or timestamps (in UTC if a zone is given).
        timezone: The zone in which a reader looks at the clock.

    >>> import numpy as np
    >>> label_times([5, 6], np.array(["2016-11-20T23:30", "2016-11-21T00:00"], dtype="datetime64[s]"))
    ([(5, '23:30'), (6, '00:00')], '20 Nov to 21 Nov 2016')
    >>> label_times([5, 6], np.array([300, 360]))
    ([(5, '300'), (6, '360')], 'Time')
    """
    if times.dtype.kind != "M":
        every = math.ceil(len(ticks) / _LABELS)
        return [(ticks[i], f"{int(times[i]):,}".replace(",", " ")) for i in range(0, len(ticks), every)], "Time"
    stamps: list[datetime] = times.astype("datetime64[s]").tolist()
    if timezone is not None:
        stamps = [stamp.replace(tzinfo=UTC).astimezone(ZoneInfo(timezone)) for stamp in stamps]
    names = [f"{stamp.day} {stamp:%b}" for stamp in stamps]
    span = names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
    if len(set(names)) <= 2:
        names = [f"{stamp:%H:%M}" for stamp in stamps]
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    shown = starts[:: math.ceil(len(starts) / _LABELS)]
    where = "" if timezone is None else f", {timezone}"
    return [(ticks[i], names[i]) for i in shown], f"{span} {stamps[-1].year}{where}"
