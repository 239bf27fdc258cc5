"""Where aged answers come from, what is checked of them, and the outputs that are drawn from them.

A source is code of the caller. What it lists can be refused before anything is charged; its answers exist only
afterwards, so a wrong one loses its ticks with an error, and is never published.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.arrays import Bools, Floats, Indices, Ints, fill_masked
from csdp.computation import FoldComputation, FunctionComputation, ReadingsComputation
from csdp.errors import InputError
from csdp.ledger.records import check_tick
from csdp.noise import Randomness
from csdp.panel import Panel
from csdp.plan import Plan

#: Ticks that are reserved, released and committed together in a batch, and values that their outputs hold at most.
CHUNK = 100
CHUNK_VALUES = 1_000_000
#: Ticks before a release whose environments of a public series are told with it, and ticks that are remembered.
TOLD_BACK, _TOLD_TICKS = 64, 2**20


@runtime_checkable
class AgedSource(Protocol):
    """Where aged answers come from: an in-memory panel, a stream, or a table engine.

    `availability` tells which ticks could be released and how stale they are, from which readings are missing alone;
    only for ticks that the ledger has granted are `answers` asked.
    """

    def availability(self, plan: Plan) -> Iterable[tuple[int, int, str]]:
        """(tick, staleness in steps, reason why not, or empty) in order of ticks, each once."""

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks, exact, on the plan's lattice (ticks, d)."""


@runtime_checkable
class CountingSource(AgedSource, Protocol):
    """A source of aged readings: it also says how many sequences each tick rests on, which divides a mean.

    Needed where a plan publishes readings. Which readings are missing is public, so it is asked before anything is
    charged.
    """

    def counts(self, plan: Plan, ticks: Sequence[int]) -> Sequence[int]:
        """How many sequences were read at the aged ticks of some ticks: 1 or more each."""


