"""Several queries released at the same ticks, and states that are asked for: histories of the accountant alone."""

from __future__ import annotations

import math

import numpy as np

from attacks.cases import Case
from attacks.history import MANY, Outcome
from attacks.library import make_plan
from attacks.plain import Truth, answers
from attacks.truth import TooManyError
from csdp.accountant import Accountant
from csdp.errors import CsdpError


def run_together(case: Case) -> Outcome:
    """Every certificate of an accountant after each release, compared with the truth."""
    out = Outcome()
    try:
        _compare(case, out)
    except TooManyError:
        out.tags.add("cut short")
    return out


def _compare(case: Case, out: Outcome) -> None:
    truth = Truth(case.s, case.m)
    try:
        plans = [make_plan(spec) for spec in case.plans]
        accountant = Accountant(plans[0], also=plans[1:], state=case.state)
        state = accountant.start()
    except CsdpError as error:
        out.refused = f"{type(error).__name__}: {error}"
        return
    out.tags |= {f"state {component.kind}" for component in accountant.components}
    first = case.plans[0]
    tables = [answers(spec.ask, spec.models[0].values, case.s, case.m) for spec in case.plans]
    rates = [float(plan.divisor / (float(plan.scale) * plan.step)) for plan in plans]
    grids = math.prod(math.prod(len(np.unique(column)) for column in table.T) for table in tables)
    rows = {step.tick: step.missing for step in case.steps}
    released = late = 0
    for tick in sorted(rows):
        if grids ** (released + 1) > 4 * MANY:
            break
        reads = [_reads(spec.ages, rows, tick) for spec in case.plans]
        if any(n is None for one in reads for n in one):
            continue
        staleness = max(
            tick - age - n  # type: ignore[operator]
            for spec, one in zip(case.plans, reads, strict=True)
            for n, age in zip(one, spec.ages, strict=True)
        )
        if staleness > first.stale_limit:
            continue
        state = accountant.release(state, tick, stale=staleness > 0)
        released, late = released + 1, max(late, staleness)
        for one, table, rate in zip(reads, tables, rates, strict=True):
            truth.add(tuple(one), table, rate)  # type: ignore[arg-type]
        told = truth.present(first, tick)
        out.compare("present of several queries", accountant.leakage(state).epsilon, told[0], tick)
        out.compare("present of several queries later", accountant.leakage(state, tick + 2).epsilon, told[2], tick)
        out.compare("peak of several queries", accountant.peak(state), max(told), tick)
        again = accountant.restore(state.to_dict())
        out.compare("restored state", accountant.leakage(again).epsilon, told[0], tick)
    out.releases = released
    if late:
        out.tags.add("stale readings")
    if released:
        out.compare("event of several queries", accountant.event_level(late), truth.event(), tick)
        out.compare("group of several queries", accountant.group_level(released), truth.group(first), tick)
        out.compare(
            "lifetime of several queries", accountant.lifetime(released, stale=late), truth.lifetime(first), tick
        )


def _reads(ages: tuple[int, ...], rows: dict[int, tuple[int, ...]], tick: int) -> list[int | None]:
    return [
        max((t for t, lost in rows.items() if t <= tick - age and i not in lost), default=None)
        for i, age in enumerate(ages)
    ]
