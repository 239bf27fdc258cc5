"""Releases as tables of pandas, polars and arrow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from csdp.display import import_package
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.publisher import Release
from csdp.report.files import Series, TickGrid, arrow_table

Kind = Literal["pandas", "polars", "arrow"]


def releases_frame(
    releases: Iterable[Release], kind: Kind = "pandas", *, plan: Plan | None = None, readings: TickGrid | None = None
) -> Any:
    """Return releases, such as a `Batch`, as a table: one row for each tick, in order.

    Columns: tick, `value`, `estimate`, `standard_error`, `low` and `high` (with `:NAME` where the query has several
    outputs), about, ages, stale, epsilon_s; with `readings` also time. An estimate that was not made is missing.

    Args:
        releases: of one query.
        kind: "pandas", "polars" or "arrow".
        plan: gives the names of several outputs; by default they are numbered.
        readings: from which the releases were made, such as a Panel; gives the times.

    >>> one = Release(5, (0.25,), (0.5,), (0.125,), ages=2, stale=0, epsilon_s=0.2)
    >>> releases_frame([one], "arrow").to_pylist()[0]["value"]
    0.25
    """
    if kind not in {"pandas", "polars", "arrow"}:
        raise InputError(f"kind: {kind!r} given; 'pandas', 'polars' or 'arrow'")
    package = import_package(kind, package=kind) if kind != "arrow" else None
    table = arrow_table(_series(tuple(releases), plan, readings))
    if readings is None:
        table = table.drop_columns(["time"])
    if kind == "pandas":
        return table.to_pandas()
    return package.from_arrow(table) if package is not None else table


def _series(releases: tuple[Release, ...], plan: Plan | None, readings: TickGrid | None) -> Series:
    widths = {len(release.values) for release in releases} or {1}
    if len(widths) > 1:
        raise InputError("releases: some have more outputs than others; give those of one query at a time")
    width = widths.pop()
    names = tuple(map(str, range(width)))
    if plan is not None:
        names = plan.query.output_names(plan.model.names, plan.model.value_table)
        if releases and len(names) != width:
            raise InputError(f"plan: its query has {len(names)} outputs, these releases have {width}")
    ordered = tuple(sorted(releases, key=lambda release: release.tick))
    if readings is None:
        return Series(names, {release.tick: release.tick for release in ordered}, ordered)
    stamps = readings.times.tolist() if readings.times.dtype.kind != "M" else readings.times.astype(str).tolist()
    times = dict(zip(readings.ticks.tolist(), stamps, strict=True))
    absent = [release.tick for release in ordered if release.tick not in times]
    if absent:
        raise InputError(f"readings: they have no tick {absent[0]}; give those from which the releases were made")
    return Series(names, times, ordered)
