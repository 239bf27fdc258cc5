"""Where aged answers come from, and the outputs that are drawn from them: a panel, or an engine of `csdp.tables`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from csdp import fran
from csdp.errors import InputError
from csdp.ledger.records import check_tick
from csdp.noise import Randomness
from csdp.numbers import Floats, Indices, Ints
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.query_table import FoldTable

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
        """How many sequences were read at the aged ticks of some ticks: 1 or more each."""


@runtime_checkable
class NamingSource(Protocol):
    """A source that names the sequences that are late or missing: certificates are then smaller."""

    def delays(self, plan: Plan, ticks: Sequence[int]) -> Ints:
        """The steps (ticks, s) by which the reading of every sequence is older than planned; -1 if it was not read."""


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
        # Checked before anything is charged.
        known = fran.known_rows(plan, panel.states if plan.query.of_states else _readings_of(panel, plan))
        self._missing = known < 0
        self._filled = fran.fill(known, plan.stale_limit)
        self._stale, self._counts = fran.freshness(plan, self._missing)

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """Which ticks could be released, from which readings are missing alone."""
        reasons = fran.reasons_against(plan, self._counts)
        return zip(self._ticks.tolist(), self._stale.tolist(), reasons, strict=True)

    def delays(self, plan: Plan, ticks: Sequence[int]) -> Ints:
        """The steps by which the reading of every sequence is older than planned, at some ticks; -1 if not read."""
        return fran.delays_at(plan, self._missing, self._rows(ticks))

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        return fran.answers(plan, self._filled, self._rows(ticks), checked=True)

    def counts(self, plan: Plan, ticks: Sequence[int]) -> list[int]:
        """How many sequences were read at the aged ticks of some ticks."""
        return [int(count) for count in self._counts[self._rows(ticks)]]

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
    ready: Mapping[int, Ready],
    randomness: Randomness,
    ticks: Sequence[int],
) -> list[fran.Output]:
    """Outputs of granted ticks, in that order. Only called after the ledger was charged."""
    if not ticks:
        return []
    granted = [ready[tick] for tick in ticks]
    exact = check_answers(plan, granted, source.answers(plan, list(ticks)))
    return [
        fran.add_noise(plan, answer, one.stale, randomness, tick=one.tick, count=one.read)
        for one, answer in zip(granted, exact, strict=True)
    ]


class Ready(NamedTuple):
    """A tick that could be released: how much older than planned its stalest reading is, and how many were read."""

    tick: int
    stale: int
    read: int


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


def read_counts(source: AgedSource, plan: Plan, ticks: Sequence[int]) -> list[int]:
    """How many sequences each tick rests on; asked before anything is charged: which are missing is public."""
    counts = [int(count) for count in source.counts(plan, ticks)]
    least, most = plan.query.least_read(), plan.model.sequences
    for tick, count in zip(ticks, counts, strict=True):
        if not least <= count <= most:
            raise InputError(f"source: tick {tick} is offered with {count} sequences read, not {least} to {most}")
    return counts


def check_answers(plan: Plan, granted: Sequence[Ready], answers: Any) -> Floats:
    """Exact answers (ticks, d), which engines compute in their own arithmetic: possible ones, on the plan's lattice.

    Noise moves by whole steps, so it would not hide an answer between them.
    """
    table = np.asarray(answers, dtype=np.float64)
    if table.shape != (len(granted), len(plan.query.outputs)):
        raise InputError(f"source: answers of shape {table.shape} given for {len(granted)} ticks")
    for count in {one.read for one in granted}:
        rows = table[[one.read == count for one in granted]]
        offset, step = plan.query.lattice(count)
        if not np.isfinite(rows).all() or not np.array_equal(np.rint((rows - offset) / step) * step + offset, rows):
            raise InputError(f"source: answers between the steps of {step:g} of the plan's lattice")
        low, high = plan.query.bounds_of(count)
        if (rows < low).any() or (rows > high).any():
            raise InputError("source: answers beyond what the query can give on the values of the chain")
    return table


def published_bounds(plan: Plan) -> tuple[Floats, Floats]:
    """The least and the largest answer of every output, as it is published, whichever sequences were read."""
    query = plan.query
    ends = [query.publish(end, read) for read in (query.least_read(), query.sequences) for end in query.bounds_of(read)]
    if isinstance(query, FoldTable) and not (query.needs_all or query.is_mean):
        # A sum of few may lie outside both if some contributions are negative.
        ends.append(query.publish(np.minimum(query.own.min(axis=1), 0.0).sum(axis=0), None))
        ends.append(query.publish(np.maximum(query.own.max(axis=1), 0.0).sum(axis=0), None))
    return np.min(ends, axis=0), np.max(ends, axis=0)


def true_answers(plan: Plan, panel: Panel) -> Floats:
    """The present answer at every tick of a panel (T, d), without noise; NaN if it is not known.

    For readings that are public, or to measure an error: nothing here is published.
    """
    panel, query = panel.arrange(plan.model.names), plan.query
    known = fran.known_rows(plan, panel.states if query.of_states else _readings_of(panel, plan))
    counts = (known >= 0).sum(axis=1)
    out = np.full((len(panel), len(query.outputs)), np.nan)
    chosen = np.flatnonzero(counts >= query.least_read())
    exact = fran.answers_of(plan, known[chosen])
    for t, answer in zip(chosen, exact, strict=True):
        out[t] = query.publish(answer, int(counts[t]))
    return out
