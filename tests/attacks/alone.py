"""Histories of the accountant alone, without a publisher, with states that are asked for."""

from __future__ import annotations

import math

import numpy as np

from accountant.systems import follow
from attacks.cases import Case
from attacks.history import MANY, Outcome
from attacks.library import make_plan
from attacks.plain import Truth, answers
from csdp.errors import CsdpError
from oracle import TooManyError


def run_alone(case: Case) -> Outcome:
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
        (spec,) = case.plans
        plan = make_plan(spec)
        accountant = follow(plan, case.state)
        state = accountant.start()
    except CsdpError as error:
        out.refused = f"{type(error).__name__}: {error}"
        return
    out.tags |= {f"state {component.kind}" for component in accountant.components}
    table = answers(spec.ask, spec.models[0].values, case.s, case.m)
    rate = float(plan.divisor / (float(plan.scale) * plan.step))
    grid = math.prod(len(np.unique(column)) for column in table.T)
    rows = {step.tick: step.missing for step in case.steps}
    released = late = 0
    for tick in sorted(rows):
        if grid ** (released + 1) > 4 * MANY:
            break
        reads = _reads(spec.ages, rows, tick)
        if any(n is None for n in reads):
            continue
        staleness = max(
            tick - age - n  # type: ignore[operator]
            for n, age in zip(reads, spec.ages, strict=True)
        )
        if staleness > spec.stale_limit:
            continue
        state = accountant.release(state, tick, stale=staleness > 0)
        released, late = released + 1, max(late, staleness)
        truth.add(tuple(reads), table, rate)  # type: ignore[arg-type]
        told = truth.present(spec, tick)
        out.compare("present of an accountant", accountant.leakage(state).epsilon, told[0], tick)
        out.compare("present of an accountant later", accountant.leakage(state, tick + 2).epsilon, told[2], tick)
        out.compare("peak of an accountant", accountant.peak(state), max(told), tick)
        again = accountant.restore(state.to_dict())
        out.compare("restored state", accountant.leakage(again).epsilon, told[0], tick)
    out.releases = released
    if late:
        out.tags.add("stale readings")
    if released:
        out.compare("event of an accountant", accountant.event_level(late), truth.event(), tick)
        out.compare("group of an accountant", accountant.group_level(released), truth.group(spec), tick)
        out.compare("lifetime of an accountant", accountant.lifetime(released, stale=late), truth.lifetime(spec), tick)


def _reads(ages: tuple[int, ...], rows: dict[int, tuple[int, ...]], tick: int) -> list[int | None]:
    return [
        max((t for t, lost in rows.items() if t <= tick - age and i not in lost), default=None)
        for i, age in enumerate(ages)
    ]
