"""A panel in memory as an engine: the reference for the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.noise import indexed_noise
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import PanelSource, Release
from csdp.tables.engine import ClosingEngine, check_edges, write_long


class MemoryEngine(ClosingEngine):
    """A panel as an engine.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> engine = MemoryEngine(Panel.from_states([[0], [1], [1]]), states=2)
    >>> engine.answers(plan, [1, 2]).tolist(), engine.pair_counts([(0, 0)]).tolist()
    ([[0.0], [1.0]], [[[0, 1], [0, 1]]])
    """

    trusted_noise = True

    def __init__(self, panel: Panel, *, states: int) -> None:
        self._panel = panel
        self._states = states
        self._source: tuple[str, PanelSource] | None = None

    @property
    def ticks(self) -> Ints:
        """Consecutive ticks."""
        return self._panel.ticks

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, as they were read."""
        return self._panel.times

    @property
    def step(self) -> int:
        """Time from one tick to the next."""
        return self._panel.step

    def _source_for(self, plan: Plan) -> PanelSource:
        if self._source is None or self._source[0] != plan.digest:
            self._source = (plan.digest, PanelSource(self._panel, plan))
        return self._source[1]

    def check(self, plan: Plan) -> None:
        """Raise InputError unless the panel holds readings of the plan's chain."""
        self._source_for(plan)

    def availability(self, plan: Plan) -> Iterable[tuple[int, int, str]]:
        """For each tick: staleness, and why it cannot be released; depends only on which readings are missing."""
        return self._source_for(plan).availability(plan)

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        return self._source_for(plan).answers(plan, ticks)

    def noisy_answers(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of an identity query with noise from one key per tick."""
        exact = self.answers(plan, list(keys))
        sequences = np.arange(exact.shape[1])
        for row, (tick, key) in enumerate(keys.items()):
            level = plan.at(plan.level(tick))
            exact[row] += indexed_noise(level.scale, sequences, key) * level.step
        return exact

    def pair_counts(self, edges: npt.ArrayLike) -> Ints:
        """Counts (edges, m, m) of lag-1 pairs."""
        pairs = check_edges(edges, len(self._panel.names))
        return count_pairs(self._panel.states, pairs, self._states)

    def write(self, releases: Iterable[Release], path: str | Path, *, names: Sequence[str]) -> None:
        """Write releases as a long Parquet table."""
        write_long(releases, Path(path), names=names, clock=dict(zip(self.ticks.tolist(), self.times, strict=True)))


def count_pairs(states: npt.NDArray[Any], pairs: Ints, m: int) -> Ints:
    """Count lag-1 pairs (edges, m, m) of a block (T, s); pairs with a missing reading (-1) are not counted."""
    from csdp.fitting import compiled
    from csdp.fitting.pairs import bit_planes

    out = np.zeros((pairs.shape[0], m, m), dtype=np.int64)
    if len(states) > 1 and len(pairs):
        targets, sources = (np.ascontiguousarray(pairs[:, k]) for k in (0, 1))
        compiled.pair_counts(bit_planes(states[:-1], m), bit_planes(states[1:], m), targets, sources, out)
    return out