@runtime_checkable
class DrawingSource(AgedSource, Protocol):
    """A source that adds the noise of wide answers where its rows are, from keys that the gate makes after the charge.

    Noise that somebody else has drawn cannot be verified. So its drawing is used only where it declares
    `trusted_noise = True`, as the engines of this package do: the class is then responsible for the noise. Without the
    declaration the gate asks for exact answers and draws the noise itself.

    The noise of sequence i is `csdp.noise.indexed_noise` of the tick's key and i, so that a task that is run again
    draws the same; the source neither keeps nor writes a key.
    """

    @property
    def trusted_noise(self) -> bool:
        """The declaration that `noisy_answers` draws as specified here."""

    def draws(self, plan: Plan) -> bool:
        """Whether this source draws the noise of the plan's answers."""

    def noisy_answers(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of the ticks with their noise, on the plan's lattice (ticks, d), from one key per tick."""


@runtime_checkable
class LateSource(Protocol):
    """Readings that tell which of them are late: certificates of many sequences are then smaller."""

    def delays(self, plan: Plan, ticks: Sequence[int]) -> Ints:
        """The steps (ticks, s) by which the reading of every sequence is older than planned, at some ticks."""


@runtime_checkable
class AbsentSource(Protocol):
    """Readings that tell which of them are missing: these then cost nothing, where sequences are followed one by one.

    It must agree with how many were read, `counts`: the gate compares them before anything is charged.
    """

    def counts(self, plan: Plan, ticks: Sequence[int]) -> Sequence[int]:
        """How many sequences were read at the aged ticks of some ticks."""

    def absent(self, plan: Plan, ticks: Sequence[int]) -> Bools:
        """Which sequences (ticks, s) were not read at their age, at some ticks."""


class ToldSeries:
    """The environments of a plan's public series as they were told, by tick: what one tick had never changes."""

    def __init__(self, regimes: int) -> None:
        self._regimes = regimes  # environments that the series has; 0 where the plan has no series
        self._told: dict[int, int] = {}

    def tell(self, environments: Mapping[int, int]) -> None:
        """Take in the environments of some ticks, all of them or none."""
        regimes, read = self._regimes, {check_tick(at): operator.index(number) for at, number in environments.items()}
        for tick, number in read.items():
            if not 0 <= number < regimes:
                allowed = f"numbers from 0 to {regimes - 1}" if regimes else "the plan's chain has no public series"
                raise InputError(f"environment: {number} told for tick {tick}; {allowed}")
            if self._told.get(tick, number) != number:
                raise InputError(
                    f"environment: {number} told for tick {tick}, which was told to be {self._told[tick]}; a number "
                    "that is told stays, since charges rest on it"
                )
        self._told |= read
        if len(self._told) > _TOLD_TICKS:
            self._told = dict(sorted(self._told.items())[-_TOLD_TICKS // 2 :])

    def until(self, tick: int) -> dict[int, int]:
        """What is known at a tick, of the last `TOLD_BACK` ticks."""
        told = self._told
        return {at: told[at] for at in range(tick - TOLD_BACK + 1, tick + 1) if at in told} if told else {}

    def tell_panel(self, environments: Mapping[int, int] | npt.ArrayLike | None, source: object) -> None:
        """The same, or one number for each tick of a panel, below 0 where it is not known."""
        if environments is None or isinstance(environments, Mapping):
            self.tell(environments or {})
            return
        numbers = np.asarray(fill_masked(environments, -1))
        if not isinstance(source, Panel) or numbers.shape != (len(source),) or numbers.dtype.kind not in "iu":
            raise InputError(
                f"environments: {numbers.dtype} of shape {numbers.shape} given; a whole number for each tick of a "
                "panel, below 0 where it is not known, or a mapping from ticks to numbers"
            )
        known = numbers >= 0
        self.tell(dict(zip(source.ticks[known].tolist(), numbers[known].tolist(), strict=True)))


def check_states_source(source: str, plan: Plan) -> None:
    """Refuse states whose edges were learned from private readings, unless the plan's fit already costs everything.

    One reading would move the edges, and with them the states of other ticks: the noise of a release does not cover it.
    """
    fitted = plan.model.fitted
    unpaid = fitted is not None and fitted.unpaid
    if source == "private" and plan.query.of_states and not unpaid:
        raise InputError(
            "discretiser: its edges and values come from private readings, which nothing charges; declare edges, "
            "bounds or categories, or learn it from public readings (public=True)"
        )


class PanelSource:
    """A panel as a source of aged answers."""

    def __init__(self, panel: Panel, plan: Plan) -> None:
        check_states_source(panel.source, plan)
        panel = panel.arrange(plan.model.names)
        self._ticks = panel.ticks
        self._missing = panel.states < 0
        self._gaps = bool(self._missing.any())
        # Checked before anything is charged.
        self._filled = fran.read_rows(plan, panel.states if plan.query.of_states else _readings_of(panel, plan))

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """Which ticks could be released, from which readings are missing alone."""
        stale, reasons = (
            fran.availability(plan, self._missing) if self._gaps else fran.releasable_ticks(plan, self._ticks.size, {})
        )
        return zip(self._ticks.tolist(), stale.tolist(), reasons, strict=True)

    def delays(self, plan: Plan, ticks: Sequence[int]) -> Ints:
        """The steps by which the reading of every sequence is older than planned, at some ticks."""
        return fran.delays_at(plan, self._missing, self._rows(ticks))

    def absent(self, plan: Plan, ticks: Sequence[int]) -> Bools:
        """Which sequences were not read at their age, at some ticks."""
        return fran.absent_at(plan, self._missing, self._rows(ticks))

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        return fran.answers(plan, self._filled, self._rows(ticks), checked=True)

    def counts(self, plan: Plan, ticks: Sequence[int]) -> list[int]:
        """How many sequences were read at the aged ticks of some ticks."""
        counts = fran.read_counts(plan, self._missing)
        return [plan.model.sequences] * len(ticks) if counts is None else counts[self._rows(ticks)].tolist()

    def _rows(self, ticks: Sequence[int]) -> Indices:
        return np.asarray(ticks, dtype=np.intp) - int(self._ticks[0])


def _readings_of(panel: Panel, plan: Plan) -> Floats:
    if panel.readings is None:
        raise InputError(
            f"panel: it holds states only, and the plan publishes {plan.query.name}; read it from readings "
            "(read_panel, Discretiser.apply), or make a plan of a query of states"
        )
    return panel.readings


def chunk_size(plan: Plan) -> int:
    """How many ticks go together: fewer where a release is wide, so that memory stays bounded."""
    return max(1, min(CHUNK, CHUNK_VALUES // len(plan.query.outputs)))


def draw_outputs(
    plan: Plan,
    source: AgedSource,
    stale: Mapping[int, int],
    randomness: Randomness,
    ticks: Sequence[int],
    *,
    counts: Mapping[int, int] | None = None,
) -> list[fran.Output]:
    """Outputs of granted ticks, in that order. Only called after the ledger was charged.

    `stale`: tick -> staleness. `counts`: tick -> sequences read, where readings are published.
    """
    if not ticks:
        return []
    granted = {tick: stale[tick] for tick in ticks}
    read: Mapping[int, int] = counts or {}
    if isinstance(source, DrawingSource) and source.trusted_noise is True and source.draws(plan):
        # A key lives from here to the end of this call: a driver that dies takes it along, and the tick is lost.
        keys = {tick: randomness.key() for tick in granted}
        noised = check_noised(plan, list(granted), source.noisy_answers(plan, keys))
        return [
            fran.postprocess(
                plan,
                row,
                steps,
                variance=plan.at_tick(tick).noise_variance,
                unsafe=randomness.unsafe,
                count=read.get(tick),
            )
            for (tick, steps), row in zip(granted.items(), noised, strict=True)
        ]
    exact = check_answers(plan, list(granted), source.answers(plan, list(granted)), counts=counts)
    return [
        fran.add_noise(plan, answer, steps, randomness, tick=tick, count=read.get(tick))
        for (tick, steps), answer in zip(granted.items(), exact, strict=True)
    ]


def read_availability(source: AgedSource, plan: Plan) -> Iterator[tuple[int, int, str]]:
    """(tick, staleness, reason why not) as a source lists them: each tick once, in order, no staler than planned."""
    newest: int | None = None
    for entry in source.availability(plan):
        tick, stale, reason = _read_entry(entry)
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


def read_counts(source: AgedSource, plan: Plan, ticks: Sequence[int]) -> dict[int, int] | None:
    """How many sequences each tick rests on, as a source says; None where states are published.

    Asked before anything is charged: which readings are missing is public.
    """
    if plan.query.of_states:
        return None
    if not isinstance(source, CountingSource):
        raise InputError(
            f"source: the plan publishes {plan.query.name}, and {type(source).__name__} does not say how many "
            "sequences were read; it needs a method counts(plan, ticks)"
        )
    everyone = plan.model.sequences
    counts = [operator.index(count) for count in source.counts(plan, ticks)] if ticks else []
    if len(counts) != len(ticks) or not all(1 <= count <= everyone for count in counts):
        raise InputError(f"source: counts must be whole numbers, 1 to {everyone}, one for each of {len(ticks)} ticks")
    return dict(zip(ticks, counts, strict=True))


def _read_entry(entry: Any) -> tuple[int, int, str]:
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
    return check_tick(tick), steps, reason


def check_answers(plan: Plan, ticks: Sequence[int], answers: Any, *, counts: Mapping[int, int] | None = None) -> Floats:
    """Exact answers (ticks, d) of a source: as many as asked, possible ones, on the plan's lattice."""
    exact = _as_table(plan, len(ticks), answers)
    _check_lattice(plan, exact, "answers")
    if isinstance(plan.query, ReadingsComputation):
        ends = [plan.query.bounds((counts or {}).get(tick, plan.model.sequences)) for tick in ticks]
        low, high = np.array([end[0] for end in ends]), np.array([end[1] for end in ends])
    else:
        low, high = answer_bounds(plan)
    if (exact < low).any() or (exact > high).any():
        raise InputError("source: answers beyond what the query can give on the values of the chain")
    return exact


def check_noised(plan: Plan, ticks: Sequence[int], noised: Any) -> Floats:
    """Answers (ticks, d) to which a trusted source has added the noise: their form is all that can be checked."""
    table = _as_table(plan, len(ticks), noised)
    _check_lattice(plan, table, "noisy answers")
    return table


def _check_lattice(plan: Plan, table: Floats, what: str) -> None:
    """Refuse what lies between the steps: noise moves by whole ones, so it would not hide where an answer lies."""
    offset = plan.query.offset
    if not np.array_equal(np.rint((table - offset) / plan.step) * plan.step + offset, table):
        raise InputError(f"source: {what} between the steps of {plan.step:g} of the plan's lattice")


def _as_table(plan: Plan, ticks: int, answers: Any) -> Floats:
    try:
        table = np.asarray(answers, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("source: answers that are no numbers") from None
    if table.shape != (ticks, len(plan.query.outputs)):
        raise InputError(
            f"source: answers of shape {table.shape} given for {ticks} ticks, {len(plan.query.outputs)} outputs"
        )
    if not np.isfinite(table).all():
        raise InputError("source: answers that are not finite")
    return table


@lru_cache(maxsize=16)
def answer_bounds(plan: Plan) -> tuple[Floats, Floats]:
    """The least and the largest answer of every output, on the lattice."""
    query = plan.query
    if isinstance(query, FoldComputation):
        join, start = {"sum": (np.add, 0.0), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}[query.fold]
        low, high = np.full((2, query.blocks, query.width), start)
        join.at(low, query.block, query.own.min(axis=1))
        join.at(high, query.block, query.own.max(axis=1))
        return low.ravel(), high.ravel()
    assert isinstance(query, FunctionComputation)
    if query.answers is not None:
        return query.answers.min(axis=0), query.answers.max(axis=0)
    # No two answers are farther apart than when every record changes.
    one = plan.query.lattice_answers(np.zeros((1, plan.model.sequences), dtype=np.intp))[0]
    reach = query.undivided_sensitivity(plan.model.sequences)
    return one - reach, one + reach


def published_bounds(plan: Plan) -> tuple[Floats, Floats]:
    """The least and the largest answer of every output, as it is published, whichever sequences were read."""
    query = plan.query
    if not isinstance(query, ReadingsComputation):
        low, high = answer_bounds(plan)
        return low / plan.divisor, high / plan.divisor
    everybody = plan.model.sequences
    reads = (everybody,) if query.needs_all else (1, everybody)
    ends = [query.publish(end, read) for read in reads for end in query.bounds(read)]
    return np.min(ends, axis=0), np.max(ends, axis=0)


def true_answers(plan: Plan, panel: Panel) -> Floats:
    """The present answer at every tick of a panel (T, d), without noise; NaN where it is not known.

    For readings that are public, or to measure an error: nothing here is published.
    """
    panel, query = panel.arrange(plan.model.names), plan.query
    out = np.full((len(panel), len(query.outputs)), np.nan)
    if not isinstance(query, ReadingsComputation):
        complete = (panel.states >= 0).all(axis=1)
        out[complete] = query.evaluate(panel.states[complete].astype(np.intp), plan.model.value_table)
        return out
    levels = query.of.levels(_readings_of(panel, plan))
    counts = (levels >= 0).sum(axis=1)
    for t in np.flatnonzero(counts >= (plan.model.sequences if query.needs_all else 1)):
        out[t] = query.publish(query.level_answers(levels[t : t + 1])[0], int(counts[t]))
    return out
