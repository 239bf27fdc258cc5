"""The event-level cost of a plan in the words of dp_accounting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from csdp.errors import InputError
from csdp.interop.needed import needed
from csdp.plan import Plan

Unit = Literal["reading", "sequence"]


def dp_accounting_event(
    plan: Plan, releases: int = 1, *, unit: Unit = "reading", law: Literal["exact", "laplace"] = "exact"
) -> Any:
    """The plain differential privacy of n releases of a plan as a `DpEvent` of dp_accounting.

    One release is `DiscreteLaplaceDpEvent(1/scale, k)`: two-sided geometric noise of `scale` lattice steps on answers
    that one reading moves by at most `k = floor(Delta_f / step)` of them, so its epsilon is epsilon_c.

    - unit "reading": a reading is read by one release, and again by as many as it may stand in for missing ones, so n
      releases cost it `min(n, 1 + stale_limit)` times one. This is the event level of the plan.
    - unit "sequence": every release reads one reading of a sequence, so all its readings together cost n times one.

    law "laplace" gives a `LaplaceDpEvent`, which all accountants of dp_accounting know. The continuous law of the same
    scale is up to 1e-7 too low in delta between two lattice points, so its sensitivity is taken one step larger, with
    which it is never below: `delta(e) = 1 - q^n (q + q^2y)/(1 + q) <= 1 - q^(n + y + 1/2)` with `q = exp(-1/scale)`,
    by the inequality of the means; epsilon is larger by a thousandth.

    Guarantee: plain DP, under any model. The leakage of the present does not cross over: correlated sequences tell
    more about each other than this says.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> dp_accounting_event(plan, 24)
    DiscreteLaplaceDpEvent(noise_parameter=0.0009765625, sensitivity=1024)
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
            "plan: its schedule has a noise level for each tick; ask for the event of plan.at(level) for each level, "
            "and compose them"
        )
    events = needed("dp_accounting.dp_event", package="dp-accounting")
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
    """How many lattice steps one reading moves an answer, at most. Answers lie on the lattice, so a part of a step
    cannot be moved, and rounding down is exact.
    """
    return int(Fraction(plan.lattice_sensitivity) / Fraction(plan.step))
