"""A plan as a measurement of OpenDP or an event of dp_accounting; releases as tables of pandas, polars and arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from csdp.bounds.result import round_up
from csdp.display import import_package
from csdp.errors import InputError
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Batch, Publisher, Release
from csdp.report.files import Series, TimedTicks, arrow_table

Kind = Literal["pandas", "polars", "arrow"]

FEATURES = ("contrib", "honest-but-curious")


def opendp_measurement(source: Plan | Publisher, *, ticks: int, start: int = 0) -> Any:
    """Return a user-defined measurement of OpenDP for the readings of `ticks` consecutive ticks, from `start` on.

    Its argument is a list of state numbers, all sequences of the first tick, then of the next; none may be missing.
    The distance of two arguments is the number of readings in which they differ (Hamming). Its privacy map is
    `d -> d epsilon_c`: a reading is used by one release, so `map(1)` is the event level of the plan.

    From a **Publisher** it publishes: calling it charges the ledger, releases and records, and returns a `Batch`. Ticks
    that are already published come from the ledger, and refusals depend only on ticks, so the map holds whatever was
    published before. From a **Plan** it is for accounting and combination only: `map` works, and calling it raises
    InputError, because only a publisher publishes; a release that OpenDP made by itself would be in no ledger, and the
    leakage of the present would be counted too low.

    Guarantee: plain DP of single readings, under any model; not the CSDP leakage of the present, which takes
    correlations into account. OpenDP requires the features "contrib" and "honest-but-curious" for a privacy map that it
    has not proven.

    >>> import opendp.prelude as dp
    >>> dp.enable_features("contrib", "honest-but-curious")
    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> measurement = opendp_measurement(plan, ticks=24)
    >>> measurement.map(1), measurement.map(3)
    (0.5, 1.5)
    """
    plan = source.plan if isinstance(source, Publisher) else source
    if not isinstance(plan, Plan):
        raise InputError(f"source: {type(source).__name__} given; a Plan, or a Publisher to publish")
    if isinstance(source, Publisher) and source.unsafe:
        raise InputError(
            "source: this publisher draws its noise from a seed, which gives no protection; leave unsafe_seed out"
        )
    for name, value, least in (("ticks", ticks, 1), ("start", start, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name}: {value!r} given; a whole number, {least} or more")
    dp = import_package("opendp.prelude", package="opendp")
    _check_features(dp)
    model = plan.model
    return dp.m.make_user_measurement(
        input_domain=dp.vector_domain(dp.atom_domain(bounds=(0, model.states - 1)), size=ticks * model.sequences),
        input_metric=dp.hamming_distance(),
        output_measure=dp.max_divergence(),
        function=_publishing_function(source, ticks, start) if isinstance(source, Publisher) else _refuse_release,
        privacy_map=lambda distance: round_up(int(distance) * plan.epsilon_c) if distance else 0.0,
    )


def _check_features(dp: Any) -> None:
    """Raise InputError unless the caller has enabled OpenDP's features, which csdp must not do itself."""
    try:
        dp.assert_features(*FEATURES)
    except Exception as error:  # the module of OpenDP's exception type depends on its version
        names = ", ".join(f'"{name}"' for name in FEATURES)
        raise InputError(f"opendp: enable its features first, opendp.prelude.enable_features({names})") from error


def _publishing_function(publisher: Publisher, ticks: int, start: int) -> Callable[[Sequence[int]], Batch]:
    model = publisher.plan.model

    def function(readings: Sequence[int]) -> Batch:
        states = np.asarray(readings, dtype=np.int64)
        if states.size != ticks * model.sequences:
            raise InputError(
                f"readings: {states.size:,} given; {ticks:,} ticks of {model.sequences:,} sequences expected"
            )
        if states.min() < 0 or states.max() >= model.states:
            # Which ticks are released depends on missing readings, which the privacy map does not cover.
            raise InputError(
                f"readings: every one must be a state number, 0 to {model.states - 1}; none may be missing"
            )
        rows = states.reshape(ticks, model.sequences)
        return publisher.publish(Panel.from_states(rows, names=model.names, first_tick=start))

    return function


