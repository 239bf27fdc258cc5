"""Histories of the accountant alone, without a publisher, with states that are asked for."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accountant.systems import follow
from attacks.cases import Case, PlanSpec
from attacks.history import MANY, Outcome
from attacks.library import make_plan
from attacks.plain import Truth, answers, leaves_out
from csdp.accountant import Lateness
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
    grid = math.prod(len(np.unique(column)) for column in table.T)
    rows = {step.tick: step.missing for step in case.steps}
    released = late = 0
    for tick in sorted(rows):
        if grid ** (released + 1) > 4 * MANY:
            break
        found = _reads(spec, rows, tick)
        read = [i for i, n in enumerate(found) if n is not None]
        if not read or (len(read) < case.s and not leaves_out(spec.ask)):
            continue
        reads = [tick - age if n is None else n for n, age in zip(found, spec.ages, strict=True)]
        delays = np.array([-1 if n is None else tick - age - n for n, age in zip(found, spec.ages, strict=True)])
        staleness = int(delays.max())
        out.tags |= {"missing sequences"} if len(read) < case.s else set()
        state = accountant.release(state, tick, stale=_lateness(delays, named=case.seed % 8 < 4))
        released, late = released + 1, max(late, staleness)
        divisor = len(read) if spec.ask.name == "mean" else plan.divisor
        table = answers(spec.ask, spec.models[0].values, case.s, case.m, read)
        truth.add(tuple(reads), table, float(divisor / (float(plan.scale) * plan.step)))
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
        out.compare(
            "every moment of an accountant",
            accountant.every_moment(released, stale=late),
            truth.every_moment(spec),
            tick,
        )


def _reads(spec: PlanSpec, rows: dict[int, tuple[int, ...]], tick: int) -> list[int | None]:
    """The slice of every sequence's reading; None if there is none that is new enough."""
    return [
        max((t for t, lost in rows.items() if 0 <= tick - age - t <= spec.stale_limit and i not in lost), default=None)
        for i, age in enumerate(spec.ages)
    ]


def _lateness(delays: NDArray[np.int64], *, named: bool) -> bool | Lateness:
    """What the accountant is given of the sequences that are late or missing: their names, or that there are some."""
    if named:
        return Lateness.from_delays(delays)
    return bool(delays.max() > 0) or Lateness(unnamed=bool(delays.min() < 0))
