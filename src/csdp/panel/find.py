"""What a table of readings shows about itself: `find_input` finds every setting, and says what it found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csdp.errors import InputError
from csdp.numbers import Ints
from csdp.panel.files import NUMBER, ColumnTable, read_table
from csdp.panel.input import InputSpec
from csdp.panel.panel import Readings
from csdp.panel.read import TableColumns, find_columns, find_decimal, holds_words, place_readings, read_raw, to_spec
from csdp.panel.times import (
    RawReadings,
    check_no_months,
    find_disorder,
    find_repeated,
    find_time_format,
    format_step,
    has_offsets,
    looks_like_times,
    text_of,
)

#: Distinct words up to which cells are taken as categories.
_CATEGORIES = 20
#: Steps that clocks and loggers have, in seconds.
_USUAL_STEPS = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800)
_SHOWN_ROWS = 5
_SHOWN_COLUMNS = 7
_NO_SPEC = InputSpec()


@dataclass(frozen=True)
class FoundInput:
    """The complete settings of a table, its readings, and what was found.

    `facts`: what, what was found, the options that change it. `first_rows`: names of columns, and cells. **The first
    rows are readings**: everything else says nothing about them but times, names, and which are missing.
    """

    spec: InputSpec
    readings: Readings
    facts: tuple[tuple[str, str, str], ...]
    first_rows: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]

    def __repr__(self) -> str:
        return f"FoundInput({self.spec!r}, {self.readings!r})"


def find_input(source: Any, given: InputSpec = _NO_SPEC) -> FoundInput:
    """Find how a table is to be read: format, columns, time zone, step, gaps and duplicates; given settings are kept.

    Choices that change readings (which of two of one time counts, resampling) are made here and reported, where
    `read_readings` would refuse the table.

    >>> found = find_input({"Zeit": ["27.10.2024 10:00", "27.10.2024 10:30"], "Flur": ["20,5", "21"]})
    >>> found.spec
    InputSpec(decimal=',', time='Zeit', time_format='%d.%m.%Y %H:%M', step='30min')
    """
    source, spec = to_spec(source, given)
    if isinstance(source, np.ndarray | Readings):
        raise InputError("data: an array has nothing to find; read it with read_readings")
    table = read_table(source, spec)
    spec = spec.override(**table.found)
    if isinstance(source, str | Path):
        spec = spec.override(file=str(source))
    roles = find_columns(table, spec)
    spec = spec.override(time=roles.time, sequence=roles.sequence, value=roles.value)
    spec, left_out = _choose_columns(table, spec, roles)
    spec = _find_formats(table, spec, roles)
    raw = read_raw(table, spec, roles)
    spec, handled = _choose_rows(raw, spec)
    spec, pace = _choose_step(raw, spec)
    readings = place_readings(raw, spec)
    if spec.step is None:
        spec = spec.override(step=format_step(readings.step) if raw.clock.stamps else readings.step)
    facts = (
        *_describe_text(spec),
        _describe_shape(spec, readings),
        *left_out,
        _describe_times(table, spec, roles, readings),
        ("step", f"{spec.step}{pace}", "--step --resample"),
        _describe_gaps(readings),
        *handled,
    )
    return FoundInput(spec, readings, facts, _first_rows(table))


def _choose_columns(
    table: ColumnTable, spec: InputSpec, roles: TableColumns
) -> tuple[InputSpec, tuple[tuple[str, str, str], ...]]:
    """Columns of words: categories if all are, and else left out."""
    if spec.names is not None or spec.categories is not None:
        return spec, ()
    if roles.value is not None:
        if holds_words(table.columns[roles.value]):
            return _with_categories(table, spec, [roles.value])
        return spec, ()
    others = {name: column for name, column in table.columns.items() if name != roles.time}
    words = [name for name, column in others.items() if holds_words(column) or looks_like_times(column)]
    if not words:
        return spec, ()
    if len(words) == len(others):
        return _with_categories(table, spec, words)
    fact = ("left out", f"columns that hold no numbers: {', '.join(words)}", "--names --categories")
    return spec.override(names=[name for name in others if name not in words]), (fact,)


def _with_categories(
    table: ColumnTable, spec: InputSpec, columns: list[str]
) -> tuple[InputSpec, tuple[tuple[str, str, str], ...]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    labels: set[str] = set()
    for name in columns:
        labels |= set(pc.unique(pc.utf8_trim_whitespace(table.columns[name].cast(pa.string()))).to_pylist())
    labels -= {"", None}
    if any(NUMBER.fullmatch(label) for label in labels):
        return spec, ()  # numbers with a slip among them, which the reader refuses with its row
    if len(labels) > _CATEGORIES:
        raise InputError(
            f"{table.label}: column {columns[0]!r} holds {len(labels)} different words; name the columns to read "
            f"(names=), or declare the labels (categories=), at most {_CATEGORIES} of which are found"
        )
    fact = (
        "categories",
        f"{len(labels)} words, numbered in alphabetical order, taken from the readings",
        "--categories",
    )
    return spec.override(categories=sorted(labels), categories_from="readings"), (fact,)


def _find_formats(table: ColumnTable, spec: InputSpec, roles: TableColumns) -> InputSpec:
    words = text_of(table.columns[roles.time]) if spec.time_format is None else None
    if words is not None:
        spec = spec.override(time_format=find_time_format(table.label, roles.time, words))
    if spec.decimal is None and spec.categories is None:
        mark = find_decimal(table, spec, roles)
        spec = spec.override(decimal=mark if mark != "." or spec.delimiter is not None else None)
    return spec


def _choose_rows(raw: RawReadings, spec: InputSpec) -> tuple[InputSpec, tuple[tuple[str, str, str], ...]]:
    """What to do about rows out of order and readings of one time."""
    facts = []
    row = find_disorder(raw)
    if row and spec.sort is None:
        times = raw.clock.numbers
        back = int(times[row - 2] - times[row - 1])
        if (
            raw.clock.stamps
            and spec.timezone is None
            and raw.wide is not None
            and 0 < back <= 3600 * raw.clock.per_second
        ):
            raise InputError(
                f"{raw.label}: times step back by up to an hour at {raw.clock.show(int(times[row - 1]))}, as where "
                "clocks are set back; give timezone= with a name such as 'Europe/Berlin', or sort=True"
            )
        spec = spec.override(sort=True)
        facts.append(("order", f"times are not in order at row {row}; they are sorted", ""))
    single = raw.one_by_one()
    order, same = find_repeated(single)
    count = int(same.sum())
    if count and spec.duplicates is None:
        values = single.numbers[order]
        equal = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
        differ = int((same & ~equal).sum())
        spec = spec.override(duplicates="last" if differ else "first")
        kept = f"{differ:,} of them differ, and the last in the file counts" if differ else "all of them are equal"
        facts.append(("duplicates", f"{count:,} readings repeat a time: {kept}", "--duplicates"))
    elif (
        raw.wide is not None and spec.duplicates is None and np.unique(raw.clock.numbers).size < raw.clock.numbers.size
    ):
        spec = spec.override(duplicates="first")
        facts.append(("duplicates", "rows repeat a time, without two readings of one sequence", "--duplicates"))
    return spec, tuple(facts or [("duplicates", "none" if not count else str(spec.duplicates), "--duplicates")])


def _choose_step(raw: RawReadings, spec: InputSpec) -> tuple[InputSpec, str]:
    """A step if times lie on no grid: the usual one nearest to the median, with the last reading of each."""
    if spec.step is not None or spec.resample is not None:
        return spec, ""
    distinct = np.unique(raw.clock.numbers)
    if distinct.size < 3:
        return spec, ""
    check_no_months(raw.label, raw.clock, distinct)
    unit = raw.clock.per_second
    typical = int(np.median(_gaps(raw)))
    common = int(np.gcd.reduce(np.diff(distinct)))
    on_grid = bool((distinct % unit == distinct[0] % unit).all())
    ticks = int(distinct[-1] - distinct[0]) // max(common, 1) + 1
    if on_grid and (common >= typical or ticks <= 4 * distinct.size):
        return spec, ""
    every = typical / unit
    step = min(_USUAL_STEPS, key=lambda usual: abs(np.log(usual / max(every, 1e-9))))
    if not raw.clock.stamps:
        return spec.override(step=max(1, typical), resample="last"), _IRREGULAR
    return spec.override(step=format_step(step), resample="last"), _IRREGULAR


_IRREGULAR = "; times lie on no grid, so the last reading within each step counts (resample)"


def _gaps(raw: RawReadings) -> Ints:
    """Times between successive readings of the same sequence."""
    if raw.wide is not None:
        return _differences(np.unique(raw.clock.numbers))
    order = np.lexsort((raw.clock.numbers[raw.rows], raw.sequences))
    gaps = _differences(raw.clock.numbers[raw.rows[order]])
    gaps = gaps[(np.diff(raw.sequences[order]) == 0) & (gaps > 0)]
    return gaps if gaps.size else _differences(np.unique(raw.clock.numbers))


def _differences(times: Ints) -> Ints:
    return times[1:] - times[:-1]


# ---- in words --------------------------------------------------------------------------------------------------------


def _describe_text(spec: InputSpec) -> list[tuple[str, str, str]]:
    facts = []
    if spec.file is not None:
        part = "" if spec.table is None else f", {spec.table!r}"
        facts.append(("file", f"{Path(spec.file).name}{part}", ""))
    if spec.delimiter is not None:
        mark = {"\t": "tabs", ",": "commas", ";": "semicolons"}.get(spec.delimiter, repr(spec.delimiter))
        head = "a header line" if spec.header else "no header line"
        skipped = f" after {spec.skip} others" if spec.skip else ""
        point = {",": "decimal comma", ".": "decimal point"}.get(spec.decimal or ".", "")
        words = f"{spec.encoding}, {mark} between cells, {point}, {head}{skipped}"
        facts.append(("text", words, "--delimiter --decimal"))
    return facts


def _describe_shape(spec: InputSpec, readings: Readings) -> tuple[str, str, str]:
    shown = ", ".join(readings.names[:6]) + (", ..." if len(readings.names) > 6 else "")
    count = f"{len(readings.names):,} sequences: {shown}"
    if spec.sequence is None:
        return "shape", f"wide, one column for each of {count}", "--names, or --sequence and --value"
    return "shape", f"long, column {spec.sequence!r} has {count}; readings in {spec.value!r}", "--sequence --value"


def _describe_times(
    table: ColumnTable, spec: InputSpec, roles: TableColumns, readings: Readings
) -> tuple[str, str, str]:
    if readings.times.dtype.kind != "M":
        zone = "whole numbers"
    elif spec.timezone is not None:
        zone = f"local times of {spec.timezone}, here in UTC"
    elif has_offsets(table.columns[roles.time]):
        zone = "with offsets, here in UTC"
    else:
        zone = "without a zone, taken as they are"
    form = f", written {spec.time_format}" if spec.time_format is not None else ""
    span = f"{readings.times[0]} to {readings.times[-1]}"
    return "times", f"column {roles.time!r}{form}, {zone}: {span}", "--time --timezone --time-format"


def _describe_gaps(readings: Readings) -> tuple[str, str, str]:
    missing = np.isnan(readings.readings)
    longest = max(_longest_run(missing[:, i]) for i in range(missing.shape[1]))
    words = f"{missing.mean():.1%} of {len(readings):,} ticks are missing" + (
        f", at most {longest:,} in a row" if longest else ""
    )
    return "gaps", words, "--stale-limit of plan"


def _longest_run(flags: Any) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _first_rows(table: ColumnTable) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    names = tuple(table.columns)[:_SHOWN_COLUMNS]
    columns = [table.columns[name].slice(0, _SHOWN_ROWS).to_pylist() for name in names]
    rows = zip(*columns, strict=True)
    return names, tuple(tuple("" if cell is None else str(cell) for cell in row) for row in rows)
