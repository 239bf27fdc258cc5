"""FRAN, the mechanism: age the data, then add calibrated noise.

Two pure functions, `init` and `step`, and `batch`, the same fold over a panel, vectorised. Nothing here decides whether
a release is allowed: only the publisher calls it, after the ledger has been charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.noise import Randomness, two_sided_geometric
from csdp.numbers import Bools, Floats, Indices, Ints, fill_masked
from csdp.plan import Plan
from csdp.readings import ReadingsTable

#: State numbers of any integer type.
States = npt.NDArray[Any]

#: Staleness of a sequence that has never been read.
NEVER = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class Output:
    """One release: raw noisy values, what they rest on, and the estimate that a publisher adds to them."""

    values: tuple[float, ...]
    estimate: tuple[float, ...]
    standard_error: tuple[float, ...]
    stale: int  #: how much older than planned the oldest reading was
    unsafe: bool  #: noise came from a seed: nothing is protected
    noise: float | None = None  #: variance of the noise of a value
    low: tuple[float, ...] = ()  #: the band around the estimate
    high: tuple[float, ...] = ()
    level: float | None = None  #: share of the truths that the band is to hold
    about: str = "now"  #: whether the estimate is of the present ("now") or of the time of the readings ("then")
    no_data: float | None = None  #: squared error of guessing the usual value, if there is an estimate
    count: int | None = None  #: sequences that were read: the divisor of a mean; None if the query needs all of them


@dataclass(frozen=True, eq=False)
class FranState:
    """The last readings, newest last: states, or levels of readings, and how stale each is.

    A gap is filled by the last known one, up to the stale limit of the plan, and is -1 beyond. `reason` says why the
    present tick has no output, or is empty; `stale` and `count` describe what its release rests on.
    """

    plan: Plan
    rows: tuple[tuple[States, npt.NDArray[np.uint16] | None], ...] = ()
    stale: int = 0
    reason: str = "no readings yet"
    count: int = 0

    def delays(self, plan: Plan, ticks: Sequence[int]) -> Ints:
        """The steps (1, s) by which the reading of every sequence is older than planned, of the newest tick.

        -1 for a sequence that the release leaves out.
        """
        late = np.zeros((len(ticks), plan.model.sequences), dtype=np.int64)
        for age, members in _by_age(plan):
            stale = self.rows[-1 - age][1]
            if stale is not None:
                chosen = slice(None) if members is None else members
                late[:, chosen] = np.where(stale[chosen] > plan.stale_limit, -1, stale[chosen].astype(np.int64))
        return late


def init(plan: Plan) -> FranState:
    """The state before any reading."""
    return FranState(plan)


def missing_snapshot(plan: Plan) -> npt.NDArray[Any]:
    """A snapshot of which every reading is missing."""
    sequences = plan.model.sequences
    return np.full(sequences, -1, dtype=np.int8) if plan.query.of_states else np.full(sequences, np.nan)


def observe(state: FranState, snapshot: npt.ArrayLike) -> FranState:
    """Take in one snapshot of state numbers, -1 if missing, or of readings, NaN if missing, if the plan publishes
    readings. Purely bookkeeping: nothing is released.
    """
    plan = state.plan
    row = np.asarray(fill_masked(snapshot, -1 if plan.query.of_states else np.nan))
    sequences, states = plan.model.sequences, plan.model.states
    if row.shape != (sequences,):
        what = "state" if plan.query.of_states else "reading"
        raise InputError(f"snapshot: shape {row.shape} given; one {what} for each of {sequences} sequences")
    if isinstance(plan.query, ReadingsTable):
        row = plan.query.of.levels(row)
    else:
        if not np.issubdtype(row.dtype, np.integer):
            raise InputError(f"snapshot: {row.dtype} given; state numbers, -1 if missing (see csdp.panel.to_states)")
        check_states(row, states)
        row = row.astype(np.int8 if states <= 127 else np.int16)
    missing = row < 0
    stale: npt.NDArray[np.uint16] | None = None
    if missing.any():
        filled, old = state.rows[-1] if state.rows else (row, np.full(row.size, NEVER, dtype=np.uint16))
        if old is None:
            old = np.zeros(row.size, dtype=np.uint16)
        stale = np.where(missing, np.minimum(old, NEVER - 1) + (old < NEVER), 0).astype(np.uint16)
        row = np.where(missing & (stale <= plan.stale_limit), filled, row)
    rows = (*state.rows[-plan.max_age :], (row, stale)) if plan.max_age else ((row, stale),)
    if len(rows) <= plan.max_age:
        return replace(state, rows=rows, reason=_too_early(plan, len(rows)))
    # Whether the tick can be released depends on which readings are missing, never on their values.
    worst, count = 0, sequences
    for age, members in _by_age(plan):
        late = rows[-1 - age][1]
        if late is not None:
            late = late if members is None else late[members]
            used = late[late <= plan.stale_limit]
            worst = max(worst, int(used.max(initial=0)))
            count -= late.size - used.size
    return replace(state, rows=rows, stale=worst, count=count, reason=_too_few(plan, count))


def _too_few(plan: Plan, read: int) -> str:
    """Why a tick at which so many sequences were read has no output, or nothing."""
    if read >= plan.query.least_read():
        return ""
    if not read:
        return "no sequence was read at its age"
    older = f", or more than {plan.stale_limit} steps older than planned" if plan.stale_limit else ""
    return f"some reading is missing{older}; {plan.query.name} needs all of them"


def _too_early(plan: Plan, read: int) -> str:
    return f"{read} of {plan.max_age + 1} snapshots read so far"


def information_ages(state: FranState) -> list[int | None]:
    """How old the reading of each sequence is that a release of the newest tick can rest on; None if there is none.

    It is the planned age plus the ticks for which the reading was missing: it depends on times, never on values. One
    that is older than the plan allows is left out of the release.
    """
    ages: list[int | None] = [None] * state.plan.model.sequences
    for age, members in _by_age(state.plan):
        if len(state.rows) <= age:
            continue
        stale = state.rows[-1 - age][1]
        for i in range(len(ages)) if members is None else members.tolist():
            late = 0 if stale is None else int(stale[i])
            ages[i] = None if late >= NEVER - 1 else age + late
    return ages


def delays_at(plan: Plan, missing: Bools, rows: Indices) -> Ints:
    """The steps (rows, s) by which readings are older than planned, for some ticks (rows) of a panel.

    -1 for sequences that a release leaves out. It depends on which readings are missing (T, s) alone.
    """
    first = max(0, int(rows.min(initial=missing.shape[0])) - plan.max_age - plan.stale_limit)
    read = rows[:, None] - np.asarray(plan.ages)[None, :] - first
    last = _last_read(missing[first : int(rows.max(initial=0)) + 1])[read, np.arange(missing.shape[1])]
    late = read - last
    return np.asarray(np.where((last < 0) | (late > plan.stale_limit), -1, late), dtype=np.int64)


@lru_cache(maxsize=16)
def _by_age(plan: Plan) -> tuple[tuple[int, Indices | None], ...]:
    """The distinct ages with their sequences; None if they are all of one age."""
    ages = np.asarray(plan.ages)
    distinct = np.unique(ages)
    if distinct.size == 1:
        return ((int(distinct[0]), None),)
    return tuple((int(age), np.flatnonzero(ages == age)) for age in distinct)


def release(state: FranState, randomness: Randomness, *, tick: int | None = None) -> Output | None:
    """Age, ask, add noise; None if the tick cannot be released (`state.reason` says why).

    `tick`: for the noise level, if the plan has a schedule; default the plan's own.
    """
    if state.reason:
        return None
    answer = answers_of(state.plan, _aged_row(state)[None])[0]
    return add_noise(state.plan, answer, state.stale, randomness, tick=tick, count=state.count)


def release_many(states: Mapping[int, FranState], randomness: Randomness, ticks: Sequence[int]) -> list[Output]:
    """Release some ticks, each from its own state; none of them may have a reason not to."""
    outputs = [release(states[tick], randomness, tick=tick) for tick in ticks]
    return [output for output in outputs if output is not None]


def _aged_row(state: FranState) -> States:
    """What the release of the newest tick reads: each sequence at its own age."""
    groups = _by_age(state.plan)
    if len(groups) == 1:
        return state.rows[-1 - groups[0][0]][0]
    aged = np.empty_like(state.rows[-1][0])
    for age, members in groups:
        aged[members] = state.rows[-1 - age][0][members]
    return aged


def step(state: FranState, snapshot: npt.ArrayLike, randomness: Randomness) -> tuple[FranState, Output | None]:
    """One tick: take in a snapshot, and release if possible. Pure given its randomness.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> state, output = step(init(plan), [0], Randomness.secure())
    >>> output, state.reason
    (None, '1 of 2 snapshots read so far')
    """
    fresh = observe(state, snapshot)
    return fresh, release(fresh, randomness)


def add_noise(
    plan: Plan,
    answer: Floats,
    stale: int,
    randomness: Randomness,
    *,
    tick: int | None = None,
    count: int | None = None,
) -> Output:
    """Add two-sided geometric noise on the lattice, then divide, which is post-processing.

    `count`: how many sequences were read; all of them by default.
    """
    level = plan if tick is None else plan.at_tick(tick)
    noised = answer + two_sided_geometric(level.scale, answer.shape, randomness) * level.step
    return postprocess(plan, noised, stale, variance=level.noise_variance, unsafe=randomness.unsafe, count=count)


def postprocess(
    plan: Plan, noised: Floats, stale: int, *, variance: float, unsafe: bool, count: int | None = None
) -> Output:
    """Divide an answer on the lattice that has its noise.

    `variance`: that of the noise, after the division, if every sequence was read; `count`: how many were.
    """
    query = plan.query
    read = query.sequences if count is None else count
    raw = query.publish(noised, read)
    spread = variance * query.noise_factor(read) ** 2
    return Output(tuple(raw.tolist()), (), (), stale, unsafe, spread, count=None if query.needs_all else read)


def batch(plan: Plan, states: States, randomness: Randomness) -> list[Output | None]:
    """The fold of `step` over a panel (T, s), vectorised; the same outputs from the same randomness.

    If the plan publishes readings, `states` are readings, NaN if missing.
    """
    known = known_rows(plan, states)
    stale, counts = freshness(plan, known < 0)
    filled, reasons = fill(known, plan.stale_limit), reasons_against(plan, counts)
    rows = np.array([t for t, reason in enumerate(reasons) if not reason], dtype=np.intp)
    outputs: list[Output | None] = [None] * filled.shape[0]
    if rows.size:
        for t, answer in zip(rows.tolist(), answers(plan, filled, rows, checked=True), strict=True):
            outputs[t] = add_noise(plan, answer, int(stale[t]), randomness, count=int(counts[t]))
    return outputs


def known_rows(plan: Plan, panel: npt.NDArray[Any]) -> States:
    """What a query reads of a panel (T, s): its states, or the levels of its readings; -1 for a gap."""
    if isinstance(plan.query, ReadingsTable):
        return plan.query.of.levels(panel)
    check_states(panel, plan.model.states)
    return panel


def freshness(plan: Plan, missing: Bools) -> tuple[Ints, Ints]:
    """For each tick of a panel (T, s): staleness in steps of the stalest reading used, and sequences that are read.

    It depends on which readings are missing alone.
    """
    total, oldest = missing.shape[0], plan.max_age
    stale, counts = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64)
    counts[oldest:] = plan.model.sequences
    if total <= oldest or not missing.any():
        return stale, counts
    last = _last_read(missing)
    old = np.where(last >= 0, np.arange(total)[:, None] - last, NEVER)
    for age, members in _by_age(plan):
        late = old[oldest - age : total - age]
        late = late if members is None else late[:, members]
        used = late <= plan.stale_limit
        stale[oldest:] = np.maximum(stale[oldest:], np.where(used, late, 0).max(axis=1))
        counts[oldest:] -= (~used).sum(axis=1)
    return stale, counts


def reasons_against(plan: Plan, counts: Ints) -> list[str]:
    """For each tick of a panel: why it cannot be released, from how many sequences are read; empty if it can."""
    early = [_too_early(plan, t + 1) for t in range(min(plan.max_age, counts.size))]
    return [*early, *(_too_few(plan, count) for count in counts[plan.max_age :].tolist())]


def fill(states: States, limit: int) -> States:
    """Carry the last known state over gaps of at most `limit` steps."""
    missing = states < 0
    if not limit or not missing.any():
        return states
    last = _last_read(missing)
    near = (last >= 0) & (np.arange(len(states))[:, None] - last <= limit)
    return np.asarray(np.where(near, states[np.maximum(last, 0), np.arange(states.shape[1])], -1), states.dtype)


def answers(plan: Plan, filled: States, rows: Indices, *, checked: bool = False) -> Floats:
    """The query on the aged snapshots of some ticks (rows of a filled panel), exact, on the plan's lattice."""
    if not checked:
        check_states(filled, plan.model.states)
    groups = _by_age(plan)
    if len(groups) == 1:
        old = rows - groups[0][0]
        run = old.size > 0 and bool((np.diff(old) == 1).all())  # consecutive rows need not be copied
        return answers_of(plan, filled[int(old[0]) : int(old[-1]) + 1] if run else filled[old])
    ages = np.asarray(plan.ages)
    return answers_of(plan, filled[rows[:, None] - ages[None, :], np.arange(filled.shape[1])])


def answers_of(plan: Plan, aged: States) -> Floats:
    """The query on aged snapshots (T, s): of states, or of the levels of readings."""
    query = plan.query
    return query.level_answers(aged) if isinstance(query, ReadingsTable) else query.lattice_answers(aged)


def _last_read(missing: Bools) -> Indices:
    """The row of the last reading at or before every row, -1 if there was none."""
    at = np.where(missing, -1, np.arange(missing.shape[0])[:, None])
    return np.asarray(np.maximum.accumulate(at, axis=0))


def check_states(states: States, count: int) -> None:
    """Refuse what is neither a state of the chain nor -1."""
    if states.size and (states.max() >= count or states.min() < -1):
        raise InputError(f"snapshot: unknown state; states are 0..{count - 1}, and -1 if missing")
