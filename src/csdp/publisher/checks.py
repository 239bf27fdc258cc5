"""What a source says is held against the plan: which ticks it offers before the charge, its answers before they leave.

A source is whoever wrote it. What it lists can be refused before anything is charged; its answers exist only
afterwards, so a wrong one loses its ticks, is told, and is never published.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.computation import FoldComputation
from csdp.errors import InputError
from csdp.ledger.records import checked_tick
from csdp.plan import Plan
from csdp.publisher.sources import AgedSource

Floats = npt.NDArray[np.float64]


def read_availability(source: AgedSource, plan: Plan) -> Iterator[tuple[int, int, str]]:
    """(tick, staleness, reason why not) as a source lists them: each tick once, in order, no staler than planned."""
    newest: int | None = None
    for entry in source.availability(plan):
        tick, stale, reason = _entry(entry)
        if newest is not None and tick <= newest:
            raise InputError(
                f"source: tick {tick} is listed after tick {newest}; list ticks in rising order, each once"
            )
        newest = tick
        if not reason and stale > plan.stale_limit:
            raise InputError(
                f"source: tick {tick} is offered with readings {stale} steps older than planned; the plan allows "
                f"{plan.stale_limit}. Give a reason why not, or a plan with a larger stale_limit"
            )
        yield tick, stale, reason


def _entry(entry: Any) -> tuple[int, int, str]:
    try:
        tick, stale, reason = entry
    except (TypeError, ValueError):
        raise InputError("source: availability must list (tick, staleness, reason why not)") from None
    try:
        if isinstance(stale, bool | np.bool_):
            raise TypeError
        steps = operator.index(stale)
    except TypeError:
        raise InputError(
            f"source: staleness {type(stale).__name__} given; a whole number of steps, 0 where nothing is missing"
        ) from None
    if steps < 0:
        raise InputError(f"source: staleness {steps} given; 0 or more steps: nothing newer than planned may be read")
    if not isinstance(reason, str):
        raise InputError(f"source: reason {type(reason).__name__} given; words why a tick has no output, or empty")
    return checked_tick(tick), steps, reason


def check_answers(plan: Plan, ticks: Sequence[int], answers: Any) -> Floats:
    """Exact answers (ticks, d) of a source: as many as asked, possible ones, on the plan's lattice."""
    found = _table(plan, len(ticks), answers)
    if not _on_lattice(found, plan.unit):
        raise InputError(f"source: answers that are no multiples of {plan.unit:g}, the plan's lattice")
    low, high = _bounds(plan)
    if (found < low).any() or (found > high).any():
        raise InputError("source: answers beyond what the query can give on the values of the chain")
    return found


def check_noised(plan: Plan, ticks: Sequence[int], noised: Any) -> Floats:
    """Answers (ticks, d) to which a trusted source has added the noise: their form is all that can be checked."""
    found = _table(plan, len(ticks), noised)
    for tick, row in zip(ticks, found, strict=True):
        step = plan.at(plan.level(tick)).step
        if not _on_lattice(row, step):
            raise InputError(f"source: noisy answers that are no multiples of {step:g}, the lattice of the noise")
    return found


def _table(plan: Plan, ticks: int, answers: Any) -> Floats:
    try:
        found = np.asarray(answers, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("source: answers that are no numbers") from None
    if found.shape != (ticks, len(plan.query.outputs)):
        raise InputError(
            f"source: answers of shape {found.shape} given for {ticks} ticks, {len(plan.query.outputs)} outputs"
        )
    if not np.isfinite(found).all():
        raise InputError("source: answers that are not finite")
    return found


def _on_lattice(answers: Floats, unit: float) -> bool:
    steps = answers / unit  # exact: a unit is a power of two
    return bool((steps == np.floor(steps)).all())


@lru_cache(maxsize=16)
def _bounds(plan: Plan) -> tuple[Floats, Floats]:
    """The least and the largest answer of every output, on the lattice."""
    query = plan.query
    if isinstance(query, FoldComputation):
        return _folded(query, query.own.min(axis=1)), _folded(query, query.own.max(axis=1))
    if query.answers is not None:
        return query.answers.min(axis=0), query.answers.max(axis=0)
    # No two answers are farther apart than when every record changes.
    one = fran.lattice_answer(plan, np.zeros((1, plan.model.sequences), dtype=np.intp))[0]
    reach = query.undivided_sensitivity(plan.model.sequences)
    return one - reach, one + reach


def _folded(query: FoldComputation, ends: Floats) -> Floats:
    """The fold of one end (s, w) of the parts of every sequence, in the outputs of its block."""
    join, start = {"sum": (np.add, 0.0), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}[query.fold]
    out = np.full((query.blocks, query.width), start)
    join.at(out, query.block, ends)
    return out.ravel()
