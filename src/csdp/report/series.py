"""Released series as CSV, Parquet or JSON, and the records that figures are drawn from."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.files import replace_file
from csdp.ledger import Charge, Ledger
from csdp.numbers import Floats, json_text
from csdp.panel import Panel, Readings
from csdp.plan import ALGORITHM, Plan
from csdp.publisher import Release, Skipped, Standing
from csdp.publisher.sources import true_answers
from csdp.query_table import FoldTable

#: Endings of the files that a series can be written to.
SERIES_KINDS = (".csv", ".parquet", ".json")
#: Largest number of sequences whose unequal ages are listed in every row; otherwise their range is.
_AGES_LISTED = 100
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LABELS = 8
#: Hours between labels within two days.
_HOURS = (1, 2, 3, 6, 12)


# ---- released series -----------------------------------------------------------------------------------------------


class TimedTicks(Protocol):
    """Readings on a grid: a panel, or a table behind an engine."""

    @property
    def ticks(self) -> npt.NDArray[np.int64]:
        """Consecutive ticks."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The time of each tick, as read."""


@dataclass(frozen=True)
class Series:
    """Releases in order of their ticks, the times of the ticks as read, and the ticks without output."""

    names: tuple[str, ...]
    times: Mapping[int, Any]
    releases: tuple[Release, ...]
    skipped: tuple[Skipped, ...] = ()

    @classmethod
    def of(
        cls, plan: Plan, readings: TimedTicks, releases: tuple[Release, ...], skipped: tuple[Skipped, ...] = ()
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
        allowed = f"{', '.join(SERIES_KINDS[:-1])} or {SERIES_KINDS[-1]}"
        raise InputError(f"output: {path.name!r} given; the name must end in {allowed}")
    return kind


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON, completely or not at all."""
    with replace_file(path) as file:
        file.write((json_text(content) + "\n").encode())


def write_series(series: Series, path: Path) -> None:
    """Write a series in the format of the name's ending, completely or not at all."""
    kind = check_kind(path)
    content = {".csv": _csv, ".parquet": _parquet, ".json": _json}[kind](series)
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


def _parquet(series: Series) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = series.columns()
    stamps = any(isinstance(time, str) for time in series.times.values())
    whole = all(isinstance(cell, int) for cell in columns["ages"])
    kinds: dict[str, Any] = {
        **dict.fromkeys(("tick", "stale", "count"), pyarrow.int64()),
        **dict.fromkeys(("about", "model"), pyarrow.string()),
        "time": pyarrow.string() if stamps else pyarrow.int64(),
        "ages": pyarrow.int64() if whole else pyarrow.string(),
    }
    made = {name: pyarrow.array(cells, kinds.get(name, pyarrow.float64())) for name, cells in columns.items()}
    if stamps:
        made["time"] = made["time"].cast(pyarrow.timestamp("s"))
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(made), sink)
    return bytes(sink.getvalue())


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


def first_answers(plan: Plan, panel: Panel) -> Floats:
    """Compute the first output of the query at every tick, before aging and noise: as private as the readings.

    NaN if it is not known.
    """
    return true_answers(plan, panel)[:, 0]


def truth_records(plan: Plan, panel: Panel, readings: Readings | None = None) -> list[TruthRecord]:
    """Compute the true answer at every tick without a missing reading, of the readings where it can be. PRIVATE.

    A query that folds the values of the states, each times a weight of its sequence (mean, sum, largest, ...), has an
    answer for readings as they were read; one that counts states has not.
    """
    answers = first_answers(plan, panel)
    if readings is not None:
        as_read = _answers_as_read(plan, readings)
        answers = answers if as_read is None else as_read
    pairs = zip(panel.ticks.tolist(), answers.tolist(), strict=True)
    return [TruthRecord(tick, value) for tick, value in pairs if not math.isnan(value)]


def _answers_as_read(plan: Plan, readings: Readings) -> Floats | None:
    """The first output at every tick, of the readings themselves; None if the query is not one of values."""
    query, table = plan.query, plan.model.value_table
    if not isinstance(query, FoldTable) or query.weights is None:
        return None
    weights = (query.weights * table).sum(axis=1) / np.maximum((table * table).sum(axis=1), np.finfo(float).tiny)
    if not np.allclose(query.weights, weights[:, None] * table, rtol=1e-9, atol=1e-9 * float(np.abs(table).max())):
        return None
    parts = readings.select(plan.model.names).readings * weights
    folded = {"sum": parts.sum, "max": parts.max, "min": parts.min}[query.fold](axis=1)
    answers: Floats = (parts[:, 0] if query.per_sequence else folded) / query.denominator
    return answers


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
    ([(6, '00:00')], '20 to 21 Nov 2016')
    >>> label_times([5, 6], np.array([300, 360]))
    ([(5, '300'), (6, '360')], 'Time')
    """
    if times.dtype.kind != "M":
        every = max(1, math.ceil(len(ticks) / _LABELS))
        return [(ticks[i], f"{int(times[i]):,}".replace(",", " ")) for i in range(0, len(ticks), every)], "Time"
    stamps = [stamp.isoformat() for stamp in _local(times, timezone)]
    where = "" if timezone is None else f", {timezone}"
    first, last = stamps[0], stamps[-1]
    days = len({stamp[:10] for stamp in stamps})
    if days > 2:
        return day_names(ticks, stamps), f"{_day(first)} to {_day(last)} {last[:4]}{where}"
    hours = [i for i, stamp in enumerate(stamps) if stamp[14:19] in {"00:00", "00"}]
    every = next((n for n in _HOURS if len(hours) / n <= _LABELS), 24)
    shown = [i for i in hours if int(stamps[i][11:13]) % every == 0] or [0, len(stamps) - 1]
    span = _day(first) if days == 1 else f"{int(first[8:10])} to {_day(last)}"
    return [(ticks[i], stamps[i][11:16]) for i in shown], f"{span} {last[:4]}{where}"


def day_names(ticks: Sequence[int], times: Sequence[str]) -> list[tuple[int, str]]:
    """The first tick of every day with a short name of the day; at most eight of them.

    >>> day_names([5, 6, 7], ["2016-11-20T15:00:00", "2016-11-20T16:00:00", "2016-11-21T08:00:00"])
    [(5, '20 Nov'), (7, '21 Nov')]
    """
    if not times or len(times[0]) < 10 or times[0][4] != "-":
        return []
    names, day = [], ""
    for tick, time in zip(ticks, times, strict=True):
        if time[:10] != day:
            day = time[:10]
            names.append((tick, _day(day)))
    return names[:: max(1, math.ceil(len(names) / _LABELS))]


def _day(stamp: str) -> str:
    return f"{int(stamp[8:10])} {_MONTHS[int(stamp[5:7]) - 1]}"


def _local(times: npt.NDArray[Any], timezone: str | None) -> list[Any]:
    stamps: list[Any] = times.astype("datetime64[s]").tolist()
    if timezone is None:
        return stamps
    zone = ZoneInfo(timezone)
    return [stamp.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None) for stamp in stamps]