def _refuse_release(_: Sequence[int]) -> Batch:
    raise InputError(
        "this measurement was made from a plan, for accounting only; make it from a Publisher, so that the release is "
        "charged in a ledger"
    )


Unit = Literal["reading", "sequence"]


def dp_accounting_event(
    plan: Plan, releases: int = 1, *, unit: Unit = "reading", law: Literal["exact", "laplace"] = "exact"
) -> Any:
    """Return the plain differential privacy of n releases of a plan as a `DpEvent` of dp_accounting.

    One release is `DiscreteLaplaceDpEvent(1/scale, k)`: two-sided geometric noise of `scale` lattice steps on answers
    that one reading changes by at most `k = floor(Delta_f / step)` of them, so its epsilon is epsilon_c.

    Args:
        plan: a plan with one noise level.
        releases: their number n.
        unit: "reading": a reading is used by one release, and again where it replaces missing ones, so n releases cost
            it `min(n, 1 + stale_limit)` times one; this is the event level of the plan. "sequence": every release uses
            one reading of a sequence, so all its readings together cost n times one.
        law: "exact", or "laplace" for a `LaplaceDpEvent`, which all accountants of dp_accounting support. The
            continuous law of the same scale is too low in delta between two lattice points, so its sensitivity is one
            step larger, with which it is never too low: `delta(e) = 1 - q^n (q + q^2y)/(1 + q) <= 1 - q^(n + y + 1/2)`
            with `q = exp(-1/scale)`, by the inequality of the means; epsilon is `1 + 1/k` times as large, so prefer
            "exact" where k is small.

    Guarantee: plain DP, under any model; not the leakage of the present, which is larger for correlated sequences.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> dp_accounting_event(plan, 24)
    DiscreteLaplaceDpEvent(noise_parameter=1.0, sensitivity=1)
    >>> dp_accounting_event(plan, 24, unit="sequence").count
    24
    """
    if isinstance(releases, bool) or not isinstance(releases, int) or releases < 1:
        raise InputError(f"releases: {releases!r} given; a whole number, 1 or more")
    if unit not in {"reading", "sequence"}:
        raise InputError(f"unit: {unit!r} given; 'reading' or 'sequence'")
    if law not in {"exact", "laplace"}:
        raise InputError(f"law: {law!r} given; 'exact' or 'laplace'")
    if plan.schedule is not None:
        raise InputError(
            "plan: its schedule has a noise level for each tick; compose the events of plan.at(level) for its levels"
        )
    events = import_package("dp_accounting.dp_event", package="dp-accounting")
    if not hasattr(events, "DiscreteLaplaceDpEvent"):
        raise InputError("dp_accounting: 0.5 or later is needed: pip install --upgrade dp-accounting")
    steps = lattice_steps(plan)
    one = (
        events.DiscreteLaplaceDpEvent(noise_parameter=float(1 / plan.scale), sensitivity=steps)
        if law == "exact"
        else events.LaplaceDpEvent(noise_multiplier=float(plan.scale / (steps + 1)))
    )
    count = releases if unit == "sequence" else min(releases, 1 + plan.stale_limit)
    return one if count == 1 else events.SelfComposedDpEvent(one, count)


def lattice_steps(plan: Plan) -> int:
    """Return the sensitivity in lattice steps. Answers lie on the lattice, so rounding down is exact."""
    return int(Fraction(plan.lattice_sensitivity) / Fraction(plan.step))


def releases_frame(
    releases: Iterable[Release], kind: Kind = "pandas", *, plan: Plan | None = None, readings: TimedTicks | None = None
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


def _series(releases: tuple[Release, ...], plan: Plan | None, readings: TimedTicks | None) -> Series:
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
