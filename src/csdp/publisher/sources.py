"""Where aged answers come from, and the outputs that are drawn from them: a panel, or an engine of `csdp.tables`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from csdp import fran
from csdp.errors import InputError
from csdp.ledger.records import check_tick
from csdp.noise import Randomness
from csdp.numbers import Bools, Floats, Indices, Ints
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.readings import ReadingsTable

#: Ticks that are reserved, released and committed together in a batch, and values that their outputs hold at most.
CHUNK = 100
CHUNK_VALUES = 1_000_000


class AgedSource(Protocol):
    """Where aged answers come from: an in-memory panel, a stream, or a table engine.

    `availability` says which ticks could be released and how stale they are, from which readings are missing alone;
    `answers` are asked only for ticks that the ledger has granted.
    """

    def availability(self, plan: Plan) -> Iterable[tuple[int, int, str]]:
        """(tick, staleness in steps, reason why not, or empty) in order of ticks, each once."""

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks, exact, on the plan's lattice (ticks, d)."""

    def counts(self, plan: Plan, ticks: Sequence[int]) -> Sequence[int]:
        """How many sequences were read at the aged ticks of some ticks: 1 or more each; asked if readings are
        published."""


@runtime_checkable
class NamingSource(Protocol):
    """A source that names the sequences that are late or missing: certificates of many sequences are then smaller."""

    def delays(self, plan: Plan, ticks: Sequence[int]) -> Ints:
        """The steps (ticks, s) by which the reading of every sequence is older than planned, at some ticks."""

    def absent(self, plan: Plan, ticks: Sequence[int]) -> Bools:
        """Which sequences (ticks, s) were not read at their age, at some ticks."""


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
    """How many ticks go together: fewer if a release is wide, so that memory stays bounded."""
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

    `stale`: tick -> staleness. `counts`: tick -> sequences read, if readings are published.
    """
    if not ticks:
        return []
    granted = {tick: stale[tick] for tick in ticks}
    read: Mapping[int, int] = counts or {}
    exact = check_answers(plan, list(granted), source.answers(plan, list(granted)), counts=counts)
    return [
        fran.add_noise(plan, answer, steps, randomness, tick=tick, count=read.get(tick))
        for (tick, steps), answer in zip(granted.items(), exact, strict=True)
    ]


def read_availability(source: AgedSource, plan: Plan) -> list[tuple[int, int, str]]:
    """(tick, staleness, reason why not) as a source lists them: in order of ticks, no staler than planned."""
    listed = [(check_tick(tick), int(stale), reason) for tick, stale, reason in source.availability(plan)]
    for (before, _, _), (after, _, _) in itertools.pairwise(listed):
        if after <= before:
            raise InputError(f"source: tick {after} is listed after tick {before}; list ticks in rising order")
    for tick, stale, reason in listed:
        if not reason and not 0 <= stale <= plan.stale_limit:
            raise InputError(
                f"source: tick {tick} is offered with readings {stale} steps older than planned; the plan allows 0 to "
                f"{plan.stale_limit}"
            )
    return listed


def read_counts(source: AgedSource, plan: Plan, ticks: Sequence[int]) -> dict[int, int] | None:
    """How many sequences each tick rests on; None if states are published.

    Asked before anything is charged: which readings are missing is public.
    """
    if plan.query.of_states:
        return None
    return dict(zip(ticks, source.counts(plan, ticks), strict=True))


def check_answers(plan: Plan, ticks: Sequence[int], answers: Any, *, counts: Mapping[int, int] | None = None) -> Floats:
    """Exact answers (ticks, d), which engines compute in their own arithmetic: possible ones, on the plan's lattice."""
    exact = _check_lattice(plan, len(ticks), answers)
    query = plan.query
    if isinstance(query, ReadingsTable):
        ends = [query.bounds_of((counts or {}).get(tick, plan.model.sequences)) for tick in ticks]
        low, high = np.array([end[0] for end in ends]), np.array([end[1] for end in ends])
    else:
        low, high = query.bounds
    if (exact < low).any() or (exact > high).any():
        raise InputError("source: answers beyond what the query can give on the values of the chain")
    return exact


def _check_lattice(plan: Plan, ticks: int, answers: Any) -> Floats:
    """Refuse what lies between the steps: noise moves by whole steps, so it would not hide such an answer."""
    table = np.asarray(answers, dtype=np.float64)
    offset = plan.query.offset
    steps = np.rint((table - offset) / plan.step)
    if table.shape != (ticks, len(plan.query.outputs)):
        raise InputError(f"source: answers of shape {table.shape} given for {ticks} ticks")
    if not np.isfinite(table).all() or not np.array_equal(steps * plan.step + offset, table):
        raise InputError(f"source: answers between the steps of {plan.step:g} of the plan's lattice")
    return table


def published_bounds(plan: Plan) -> tuple[Floats, Floats]:
    """The least and the largest answer of every output, as it is published, whichever sequences were read."""
    query = plan.query
    if not isinstance(query, ReadingsTable):
        low, high = query.bounds
        return low / plan.divisor, high / plan.divisor
    everybody = plan.model.sequences
    reads = (everybody,) if query.needs_all else (1, everybody)
    ends = [query.publish(end, read) for read in reads for end in query.bounds_of(read)]
    return np.min(ends, axis=0), np.max(ends, axis=0)


def true_answers(plan: Plan, panel: Panel) -> Floats:
    """The present answer at every tick of a panel (T, d), without noise; NaN if it is not known.

    For readings that are public, or to measure an error: nothing here is published.
    """
    panel, query = panel.arrange(plan.model.names), plan.query
    out = np.full((len(panel), len(query.outputs)), np.nan)
    if not isinstance(query, ReadingsTable):
        complete = (panel.states >= 0).all(axis=1)
        out[complete] = query.evaluate(panel.states[complete].astype(np.intp), plan.model.value_table)
        return out
    levels = query.of.levels(_readings_of(panel, plan))
    counts = (levels >= 0).sum(axis=1)
    for t in np.flatnonzero(counts >= (plan.model.sequences if query.needs_all else 1)):
        out[t] = query.publish(query.level_answers(levels[t : t + 1])[0], int(counts[t]))
    return out
